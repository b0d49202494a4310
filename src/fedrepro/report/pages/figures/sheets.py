"""Sheets: images that methods generated, after some rounds and beside real ones."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.config.figures import Sheets
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.measures.registry import SETS
from fedrepro.report.drawing import sheet
from fedrepro.report.drawing.sheet import training_images
from fedrepro.report.pages.figures.base import Drawn, Panel, in_figures, leaders, titled
from fedrepro.run.derived_files import damaged
from fedrepro.run.results import PAIRS, RunRecord, find_run

# The measures of a set that the figure shows: name and head of its column.
NUMBERS = {
    "test_accuracy": "Accuracy",
    "stand_in": "Surrogate distance, no FID",
    "diversity": "Diversity, pixels",
    "feature_diversity": "Diversity, features",
    "nearest": "Nearest training image",
    "membership": "Attack's AUC",
}


def draw(workbench: Workbench, target: FigureTarget, figure: Sheets) -> Drawn:
    drawn = Drawn(
        "A row of images per class, after the first, a middle and the last round with "
        "images, for the first seed, beside them training images. Then the first image of each "
        "class over the rounds: this animation plays once and stops at the last round. Then the "
        "generated images nearest to a training image, above these training images.",
        ("Panel", "Method", *NUMBERS.values()),
    )
    # Of settings with the same demo setting, one.
    scores: dict[str, dict[str, float]] = {}
    places = {place.setting_at(target.scale): place for place in reversed(figure.panels)}
    for place in reversed(places.values()):
        where = titled(place.label, place, target)
        for column in figure.columns:
            setting = place.setting_for(column.label, target.scale, figure.column_settings)
            for method in column.methods_at(target.scale):
                (run,) = target.runs_in(setting, method)
                record = find_run(workbench.root, run)
                title = f"{where}, {column.label}" if len(places) > 1 else column.label
                panels = list(_panels(workbench.root, record, title))
                if panels:
                    drawn.panels += panels
                    numbers = _shown(record.quality.get("numbers", {}))
                    score = record.quality.get("numbers", {}).get("test_accuracy")
                    if score is not None:
                        scores.setdefault(where, {})[column.label] = 100 * score
                    drawn.rows.append((where, column.label, *numbers))
    if said := leaders(list(scores.items()), higher_is_better=True, unit="%"):
        drawn.sees = f"Accuracy of a classifier trained on the images: {said}"
    elif scores:
        name, accuracy = next(iter(next(iter(scores.values())).items()))
        drawn.sees = f"A classifier trained on the images of {name} reaches {accuracy:.2f} %."
    return drawn


def _panels(root: Path, record: RunRecord, title: str) -> Iterator[Panel]:
    rounds = record.rounds_with_images
    quality = record.quality
    if not rounds or not quality:
        return
    classes = int(quality["classes"])
    for number in dict.fromkeys((rounds[0], rounds[len(rounds) // 2], rounds[-1])):
        images = _by_class(record, number, classes)
        wide = images.shape[1]
        words = f"{title}, after round {number}: {wide} images of each of {classes} classes."
        svg = sheet.draw(images.reshape(-1, *images.shape[2:]), wide, description=words)
        yield Panel(f"{title}, round {number}", svg)
    shape, wide = images.shape[2:], images.shape[1]
    trained_on = training_images(root, record, classes, wide)
    if trained_on is not None and trained_on.shape[1:] == shape:
        words = f"{title}: {wide} training images of each of {classes} classes."
        yield Panel(f"{title}, training images", sheet.draw(trained_on, wide, description=words))
    frames = [_by_class(record, number, classes)[:, 0] for number in rounds]
    if len(frames) > 1:
        words = f"{title}: an image of each of {classes} classes after {len(frames)} rounds."
        svg = sheet.animated(frames, classes, description=words)
        yield Panel(f"{title}, rounds {rounds[0]} to {rounds[-1]}", svg)
    pairs = _pairs(root, record)
    if pairs is not None:
        words = f"{title}: the generated images nearest to training images, which are below them."
        svg = sheet.draw(np.concatenate(pairs), len(pairs[0]), description=words)
        yield Panel(f"{title}, nearest training images", svg)


def _by_class(record: RunRecord, number: int, classes: int) -> NDArray[np.uint8]:
    """The images of a round, [classes, of each, channels, height, width].

    Raises:
        UserError: if the classes have different numbers of images.
    """
    images = record.images(number)
    if len(images) % classes:
        why = f"{len(images)} images of {classes} classes: expected equally many of each"
        raise damaged(record.folder / f"round{number}-images.safetensors", why)
    return images.reshape(classes, -1, *images.shape[1:])


def _pairs(root: Path, record: RunRecord) -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
    """The nearest generated and real images, each [pairs, channels, height, width].

    None if the files do not exist, as with reference results.
    """
    path = record.run.analysis("quality").with_suffix(PAIRS)
    if record.reference or not (root / path).exists():
        return None
    from safetensors.numpy import load

    try:
        content = (root / path).read_bytes()
        if sha256(content).hexdigest() != record.quality["files"][path.name]:
            raise ValueError("it is not what quality.json says")
        arrays = load(content)
        made, real = arrays["made"], arrays["real"]
    except Exception as error:  # safetensors has its own kind of error
        raise damaged(path, error) from None
    if made.shape != real.shape or made.ndim != 4 or not made.size:
        raise damaged(path, f"images of shapes {made.shape} and {real.shape}")
    return made, real


def _shown(numbers: Mapping[str, Any]) -> Iterator[str]:
    for name in NUMBERS:
        value, measure = numbers.get(name), SETS[name]
        if value is None:
            yield "–"
        else:
            yield f"{100 * value:.1f} %" if measure.unit == "%" else in_figures([value])[0]
