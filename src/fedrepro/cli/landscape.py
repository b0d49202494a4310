"""``fedrepro landscape``: loss and accuracy around a finished run's model."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from fedrepro.cli.console import Progress, progress_bar
from fedrepro.cli.run import add_run, requested
from fedrepro.config.targets import Run
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError

if TYPE_CHECKING:
    from fedrepro.data.tensors.samples import Samples
    from fedrepro.engine.tree import Tree
    from fedrepro.run.assembly import Plan

DIRECTIONS = "two random directions, filter-normalised"
POINTS, REACH = 21, 1.0  # along each direction, from -REACH to REACH


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "landscape",
        help="loss and accuracy around a finished run's model",
        description="Evaluate a finished run's global model, moved along two random filter-"
        f"normalised directions, at {POINTS} x {POINTS} points: on the data set's test samples or, "
        "without any, on all that clients hold out. Writes results/landscapes/SETTING/METHOD/"
        "seedSEED.json: directions, x, y, and loss and accuracy in rows of equal y.",
        epilog="Example: fedrepro landscape ima/fmnist-shards2-demo ima+fedprox --seed 1",
    )
    add_run(parser)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> None:
    from fedrepro.support.files import write_atomically

    workbench, run = requested(arguments)
    with progress_bar(f"{run.setting} {run.method} seed {run.seed}") as progress:
        found = measure(workbench, run, progress)
    with write_atomically(workbench.root / run.landscape) as temporary:
        temporary.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(workbench.root / run.landscape)


def measure(workbench: Workbench, run: Run, progress: Progress) -> dict[str, Any]:
    """The landscape around a finished run's global model.

    Directions come from the run's seed: those of two methods differ by their filters' lengths only.

    Raises:
        UserError: when the run, its data or its partition is not there, or not as it was.
    """
    import numpy as np
    import torch

    from fedrepro.analysis.landscape import random_directions, surfaces
    from fedrepro.data.dataset import PREPARED, open_dataset
    from fedrepro.data.partition.partition import Partition
    from fedrepro.engine import tree
    from fedrepro.engine.evaluate import evaluate
    from fedrepro.run import fingerprint
    from fedrepro.run.assembly import compose, make_plan
    from fedrepro.run.results import read_run
    from fedrepro.run.runner import data_of
    from fedrepro.run.store import load_tree
    from fedrepro.support.rng import stream

    run_config = workbench.run_config(run.setting, run.method, run.seed)
    compose(run_config)  # whether the method is one
    setting = workbench.setting(run.setting)
    again = f"fedrepro run {run.setting} {run.method} --seed {run.seed}"
    record = read_run(workbench.root, run)
    if record.state != "finished":
        raise UserError(f"{run.folder}: {record.why}: expected a finished run: {again}")
    dataset = open_dataset(setting.dataset, workbench.root / PREPARED)
    torch.set_num_threads(run_config["threads"])
    partition = Partition.load(workbench.root / setting.partition_path(run.seed))
    plan = make_plan(run_config, dataset, partition)
    made_from = record.manifest.get("config_hash"), record.manifest.get("data")
    if made_from != (fingerprint.of_config(run_config), data_of(plan, dataset, partition)):
        raise UserError(f"{run.folder}: made with another configuration or other data: {again}")
    context, samples = plan.federation.context, _tested_on(plan)
    saved, _ = load_tree(workbench.root / run.folder / "model.safetensors")
    centre = tree.apply(lambda leaf: leaf.to(run_config["device"]), saved)

    def score(params: "Tree") -> tuple[float, float]:
        found = evaluate(context.net, context.task, params, samples, len(samples))
        return found.loss, found.accuracy

    rngs = stream(run.seed, "landscape", 0), stream(run.seed, "landscape", 1)
    axis = np.linspace(-REACH, REACH, POINTS).tolist()
    directions = random_directions(centre, rngs)
    loss, accuracy = surfaces(score, centre, directions, axis, axis, progress)
    return {"directions": DIRECTIONS, "x": axis, "y": axis, "loss": loss, "accuracy": accuracy}


def _tested_on(plan: "Plan") -> "Samples":
    """The data set's test samples, or all that clients hold out."""
    import torch

    from fedrepro.data.tensors.samples import Samples

    if plan.test is not None:
        return plan.test
    held = plan.client_tests
    x, y = torch.cat([each.x for each in held]), torch.cat([each.y for each in held])
    return Samples(x, y, held[0].scaling)
