"""Partitions: samples per client and class as a heat map, and in a figure a panel per setting."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from fedrepro.config.figures import Partitions
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, read_meta
from fedrepro.report.drawing.frame import Axis, Frame, axis
from fedrepro.report.drawing.planes import areas, shaded
from fedrepro.report.pages.figures.base import Drawn, Panel, distinct_settings
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, damaged

WIDTH = 400  # of a panel
FEW = 20  # with at most so many clients, each is named


def draw(workbench: Workbench, target: FigureTarget, figure: Partitions) -> Drawn:
    drawn = Drawn(
        "Clients from left to right, classes from top to bottom; darker is more training "
        "samples, relative to the panel's largest cell.",
        ("Setting", "Seed", "Samples of a class at a client, at most", "What clients hold"),
    )
    seed = target.seeds[0]
    for label, name in distinct_settings(figure.panels, target):
        setting = workbench.setting(f"{target.system}/{name}")
        path = setting.partition_path(seed).with_suffix(".json")
        if chart := draw_partition(workbench.root, path, WIDTH):
            drawn.panels.append(Panel(label, chart.svg))
            drawn.say(f"{label}: {chart.summary}")
            drawn.rows.append((name, str(chart.seed), str(chart.most), chart.summary))
    return drawn


def draw_partition(root: Path, path: Path, width: int = 720) -> SimpleNamespace | None:
    """Draw a partition's histogram and describe it in a sentence; None without the file.

    Raises:
        UserError: if the file is damaged.
    """
    try:
        histogram = checksummed_json.read(root / path, checksummed_json.of_results(path), path)
        counts: list[list[int]] = histogram["train"]
        sizes = [sum(row) for row in counts]
        held = [sum(count > 0 for count in row) for row in counts]
        name, seed = str(histogram["name"]), int(histogram["seed"])
        classes = len(counts[0])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise damaged(path, error) from None
    spread = _span(min(sizes), max(sizes))
    middle = f" (median {statistics.median(sizes):.0f})" if min(sizes) < max(sizes) else ""
    whose = f"{len(counts)} clients hold {spread} training samples each{middle}"
    if len(counts) == 1:
        whose = f"One place holds {spread} training samples"
    of_classes = f", of {_span(min(held), max(held))} of {classes} classes" if classes > 1 else ""
    summary = f"{whose}{of_classes}."
    words = f"Samples of each class at each client. {summary}"
    natural = histogram.get("spec", {}).get("scheme") == "natural"
    names = _names(root, path, len(counts)) if natural else ()
    svg = heat_map(counts, description=words, width=width, names=names)
    most = max(map(max, counts))
    return SimpleNamespace(svg=svg, partition=name, seed=seed, summary=summary, most=most)


def _names(root: Path, path: Path, clients: int) -> Sequence[str]:
    """The names of natural clients, such as hospitals, if the data set has any."""
    dataset = path.parent.parent.name
    try:
        groups = (read_meta(root / PREPARED / dataset) or {})["groups"]
    except (UserError, KeyError):
        return ()
    named = isinstance(groups, list) and len(groups) == clients <= FEW
    return [str(group) for group in groups] if named else ()


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def heat_map(
    counts: Sequence[Sequence[int]],
    *,
    description: str,
    width: int = 720,
    names: Sequence[str] = (),
) -> str:
    """Clients from left to right, classes from top to bottom; darker is more samples.

    ``counts`` are training samples, [clients][classes]; ``width`` is the displayed width in pixels,
    which keeps text at its usual size; ``names`` are the clients' names, if they have any.
    """
    clients, classes = len(counts), len(counts[0])
    most = max(max(row) for row in counts)
    ticks = [label + 0.5 for label in range(0, classes, max(1, math.ceil(classes / 10)))]
    few = [client + 0.5 for client in range(clients)]
    frame = Frame(
        Axis(0, clients, few, names or [f"{tick - 0.5:.0f}" for tick in few])
        if clients <= FEW
        else axis(0, clients, count=10),
        Axis(classes, 0, ticks, [f"{tick - 0.5:.0f}" for tick in ticks]),
        "clients from left to right, classes from top to bottom",
        width - 60,
        max(130, min(300, 15 * classes)),
        least=30,
    )
    shades = [
        [round(12 + 88 * row[label] / most) if row[label] else 0 for row in counts]
        for label in range(classes)
    ]
    paths = areas(frame, shades, (0, 0), (1, 1))
    return frame.svg([frame.ground, *shaded(paths, 100)], description, grid=False)
