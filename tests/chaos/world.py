"""A project in which things go wrong: what it makes, and how a person gets it back."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from fedrepro.support.locks import owner_of
from support.given_run import METHODS
from support.places import ROOT
from support.project import Project

CONFIG = """\
scale: demo
seeds: {demo: [1], paper: [1]}
checkpoint_every: 4
"""

# Demo-sized: a parent run and its child run, clients with states, decisions from losses, and what
# is made before a run: 7 runs, two tables.
EXPERIMENT = """\
system: ima
title: Chaos
paper: none
methods:
  ima: {window: 3, start: 0.7}
  aaggff: {variant_of: aaggff_d, cdf: frechet}
  taught: {server_epochs: 1}
  maker: {critic_steps: 2}
settings:
  plain:
    dataset: mnist5k
    partition: {scheme: dirichlet, clients: 40, alpha: 0.5, minimum: 2}
    model: twonn
    rounds: 20
    participation: 0.25
    epochs: 1
    batch_size: 20
    optimizer: {lr: 0.05}
    evaluate: {every: 5}
  maker:
    dataset: mnist5k
    scaling: symmetric
    partition: {scheme: at_server, share: 0.1}
    model: logistic
    rounds: 1
    participation: 1.0
    epochs: 1
    batch_size: 100
    optimizer: {name: adam, lr: 0.01}
  taught:
    extends: maker
    partition: {scheme: iid, clients: 4, server: 0.1}
    rounds: 10
    optimizer: {name: adam, lr: 0.02}
    inputs:
      unlabelled: server
      maker: {setting: maker, method: maker, seed: 0}
      judges: {setting: judges, method: judges}
  judges:
    extends: taught
    rounds: 5
    optimizer: {name: adam, lr: 0.03}
tables:
  table_1:
    title: First
    summary: {rounds: 1}
    rows: [{label: Plain, setting: plain}]
    columns:
      - {label: FedAvg, method: fedavg}
      - {label: IMA, method: ima+fedavg}
      - {label: SCAFFOLD, method: scaffold}
      - {label: AAggFF, method: aaggff+fedavg}
  table_2:
    title: Second
    summary: {rounds: 1}
    rows: [{label: Taught, setting: taught}]
    columns:
      - {label: Taught, method: taught}
"""
TABLES = tuple(f"results/tables/demo/ima/table_{number}.json" for number in (1, 2))
PAPER = Path("reports/papers/ima")
LANDED = PAPER / "compact/compact-styles-silos"  # its landed runs are in the world
WITH = {"FEDREPRO_METHODS": str(METHODS)}
# What a run leaves that says nothing of how it went.
LASTING = ("*.parquet", "*.safetensors")


def edit_code(project: Project) -> None:
    """Change how samples are shuffled, and so the numbers of every run that trains."""
    project.edit("src/fedrepro/engine/round.py", '"shuffle"', '"shuffle anew"')


class World:
    """The project, what it held when nothing had gone wrong, and what is done when something has.

    Attributes:
        whole: SHA-256 by path of the tables, of all numbers of runs, and of all prepared data.
    """

    def __init__(self, root: Path) -> None:
        """Make everything once, or go on with what an earlier call made.

        What it held is kept beside it: an earlier call may have ended without data that no run
        needs.
        """
        self.root = root
        kept = root.with_name(f"{root.name}-whole.json")
        if root.exists():
            self.project = Project(root)
        else:
            self.project = Project.make(root, CONFIG, EXPERIMENT)
            kept.unlink(missing_ok=True)
            shutil.copytree(ROOT / LANDED, root / LANDED)
            accepted = self.project.fedrepro("verify", "--accept", "ima")
            assert accepted.returncode == 0, accepted.stdout
        called = self.command()
        assert called.returncode == 0, called.stdout
        if not kept.exists():
            kept.write_text(json.dumps(self.lasting()), encoding="utf-8")
        self.whole = json.loads(kept.read_text(encoding="utf-8"))

    @property
    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.root.glob("results/runs/*/*/*/*/manifest.json"))

    def lasting(self) -> dict[str, str]:
        """SHA-256 by path of what must be the same in the end."""
        paths = [self.root / table for table in TABLES]
        for run in (self.root / "results/runs").glob("*/*/*/seed[0-9]"):
            paths += [path for pattern in LASTING for path in run.glob(pattern)]
        paths += (self.root / "results/data").glob("[!.]*/*.npy")
        paths += (self.root / "results/partitions").rglob("[!.]*.npz")
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(paths)
            if path.exists()
        }

    def copy(self, name: str) -> "World":
        """Another world, beside this one, with all that this one holds."""
        root = self.root.with_name(name)
        shutil.rmtree(root, ignore_errors=True)
        root.with_name(f"{name}-whole.json").unlink(missing_ok=True)
        self.project.copy(root)
        return World(root)

    def command(self) -> "subprocess.CompletedProcess[str]":
        """The documented command."""
        return self.project.snakemake(*TABLES, **WITH)

    def begin(self, output: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """The documented command, in a process group of its own; what it says goes to a file."""
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "2", *TABLES],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": self.project.path, **WITH},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def recovered(self, whole: dict[str, str] | None = None) -> str | None:
        """Give the documented command; None where everything is as it was, else what is not.

        Args:
            whole: what there should be; None for what was there when nothing had gone wrong.
        """
        whole = whole or self.whole
        called = self.command()
        if called.returncode:
            return called.stdout
        now = self.lasting()
        # Data and partitions that no run needs any more are not made again.
        needed = {path for path in whole if path.startswith(("results/runs", "results/tables"))}
        changed = {path for path in needed | now.keys() if whole.get(path) != now.get(path)}
        return f"not as before: {sorted(changed)}" if changed else None

    def faults(self) -> list[str]:
        """What ``fedrepro verify --full`` names."""
        called = self.project.fedrepro("verify", "--full", **WITH)
        assert called.returncode in (0, 1), called.stdout
        lines = [
            line for line in called.stdout.splitlines() if line.startswith(("results/", "reports/"))
        ]
        assert bool(lines) == bool(called.returncode), called.stdout
        return lines

    def remove(self, faults: list[str]) -> None:
        """Remove what is named: a folder or a file, as the command's help says."""
        for fault in faults:
            named = self.root / fault.partition(": ")[0]
            if named.is_dir():
                shutil.rmtree(named)
            else:
                named.unlink(missing_ok=True)

    def unmake(self, random: Random) -> list[Path]:
        """Remove some runs, so that there is work; returns them. The long ones come first."""
        runs = [run for run in self.runs if "/plain/" in str(run)]
        chosen = random.sample(runs, random.randint(1, len(runs)))
        for run in chosen:
            shutil.rmtree(run)
        for table in TABLES:
            (self.root / table).unlink()
        return chosen

    def workers(self) -> Iterator[tuple[Path, int]]:
        """The runs that are under way now, and their processes."""
        for lock in self.root.glob("results/runs/*/*/*/.seed*.partial.lock"):
            partial = lock.with_name(lock.name[1:].removesuffix(".lock"))
            owner = owner_of(partial)
            if owner and Path(f"/proc/{owner.pid}").exists():
                yield partial, owner.pid

    def await_work(self, process: "subprocess.Popen[bytes]") -> bool:
        """Until a run has begun; False where all have ended before."""
        while process.poll() is None:
            if next(self.workers(), None):
                return True
            time.sleep(0.02)
        return False

    def lost(self) -> float:
        """Seconds of work of all runs under way that are in no checkpoint: of the worst one."""
        now, worst = time.time(), 0.0
        for partial, _ in self.workers():
            with suppress(OSError):
                saved = next(partial.glob("*/checkpoint.safetensors"), partial)
                began = saved.stat().st_mtime
                worst = max(worst, now - began)
        return worst

    def pull_the_plug(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill Snakemake and every run at once."""
        workers = [pid for _, pid in self.workers()]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        while next(self.workers(), None):
            time.sleep(0.02)
