"""A workbench with one search, and made-up runs of its candidates."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from fedrepro.config.targets import SearchTarget
from fedrepro.config.workbench import Workbench
from support.places import ROOT
from support.report_world import write_run

FILE = Path("config/experiments/own.yaml")
SEARCH: dict[str, Any] = {
    "title": "A search",
    "setting": "s",
    "seeds": {"demo": [1, 2], "paper": [1, 2]},
    "validation": 0.2,
    "methods": [{"method": "fedprox", "grid": {"mu": [0.0, 0.1, 1.0]}}],
}
EXPERIMENT: dict[str, Any] = {
    "system": "own",
    "title": "Own",
    "paper": "none",
    "methods": {"fedprox": {"mu": 0.1}},
    "settings": {
        "s": {
            "dataset": "heart",
            "partition": {"scheme": "natural", "test_fraction": 0.2, "stratified": True},
            "model": "logistic",
            "rounds": 2,
            "participation": 1.0,
            "epochs": 1,
            "batch_size": 20,
            "optimizer": {"lr": 0.1},
            "evaluate": {"clients": True},
        }
    },
    "search": {"grid": SEARCH},
}


def settle(root: Path, changes: dict[str, Any] | None = None, **experiment: Any) -> Path:
    """The configuration, with keys of the search (``changes``) and of the experiment changed."""
    (root / "config/experiments").mkdir(parents=True, exist_ok=True)
    for name in ("config.yaml", "datasets.yaml"):
        shutil.copy(ROOT / "config" / name, root / "config" / name)
    whole = EXPERIMENT | {"search": {"grid": SEARCH | (changes or {})}} | experiment
    (root / FILE).write_text(yaml.safe_dump(whole), encoding="utf-8")
    return root


def score(
    bench: Workbench,
    target: SearchTarget,
    method: str,
    validation: list[float],
    test: list[float],
    **changes: Any,
) -> None:
    """Runs of a candidate that end with these accuracies, one a seed."""
    runs = next(
        target.runs_of(candidate)
        for trial in target.trials
        for candidate in trial.candidates
        if candidate.method + candidate.suffix == method
    )
    for run, kept, out in zip(runs, validation, test, strict=True):
        more = {"validation_loss": [1.0, 1.0], "validation_accuracy": [0.5, kept]}
        write_run(bench, run, [0.5, out], more=more, **changes)
