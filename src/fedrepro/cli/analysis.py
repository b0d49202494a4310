"""``fedrepro landscape``, ``quality``, ``study``: analyses that pages show."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrepro.analysis.studies import studies
from fedrepro.cli.console import Progress, progress_bar
from fedrepro.cli.run import add_run, requested
from fedrepro.config.figures import Grid
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.support import checksummed_json
from fedrepro.support.errors import bad_value


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    landscape = subparsers.add_parser(
        "landscape",
        help="loss and accuracy around a finished run's model",
        description="Evaluate a finished run's global model at 21 x 21 points along two random "
        "filter-normalised directions: on the data set's test samples or, if it has none, on all "
        "samples that clients hold out. Writes results/landscapes/SETTING/METHOD/seedSEED.json: "
        "directions, x, y, and loss and accuracy in rows of equal y. With --through: evaluate the "
        "line through two models, or the plane through three, that the run kept (`keep: { METHOD: "
        "[ROUND, ...] }` in its setting). The file then also has the models' coordinates, and an "
        "interrupted plane resumes. Name a model as 400 (the server's model after round 400), "
        "400.average (the mean of that round's clients), 400.client17, 400.1 (the first of these "
        "clients), last, or by the file of any model of the same shape.",
        epilog="Example: fedrepro landscape ima/fmnist-shards2-demo ima+fedprox --seed 1 --through "
        "20.1 20.2 20.3",
    )
    add_run(landscape)
    through = landscape.add_argument_group("lines and planes through models")
    through.add_argument("--through", nargs="+", metavar="MODEL", help="two or three models")
    through.add_argument(
        "--points", type=int, default=41, metavar="N", help="points along each axis (default: 41)"
    )
    through.add_argument(
        "--samples", type=int, default=2000, metavar="N", help="samples at most (default: 2000)"
    )
    through.add_argument(
        "--bfloat16",
        action="store_true",
        help="compute in bfloat16: faster on CPUs that support it, with errors of some thousandths",
    )
    landscape.set_defaults(handler=make_landscape)
    study = subparsers.add_parser(
        "study",
        help="compute results of tables and figures that need no run",
        description="Compute the results of a paper's tables or figures that need no run. Writes "
        f"results/studies/NAME.json. Studies: {', '.join(studies())}.",
        epilog="Example: fedrepro study fedgo_cost",
    )
    study.add_argument("name", metavar="NAME", help="such as fedgo_cost")
    study.set_defaults(handler=make_study)
    quality = subparsers.add_parser(
        "quality",
        help="evaluate the synthetic set of a finished run",
        description="Evaluate the synthetic set of a finished run as `judge` of its setting says: "
        "accuracy of a classifier trained on it, on held-out and test samples; Fréchet distance, "
        "precision, recall and diversity; nearest real images and a membership attack. Writes "
        "results/quality/SETTING/METHOD/seedSEED.json and the nearest pairs, next to it.",
        epilog="Example: fedrepro quality fedevg/digits-demo fedevg --seed 1",
    )
    add_run(quality)
    quality.set_defaults(handler=make_quality)


def make_landscape(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.kept_models import open_kept
    from fedrepro.analysis.landscape_of_run import landscape_of, landscape_through
    from fedrepro.run import cards

    workbench, run = requested(arguments)
    workbench = cards.with_place(workbench)
    name = f"{run.setting} {run.method} seed {run.seed}"
    if arguments.through is None:
        with progress_bar(name) as progress:
            found = landscape_of(workbench, run, progress)
        write_found(workbench.root, run.analysis("landscapes"), found)
        return
    require_at_least("--points", arguments.points, 2)
    require_at_least("--samples", arguments.samples, 1)
    words = [_short(each) for each in arguments.through]
    part = Grid(points=arguments.points, samples=arguments.samples).part(words)
    path = run.analysis("landscapes", part)
    finished = open_kept(workbench, run)
    with progress_bar(name) as progress:
        found = landscape_through(
            finished,
            arguments.through,
            arguments.points,
            arguments.samples,
            arguments.bfloat16,
            workbench.root / path.with_suffix(".partial"),
            progress,
        )
    write_found(workbench.root, path, found)


def _short(word: str) -> str:
    """A model's name as part of a file name: for a model's file, a hash of its path."""
    from fedrepro.provenance.fingerprint import of_text

    return f"file.{of_text(word)[:8]}" if word.endswith(".safetensors") else word


def require_at_least(key: str, value: int, least: int) -> None:
    """Raise UserError if an argument is less than ``least``."""
    if value < least:
        raise bad_value("the command line", key, value, f"a whole number of at least {least}")


def make_study(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.studies import make
    from fedrepro.config.targets import study_path

    workbench = load()
    write_found(workbench.root, study_path(arguments.name), make(arguments.name))


def make_quality(arguments: argparse.Namespace) -> None:
    workbench, run = requested(arguments)
    with progress_bar(f"{run.setting} {run.method} seed {run.seed}") as progress:
        judge(workbench, run, progress)


def judge(workbench: Workbench, run: RunKey, progress: Progress = lambda share: None) -> None:
    """Evaluate the synthetic set of a finished run, and write what was found."""
    from fedrepro.analysis.quality_of_run import quality_of
    from fedrepro.run import cards
    from fedrepro.run.results import PAIRS
    from fedrepro.run.store import save_tree
    from fedrepro.support.files import sha256_of

    found, pairs = quality_of(cards.with_place(workbench), run, progress)
    path = run.analysis("quality")
    images = workbench.root / path.with_suffix(PAIRS)
    save_tree(images, pairs)
    write_found(workbench.root, path, {**found, "files": {images.name: sha256_of(images)}})


def write_found(root: Path, path: Path, found: Mapping[str, Any]) -> None:
    """Write the result as JSON to a path relative to the root, and print it."""
    checksummed_json.write(root / path, found, checksummed_json.of_results(path))
    print(root / path)
