"""Runs with the wrapper dp: what they record, resume and refuse."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrepro.cli.run import _privacy
from fedrepro.config.loading import load
from fedrepro.methods.dp import DP
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.registry import compose
from fedrepro.report.pages.run import run_page
from fedrepro.report.pages.templates import Renderer
from fedrepro.run import privacy
from fedrepro.run.results import read_run
from fedrepro.support.plugins import NONE
from support.numbers_in_text import numbers_in
from support.refusals import refused
from support.report_world import make_world, write_run
from support.tiny_run import CLIENTS, carry_out, dataset, run_spec


def test_a_private_run_records_its_epsilon_and_others_none(tmp_path: Path) -> None:
    """Of the rounds that it played, where it stops early."""
    values = {"dp": {"noise_multiplier": 4.0, "clip": 0.1}}
    stop = {"at": 2}
    found = carry_out(tmp_path / "x", run_spec("dp+fedavg", hyperparameters=values, stop=stop))
    spent = found["privacy"]
    assert json.loads((tmp_path / "x/manifest.json").read_text())["privacy"] == spent
    rounds = found["rounds_done"]
    assert 0 < rounds < 12 and found["clients"] == CLIENTS
    assert spent["epsilon"] == privacy.epsilon(4.0, 3, CLIENTS, rounds, 1 / CLIENTS)
    assert (spent["cohort"], spent["delta"], spent["clip"]) == (3, 1 / CLIENTS, 0.1)
    assert f" {spent['epsilon']:.3g} " in _privacy(spent) and " 0.167" in _privacy(spent)
    assert _privacy(spent).endswith(spent["neighbours"])
    assert "privacy" not in carry_out(tmp_path / "y", run_spec("fedavg"))


def test_without_noise_it_says_that_nothing_is_private(tmp_path: Path) -> None:
    values = {"dp": {"noise_multiplier": 0.0}}
    found = carry_out(tmp_path / "x", run_spec("dp+fedavg", hyperparameters=values))
    assert found["privacy"]["epsilon"] is None
    assert _privacy(found["privacy"]).startswith("not ")
    assert numbers_in(_privacy(found["privacy"])) == []


def test_a_single_client_has_no_epsilon() -> None:
    """Its delta is 1, for which all algorithms have epsilon 0."""
    private = compose("dp+fedavg", {}, NONE)[0]
    alone, two = (privacy.spent(private, clients, clients, 1) for clients in (1, 2))
    assert alone and two and alone["epsilon"] is None and two["epsilon"] > 0
    assert numbers_in(_privacy(alone)) == [1]


@pytest.mark.parametrize(
    "key",
    [{"availability": {"period": 4}}, {"cohorts": {"stream": "numpy_legacy", "seed": 1}}],
    ids=["availability", "cohorts"],
)
def test_cohorts_that_the_accountant_does_not_know_are_refused(tmp_path: Path, key: dict) -> None:
    ((name, given),) = key.items()
    with refused("value", key=name, value=given, names="epsilon"):
        carry_out(tmp_path / "x", run_spec("dp+fedavg", **key))


@pytest.mark.parametrize("gaps", [False, True], ids=["standardised", "filled"])
def test_columns_that_all_rows_scaled_or_filled_are_refused(gaps: bool) -> None:
    plain, method = dataset(), DP(inner=FedAvg())
    setting = run_spec("dp+fedavg").setting
    privacy.refuse_unaccountable(method, setting, replace(plain, client_standardised=(0,)))
    there = replace(plain.train, missing=np.isnan(plain.train.x)) if gaps else plain.train
    known = replace(plain, train=there, standardised=not gaps)
    with refused("value", file="blobs", key="standardise"):
        privacy.refuse_unaccountable(method, setting, known)
    privacy.refuse_unaccountable(FedAvg(), setting, known)


def test_a_vocabulary_of_the_clients_is_refused() -> None:
    plain, method = dataset(), DP(inner=FedAvg())
    setting = run_spec("dp+fedavg").setting
    known = replace(plain, meta={**plain.meta, "vocabulary": ["<PAD>", "ill"]})
    with refused("value", file="blobs", key="vocabulary"):
        privacy.refuse_unaccountable(method, setting, known)
    privacy.refuse_unaccountable(FedAvg(), setting, known)


def test_a_missing_accountant_is_one_line_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy, "ACCOUNTANT", "no-such-package")
    with refused("missing", file="method dp", key="no-such-package", names="'.[privacy]'"):
        carry_out(tmp_path / "x", run_spec("dp+fedavg"))
    carry_out(tmp_path / "y", run_spec("fedavg"))


def test_other_runs_do_not_load_the_accountant(tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        del sys.modules[name]
    carry_out(tmp_path / "x", run_spec("fedavg"))
    assert "dp_accounting" not in sys.modules


@pytest.mark.parametrize(
    ("epsilon", "delta", "shown"),
    [
        (3.14159, 0.01, "3.14"),
        (None, 0.01, "none, without noise"),
        (None, 1.0, "none, for a single client"),
    ],
)
def test_a_run_page_shows_epsilon(
    tmp_path: Path, epsilon: float | None, delta: float, shown: str
) -> None:
    bench = load(make_world(tmp_path))
    run = bench.table("ima", "table_1", "demo").runs[1]
    manifest = write_run(bench, run, [0.5, 0.6]) / "manifest.json"
    told = {"epsilon": epsilon, "delta": delta, "neighbours": "one client replaced"}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"privacy": told}))
    content = run_page(read_run(bench.root, run), None, [], [], {})
    text = (tmp_path / Renderer(tmp_path).write(Path("x.html"), "run.html.j2", content)).read_text()
    assert f" {delta:g}, {told['neighbours']}</dt>" in text and f"<dd>{shown}</dd>" in text


@pytest.mark.parametrize("noise", [0.5, 8.0])
def test_no_cohort_costs_more_than_all_clients(noise: float) -> None:
    whole = privacy.epsilon(noise, 100, 100, 20, 0.01)
    spent = [privacy.epsilon(noise, cohort, 100, 20, 0.01) for cohort in (1, 10, 50, 90, 99)]
    assert max(spent) <= whole
    assert spent[0] < whole
