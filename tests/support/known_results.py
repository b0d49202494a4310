"""A checkout whose printed numbers and results of runs are known: written down, not computed."""

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedrepro.config.loading import load
from fedrepro.provenance import numerics
from fedrepro.support.files import sha256_of
from support.manifests import write_manifest
from support.places import ROOT

KEYS = ("item", "table", "dataset", "setting", "method", "metric", "mean", "std", "doubt")
Printed = tuple[str, str, str, str, str, str, str, str, str]


def write_papers(
    root: Path, cells: Sequence[Printed], about: Mapping[str, str], caption: str, doubt: str
) -> None:
    """What is committed about the papers: here the only place that knows where it stands.

    Args:
        cells: printed cells of the system "ima", with the values of :data:`KEYS`.
        about: name, title, changes and paper of the system.
        caption: of table_1.
        doubt: topic and text of a discrepancy of table_1.
    """
    shutil.copytree(ROOT / "reports/templates", root / "reports/templates")
    folder = root / "reports/papers/ima"
    (folder / "captions").mkdir(parents=True)
    (folder.parent / "systems.yaml").write_text("[ima]\n", encoding="utf-8")
    with (folder / "cells.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([KEYS, *cells])
    metrics = {
        "acc1": {"unit": "percent"}, "worst10": {"unit": "percent"},
        "ece": {"unit": "fraction", "better": "less"}, "loss": {"better": "less"},
    }  # fmt: skip
    paper = {**about, "spread": {"over": "none", "source": "known"}, "metrics": metrics}
    entry = {
        "number": "B1", "topic": doubt, "text": doubt, "reading": doubt, "evidence": ["text"],
        "tables": ["table_1"],
    }  # fmt: skip
    for name, content in (("paper", paper), ("discrepancies", [entry])):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    (folder / "captions/table_1.md").write_text(caption, encoding="utf-8")


def write_config(root: Path, config: Mapping[str, Any], experiment: Mapping[str, Any]) -> None:
    (root / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    (root / "config/config.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    path = root / "config/experiments/ima.yaml"
    path.write_text(yaml.safe_dump(dict(experiment), sort_keys=False), encoding="utf-8")


def write_run(
    root: Path,
    setting: str,
    method: str,
    seed: int,
    rounds: Mapping[str, Sequence[float]],
    clients: Mapping[str, Sequence[float]],
    *,
    cpu: float = 1.0,
    wall: float = 1.0,
    memory: float = 1e6,
    machine: str = "m",
) -> None:
    """A finished run of the present configuration; ``rounds`` and ``clients`` are its tables."""
    folder = root / "results/runs/ima" / setting / method / f"seed{seed}"
    folder.mkdir(parents=True)
    count = len(rounds["test_accuracy"])
    table = {"round": range(1, count + 1), "learning_rate": 0.1, "bytes_down": 1, "bytes_up": 1}
    pd.DataFrame({**table, **rounds}).to_parquet(folder / "rounds.parquet")
    pd.DataFrame(clients).to_parquet(folder / "clients.parquet")
    spec = load(root).run_spec(f"ima/{setting}", method, seed)
    manifest = {
        "status": "finished", "rounds_done": count, "diverged_at": None,
        "run": spec.description(), "numerics": numerics.of_run(spec),
        "config_hash": "0", "code": "0", "executor": "sequential", "threads": 1, "device": "cpu",
        "dtype": "float32", "parameters": 1234,
        "bytes_down": 2000 * count, "bytes_up": 3000 * count,
        "packages": {"torch": "2"},
        "files": {name: sha256_of(folder / name) for name in ("rounds.parquet", "clients.parquet")},
        "hardware": {"machine": machine, "system": "Linux", "cores": 2},
    }  # fmt: skip
    timing = {
        "wall_seconds": wall, "cpu_seconds": cpu, "rounds_per_second": 1.0,
        "peak_memory_bytes": memory, "resumed": 0,
    }  # fmt: skip
    (folder / "timing.json").write_text(json.dumps(timing), encoding="utf-8")
    write_manifest(folder, manifest)


class Tables(HTMLParser):
    """The tables of a page: for each its class and rows of cells' texts, but for how it is made."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.inside = self.folded = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append((dict(attributes).get("class") or "", []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.inside = True
            self.tables[-1][1][-1].append("")
        self.folded = self.folded or (tag, dict(attributes).get("class")) == ("details", "how")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")
        self.folded = self.folded and tag != "details"

    def handle_data(self, data: str) -> None:
        if self.inside and not self.folded:
            row = self.tables[-1][1][-1]
            row[-1] = " ".join(f"{row[-1]} {data}".split())

    def of(self, kind: str) -> list[list[list[str]]]:
        """The rows, without the first, of all tables of a class."""
        return [rows[1:] for name, rows in self.tables if name == kind]
