"""For every kind of target: which change makes Snakemake do it again, and which does not.

Changes whose consequences are apart share a dry run, which takes seconds; what is compared is all
that is due, so every other target says that it does not depend on what was changed.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from support.project import Project

CONFIG = """\
scale: demo
seeds: {demo: [1, 2], paper: [1]}
"""

DATASETS = """\
datasets:
  one: &own
    kind: tabular_csv
    title: First of three
    licence: none
    citation: none
    path: one.csv
    label: kind
    drop: [spare]
  two:
    <<: *own
    path: two.csv
    test_fraction: 0
  three:
    <<: *own
    path: three.csv
"""

EXPERIMENT = """\
system: ima
title: All kinds of targets
paper: none
methods:
  fedprox: {mu: 0.01}
  strong: {variant_of: fedprox, mu: 1.0}
  apfl: {alpha: 0.25}
  aaggff_s: {cdf: normal}
settings:
  a:
    dataset: one
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 2
    participation: 1
    epochs: 1
    batch_size: 10
    optimizer: {lr: 0.1}
  later: {extends: a, rounds: 3}
  b: {extends: a, partition: {scheme: iid, clients: 3}, model: superfed_twonn}
  c:
    extends: a
    dataset: two
    partition: {scheme: iid, clients: 3, test_fraction: 0.2}
    evaluate: {clients: true}
  d: {extends: a, partition: {scheme: iid, clients: 5}, optimizer: {lr: 0.2}}
  e: {extends: a, dataset: three}
  f:
    extends: a
    partition: {scheme: iid, clients: 7}
    lr_decay: 0.9
    evaluator: {model: superfed_twonn, epochs: 50}
tables:
  table_1:
    title: A table
    rows: [{label: A, setting: later, demo: a}]
    columns: [{label: FedAvg, method: fedavg}, {label: FedProx, method: fedprox}]
  table_2:
    title: Another table
    rows: [{label: D, setting: d}]
    columns: [{label: FedAvg, method: fedavg}]
  table_3:
    title: Judged
    rows: [{label: F, setting: f, metric: {quality: accuracy}}]
    columns: [{label: FedAvg, method: fedavg}]
computed:
  counted: {kind: client_statistics, title: Counted, settings: {one: b}}
  formula: {kind: responses, title: Responses}
  costs: {kind: costs, title: Costs}
figures:
  lines:
    kind: lines
    title: Lines
    rows: [{label: A, setting: a}]
    columns: [{label: FedProx, method: fedprox}]
  bars:
    kind: bars
    title: Bars
    rows: [{label: E, setting: e}]
    columns: [{label: FedAvg, method: fedavg}]
  heat:
    kind: heat_map
    title: Heat
    setting: b
    x: {label: pull, values: [0, 1]}
    y: {label: all, values: [0]}
    panels: [{label: FedProx, methods: [[fedavg, strong]]}]
  landscape:
    kind: landscape
    title: Landscape
    setting: d
    columns: [{label: FedAvg, method: fedavg}]
  mixtures:
    kind: mixtures
    title: Mixtures
    panels: [{label: C, setting: c}]
    columns: [{label: APFL, method: apfl}]
  regret:
    kind: regret
    title: Regret
    method: aaggff_s
    panels: [{label: C, setting: c}]
  toy: {kind: regions, title: Toy}
  shares: {kind: partitions, title: Shares, panels: [{label: D, setting: d}]}
  planes:
    kind: planes
    title: Planes
    panels: [{label: D, setting: d, method: fedavg, through: ["2.1", "2.2", "2.3"]}]
  terms:
    kind: decomposition
    title: Terms
    method: fedavg
    show: [[variance]]
    panels: [{label: D, setting: d}]
"""

SITE = {"reports/site/index.html"}
PAGES = (
    "table_1", "table_2", "table_3", "counted", "formula", "costs",
    "lines", "bars", "heat", "landscape", "mixtures", "regret", "toy", "shares",
    "planes", "terms",
)  # fmt: skip
TABLES = ("table_1", "table_2", "table_3")
RUNS = (
    "a/fedavg", "a/fedprox", "b/fedavg", "b/strong", "c/apfl", "c/aaggff_s", "d/fedavg", "e/fedavg",
    "f/fedavg",
)  # fmt: skip
PARTITIONS = (
    "one/iid-clients4", "one/iid-clients3", "one/iid-clients5", "one/iid-clients7",
    "three/iid-clients4",
    "two/iid-clients3-test0.2",
)  # fmt: skip
LANDSCAPE = {
    "results/landscapes/ima/d/fedavg/seed1.json",
    "results/landscapes/ima/d/fedavg/seed1/2.1-2.2-2.3_41x2000.json",
    "results/decompositions/ima/d/fedavg/seeds1-2_2000.json",
}
DRAWN = ("landscape", "planes", "terms")  # of those
COSTS, TOY = ({f"results/studies/fedgo_{name}.json"} for name in ("cost", "toy"))
REGRETS = {f"results/regrets/ima/c/aaggff_s/seed{k}.json" for k in (1, 2)}

QUALITY = {f"results/quality/ima/f/fedavg/seed{k}.json" for k in (1, 2)}


def pages(*names: str) -> set[str]:
    """Pages, the site's first page, and the tables among them."""
    tables = {f"results/tables/demo/ima/{name}.json" for name in names if name in TABLES}
    return {f"reports/site/ima/{name}.html" for name in names} | tables | SITE


def runs(*names: str, seeds: tuple[int, ...] = (1, 2)) -> set[str]:
    return {f"results/runs/ima/{name}/seed{k}/manifest.json" for name in names for k in seeds}


def partitions(*names: str) -> set[str]:
    return {f"results/partitions/{name}/seed{k}.npz" for name in names for k in (1, 2)}


def prepared(name: str) -> set[str]:
    return {f"results/downloads/{name}/files.json", f"results/data/{name}/meta.json"}


def write_table(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = [
        f"{a:.3f},{b:.3f},{a * b:.3f},{'x' if a > b else 'y'}"
        for a, b in random.normal(size=(60, 2))
    ]
    path.write_text("\n".join(["first,second,spare,kind", *rows, ""]), encoding="utf-8")


IDENTITIES = {"run": "of_run", "prepare": "GRAPH.recipe_of_download", "partition": "of_partition"}
IDENTIFIED = """
from fedrepro.provenance import numerics
from fedrepro.provenance.inputs import code_of_partition


def of_run(wildcards):
    spec = GRAPH._run_spec(wildcards)
    return f"{spec.digest} {numerics.in_words(numerics.of_run(spec))}"


def of_partition(wildcards):
    setting = GRAPH.bench.setting(GRAPH.setting_of_partition(wildcards))
    return code_of_partition(setting, GRAPH.bench.plugins)
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a target of every kind, all of them there, but empty.

    To make them all takes minutes, and what is due does not depend on what is in them. So each rule
    only touches its outputs; all else of the rules is as it is.
    """
    root = tmp_path_factory.mktemp("graph") / "project"
    project = Project.make(root, CONFIG, EXPERIMENT, DATASETS)
    for seed, name in enumerate(("one", "two", "three")):
        write_table(root / f"{name}.csv", seed)
    for rules in (root / "workflow/rules").rglob("*.smk"):
        text = rules.read_text(encoding="utf-8")
        text = text.replace("fedrepro --log", "touch {output}; : --log")
        # Empty files do not say what they are of: parameters do in their place.
        text = re.sub(r" +RERUN\.stale_(run|data|partition),.*\n", "", text)
        for command, identity in IDENTITIES.items():
            shell = f'    shell:\n        "touch {{output}}; : --log {{log}} {command} '
            params = "" if command == "partition" else "    params:\n"
            text = text.replace(shell, f"{params}        identity={identity},\n{shell}")
        rules.write_text(text)
    project.edit("workflow/rules/common.smk", "open_warm_start()", "pass")
    project.edit("workflow/rules/common.smk", "\n\ndef start():", f"{IDENTIFIED}\n\ndef start():")
    # Clients are counted in data that are there, which are not fetched for it.
    (root / "results/data/one").mkdir(parents=True)
    (root / "results/data/one/meta.json").touch()
    called = project.snakemake()
    assert called.returncode == 0, called.stdout
    return project


@pytest.fixture
def world(complete: Project, tmp_path: Path) -> Project:
    return complete.copy(tmp_path / "project")


def test_every_kind_of_target_was_made_and_nothing_is_due(complete: Project) -> None:
    made = {str(path.relative_to(complete.root)) for path in complete.root.rglob("*.*")}
    analysed = LANDSCAPE | REGRETS | QUALITY | COSTS | TOY
    assert pages(*PAGES) | runs(*RUNS) | partitions(*PARTITIONS) | analysed <= made
    assert complete.due() == set()


def test_methods_and_settings_redo_their_runs_and_what_shows_them(world: Project) -> None:
    world.edit(world.experiment, "fedprox: {mu: 0.01}", "fedprox: {mu: 0.02}")
    world.edit(world.experiment, "mu: 1.0", "mu: 2.0")
    world.edit(world.experiment, "alpha: 0.25", "alpha: 0.5")
    world.edit(world.experiment, "lr: 0.2", "lr: 0.3")
    world.edit(world.experiment, "lr_decay: 0.9", "lr_decay: 0.8")
    changed = runs("a/fedprox", "c/apfl", "d/fedavg", "b/strong", "f/fedavg")
    shown = pages("table_1", "table_2", "table_3", "lines", "mixtures", "heat", *DRAWN)
    assert world.due() == changed | LANDSCAPE | QUALITY | shown


def test_what_is_said_of_a_page_redoes_it_alone(world: Project) -> None:
    world.edit(world.experiment, "title: Another table", "title: The other table")
    world.edit(world.experiment, "title: Bars", "title: Bars\n    metric: loss")
    world.edit(world.experiment, "title: Landscape", "title: Hills")
    world.edit(world.experiment, "title: Planes", "title: Plains")
    world.edit(world.experiment, "title: Regret", "title: Remorse")
    world.edit(world.experiment, "title: Responses", "title: Answers")
    world.edit(world.experiment, "title: Costs", "title: Overheads")
    world.edit(world.experiment, "title: Toy", "title: An example")
    # How a synthetic set is judged is no part of the run that made it.
    world.edit(world.experiment, "epochs: 50", "epochs: 60")
    world.edit(world.experiment, "title: Shares", "title: Who holds what")
    shown = ("bars", "landscape", "planes", "regret", "formula", "costs", "toy", "shares")
    assert world.due() == QUALITY | pages("table_2", "table_3", *shown)


def test_so_does_a_run_at_scale_paper_that_a_table_shows(world: Project) -> None:
    reference = world.root / "results/runs/ima/later/fedavg/seed1/manifest.json"
    reference.parent.mkdir(parents=True)
    reference.write_text(json.dumps({"status": "finished"}), encoding="utf-8")
    world.edit(world.experiment, "title: Counted", "title: Clients")
    world.edit(world.experiment, "title: Lines", "title: Curves")
    world.edit(world.experiment, "title: Heat", "title: Warmth")
    world.edit(world.experiment, "title: Mixtures", "title: Mixed models")
    assert world.due() == pages("table_1", "counted", "lines", "heat", "mixtures")


def test_files_and_recipes_of_data_redo_all_that_is_made_of_them(world: Project) -> None:
    write_table(world.root / "two.csv", 7)  # a file of one's own
    datasets = "config/datasets.yaml"
    world.edit(datasets, "path: three.csv", "path: three.csv\n    standardise: false")
    world.edit(datasets, "title: First of three", "title: The first of three")
    again = prepared("two") | prepared("three")
    shared = partitions("two/iid-clients3-test0.2", "three/iid-clients4")
    titled = {f"reports/site/ima/table_{number}.html" for number in (1, 2, 3)}
    shown = pages("mixtures", "regret", "bars") | titled
    redone = runs("c/apfl", "c/aaggff_s", "e/fedavg") | REGRETS
    assert world.due() == again | shared | redone | shown


def test_each_seed_and_each_way_of_sharing_has_a_partition_of_its_own(world: Project) -> None:
    world.edit(
        world.experiment, "scheme: iid, clients: 3}, model", "scheme: iid, clients: 6}, model"
    )
    shares = world.root / "results/partitions/one/iid-clients4/seed2.npz"
    after = shares.stat().st_mtime + 1e6
    shares.write_bytes(shares.read_bytes() + b"\0")
    os.utime(shares, (after, after))
    new, second = runs("b/fedavg", "b/strong"), runs("a/fedavg", "a/fedprox", seeds=(2,))
    shown = pages("heat", "counted", "table_1", "lines")
    assert world.due() == partitions("one/iid-clients6") | new | second | shown


def test_the_code_of_a_model_or_analysis_redoes_what_is_made_with_it(world: Project) -> None:
    world.add_code(
        "models/superfed.py",
        "analysis/landscape.py",
        "models/adversaries.py",
        "methods/distilling/weighting.py",
    )
    redone = runs("b/fedavg", "b/strong") | LANDSCAPE | QUALITY | COSTS | TOY
    assert world.due() == redone | pages("heat", *DRAWN, "table_3", "costs", "toy")


def test_the_code_of_sharing_redoes_partitions_but_no_data(world: Project) -> None:
    world.add_code("data/partition/assigning.py")
    due = world.due()
    assert partitions(*PARTITIONS) | runs(*RUNS) | LANDSCAPE | REGRETS | QUALITY <= due
    assert not any("downloads" in path or "results/data" in path for path in due)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("reports/templates/base.html.j2", "<html", "<html data-more"),
        ("reports/papers/ima/captions/table_1.md", "e", "ee"),
        ("reports/papers/ima/cells.csv", "81.17", "81.18"),
    ],
)
def test_templates_captions_and_printed_values_redo_pages_and_no_run(
    world: Project, path: str, old: str, new: str
) -> None:
    world.edit(path, old, new)
    due = world.due()
    assert pages("table_1") <= due <= pages(*PAGES)
