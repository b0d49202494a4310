"""``fedrepro landscape``, ``decompose``, ``regret``, ``quality``, ``study``: what pages show."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrepro.cli.console import progress_bar
from fedrepro.cli.run import add_run, requested, require_seed
from fedrepro.config.figures import Grid
from fedrepro.config.loading import load
from fedrepro.config.targets import joint_analysis
from fedrepro.support.errors import bad_value


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    landscape = subparsers.add_parser(
        "landscape",
        help="loss and accuracy around a finished run's model",
        description="Evaluate a finished run's global model, moved along two random filter-"
        "normalised directions, at 21 x 21 points: on the data set's test samples or, without any, "
        "on all that clients hold out. Writes results/landscapes/SETTING/METHOD/seedSEED.json: "
        "directions, x, y, and loss and accuracy in rows of equal y. With --through: the line "
        "through two models, or the plane through three, that the run kept (`keep: { METHOD: "
        "[ROUND, ...] }` in its setting); the file then has their places too, and a plane that "
        "was broken off is gone on with. A model is named by a round, as 400 (the server's "
        "model), 400.average (of that round's clients), 400.client17, 400.1 (the first of them), "
        "or by last, or by the file of any model of the same shape.",
        epilog="Example: fedrepro landscape ima/fmnist-shards2-demo ima+fedprox --seed 1 --through "
        "20.1 20.2 20.3",
    )
    add_run(landscape)
    through = landscape.add_argument_group("through models")
    through.add_argument("--through", nargs="+", metavar="MODEL", help="two or three models")
    through.add_argument(
        "--points", type=int, default=41, metavar="N", help="along each axis (default: 41)"
    )
    through.add_argument(
        "--samples", type=int, default=2000, metavar="N", help="at most so many (default: 2000)"
    )
    through.add_argument(
        "--bfloat16",
        action="store_true",
        help="compute in 8 bits of precision: faster where the CPU can, off by some thousandths",
    )
    landscape.set_defaults(handler=make_landscape)
    decompose = subparsers.add_parser(
        "decompose",
        help="why averaging works: five terms of the expected loss, over several seeds",
        description="The expected loss of the clients' averaged model in the five terms of IMA's "
        "Theorem 1, after every round whose models all runs kept (`keep` in the setting): training "
        "and heterogeneous bias, variance, covariance, locality; the ensemble beside the average "
        "(Lemma 1), and how alike the clients' outputs are (CKA). The runs differ in their seed "
        "and share clients: `partition: { ..., seed: 1 }` in the setting. Writes "
        "results/decompositions/SETTING/METHOD/seedsSEEDS_SAMPLES.json.",
        epilog="Example: fedrepro decompose ima/silo-demo fedavg --seeds 1 2",
    )
    decompose.add_argument("setting", metavar="SETTING", help="such as ima/silo-demo")
    decompose.add_argument("method", metavar="METHOD", help="such as fedavg")
    decompose.add_argument("--seeds", type=int, nargs="+", required=True, help="two or more")
    decompose.add_argument(
        "--samples", type=int, default=2000, metavar="N", help="at most so many (default: 2000)"
    )
    decompose.set_defaults(handler=make_decomposition)
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
        "FedGO and its baselines (fedgo_cost), its toy example (fedgo_toy), what FedEvg's server "
        "samples where clients' normalising constants differ (fedevg_assumption). "
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
    from fedrepro.analysis.kept_models import open_kept
    from fedrepro.analysis.landscape_of_run import landscape_of, landscape_through

    workbench, run = requested(arguments)
    name = f"{run.setting} {run.method} seed {run.seed}"
    if arguments.through is None:
        with progress_bar(name) as progress:
            found = landscape_of(workbench, run, progress)
        _write(workbench.root / run.analysis("landscapes"), found)
        return
    _at_least("--points", arguments.points, 2)
    _at_least("--samples", arguments.samples, 1)
    words = [_short(each) for each in arguments.through]
    part = Grid(points=arguments.points, samples=arguments.samples).part(words)
    path = workbench.root / run.analysis("landscapes", part)
    finished = open_kept(workbench, run)
    with progress_bar(name) as progress:
        found = landscape_through(
            finished,
            arguments.through,
            arguments.points,
            arguments.samples,
            arguments.bfloat16,
            path.with_suffix(".partial"),
            progress,
        )
    _write(path, found)


def _short(word: str) -> str:
    """A model as it stands in a file's name: of a file, a hash of its path."""
    from fedrepro.run.fingerprint import of_text

    return f"file.{of_text(word)[:8]}" if word.endswith(".safetensors") else word


def _at_least(key: str, value: int, least: int) -> None:
    if value < least:
        raise bad_value("the command line", key, value, f"a whole number of at least {least}")


def make_decomposition(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.decomposition_of_runs import decomposition_of

    _at_least("--samples", arguments.samples, 1)
    workbench = load()
    setting, method, seeds = (
        workbench.setting(arguments.setting).name,
        arguments.method,
        arguments.seeds,
    )
    for seed in seeds:
        require_seed("--seeds", seed)
    with progress_bar(f"{setting} {method}") as progress:
        found = decomposition_of(workbench, setting, method, seeds, arguments.samples, progress)
    samples = str(arguments.samples)
    _write(
        workbench.root / joint_analysis("decompositions", setting, method, seeds, samples), found
    )


def make_regret(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.regret_of_run import regret_as_json

    workbench, run = requested(arguments)
    found = regret_as_json(workbench.root, run, workbench.own)
    _write(workbench.root / run.analysis("regrets"), found)


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
