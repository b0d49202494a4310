"""Regions: how a toy example's aggregations classify every point of a square."""

import statistics
from collections.abc import Sequence
from typing import Any

from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.fedgo.kinds import Regions
from fedrepro.report.drawing import regions
from fedrepro.report.pages.figures.base import Drawn, damaged
from fedrepro.report.pages.figures.panel import Panel
from fedrepro.run.made import read_made

DRAWN = 8  # draws every n-th point


def draw(workbench: Workbench, target: FigureTarget, figure: Regions) -> Drawn:
    assert target.study is not None
    found = read_made(workbench.root, target.study)
    drawn = Drawn(
        "Colours show the class that the server's model predicts at every point of the square, "
        "for the first seed; marks are an eighth of the clients' points with their true class. "
        "In the table every number is the mean over seeds, with the lowest and the highest.",
        (
            "Aggregation",
            "Accuracy on fresh points, %",
            "Of the square as the nearest centre, %",
            "Points whose own client weighs most, %",
            "Seeds",
        ),
    )
    if found is None:
        return drawn
    try:
        _add(drawn, found)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise damaged(target.study, error) from None
    return drawn


def _add(drawn: Drawn, found: dict[str, Any]) -> None:
    """A panel and a row per aggregation."""
    points = [(float(x), float(y), int(each)) for x, y, each in found["points"][::DRAWN]]
    for name, grid in found["regions"].items():
        shares = [found[key].get(name) for key in ("accuracy", "nearest", "right")]
        accuracy, nearest = shares[0][0], shares[1][0]
        words = (
            f"Regions of three classes under the aggregation {name}: {100 * accuracy:.1f} % of "
            f"fresh points are right, and {100 * nearest:.1f} % of the square goes to the nearest "
            "class."
        )
        svg = regions.draw(grid, float(found["reach"]), points, description=words)
        drawn.panels.append(Panel(name, svg))
        seeds = str(len(found["seeds"]))
        drawn.rows.append((name, *(_spread(values) for values in shares), seeds))
    means = [100 * statistics.fmean(values) for values in found["accuracy"].values()]
    drawn.caption += (
        f" From the worst to the best aggregation, the mean accuracy goes from {min(means):.1f} to "
        f"{max(means):.1f} %."
    )


def _spread(shares: Sequence[float] | None) -> str:
    """In percent; a dash if all clients have the same weight, or none."""
    if not shares:
        return "–"
    low, mean, high = (100 * f(shares) for f in (min, statistics.fmean, max))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})"
