"""What has something made anew."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedrepro.config.loading import load
from fedrepro.workflow import graph
from support.places import ROOT


def test_weights_for_a_fid_count_where_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no input: without them the other numbers are found, and later the FID, too."""
    made = graph.Graph(load(ROOT))
    judges = {name: each.evaluator for name, each in made.bench.settings.items() if each.evaluator}
    with_fid = next(name for name, judge in judges.items() if judge and judge.fid)
    found = {}
    for there in (False, True):
        monkeypatch.setattr(graph, "is_there", lambda entry, there=there: there)
        for setting in (with_fid, "ima/fmnist-shards2"):
            run = SimpleNamespace(setting=setting, method="fedavg", seed="1")
            found[setting, there] = made.evaluator(run)
    assert found[with_fid, True] != found[with_fid, False]
    assert found["ima/fmnist-shards2", True] == found["ima/fmnist-shards2", False]


def test_a_target_may_name_any_method_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    made = graph.Graph(load(ROOT))
    run = SimpleNamespace(setting="ima/fmnist-shards2", method="ima+fedprox_mu0.3", seed="1")
    assert made.inputs_of_run(run)
    run.method = "ima+fedprx"
    with pytest.raises(SystemExit, match="2"):
        made.inputs_of_run(run)
    line = capsys.readouterr().err
    assert line.startswith("fedrepro: method ima+fedprx: part: 'fedprx': expected a name that ")
    assert "; did you mean 'fedprox'" in line and line.count("\n") == 1


def test_a_table_is_made_anew_when_its_data_stand_in_for_others() -> None:
    bench = load(ROOT)
    entry = bench.datasets["fmnist"].model_copy(update={"surrogate_for": "mnist"})
    marked = replace(bench, datasets={**bench.datasets, "fmnist": entry})
    for item, changes in (("table_1", True), ("table_3", False)):
        for scale in ("demo", "paper"):
            named = SimpleNamespace(system="ima", item=item, scale=scale)
            before, after = (graph.Graph(each).table_definition(named) for each in (bench, marked))
            assert (before != after) == changes, (item, scale)


def test_a_table_is_made_anew_when_the_code_of_its_runs_is_other_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where they are landed: its verdicts say whether they are of today's code."""
    made = graph.Graph(load(ROOT))
    named = SimpleNamespace(system="fedevg", item="table_4_2", scale="demo")
    before = made.table_definition(named)
    monkeypatch.setattr(graph.numerics, "of_run", lambda spec: {"core": "other"})
    assert made.table_definition(named) != before
