"""Scoring and recording of many clients: the same numbers, computed at once."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import torch
from numpy.typing import NDArray

from fedrepro.config.run_spec import RunSpec
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.engine import round as engine
from fedrepro.engine.context import Context
from fedrepro.engine.evaluate import BATCH, evaluate, evaluate_clients
from fedrepro.engine.executor_facts import PER_CLIENT
from fedrepro.engine.net import Net
from fedrepro.engine.round import play_round
from fedrepro.engine.task import BINARY, CLASSIFICATION
from fedrepro.engine.trials import mixes_when_testing
from fedrepro.provenance import arithmetic
from fedrepro.run import scoring
from fedrepro.run.assembly import Plan, make_plan
from fedrepro.run.landed_runs import RUNS, folder_of, settings_with_results
from fedrepro.run.results import reference_runs
from fedrepro.run.state import DECISION_COLUMNS, Rows, State, first_state
from fedrepro.run.store import ClientStore
from support import tiny_run
from support.places import ROOT

PERSONAL: dict[str, Any] = {"evaluate": {"clients": True}}


def alone(logits: NDArray[Any], targets: NDArray[Any], batch: int) -> dict[str, float]:
    """A client's measures, as they are defined and were computed for landed runs."""

    def top(k: int, logits: NDArray[Any], targets: NDArray[Any]) -> float:
        order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
        return float((order == targets[:, None]).any(1).mean())

    def calibration(place: int, logits: NDArray[Any], targets: NDArray[Any]) -> float:
        logits = np.asarray(logits, dtype=np.float64)
        if not np.isfinite(logits).all():
            return math.nan
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        confidences = powers.max(axis=1) / powers.sum(axis=1)
        surplus = confidences - (logits.argmax(axis=1) == targets)
        places = np.searchsorted(np.linspace(0, 1, 16)[1:], confidences)
        errors = np.abs(np.bincount(places, surplus, 15))
        counts = np.maximum(np.bincount(places, minlength=15), 1)
        return float((errors.sum() / len(targets), (errors / counts).max())[place])

    def batched(measure: Callable[..., float], logits: NDArray[Any], y: NDArray[Any]) -> float:
        cuts = range(batch, len(y), batch)
        parts = zip(np.split(logits, cuts), np.split(y, cuts), strict=True)
        return float(np.mean([measure(*part) for part in parts]))

    every: dict[str, Callable[..., float]] = {
        "top5": partial(top, 5), "ece": partial(calibration, 0), "mce": partial(calibration, 1),
        "accuracy": partial(top, 1),
    }  # fmt: skip
    found = {name: every[name](logits, targets) for name in ("top5", "ece", "mce")}
    return found | {f"{name}_batch": batched(every[name], logits, targets) for name in every}


@pytest.mark.parametrize("classes", [2, 3, 12, 62])
def test_measures_of_all_clients_at_once_have_the_bits_of_each_alone(classes: int) -> None:
    random = np.random.default_rng(classes)
    sizes = np.array([1, 0, 7, 30, 1, 8, 16, 129, 0, 200, 3])
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    logits: Any = random.normal(0, 3, (bounds[-1], classes)).astype(np.float32)
    logits[bounds[3] + 4, 1] = math.inf  # of the fourth client
    logits[bounds[6] : bounds[7]] = logits[bounds[6]].round()  # equal scores
    targets = random.integers(0, classes, bounds[-1])
    task = CLASSIFICATION.with_batch_size(4)
    task = task.with_measures({"own": lambda outputs, y: float(outputs[y == y[0]].sum())})
    found = task.measured(logits, targets, bounds)
    assert len(found) == 8
    for client, (first, last) in enumerate(pairwise(bounds)):
        got = {name: values[client] for name, values in found.items()}
        if first == last:
            assert all(map(math.isnan, got.values()))
            continue
        samples: tuple[Any, Any] = logits[first:last], targets[first:last]
        wanted = alone(*samples, 4) | {"own": task.measures["own"](*samples)}
        assert {name: float(got[name]).hex() for name in got} == {
            name: wanted[name].hex() for name in got
        }
        assert all(
            np.array_equal(measure(*samples), got[name], equal_nan=True)
            for name, measure in task.measures.items()
        )


def test_the_auroc_of_all_clients_at_once_is_that_of_each_alone() -> None:
    random = np.random.default_rng(0)
    sizes = np.array([1, 40, 0, 6, 25, 9])
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    logits = random.integers(-4, 4, (bounds[-1], 1)).astype(np.float32) / 2
    logits[bounds[4]] = math.nan
    targets = random.integers(0, 2, bounds[-1])
    targets[bounds[5] :] = 1
    (found,) = BINARY.measured(logits, targets, bounds).values()
    for client in (1, 3):
        rows = slice(bounds[client], bounds[client + 1])
        right, wrong = (logits[rows][targets[rows] == label] for label in (1, 0))
        wins = (right > wrong.T).sum() + (right == wrong.T).sum() / 2
        assert found[client] == wins / (len(right) * len(wrong))
    assert np.isnan(found[[0, 2, 4, 5]]).all()


def played(spec: RunSpec, folder: Path, rounds: int = 1) -> tuple[Plan, State]:
    """A run after some rounds, of which the last is recorded."""
    without = replace(tiny_run.dataset(), test=None)
    plan = make_plan(spec, without, tiny_run.partition(held_out=True))
    state = first_state(plan, ClientStore(folder))
    for number in range(rounds):
        before = state.server
        state.server, round = play_round(plan.federation, before, state.client_states, number)
        state.done += 1
    scoring.record(plan, state, before, round)
    return plan, state


def held(spec: RunSpec) -> RunSpec:
    """The same, where the catalogue states sizes."""
    return replace(spec, data_size=DataSize(train=150, shape=(1, 2, 2), classes=3))


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "TOGETHER_FROM", tiny_run.CLIENTS)


@pytest.mark.parametrize("held_at_once", [1, 10, 4000])
@pytest.mark.parametrize("method", ["fedavg", "lg_fedavg"])
def test_clients_are_recorded_with_the_bits_of_each_alone(
    method: str, held_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "TOGETHER", held_at_once)
    plan, state = played(tiny_run.run_spec(method, model="twonn", **PERSONAL), tmp_path)
    assert plan.client_tests is not None and not plan.together
    ctx = scoring.context_after(plan, state)
    rows = pd.DataFrame(state.clients.table, columns=state.clients.columns)
    for client in range(len(plan.client_tests)):
        samples = plan.client_tests.of(client)
        own = state.client_states.get(client) or {}
        params = plan.federation.method.eval_model(ctx, state.server, own)
        wanted = evaluate(ctx.net, ctx.task, params, samples, len(samples), measured=True)
        assert rows.loc[client, [*wanted]].to_dict() == wanted
        assert rows.loc[client, "test_samples"] == len(samples) == tiny_run.SIZES[client] // 5


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "lg_fedavg", "fedper"])
def test_clients_that_share_a_model_pass_through_the_network_together(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    predict = Net.predict
    spec = tiny_run.run_spec(method, model="twonn", participation=0.34, **PERSONAL)

    def counted(self: Net, params: Any, x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return predict(self, params, x)

    monkeypatch.setattr(Net, "predict", counted)
    _, one = played(spec, tmp_path / "alone")
    assert len(calls) >= tiny_run.CLIENTS
    calls.clear()
    plan, other = played(held(spec), tmp_path / "together")
    assert plan.together
    # Of fedavg and scaffold, all clients share a model; of the others, those that took no part.
    assert len(calls) == (1 if method in ("fedavg", "scaffold") else 2 + 1)
    assert sum(calls) == sum(size // 5 for size in tiny_run.SIZES)
    np.testing.assert_allclose(other.clients.table, one.clients.table, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(other.rounds.table, one.rounds.table, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("few_are_many")
def test_processes_change_no_bit_of_clients_scored_together(tmp_path: Path) -> None:
    files = []
    for executor, threads in (("sequential", 1), ("parallel", 2)):
        way = {"executor": executor, "threads": threads, "rounds": 2, "model": "twonn"}
        spec = tiny_run.run_spec("fedper", **way, **PERSONAL)
        tiny_run.carry_out(tmp_path / executor, held(spec))
        files.append((tmp_path / executor / "clients.parquet").read_bytes())
    assert files[0] == files[1]


class Mixing(torch.nn.Module):
    """Its outputs depend on the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(x.flatten(1))
        return out - out.mean(0)


@pytest.mark.parametrize(
    ("layers", "mixes"),
    [
        ((Mixing(),), True),
        ((torch.nn.Flatten(), torch.nn.BatchNorm1d(4, track_running_stats=False)), True),
        ((torch.nn.Flatten(), torch.nn.BatchNorm1d(4)), False),
        ((torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3)), False),
    ],
)
def test_models_that_mix_samples_are_scored_client_by_client(
    layers: tuple[torch.nn.Module, ...], mixes: bool
) -> None:
    x = torch.rand(2, 1, 2, 2)
    net = Net(torch.nn.Sequential(*layers))
    assert mixes_when_testing(net, x) == mixes and net.module.training


def test_no_landed_run_scores_its_clients_together() -> None:
    """Their recorded losses have the bits of a client alone."""
    counts = {record.manifest.get("data", {}).get("clients", 0) for record in reference_runs(ROOT)}
    for setting in settings_with_results(ROOT):
        file = pyarrow.parquet.ParquetFile(ROOT / folder_of(setting) / RUNS)
        for text in file.read(columns=["manifest"])["manifest"].to_pylist()[:1]:
            counts.add(json.loads(text)["data"]["clients"])
    assert {4, 500} <= counts and max(counts) < arithmetic.TOGETHER_FROM


def test_the_class_of_arithmetic_follows_from_the_number_of_clients() -> None:
    def words(clients: int, personal: bool = True) -> str:
        scheme = {"scheme": "iid", "clients": clients}
        evaluated = PERSONAL if personal else {}
        return arithmetic.of_spec(held(tiny_run.run_spec(partition=scheme, **evaluated)))

    many = arithmetic.TOGETHER_FROM
    assert words(many - 1) == words(many, personal=False) == PER_CLIENT
    assert words(many).startswith(f"{PER_CLIENT}, ")
    assert arithmetic.how_to_get(words(many)) == "executor: sequential"


def test_a_cohort_is_drawn_once_more_for_the_count_of_participations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    choose = engine.choose_cohort

    def counted(federation: Any, round: int) -> list[int]:
        drawn.append(round)
        return choose(federation, round)

    monkeypatch.setattr(scoring, "choose_cohort", counted)
    tiny_run.carry_out(tmp_path / "run", tiny_run.run_spec(rounds=6, **PERSONAL))
    assert drawn[:6] == [*range(6)] and len(drawn) < 9  # and of the last round, for its context


def test_rows_take_the_memory_of_their_numbers() -> None:
    rows = Rows(DECISION_COLUMNS)
    for _ in range(3):
        rows.put({"round": 1, "client": range(1000), "loss": np.ones(1000), "weight": math.nan})
    assert rows.table.nbytes == 3 * 1000 * 4 * 8
    assert sum(block.nbytes for block in rows._blocks) == rows.table.nbytes


def test_rows_by_columns_are_rows_one_by_one(tmp_path: Path) -> None:
    one, other = Rows(DECISION_COLUMNS), Rows(DECISION_COLUMNS)
    assert one.last() == {} and len(one) == 0
    for place in range(5):
        one.put({"round": 1, "client": place, "loss": place / 3, "weight": math.nan})
    at = np.arange(5)
    other.put({"weight": math.nan, "loss": at / 3, "client": list(at), "round": 1})
    assert len(one) == len(other) == 5 and one.last()["client"] == 4
    again = Rows.from_tree(DECISION_COLUMNS, one.as_tree())
    for number, rows in enumerate((one, other, again)):
        rows.write(tmp_path / f"{number}.parquet")
    first, *others = ((tmp_path / f"{number}.parquet").read_bytes() for number in range(3))
    assert all(each == first for each in others)
    again.put({"round": 2, "client": 0, "loss": 0, "weight": 1})
    assert len(again) == 6 and again.last()["round"] == 2


def test_a_client_larger_than_a_batch_is_scored_as_alone() -> None:
    """Its samples are cut where they would be if it were alone."""
    spec = tiny_run.run_spec(model="twonn", **PERSONAL)
    plan = make_plan(spec, tiny_run.dataset(), tiny_run.partition(held_out=True))
    assert plan.client_tests is not None
    ctx: Context = plan.federation.context
    samples = type(plan.client_tests)(
        plan.client_tests.whole, [np.arange(BATCH + 90) % 20, np.arange(3)]
    )
    params = plan.federation.initial
    scores = evaluate_clients(ctx.net, ctx.task, lambda _: params, samples, np.arange(2))
    alone = evaluate(ctx.net, ctx.task, params, samples.of(0), BATCH + 90, measured=True)
    assert {name: values[0] for name, values in scores.items() if name in alone} == alone
