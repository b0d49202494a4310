"""FedEvg and its baselines: identities, what is sent and left, what is refused."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedrepro.check.world import CLASSES, Memory, in_context, play
from fedrepro.engine import tree
from fedrepro.engine.context import Context, Inputs
from fedrepro.engine.executors import eager
from fedrepro.engine.method import SAMPLES, Method, name_of
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, begin, context_of, play_round
from fedrepro.engine.task import BINARY
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedcgan import FedCGAN
from fedrepro.methods.fedcvae import FedCVAE
from fedrepro.methods.fedevg import FedEvg
from fedrepro.methods.generating.synthetic import alikeness, mixture_gradient, one_hot
from fedrepro.models.energy import PowerIterationLinear, SpectralLinear
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.image_worlds import SHAPE, adversaries, autoencoders, energies, energy_net
from support.pretraining_worlds import Pair
from support.refusals import Fault, refused

ITEMS = 4 * CLASSES


def after(world: Federation, until: int | None = None) -> tuple[Tree, Context]:
    server, _, done = play(world, until)
    return server, context_of(world, done - 1, list(range(4)))


# --- the mixture's energy ----------------------------------------------------------------------


def exact(x: Tensor, weights: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Energies |x - c_k|^4 / 4 of clients and their gradients: [clients, n], [clients, n, 3]."""
    apart = x - centres[:, None]
    squares = apart.square().sum(-1)
    return squares.square() / 4, squares[..., None] * apart


def test_its_gradient_is_that_of_the_mixture() -> None:
    """Eq. (4.13) is the gradient of eq. (4.11): by autograd, and by differences."""
    rng = stream(1, "mixture")
    weights = torch.tensor([0.5, 0.3, 0.2])
    centres = torch.randn(3, 3, generator=rng)
    x = torch.randn(5, 3, generator=rng)

    def energy(x: Tensor) -> Tensor:
        each, _ = exact(x, weights, centres)
        return -torch.logsumexp(weights.log()[:, None] - each, 0)

    each, gradients = exact(x, weights, centres)
    ours = mixture_gradient(weights, torch.exp(-each), gradients)
    free = x.clone().requires_grad_()
    theirs = torch.autograd.grad(energy(free).sum(), free)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    step = 1e-6
    for axis in range(3):
        shift = torch.zeros(3)
        shift[axis] = step
        slope = (energy(x + shift) - energy(x - shift)) / (2 * step)
        torch.testing.assert_close(ours[:, axis], slope, rtol=1e-7, atol=1e-7)


def test_how_alike_gradients_of_a_class_are() -> None:
    """Two classes of two items: the same gradient, and opposite ones; three orthogonal ones."""
    one = torch.tensor([[3.0, 4.0], [3.0, 4.0], [1.0, 0.0], [-1.0, 0.0]])
    assert float(alikeness(one, 2)) == pytest.approx(0.5)
    assert float(alikeness(torch.eye(3), 1)) == pytest.approx(3**-0.5)
    assert float(alikeness(torch.zeros(4, 2), 2)) == 0
    server, ctx = after(energies())
    found = FedEvg().metrics(ctx, server)
    assert 0 < found["alike"] < 1
    # How far pixels moved in the last of four rounds; a mean loss is that of guessing, or less.
    apart = server["x"] - after(energies(), until=3)[0]["x"]
    assert found["moved"] == pytest.approx(float(apart.square().mean().sqrt()))
    assert server["numbers"].tolist() == [
        found[name] for name in ("item_energy", "item_loss", "moved", "alike")
    ]


def test_how_many_fakes_pass_and_are_of_their_class() -> None:
    """By the discriminator's scores of the set: real or not first, then the classes."""
    world = adversaries()
    server, ctx = after(world, until=2)
    artifact = world.method.artifact(ctx, server)
    scores = ctx.net.predict(server["params"], artifact.tensors["x"]).tolist()
    real = [1 / (1 + math.exp(-first)) for first, *_ in scores]
    right = [
        max(range(CLASSES), key=classes.__getitem__) == y
        for (_, *classes), y in zip(scores, artifact.tensors["y"].tolist(), strict=True)
    ]
    assert 0 < sum(right) < len(right)
    assert world.method.metrics(ctx, server) == pytest.approx(
        {"taken_for_real": sum(real) / len(real), "recognised": sum(right) / len(right)}
    )


def test_a_client_alone_is_plain_langevin_dynamics_on_its_energy() -> None:
    """Whatever the factor that it sends along."""
    world = energies(noise=0.02)
    world = in_context(world, cohort_size=1)
    server, ctx = begin(world), context_of(world, 0, [0])
    client_states = Memory()
    after, played = play_round(world, server, client_states, 0)
    method = world.method
    assert isinstance(method, FedEvg)
    params = client_states.known[played.cohort[0]]["params"]
    gradient = method.energy_gradient(ctx, params, server["x"], server["y"])
    noise = torch.randn(server["x"].shape, generator=ctx.stream("langevin"))
    moved = server["x"] - method.length(ctx) * gradient.clamp(-3, 3) + 0.02 * noise
    torch.testing.assert_close(after["x"], moved.clamp(0, 1), rtol=1e-12, atol=1e-12)
    assert not torch.equal(after["x"], server["x"].clamp(0, 1))


def test_steps_of_length_zero_leave_the_set() -> None:
    still = energies(first_step=0.0, last_step=0.0, noise=0.0, bounded=False)
    assert torch.equal(after(still)[0]["x"], begin(still)["x"])
    moving = energies(first_step=0.0, last_step=0.1, noise=0.0, bounded=False)
    assert not torch.equal(after(moving)[0]["x"], begin(moving)["x"])


# --- clients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"reinitialise": False, "chain_steps": 2}, {"clip": 0.0}])
def test_clients_agree_side_by_side(options: dict[str, object]) -> None:
    """Also one that has fewer samples than the set has items, or than a mini-batch."""
    one, client_states, _ = play(energies(**options))
    other, stacked, _ = play(energies(execute=eager, **options))
    assert_close(one, other)
    for client, client_state in client_states.known.items():
        assert_close(client_state, stacked.known[client])


@pytest.mark.parametrize("make", [adversaries, autoencoders])
def test_the_baselines_clients_agree_side_by_side(make) -> None:  # type: ignore[no-untyped-def]
    assert_close(play(make())[0], play(make(execute=eager))[0])


@pytest.mark.parametrize("reinitialise", [True, False])
def test_which_classifier_a_client_starts_from(reinitialise: bool) -> None:
    """At rate 0 it ends with the one that it started from: a new one in each round, or its own."""
    world = in_context(energies(reinitialise=reinitialise, lr=0.0), cohort_size=6)
    _, first, _ = play(world, until=1)
    _, second, _ = play(world, until=2)
    for client, client_state in first.known.items():
        same = torch.equal(
            client_state["params"]["head.weight"], second.known[client]["params"]["head.weight"]
        )
        assert same is not reinitialise
    assert (
        len(
            {
                float(client_state["params"]["head.weight"].sum())
                for client_state in first.known.values()
            }
        )
        == 6
    )


def test_a_client_learns_to_tell_its_classes_and_keeps_that() -> None:
    """What is scored is its own classifier; one that has never taken part has an untrained one."""
    world = in_context(energies(rounds=1, lr=0.02), cohort_size=5)
    world = replace(world, context=replace(world.context, epochs=30))
    server, client_states, _ = play(world)
    ctx = context_of(world, 0, list(range(6)))
    away = set(range(6)) - client_states.known.keys()
    for client in away:
        assert world.method.eval_model(ctx, server, client_states.get(client) or {}) is ctx.initial
    assert len(away) == 1 and 3 not in away
    x, y = world.clients.samples.at(world.clients.rows(3))
    params = world.method.eval_model(ctx, server, client_states.known[3])
    assert float((ctx.net(params, x).argmax(1) == y).double().mean()) > 0.7


def test_no_parameter_is_sent_either_way() -> None:
    """All that a client sends fits in shape and size to the set, none of it to a network."""
    world = energies()
    server, client_states = begin(world), Memory()
    _, played = play_round(world, server, client_states, 0)
    message = world.method.broadcast(context_of(world, 0, played.cohort), server)
    shapes = {name: tuple(leaf.shape) for name, leaf in message.items()}
    assert shapes == {"x": (ITEMS, *SHAPE), "y": (ITEMS,)}
    shapes = {name: tuple(leaf.shape) for name, leaf in played.updates.items()}
    assert shapes == {
        "gradient": (4, ITEMS, *SHAPE), "factor": (4, ITEMS), "numbers": (4, 2),
    }  # fmt: skip
    assert played.bytes_up == 4 * 8 * (ITEMS * 6 + ITEMS + 2)
    assert played.bytes_down == 4 * 8 * (ITEMS * 6 + ITEMS)
    told = torch.cat([leaf.flatten() for leaf in tree.leaves(played.updates)])
    for client_state in client_states.known.values():
        assert client_state.keys() == {"params"}
        for leaf in tree.leaves(client_state):
            assert not torch.isin(leaf, told).any()


# --- what is left ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [energies, adversaries, autoencoders])
def test_a_set_of_as_many_of_each_class(make) -> None:  # type: ignore[no-untyped-def]
    world = make()
    server, ctx = after(world)
    artifact = world.method.artifact(ctx, server)
    assert artifact.part == SAMPLES
    assert artifact.about == {"classes": CLASSES, "per_class": 4}
    assert artifact.tensors["x"].shape == (ITEMS, *SHAPE)
    assert artifact.tensors["y"].tolist() == sorted([*range(CLASSES)] * 4)
    assert artifact.tensors["y"].dtype == torch.int64
    low, high = world.context.inputs.range or (0, 0)
    assert low <= float(artifact.tensors["x"].min()) < float(artifact.tensors["x"].max()) <= high
    shown = world.method.images(ctx, server)
    assert torch.equal(shown, artifact.tensors["x"])
    assert all(
        torch.tensor(value).isfinite() for value in world.method.metrics(ctx, server).values()
    )


def test_a_sheet_shows_ten_of_each_class() -> None:
    world = energies(per_class=12)
    server, ctx = after(world, until=1)
    shown = world.method.images(ctx, server)
    assert shown is not None
    assert torch.equal(
        shown.reshape(CLASSES, 10, *SHAPE), server["x"].reshape(CLASSES, 12, *SHAPE)[:, :10]
    )


@pytest.mark.parametrize(("make", "name"), [(adversaries, "generator"), (autoencoders, "decoder")])
def test_the_baselines_images_are_of_their_labels(make, name: str) -> None:  # type: ignore[no-untyped-def]
    """With a network that paints the class that it is told, item i is of class y[i]."""
    world = make()
    server, ctx = begin(world), context_of(world, 0, [0, 1, 2, 3])
    painted = tree.zeros(server["params"])
    painted[f"{name}.0.weight"][:CLASSES, -CLASSES:] = 9 * torch.eye(CLASSES)
    painted[f"{name}.2.weight"][:CLASSES, :CLASSES] = 9 * torch.eye(CLASSES)
    artifact = world.method.artifact(ctx, {**server, "params": painted})
    found = artifact.tensors["x"].flatten(1)[:, :CLASSES].argmax(1)
    assert torch.equal(found, artifact.tensors["y"])


def test_fakes_are_told_to_the_discriminator_as_they_were_made() -> None:
    """Unlike in the released code, whose labels of fakes are drawn by themselves (43)."""
    paper, released = adversaries(), adversaries()
    released = replace(released, method=FedCGAN(per_class=4).as_released())
    ours, theirs = (after(world, until=1)[0]["params"] for world in (paper, released))
    assert not torch.equal(ours["discriminator.3.weight"], theirs["discriminator.3.weight"])
    y = torch.tensor([2, 0])
    assert torch.equal(one_hot(y, 3), torch.tensor([[0.0, 0, 1], [1, 0, 0]]))


def test_as_released() -> None:
    assert FedEvg().as_released() == FedEvg(last_step=1.0, schedule="ddpm", noise=1e-4)
    assert FedCGAN().as_released() == FedCGAN(labels_of_fakes="drawn")
    assert not FedCVAE.deviations()


# --- energies that explode ---------------------------------------------------------------------


@pytest.mark.parametrize("bounded", [True, False])
def test_a_set_of_no_numbers_is_not_taken_over(bounded: bool) -> None:
    """The state is not finite, so that the run ends; the set is the last good one."""
    made = energies(bounded=bounded)
    server, client_states, _ = play(made, until=1)
    broken = replace(made, context=replace(made.context, schedule=lambda round: float("nan")))
    ended, _ = play_round(broken, server, client_states, 1)
    assert torch.equal(ended["x"], server["x"])
    assert not ended["numbers"].isfinite().any()


# --- spectral norm -----------------------------------------------------------------------------


@pytest.mark.parametrize("last", [SpectralLinear, PowerIterationLinear])
def test_the_last_layer_has_spectral_norm_one(last: type[SpectralLinear]) -> None:
    net = Net(energy_net(last).double())
    params = net.init(stream(1, "init"))
    layer = net.module.head
    assert isinstance(layer, SpectralLinear)
    wanted = torch.linalg.matrix_norm(params["head.weight"], 2)
    for _ in range(200):  # the exact norm needs one
        with torch.no_grad():
            net(net.bind(params), torch.zeros(1, *SHAPE))
        params = tree.copy(net._bound)
    torch.testing.assert_close(layer.largest().detach(), wanted)


def test_power_iterations_start_from_the_seed_and_stay_still_in_testing() -> None:
    net = Net(energy_net(PowerIterationLinear).double())
    params = net.init(stream(1, "init"))
    assert torch.equal(params["head.singular"], net.init(stream(1, "init"))["head.singular"])
    assert not torch.equal(params["head.singular"], net.init(stream(2, "init"))["head.singular"])
    bound = net.bind(params)
    net.predict(bound, torch.zeros(1, *SHAPE))
    assert torch.equal(bound["head.singular"], params["head.singular"])
    net(bound, torch.zeros(1, *SHAPE))
    assert not torch.equal(bound["head.singular"], params["head.singular"])


def test_power_iterations_train_one_client_after_another_only() -> None:
    world = energies(last=PowerIterationLinear)
    whole, _, _ = play(world)
    half = play(world, until=2)
    assert_close(play(world, state=half)[0], whole, 0)
    with refused(file="executor", value="vectorised"):
        play(replace(world, execute=eager), until=1)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "fault"),
    [
        (Inputs((6,), 3, (0.0, 1.0)), {"names": ("classes", "images")}),
        (Inputs(SHAPE, 3, None), {"key": "scaling", "names": ("'unit'", "'symmetric'")}),
        (Inputs(SHAPE, 3, (0.0, 1.0), (1, 2)), {"key": "partition", "names": ("1", "2")}),
    ],
)
def test_samples_that_a_set_can_t_be_made_of(inputs: Inputs, fault: Fault) -> None:
    ctx = replace(energies().context, inputs=inputs)
    with refused(**fault):
        FedEvg().check(ctx)
    with refused(names="classes"):
        FedEvg().check(replace(energies().context, task=BINARY))


@pytest.mark.parametrize(
    ("make", "range", "expected"),
    [
        (adversaries, (0.0, 1.0), "'symmetric'"),
        (autoencoders, (-1.0, 1.0), "'unit'"),
    ],
)
def test_a_range_that_the_network_does_not_make(make, range, expected: str) -> None:  # type: ignore[no-untyped-def]
    world = make()
    world.method.check(world.context)
    with refused(key="scaling", value=range, names=expected):
        world.method.check(replace(world.context, inputs=Inputs(SHAPE, CLASSES, range)))


@pytest.mark.parametrize("make", [adversaries, autoencoders])
def test_a_model_that_generates_nothing_or_no_classes_is_refused(make) -> None:  # type: ignore[no-untyped-def]
    world = make()
    module = copy.deepcopy(world.context.net.module)
    del module.classes
    for unfit in (energy_net(), Pair(), module):  # a classifier, a GAN, and one without classes
        with refused(key="model", names=f"{name_of(world.method)}_small"):
            world.method.check(replace(world.context, net=Net(unfit)))


@pytest.mark.parametrize(
    ("method", "options", "fault"),
    [
        (FedEvg, {"per_class": 0}, {"key": "per_class", "value": 0, "names": ("1", "whole")}),
        (FedCGAN, {"per_class": 0}, {"key": "per_class", "value": 0}),
        (FedCVAE, {"per_class": 0}, {"key": "per_class", "value": 0}),
        (FedEvg, {"chain_steps": 0}, {"key": "chain_steps", "value": 0}),
        (FedEvg, {"noise": -1.0}, {"key": "noise", "value": -1.0}),
        (FedEvg, {"schedule": "cosin"}, {"key": "schedule", "value": "cosin", "names": "'cosine'"}),
        (
            FedCGAN,
            {"labels_of_fakes": "mad"},
            {"key": "labels_of_fakes", "value": "mad", "names": "'made'"},
        ),
        (FedCVAE, {"error": "pixels"}, {"key": "error", "value": "pixels", "names": "'pixel'"}),
    ],
)
def test_hyperparameters_that_make_no_sense(
    method: type[Method], options: dict[str, object], fault: Fault
) -> None:
    with refused(**fault):
        method(**options)
