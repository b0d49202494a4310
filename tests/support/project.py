"""A small project with its own copy of the package, for tests that run Snakemake for real."""

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from fedrepro.provenance.syntax import REMEMBERED
from support import forks
from support.places import ROOT
from support.report_world import copy_inputs

CONFIG = """\
scale: demo
seeds: {demo: [1], paper: [1]}
"""

EXPERIMENT = """\
system: ima
title: Tiny
paper: none
methods:
  fedprox: {mu: 0.01}
settings:
  tiny:
    dataset: mnist5k
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 2
    participation: 0.5
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
tables:
  table_1:
    title: First
    summary: {rounds: 1}
    rows:
      - {label: Tiny, setting: tiny}
    columns:
      - {label: FedAvg, method: fedavg}
      - {label: FedProx, method: fedprox}
  table_2:
    title: Second
    rows:
      - {label: Tiny, setting: tiny}
    columns:
      - {label: FedAvg, method: fedavg}
"""

# A catalogue with the table own.csv alone.
OF_TABLE = """\
datasets:
  own:
    {kind: tabular_csv, title: Own, licence: none, citation: none, path: own.csv, label: kind}
"""

# As snakedeploy 0.17 writes it, but for where the rules are: its `github(...)` fetches them.
MODULE = """
configfile: "config/config.yaml"

module fedrepro:
    snakefile:
        "workflow/Snakefile"
    config:
        config

use rule * from fedrepro
"""


class Project:
    """A folder with a Snakefile, configuration, sources and, in time, results."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.experiment = root / "config/experiments/ima.yaml"

    @classmethod
    def make(
        cls, root: Path, config: str = CONFIG, experiment: str = EXPERIMENT, datasets: str = ""
    ) -> "Project":
        """By default two tables, three cells, two runs, and the repository's own data sets."""
        root.mkdir()
        # With their bytecode, if there is any, which Python takes for what it was compiled from.
        for name in ("src", "workflow"):
            shutil.copytree(ROOT / name, root / name)
        copy_inputs(root)
        shutil.copy(ROOT / "Snakefile", root)
        shutil.copytree(ROOT / "workflow/profiles", root / "profiles")
        project = cls(root)
        project.experiment.parent.mkdir(parents=True)
        known = datasets or (ROOT / "config/datasets.yaml").read_text(encoding="utf-8")
        (root / "config/datasets.yaml").write_text(known, encoding="utf-8")
        (root / "config/config.yaml").write_text(config, encoding="utf-8")
        project.experiment.write_text(experiment, encoding="utf-8")
        (root / REMEMBERED).parent.mkdir()
        (root / REMEMBERED).write_bytes(_parsed())
        return project

    @property
    def path(self) -> str:
        """Where Python looks first: this project's sources, then what the caller has."""
        above = os.environ.get("PYTHONPATH", "")
        return os.pathsep.join(filter(None, (str(self.root / "src"), above)))

    def copy(self, root: Path) -> "Project":
        """The same with all results, Snakemake's records and times of change."""
        shutil.copytree(self.root, root)
        return Project(root)

    def edit(self, path: Path | str, old: str, new: str) -> None:
        """Replace a text that stands once or more in a file."""
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{path} has changed: this test must follow"
        file.write_text(text.replace(old, new), encoding="utf-8")

    def add_code(self, *modules: str) -> None:
        """Let modules of the package define something more, whatever they say now."""
        for module in modules:
            with (self.root / "src/fedrepro" / module).open("a", encoding="utf-8") as file:
                file.write("\n\ndef added() -> int:\n    return 1\n")

    def reword_errors(self, *modules: str) -> None:
        """Let modules of the package raise errors with other words, and nothing else."""
        for module in modules:
            file = self.root / "src/fedrepro" / module
            tree = ast.parse(file.read_text(encoding="utf-8"))
            raised = (each for each in ast.walk(tree) if isinstance(each, ast.Raise))
            words = [
                node
                for each in raised
                for node in ast.walk(each)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            assert words, f"{module} raises nothing with words"
            for node in words:
                node.value = f"other {node.value}"
            file.write_text(ast.unparse(tree), encoding="utf-8")

    def snakemake(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Call Snakemake; stderr is in stdout."""
        return self.python("snakemake", "--cores", "2", *arguments, **variables)

    def fedrepro(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Call the command; stderr is in stdout."""
        return self.python("fedrepro", *arguments, **variables)

    def python(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a module; stderr is in stdout."""
        environment = {**os.environ, "PYTHONPATH": self.path, **variables}
        module, *words = command
        with NamedTemporaryFile(suffix=".txt") as said:
            output = Path(said.name)
            status = forks.run(module, self.root, environment, output, *words)
            text = output.read_text(encoding="utf-8")
        return subprocess.CompletedProcess(command, status, text)

    def due(self, *arguments: str, **variables: str) -> set[str]:
        """The first output of every job that Snakemake would run."""
        called = self.snakemake("-n", *arguments, "--quiet", "host", **variables)
        assert called.returncode == 0, called.stdout
        return set(re.findall(r"^    output: ([^,\n]+)", called.stdout, re.MULTILINE))


@cache
def _parsed() -> bytes:
    """The syntax of all code, which each new project would otherwise parse for seconds."""
    code = (
        "from pathlib import Path\n"
        "from fedrepro.provenance import syntax\n"
        f"for path in Path({str(ROOT / 'src')!r}).rglob('*.py'): syntax.syntax_of(path)\n"
        "syntax.remember()"
    )
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
        return (Path(folder) / REMEMBERED).read_bytes()
