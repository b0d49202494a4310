"""Degenerate cases and closed forms of the baselines that no paper of the workbench has."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, SIZES, Data, Memory, in_context, play
from fedrepro.engine import tree
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, context_of, play_round, steps_of
from fedrepro.methods import registry
from fedrepro.methods.central import Central
from fedrepro.methods.fedasam import FedASAM
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedbn import FedBN
from fedrepro.methods.feddyn import FedDyn
from fedrepro.methods.fedsam import FedSAM, perturbed
from fedrepro.methods.fedspeed import FedSpeed
from fedrepro.methods.lagrangian.augmented import AugmentedLagrangian
from fedrepro.methods.local import Local
from fedrepro.methods.moon import MOON
from fedrepro.methods.per_fedavg import PerFedAvg, share
from fedrepro.methods.scaffnew import Scaffnew
from fedrepro.models.classifier import Classifier
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation


@pytest.mark.parametrize("special", [FedSAM(rho=0.0), MOON(mu=0.0), FedBN()], ids=str)
def test_degenerate_case_is_fedavg(special: Method) -> None:
    ours, _, _ = play(federation(method=special))
    theirs, _, _ = play(federation(method=FedAvg()))
    assert_close(ours["params"], theirs["params"])


@pytest.mark.parametrize("method", [FedDyn(alpha=1e-15), FedSpeed(mu=1e-15, rho=0.0)], ids=str)
def test_without_a_penalty_clients_train_as_in_fedavg(method: AugmentedLagrangian) -> None:
    world = federation(method=method)
    server, _, _ = play(world, until=0)
    ctx = context_of(world, 0, [1])
    message, steps = method.broadcast(ctx, server), steps_of(world, ctx, 1)
    client = method.init_client(ctx, torch.Generator())
    _, after = method.client_update(ctx, message, client, steps)
    theirs, _ = FedAvg().client_update(ctx, message, {}, steps)
    assert_close(after["h"], tree.scale(theirs["delta"], -1))


def test_fedspeed_without_perturbation_is_feddyn_where_all_take_part() -> None:
    ours, _, _ = play(federation(method=FedSpeed(mu=0.3, rho=0.0), cohort=6))
    theirs, _, _ = play(federation(method=FedDyn(alpha=0.3), cohort=6))
    assert_close(ours["params"], theirs["params"])


def test_h_of_feddyn_is_the_mean_of_all_clients() -> None:
    server, states, _ = play(federation(method=FedDyn(alpha=0.3)), until=4)
    total = tree.zeros(server["h"])
    for client, state in states.known.items():
        total = tree.add(total, tree.scale(state["h"], SIZES[client] / sum(SIZES)))
    assert_close(server["h"], total)


# --- convergence on unequal quadratics ------------------------------------------------------------
class Quadratic:
    """Client i has y_i / 2 |theta - x_i|^2, with x_i and y_i the same in all of its samples."""

    def loss(self, ctx, message, client_state, params, batch):  # type: ignore[no-untyped-def]
        real = batch["real"] if "real" in batch else torch.ones(len(batch["y"]))
        each = torch.stack(
            [tree.square_norm(tree.apply(lambda p, x=x: p - x, params)) for x in batch["x"][:, 0]]
        )
        return (each * batch["y"] * real).sum() / (2 * real.sum().clamp(min=1))


@dataclass(frozen=True)
class QuadraticFedDyn(Quadratic, FedDyn):
    pass


@dataclass(frozen=True)
class QuadraticScaffnew(Quadratic, Scaffnew):
    pass


@dataclass(frozen=True)
class QuadraticPerFedAvg(Quadratic, PerFedAvg):
    pass


@dataclass(frozen=True)
class QuadraticFedSpeed(Quadratic, FedSpeed):
    pass


@dataclass(frozen=True)
class QuadraticFedSAM(Quadratic, FedSAM):
    pass


CENTRES, HEIGHTS = torch.tensor([1.0, -2, 4, 0, 3, -1]), torch.tensor([1, 3, 2, 5, 1, 4])


def on_quadratics(method: Method, lr: float, cohort: int = 4) -> Federation:
    world = federation(method=method, momentum=0.0, weight_decay=0.0, cohort=cohort)
    context = replace(world.context, schedule=lambda round: lr)
    tensors = [
        (torch.full((size, FEATURES), float(centre)), height.repeat(size))
        for size, centre, height in zip(SIZES, CENTRES, HEIGHTS, strict=True)
    ]
    return replace(world, clients=Data(tensors), context=context)


@pytest.mark.parametrize(
    ("method", "lr", "rounds"),
    [
        (QuadraticFedDyn(alpha=2.0), 0.15, 80),
        (QuadraticFedSpeed(mu=2.0, rho=0.0).as_released(), 0.15, 80),
        (QuadraticScaffnew(p=0.3), 0.1, 75),
    ],
    ids=["feddyn", "fedspeed@released", "scaffnew"],
)
def test_it_comes_to_rest_at_the_minimum_over_samples(
    method: Method, lr: float, rounds: int
) -> None:
    """sum n_i y_i (w - x_i) = 0, with four of six clients a round, or with coins."""
    assert far_from_the_minimum(method, lr, rounds) < 1e-5


def test_fedspeed_s_text_does_not_with_a_sample_of_clients() -> None:
    """The corrections of absent clients are missing (discrepancy B25)."""
    assert far_from_the_minimum(QuadraticFedSpeed(mu=2.0, rho=0.0), 0.15, 80) > 0.1


def far_from_the_minimum(method: Method, lr: float, rounds: int) -> float:
    """The largest distance of a parameter from the minimum over samples at the end."""
    cohort = 6 if method.full_participation else 4
    server, _, _ = play(on_quadratics(method, lr, cohort), until=rounds)
    shares = torch.tensor(SIZES) * HEIGHTS
    minimum = float((shares * CENTRES).sum() / shares.sum())
    return max(float((leaf - minimum).abs().max()) for leaf in tree.leaves(server["params"]))


def of_one_client(method: Method, lr: float) -> tuple[Federation, Tensor, Tensor]:
    """A federation, and the first parameters before and after client 1's only step."""
    world = on_quadratics(method, lr)
    world = replace(world, context=replace(world.context, epochs=1, batch_size=64))
    server, _, _ = play(world, until=0)
    ctx = context_of(world, 0, [1])
    client = method.init_client(ctx, torch.Generator())
    update, _ = method.client_update(
        ctx, method.broadcast(ctx, server), client, steps_of(world, ctx, 1)
    )
    flat = [
        torch.cat([p.flatten() for p in tree.leaves(t)]) for t in (ctx.initial, update["delta"])
    ]
    return world, flat[0], flat[0] - flat[1]


@pytest.mark.parametrize("hessian_free", [True, False])
def test_a_step_of_per_fedavg_on_a_quadratic(hessian_free: bool) -> None:
    """The gradient of y/2 |w - alpha y (w - x) - x|^2; without the Hessian one factor less."""
    alpha, y, x = 0.1, 3.0, -2.0
    method = QuadraticPerFedAvg(alpha=alpha, hessian_free=hessian_free)
    _, before, after = of_one_client(method, 0.05)
    factor = (1 - alpha * y) ** (2 if hessian_free else 1)
    torch.testing.assert_close(after, before - 0.05 * y * factor * (before - x), rtol=1e-8, atol=0)


def test_a_step_of_fedsam_on_a_quadratic() -> None:
    """The gradient grows by y rho along its own direction."""
    y, x, rho = 3.0, -2.0, 0.4
    _, before, after = of_one_client(QuadraticFedSAM(rho=rho), 0.05)
    away = before - x
    wanted = before - 0.05 * y * away * (1 + rho / away.norm())
    torch.testing.assert_close(after, wanted, rtol=1e-10, atol=0)


def test_the_perturbation_is_as_long_as_it_says_and_leaves_buffers() -> None:
    params = {"weight": torch.randn(3, 2), "mean": torch.ones(2)}
    moved = perturbed(params, {"weight": torch.randn(3, 2)}, 0.3)
    assert float((moved["weight"] - params["weight"]).norm()) == pytest.approx(0.3)
    assert moved["mean"] is params["mean"]
    flat = {"weight": torch.zeros(3, 2)}  # no direction: not NaN
    assert torch.equal(perturbed(params, flat, 0.3)["weight"], params["weight"])
    assert torch.equal(FedASAM().ascent(params, flat)["weight"], flat["weight"])


# --- Per-FedAvg -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class OnHalves(FedAvg):
    """FedAvg on every second sample of a mini-batch."""

    def loss(self, ctx, message, client_state, params, batch):  # type: ignore[no-untyped-def]
        return super().loss(ctx, message, client_state, params, share(batch, 1, 2))


def test_per_fedavg_without_an_inner_step_is_fedavg_on_the_outer_samples() -> None:
    ours, states, _ = play(federation(method=PerFedAvg(alpha=0.0, hessian_free=False)))
    theirs, _, _ = play(federation(method=OnHalves()))
    assert_close(ours["params"], theirs["params"])
    ctx = context_of(federation(), 5, [0])
    for state in states.known.values():
        assert_close(PerFedAvg(alpha=0.0).eval_model(ctx, ours, state), ours["params"])


def test_per_fedavg_is_scored_after_a_step_over_all_samples() -> None:
    world = federation(method=PerFedAvg(alpha=0.2), cohort=6)
    server, states, _ = play(world, until=1)
    ctx = context_of(world, 0, [2])
    x, y = world.clients.samples.at(world.clients.rows(2))
    gradient = Method().gradient(ctx, {}, {}, ctx.initial, {"x": x, "y": y})
    wanted = tree.apply(lambda w, g: w - 0.2 * g, server["params"], gradient)
    assert_close(world.method.eval_model(ctx, server, states.known[2]), wanted)
    assert world.method.eval_model(ctx, server, {}) is server["params"]


# --- Scaffnew -------------------------------------------------------------------------------------
def test_scaffnew_that_always_communicates_is_gradient_descent() -> None:
    """A step a round, of the mean gradient: the h_k add up to 0 and change nothing."""
    world = federation(method=Scaffnew(p=1.0), momentum=0.0, weight_decay=0.0)
    world = in_context(world, batch_size=64)
    server, _, _ = play(world, until=4)
    x, y = world.clients.samples.at(torch.arange(sum(SIZES)))
    params = world.initial
    for t in range(4):
        gradient = Method().gradient(world.context, {}, {}, params, {"x": x, "y": y})
        params = tree.subtract(params, tree.scale(gradient, world.context.schedule(t)))
    assert_close(server["params"], params)


def test_scaffnew_tosses_coins_until_one_shows() -> None:
    """Rounds have 1 / p steps on average."""
    world = federation(method=Scaffnew(p=0.25))
    server, _, _ = play(world, until=0)
    ctxs = (context_of(world, t, [0]) for t in range(400))
    lengths = torch.stack([world.method.broadcast(ctx, server)["steps"] for ctx in ctxs])
    assert lengths.min() == 1
    assert float(lengths.mean()) == pytest.approx(4, abs=0.5)


@pytest.mark.parametrize("batch_size", [1, 8, 16, 64])
def test_scaffnew_communicates_once_in_the_mean_steps_of_clients(batch_size: int) -> None:
    """Short mini-batches are steps; 64 is more than any client has, and each epoch is one step."""
    world = in_context(federation(method=Scaffnew()), batch_size=batch_size)
    ctx = context_of(world, 0, list(range(6)))
    steps = [len(steps_of(world, ctx, client)) for client in range(6)]
    assert Scaffnew().probability(ctx) == 1 / (sum(steps) / 6)


def test_scaffnew_refuses_momentum() -> None:
    for momentum, fails in ((0.9, True), (0.0, False)):
        world = federation(method=Scaffnew(), momentum=momentum)
        if fails:
            with refused(file="scaffnew", key="optimizer", names="momentum"):
                world.method.check(world.context)
        else:
            world.method.check(world.context)


# --- MOON, FedBN, local training ------------------------------------------------------------------
def test_the_first_round_of_moon_is_fedavg() -> None:
    """The received model is the client's previous one: their features pull equally."""
    ours, _, _ = play(federation(method=MOON(mu=5.0)), until=1)
    theirs, _, _ = play(federation(method=FedAvg()), until=1)
    assert_close(ours["params"], theirs["params"])
    later, _, _ = play(federation(method=MOON(mu=5.0)))
    plain, _, _ = play(federation(method=FedAvg()))
    with pytest.raises(AssertionError):
        assert_close(later["params"], plain["params"], 1e-3)


def test_fedbn_shares_all_but_batch_normalisation() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.GroupNorm(2, 8))
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    world = federation(method=FedBN())
    world = replace(world, context=replace(world.context, net=net, batch_size=7))
    server, states, _ = play(world, until=2)
    own = {f"body.1.{name}" for name in ("weight", "bias", "running_mean", "running_var")}
    for name, leaf in server["params"].items():
        assert torch.equal(leaf, world.initial[name]) == (name in own), name
    one, other = (states.known[client]["kept"] for client in sorted(states.known)[:2])
    assert one.keys() == own
    assert not torch.equal(one["body.1.running_mean"], other["body.1.running_mean"])
    ctx = context_of(world, 1, [0])
    scored = world.method.eval_model(ctx, server, {"kept": one})
    assert_close(scored, {**server["params"], **one}, 0)


def test_local_training_of_one_client_is_central_training_without_momentum() -> None:
    world = federation(method=Local(), momentum=0.0)
    alone = Data([world.clients.tensors[3]])  # type: ignore[attr-defined]
    context = replace(world.context, clients=1)
    world = replace(world, clients=alone, context=replace(context, cohort_size=1))
    _, states, _ = play(world)
    server, _, _ = play(replace(world, method=Central()))
    assert_close(states.known[0]["local"], server["params"])


def test_local_training_sends_nothing_and_cannot_be_wrapped() -> None:
    world = federation(method=Local())
    server, _, _ = play(world, until=0)
    after, played = play_round(world, server, Memory(), 0)
    assert (played.bytes_down, played.bytes_up) == (0, 0)
    assert_close(after["params"], server["params"], 0)
    with refused(key="wrapper", value="ima"):
        registry.compose("ima+local")
    with refused(file="local", key="save_models_at"):
        world.method.client_model(context_of(world, 0, [0]), server, {}, 0)
