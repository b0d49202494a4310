"""What each kind of metric reads from a run's rounds and clients, against numpy by hand."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedrepro.config.metrics import Least, MegabytesTo, OfRounds, OverClients, Reached, RoundsTo


def record(seed: int, evaluated: list[int]) -> Any:
    """A run with clients of other sizes, whose accuracies rise and fall in steps of a hundredth."""
    rng = np.random.default_rng(seed)
    clients, rounds = 12, len(evaluated)
    hits = rng.integers(20, 80, (rounds, clients)) / 100
    sizes = rng.integers(1, 90, clients)
    columns = {
        "round": evaluated,
        "test_accuracy": (rng.integers(0, 100, rounds) / 100).tolist(),
        "test_loss": rng.random(rounds).tolist(),
        "client_accuracy": hits.mean(1).tolist(),
        "bytes_down": rng.integers(1, 10**9, rounds).tolist(),
        "bytes_up": rng.integers(1, 10**9, rounds).tolist(),
    }
    by_client = {
        "round": np.repeat(evaluated, clients).tolist(),
        "client": [*range(clients)] * rounds,
        "accuracy": hits.ravel().tolist(),
        "test_samples": np.tile(sizes, rounds).tolist(),
    }
    return SimpleNamespace(rounds=columns, clients=by_client, mixtures={}, quality={}, manifest={})


SOME = [(seed, rounds) for seed in range(8) for rounds in ([1, 2, 3, 4, 5, 6], [2, 5, 8, 9])]


@pytest.mark.parametrize("several", [1, 2, 3])
@pytest.mark.parametrize("target", [35, 57, 58, 60, 99.5])
def test_rounds_to_an_accuracy_are_those_of_the_first_mean_that_reaches_it(
    several: int, target: float
) -> None:
    metric = RoundsTo(rounds_to=target, mean_of=several)
    for seed, evaluated in SOME:
        run = record(seed, evaluated)
        hundredths = [round(100 * each) for each in run.rounds["test_accuracy"]]
        first = [
            number
            for at, number in enumerate(evaluated)
            if at + 1 >= several and sum(hundredths[at + 1 - several : at + 1]) >= target * several
        ][:1]
        assert metric.quantity.series(run) == [(number, number) for number in first]
    assert metric.quantity.reaches == (target if several == 1 else float("inf"))


@pytest.mark.parametrize("target", range(1, 101))
def test_an_accuracy_of_exactly_the_target_reaches_it(target: int) -> None:
    """0.57 of 1 is less than 57 of 100 in floating point."""
    run = record(0, [3])
    for accuracy, reached in ((target / 100, True), ((target - 1) / 100, False)):
        run.rounds["test_accuracy"] = [accuracy]
        assert bool(RoundsTo(rounds_to=target).quantity.series(run)) is reached
        assert bool(MegabytesTo(megabytes_to=target).quantity.series(run)) is reached
        ((_, multiple),) = Reached(reached_in_steps_of=target).quantity.series(run)
        assert multiple == (target if reached else 0)


@pytest.mark.parametrize("target", [40, 70])
def test_megabytes_are_of_all_rounds_up_to_it_evaluated_or_not(target: int) -> None:
    for seed, evaluated in SOME:
        run = record(seed, evaluated)
        at = RoundsTo(rounds_to=target).quantity.series(run)
        found = MegabytesTo(megabytes_to=target).quantity.series(run)
        assert [number for number, _ in found] == [number for number, _ in at]
        for number, megabytes in found:
            of_round = {
                each: down + up
                for each, down, up in zip(
                    *(run.rounds[key] for key in ("round", "bytes_down", "bytes_up")), strict=True
                )
            }
            sent = [
                of_round[min(each for each in evaluated if each >= played)]
                for played in range(1, int(number) + 1)
            ]
            assert megabytes == pytest.approx(sum(sent) / 1e6)


@pytest.mark.parametrize("step", [1, 5, 7.5])
def test_what_all_seeds_reach_is_a_multiple_and_the_least_loss_is_of_the_mean_curve(
    step: float,
) -> None:
    runs = [record(seed, [1, 2, 3, 4, 5]) for seed in range(3)]
    multiples = np.arange(0, 100 + step, step)
    best = [max(run.rounds["test_accuracy"]) * 100 for run in runs]
    reached = [multiples[multiples <= each + 1e-9].max() for each in best]
    quantity = Reached(reached_in_steps_of=step).quantity
    assert [quantity.series(run) for run in runs] == [[(5, each)] for each in reached]
    assert quantity.together is not None and quantity.together(runs) == min(reached)
    runs[0].rounds = {key: values[:4] for key, values in runs[0].rounds.items()}  # it ended early
    curves = np.array([run.rounds["test_loss"][:4] for run in runs])
    quantity = Least(least="loss").quantity
    assert quantity.together is not None
    assert quantity.together(runs) == pytest.approx(curves.mean(0).min())
    least = int(curves[0].argmin())
    assert quantity.series(runs[0]) == [(least + 1, curves[0, least])]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", ["average", "worst", "best", "gap"])
def test_clients_values_become_one_number_in_every_round(how: Any, weighted: bool) -> None:
    metric = OverClients(of="accuracy", over_clients=how, weighted=weighted)
    for seed in range(4):
        run = record(seed, [2, 4, 6])
        values = np.reshape(run.clients["accuracy"], (3, 12)) * 100
        sizes = np.array(run.clients["test_samples"][:12])
        (worst, *_), (*_, best) = np.sort(values).T[:1], np.sort(values).T[-1:]  # one of twelve
        expected = {
            "average": np.average(values, axis=1, weights=sizes if weighted else None),
            "worst": worst,
            "best": best,
            "gap": best - worst,
        }[how]
        series = metric.quantity.series(run)
        assert [number for number, _ in series] == [2, 4, 6]
        assert [value for _, value in series] == pytest.approx(expected.tolist())
        # Where only the last round's clients are kept, earlier means are in the rounds.
        run.clients = {key: values[24:] for key, values in run.clients.items()}
        kept = metric.quantity.series(run)
        means = how == "average" and not weighted
        assert [number for number, _ in kept] == ([2, 4, 6] if means else [6])
        last = expected.tolist()[-len(kept) :]
        assert [value for _, value in kept] == pytest.approx(last)
        run.rounds["client_accuracy"][0] = None  # no client had one
        assert len(metric.quantity.series(run)) == (2 if means else 1)
        run.clients = {key: [] for key in run.clients}
        kept = metric.quantity.series(run)
        assert [number for number, _ in kept] == ([4, 6] if means else [])


def test_a_metric_says_what_it_selects_and_whether_the_paper_s_code_computes_it() -> None:
    mixes = ("fixed", "best", "own", "released")
    own = [OverClients(of="accuracy", over_clients="average", mix=mix) for mix in mixes]
    assert [bool(metric.quantity.selection) for metric in own] == [False, True, True, True]
    assert [bool(metric.quantity.mixture) for metric in own] == [False, True, True, True]
    assert [metric.quantity.as_released for metric in own] == [False, False, False, True]
    assert len({metric.quantity.selection for metric in own}) == 3
    for one, other in itertools.product(own, own):
        assert one.at_mix(other.mix) == other
    batches = OverClients(of="accuracy_batch", over_clients="average")
    assert batches.quantity.as_released and not batches.quantity.selection
    ratio = RoundsTo(rounds_to=50, speed_up=True)
    assert ratio.quantity.higher_is_better and not RoundsTo(rounds_to=50).quantity.higher_is_better
    assert ratio.of_both == RoundsTo(rounds_to=50) and RoundsTo(rounds_to=50).of_both is None
    of_runs = (RoundsTo(rounds_to=1), MegabytesTo(megabytes_to=1), Reached(reached_in_steps_of=1))
    assert all(metric.quantity.of_a_run for metric in of_runs) and not own[0].quantity.of_a_run
    assert all(metric.curve == OfRounds(name="accuracy") for metric in of_runs)


@pytest.mark.parametrize(
    ("of", "how", "unit", "higher_is_better", "expected"),
    [
        ("accuracy", "worst", "%", True, 10), ("accuracy", "best", "%", True, 90),
        ("loss", "worst", "", False, 0.9), ("loss", "best", "", False, 0.1),
        ("accuracy", "gap", "points", False, 80), ("loss", "gap", "", False, 0.8),
        ("accuracy", "average", "%", True, 50), ("r2", "average", "", True, 0.5),
        ("accuracy", "gini", "", False, 100 * 3.2 / 9), ("mae", "average", "", False, 0.5),
    ],
)  # fmt: skip
def test_worse_is_less_of_what_rises_and_more_of_what_falls(
    of: str, how: Any, unit: str, higher_is_better: bool, expected: float
) -> None:
    values = {"round": [3] * 3, of: [0.9, 0.1, 0.5], "test_samples": [1, 1, 1]}
    run: Any = SimpleNamespace(rounds={"round": [3]}, clients=values, mixtures={}, manifest={})
    quantity = OverClients(of=of, over_clients=how).quantity
    assert (quantity.unit, quantity.higher_is_better) == (unit, higher_is_better)
    ((number, value),) = quantity.series(run)
    assert number == 3 and value == pytest.approx(expected)
    run.clients = {"round": [3]}
    assert quantity.series(run) == []


def test_mixtures_are_read_where_clients_have_two_models() -> None:
    """Of 2 clients at 3 weights; the fixed one is in their rows."""
    mixtures = {
        "weight": [0.0, 0.5, 1.0] * 2, "accuracy": [0.2, 0.4, 0.9, 0.8, 0.7, 0.1],
        "loss": [3.0, 2.0, 1.0, 1.0, 2.0, 3.0], "test_samples": [1] * 3 + [3] * 3,
    }  # fmt: skip
    clients = {"round": [5, 5], "accuracy": [0.4, 0.7], "test_samples": [1, 3], "loss": [2.0, 2.5]}
    run: Any = SimpleNamespace(
        rounds={"round": [2, 5]}, clients=clients, mixtures=mixtures, manifest={}
    )
    for mix, weighted, expected in (
        ("fixed", True, (40 + 3 * 70) / 4), ("fixed", False, 55), ("best", True, (40 + 210) / 4),
        ("own", True, (90 + 240) / 4), ("own", False, 85),
    ):  # fmt: skip
        metric = OverClients(of="accuracy", over_clients="average", mix=mix, weighted=weighted)  # type: ignore[arg-type]
        assert metric.quantity.series(run) == [(5, pytest.approx(expected))]
    run.mixtures = {}  # of a method with one model
    metric = OverClients(of="accuracy", over_clients="average", mix="own", weighted=False)
    assert metric.quantity.series(run) == [(5, pytest.approx(55))]
    for of, is_own in (("loss", False), ("accuracy", True)):  # clients choose by accuracy
        metric = OverClients(of=of, over_clients="average", mix="released")
        assert (metric.quantity.mixture == metric.at_mix("own").quantity.mixture) is is_own
