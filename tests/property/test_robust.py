"""Robust wrappers: degenerate cases, closed forms, and what they withstand."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedrepro.check.world import Memory, play
from fedrepro.engine import tree
from fedrepro.engine.attacks import Attack
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.round import Federation, Round, begin, context_of, play_round
from fedrepro.methods import registry
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.krum import Krum, scores
from fedrepro.methods.median import Median
from fedrepro.methods.multi_krum import MultiKrum
from fedrepro.methods.norm_clip import NormClip, clipped
from fedrepro.methods.trimmed_mean import TrimmedMean
from support.closeness import assert_close
from support.refusals import Fault, refused
from support.worlds import federation

EQUAL = FedAvg(sample_weighted=False)  # the plain mean of a cohort that is a sample
ROBUST = (Median(), TrimmedMean(share=0.3), Krum(), MultiKrum())


def played(method: Method, cohort: int = 4, until: int = 3) -> tree.Tree:
    server, _, _ = play(federation(method=method, cohort=cohort), until=until)
    params: tree.Tree = server["params"]
    return params


@pytest.mark.parametrize("rule", ROBUST, ids=str)
def test_of_one_client_every_rule_is_fedavg_to_the_bit(rule: Wrapper) -> None:
    assert_close(played(replace(rule, inner=FedAvg()), 1), played(FedAvg(), 1), 0)


@pytest.mark.parametrize(
    "rule", [TrimmedMean(EQUAL, share=0.0), MultiKrum(EQUAL, number=4)], ids=str
)
def test_without_anyone_left_out_a_rule_is_the_mean(rule: Method) -> None:
    assert_close(played(rule), played(EQUAL), 1e-12)


def test_multi_krum_of_one_is_krum() -> None:
    assert_close(played(MultiKrum(number=1)), played(Krum()), 0)


def test_a_clip_that_nobody_reaches_is_the_inner_method_to_the_bit() -> None:
    assert_close(played(NormClip(FedAvg(), bound=1e9)), played(FedAvg()), 0)


def of_a_cohort(asked: int, arrived: int) -> Context:
    return replace(federation().context, cohort_size=asked, sizes=torch.ones(arrived))


@pytest.mark.parametrize(
    ("share", "asked", "arrived", "attackers"),
    [
        (0.2, 5, 5, 1),
        (0.2, 6, 6, 1),
        (0.3, 10, 10, 3),  # 0.3 * 10 is 2.9999999999999996
        (0.29, 100, 100, 29),  # 28.999999999999996
        (0.4, 5, 5, 2),
        (0.0, 9, 9, 0),
        (0.2, 10, 6, 2),  # the four that dropped out may have been honest
        (0.2, 10, 4, 1),  # two would be half of them
        (0.4, 5, 1, 0),
    ],
)
def test_attackers_are_a_share_of_the_clients_that_were_asked(
    share: float, asked: int, arrived: int, attackers: int
) -> None:
    for rule in (TrimmedMean(share=share), Krum(share=share), MultiKrum(share=share)):
        assert rule.attackers(of_a_cohort(asked, arrived)) == attackers
    # With every client but one at each end: the mean of what is left has no NaN.
    if attackers:
        values = torch.ones(arrived, 2)
        values[:attackers] = torch.nan
        found = TrimmedMean(share=share).combined(of_a_cohort(asked, arrived), values)
        assert found.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("rule", "cohort", "nobody"),
    [
        (TrimmedMean, 4, True),
        (Krum, 4, True),
        (MultiKrum, 4, True),
        (TrimmedMean, 5, False),
        (Krum, 5, False),
        (MultiKrum, 5, False),
        (Median, 1, False),
        (NormClip, 1, False),
    ],
)
def test_a_share_that_is_nobody_is_refused(rule: type[Wrapper], cohort: int, nobody: bool) -> None:
    """The defaults have a fifth of a cohort."""
    method, ctx = rule(FedAvg()), of_a_cohort(cohort, cohort)
    if not nobody:
        return method.check(ctx)
    with refused(key="share", value=0.2, names=("0", "0.25", "4")):
        method.check(ctx)
    replace(method, share=0.0).check(ctx)  # type: ignore[call-arg]
    replace(method, share=0.25).check(ctx)  # type: ignore[call-arg]


def test_in_the_checks_federation_every_rule_leaves_somebody_out() -> None:
    for name in ("trimmed_mean", "krum", "multi_krum"):
        world = federation(f"{name}+fedavg")
        world.method.check(context_of(world, 0, [0, 1, 2, 3, 4]))


def test_rules_by_hand() -> None:
    """Of 0, 1, 2, 10 and 100: the median is 2, and without one at each end the mean is 13/3."""
    values = torch.tensor([[100.0], [0.0], [2.0], [1.0], [10.0]])
    ctx = of_a_cohort(5, 5)
    assert Median().combined(ctx, values).tolist() == [2.0]
    assert Median().combined(ctx, values[1:]).tolist() == [1.5]
    assert TrimmedMean(share=0.2).combined(ctx, values).tolist() == pytest.approx([13 / 3])
    # n - f - 2 = 2 closest: of 100, 90^2 + 98^2; of 0, 1 + 4; of 2, 1 + 4; of 1, 1 + 1.
    for far in (0, 1e8):  # close updates of a long way keep their distances
        found = scores([values.double() + far], 1).tolist()
        assert found == [90**2 + 98**2, 5, 5, 2, 8**2 + 9**2]


@pytest.mark.parametrize("long", [1.0, 1e25])
def test_clipped_keeps_directions_and_bounds_norms(long: float) -> None:
    """Also in float32, in which the square of the longer update is no number."""
    deltas = {
        "a": torch.tensor([[3 * long, 0.0], [0.3, 0.0]]),
        "b": torch.tensor([[4 * long], [0.4]]),
    }
    found = clipped(tree.apply(Tensor.float, deltas), 1.0)
    torch.testing.assert_close(found["a"], torch.tensor([[0.6, 0.0], [0.3, 0.0]]).float())
    torch.testing.assert_close(found["b"], torch.tensor([[0.8], [0.4]]).float())


def test_a_rule_in_a_clip_selects_by_clipped_updates() -> None:
    """Three long ones of one direction are then alike, and nearer than the two short ones."""
    world = federation(method=NormClip(Krum(FedAvg()), bound=1.0))
    before, ctx = begin(world), context_of(world, 0, [0, 1, 2, 3, 4])
    rows = torch.tensor([10.0, -0.2, 100.0, 0.1, 1000.0])
    sent = {"delta": tree.apply(
        lambda leaf: torch.ones(5, *leaf.shape) * rows.view(-1, *[1] * leaf.dim()), before["params"]
    )}  # fmt: skip
    weights, server = world.method.aggregation_weights(ctx, before, sent)
    assert int(weights.argmax()) in (0, 2, 4)
    moved = world.method.server_update(ctx, server, sent, weights)
    away = tree.subtract(before["params"], moved["params"])
    assert float(tree.square_norm(away)) == pytest.approx(1.0)
    alone, _ = world.method.inner.aggregation_weights(ctx, before, sent)
    assert int(alone.argmax()) in (1, 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e200], ids=str)
def test_an_update_without_a_finite_norm_counts_as_zero(bad: float) -> None:
    deltas = {
        "a": torch.tensor([[1.0, bad], [0.3, 0.0]]).double(),
        "b": torch.tensor([[3.0], [0.4]]).double(),
    }
    found = clipped(deltas, 1.0)
    assert found["a"].tolist() == [[0.0, 0.0], deltas["a"][1].tolist()]
    assert found["b"].tolist() == [[0.0], deltas["b"][1].tolist()]


def after_nonsense(rule: Wrapper, bad: float) -> tuple[Federation, tree.Tree, tree.Tree, Round]:
    """The first round, in which one client's update is ``bad``: the state before and after it."""

    def attack(ctx: object, updates: tree.Tree) -> tree.Tree:
        def spoilt(leaf: Tensor) -> Tensor:
            return torch.cat([torch.full_like(leaf[:1], bad), leaf[1:]])

        return tree.apply(spoilt, updates)

    world = federation(method=replace(rule, inner=FedAvg()))
    before = begin(world)
    return world, before, *play_round(replace(world, attack=attack), before, Memory(), 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200], ids=str)
def test_whatever_a_client_sends_clipped_updates_move_the_model_by_at_most_the_bound(
    bad: float,
) -> None:
    _, before, after, _ = after_nonsense(NormClip(bound=0.01), bad)
    moved = tree.square_norm(tree.subtract(after["params"], before["params"])).sqrt()
    assert 0 < float(moved) <= 0.01


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30], ids=str)
@pytest.mark.parametrize("rule", ROBUST, ids=str)
def test_one_client_that_sends_nonsense_cannot_harm(rule: Wrapper, bad: float) -> None:
    """The model stays among those of the honest clients; NaN is what FedAvg would become."""
    world, before, after, seen = after_nonsense(rule, bad)
    ctx = context_of(world, 0, seen.cohort)
    models = [world.method.client_model(ctx, before, seen.updates, at) for at in range(1, 5)]
    for name, leaf in after["params"].items():
        each = torch.stack([model[name] for model in models])
        assert bool((each.min(0).values - 1e-12 <= leaf).all()), name
        assert bool((leaf <= each.max(0).values + 1e-12).all()), name


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("median+scaffold", {"key": "wrapper", "names": ("`delta`", "server")}),
        ("norm_clip+fednova", {"key": "wrapper", "names": ("`delta`", "server")}),
        ("krum+afl", {"key": "wrapper", "names": "coefficients"}),
        ("median+krum+fedavg", {"key": "wrapper", "names": "coefficients"}),
        ("aaggff_d+trimmed_mean+fedavg", {"key": "wrapper", "names": "coefficients"}),
        ("norm_clip+central", {"key": "wrapper", "value": "norm_clip", "names": "trains"}),
        ("multi_krum+feddf", {"key": "wrapper", "names": ("`delta`", "server")}),
    ],
)
def test_what_a_rule_does_not_protect_is_refused(name: str, fault: Fault) -> None:
    with refused(**fault):
        registry.compose(name)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("trimmed_mean", "share", 0.5),
        ("krum", "share", -0.1),
        ("multi_krum", "number", 0),
        ("norm_clip", "bound", 0.0),
    ],
)
def test_bad_hyperparameters_are_one_line(name: str, key: str, value: float) -> None:
    with refused("value", file=f"method {name}", key=key, value=value):
        registry.compose(name, {name: {key: value}})


@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "krum", "multi_krum"])
def test_under_sign_flips_fedavg_fails_and_a_rule_learns(rule: str) -> None:
    """One of six clients sends ten times its update, turned round."""
    attack = Attack("sign_flip", 10.0, frozenset({3}))

    def accuracy(name: str) -> float:
        values = {"share": 0.2} if rule != "median" else {}
        world = federation(name, {rule: dict(values)}, cohort=6, rounds=10, momentum=0.0)
        server, _, _ = play(replace(world, attack=attack))
        x, y = world.clients.samples.at(torch.arange(sum(world.clients.sizes)))
        hits = world.context.net(server["params"], x).argmax(1) == y
        return float(hits.double().mean())

    assert accuracy("fedavg") < 0.5 < 0.75 < accuracy(f"{rule}+fedavg")
