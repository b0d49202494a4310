"""Regions: a toy example's data, and how its aggregations classify every point of a square."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.fedgo.kinds import Regions
from fedrepro.report.drawing.frame import Frame, axis
from fedrepro.report.drawing.markup import in_svg
from fedrepro.report.drawing.planes import areas
from fedrepro.report.drawing.style import MARK_PATHS, SERIES_COLOURS
from fedrepro.report.pages.figures.base import Drawn, Panel, with_study

DRAWN, DRAWN_OF_ONE = 8, 3  # draws every n-th point of all clients, and of a client or the server
# A client has most points of the Gaussian of its number; the paper's clients 1 to 4 (Appendix E.1)
# are those of the third, fourth, second and first quadrant.
CLIENTS_AS_PRINTED = (2, 3, 1, 0)


def draw(workbench: Workbench, target: FigureTarget, figure: Regions) -> Drawn:
    drawn = Drawn(
        "First a third of the points of the server, which have no class, and of each client; then "
        "the class that the server's model predicts at every point of the square after each "
        "aggregation, with an eighth of all clients' points. Colours and marks are classes; the "
        "panels show the first seed. "
        "In the table every number is the mean over seeds, with the lowest and the highest.",
        (
            "Aggregation",
            "Accuracy on fresh points, %",
            "Of the square as the nearest centre, %",
            "Points whose own client weighs most, %",
            "Seeds",
        ),
    )
    return with_study(drawn, workbench.root, target.study, _add)


def _add(drawn: Drawn, content: dict[str, Any]) -> None:
    """Add a panel per owner of data, and a panel and a row per aggregation."""
    reach = float(content["reach"])
    whole = [(float(x), float(y), int(each)) for x, y, each in content["points"]]
    given = [(float(x), float(y), None) for x, y in content["server_points"][::DRAWN_OF_ONE]]
    words = f"The server's {len(content['server_points'])} points, without classes."
    drawn.panels.append(Panel("data: server", picture([], reach, given, description=words)))
    for number, client in enumerate(CLIENTS_AS_PRINTED, 1):
        owned = zip(whole, content["holders"], strict=True)
        held = [point for point, holder in owned if holder == client]
        sizes = sorted(Counter(each for *_, each in held).items())
        parts = ", ".join(f"{size} of class {each + 1}" for each, size in sizes)
        words = f"Client {number}'s {len(held)} points: {parts}."
        svg = picture([], reach, held[::DRAWN_OF_ONE], description=words)
        drawn.panels.append(Panel(f"data: client {number}", svg))
    points = whole[::DRAWN]
    for name, grid in content["regions"].items():
        shares = [content[key].get(name) for key in ("accuracy", "nearest", "right")]
        accuracy, nearest = shares[0][0], shares[1][0]
        words = (
            f"Regions of three classes under the aggregation {name}: {100 * accuracy:.1f} % of "
            f"fresh points are right, and {100 * nearest:.1f} % of the square goes to the nearest "
            "class."
        )
        svg = picture(grid, reach, points, description=words)
        drawn.panels.append(Panel(name, svg))
        seeds = str(len(content["seeds"]))
        drawn.rows.append((name, *(_spread(values) for values in shares), seeds))
    means = [100 * statistics.fmean(values) for values in content["accuracy"].values()]
    drawn.sees = (
        f"From the worst to the best aggregation, the mean accuracy goes from {min(means):.1f} to "
        f"{max(means):.1f} %."
    )


def _spread(shares: Sequence[float] | None) -> str:
    """In percent; a dash if all clients have the same weight, or none."""
    if not shares:
        return "–"
    low, mean, high = (100 * f(shares) for f in (min, statistics.fmean, max))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})"


def picture(
    grid: Sequence[Sequence[int]],
    reach: float,
    points: Sequence[tuple[float, float, int | None]],
    *,
    description: str,
) -> str:
    """Draw the class of each cell of a square from -reach to reach, and points (x, y, class).

    Args:
        grid: classes, rows from the bottom to the top; empty for points alone.
        points: the class is None for points without one.
    """
    size = 2 * reach / max(len(grid), 1)
    frame = Frame(axis(-reach, reach), axis(-reach, reach), "", 240, 240)
    dots: dict[int, str] = {}
    for x, y, label in points:
        mark = MARK_PATHS[-1 if label is None else label % len(MARK_PATHS)]
        number = len(SERIES_COLOURS) if label is None else label % len(SERIES_COLOURS)
        dots[number] = dots.get(number, "") + frame.path([(x, y)]) + mark
    paths = areas(frame, grid, (-reach, -reach), (size, size))
    drawn = in_svg("classes", areas=paths.items(), points=sorted(dots.items()))
    return frame.svg([drawn], description, grid=False)
