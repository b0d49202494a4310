"""Loss and accuracy around the global model of a finished run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedrepro.analysis.landscape import DIRECTIONS, POINTS, REACH, random_directions, surfaces
from fedrepro.config.targets import Run
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, open_dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.data.tensors.samples import Samples
from fedrepro.engine import tree
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.tree import Tree
from fedrepro.run import fingerprint
from fedrepro.run.assembly import Plan, compose, make_plan
from fedrepro.run.given import load
from fedrepro.run.results import read_run
from fedrepro.run.runner import data_of
from fedrepro.run.store import load_tree
from fedrepro.support.errors import UserError
from fedrepro.support.rng import stream


def landscape_of(
    workbench: Workbench, run: Run, progress: Callable[[float], None]
) -> dict[str, Any]:
    """The landscape around a finished run's global model.

    Directions come from the run's seed: those of two methods differ by their filters' lengths only.

    Args:
        progress: told the share that is done.

    Returns:
        directions (in words), x, y, and loss and accuracy [y][x], None where not finite.

    Raises:
        UserError: when the run, its data or its partition is not there, or not as it was.
    """
    spec = workbench.run_spec(run.setting, run.method, run.seed)
    compose(spec)  # whether the method is one
    setting = workbench.setting(run.setting)
    again = f"fedrepro run {run.setting} {run.method} --seed {run.seed}"
    record = read_run(workbench.root, run)
    if record.state != "finished":
        raise UserError(f"{run.folder}: {record.why}: expected a finished run: {again}")
    dataset = open_dataset(setting.dataset, workbench.root / PREPARED)
    torch.set_num_threads(spec.execution.threads)
    partition = Partition.load(workbench.root / setting.partition_path(run.seed))
    given = load(workbench.root, spec, dataset, partition)
    plan = make_plan(spec, dataset, partition, given)
    made_from = record.manifest.get("config_hash"), record.manifest.get("data")
    if made_from != (fingerprint.of_config(spec), data_of(plan, dataset, partition, given)):
        raise UserError(f"{run.folder}: made with another configuration or other data: {again}")
    context, samples = plan.federation.context, _tested_on(plan)
    saved, _ = load_tree(workbench.root / run.folder / "model.safetensors")
    centre = tree.apply(lambda leaf: leaf.to(context.net.device), saved)

    def score(params: Tree) -> tuple[float, float]:
        found = evaluate(context.net, context.task, params, samples, len(samples))
        return found.loss, found.accuracy

    rngs = stream(run.seed, "landscape", 0), stream(run.seed, "landscape", 1)
    axis = np.linspace(-REACH, REACH, POINTS).tolist()
    directions = random_directions(centre, rngs)
    loss, accuracy = surfaces(score, centre, directions, axis, axis, progress)
    return {"directions": DIRECTIONS, "x": axis, "y": axis, "loss": loss, "accuracy": accuracy}


def _tested_on(plan: Plan) -> Samples:
    """The data set's test samples, or all that clients hold out."""
    if plan.test is not None:
        return plan.test
    held = plan.client_tests
    x, y = torch.cat([each.x for each in held]), torch.cat([each.y for each in held])
    return Samples(x, y, held[0].scaling)
