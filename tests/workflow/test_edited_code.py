"""Code that is edited while `fedrepro run` prepares data signs nothing; the next call is right."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.project import CONFIG, EXPERIMENT, Project

# Makes a partition, which may take as long as a download, once the file `go` exists.
SLOW = '''
"""Waits."""
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrepro.data.partition.schemes import Count, Scheme


class Slow(Scheme):
    """Waits."""

    scheme: Literal["slow"]
    clients: Count

    def assign(self, labels: Any, groups: Any, random: np.random.RandomState) -> list[Any]:
        Path("waiting").touch()
        while not Path("go").exists():
            time.sleep(0.02)
        return list(np.array_split(random.permutation(len(labels)), self.clients))

    def _parts(self) -> list[str]:
        return ["slow", f"clients{self.clients}"]
'''
METHOD = '''
"""FedAvg on a scaled loss."""
from dataclasses import dataclass
from typing import Any

from fedrepro.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg on a scaled loss."""

    def loss(self, *arguments: Any) -> Any:
        return 1.0 * super().loss(*arguments)
'''
MODEL = '''
"""A small network."""
from torch import nn

from fedrepro.models.classifier import Classifier

WIDTH = 8


def net(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small network."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU())
    return Classifier(body, nn.Linear(WIDTH, outputs))
'''
FOLDERS = "plugins: {methods: methods, models: models, partitions: partitions}\n"
RUN = ("run", "ima/tiny", "mine", "--seed", "1")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    experiment = EXPERIMENT.replace("{scheme: iid, clients: 4}", "{scheme: slow, clients: 4}")
    experiment = experiment.replace("model: logistic", "model: net")
    made = Project.make(tmp_path / "project", CONFIG + FOLDERS, experiment)
    for name, text in (
        ("partitions/slow", SLOW),
        ("methods/mine", METHOD),
        ("models/net", MODEL),
    ):
        path = made.root / f"{name}.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
    return made


EDITS = (
    ("src/fedrepro/engine/round.py", '"shuffle"', '"shuffle anew"'),
    ("methods/mine.py", "1.0 *", "2.0 *"),
    ("models/net.py", "WIDTH = 8", "WIDTH = 9"),
)


def test_what_was_imported_is_what_signs(project: Project) -> None:
    for edit in EDITS:
        refuses(project, *edit)
    again = project.fedrepro(*RUN)
    assert again.returncode == 0, again.stdout
    assert "round 2 of 2" in again.stdout and "done before" not in again.stdout


def refuses(project: Project, path: str, old: str, new: str) -> None:
    """A call during which a file is edited."""
    for name in ("waiting", "go"):
        (project.root / name).unlink(missing_ok=True)
    shutil.rmtree(project.root / "results/partitions", ignore_errors=True)
    with ThreadPoolExecutor(1) as executor:
        calling = executor.submit(project.fedrepro, *RUN)
        while not calling.done() and not (project.root / "waiting").exists():
            time.sleep(0.02)
        try:
            project.edit(path, old, new)
        finally:
            (project.root / "go").touch()
        called = calling.result()
    said = called.stdout
    assert called.returncode == 2, said
    assert f"{path}: changed after this process started" in said.splitlines()[-1]
    assert "run the same command again" in said and "Traceback" not in said
    assert not list((project.root / "results").rglob("manifest.json"))
