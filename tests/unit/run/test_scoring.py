"""What the scores of clients come to."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedrepro.config.settings import Evaluate
from fedrepro.data.dataset import Dataset, Split
from fedrepro.engine import tree
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.round import play_round
from fedrepro.engine.task import CLASSIFICATION
from fedrepro.run.assembly import make_plan
from fedrepro.run.scoring import _summary, files_of_round, record
from fedrepro.run.state import first_state
from fedrepro.run.store import ClientStore
from support import tiny_run
from support.refusals import refused


def summary(*clients: tuple[int, float, float]) -> dict[str, float]:
    """Of clients with these numbers of samples, losses and accuracies."""
    columns = np.array(clients, dtype=np.float64).T
    return _summary(dict(zip(("samples", "loss", "accuracy"), columns, strict=True)), of_mean=False)


def test_a_client_without_predictions_leaves_the_others_means_alone() -> None:
    """Its texts hold no known word: samples, but nothing that can be right or wrong."""
    found = summary((2, 0.5, 0.25), (5, 0.0, math.nan), (6, 1.0, 0.75))
    assert found["client_accuracy"] == 0.5
    assert found["client_accuracy_std"] == 0.25
    assert found["test_accuracy"] == pytest.approx((2 * 0.25 + 6 * 0.75) / 8)
    assert found["client_loss"] == 0.5
    nobody = summary((2, 0.5, math.nan))
    assert math.isnan(nobody["client_accuracy"]) and math.isnan(nobody["client_accuracy_std"])


def test_a_loss_that_is_no_number_ends_a_run() -> None:
    assert math.isnan(summary((2, 0.5, 0.25), (2, math.nan, 0.25))["client_loss"])


def test_a_client_without_test_samples_ends_no_run() -> None:
    scores = [(2, 0.5, 0.25), (0, math.nan, math.nan), (6, 1.0, 0.75)]
    assert summary(*scores) == summary(scores[0], scores[2])


def test_accuracy_as_a_mean_over_mini_batches() -> None:
    """10 + 10 + 4 samples, as in SuPerFed's test parts: the last four count as much as ten."""
    measures = CLASSIFICATION.with_batch_size(10).measures
    targets = np.zeros(24, dtype=np.int64)
    right = np.array([True] * 5 + [False] * 5 + [True] * 10 + [True] + [False] * 3)
    logits = np.where(right[:, None], [2.0, 1, 0, 0, 0, 0, 0], [0.0, 1, 2, 3, 4, 5, 6])
    assert measures["accuracy_batch"](logits, targets) == pytest.approx((0.5 + 1 + 0.25) / 3)
    # The right class is the seventh of those that were missed.
    assert measures["top5_batch"](logits, targets) == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert {"top5", "ece", "mce", "ece_batch", "mce_batch"} < measures.keys()


def grouped(groups: list[int] | None) -> Dataset:
    """The blobs of a tiny run, whose 60 test samples belong to these groups."""
    data = tiny_run.dataset()
    assert data.test is not None
    group = None if groups is None else np.array(groups, np.int64)
    return replace(data, test=Split(data.test.x, data.test.y, group))


def test_groups_are_scored_by_themselves(tmp_path: Path) -> None:
    """IMA's domains: the mean of their accuracies, the first samples of each class only."""
    groups = [0] * 42 + [1] * 18  # 14 and 6 of each of three classes
    spec = tiny_run.run_spec(evaluate={"groups": True, "per_class": 8})
    plan = make_plan(spec, grouped(groups), tiny_run.partition())
    assert [len(each) for each in plan.group_tests] == [24, 18]
    state = first_state(plan, ClientStore(tmp_path))
    federation = plan.federation
    before = state.server
    state.server, played = play_round(federation, before, state.client_states, 0)
    state.done = 1
    record(plan, state, before, played)
    assert plan.test is not None
    parts = [plan.test.some(np.arange(24)), plan.test.some(np.arange(42, 60))]
    net, task = federation.context.net, federation.context.task
    scores = [evaluate(net, task, state.server["params"], each, len(each)) for each in parts]
    for name in ("accuracy", "loss"):
        values = [score[name] for score in scores]
        assert state.rounds.last()[f"test_{name}"] == pytest.approx(sum(values) / 2)
    assert scores[0]["loss"] != scores[1]["loss"]


def test_models_of_a_round_are_those_that_its_clients_sent(tmp_path: Path) -> None:
    """Their mean by samples is the shared model, and each is as far away as its norm says."""
    keeps: dict[str, Any] = {"save_models_at": {"fedavg": [2], "fedprox": [1]}, "rounds": 2}
    plan = make_plan(
        tiny_run.run_spec("fedprox", **keeps), tiny_run.dataset(), tiny_run.partition()
    )
    state = first_state(plan, ClientStore(tmp_path))
    before = state.server
    state.server, played = play_round(plan.federation, before, state.client_states, 0)
    state.done = 1
    record(plan, state, before, played)
    files = dict(files_of_round(plan, state, before, played))
    models = [files.pop(f"round1-client{client}") for client in played.cohort]
    (shared,) = files.values()
    rows = pd.DataFrame(state.clients.table, columns=state.clients.columns)
    assert rows["client"].tolist() == played.cohort != sorted(played.cohort)[::-1]
    sizes = torch.tensor([tiny_run.SIZES[client] for client in played.cohort])
    assert rows["train_samples"].tolist() == sizes.tolist()
    for name, leaf in shared.items():
        mean = sum(size * model[name] for size, model in zip(sizes, models, strict=True))
        torch.testing.assert_close(leaf, mean / sizes.sum())
        assert torch.equal(leaf, state.server["params"][name])
    for model, norm in zip(models, rows["update_norm"], strict=True):
        parts = [(model[name] - before["params"][name]).norm() for name in model]
        assert float(torch.stack(parts).norm()) == pytest.approx(norm, rel=1e-4)
    assert rows["update_norm"].nunique() == len(models)
    state.done = 2
    assert dict(files_of_round(plan, state, before, played)) == {}  # another method's round


@pytest.mark.parametrize("where", ["", "server", "client"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_one_number_that_is_not_finite_ends_a_run(tmp_path: Path, where: str, value: float) -> None:
    """In the server's state in any round; in one client's, in rounds that are evaluated."""
    evaluate = {"clients": True, "every": 1 if where == "client" else 12}
    plan = make_plan(
        tiny_run.run_spec("lg_fedavg", model="twonn", evaluate=evaluate, participation=1.0),
        tiny_run.dataset(),
        tiny_run.partition(held_out=True),
    )
    state = first_state(plan, ClientStore(tmp_path))
    before = state.server
    state.server, played = play_round(plan.federation, before, state.client_states, 0)
    state.done = 1
    if where == "server":
        [*tree.leaves(state.server)][-1].view(-1)[-1] = value
    elif where == "client":
        own = state.client_states.get(4)
        assert own is not None
        next(iter(tree.leaves(own))).fill_(value)
        state.client_states.put(4, own)
    record(plan, state, before, played)
    assert state.diverged_at == (1 if where else None)
    recorded = state.rounds.last()
    assert bool(recorded) == bool(where)
    if where == "client":
        assert math.isfinite(recorded["test_loss"]) and math.isnan(recorded["client_loss"])


def test_groups_where_there_are_none_are_refused() -> None:
    with refused(key="evaluate.groups", value=True):
        make_plan(tiny_run.run_spec(evaluate={"groups": True}), grouped(None), tiny_run.partition())
    with pytest.raises(ValueError, match="`per_class` only with `groups: true`"):
        Evaluate(per_class=3)
