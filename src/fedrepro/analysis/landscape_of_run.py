"""Loss and accuracy around a finished run's model, and through models that it kept."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrepro.analysis import landscape
from fedrepro.analysis.finished import open_run
from fedrepro.analysis.kept_models import KeptModel, KeptModels
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.engine import tree
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.tree import Tree
from fedrepro.provenance import fingerprint
from fedrepro.run.results import made_of
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, bad_value, refusal
from fedrepro.support.rng import stream

Progress = Callable[[float], None]  # called with the finished share
BEYOND = 0.5  # how far a line extends beyond its two models, as a share of their distance


def landscape_of(workbench: Workbench, run: RunKey, progress: Progress) -> dict[str, Any]:
    """The landscape around a finished run's global model.

    Directions depend on the run's seed: two methods' directions differ in their filters' norms
    only.

    Returns:
        directions (in words), x, y, and loss and accuracy [y][x], None where not finite.

    Raises:
        UserError: when the run, its data or its partition is not there, or not as it was.
    """
    finished = open_run(workbench, run)
    context, samples = finished.plan.federation.context, finished.tested_on
    centre = finished.shared_model

    def score(params: Tree) -> tuple[float, float]:
        scores = evaluate(context.net, context.task, params, samples, len(samples))
        return scores["loss"], scores["accuracy"]

    rngs = stream(run.seed, "landscape", 0), stream(run.seed, "landscape", 1)
    axis = np.linspace(-landscape.REACH, landscape.REACH, landscape.POINTS).tolist()
    directions = landscape.random_directions(centre, rngs)
    done = []
    for row in landscape.rows(score, centre, directions, axis, axis):
        done.append(row)
        progress(len(done) / len(axis))
    return {
        "of": made_of([finished.record]),
        "directions": landscape.DIRECTIONS,
        "x": axis,
        "y": axis,
        "loss": [loss for loss, _ in done],
        "accuracy": [accuracy for _, accuracy in done],
    }


def landscape_through(
    finished: KeptModels,
    words: Sequence[str],
    points: int,
    samples: int,
    bfloat16: bool,
    partial: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Loss and accuracy on the line through two models, or on the plane through three.

    Args:
        words: their names (:data:`fedrepro.analysis.kept_models.WORDS`).
        points: along the line, or along each axis of the plane.
        samples: at most so many of the run's test samples.
        bfloat16: see :func:`fedrepro.analysis.landscape.scorer`.
        partial: the file of a plane's finished rows, from which a later call continues.

    Returns:
        models, samples, precision; x and (of a plane) y; loss and accuracy [x] or [y][x], None
        where not finite; and marks: name, x, y, away (the distance from the line or plane), loss
        and accuracy of the models, of their average and of the server's model of that round. On a
        line x is the share of the second model; a plane is measured in Euclidean distance from
        the first model, over two orthogonal unit vectors (discrepancy B15).

    Raises:
        UserError: for a word that names no model, models of different shape, three that are
            collinear.
    """
    if len(words) not in (2, 3):
        wanted = "two, for a line, or three, for a plane"
        raise bad_value("landscape", "models", list(words), wanted)
    models = [finished.model(word) for word in words]
    params = [model.params for model in models]
    landscape.require_same_shape(params)
    context = finished.plan.federation.context
    x, y = finished.samples(samples)
    score = landscape.scorer(context.net, context.task, x, y, bfloat16)
    about = {
        "of": made_of([finished.record]),
        "models": list(words),
        "samples": len(y),
        "precision": "bfloat16" if bfloat16 else "float32",
    }
    marked = [*models, *_beside(finished, models)]
    if len(models) == 2:
        return about | _line(score, models, marked, points, progress)
    centre, directions = params[0], landscape.plane(*params)
    places = [landscape.coordinates(model, centre, directions) for model in params]
    xs, ys = landscape.axes(places, points)
    identity = fingerprint.of_text(json.dumps([about, xs, ys]))
    done: list[tuple[landscape.Row, landscape.Row]] = []
    with suppress(FileNotFoundError, UserError):  # unless the rows are of another plane
        saved = checksummed_json.read(partial, identity)
        done = [(loss, accuracy) for loss, accuracy in saved["rows"]]
    for row in landscape.rows(score, centre, directions, xs, ys[len(done) :]):
        done.append(row)
        checksummed_json.write(partial, {"rows": done}, identity)
        progress(len(done) / len(ys))
    partial.unlink(missing_ok=True)
    marks = []
    for mark in marked:
        at = landscape.coordinates(mark.params, centre, directions)
        nearest = landscape.point(centre, directions, *at)
        marks.append(_mark(score, mark, at[0], at[1], nearest))
    loss, accuracy = map(list, zip(*done, strict=True))
    return about | {"x": xs, "y": ys, "loss": loss, "accuracy": accuracy, "marks": marks}


def _beside(finished: KeptModels, models: Sequence[KeptModel]) -> list[KeptModel]:
    """Further marks: the models' average, and the server's model of the latest round."""
    latest = max(model.round for model in models)
    clients = [model.client for model in models]
    of_one = all(model.round == latest for model in models)
    if of_one and None not in clients:
        weights = finished.shares([client for client in clients if client is not None])
        name = "average"
    else:
        weights = torch.full((len(models),), 1 / len(models), dtype=torch.float64)
        name = "mean"
    # Clients have their aggregation weights; models of several rounds equal ones, as in IMA.
    marks = [KeptModel(name, landscape.average_of([model.params for model in models], weights))]
    taken = {
        model.round
        for model in models
        if model.client is None and not model.name.startswith("average")
    }
    with_global = f"round{latest}-global.safetensors" in finished.record.manifest["files"]
    if latest and with_global and latest not in taken:
        marks.append(finished.model(str(latest)))
    return marks


def _mark(score: Any, model: KeptModel, x: float, y: float | None, nearest: Tree) -> dict[str, Any]:
    loss, accuracy = score(model.params)
    away = float(tree.square_norm(tree.subtract(model.params, nearest))) ** 0.5
    numbers = {"x": x, "y": y, "away": away, "loss": loss, "accuracy": accuracy}
    return {"name": model.name} | {name: landscape.finite(value) for name, value in numbers.items()}


def _line(
    score: Any,
    models: Sequence[KeptModel],
    marked: Sequence[KeptModel],
    points: int,
    progress: Progress,
) -> dict[str, Any]:
    first, second = (model.params for model in models)
    xs = np.linspace(-BEYOND, 1 + BEYOND, points).tolist()
    # L(beta w1 + (1 - beta) w2) with beta the share of the first argument.
    loss, accuracy = landscape.line(score, second, first, xs)
    progress(1.0)
    way = tree.subtract(second, first)
    length = float(tree.square_norm(way))
    if not length:
        raise refusal("landscape", "two equal models: expected two that differ, for a line")
    marks = []
    for mark in marked:
        share = float(tree.dot(tree.subtract(mark.params, first), way)) / length
        marks.append(_mark(score, mark, share, None, tree.mix(first, second, share)))
    return {
        "x": xs, "loss": loss, "accuracy": accuracy, "marks": marks, "distance": length**0.5
    }  # fmt: skip
