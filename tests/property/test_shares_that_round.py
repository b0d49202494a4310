"""A share of a number is what it is in decimals: .3 of 10 is 3, and .29 of 100 is 29.

In floats they are 2.9999999999999996 and 28.999999999999996, and .07 of 100 is 7.000000000000001.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedrepro.config.metrics import MegabytesTo, Reached, RoundsTo
from fedrepro.config.partition_sizes import cohort_size
from fedrepro.data.partition.partition import PartitionSpec, make_partition
from fedrepro.engine.attacks import Attack, attackers
from fedrepro.engine.availability import Availability
from fedrepro.engine.round import begin, context_of
from fedrepro.measures import over_clients
from fedrepro.methods._combining import whole_clients
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedfa import FedFA
from fedrepro.methods.ima import IMA
from fedrepro.methods.krum import Krum
from fedrepro.methods.multi_krum import MultiKrum
from fedrepro.methods.superfed_mm import SuPerFedMM
from fedrepro.methods.top_k import TopK
from fedrepro.methods.trimmed_mean import TrimmedMean
from fedrepro.run.assembly import make_plan
from support import tiny_run
from support.worlds import federation

SHARES = [f"{number / 100:g}" for number in range(1, 100)]  # as users write them
NUMBERS = (5, 7, 10, 20, 30, 50, 90, 100, 150, 200, 700, 1000)


def products() -> Iterator[tuple[float, int, Fraction]]:
    """A share, a number, and exactly that share of it."""
    for share in SHARES:
        for number in NUMBERS:
            yield float(share), number, Fraction(share) * number


def test_floats_would_be_wrong() -> None:
    """So that the tests below can fail, rounding down and up."""
    assert sum(int(share * number) != math.floor(exact) for share, number, exact in products()) > 5
    assert sum(math.ceil(share * number) != math.ceil(exact) for share, number, exact in products())


def number_of_worst(share: float, number: int) -> int:
    """The worst of 0, 1, 2 ... have a mean of half their number less one."""
    mean = over_clients.lowest(np.arange(float(number)), share=share)
    assert over_clients.highest(-np.arange(float(number)), share=share) == -mean
    return round(2 * mean + 1)


def steps_done(share: float, number: int) -> int:
    @dataclass(frozen=True)
    class Some(Availability):
        def shares(self, round: int) -> Tensor:
            return torch.tensor([share], dtype=torch.float64)

    return Some(0, (number,)).steps_done(0, 0)


@pytest.mark.parametrize(
    ("count", "least"),
    [
        (lambda share, number: len(attackers(1, number, share)), 0),
        (whole_clients, 0),
        (lambda share, number: cohort_size(SimpleNamespace(participation=share), number), 1),
        (number_of_worst, 1),
        (lambda share, number: IMA(FedAvg(), start=share).first_of(number), 0),
        (lambda share, number: SuPerFedMM(start=share).first_of(number), 0),
    ],
    ids=["attackers", "robust rules", "cohort", "worst and best", "ima", "superfed"],
)
def test_a_share_is_rounded_down(count: Callable[[float, int], int], least: int) -> None:
    for share, number, exact in products():
        assert count(share, number) == max(least, math.floor(exact)), (share, number)


@pytest.mark.parametrize(
    "count",
    [lambda share, number: TopK(share=share).number(number), steps_done],
    ids=["entries", "steps"],
)
def test_a_share_is_rounded_up(count: Callable[[float, int], int]) -> None:
    for share, number, exact in products():
        assert count(share, number) == math.ceil(exact), (share, number)


def test_the_first_round_after_a_share_of_all_rounds() -> None:
    """FedFA calibrates after ``calibration`` of them: with .29 of 100, from round 30 on."""
    world = federation(method=FedFA())
    server = begin(world)
    for share, rounds, exact in products():
        method, last = FedFA(calibration=share), math.floor(exact)
        for round, calibrates in ((last, False), (last + 1, True)):
            ctx = replace(context_of(world, 1, [0]), rounds=rounds, round=round)
            assert ("calibrates" in method.broadcast(ctx, server)) == calibrates, (share, rounds)


@pytest.mark.parametrize("share", ["0.3", "0.29", "0.1", "0.45"])
@pytest.mark.parametrize("cohort", [10, 100, 7])
def test_robust_rules_leave_out_a_share_of_the_cohort(share: str, cohort: int) -> None:
    cut = math.floor(Fraction(share) * cohort)
    values = torch.randn(cohort, 3, generator=torch.Generator().manual_seed(1)).double()
    middle = values.sort(0).values[cut : cohort - cut]
    sizes = torch.ones(cohort)
    ctx = replace(context_of(federation(), 0, [0]), sizes=sizes, cohort_size=cohort)
    rule = TrimmedMean(share=float(share))
    torch.testing.assert_close(rule.combined(ctx, values), middle.mean(0))
    sent = {"delta": {"w": values}}
    weights, _ = Krum(share=float(share)).aggregation_weights(ctx, {}, sent)
    squares = (values[:, None] - values).square().sum(2).sort(1).values
    closest = max(cohort - cut - 2, 1)
    assert int(weights.argmax()) == int(squares[:, 1 : 1 + closest].sum(1).argmin())
    weights, _ = MultiKrum(share=float(share)).aggregation_weights(ctx, {}, sent)
    assert int(weights.count_nonzero()) == closest


@pytest.mark.parametrize("share", ["0.29", "0.3", "0.57"])
def test_a_cohort_and_its_attackers(share: str) -> None:
    """In the plan of a run with a hundred clients."""
    given = {"scheme": "iid", "clients": 100}
    spec: PartitionSpec = TypeAdapter(PartitionSpec).validate_python(given)
    data = tiny_run.dataset()
    attack = {"kind": "sign_flip", "share": float(share)}
    run = tiny_run.run_spec(participation=float(share), partition=given, attack=attack)
    plan = make_plan(run, data, make_partition(data.train.y, None, spec, 1))
    assert isinstance(plan.federation.attack, Attack)
    wanted = math.floor(Fraction(share) * 100)
    assert plan.federation.context.cohort_size == len(plan.federation.attack.clients) == wanted


# --- samples that are held out: the nearest whole number --------------------------------------
def held(size: int, **spec: Any) -> tuple[int, int, int, int]:
    """Numbers of samples for training, testing, validation and the server, of one client."""
    given = {"scheme": "iid", "clients": 1, **spec}
    wanted: PartitionSpec = TypeAdapter(PartitionSpec).validate_python(given)
    made = make_partition(np.arange(size) % 3, None, wanted, 1)
    parts = (made.train, made.test, made.validation)
    train, test, validation = (sum(map(len, rows or [])) for rows in parts)
    return train, test, validation, 0 if made.server is None else len(made.server)


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("size", [7, 20, 100])
def test_samples_that_are_held_out(size: int, stratified: bool) -> None:
    """At least one, never all; validation samples are a share of what testing leaves."""
    for share in ("0.01", "0.07", "0.29", "0.3", "0.57", "0.9", "0.99"):
        exact = Fraction(share) * size
        wanted = {math.floor(exact + Fraction(1, 2)), math.ceil(exact - Fraction(1, 2))}
        near = {min(max(each, 1), size - 1) for each in wanted}
        train, test, _, _ = held(size, test_fraction=float(share), stratified=stratified)
        assert test in near and train == size - test, share
        train, _, validation, _ = held(size, validation=float(share))
        assert validation in near and train == size - validation, share
        if wanted <= {*range(1, size)}:
            train, _, _, server = held(size, server=float(share))
            assert server in wanted and train == size - server, share
    train, test, validation, server = held(100, server=0.29, test_fraction=0.3, validation=0.2)
    assert (server, test, validation, train) == (29, 21, 10, 40)


# --- scores that reach a target exactly --------------------------------------------------------
@pytest.mark.parametrize("target", [7, 28, 29, 55, 56, 57, 58, 97])
def test_a_score_that_is_the_target_has_reached_it(target: int) -> None:
    """Of 1,000 test samples, ten for each percent are right; one less is not enough."""
    accuracies = [(10 * target - 1) / 1000, 10 * target / 1000, 1.0]
    record: Any = SimpleNamespace(
        rounds={
            "round": [2, 4, 6], "test_accuracy": accuracies,
            "bytes_down": [1e6, 1e6, 5e6], "bytes_up": [2e6, 3e6, 7e6],
        },
        clients={}, mixtures={}, quality={}, manifest={},
    )  # fmt: skip
    assert RoundsTo(rounds_to=target).quantity.series(record) == [(4, 4)]
    assert MegabytesTo(megabytes_to=target).quantity.series(record) == [(4, 14.0)]
    # Of several seeds, the least that each of them reaches at its best.
    record.rounds["test_accuracy"] = [*accuracies[:2], 0.0]
    together = Reached(reached_in_steps_of=1).quantity.together
    assert together is not None and together([record]) == target
