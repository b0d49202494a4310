"""What has something made anew."""

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import OVERRIDES, load
from fedrepro.config.targets import RunKey
from fedrepro.provenance import numerics
from fedrepro.provenance.inputs import code_of_partition
from fedrepro.workflow import checks, graph
from support.places import ROOT


def test_weights_for_a_fid_count_where_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no input: without them the other numbers are found, and later the FID, too."""
    made = graph.Graph(load(ROOT))
    judges = {name: each.evaluator for name, each in made.bench.settings.items() if each.evaluator}
    with_fid = next(name for name, judge in judges.items() if judge and judge.fid)
    without = next(name for name, judge in judges.items() if judge and not judge.fid)
    found = {}
    for there in (False, True):
        monkeypatch.setattr(graph, "is_there", lambda entry, there=there: there)
        for setting in (with_fid, without, "ima/fmnist-shards2"):
            run = SimpleNamespace(setting=setting, method="fedavg", seed="1")
            found[setting, there] = made.evaluator(run)
    assert found[with_fid, True] != found[with_fid, False]
    assert found[without, True] == found[without, False]
    assert found["ima/fmnist-shards2", True] == found["ima/fmnist-shards2", False]


def test_a_target_may_name_any_method_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    made = graph.Graph(load(ROOT))
    run = SimpleNamespace(setting="ima/fmnist-shards2", method="ima+fedprox_mu0.3", seed="1")
    assert made.inputs_of_run(run)
    run.method = "ima+fedprx"
    with pytest.raises(SystemExit, match="2"):
        made.inputs_of_run(run)
    line = capsys.readouterr().err
    assert "method ima+fedprx: part: 'fedprx': " in line and " 'fedprox'" in line
    assert line.count("\n") == 1


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


def test_a_table_is_made_anew_when_the_code_of_a_run_that_another_scale_has_is_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows that run, too."""
    text = EXPERIMENT.replace(
        "{label: A, method: fedavg}", "{label: A, method: moon, demo: fedavg}"
    )
    made = settled(tmp_path, text)
    named = SimpleNamespace(system="own", item="first", scale="demo")
    found = set()
    for changed in ("none", "moon"):
        monkeypatch.setattr(
            graph.numerics, "of_run", lambda spec, by=changed: {"core": spec.method == by}
        )
        found.add(made.table_definition(named))
    assert len(found) == 2


@pytest.mark.parametrize("awaited", [False, True])
def test_a_table_waits_for_analyses_where_its_runs_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    table = SimpleNamespace(required=[], analyses=[Path("a.json"), Path("b.json")], awaited=awaited)
    monkeypatch.setattr(graph.Graph, "table", lambda *about: table)
    assert settled(tmp_path).inputs_of_table(None) == (["a.json", "b.json"] if awaited else [])


SETTING = """
    dataset: mnist5k
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 2
    participation: 0.5
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
"""
EXPERIMENT = f"""
system: own
title: Own
paper: none
settings:
  small: {SETTING}
  other:
    extends: small
    note: "of other"
    optimizer: {{lr: 0.2}}
  skewed:
    extends: small
    note: "of skewed"
    partition: {{scheme: shards, clients: 4, classes_per_client: 2}}
tables:
  first:
    title: First
    seeds: {{demo: [3, 5], paper: [3, 5]}}
    rows:
      - {{label: Small, setting: small}}
      - {{label: Skewed, setting: skewed}}
    columns:
      - {{label: A, method: fedavg}}
      - {{label: B, method: fedprox}}
figures:
  drawn:
    kind: lines
    title: Drawn
    rows: [{{label: Other, setting: other}}]
    columns: [{{label: A, method: fedavg}}]
"""


def settled(root: Path, experiment: str = EXPERIMENT, config: str = "") -> graph.Graph:
    """The graph of a workbench with one experiment file."""
    (root / "config/experiments").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "config/datasets.yaml", root / "config/datasets.yaml")
    seeds = "scale: demo\nseeds: {demo: [1], paper: [1]}\n"
    (root / "config/config.yaml").write_text(seeds + config)
    (root / "config/experiments/own.yaml").write_text(experiment)
    return graph.Graph(load(root))


def test_a_partition_is_that_of_the_first_setting_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever it is, all have the same: their data and scheme are."""
    made = settled(tmp_path)
    for name, setting in (("iid-clients4", "small"), ("shards-clients4-classes2", "skewed")):
        wanted = SimpleNamespace(dataset="mnist5k", partition=name)
        assert made.setting_of_partition(wanted) == f"own/{setting}"
    for dataset, name in (("mnist5k", "iid-clients5"), ("fmnist", "iid-clients4")):
        with pytest.raises(SystemExit, match="2"):
            made.setting_of_partition(SimpleNamespace(dataset=dataset, partition=name))
        line = capsys.readouterr().err
        assert f": partition: '{name}': " in line and f" {dataset}" in line.split(f"'{name}'")[1]
        assert ("'iid-clients4'?" in line) == (dataset == "mnist5k")


def test_what_a_run_a_table_and_a_page_wait_for(tmp_path: Path) -> None:
    made = settled(tmp_path)
    run = SimpleNamespace(setting="own/skewed", method="fedprox", seed="5")
    partitions = "results/partitions/mnist5k"
    shards, iid = (f"{partitions}/{name}" for name in ("shards-clients4-classes2", "iid-clients4"))
    assert made.inputs_of_run(run) == ["results/data/mnist5k/meta.json", f"{shards}/seed5.npz"]
    folders = [
        f"results/runs/own/{setting}/{method}/seed{seed}"
        for setting in ("small", "skewed")
        for method in ("fedavg", "fedprox")
        for seed in (3, 5)
    ]
    table, page = (SimpleNamespace(system="own", item=name) for name in ("first", "first"))
    names = {"manifest.json", "rounds.parquet"}
    assert {*made.inputs_of_table(table)} == {f"{at}/{name}" for at in folders for name in names}
    waited = made.inputs_of_page(page)
    assert waited[0] == str(made.table(table).path)
    histograms = {f"{iid}/seed3.json", f"{shards}/seed3.json"}  # of the first seed
    files = {f"{at}/{name}" for at in folders for name in {*names, "clients.parquet"}}
    assert {*waited[1:]} == files | histograms
    drawn = made.inputs_of_page(SimpleNamespace(system="own", item="drawn"))
    folder = "results/runs/own/other/fedavg/seed1"
    assert {*drawn} == {f"{folder}/{name}" for name in {*names, "clients.parquet"}}
    assert {*made.pages()} == {"reports/site/own/first.html", "reports/site/own/drawn.html"}
    everything = {*made.results()}
    assert everything == {
        *made.tables(), *(f"{at}/manifest.json" for at in [*folders, folder])
    }  # fmt: skip


def test_clients_are_counted_in_the_data_that_are_there(tmp_path: Path) -> None:
    """None are fetched for it; while small runs are asked for, a figure waits for nothing."""
    held = "  held: {kind: client_statistics, title: Held, settings: {A: small, B: other_data}}\n"
    more = "  other_data: {extends: small, dataset: fmnist}\ntables:"
    shares = "  shares: {kind: partitions, title: S, panels: [{label: A, setting: small}]}\n"
    text = EXPERIMENT.replace("tables:", more) + shares + "computed:\n" + held
    made = settled(tmp_path, text)
    page = SimpleNamespace(system="own", item="held")
    assert made.inputs_of_page(page) == []
    for name in ("fmnist", "mnist5k"):
        (tmp_path / f"results/data/{name}").mkdir(parents=True)
        (tmp_path / f"results/data/{name}/meta.json").touch()
        known = ["fmnist"] if name == "fmnist" else ["mnist5k", "fmnist"]
        assert made.inputs_of_page(page) == [
            f"results/partitions/{data}/iid-clients4/seed1.json" for data in known
        ]
    seeds = "seeds: {demo: [1], compact: [1], paper: [1]}\n"
    (tmp_path / "config/config.yaml").write_text(f"scale: compact\n{seeds}")
    small = graph.Graph(load(tmp_path))
    for name in ("drawn", "shares"):
        page = SimpleNamespace(system="own", item=name)
        assert made.inputs_of_page(page) and not small.inputs_of_page(page)
    assert {*small.results()} == {*small.tables()}  # nor is any run


def test_a_run_waits_for_the_files_of_the_run_and_of_the_data_that_it_is_given(
    tmp_path: Path,
) -> None:
    inputs = {"taught": "{setting: small, method: fedavg, seed: 3}", "fed": "{dataset: fmnist}"}
    more = "".join(
        f"  {name}: {{extends: small, inputs: {{unlabelled: {source}}}}}\n"
        for name, source in inputs.items()
    )
    made = settled(tmp_path, EXPERIMENT.replace("tables:", f"{more}tables:", 1))
    own = ["results/data/mnist5k/meta.json", "results/partitions/mnist5k/iid-clients4/seed1.npz"]
    given = {
        "taught": [f"results/runs/own/small/fedavg/seed3/{name}"
                   for name in ("manifest.json", "model.safetensors")],
        "fed": ["results/data/fmnist/meta.json"],
    }  # fmt: skip
    for name, files in given.items():
        run = SimpleNamespace(setting=f"own/{name}", method="feddf", seed="1")
        assert made.inputs_of_run(run) == [*own, *files]


def test_the_code_of_a_measure_counts_by_its_whole_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of another whose name begins alike."""
    made = settled(tmp_path)
    known = {name: Path(f"{name}.py") for name in ("reach", "reached", "reached_late")}
    monkeypatch.setattr(type(made.bench.plugins), "files", lambda self, kind: known)
    monkeypatch.setattr(graph.measures, "files_of", lambda names, plugins: names)
    monkeypatch.setattr(graph.fingerprint, "of_closure", lambda files, *about: str(files))
    for name in known:
        item = SimpleNamespace(model_dump_json=lambda name=name: f'{{"metric": "{name}"}}')
        assert made._asked(item).endswith(f" {[name]}")  # type: ignore[arg-type]


COMPACT = """
settings:
  compact-small: {extends: small}
tables:
  compact_first:
    title: Small
    rows: [{label: A, setting: compact-small}]
    columns: [{label: A, method: fedavg}]
"""


def test_a_table_s_page_shows_claims_and_so_follows_from_its_system_s_small_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From what is asked of them, and from those that have ended; a table's file does not."""
    monkeypatch.chdir(tmp_path)
    named = SimpleNamespace(system="own", item="first", scale="demo")
    found = []
    for text in ("", COMPACT, COMPACT.replace("method: fedavg", "method: fedprox")):
        made = settled(tmp_path)
        if text:
            Path("config/compact").mkdir(exist_ok=True)
            Path("config/compact/own.yaml").write_text(text)
            made = graph.Graph(load(tmp_path))
        found.append((made.page_definition(named), made.table_definition(named)))
    for name in ("manifest.json", "rounds.parquet"):
        run = Path("results/runs/own/compact-small/fedprox/seed1")
        run.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
        made = graph.Graph(load(tmp_path))
        found.append((made.page_definition(named), made.table_definition(named)))
    pages, tables = zip(*found, strict=True)
    assert len({*pages[:4]}) == 4 and pages[4] == pages[3] and len({*tables}) == 1


def finish(setting: str, method: str, seed: int) -> None:
    folder = Path("results/runs") / setting / method / f"seed{seed}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(f"{setting} {method} {seed}")


def test_while_small_runs_are_asked_for_a_page_with_claims_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was rendered amid them, and due again after them."""
    monkeypatch.chdir(tmp_path)
    settled(tmp_path)
    Path("config/compact").mkdir()
    Path("config/compact/own.yaml").write_text(COMPACT)
    page = SimpleNamespace(system="own", item="first")
    table = "results/tables/compact/own/compact_first.json"
    for scale, waits in (("demo", False), ("compact", True)):
        seeds = f"scale: {scale}\nseeds: {{demo: [1], compact: [1], paper: [1]}}\n"
        Path("config/config.yaml").write_text(seeds)
        found = [graph.Graph(load(tmp_path)).page_definition(page)]
        finish("own/compact-small", "fedavg", 1)
        made = graph.Graph(load(tmp_path))
        found.append(made.page_definition(page))
        assert ((table in made.inputs_of_page(page)), len({*found}) == 1) == (waits, waits), scale
        own = made.inputs_of_page(SimpleNamespace(system="own", item="compact_first"))
        assert own.count(table) == 1
        shutil.rmtree("results")


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> dict[RunKey, str]:
    """Why finished runs are not current."""
    reasons: dict[RunKey, str] = {}

    def of(bench: object, run: RunKey) -> SimpleNamespace:
        return SimpleNamespace(why=reasons.get(run, ""), is_current=run not in reasons)

    monkeypatch.setattr(graph, "standing_of", of)
    return reasons


def test_a_table_follows_from_why_runs_that_it_also_shows_are_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: dict[RunKey, str]
) -> None:
    """Such as an edited setting of scale paper: the demo table kept its number and verdict."""
    monkeypatch.chdir(tmp_path)
    text = EXPERIMENT.replace("paper: [3, 5]", "paper: [3, 7]")
    table, found = SimpleNamespace(system="own", item="first", scale="demo"), []
    finish("own/small", "fedavg", 3)
    finish("own/small", "fedavg", 7)
    for seed, why in ((9, "x"), (3, "lr"), (7, "lr"), (7, "lr, rounds"), (7, "")):
        standing[RunKey("own/small", "fedavg", seed)] = why
        found.append(settled(tmp_path, text).finished_paper_runs(table))
    assert found[0] == found[1] == found[4]  # none there, a required one, current again
    assert len({found[0], found[2], found[3]}) == 3


def test_a_table_follows_from_whether_classes_of_arithmetic_are_averaged(tmp_path: Path) -> None:
    tables = [
        made.definition_of(made.bench.table("own", "first"))
        for config in ("", "average_across: true\n", "average_across: false\n")
        for made in [settled(tmp_path, config=config)]
    ]
    assert tables[0] == tables[2] != tables[1]


@pytest.mark.parametrize(("scale", "follows"), [("compact", True), ("demo", False)])
def test_a_figure_that_waits_for_no_runs_follows_from_those_that_finish(
    scale: str, follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    settled(tmp_path)
    Path("config/config.yaml").write_text(f"scale: {scale}\nseeds: {{demo: [1], paper: [1]}}\n")
    for _ in range(2):
        made = graph.Graph(load(tmp_path))
        found.append(made.page_definition(SimpleNamespace(system="own", item="drawn")))
        if len(found) == 1:
            finish("own/other", "fedavg", 1)
    assert (found[0] != found[1]) is follows


def test_runs_that_a_table_requires_are_inputs_and_not_among_those_that_it_also_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: dict[RunKey, str]
) -> None:
    """What is recorded of it was the runs before the call that made them: it was due again."""
    monkeypatch.chdir(tmp_path)
    text = EXPERIMENT.replace("paper: [3, 5]", "paper: [3, 7]")
    table, found = SimpleNamespace(system="own", item="first", scale="demo"), []
    for seed in (None, 3, 5, 7):
        if seed:
            finish("own/small", "fedavg", seed)
        found.append(settled(tmp_path, text).finished_paper_runs(table))
    assert found[0] == found[1] == found[2] != found[3]
    recorded: list[str] = []
    monkeypatch.setattr(graph, "read_record", lambda *path: {"params": recorded})
    made = settled(tmp_path, text)
    for older in (
        graph.of_finished(made.bench.table("own", "first", "paper").runs),
        found[3],
    ):
        recorded[:] = ["'other'", repr(older)]
        assert made.finished_paper_runs(table) == older
    recorded[:] = ["'other'"]
    assert made.finished_paper_runs(table) == found[3]


def test_an_analysis_of_seeds_waits_for_each_run_and_its_partition(tmp_path: Path) -> None:
    wanted = SimpleNamespace(setting="own/skewed", method="fedavg", seeds="3-12")
    shards = "results/partitions/mnist5k/shards-clients4-classes2"
    assert settled(tmp_path).runs_of_seeds(wanted) == [
        *(f"results/runs/own/skewed/fedavg/seed{seed}/manifest.json" for seed in (3, 12)),
        *(f"{shards}/seed{seed}.npz" for seed in (3, 12)),
    ]


@pytest.mark.parametrize(
    ("old", "new", "table", "page"),
    [
        ("of skewed", "of something", False, True),
        ("of other", "of something", False, False),
        ("rounds: 2", "rounds: 3", True, True),
        ("title: First", "title: Last", True, True),
        ("{lr: 0.2}", "{lr: 0.3}", False, False),
        ("seeds: {demo: [3, 5]", "seeds: {demo: [3, 4]", True, True),
    ],
)
def test_what_of_an_experiment_file_a_table_and_its_page_follow_from(
    tmp_path: Path, old: str, new: str, table: bool, page: bool
) -> None:
    """A page has its table's definition, and its settings' notes besides."""
    named = SimpleNamespace(system="own", item="first", scale="demo")
    assert old in EXPERIMENT
    texts = [EXPERIMENT, EXPERIMENT.replace(old, new)]
    graphs = [settled(tmp_path / str(at), text) for at, text in enumerate(texts)]
    tables = {each.table_definition(named) for each in graphs}
    pages = {each.page_definition(named) for each in graphs}
    assert (len(tables) == 2, len(pages) == 2) == (table, page)


def test_rules_of_what_says_itself_whether_it_is_current_ask_it() -> None:
    rules = {path.stem: path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk")}
    for name, asked in (("run", "run"), ("data", "data"), ("partition", "partition")):
        assert f"        RERUN.stale_{asked}," in rules[name]


def test_a_landscape_s_name_has_its_arguments(tmp_path: Path) -> None:
    made = settled(tmp_path)
    part = SimpleNamespace(part="last-t0.5-best_21x500")
    asked = "--through last t0.5 best --points 21 --samples 500"
    assert made.landscape_arguments(part) == asked


@pytest.mark.parametrize("rule", ["table", "page", "site"])
def test_what_renders_is_recorded_beside_all_other_parameters_of_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """Else no record would be found, and another version would make all pages again."""
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(graph, "as_rendered", lambda *given: asked.append(given[1:4]) or given[3])
    monkeypatch.setattr(graph, "report_code", lambda: "of reports")
    monkeypatch.setattr(graph, "of_paper", lambda system: f"of {system}")
    monkeypatch.setattr(graph.numerics, "of_run", lambda spec: {})
    monkeypatch.setattr(graph.fingerprint, "of_files", lambda paths: str([*map(str, paths)]))
    text = (ROOT / "workflow/rules/report.smk").read_text(encoding="utf-8")
    body = text.partition(f"rule {rule}:")[2].partition("shell:")[0]
    named = SimpleNamespace(system="own", item="first", scale="demo")
    made = settled(tmp_path)
    given = [getattr(made, name) for name in re.findall(r"=GRAPH\.(\w+),", body)]
    parameters = [value(named) if callable(value) else value for value in given]
    outputs, known, values = asked[0]
    assert sorted(map(repr, parameters)) == sorted(map(repr, [*known, *values]))
    written = re.findall(r'"([\w/{}.]+\.(?:html|json))"', body.partition("output:")[2])
    assert {*map(str, outputs)} == {each.format(**vars(named)) for each in written}


def test_the_code_of_every_scheme_of_one_s_own_counts_for_a_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where one scheme is made of others."""
    files = {name: Path(f"{name}.py") for name in ("in_order", "by_size", "unused")}
    schemes = ("mixed", "in_order", "iid", "by_size")
    setting: Any = SimpleNamespace(partition=SimpleNamespace(schemes=schemes))
    plugins: Any = SimpleNamespace(files=lambda kind: files)
    monkeypatch.setattr(numerics, "of_partition", lambda own: own)
    assert code_of_partition(setting, plugins) == (files["in_order"], files["by_size"])


@pytest.mark.parametrize("recorded", [None, ["older"]])
@pytest.mark.parametrize(("there", "differs"), [(False, False), (True, False), (True, True)])
def test_a_recipe_is_as_recorded_while_the_data_are_there_and_current(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
    differs: bool,
    recorded: list[str] | None,
) -> None:
    """The download's own record says it."""
    made = settled(tmp_path)
    asked: list[Path] = []
    monkeypatch.setattr(graph, "prepared_differences", lambda *about: ["entry"] * differs)
    monkeypatch.setattr(
        graph, "recorded_parameters", lambda root, paths, *rest: asked.extend(paths) or recorded
    )
    if there:
        (tmp_path / "results/data/mnist5k").mkdir(parents=True)
        (tmp_path / "results/data/mnist5k/meta.json").touch()
    named = SimpleNamespace(dataset="mnist5k")
    found = made.recipe_of_download(named)
    current = there and not differs
    assert (found == "older") == bool(current and recorded)
    files = ["results/downloads/mnist5k/files.json"]
    assert [*map(str, asked)] == (files if current else [])
    other = SimpleNamespace(dataset="fmnist")  # which is not there
    assert made.recipe_of_download(other) != found


def test_jobs_find_the_command_of_the_python_that_runs_snakemake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any other; and what a run's method needs is asked for before anything runs."""
    settled(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/elsewhere")
    monkeypatch.setenv(OVERRIDES, "{}")
    called: list[str] = []
    for name in ("learn_methods_apart", "check_methods_apart", "check_given"):
        monkeypatch.setattr(checks, name, lambda *given, name=name: called.append(name))
    made = graph.open_graph({"scale": "paper", "device": "cuda"})
    assert (made.scale, made.bench.config.device) == ("paper", "cuda")
    first, last = os.environ["PATH"].split(os.pathsep)
    assert Path(first) == Path(sys.executable).parent and last == "/elsewhere"
    assert called == ["learn_methods_apart", "check_methods_apart", "check_given"]
    # A job's command that is given neither, such as `quality`, compares runs with these.
    of_a_job = load(tmp_path).config
    assert (of_a_job.scale, of_a_job.device) == ("paper", "cuda")
    assert load(tmp_path, Overrides(device="cpu")).config.scale == "demo"
