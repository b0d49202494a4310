"""What a target must be made again for, and what not: a table over all rules.

The rules' own inputs and parameters are evaluated before and after a change, as Snakemake does, but
in this process. For each thing that may change, the table has everything that is due because of it;
all else must not be. tests/workflow/test_graph.py asks Snakemake itself, for fewer changes.
"""

import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, ItemsView, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.data.fetching.own_files import REMEMBERED
from fedrepro.models import registry as models
from fedrepro.provenance import arithmetic, fingerprint, numerics
from fedrepro.provenance.inputs import code_of_partition
from fedrepro.provenance.syntax import Syntax, read_syntax, syntax_of
from fedrepro.workflow import graph, rerun_checks
from support.places import ROOT
from support.report_world import copy_inputs

CONFIG = """\
scale: demo
seeds: {demo: [1, 2], paper: [1]}
plugins: {methods: methods, models: models, partitions: partitions, measures: measures}
"""
DATASETS = """\
datasets:
  one: &own
    {kind: tabular_csv, title: One, licence: none, citation: none, path: one.csv, label: kind}
  two: {<<: *own, title: Two, path: two.csv, standardise: true}
"""
EXPERIMENT = """\
system: ima
title: What may change
paper: none
methods:
  my_prox: {mu: 0.1}
  fedprox: {mu: 0.2}
settings:
  plain:
    dataset: one
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 3
    participation: 1
    epochs: 1
    batch_size: 10
    optimizer: {lr: 0.1}
  later: {extends: plain, rounds: 30}
  tested: {extends: plain, partition: {scheme: iid, clients: 5, test_fraction: 0.2}}
  own:
    extends: plain
    partition: {scheme: in_order, clients: 5}
    model: small_mlp
    evaluate: {measures: [macro_recall]}
  taught: {extends: plain, rounds: 4, inputs: {unlabelled: {dataset: two}}}
  handed:
    extends: plain
    rounds: 5
    inputs: {unlabelled: {setting: own, method: my_prox}}
  drawn: {extends: plain, rounds: 6, cohorts: {stream: numpy_legacy, seed: 7}}
  judged: {extends: plain, rounds: 7, evaluator: {model: superfed_twonn, epochs: 50}}
tables:
  table_1:
    title: Plain
    rows: [{label: A, setting: later, demo: plain}]
    columns: [{label: A, method: fedavg}, {label: B, method: ima+fedprox}]
  table_2:
    title: Own
    rows: [{label: A, setting: own, metric: reached}]
    columns: [{label: A, method: my_prox}]
  table_3:
    title: Given
    rows: [{label: A, setting: taught}, {label: B, setting: handed}]
    columns: [{label: A, method: feddf}]
  table_4:
    title: Judged in one column
    rows: [{label: A, setting: judged}]
    columns:
      - {label: A, method: fedprox}
      - {label: B, method: fedavg, metric: {quality: accuracy}}
  table_5:
    title: Drawn and tested
    rows: [{label: A, setting: drawn}, {label: B, setting: tested}]
    columns: [{label: A, method: fedavg}]
computed:
  costs: {kind: costs, title: Costs}
figures:
  hills:
    {kind: landscape, title: Hills, setting: plain, columns: [{label: A, method: fedavg}]}
  planes:
    kind: planes
    title: Planes
    panels: [{label: A, setting: plain, method: fedavg, through: ["1", "2", "3"]}]
  terms:
    kind: decomposition
    title: Terms
    method: fedavg
    show: [[variance]]
    panels: [{label: A, setting: plain}]
  regret:
    {kind: regret, title: Regret, method: aaggff_s, panels: [{label: A, setting: plain}]}
  shares: {kind: partitions, title: Shares, panels: [{label: A, setting: plain}]}
"""
REACHED = """\
from fedrepro.measures.base import Measure


class Reached(Measure):
    words = "reached"
    unit = ""
    higher_is_better = True
    per = "run"

    def of_run(self, record):
        return 1.0
"""
TABLE_1 = "results/runs/ima/later/fedavg/seed1/manifest.json"  # at scale paper
QUALITY_1 = "results/quality/ima/later/fedavg/seed1.json"

# What follows from a run of each setting, and from others' things.
OF_PLAIN = ("runs/plain/*", "tables/table_1", *(f"*{kind}s/plain/*" for kind in (
    "landscape", "decomposition", "regret")), *(f"site/{name}" for name in (
    "hills", "planes", "terms", "regret")))  # fmt: skip
OF_OWN = ("runs/own/*", "tables/table_2", "runs/handed/*", "tables/table_3")
OF_TWO = ("runs/taught/*", "tables/table_3")
OF_JUDGED = ("runs/judged/*", "quality/*", "tables/table_4")
OF_DRAWN = ("runs/drawn/*", "tables/table_5")
OF_FEDAVG = (
    "runs/*/fedavg", "tables/table_[145]", "landscapes/*", "decompositions/*", "quality/*",
    "site/hills", "site/planes", "site/terms",
)  # fmt: skip
RUNS = (*OF_PLAIN, *OF_OWN, *OF_TWO, *OF_JUDGED, *OF_DRAWN, "runs/tested/*")
OF_LOGISTIC = (*OF_PLAIN, *OF_TWO, "runs/handed/*", *OF_JUDGED, *OF_DRAWN, "runs/tested/*")
PAGES = ("tables/*", "site/*")


class World:
    """A workbench in the working directory, and what is changed in it for a while."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.patch = root, monkeypatch
        self._undo = ExitStack()

    def write(self, path: str, text: str) -> None:
        """Write a file that :meth:`restore` puts back as it was, with its times, or removes."""
        file = self.root / path
        if file.exists():
            kept = file.rename(self.root.with_name("kept"))
            self._undo.callback(kept.replace, file)
        else:
            new = next(each for each in (file, *file.parents) if each.parent.exists())
            file.parent.mkdir(parents=True)
            self._undo.callback(shutil.rmtree, new)
        file.write_text(text, encoding="utf-8")

    def add(self, path: str, text: str) -> None:
        self.write(path, (self.root / path).read_text(encoding="utf-8") + text)

    def restore(self) -> None:
        self._undo.close()

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text, f"{path} has changed: this test must follow"
        self.write(path, text.replace(old, new))

    def code(self, *names: str, by: str = "a_line = 1") -> None:
        """Another line in files of the package."""
        changed = {fingerprint.PACKAGE / f"{name}.py" for name in names}
        assert all(path.is_file() for path in changed)

        def with_a_line(path: Path) -> Syntax:
            if path in changed:
                return read_syntax(path.read_bytes() + f"\n{by}\n".encode(), path)
            return syntax_of(path)

        for module in (fingerprint, numerics):
            self.patch.setattr(module, "syntax_of", with_a_line)


def code(*names: str, by: str = "a_line = 1") -> Callable[[World], None]:
    return lambda world: world.code(*names, by=by)


def yaml(old: str, new: str, file: str = "experiments/ima") -> Callable[[World], None]:
    return lambda world: world.edit(f"config/{file}.yaml", old, new)


def plugin(file: str, by: str = "a_line = 1") -> Callable[[World], None]:
    return lambda world: world.add(file, f"\n{by}\n")


def raw(world: World) -> None:
    world.add("one.csv", "1,2,x\n")


def given_raw(world: World) -> None:
    """The same number of bytes, at another time."""
    world.edit("two.csv", "0.5", "0.6")
    os.utime(world.root / "two.csv", (1e9, 1e9))


def entry(world: World) -> None:
    other = models.MODELS["superfed_twonn"]._replace(channels_last=True)
    world.patch.setitem(models.MODELS, "superfed_twonn", other)


def entry_of_logistic(world: World) -> None:
    other = models.MODELS["logistic"]._replace(function="twonn")
    world.patch.setitem(models.MODELS, "logistic", other)


def landed(world: World, file: str = TABLE_1) -> None:
    world.write(file, json.dumps({"status": "finished"}))


def format_of_data(world: World) -> None:
    world.patch.setattr(graph, "FORMAT", "another")


CHANGES: dict[str, tuple[Callable[[World], None], tuple[str, ...]]] = {
    # data
    "a raw file of the user's": (raw, ("*/one", "partitions/one/*", *RUNS, "site/shares")),
    "given data": (given_raw, ("*/two", *OF_TWO)),
    "a catalogue entry": (
        yaml("standardise: true", "standardise: false", "datasets"), ("*/two", *OF_TWO),
    ),
    "a data set's title": (yaml("title: Two", "title: Second", "datasets"), ()),
    "the format of prepared data": (
        format_of_data, ("downloads/*", "data/*", "partitions/*", *RUNS, "site/shares"),
    ),
    # partitions
    "code that partitions": (  # pages are made by the code that reads schemes, too
        code("data/partition/assigning"), ("partitions/*", *RUNS, *PAGES),
    ),
    "code of the test part": (
        code("data/partition/partition"), ("partitions/*", *RUNS, "site/shares"),
    ),
    "one's own scheme": (plugin("partitions/in_order.py"), ("partitions/one/in_order*", *OF_OWN)),
    "the test part": (
        yaml("test_fraction: 0.2", "test_fraction: 0.3"),
        ("partitions/*test0.3", "runs/tested/*", "tables/table_5"),
    ),
    # runs
    "the engine": (code("engine/round"), RUNS),
    "random numbers": (code("support/rng"), (*RUNS, "partitions/*", "site/shares")),
    "a method": (
        code("methods/fedprox"),
        ("runs/plain/*fedprox", "tables/table_1", "runs/judged/fedprox", "tables/table_4"),
    ),
    "the method of most": (code("methods/fedavg"), (*OF_FEDAVG, "runs/*/*fedprox")),
    "one's own method": (plugin("methods/my_prox.py"), OF_OWN),
    "a model": (code("models/mlp"), OF_LOGISTIC),
    "one's own model": (plugin("models/small_mlp.py"), OF_OWN),
    "a model's registry entry": (
        entry_of_logistic, OF_LOGISTIC,
    ),
    "a measure of one's own that a setting names": (plugin("measures/macro_recall.py"), OF_OWN),
    "a hyperparameter": (
        yaml("my_prox: {mu: 0.1}", "my_prox: {mu: 0.3}"), OF_OWN,
    ),
    "a wrapper's inner hyperparameter": (
        yaml("fedprox: {mu: 0.2}", "fedprox: {mu: 0.3}"),
        ("runs/plain/*fedprox", "tables/table_1", "runs/judged/fedprox", "tables/table_4"),
    ),
    "a setting": (yaml("rounds: 7", "rounds: 8"), OF_JUDGED),
    "a paper's own cohorts": (code("papers/superfed/cohorts_numpy_legacy"), OF_DRAWN),
    # analyses
    **{
        f"a landscape's {name}": (
            code(f"analysis/{name}"), ("landscapes/*", "site/hills", "site/planes", *more),
        )
        for name, more in {
            "landscape_of_run": (),
            "landscape": ("decompositions/*", "site/terms"),
            "kept_models": ("decompositions/*", "site/terms"),
        }.items()
    },
    "a decomposition": (
        code("papers/ima/decomposition_of_runs"), ("decompositions/*", "site/terms"),
    ),
    "the code that judges": (code("analysis/quality_of_run"), ("quality/*", "tables/table_4")),
    "the judge's model": (code("models/superfed"), ("quality/*", "tables/table_4")),
    "the judge's registry entry": (entry, ("quality/*", "tables/table_4")),
    "how is judged": (yaml("epochs: 50", "epochs: 60"), ("quality/*", "tables/table_4")),
    "a regret's code": (code("papers/aaggff/regret_of_run"), ("regrets/*", "site/regret")),
    "a method whose decisions are analysed": (
        code("methods/aaggff_s"), ("runs/plain/aaggff_s", "regrets/*", "site/regret"),
    ),
    "a study's code": (code("papers/fedgo/study_cost"), ("studies/*", "site/costs")),
    # reports
    "a page's code": (code("report/pages/table"), PAGES),
    "a paper's figure": (code("papers/fedgo/figure_regions"), PAGES),
    "a template": (
        lambda world: world.edit("reports/templates/base.html.j2", "<html", "<html data-x"), PAGES,
    ),
    "a printed number": (
        lambda world: world.edit("reports/papers/ima/cells.csv", "81.17", "81.18"), PAGES,
    ),
    "another paper's number": (
        lambda world: world.edit("reports/papers/fedgo/cells.csv", "1", "2"), ("site/index",),
    ),
    "a measure of one's own that a table names": (
        plugin("measures/reached.py"), ("tables/table_2",),
    ),
    "a landed run": (landed, ("tables/table_1",)),
    "a landed analysis": (lambda world: landed(world, QUALITY_1), ("tables/table_1",)),
    "a table's title": (yaml("title: Own", "title: Mine"), ("tables/table_2",)),
    "a figure's title": (yaml("title: Hills", "title: Mounts"), ("site/hills",)),
    # nothing
    "what carries a run out": (
        code("run/runner", "run/checkpoint", "run/store", "run/manifest", "support/files"), (),
    ),
    "the command": (code("cli/run", "cli/main", "workflow/graph"), ()),
    "a remark": (code("engine/round", "methods/fedprox", "report/pages/table", by="# x"), ()),
    "what is said of a method, which the site shows": (
        plugin("methods/my_prox.py", by="# x"), ("site/index",),
    ),
    "how runs are executed": (yaml("scale: demo", "scale: demo\nthreads: 2", "config"), ()),
    "the paper's own words": (yaml("title: What may change", "title: x"), ()),
}  # fmt: skip


class Job(NamedTuple):
    """What Snakemake compares of a job: its inputs' names and its parameters."""

    rule: str
    inputs: tuple[str, ...]
    parameters: tuple[object, ...]
    outputs: tuple[str, ...]


class Wildcards(SimpleNamespace):
    """A job's wildcards as Snakemake hands them to functions."""

    def items(self) -> ItemsView[str, str]:
        return vars(self).items()


def sections() -> dict[str, dict[str, str]]:
    """The arguments of inputs, outputs and parameters of every rule, as they are written."""
    found = {}
    for file in sorted((ROOT / "workflow/rules").rglob("*.smk")):
        text = file.read_text(encoding="utf-8")
        for name, body in re.findall(r"^rule (\w+):\n((?: {4}.*\n|\n)+)", text, re.MULTILINE):
            blocks = re.findall(r"^ {4}(\w+):\n((?: {8}.*\n)+)", body, re.MULTILINE)
            found[name] = dict(blocks)
    return found


def constraints() -> dict[str, str]:
    text = (ROOT / "workflow/rules/common.smk").read_text(encoding="utf-8")
    return dict(re.findall(r'^    (\w+)=r"(.*)",$', text, re.MULTILINE))


# Caches by the content of files, and of what the package's files import.
KEPT = ("_remembered", "_imported")

SECTIONS, CONSTRAINTS = sections(), constraints()


def jobs(root: Path) -> dict[str, Job]:
    """Every job of the workflow by its first output."""
    made = graph.Graph(load(root))
    names = {
        "GRAPH": made,
        "RERUN": rerun_checks.RerunChecks(made, SimpleNamespace(is_main_process=False)),
        "listed": lambda *values, **named: [*values, *named.values()],
        "report": lambda path, **_: path,
    }

    def values(rule: str, section: str) -> list[Any]:
        found: list[Any] = eval(f"listed(\n{SECTIONS[rule].get(section, '')}\n)", names)
        return found

    rules = {rule: {part: values(rule, part) for part in ("input", "output", "params")}
             for rule in SECTIONS}  # fmt: skip
    for parts in rules.values():
        parts["params"] = [each for each in parts["params"] if not _is_of_outputs(each)]
    for rule, identity in IDENTITIES.items():
        rules[rule]["params"].append(partial(identity, made))
    found: dict[str, Job] = {}
    waiting = ["reports/site/index.html", *made.results()]
    while waiting:
        path = waiting.pop()
        job = _job_of(path, rules)
        if job and job.outputs[0] not in found:
            found[job.outputs[0]] = job
            waiting += job.inputs
    return found


def _of_run(made: graph.Graph, named: Any) -> tuple[object, ...]:
    spec = made.bench.spec_of(RunKey.of_wildcards(named))
    return spec.digest, arithmetic.of_spec(spec), numerics.of_run(spec)


def _of_partition(made: graph.Graph, named: Any) -> str:
    setting = made.bench.setting(made.setting_of_partition(named))
    return code_of_partition(setting, made.bench.plugins)


# What a result itself says that it is of, with which its input function compares what it is now.
IDENTITIES: dict[str, Callable[[graph.Graph, Any], object]] = {
    "prepare": graph.Graph.recipe_of_download, "partition": _of_partition, "run": _of_run,
}  # fmt: skip


def _is_of_outputs(value: object) -> bool:
    """Whether it is a function of the outputs: Snakemake does not compare its value."""
    return callable(value) and "output" in inspect.signature(value).parameters


def _job_of(path: str, rules: dict[str, dict[str, list[Any]]]) -> Job | None:
    for rule, parts in rules.items():
        for pattern in parts["output"]:
            wildcards = _matched(pattern, path)
            if wildcards is None:
                continue
            named = Wildcards(**wildcards)
            inputs: list[str] = []
            for value in parts["input"]:
                given = value(named) if callable(value) else value
                inputs += [given] if isinstance(given, str) else given
            parameters = tuple(
                value(named) if callable(value) else value for value in parts["params"]
            )
            filled = tuple(each.format(**wildcards) for each in inputs)
            return Job(
                rule,
                filled,
                parameters,
                tuple(each.format(**wildcards) for each in parts["output"]),
            )
    return None


def _matched(pattern: str, path: str) -> dict[str, str] | None:
    found = _regex(pattern).fullmatch(path)
    return found.groupdict() if found else None


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", pattern)
    return re.compile(
        "".join(
            re.escape(part) if number % 2 == 0 else f"(?P<{part}>{CONSTRAINTS[part]})"
            for number, part in enumerate(parts)
        )
    )


def due(before: dict[str, Job], after: dict[str, Job]) -> set[str]:
    """The jobs that a change makes due, and those that need them."""
    changed = {name for name, job in after.items() if before.get(name) != job}
    while True:
        new = {path for name in changed for path in after[name].outputs}
        more = {name for name, job in after.items() if new & set(job.inputs)} - changed
        if not more:
            return {word(name) for name in changed}
        changed |= more


def word(path: str) -> str:
    """A job's name without what all have in common."""
    path = re.sub(r"/seeds?[\d-]+(_\d+)?|/(manifest|files|meta)\.json|\.(json|html|npz)$", "", path)
    return re.sub(r"^results/|^reports/|(?<=/)(ima|demo)/", "", path)


def forget() -> None:
    """What this process has read of files, but for what each imports: no change is of that."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fedrepro."):
            for key, value in list(vars(module).items()):
                if hasattr(value, "cache_clear") and key not in KEPT:
                    value.cache_clear()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One place for every test, as some parameters have the folder's name."""
    root = tmp_path_factory.mktemp("again") / "world"
    for kind in ("methods", "models", "measures", "partitions"):
        shutil.copytree(ROOT / "workflow/skeleton" / kind, root / kind)
    (root / "measures/reached.py").write_text(REACHED, encoding="utf-8")
    copy_inputs(root)
    (root / "config/experiments").mkdir(parents=True)
    for name, text in (("config", CONFIG), ("datasets", DATASETS), ("experiments/ima", EXPERIMENT)):
        (root / f"config/{name}.yaml").write_text(text, encoding="utf-8")
    for name in ("one", "two"):
        (root / f"{name}.csv").write_text("a,b,kind\n0.5,1,x\n1,0.5,y\n", encoding="utf-8")
    before = contents(root)
    yield root
    assert contents(root) == before, "a change was left for the next test"


def contents(root: Path) -> dict[Path, int]:
    """When each file was changed, but for what is remembered of own data."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files if path.name != REMEMBERED.name}


@contextmanager
def standing_in(root: Path) -> Iterator[World]:
    """In the world, which is afterwards as it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        forget()
        world = World(root, patch)
        try:
            yield world
        finally:
            world.restore()
    forget()


@pytest.fixture(scope="module")
def before(first: Path) -> dict[str, Job]:
    """The jobs of the unchanged world."""
    with standing_in(first) as world:
        return jobs(world.root)


@pytest.fixture
def world(first: Path, before: dict[str, Job]) -> Iterator[World]:
    with standing_in(first) as world:
        yield world


def test_without_a_change_nothing_is_made_again(world: World, before: dict[str, Job]) -> None:
    for _ in range(2):
        assert due(before, jobs(world.root)) == set()


@pytest.mark.parametrize("thing", CHANGES)
def test_what_is_made_again_for(world: World, before: dict[str, Job], thing: str) -> None:
    change, expected = CHANGES[thing]
    change(world)
    forget()
    after = jobs(world.root)
    known = {word(name) for name in after} - {"site/index"}
    wanted = {name for name in known if any(fnmatchcase(name, each) for each in expected)}
    for pattern in expected:
        assert pattern == "site/index" or any(fnmatchcase(name, pattern) for name in known), pattern
    # A table's page is due with its table, and the first page with anything that is shown.
    pages = {name.replace("tables/", "site/") for name in wanted if name.startswith("tables/")}
    found = due(before, after)
    assert found - {"site/index"} == wanted | pages
    assert ("site/index" in found) == any(
        name.startswith("site/") for name in {*pages, *expected, *wanted}
    )


def test_the_table_has_every_rule_and_every_function_of_the_graph(world: World) -> None:
    """An analysis that no figure here asks for has what the others have."""
    made = jobs(world.root)
    rules = {job.rule for job in made.values()}
    assert rules >= {
        "decompose", "download", "landscape", "landscape_through", "page", "partition", "prepare",
        "quality", "regret", "run", "site", "study", "table",
    }  # fmt: skip
    for rule in SECTIONS.keys() - rules:
        assert "RERUN." in SECTIONS[rule]["input"] and "code=" in SECTIONS[rule]["params"], rule
    for seed in (1, 2):  # which the words above leave out
        assert f"results/regrets/ima/plain/aaggff_s/seed{seed}.json" in made
        assert f"results/quality/ima/judged/fedavg/seed{seed}.json" in made
    assert "results/landscapes/ima/plain/fedavg/seed1.json" in made
    assert "results/landscapes/ima/plain/fedavg/seed2.json" not in made
    written = " ".join(block for blocks in SECTIONS.values() for block in blocks.values())
    asked = set(re.findall(r"GRAPH\.(\w+)", written))
    assert asked >= {"inputs_of_run", "code_with_method", "table_definition"}
    moving = {name for _, patterns in CHANGES.values() for name in patterns}
    kinds = {job.split("/")[0] for job in map(word, made)}
    assert all(any(fnmatchcase(f"{kind}/x", f"{each.split('/')[0]}/*") for each in moving)
               for kind in kinds)  # fmt: skip
