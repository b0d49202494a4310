"""Who holds what: a partition as a heat map."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrepro.report.drawing.style import HEAT, finish
from fedrepro.support.errors import UserError


@dataclass(frozen=True)
class HeatMap:
    """How samples are shared out in a setting."""

    svg: str
    partition: str
    seed: int
    summary: str
    most: int


def draw_partition(root: Path, path: Path, width: int = 720) -> HeatMap:
    """A partition's histogram as a picture and a sentence.

    Raises:
        UserError: when the file is damaged.
    """
    try:
        histogram = json.loads((root / path).read_text(encoding="utf-8"))
        counts: list[list[int]] = histogram["train"]
        sizes = [sum(row) for row in counts]
        held = [sum(count > 0 for count in row) for row in counts]
        name, seed = str(histogram["name"]), int(histogram["seed"])
        classes = len(counts[0])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(f"{path}: damaged: {error}") from None
    spread = _span(min(sizes), max(sizes))
    middle = f" (median {statistics.median(sizes):.0f})" if min(sizes) < max(sizes) else ""
    whose = f"{len(counts)} clients hold {spread} training samples each{middle}"
    if len(counts) == 1:
        whose = f"One place holds {spread} training samples"
    summary = f"{whose}, of {_span(min(held), max(held))} of {classes} classes."
    words = f"Samples of each class at each client. {summary}"
    svg = draw(counts, description=words, width=width)
    return HeatMap(svg, name, seed, summary, max(max(row) for row in counts))


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def draw(counts: Sequence[Sequence[int]], *, description: str, width: int = 720) -> str:
    """Clients from left to right, classes from top to bottom; darker is more samples.

    ``counts`` are numbers of training samples, [clients][classes]; ``width`` is how wide it will
    be shown, in pixels, so that its words are as large as others.
    """
    import altair as alt

    clients, classes = len(counts), len(counts[0])
    most = max(max(row) for row in counts)
    values = [
        {"x": client, "x2": client + 1, "y": label, "y2": label + 1,
         "share": round(0.12 + 0.88 * count / most, 3)}
        for client, row in enumerate(counts)
        for label, count in enumerate(row)
        if count
    ]  # fmt: skip
    step = max(1, math.ceil(classes / 10))
    ticks = list(range(0, classes, step))
    chart = (
        alt.Chart(alt.InlineData(values))
        .mark_rect(fill=HEAT, stroke=None)
        .encode(
            x=alt.X(
                "x:Q",
                title="client",
                scale=alt.Scale(domain=[0, clients], nice=False),
                axis=alt.Axis(grid=False, tickCount=10, format="d"),
            ),
            x2="x2:Q",
            y=alt.Y(
                "y:Q",
                title="class",
                scale=alt.Scale(domain=[classes, 0], nice=False),
                axis=alt.Axis(
                    grid=False,
                    ticks=False,
                    values=[tick + 0.5 for tick in ticks],
                    labelExpr="floor(datum.value)",
                ),
            ),
            y2="y2:Q",
            fillOpacity=alt.FillOpacity("share:Q", scale=None),
        )
        .properties(width=width, height=max(130, min(300, 15 * classes)))
    )
    return finish(chart, description)
