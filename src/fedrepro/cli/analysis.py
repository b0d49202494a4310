"""``fedrepro landscape``, ``regret``, ``quality``, ``study``: what pages show, as JSON."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrepro.cli.console import progress_bar
from fedrepro.cli.run import add_run, requested


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    landscape = subparsers.add_parser(
        "landscape",
        help="loss and accuracy around a finished run's model",
        description="Evaluate a finished run's global model, moved along two random filter-"
        "normalised directions, at 21 x 21 points: on the data set's test samples or, without any, "
        "on all that clients hold out. Writes results/landscapes/SETTING/METHOD/seedSEED.json: "
        "directions, x, y, and loss and accuracy in rows of equal y.",
        epilog="Example: fedrepro landscape ima/fmnist-shards2-demo ima+fedprox --seed 1",
    )
    add_run(landscape)
    landscape.set_defaults(handler=make_landscape)
    regret = subparsers.add_parser(
        "regret",
        help="the regret of a finished run's decisions beside its proven bound",
        description="Play the losses that a finished run recorded once more through its own rule. "
        "Writes results/regrets/SETTING/METHOD/seedSEED.json: clients, linearised (whether the "
        "regret is that of the linearised losses), and round, regret and bound of every round.",
        epilog="Example: fedrepro regret aaggff/heart aaggff+fedavg --seed 2",
    )
    add_run(regret)
    regret.set_defaults(handler=make_regret)
    study = subparsers.add_parser(
        "study",
        help="what tables and figures show that is computed without a run",
        description="Compute what a paper's tables or figures show without any run: the costs of "
        "FedGO and its baselines (fedgo_cost), its toy example (fedgo_toy). "
        "Writes results/studies/NAME.json.",
        epilog="Example: fedrepro study fedgo_cost",
    )
    study.add_argument("name", metavar="NAME", help="such as fedgo_cost")
    study.set_defaults(handler=make_study)
    quality = subparsers.add_parser(
        "quality",
        help="what a finished run's synthetic set is worth",
        description="Judge the synthetic set that a finished run left, as `judge` of its setting "
        "says: a classifier trained on it, on what clients hold out and on the test set; Fréchet "
        "distance, precision, recall and diversity; nearest real images and a membership attack. "
        "Writes results/quality/SETTING/METHOD/seedSEED.json and, beside it, the nearest pairs.",
        epilog="Example: fedrepro quality fedevg/digits-demo fedevg --seed 1",
    )
    add_run(quality)
    quality.set_defaults(handler=make_quality)


def make_landscape(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.landscape_of_run import landscape_of

    workbench, run = requested(arguments)
    with progress_bar(f"{run.setting} {run.method} seed {run.seed}") as progress:
        found = landscape_of(workbench, run, progress)
    _write(workbench.root / run.analysis("landscapes"), found)


def make_regret(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.regret_of_run import regret_as_json

    workbench, run = requested(arguments)
    _write(workbench.root / run.analysis("regrets"), regret_as_json(workbench.root, run))


def make_study(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.studies import make
    from fedrepro.config.loading import load
    from fedrepro.config.targets import study_path

    workbench = load()
    _write(workbench.root / study_path(arguments.name), make(arguments.name))


def make_quality(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.quality_of_run import quality_of
    from fedrepro.run.store import save_tree

    workbench, run = requested(arguments)
    with progress_bar(f"{run.setting} {run.method} seed {run.seed}") as progress:
        found, pairs = quality_of(workbench, run, progress)
    path = workbench.root / run.analysis("quality")
    save_tree(path.with_suffix(".pairs.safetensors"), pairs)
    _write(path, found)


def _write(path: Path, found: Mapping[str, Any]) -> None:
    from fedrepro.support.files import write_atomically

    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(found, allow_nan=False) + "\n", encoding="utf-8")
    print(path)
