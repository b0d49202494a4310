"""Scale compact: its files, what waits for its runs, and what does not."""

import shutil
from pathlib import Path

import pytest
import yaml

from fedrepro.config.experiment import COMPACT
from fedrepro.config.loading import load
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError
from support.places import ROOT
from support.refusals import Fault, refused


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


FILE = COMPACT / "fedgo.yaml"


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


def test_only_its_own_tables_wait_for_runs_at_scale_compact(bench: Workbench) -> None:
    for scale in SCALES:
        for (system, item), target in bench.targets(scale).items():
            experiment = bench.experiments[system]
            compact = item in {**experiment.compact, **experiment.compact_search}
            assert target.awaited == (compact == (scale == "compact")) or not target.runs
            assert bool(target.required) == (target.awaited and bool(target.runs)), (item, scale)
            if compact:
                assert target.scale == "compact"
                own = {**experiment.compact, **experiment.compact_search}[item].seeds
                seeds = bench.seeds("compact", system, own)
                assert {run.seed for run in target.runs} == {*seeds} == {*target.seeds}


def test_printed_items_are_shown_at_scale_paper_meanwhile(bench: Workbench) -> None:
    assert bench.target("fedgo", "table_3", "compact").scale == "paper"
    assert bench.target("fedgo", "figure_2", "compact").scale == "paper"
    assert bench.target("fedgo", "table_3", "compact").runs


def test_names_and_labels_say_what_is_compact(bench: Workbench) -> None:
    for experiment in bench.experiments.values():
        items = {**experiment.compact, **experiment.compact_search}
        assert all(item.startswith("compact_") for item in items)
        for table in experiment.compact.values():
            assert not any(row.demo or row.published for row in table.rows)
            assert all(row.setting.startswith("compact-") for row in table.rows)


def test_all_tables_with_a_setting_say_alike_by_which_rule_it_was_chosen(bench: Workbench) -> None:
    """A table that lacks the key would pass for one by today's rule."""
    for system, experiment in bench.experiments.items():
        rules: dict[str, set[bool]] = {}
        for item, table in experiment.compact.items():
            for cell in bench.table(system, item, "compact").cells:
                rules.setdefault(cell.setting, set()).add(table.earlier_rule)
        assert rules and not {name for name, both in rules.items() if len(both) > 1}


def test_five_seeds_and_more(bench: Workbench) -> None:
    assert all(len(bench.seeds("compact", system)) >= 5 for system in bench.experiments)


def test_a_table_may_have_more_seeds_than_its_paper(copy: Path) -> None:
    content = yaml.safe_load((copy / FILE).read_text(encoding="utf-8"))
    content["tables"]["compact_accuracy"]["seeds"] = {"compact": [*range(1, 11)]}
    (copy / FILE).write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    bench = load(copy)
    target = bench.table("fedgo", "compact_accuracy", "compact")
    assert target.seeds == tuple(range(1, 11)) == tuple(sorted({run.seed for run in target.runs}))
    others = set(bench.experiments["fedgo"].compact) - {"compact_accuracy"}
    assert {len(bench.table("fedgo", item, "compact").seeds) for item in others} == {5}


def write_changed(copy: Path, *keys: str, to: object) -> None:
    """Write the compact file with one other value."""
    content = yaml.safe_load((copy / FILE).read_text(encoding="utf-8"))
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    (copy / FILE).write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")


def changed(copy: Path, *keys: str, to: object) -> str:
    """The line about a compact file with one other value."""
    write_changed(copy, *keys, to=to)
    with pytest.raises(UserError) as caught:
        load(copy)
    line = str(caught.value)
    assert line.startswith(f"{FILE}: ")
    assert "\n" not in line
    return line


def test_faults_name_the_compact_file(copy: Path) -> None:
    line = changed(copy, "settings", "compact-dir0.1", "rounds", to=0)
    assert "settings.compact-dir0.1.rounds: 0" in line


@pytest.mark.parametrize(
    ("keys", "value", "fault"),
    [
        (
            ("settings", "compact-dir0.1", "model"),
            "small_bn_cn",
            Fault(code="value", key="compact-dir0.1.model", near="small_bn_cnn"),
        ),
        (
            ("settings", "compact-dir0.05", "extends"),
            "compact-dir0.2",
            Fault(code="value", key="compact-dir0.05.extends", value="compact-dir0.2"),
        ),
        (
            ("settings", "digits-demo"),
            {"extends": "compact-dir0.1"},
            Fault(code="value", key="settings", value="digits-demo"),
        ),
        (("table",), {}, Fault(code="unknown_key", key="table")),
        (
            ("tables", "table_3"),
            {"title": "x", "rows": [], "columns": []},
            Fault(code="value", key="table_3.rows", value=[]),
        ),
    ],
)
def test_faults_in_other_places_do_too(
    copy: Path, keys: tuple[str, ...], value: object, fault: Fault
) -> None:
    write_changed(copy, *keys, to=value)
    with refused(file=str(FILE), **fault):
        load(copy)


def test_a_fault_in_the_experiment_file_names_that(copy: Path) -> None:
    path = copy / "config/experiments/fedgo.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("model: resnet50 }", "model: resnet5 }"), encoding="utf-8")
    with refused(file="config/experiments/fedgo.yaml", key="model", value="resnet5"):
        load(copy)


def test_seeds_of_searches_are_never_judged(bench: Workbench) -> None:
    """Otherwise a rate would be chosen by the seeds that it is then judged with."""
    for system, experiment in bench.experiments.items():
        judged = {seed for item in experiment.compact for seed in bench.table(system, item).seeds}
        for item in experiment.compact_search:
            target = bench.search(system, item, "compact")
            assert len(target.seeds) >= 3 and not judged & {*target.seeds}
            for trial in target.trials:
                values = trial.searched.all_values
                assert all(len(tried) > 1 for tried in values.values())


def test_a_search_can_be_written_before_the_tables(copy: Path) -> None:
    path = copy / FILE
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    del content["tables"]
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert not load(copy).experiments["fedgo"].compact


@pytest.mark.parametrize("how", ["worst", "gini", "average"])
def test_landed_clients_of_the_last_round_give_no_mean_of_several(copy: Path, how: str) -> None:
    """Weighted by samples, too, the average would be the last round's."""
    metric = {"of": "accuracy", "over_clients": how}
    line = changed(copy, "tables", "compact_accuracy", "metric", to=metric)
    assert f"{FILE}: tables.compact_accuracy.summary.rounds: 10: expected 1" in line


def test_landed_means_over_clients_are_of_each_round(copy: Path) -> None:
    content = yaml.safe_load((copy / FILE).read_text(encoding="utf-8"))
    metric = {"of": "accuracy", "over_clients": "average", "weighted": False}
    content["tables"]["compact_accuracy"]["metric"] = metric
    (copy / FILE).write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    assert load(copy)
