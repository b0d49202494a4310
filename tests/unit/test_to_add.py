"""A measure, an executor, an analysis and a paper take what CONTRIBUTING says, and nothing else.

The files of its lists, and no others, are changed in a copy of the package.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedrepro.cli.init import PAPER
from support.places import ROOT
from support.synthetic_world import METHODS

# By section, the text that is added to each file, and after which of its lines; "" for a new file.
ADDED = {
    "a measure": {
        "src/fedrepro/measures/built_in.py": (
            '    row("precision", "precision of samples", "%", MORE),\n',
            '    row("brightness", "brightness of images", "%", MORE),\n',
        ),
        "src/fedrepro/analysis/quality_of_run.py": (
            '        "fid": fid,\n',
            '        "brightness": float(_inputs(made)[0].mean()),\n',
        ),
    },
    "an executor": {
        "src/fedrepro/engine/executors.py": (
            "Executor]] = {  # (workers, device) -> executor\n",
            '    "reversed": lambda workers, device: last_first,\n',
        ),
        "src/fedrepro/engine/executor_facts.py": (
            '    "vectorised": ExecutorFacts("side by side in one batch", STACKED),\n',
            '    "reversed": ExecutorFacts("the last client first", PER_CLIENT),\n',
        ),
    },
    "an analysis": {
        "workflow/rules/NAME.smk": (
            "",
            """rule NAME:
    input:
        RERUN.unrecorded("results/NAME/{setting}/{method}/seed{seed}.json"),
        "results/runs/{setting}/{method}/seed{seed}/manifest.json",
    output:
        "results/NAME/{setting}/{method}/seed{seed}.json",
    log:
        "results/logs/NAME/{setting}/{method}/seed{seed}.log",
    params:
        code=lambda wildcards: GRAPH.code("fedrepro.analysis.NAME_of_run"),
    shell:
        "fedrepro --log {log} NAME {wildcards.setting} {wildcards.method} --seed {wildcards.seed}"
""",
        ),
        "src/fedrepro/cli/commands.yaml": (
            "commands:\n",
            """  NAME:
    help: how often a finished run was evaluated
    description: How often a finished run was evaluated.
    handler: cli.analysis:make_of_run
    computes: analysis.NAME_of_run:count
    writes: results/NAME/SETTING/METHOD/seedSEED.json
    names_a_run: true
""",
        ),
        "src/fedrepro/analysis/NAME_of_run.py": (
            "",
            """from fedrepro.run.results import find_run, made_of


def count(workbench, run, progress):
    record = find_run(workbench.root, run)
    return {"of": made_of([record]), "evaluated": len(record.rounds["round"])}
""",
        ),
    },
}
LAST_FIRST = """

def last_first(training: Training) -> Outcome:
    states, steps = training.client_states[::-1], training.steps[::-1]
    updates, after = sequential(training._replace(client_states=states, steps=steps))
    return tree.apply(lambda leaf: leaf.flip(0), updates), after[::-1]


"""
NAME = "evaluations"
EXPERIMENT = """\
system: mine
title: Additions
paper: none
settings:
  digits:
    dataset: mnist5k
    scaling: unit
    partition: {scheme: iid, clients: 4, test_fraction: 0.2}
    model: logistic
    rounds: 2
    participation: 1.0
    epochs: 1
    batch_size: 500
    optimizer: {lr: 0.1}
    evaluator: {model: logistic, epochs: 1, real_epochs: 1}
tables:
  table_1:
    title: Brightness
    metric: {quality: brightness}
    rows: [{label: Digits, setting: digits}]
    columns: [{label: Painter, method: painter}]
"""
# Exit statuses and what is found, of all that is done in one process with the copy of the package.
SCRIPT = """
import json
from pathlib import Path
from fedrepro.cli.main import main
from fedrepro.config.experiment import Experiment
from fedrepro.run.disk_space import sizes
from fedrepro.support import checksummed_json, papers
from fedrepro.support.files import sha256_of

def files():
    files = Path("results/runs/mine/digits/fedavg/seed1").iterdir()
    made = (path for path in files if path.suffix in (".parquet", ".safetensors"))
    return {path.name: sha256_of(path) for path in made}

fedavg, painter = (("mine/digits", name, "--seed", "1") for name in ("fedavg", "painter"))
statuses = [main(["run", *fedavg, "--executor", "sequential"])]
first = files()
statuses += [main(words) for words in (
    ["run", *fedavg, "--executor", "reversed", "--again"], ["run", *painter], ["quality", *painter],
    ["table", "mine", "table_1"], ["NAME", *fedavg], ["verify"])]
manifest = json.loads(Path("results/runs/mine/digits/fedavg/seed1/manifest.json").read_text())
table = json.loads(Path("results/tables/demo/mine/table_1.json").read_text())
analysis = Path("results/NAME/mine/digits/fedavg/seed1.json")
content = checksummed_json.checked(analysis, "NAME/mine/digits/fedavg/seed1")
counted = "NAME" in sizes(Path("results"))
text = analysis.read_text()
analysis.write_text(text.replace('"evaluated": 2', '"evaluated": 3'))
damaged = main(["verify"])
analysis.write_text(text)
schema = json.dumps(Experiment.model_json_schema())
Path("found.json").write_text(json.dumps({
    "statuses": statuses, "same bits": files() == first, "executor": manifest["executor"],
    "arithmetic": manifest["arithmetic"], "evaluated": content["evaluated"], "counted": counted,
    "damaged": damaged, "in schema": "brightness" in schema,
    "rule": [*map(Path, papers.rule_files())].count(papers.RULES / "NAME.smk"),
    "table": json.dumps(table)}))
"""


def listed(section: str) -> list[str]:
    """The files of the numbered list in a section of CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    body = text.partition(f"\n## Adding {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", body, re.MULTILINE)


@pytest.mark.parametrize("section", ADDED)
def test_the_list_has_the_files_that_are_tried(section: str) -> None:
    assert listed(section) == [*ADDED[section]]


def test_a_paper_takes_the_files_that_the_command_writes() -> None:
    written = {path.relative_to(ROOT / PAPER) for path in (ROOT / PAPER).rglob("*.*")}
    assert {*listed("a paper")} == {*map(str, written), "reports/papers/systems.yaml"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with all additions, copied, and a workbench in ``bench``."""
    root = tmp_path_factory.mktemp("added")
    for name in ("src/fedrepro", "workflow"):
        shutil.copytree(ROOT / name, root / name)
    for changes in ADDED.values():
        for name, (after, added) in changes.items():
            file, added = root / name.replace("NAME", NAME), added.replace("NAME", NAME)
            before = file.read_text(encoding="utf-8") if after else ""
            assert before.count(after) == 1 or not after, name
            file.unlink(missing_ok=True)
            file.write_text(before.replace(after, after + added) if after else added)
    executors = root / "src/fedrepro/engine/executors.py"
    executors.write_text(executors.read_text().replace("\nEXECUTORS:", f"{LAST_FIRST}\nEXECUTORS:"))
    bench = root / "bench"
    (bench / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", bench / "config")
    (bench / "config/config.yaml").write_text("executor: sequential\n")
    (bench / "config/experiments/mine.yaml").write_text(EXPERIMENT)
    (bench / "reports/papers").mkdir(parents=True)
    (bench / "reports/papers/systems.yaml").write_text("[]\n")
    shutil.copy(ROOT / "reports/papers/references.yaml", bench / "reports/papers")
    return root


def test_nothing_else_is_needed(copy: Path) -> None:
    paths = {"PYTHONPATH": str(copy / "src"), "FEDREPRO_METHODS": str(METHODS)}
    script = [sys.executable, "-c", SCRIPT.replace("NAME", NAME)]
    done = subprocess.run(
        script, cwd=copy / "bench", env={**os.environ, **paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((copy / "bench/found.json").read_text())
    assert found.pop("statuses") == [0] * 7
    assert found.pop("table").count("brightness of images")
    assert found == {
        "same bits": True, "executor": "sequential", "arithmetic": "per client", "evaluated": 2,
        "counted": True, "rule": 1, "damaged": 1, "in schema": True,
    }  # fmt: skip
