"""A checkout without results, and made-up run directories in the contract's format."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from fedrepro.config.expansion import expand
from fedrepro.config.targets import RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.data.partition.partition import PLACE
from fedrepro.provenance import fingerprint, numerics
from fedrepro.run import digests
from fedrepro.run.results import reference_folder, timing_of
from fedrepro.support import checksummed_json
from fedrepro.support.files import sha256_of
from support import quick_yaml
from support.places import ROOT


def make_world(root: Path, rows: int = 2, columns: int = 4) -> Path:
    """The committed files that reports are made from; of IMA's first table, a corner."""
    copy_inputs(root)
    (root / "config/experiments").mkdir(parents=True, exist_ok=True)
    for name in ("config.yaml", "datasets.yaml"):
        shutil.copy(ROOT / "config" / name, root / "config" / name)
    (root / "config/experiments/ima.yaml").write_text(_corner(rows, columns), encoding="utf-8")
    return root


@cache  # for each of a hundred tests
def _corner(rows: int, columns: int) -> str:
    file = ROOT / "config/experiments/ima.yaml"
    experiment = expand(quick_yaml.parsed(file.read_text(encoding="utf-8")), file)
    table = experiment["tables"]["table_1"]
    table["rows"], table["columns"] = table["rows"][:rows], table["columns"][:columns]
    experiment["tables"] = {"table_1": table}
    return quick_yaml.written(experiment)


def make_system(root: Path, system: str) -> Path:
    """The committed files that one system's reports are made from."""
    copy_inputs(root)
    (root / "config/experiments").mkdir(parents=True)
    for name in ("config.yaml", "datasets.yaml", f"experiments/{system}.yaml"):
        shutil.copy(ROOT / "config" / name, root / "config" / name)
    return root


def copy_inputs(root: Path, *, compact: bool = False) -> None:
    """Templates and papers, without reference results, nor sentences about whole tables.

    Args:
        compact: with the results of scale compact, which are most of the files.
    """
    without = ("reference", "site", "what_follows.yaml", digests.FILE)
    ignore = shutil.ignore_patterns(*without, *(() if compact else ("compact",)))
    shutil.copytree(ROOT / "reports", root / "reports", ignore=ignore)


def curve(rounds: int, end: float, seed: int = 0) -> list[float]:
    """A rising accuracy (fraction) that ends near ``end`` and wobbles a little."""
    random = np.random.default_rng(seed)
    steps = np.arange(1, rounds + 1)
    rise = end - (end - 0.1) * np.exp(-6 * steps / rounds)
    return [float(value) for value in rise + 0.02 * random.standard_normal(rounds) / np.sqrt(steps)]


def write_run(
    workbench: Workbench,
    run: RunKey,
    accuracies: list[float],
    *,
    reference: bool = False,
    status: str = "finished",
    stopped: str = "",
    more: Mapping[str, list[float]] | None = None,
    **changes: Any,
) -> Path:
    """A run directory with this learning curve; ``changes`` go into its configuration.

    Args:
        stopped: why it ended before its last round.
        more: further columns of rounds.parquet.
    """
    folder = workbench.root / (reference_folder(run) if reference else run.folder)
    folder.mkdir(parents=True)
    spec = workbench.run_spec(run.setting, run.method, run.seed)
    described = spec.description() | changes
    count = len(accuracies)
    columns = {
        "round": list(range(1, count + 1)),
        "learning_rate": [0.01 * 0.99**index for index in range(count)],
        "test_loss": [-math.log(max(value, 1e-3)) for value in accuracies],
        "test_accuracy": accuracies,
        "bytes_down": [1_000_000] * count,
        "bytes_up": [1_000_000] * count,
        **(more or {}),
    }
    pyarrow.parquet.write_table(pa.table(columns), folder / "rounds.parquet")
    manifest = {
        "status": status,
        "diverged_at": count if status == "diverged" else None,
        "rounds_done": count,
        **({"stopped": stopped} if stopped else {}),
        "run": json.loads(json.dumps(described)),
        "config_hash": fingerprint.of_text(json.dumps(described, sort_keys=True)),
        "code": hashlib.sha256(run.setting.encode()).hexdigest(),
        "numerics": numerics.of_run(spec),
        "executor": "sequential",
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "parameters": 274_026,
        "bytes_down": 1_000_000 * count,
        "bytes_up": 1_000_000 * count,
        "packages": {"torch": "2.9.0", "numpy": "2.1.0"},
        "hardware": {"machine": "x86_64", "system": "Linux", "cores": 2},
        "files": {"rounds.parquet": sha256_of(folder / "rounds.parquet")},
    }
    timing = {
        "wall_seconds": 0.9 * count,
        "cpu_seconds": 0.8 * count,
        "rounds_per_second": 1 / 0.9,
        "peak_memory_bytes": 512_000_000,
        "resumed": 0,
    }
    manifest["seal"] = checksummed_json.seal_of(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    checksummed_json.write(folder / "timing.json", timing, timing_of(manifest))
    return folder


def write_partition(workbench: Workbench, setting: str, seed: int) -> None:
    """A histogram in which every client holds two classes."""
    path = workbench.root / workbench.setting(setting).partition_path(seed).with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    clients = workbench.setting(setting).partition.clients or 10
    counts = [
        [50 + client % 7 if label in (client % 10, (client * 3) % 10) else 0 for label in range(10)]
        for client in range(clients)
    ]
    name = path.parent.name
    histogram = {"name": name, "seed": seed, "clients": clients, "classes": 10, "train": counts}
    checksummed_json.write(
        path, histogram | {"spec": {}, "test": None}, checksummed_json.place(path, PLACE)
    )


def fill(workbench: Workbench, target: TableTarget, end: float = 0.85) -> None:
    """All runs and partitions of a table."""
    for number, run in enumerate(target.runs):
        rounds = workbench.setting(run.setting).rounds
        gain = 0.03 if "ima" in run.method else 0.0
        write_run(workbench, run, curve(rounds, end + gain, number))
        write_partition(workbench, run.setting, run.seed)


def constant_run(workbench: Workbench, run: RunKey, accuracy: float) -> None:
    """A landed run that has the same accuracy in every round."""
    rounds = workbench.setting(run.setting).rounds
    write_run(workbench, run, [accuracy] * rounds, reference=True)
