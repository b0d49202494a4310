"""WGAN-GP, FedGAN and the clients' discriminators: what they leave, resume and refuse."""

from dataclasses import replace

import pytest
import torch

from fedrepro.check.world import (
    FEATURES,
    Memory,
    data,
    follows_a_server_optimizer,
    in_context,
    play,
)
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import eager
from fedrepro.engine.method import SAMPLES
from fedrepro.engine.net import Net, part_of
from fedrepro.engine.round import begin, context_of, play_round
from fedrepro.methods.generated import Generated
from fedrepro.methods.registry import compose, parts
from fedrepro.methods.wgan_gp import WganGp
from support.closeness import assert_close
from support.pretraining_worlds import LATENT, WORLDS, Pair, critic_world, images_world, of_server
from support.refusals import refused
from support.worlds import federation


def test_all_of_them_are_listed_as_pre_training() -> None:
    found = {name for name, part in parts().items() if part.kind == "pre-training"}
    assert found == set(WORLDS)


@pytest.mark.parametrize("name", WORLDS)
def test_resuming_changes_no_bit_and_arguments_stay(name: str) -> None:
    made = WORLDS[name]()
    whole, client_states, _ = play(made)
    half, half_owns, done = play(made, until=2)
    kept = (
        tree.copy(half),
        {client: tree.copy(client_state) for client, client_state in half_owns.known.items()},
    )
    state = torch.get_rng_state()
    resumed, resumed_states, _ = play(made, state=(half, half_owns, done))
    assert torch.equal(state, torch.get_rng_state())
    assert_close(resumed, whole, 0)
    assert_close(half, kept[0], 0)
    for client, client_state in client_states.known.items():
        assert_close(resumed_states.known[client], client_state, 0)
        assert_close(half_owns.known[client], kept[1][client], 0)
    other, _, _ = play(in_context(made, seed=4), until=1)
    once, _, _ = play(made, until=1)
    pairs = zip(tree.leaves(once), tree.leaves(other), strict=True)
    assert any(not torch.equal(one, another) for one, another in pairs)


@pytest.mark.parametrize("name", WORLDS)
def test_a_server_optimizer_is_followed_or_refused(name: str) -> None:
    world = WORLDS[name]()
    assert follows_a_server_optimizer(world) is world.method.uses_server_optimizer
    composition = f"{name}+fedadam"
    if world.method.uses_server_optimizer:
        compose(composition)
    else:
        with refused("value", key="server optimizer", value="fedadam", names=name):
            compose(composition)


def test_the_generator_steps_once_in_so_many_steps_across_rounds() -> None:
    """12 steps a round of 5 each: the second round's first turn comes after three more."""
    made = of_server(WganGp(critic_steps=5), rounds=3)
    _, client_states, _ = play(made)
    client_state = client_states.known[0]
    assert int(client_state["taken"]) == 36
    assert float(client_state["optimizers"]["critic"]["steps"]) == 36
    assert float(client_state["optimizers"]["generator"]["steps"]) == 7


def test_a_generator_comes_near_the_samples() -> None:
    made = of_server(WganGp(critic_steps=3), lr=0.02, rounds=40)
    x = made.clients.samples.at(torch.arange(96))[0]  # type: ignore[attr-defined]
    noise = torch.randn(500, LATENT, generator=torch.Generator().manual_seed(1)).double()

    def away(server: tree.Tree) -> float:
        net = Net(made.context.net.module.get_submodule("generator"))
        fake = net.predict(part_of(server["params"], "generator"), noise)
        return float((fake.mean(0) - x.mean(0)).norm())

    assert away(play(made)[0]) < 0.5 * away(begin(made))


def test_its_product_is_the_generator_and_it_shows_samples() -> None:
    made = of_server(WganGp())
    server, _, _ = play(made, until=1)
    ctx = context_of(made, 0, [0])
    artifact = made.method.artifact(ctx, server)
    assert artifact.part == "generator" and artifact.about == {"latent": LATENT}
    assert artifact.tensors.keys() == Net(Pair().generator).init(torch.Generator()).keys()
    shown = made.method.images(ctx, server)
    assert shown is not None and shown.shape == (64, FEATURES)
    assert torch.equal(shown, made.method.images(ctx, server))  # type: ignore[arg-type]
    told = server["losses"].tolist()
    assert made.method.metrics(ctx, server) == {"critic_loss": told[0], "generator_loss": told[1]}


def test_networks_that_are_no_numbers_are_not_taken_over() -> None:
    """The state is not finite, so that the run ends; its networks are the last good ones."""
    made = of_server(WganGp())
    server, client_states, _ = play(made, until=1)
    broken = replace(made, context=replace(made.context, schedule=lambda round: float("nan")))
    after, _ = play_round(broken, server, client_states, 1)
    assert_close(after["params"], server["params"], 0)
    assert not after["losses"].isfinite().any()


def test_side_by_side_is_refused() -> None:
    with refused("value", file="executor", value="vectorised", names="'sequential'"):
        play(replace(of_server(WganGp()), execute=eager), until=1)


def test_a_model_without_a_generator_is_refused() -> None:
    with refused(file="wgan_gp", key="model", names=("wgan_gp_resnet", "wgan_gp_small")):
        WganGp().check(federation().context)


def test_fedgan_averages_by_samples() -> None:
    made = WORLDS["fedgan"]()
    server, played = play_round(made, begin(made), Memory(), 0)
    ctx = context_of(made, 0, played.cohort)
    ends = [made.method.client_model(ctx, begin(made), played.updates, place) for place in range(6)]
    mean = tree.weighted_sum(tree.stack(ends), ctx.sizes / ctx.sizes.sum())
    assert_close(server["params"], mean)


def test_discriminators_are_the_clients_own() -> None:
    """Each carries its network and optimizer on; what is left is theirs, in the clients' order."""
    made = critic_world()
    server, client_states, _ = play(made)
    ctx = context_of(made, 3, list(range(6)))
    artifact = made.method.artifact(ctx, server)
    assert artifact.each_client
    for client, client_state in client_states.known.items():
        assert_close(tree.take(artifact.tensors, client), client_state["params"], 0)
    assert not torch.equal(artifact.tensors["0.weight"][0], artifact.tensors["0.weight"][1])
    stacked, _, _ = play(replace(made, execute=eager))
    assert_close(server, stacked)


def test_a_discriminator_tells_samples_from_generated_ones() -> None:
    made = critic_world(rounds=30)
    server, _, _ = play(made)
    ctx: Context = made.context
    given = ctx.artifacts["generator"]
    assert given.net is not None
    noise = torch.randn(200, 2, generator=torch.Generator().manual_seed(2)).double()
    fakes = given.net.predict(given.tensors, noise)
    for client in range(6):
        critic = tree.take(server["critics"], client)
        real, fake = ctx.net(critic, data().tensors[client][0]), ctx.net(critic, fakes)
        assert float(fake.min()) >= 0 and float(real.max()) <= 1
        assert float(real.mean()) > float(fake.mean()) + 0.2


def test_images_are_the_generator_s_in_testing_mode_and_follow_from_the_seed() -> None:
    made = images_world()
    server, _, _ = play(made, until=1)
    ctx = context_of(made, 0, [0])
    given = ctx.artifacts["generator"]
    assert given.net is not None
    noise, drawn = ctx.stream("images"), []
    for count in (250, 250, 100):
        drawn.append(torch.randn(count, 2, generator=noise).double())
    torch.testing.assert_close(server["x"], given.net.predict(given.tensors, torch.cat(drawn)))
    artifact = made.method.artifact(ctx, server)
    assert artifact.part == SAMPLES and not artifact.each_client
    assert torch.equal(artifact.tensors["x"], server["x"])
    shown = made.method.images(ctx, server)
    assert shown is not None and torch.equal(shown, server["x"][:64])


def test_images_are_drawn_in_one_round() -> None:
    with refused(file="generated", key="rounds", value=4, names="1"):
        Generated().check(images_world().context)
    with refused(key="number", value=0):
        Generated(number=0)
