"""Plug-in measures: docs/measures.md as written there, and what each mistake reports."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from fedrepro.cli import main as cli
from fedrepro.cli.configuration import SCHEMAS, text_of
from fedrepro.config.loading import load
from fedrepro.config.metrics import OfRounds, OverClients, RoundsTo
from fedrepro.config.tables import Table
from fedrepro.config.targets import RunKey
from fedrepro.engine.executors import Parallel, eager, sequential
from fedrepro.engine.method import Method
from fedrepro.engine.round import begin, play_round
from fedrepro.measures import registry
from fedrepro.measures.base import Measure
from fedrepro.measures.clients import STATISTICS
from fedrepro.provenance import fingerprint
from fedrepro.run import runner, scoring
from fedrepro.run.assembly import make_plan
from fedrepro.run.results import read_run
from fedrepro.run.state import (
    CLIENT_COLUMNS,
    ENSEMBLE_COLUMNS,
    PERSONAL_CLIENT_COLUMNS,
    PERSONAL_ROUND_COLUMNS,
    VALIDATION_COLUMNS,
)
from fedrepro.run.store import ClientStore
from fedrepro.workflow.graph import Graph
from support.manifests import follow, write_bare
from support.places import ROOT
from support.refusals import refused
from support.tiny_run import dataset, partition, run_spec

TEXT = (ROOT / "docs/measures.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```python\n# (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
(EXPERIMENT,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
(OWN,) = re.findall(r"^    (plugins: .*)$", TEXT, re.MULTILINE)
LISTED = TEXT.partition("## What there is")[2].partition("\n## ")[0]
RECORDED = "measures: [macro_recall, drift, unevenness]"


def write(root: Path) -> Path:
    """A workbench with what the page says, and a second setting that names no measure."""
    (root / "config/experiments").mkdir(parents=True)
    (root / "config/config.yaml").write_text(f"scale: paper\nseeds: {{paper: [1]}}\n{OWN}\n")
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    plain = "  plain:\n    extends: watched\n    evaluate: { every: 2, clients: true }\ntables:"
    (root / "config/experiments/mine.yaml").write_text(EXPERIMENT.replace("tables:", plain))
    for name, text in FILES:
        file = root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return root


def test_the_page_lists_every_measure() -> None:
    named = set(re.findall(r"`(\w+)`", LISTED))
    known = {name for per in ("client", "round", "run") for name in registry.packaged(per)}
    assert known | {*registry.SETS} <= named
    columns = {*PERSONAL_ROUND_COLUMNS, *VALIDATION_COLUMNS, *CLIENT_COLUMNS}
    columns |= {*PERSONAL_CLIENT_COLUMNS, *ENSEMBLE_COLUMNS}
    over = {f"{kind}_{name}" for kind in ("test", "client") for name in ("accuracy", "loss")}
    assert columns - over <= named


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's runs, table and figures, by the commands."""
    root = write(tmp_path_factory.mktemp("measures"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for run in ("watched fedavg", "watched watched", "plain watched"):
            setting, method = run.split()
            assert cli.main(["run", f"mine/{setting}", method, "--seed", "1"]) == 0
        assert cli.main(["table", "mine", "table_1"]) == 0
        for item in ("table_1", "figure_1", "figure_2"):
            assert cli.main(["page", "mine", item]) == 0
    return root


def columns(root: Path, setting: str, method: str, name: str) -> dict[str, np.ndarray]:
    path = root / RunKey(f"mine/{setting}", method, 1).folder / f"{name}.parquet"
    return {key: np.array(each) for key, each in pq.read_table(path).to_pydict().items()}


def test_a_column_s_metric_comes_before_its_row_s_and_the_row_s_before_the_table_s() -> None:
    table = Table.model_validate(
        {
            "title": "T",
            "metric": {"rounds_to": 50},
            "rows": [
                {"label": "R", "setting": "s", "metric": "loss"},
                {"label": "Q", "setting": "s"},
            ],
            "columns": [
                {"label": "A", "method": "fedavg"},
                {"label": "B", "method": "fedavg", "metric": {"quality": "accuracy"}},
            ],
        }
    )
    kinds = [[table.metric_of(row, column).quantity.words for column in table.columns]
             for row in table.rows]  # fmt: skip
    judged = registry.SETS["accuracy"].words
    rounds = RoundsTo(rounds_to=50).quantity.words
    assert kinds == [[OfRounds(name="loss").quantity.words, judged], [rounds, judged]]


def test_fewer_rounds_are_better_and_a_greater_speed_up() -> None:
    assert not RoundsTo(rounds_to=60).quantity.higher_is_better
    assert RoundsTo(rounds_to=60, speed_up=True).quantity.higher_is_better


def test_a_measure_is_a_column_of_the_runs_that_name_it(world: Path) -> None:
    clients = columns(world, "watched", "watched", "clients")
    rounds = columns(world, "watched", "watched", "rounds")
    assert np.isfinite(clients["macro_recall"]).all()
    # Two classes a client: recall is another number than accuracy, and on their mean near it.
    assert (clients["macro_recall"] != clients["accuracy"]).any()
    last = clients["round"] == 4
    recall, sizes = clients["macro_recall"][last], clients["test_samples"][last]
    assert rounds["client_macro_recall"][-1] == pytest.approx(recall.mean())
    assert rounds["test_macro_recall"][-1] == pytest.approx(np.average(recall, weights=sizes))
    # Five of ten clients report, in each of the two rounds that are evaluated.
    assert [np.isfinite(clients["drift"][clients["round"] == t]).sum() for t in (2, 4)] == [5, 5]
    assert (rounds["unevenness"] >= 1).all()
    alone = columns(world, "watched", "fedavg", "clients")
    assert np.isnan(alone["drift"]).all() and np.isfinite(alone["macro_recall"]).all()


def test_an_editor_takes_them(world: Path) -> None:
    schema = jsonschema.Draft202012Validator(json.loads(text_of(SCHEMAS["experiment.json"])))
    assert not list(schema.iter_errors(yaml.safe_load(EXPERIMENT)))


def test_all_else_is_as_without_measures(world: Path) -> None:
    for name in ("clients", "rounds"):
        plain = columns(world, "plain", "watched", name)
        watched = columns(world, "watched", "watched", name)
        assert not {"macro_recall", "drift", "unevenness"} & plain.keys()
        for column, values in plain.items():
            np.testing.assert_array_equal(values, watched[column], column)
    # What is reported for the record is not sent.
    sent = [columns(world, "watched", name, "rounds")["bytes_up"] for name in ("fedavg", "watched")]
    np.testing.assert_array_equal(*sent)
    models = [world / RunKey(f"mine/{name}", "watched", 1).folder / "model.safetensors"
              for name in ("plain", "watched")]  # fmt: skip
    assert models[0].read_bytes() == models[1].read_bytes()


def test_tables_and_figures_are_made_of_it(world: Path) -> None:
    clients = columns(world, "watched", "watched", "clients")
    last = clients["round"] == 4
    recall, sizes = 100 * clients["macro_recall"][last], clients["test_samples"][last]
    table = json.loads((world / "results/tables/paper/mine/table_1.json").read_text())
    assert [(row["metric"], row["unit"]) for row in table["rows"]] == [
        ("macro recall, average over clients, weighted by test samples", "%"),
        ("macro recall, worst tenth of clients, weighted by test samples", "%"),
        ("macro recall, Gini coefficient over clients × 100", ""),
        ("drift of clients, average over clients, weighted by training samples", ""),
    ]
    ours = [cell["paper"]["mean"] for cell in table["cells"] if cell["column"] == 1]
    assert ours[0] == pytest.approx(np.average(recall, weights=sizes))
    assert ours[1] == pytest.approx(recall.min())
    assert 0 < ours[2] < 100
    drift, held = clients["drift"][last], clients["train_samples"][last]
    there = np.isfinite(drift)
    assert ours[3] == pytest.approx(np.average(drift[there], weights=held[there]))
    holes = [cell["paper"] for cell in table["cells"] if cell["column"] == 0]
    assert holes[3]["hole"] == "has no drift of clients"
    site = world / "reports/site"
    table = (site / "mine/table_1.html").read_text(encoding="utf-8")
    assert 'data-label="Ours' in table
    for beside in ("Printed", "Difference", "Verdict"):  # nothing is printed to compare with
        assert f'data-label="{beside}' not in table
    for heading in ("follows", "verdict"):
        assert not re.search(f"<h2[^>]*>[^<]*{heading}", table)
    curve = (site / "mine/figure_1.html").read_text(encoding="utf-8")
    assert "<svg" in curve and "macro recall" in curve
    assert "unevenness of weights" in (site / "mine/figure_2.html").read_text().lower()
    (page,) = (site / "runs/mine/watched/watched").glob("*.html")
    assert "Unevenness of weights" in page.read_text(encoding="utf-8")


def code_of(root: Path) -> dict[str, str]:
    bench = load(root)
    runs = {name: bench.run_spec(f"mine/{name}", "watched", 1) for name in ("watched", "plain")}
    return {name: fingerprint.of_code(spec) for name, spec in runs.items()}


def test_only_runs_that_name_a_measure_are_made_again(root: Path, tmp_path: Path) -> None:
    before = code_of(root)
    definition = load(root).run_spec("mine/plain", "watched", 1).description()
    assert "measures" not in definition["evaluate"]

    other = write(tmp_path / "changed")
    file = other / "measures/macro_recall.py"
    file.write_text(file.read_text().replace("argmax", "argmin"))
    changed = code_of(other)
    assert changed["watched"] != before["watched"]
    assert changed["plain"] == before["plain"]

    more = write(tmp_path / "more")
    (more / "measures/further.py").write_text((more / "measures/drift.py").read_text())
    assert code_of(more) == before


def test_the_earlier_name_of_a_direction_is_read_with_a_warning(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "other")
    file = other / "measures/drift.py"
    file.write_text(file.read_text().replace("higher_is_better = False", "rising = False"))
    drift = registry.the("drift", "client", folders=load(other).plugins)
    assert drift.higher_is_better is False
    assert "measures/drift.py" in (warning := capsys.readouterr().err)
    assert "'rising'" in warning and "'higher_is_better'" in warning


def test_a_table_is_made_again_with_its_measure(root: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other")
    file = other / "measures/drift.py"
    file.write_text(file.read_text().replace("higher_is_better = False", "higher_is_better = True"))
    wildcards = type("Wildcards", (), {"system": "mine", "item": "table_1", "scale": "paper"})
    figure = type("Wildcards", (), {"system": "mine", "item": "figure_1"})
    found = []
    for place in (root, other):
        graph = Graph(load(place))
        found.append((graph.table_definition(wildcards), graph.page_definition(figure)))
    (table, curve), (table_after, curve_after) = found
    assert table != table_after and curve == curve_after


def test_reports_reach_a_wrapper_and_every_executor(root: Path) -> None:
    """Under ima, and with clients side by side."""
    spec = load(root).run_spec("mine/watched", "ima+watched", 1)
    made = run_spec("fedavg").setting.model_copy(
        update={"evaluate": spec.setting.evaluate, "rounds": 2}
    )
    spec = replace(spec, setting=made)
    plan = make_plan(spec, dataset(), partition(held_out=True))
    found = []
    for execute in (sequential, Parallel(2), eager):
        federation = replace(plan.federation, execute=execute)
        server, played = play_round(
            federation, begin(federation), ClientStore(root / str(len(found))), 0
        )
        assert "metrics" not in server and "metrics" not in played.updates
        assert played.reported_by_clients["drift"].shape == (len(played.cohort),)
        assert played.reported_by_server["unevenness"].numel() == 1
        found.append(played.reported_by_clients["drift"])
    assert found[0].equal(found[1])
    torch.testing.assert_close(found[0], found[2])


def test_a_broken_off_run_goes_on_with_its_measures(root: Path) -> None:
    """A measure per round of the shared model, one reported by clients and one by the server."""
    (root / "measures/hits.py").write_text(
        "from fedrepro.measures.base import Measure\n\n\nclass Hits(Measure):\n"
        '    words, unit, higher_is_better, per = "hits", "%", True, "round"\n\n'
        "    def of_outputs(self, outputs, targets):\n"
        "        return (outputs.argmax(axis=1) == targets).mean()\n"
    )
    plugins = load(root).plugins
    wanted = {"measures": ["hits", "unevenness", "drift"]}
    spec = run_spec("watched", evaluate=wanted, rounds=4, checkpoint_every=1, plugins=plugins)

    def run(folder: Path, until: int = 4) -> None:
        def report(progress: runner.Progress) -> None:
            if progress.round > until:
                raise KeyboardInterrupt

        runner.run(spec, dataset(), partition(), folder, "code", report)

    with pytest.raises(KeyboardInterrupt):
        run(root / "broken", until=2)
    for name in ("broken", "whole"):
        run(root / name)
    for file in ("rounds.parquet", "clients.parquet", "model.safetensors"):
        assert (root / "broken" / file).read_bytes() == (root / "whole" / file).read_bytes()
    rounds = pq.read_table(root / "whole/rounds.parquet").to_pydict()
    assert rounds["hits"] == pytest.approx(rounds["test_accuracy"])
    clients = pq.read_table(root / "whole/clients.parquet").to_pydict()
    assert clients["drift"] == pytest.approx(clients["update_norm"])
    assert [*clients][-1] == "drift" and [*rounds][-2:] == ["hits", "unevenness"]


def test_a_report_for_the_record_is_one_number() -> None:
    with refused(
        key="metrics.drift",
        file="method watched",
        names=("watched", "2"),
    ):
        scoring._number(type("X", (Method,), {"__module__": "a.watched"})(), "drift", torch.ones(2))


@pytest.mark.parametrize(
    ("file", "old", "new", "names"),
    [
        ("config/experiments/mine.yaml", "drift, unev", "drfit, unev",
         ("evaluate.measures.1", "'drfit'", "drift, macro_recall, unevenness", "'drift'")),
        ("config/experiments/mine.yaml", RECORDED, "measures: [accuracy]", ("'accuracy'",)),
        ("config/experiments/mine.yaml", RECORDED, "measures: [drift, drift]", ("`measures`",)),
        ("config/experiments/mine.yaml", "clients: true, measures", "measures",
         ("`clients: true`", "macro_recall")),
        ("config/experiments/mine.yaml", "of: drift }", "of: drif }", ("'drift'",)),
        ("config/experiments/mine.yaml", "metric: unevenness", "metric: unevnness",
         ("metric", "'unevnness'", "accuracy", "'unevenness'")),
        ("config/experiments/mine.yaml", "metric: unevenness", "metric: drift", ("'drift'",)),
        ("measures/drift.py", "(Measure)", "", ("drift.py", "Measure", "0")),
        ("measures/drift.py", "higher_is_better = False", 'higher_is_better = "no"',
         ("higher_is_better", "'no'", "True")),
        ("measures/drift.py", 'per = "client"', 'per = "clients"',
         ("per", "'clients'", "round", "run", "'client'")),
        ("measures/drift.py", '    words = "drift of clients"\n', "", ("words", "None")),
        ("measures/drift.py", 'per = "client"', 'per = "run"', ("drift.py", "of_run")),
        ("measures/drift.py", "    higher_is_better = False\n",
         "    higher_is_better = False\n\n    def of_run(self, record):\n        return 1.0\n",
         ("drift.py", "of_run")),
        ("measures/macro_recall.py", "import numpy", "import numpi", ("macro_recall.py", "numpi")),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(
    root: Path, file: str, old: str, new: str, names: tuple[str, ...]
) -> None:
    text = (root / file).read_text(encoding="utf-8")
    assert old in text
    (root / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with refused(names=names):
        load(root)


def test_a_name_that_the_package_has_is_refused(root: Path) -> None:
    for name in ("ece", "update_norm", "test_mine", "samples"):
        file = root / f"measures/{name}.py"
        file.write_text((root / "measures/drift.py").read_text())
        with refused("value", file=f"{name}.py", value=name):
            registry.known("client", folders=load(root).plugins)
        file.unlink()


def test_what_is_no_number_is_one_line(root: Path) -> None:
    (root / "measures/nothing.py").write_text(FILES[0][1].replace("return np.mean", "np.mean"))
    folders = load(root).plugins
    with refused(file="measure nothing", key="of_outputs", names="TypeError"):
        registry.the("nothing", "client", folders=folders).checked(np.eye(3), np.arange(3))


def test_a_measure_that_changes_what_others_get_is_refused() -> None:
    class Sorts(Measure):
        name, words, higher_is_better, per = "sorts", "sorted", True, "client"

        def of_outputs(self, outputs: Any, targets: Any) -> float:
            outputs.sort(axis=1)
            return float(outputs[0, 0])

    assert Sorts().checked(np.array([[1.0, 2.0]]), np.array([0])) == 1
    with refused(file="measure sorts", key="of_outputs"):
        Sorts().checked(np.array([[2.0, 1.0]]), np.array([0]))


def test_a_measure_of_a_run_takes_no_training(root: Path) -> None:
    """It reads what runs have left, whether or not they were made with it in mind."""
    (root / "measures/gained.py").write_text(
        "from fedrepro.measures.base import Measure\n\n\nclass Gained(Measure):\n"
        '    words, unit, higher_is_better, per = "accuracy gained", "points", True, "run"\n\n'
        "    def of_run(self, record):\n"
        '        found = record.rounds["test_accuracy"]\n'
        "        return found[-1] - found[0]\n"
    )
    folders = load(root).plugins
    run = RunKey("mine/watched", "fedavg", 1)
    write_bare(root, run, rounds_done=7)
    table = pyarrow.table({"round": [1, 7], "test_accuracy": [0.25, 0.75]})
    pq.write_table(table, root / run.folder / "rounds.parquet")
    follow(root / run.folder, "rounds.parquet")
    metric = OfRounds.model_validate("gained", context=folders)
    assert metric.quantity.series(read_run(root, run)) == [(7.0, 50.0)]
    assert metric.quantity.of_a_run and metric.quantity.unit == "points"


def test_a_measure_of_clients_is_read_at_the_mixture_that_is_most_accurate(root: Path) -> None:
    folders = load(root).plugins
    values = {"of": "macro_recall", "over_clients": "average", "mix": "best"}
    metric = OverClients.model_validate(values, context=folders)
    columns = {
        "client": [0, 0, 1, 1], "weight": [0.0, 1.0] * 2, "test_samples": [3] * 4,
        "accuracy": [0.1, 0.9] * 2, "loss": [1.0] * 4, "macro_recall": [0.2, 0.4, 0.6, 0.8],
    }  # fmt: skip
    done, rounds = {"rounds_done": 3}, {"round": [3]}
    clients = {"macro_recall": [0.5]}
    record: Any = SimpleNamespace(clients=clients, mixtures=columns, manifest=done, rounds=rounds)
    ((number, value),) = metric.quantity.series(record)
    assert (number, value) == (3.0, pytest.approx(60.0))


@pytest.mark.parametrize(("seal", "calls"), [("one", [2, 3, 4]), (None, [2, 4, 6])])
def test_a_measure_of_a_run_is_repeated_once_per_result(seal: str | None, calls: list[int]) -> None:
    """Unless one cannot tell whether it is the same result: it may draw."""

    class Counted(Measure):
        name, words, higher_is_better, per = "counted", "counted", True, "run"
        drawn, calls = 0.0, 0

        def of_run(self, record: Any) -> float:
            Counted.calls += 1
            return 1.0 + self.drawn * Counted.calls

    record: Any = SimpleNamespace(manifest={"rounds_done": 3, "seal": seal})
    measure, counted = Counted(), []
    for _ in calls:
        assert measure.series(record) == [(3.0, 1.0)]
        counted.append(Counted.calls)
    assert counted == calls
    Counted.drawn = 1.0
    another: Any = SimpleNamespace(manifest={"rounds_done": 3, "seal": "another"})
    with refused(file="measure counted", key="of_run"):
        measure.series(another)


def test_the_worst_clients_of_a_falling_measure_have_most_of_it() -> None:
    values = np.array([1.0, 2.0, 5.0])
    worst, best, gap = (STATISTICS[name].of for name in ("worst", "best", "gap"))
    assert (worst(values, None, True), best(values, None, True)) == (1.0, 5.0)
    assert (worst(values, None, False), best(values, None, False)) == (5.0, 1.0)
    assert gap(values, None, True) == gap(values, None, False) == 4.0


def test_every_measure_of_the_package_says_what_it_is() -> None:
    for measures in (registry.CLIENTS, registry.ROUNDS, registry.SETS):
        for name, measure in measures.items():
            assert (
                name == measure.name and measure.words and measure.per in ("client", "round", "run")
            )
            assert isinstance(measure.higher_is_better, bool) and isinstance(measure, Measure)
    assert OverClients(of="ece", over_clients="gap").quantity.unit == ""
    assert OverClients(of="top5", over_clients="gap").quantity.unit == "points"


def test_of_what_is_uneven_less_is_better() -> None:
    """Whether of accuracies or of losses."""
    for measures in (registry.CLIENTS, registry.ROUNDS, registry.SETS):
        for name, measure in measures.items():
            assert not (measure.higher_is_better and name.endswith("_std")), name
    for of in ("accuracy", "loss"):
        measure = registry.CLIENTS[of]
        higher_is_better = {
            name: each.higher_is_better(measure) for name, each in STATISTICS.items()
        }
        best = of == "accuracy"
        wanted = {"average": best, "worst": best, "best": best, "gini": False, "gap": False}
        assert higher_is_better | wanted == higher_is_better


class _Reported(Measure):
    name, words, unit, higher_is_better, per = "accuracy", "accuracy", "%", True, "client"


def test_what_clients_report_is_weighted_by_what_they_train_on() -> None:
    columns = {"round": [1, 1], "accuracy": [0.2, 0.6], "train_samples": [3, 1]}
    clients = columns | {"test_samples": [1, 3]}
    record: Any = SimpleNamespace(rounds={"round": [1]}, clients=clients, mixtures={})
    metric = OverClients(of="accuracy", over_clients="average")
    assert [*metric.quantity.series(record)] == [(1, pytest.approx(50))]
    metric._own = _Reported()
    assert [*metric.quantity.series(record)] == [(1, pytest.approx(30))]
    assert "training" in metric.quantity.words


def test_only_a_score_that_some_client_lacks_is_a_trouble() -> None:
    """Only the cohort has what a method reports: the other clients lack it in any run."""
    clients = {"round": [1, 1], "accuracy": [0.2, math.nan], "test_samples": [1, 3]}
    record: Any = SimpleNamespace(rounds={"round": [1]}, clients=clients, mixtures={})
    metric = OverClients(of="accuracy", over_clients="average")
    assert metric.quantity.remark(record)
    metric._own = _Reported()
    assert not metric.quantity.remark(record)


def test_a_mean_over_clients_has_a_curve_without_the_clients_of_each_round() -> None:
    """Landed results of scale compact keep the clients of the last round, and each round's mean."""
    rounds = {"round": [1.0, 2.0, 3.0], "client_accuracy": [0.2, 0.4, 0.9]}
    clients = {"round": [3.0, 3.0], "accuracy": [0.5, 0.7], "test_samples": [10, 30]}
    record: Any = SimpleNamespace(rounds=rounds, clients=clients, mixtures={})

    def series(**metric: Any) -> list[tuple[float, float]]:
        return OverClients.model_validate({"of": "accuracy", **metric}).quantity.series(record)

    mean = series(over_clients="average", weighted=False)
    assert mean == [(1.0, 20.0), (2.0, 40.0), (3.0, pytest.approx(60.0))]
    assert series(over_clients="average") == [(3.0, pytest.approx(65.0))]  # by samples
    assert [number for number, _ in series(over_clients="worst", weighted=False)] == [3.0]


def test_a_measure_of_clients_without_test_samples_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = root / "config/experiments/mine.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.count(", test_fraction: 0.2") == 1
    file.write_text(text.replace(", test_fraction: 0.2", ""), encoding="utf-8")
    assert cli.main(["run", "mine/watched", "fedavg", "--seed", "1"]) == 2
    assert "macro_recall" in capsys.readouterr().err
    assert not (root / RunKey("mine/watched", "fedavg", 1).folder / "manifest.json").exists()
    assert cli.main(["run", "mine/plain", "fedavg", "--seed", "1"]) == 0
