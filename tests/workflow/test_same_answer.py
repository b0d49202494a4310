"""Everything that is asked whether a result is the one that would be made now answers the same.

Each kind of input of a run is changed alone, in a copy of a finished project. Then `fedrepro run`,
`explain`, `estimate`, `verify`, `snakemake -n` and `make reference` are asked about the run.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrepro.support import checksummed_json
from support.older_data import read_by_the_first_reader
from support.places import ROOT, TESTS
from support.project import MODULE, Project

SETTING, SEED = "ima/tiny", 1
PAPER = "config/experiments/ima.yaml"
CONFIG = """\
scale: demo
seeds: {demo: [1], paper: [1]}
plugins: {methods: methods, models: models, partitions: partitions, measures: measures}
"""
ENTRY = """\
  NAME:
    {kind: tabular_csv, title: t, licence: l, citation: c, path: NAME.csv, label: y, group: place,
     task: classification, test_fraction: 0.3}
"""
GAPS = "task: classification, standardise: false"
EXPERIMENT = """\
system: ima
title: Tiny
paper: none
methods:
  feddf: {server_epochs: 1}
settings:
  tiny:
    dataset: mine
    partition: {scheme: halves, clients: 4, first: 2}
    model: net
    rounds: 2
    participation: 1.0
    epochs: 1
    batch_size: 10
    optimizer: {lr: 0.1}
    evaluate: {measures: [positives]}
    inputs: {unlabelled: {dataset: other, share: 0.5}}
  held:
    extends: tiny
    partition: {scheme: iid, clients: 4, validation: 0.2}
  gaps:
    extends: held
    dataset: gaps
tables:
  table_1:
    title: First
    summary: {rounds: 1}
    rows:
      - {label: Tiny, setting: tiny}
    columns:
      - {label: Mine, method: mine}
      - {label: Taught, method: feddf}
  table_2:
    title: Second
    summary: {rounds: 1}
    rows:
      - {label: Held out, setting: held}
      - {label: With gaps, setting: gaps}
    columns:
      - {label: Mine, method: mine}
"""
FILES = {
    "methods/mine.py": '''"""FedAvg on a scaled loss."""
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrepro.engine import tree
from fedrepro.methods.fedavg import FedAvg

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "lib")]
from beside import half
from helpers.scaling import factor


@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg on a scaled loss."""

    def loss(self, *arguments: Any) -> Any:
        scale = float(Path("scale.txt").read_text())
        return 1.0 * scale * factor() * 2 * half * super().loss(*arguments)
''',
    "helpers/scaling.py": '''"""A helper of a method."""


def factor() -> float:
    return 1.5
''',
    "lib/beside.py": "half = 0.5",
    "scale.txt": "0.9",
    "models/net.py": '''"""A small network."""
from torch import nn

from fedrepro.models.classifier import Classifier

FAMILY = "mlp"


def net(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small network."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], 4), nn.ReLU())
    return Classifier(body, nn.Linear(4, outputs))
''',
    "partitions/halves.py": '''"""Unequal parts of a random order."""
from typing import Any, Literal

import numpy as np

from fedrepro.data.partition.schemes import Count, Scheme


class Halves(Scheme):
    """Unequal parts of a random order."""

    scheme: Literal["halves"]
    clients: Count
    first: Count

    def assign(self, labels: Any, groups: Any, random: np.random.RandomState) -> list[Any]:
        cuts = np.sort(random.permutation(len(labels) - 2)[: self.clients - 1]) + 1
        return list(np.split(random.permutation(len(labels)), cuts))

    def _parts(self) -> list[str]:
        return ["halves", f"clients{self.clients}", f"first{self.first}"]
''',
    "measures/positives.py": '''"""The share of positives that are recognised."""
from typing import Any

from fedrepro.measures.base import Measure


class Positives(Measure):
    """The share of positives that are recognised."""

    words = "positives"
    unit = "%"
    higher_is_better = True
    per = "round"

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        return float((outputs[targets == 1].argmax(axis=1) == 1).mean())
''',
}


def table(seed: int) -> str:
    random = np.random.RandomState(seed)
    rows = random.normal(size=(60, 3)).round(3)
    lines = ["a,b,c,place,y"]
    for number, (row, shift) in enumerate(zip(rows, random.normal(size=60), strict=True)):
        label = int(row.sum() + shift > 0)
        lines.append(",".join([*map(str, row), f"p{number % 3}", str(label)]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    names = ("mine", "other", "gaps")
    entries = [ENTRY.replace("NAME", name) for name in names]
    entries[2] = entries[2].replace("task: classification", GAPS)
    datasets = "".join(["datasets:\n", *entries])
    project = Project.make(tmp_path_factory.mktemp("same") / "made", CONFIG, EXPERIMENT, datasets)
    for name, text in FILES.items():
        path = project.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for number, name in enumerate(names):
        text = table(number)
        if name == "gaps":
            text = re.sub(r"(?m)^[-.\d]+,(?=.*p2)", ",", text)
        (project.root / f"{name}.csv").write_text(text, encoding="utf-8")
    called = project.snakemake()
    assert called.returncode == 0, called.stdout
    return project


def record(project: Project, run: str, section: str, key: str, value: object = None) -> None:
    """Let a finished run state another fact of its data, machine or packages, or not that one."""
    folder = project.root / f"results/runs/{run}/seed{SEED}"
    manifest = json.loads((folder / "manifest.json").read_bytes())
    timing = json.loads((folder / "timing.json").read_bytes())
    manifest[section].pop(key, None)
    if value is not None:
        manifest[section][key] = value
    manifest["seal"] = checksummed_json.seal_of(manifest)
    times = (folder / "manifest.json").stat(), (folder / "timing.json").stat()
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    checksummed_json.write(folder / "timing.json", timing, f"timing of {manifest['seal']}")
    for name, stat in zip(("manifest.json", "timing.json"), times, strict=True):
        os.utime(folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def as_a_module_with_a_comment(project: Project) -> None:
    project.edit("methods/mine.py", "@data", "# mine\n@data")
    (project.root / "Snakefile").write_text(MODULE, encoding="utf-8")


def edit(path: str, old: str, new: str) -> Callable[[Project], None]:
    return lambda project: project.edit(path, old, new)


def other_bytes(name: str) -> Callable[[Project], None]:
    return lambda project: (project.root / name).write_text(table(7), encoding="utf-8") and None


def touch(*names: str) -> Callable[[Project], None]:
    return lambda project: [os.utime(project.root / name) for name in names] and None


def fact(section: str, key: str, value: object) -> Callable[[Project], None]:
    return lambda project: [record(project, each, section, key, value) for each in RUNS] and None


RUNS = (f"{SETTING}/mine", f"{SETTING}/feddf")
CHANGES: dict[str, tuple[Callable[[Project], None], str, bool]] = {
    # What is changed, the method that is asked about, whether its result stays current.
    "nothing": (lambda project: None, "mine", True),
    "a key of the setting": (edit(PAPER, "lr: 0.1", "lr: 0.2"), "mine", False),
    "the code of a method": (edit("methods/mine.py", "1.0 *", "2.0 *"), "mine", False),
    "a helper that a method imports": (edit("helpers/scaling.py", "1.5", "2.5"), "mine", False),
    "a file that a method reads": (edit("scale.txt", "0.9", "0.8"), "mine", False),
    "a comment in a method, with the rules as a module": (as_a_module_with_a_comment, "mine", True),
    "the code of another method": (edit("methods/mine.py", "1.0 *", "2.0 *"), "feddf", True),
    "the code of the model": (edit("models/net.py", "nn.ReLU()", "nn.Tanh()"), "mine", False),
    "the code of the scheme": (
        edit("partitions/halves.py", "random.permutation(len(labels)),", "np.arange(len(labels)),"),
        "mine", False,
    ),
    "the code of the measure": (
        edit("measures/positives.py", "targets == 1", "targets == 0"), "mine", False,
    ),
    "the code of the engine": (lambda project: project.add_code("engine/round.py"), "mine", False),
    "own data's bytes": (other_bytes("mine.csv"), "mine", False),
    "own data's times": (touch("mine.csv", "other.csv"), "feddf", True),
    "own data's entry": (
        edit("config/datasets.yaml", "path: mine.csv, label: y, group: place",
             "path: mine.csv, label: y, group: a"), "mine", False,
    ),
    "an input's bytes": (other_bytes("other.csv"), "feddf", False),
    "the executor": (
        edit("config/config.yaml", "scale:", "executor: vectorised\nscale:"), "mine", False,
    ),
    "a package's version": (fact("packages", "pandas", "0.1"), "mine", True),
    "PyTorch's version": (fact("packages", "torch", "1.13.0"), "mine", True),
    "our version": (fact("packages", "fedrepro", "0.0.1"), "mine", True),
    "the processor": (fact("hardware", "processor", "another"), "mine", True),
    "the architecture": (fact("hardware", "machine", "aarch64"), "mine", True),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_all_give_the_same_answer(made: Project, tmp_path: Path, change: str) -> None:
    alter, method, current = CHANGES[change]
    project = made.copy(tmp_path / "project")
    alter(project)
    answers = asked(project, method)
    assert answers == dict.fromkeys(answers, current)


def test_a_result_that_is_not_there_is_missing_for_all(made: Project, tmp_path: Path) -> None:
    project = made.copy(tmp_path / "project")
    project.edit("config/config.yaml", "demo: [1]", "demo: [2]")
    answers = asked(project, "mine", seed=2)
    assert answers == dict.fromkeys(answers, False)


def test_code_that_is_put_back_makes_its_results_current_again(
    made: Project, tmp_path: Path
) -> None:
    project = made.copy(tmp_path / "project")
    project.edit("methods/mine.py", "1.0 *", "2.0 *")
    project.edit("methods/mine.py", "2.0 *", "1.0 *")
    answers = asked(project, "mine")
    assert answers == dict.fromkeys(answers, True)


def test_an_older_reader_makes_no_run_again_but_those_with_rows_held_out(
    made: Project, tmp_path: Path
) -> None:
    """It told neither which cells it had filled in, nor that all rows were standardised with all.

    Results of its time have the statistics of rows that clients held out.
    """
    project = made.copy(tmp_path / "project")
    for name in ("mine", "gaps"):
        read_by_the_first_reader(project.root, name)
    for setting in ("tiny", "held", "gaps"):
        record(project, f"ima/{setting}/mine", "data", "missing_sha256")
    for setting in ("held", "gaps"):
        answers = asked(project.copy(tmp_path / setting), "mine", setting=f"ima/{setting}")
        assert answers == dict.fromkeys(answers, False), setting
    # Also when the data have been prepared again, for another run.
    assert project.fedrepro("run", "ima/held", "mine", "--seed", str(SEED)).returncode == 0
    answers = asked(project, "mine")
    assert answers == dict.fromkeys(answers, True)
    answers = asked(project, "mine", setting="ima/held")
    assert answers == dict.fromkeys(answers, True)


def asked(
    project: Project, method: str, seed: int = SEED, setting: str = SETTING
) -> dict[str, bool]:
    """Whether each command takes the result for current; `fedrepro run` comes last."""
    # Not in the project itself: `make reference` keeps what is current.
    other = project.copy(project.root.with_name(f"{project.root.name}_{Path(setting).name}"))
    path = os.pathsep.join([project.path, str(TESTS)])
    words = (str(ROOT / "scripts"), setting, method, str(seed))
    called = other.python("support.answers", *words, PYTHONPATH=path)
    assert called.returncode == 0, called.stdout
    answers: dict[str, bool] = json.loads(called.stdout.splitlines()[-1])
    manifest = f"results/runs/{setting}/{method}/seed{seed}/manifest.json"
    answers["snakemake"] = manifest not in project.due(manifest)
    played = project.fedrepro("run", setting, method, "--seed", str(seed))
    assert played.returncode in (0, 2), played.stdout
    answers["run"] = played.returncode == 0 and "done before" in played.stdout
    return answers
