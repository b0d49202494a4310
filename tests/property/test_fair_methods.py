"""The fairness-aware methods in a federation: degenerate cases, composition, bad input."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedrepro.check.world import Memory, play
from fedrepro.engine import tree
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.round import context_of, play_round, steps_of
from fedrepro.methods import registry
from fedrepro.methods.aaggff_d import AAggFFD
from fedrepro.methods.aaggff_s import AAggFFS
from fedrepro.methods.adaptive_weighting.rule import (
    LOSS,
    MEMORY,
    Decider,
    Observed,
    loss_before_training,
)
from fedrepro.methods.adaptive_weighting.server_rate import growing
from fedrepro.methods.afl import AFL
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedmgda import FedMGDA
from fedrepro.methods.fedprox import FedProx
from fedrepro.methods.ima import IMA
from fedrepro.methods.propfair import PropFair
from fedrepro.methods.qfedavg import QFedAvg
from fedrepro.methods.term import TERM
from fedrepro.run.assembly import method_of
from support.closeness import assert_close
from support.refusals import refused
from support.tiny_run import run_spec
from support.worlds import federation


class Uniform(FedAvg):
    def aggregation_weights(self, ctx, server, updates):  # type: ignore[no-untyped-def]
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server


@pytest.mark.parametrize(
    ("special", "general"),
    [
        (QFedAvg(q=0.0), FedAvg()),
        (TERM(tilt=0.0), FedAvg()),
        (QFedAvg(q=0.0, sample_weighted=False), Uniform()),
        (TERM(tilt=0.0, sample_weighted=False), Uniform()),
        (AFL(lr=0.0), Uniform()),
        (PropFair(baseline=1e9), FedAvg()),  # the loss itself, but for its scale: see lr below
        (FedAvg(sample_weighted=False), Uniform()),
        (AAggFFS(inner=FedAvg(), lower=1.0, upper=1 + 1e-9), Uniform()),
        (AAggFFD(inner=FedAvg(), lower=1.0, upper=1 + 1e-9), Uniform()),
    ],
    ids=lambda method: type(method).__name__,
)
def test_degenerate_case(special: Method, general: Method) -> None:
    whole = any(layer.full_participation for layer in special.layers())
    cohort = 6 if whole else 4
    ours = federation(method=special, cohort=cohort, weight_decay=0.0)
    if isinstance(special, PropFair):  # -log(1 - l / M) is l / M for large M
        grown = replace(ours.context, schedule=lambda round: 1e9 * 0.1 * 0.99**round)
        ours = replace(ours, context=grown)
    theirs = federation(method=general, cohort=cohort, weight_decay=0.0)
    assert_close(play(ours)[0]["params"], play(theirs)[0]["params"], 1e-6)


@pytest.mark.parametrize("name", ["qfedavg", "aaggff_s+fedavg", "aaggff_d+fedavg"])
def test_losses_whose_ratios_count_are_not_below_zero(name: str) -> None:
    """Of likelihoods, say, the clients that were best off would have counted most."""
    world = federation(name)

    def shifted(by: float) -> Any:
        losses = world.context.task.losses
        task = world.context.task._replace(losses=lambda o, t, how: losses(o, t, how) + by)
        return replace(world, context=replace(world.context, task=task))

    play(shifted(0.5), until=1)
    with refused("value", key="loss"):
        play(shifted(-5), until=1)


def test_afl_follows_a_huge_loss() -> None:
    """All weight goes to a client whose loss is out of proportion, whatever floats leave of p."""
    seen = Observed(0, 3, np.arange(3), np.array([2.0, 1e18, 1.0]), np.ones(3))
    memory = AFL().memory(3)
    assert AFL(lr=1.0).decide(memory, seen).weights.tolist() == [0, 1, 0]
    near = Observed(0, 3, np.arange(3), np.array([2.0, 2.3, 1.9]), np.ones(3))
    expected = np.array([2.0, 2.3, 1.9]) - 6.2 / 3 + 1 / 3  # inside the simplex: less the mean
    assert AFL(lr=1.0).decide(memory, near).weights == pytest.approx(expected)


def test_fedmgda_of_a_client_that_stays_and_of_one_that_is_lost() -> None:
    """Who did not move takes all weight, as nothing is shorter; not finite: FedAvg's weights."""
    world = federation(method=FedMGDA(radius=1.0), cohort=6)
    server, ctx = play(world, until=0)[0], context_of(world, 0, [0, 1, 2])
    deltas = tree.apply(lambda leaf: torch.ones(3, *leaf.shape), server["params"])
    for value, expected in ((0.0, [0.0, 1.0, 0.0]), (float("nan"), [0.5, 13 / 40, 7 / 40])):
        rows = torch.tensor([1.0, value, 2.0])
        sent = tree.apply(lambda leaf, r=rows: r.view(-1, *[1] * (leaf.dim() - 1)) * leaf, deltas)
        weights, _ = world.method.aggregation_weights(ctx, server, {"delta": sent})
        assert weights.tolist() == pytest.approx(expected, abs=1e-6)
    still = tree.apply(torch.zeros_like, deltas)
    after = world.method.server_update(ctx, server, {"delta": still}, torch.ones(3) / 3)
    assert_close(after["params"], server["params"], 0)


def test_fedmgda_without_freedom_follows_the_mean_direction() -> None:
    world = federation(method=FedMGDA(radius=0.0))
    before, client_states, _ = play(world, until=0)
    after, played = play_round(world, before, Memory(), 0)
    moves = [tree.take(played.updates["delta"], index) for index in range(5)]
    total = tree.zeros(moves[0])
    for move in moves:
        total = tree.add(total, tree.scale(move, 1 / float(tree.square_norm(move)) ** 0.5))
    expected = tree.subtract(before["params"], tree.scale(total, 1 / 5))
    assert_close(after["params"], expected)
    assert not client_states.known


@pytest.mark.parametrize("name", ["aaggff_s", "aaggff_d"])
@pytest.mark.parametrize(
    "rest", ["fedprox", "scaffold", "fednova", "fedavg+fedadam", "fedavg+fedyogi",
             "fedavg+fedadagrad", "propfair", "fedadam"]
)  # fmt: skip
@pytest.mark.parametrize("fidelity", ["", "@released"])
def test_plug_and_play(name: str, rest: str, fidelity: str) -> None:
    server, _, _ = play(federation(f"{name}{fidelity}+{rest}"), until=4)
    assert all(leaf.isfinite().all() for leaf in tree.leaves(server))
    assert abs(float(server[MEMORY]["decision"].sum()) - 1) < 1e-9
    plain, _, _ = play(federation(f"{rest}", cohort=6 if name == "aaggff_s" else 4), until=4)
    with pytest.raises(AssertionError):
        assert_close(server["params"], plain["params"], 1e-6)


def test_moving_average_around_a_learned_mixture() -> None:
    """ima+aaggff_s+fedavg: the window averages the models that the mixture made."""
    mixed = federation("aaggff_s+fedavg")
    ima = federation("ima+aaggff_s+fedavg", {"ima": {"window": 3, "start": 0.5, "decay": 0.01}})
    assert isinstance(ima.method, IMA) and isinstance(ima.method.inner, AAggFFS)
    half, _, _ = play(mixed, until=3)
    assert_close(play(ima, until=3)[0]["params"], half["params"])
    server, _, _ = play(ima)
    mean = tree.apply(lambda leaf: leaf.mean(0), server["ima"])
    assert_close(server["params"], mean)
    other = federation("aaggff_s+ima+fedavg", {"ima": {"window": 3, "start": 0.5, "decay": 0.01}})
    assert_close(play(other)[0]["params"], server["params"])


def test_loss_is_the_received_models_on_all_samples_before_training() -> None:
    world = federation("aaggff_d")
    server, client_states, _ = play(world, until=2)
    _, played = play_round(world, server, client_states, 2)
    for index, client in enumerate(played.cohort):
        x, y = world.clients.tensors[client]
        expected = nn.functional.cross_entropy(world.context.net(server["params"], x), y)
        assert float(played.updates[LOSS][index]) == pytest.approx(float(expected), rel=1e-12)


def test_loss_is_taken_in_evaluation_mode() -> None:
    world = federation("aaggff_d")
    net = Net(nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.9)).double())
    ctx = replace(context_of(world, 0, [0]), net=net)
    params = net.init(torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    loss = loss_before_training(ctx, params, steps_of(world, ctx, 0))
    x, y = world.clients.tensors[0]
    expected = nn.functional.cross_entropy(x @ params["0.weight"].T + params["0.bias"], y)
    assert float(loss) == pytest.approx(float(expected))
    assert torch.equal(before, torch.get_rng_state()) and net.module.training


@pytest.mark.parametrize("name", ["aaggff_s", "aaggff_d", "afl", "term", "qfedavg"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_teaches_nothing(name: str, bad: float) -> None:
    world = federation(name)
    server, _, _ = play(world, until=2)
    ctx = context_of(world, 2, list(range(6)))
    updates = {
        "delta": tree.apply(lambda leaf: torch.ones(6, *leaf.shape), server["params"]),
        LOSS: torch.tensor([1.0, bad, 1.0, 1.0, 1.0, 1.0]),
    }
    weights, after = world.method.aggregation_weights(ctx, server, updates)
    assert after is server and bool(weights.isfinite().all())
    if name != "qfedavg":
        assert weights.tolist() == pytest.approx((ctx.sizes / ctx.sizes.sum()).tolist())


@pytest.mark.parametrize("name", ["aaggff_s", "aaggff_d", "afl", "term", "qfedavg"])
@pytest.mark.parametrize("losses", [[0.0] * 6, [0.0, 0.4, 0.0, 1.0, 2.0, 0.0]], ids=str)
def test_a_client_may_have_no_loss_at_all(name: str, losses: list[float]) -> None:
    """Equal losses are as any other equal ones, and whoever has one counts at least as much."""
    world = federation(name, {"qfedavg": {"q": 0.5}}, cohort=6)
    server, ctx = play(world, until=0)[0], context_of(world, 0, list(range(6)))
    delta = tree.apply(lambda leaf: torch.ones(6, *leaf.shape), server["params"])
    weights, alike = (
        world.method.aggregation_weights(ctx, server, {"delta": delta, LOSS: torch.tensor(each)})[0]
        for each in (losses, [0.7] * 6)
    )
    assert bool(weights.isfinite().all()) and bool((weights >= 0).all())
    counts = weights / alike
    if any(losses):
        assert int(counts.argmax()) == 4 and int(counts.argmin()) in (0, 2, 5)
    else:
        torch.testing.assert_close(weights / weights.sum(), alike / alike.sum())


def test_server_rate_of_the_released_code() -> None:
    """Discrepancy 13: what the clients' rate loses, the server's gains; asked for twice, once."""
    ctx = replace(federation().context, schedule=lambda round: 0.1 * 0.5**round, round=3)
    assert growing(ctx).server_lr == 8.0 == growing(growing(ctx)).server_lr
    world = federation("aaggff_s@released+fedavg")
    double = federation("aaggff_s@released+fedavg@released")
    assert_close(play(world)[0]["params"], play(double)[0]["params"], 0)
    slow, fast = FedAvg(), FedAvg(constant_server_lr=False)
    one, two = (play(federation(method=each), until=1)[0]["params"] for each in (slow, fast))
    assert_close(one, two, 0)  # the first round is the same
    with pytest.raises(AssertionError):
        assert_close(
            play(federation(method=slow), until=3)[0]["params"],
            play(federation(method=fast), until=3)[0]["params"],
        )


@pytest.mark.parametrize("released", [False, True])
def test_qfedavg_at_a_halved_rate(released: bool) -> None:
    """Released: L stays that of the first round, and the step has the grown server rate (13).

    From the released server (L = server_lr / lr, made once) and optimizer (delta times its rate).
    """
    method: Method = QFedAvg(q=2.0, sample_weighted=False, constant_server_lr=not released)
    world = federation(method=method, cohort=6)
    first, base = 0.1, 1.5  # the clients' rate of round 0, the server's
    ctx = replace(
        context_of(world, 1, list(range(6))),
        schedule=lambda round: first * 0.5**round,
        lr=first / 2,
        server_lr=base,
    )
    server, _, _ = play(world, until=0)
    generator = torch.Generator().manual_seed(4)
    deltas = tree.apply(
        lambda leaf: torch.randn(6, *leaf.shape, generator=generator), server["params"]
    )
    losses = torch.tensor([0.3, 1.2, 0.7, 2.0, 0.1, 0.9])
    updates = {"delta": deltas, LOSS: losses}
    weights, after = method.aggregation_weights(ctx, server, updates)
    found = method.server_update(ctx, after, updates, weights)["params"]

    lipschitz, rate = (base / first, 2 * base) if released else (2 / first, base)
    squares = sum(leaf.flatten(1).square().sum(1) for leaf in tree.leaves(deltas)) * lipschitz**2
    total = (2 * losses * squares + lipschitz * losses**2).sum()
    wanted = tree.apply(
        lambda w, d: w - rate * torch.tensordot(losses**2, lipschitz * d, dims=1) / total,
        server["params"],
        deltas,
    )
    assert_close(found, wanted)


def test_aaggffs_released_proximal_term_has_half_of_mu() -> None:
    """mu/2 times the sum of norms; SuPerFed's code has mu times it."""
    whole = FedProx(mu=0.3, squared=False)
    half = FedProx(mu=0.6, squared=False, halved=True)
    assert_close(play(federation(method=whole))[0], play(federation(method=half))[0], 0)
    square, same = FedProx(mu=0.3), FedProx(mu=0.3, halved=True)
    assert_close(play(federation(method=square))[0], play(federation(method=same))[0], 0)


def test_released_fedavg_counts_every_client_of_a_sample_the_same() -> None:
    """Discrepancy 12: only where clients are sampled."""
    method = FedAvg(sample_weighted=False)
    assert_close(
        play(federation(method=method, cohort=6))[0], play(federation("fedavg", cohort=6))[0], 0
    )
    with pytest.raises(AssertionError):
        assert_close(play(federation(method=method))[0], play(federation("fedavg"))[0], 1e-6)


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("aaggff_s", {"1", "2", "3", "13"}),
        ("aaggff_d", {"2", "3", "4", "13"}),
        ("afl", {"13"}),
        ("term", {"11", "13"}),
        ("qfedavg", {"11", "13"}),
        ("fedmgda", {"13"}),
        ("propfair", {"12", "13"}),
        ("fedavg", {"12", "13"}),
        ("fedprox", {"21"}),
    ],
)
def test_every_departure_of_the_released_code_is_a_field(name: str, items: set[str]) -> None:
    cls = registry.parts()[name].cls
    assert {each.metadata["item"] for each in cls.deviations()} == items
    released = registry.compose(f"{name}@released")[0]
    for each in cls.deviations():
        assert getattr(released, each.name) == each.metadata["released"] != each.default


@pytest.mark.parametrize("wrapper", ["aaggff_s", "aaggff_d"])
@pytest.mark.parametrize(
    "inner", ["afl", "qfedavg", "term", "fedmgda", "central", "aaggff_d+fedavg"]
)
def test_wrappers_refuse_what_weighs_its_clients_itself(wrapper: str, inner: str) -> None:
    with refused(key="wrapper"):
        registry.compose(f"{wrapper}+{inner}")


@pytest.mark.parametrize("name", ["aaggff_s", "ima+aaggff_s+fedavg", "afl"])
def test_sampling_is_refused_where_all_clients_are_needed(name: str) -> None:
    with refused(key="participation", value=0.1, names=("1", "aaggff_d")) as caught:
        method_of(run_spec(name, participation=0.1))
    assert "\n" not in str(caught.value)
    method_of(run_spec(name, participation=1.0))
    method_of(run_spec("aaggff_d+fedavg", participation=0.1))


@pytest.mark.parametrize(
    "changes", [{"participation": 0.5}, {"participation": 1.0, "availability": {"dropout": 0.2}}]
)
def test_scaffnew_is_refused_for_a_reason_of_its_own(changes: dict[str, Any]) -> None:
    with refused(names="0") as caught:
        method_of(run_spec("scaffnew", **changes))
    assert "aaggff" not in str(caught.value)


def test_propfair_above_its_baseline_has_a_finite_gradient() -> None:
    world = federation(method=PropFair(baseline=1e-3))
    server, _, _ = play(world, until=2)
    assert all(leaf.isfinite().all() for leaf in tree.leaves(server))


def test_fedprox_keeps_its_own_released_reading() -> None:
    released = FedProx().as_released()
    assert released == FedProx(squared=False)
    assert isinstance(registry.compose("aaggff_s")[0], Decider)
