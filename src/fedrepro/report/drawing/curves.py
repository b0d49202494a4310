"""Learning curves: mean and range over seeds, and the chart of one panel."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

from fedrepro.report.drawing.frame import CHARACTER, Frame, axis, counting
from fedrepro.report.drawing.markup import in_svg
from fedrepro.report.drawing.style import MARK_PATHS, SERIES_COLOURS, style_of

Points = Sequence[tuple[float, float]]
SIZE = (222, 140)  # of a panel among others, in pixels
KEY_ROW = 20  # pixels from name to name
MARKS = 7  # per line, so that lines can be told apart without colour


@dataclass(frozen=True)
class Line:
    """One learning curve: the mean over seeds, and the range if there are several.

    Attributes:
        points: (round, value).
        low, high: the seeds' smallest and largest value at each point, or empty.
        level: a printed value to compare with, drawn as a thin horizontal line.
        raw: the values before smoothing, drawn as a thin line beneath.
        begins: rounds at which something begins, such as a moving average; vertical lines.
    """

    name: str
    points: Points
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    level: float | None = None
    raw: Points = ()
    begins: Sequence[float] = ()


def draw(
    lines: Sequence[Line],
    *,
    description: str,
    names: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    unit: str = "%",
    across: str = "round",
    beside: str = "",
    starts: bool = False,
    size: tuple[int, int] = SIZE,
) -> str:
    """Learning curves of one panel, as SVG.

    ``description`` is the figure's text for screen readers; ``names`` has the names of all lines in
    the order of their styles (default: these lines); ``limits`` are the vertical axis's, if several
    panels share it; ``across`` names the horizontal axis, ``beside`` labels the vertical one;
    ``starts`` says that lines begin at IMA's t_s, and labels it; ``size`` is the plot's width and
    height in pixels, without the margins.
    """
    if limits:
        lines = [cut(line, limits[0]) for line in lines]
    order = list(names or [line.name for line in lines])
    ends = [line.points[index][0] for line in lines for index in (0, -1) if line.points]
    horizontal = counting if across == "round" else axis
    low, high = limits or (min(_heights(lines)), max(_heights(lines)))
    frame = Frame(
        horizontal(min(0.0, *ends), max(ends)),
        axis(low, high, unit=unit, nice=not limits),
        across,
        *size,
        beside=beside,
    )
    drawn = [_drawn(frame, line, order.index(line.name) % len(SERIES_COLOURS)) for line in lines]
    places = {at for line in lines for at in line.begins} if starts else set()
    svg = in_svg("curves", frame=frame, lines=drawn, starts=sorted(places))
    return frame.svg([svg], description)


def with_key(svg: str, names: Sequence[str]) -> str:
    """A chart with its lines' names below it, for use without a page.

    Args:
        svg: what :func:`draw` returned for lines with these names.
    """
    size = re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0]
    width, height = map(int, size)
    styles = [(name, style_of(number)) for number, name in enumerate(names)]
    key = in_svg("key", names=styles, top=height + 14, step=KEY_ROW)
    width = max(width, round(62 + CHARACTER * max(map(len, names))))
    height += 8 + KEY_ROW * len(names)
    larger = svg.replace(f'viewBox="0 0 {size[0]} {size[1]}"', f'viewBox="0 0 {width} {height}"')
    return f"{larger.removesuffix('</svg>')}{key}</svg>"


def _heights(lines: Sequence[Line]) -> list[float]:
    """All values that the vertical axis must include."""
    values = [value for line in lines for _, value in (*line.points, *line.raw)]
    values += [value for line in lines for value in (*line.low, *line.high)]
    return values + [line.level for line in lines if line.level is not None]


def _drawn(frame: Frame, line: Line, number: int) -> SimpleNamespace:
    """A line with its style, and the paths around its range and of its marks.

    A few points are marked, including the last; all of a short line.
    """
    last, rounds = len(line.points) - 1, [at for at, _ in line.points]
    ends = [*zip(rounds, line.high, strict=False)]
    ends += [*zip(rounds[::-1], line.low[::-1], strict=False)]
    marked = last + 1 if last < 2 * MARKS else MARKS
    chosen = sorted({round(last * index / max(marked - 1, 1)) for index in range(marked)})
    marks = (frame.path([line.points[index]]) + MARK_PATHS[number] for index in chosen)
    return SimpleNamespace(
        of=line,
        number=number,
        style=style_of(number),
        around=frame.path(ends) if ends else "",
        marks="".join(marks),
    )


def bounds(panels: Sequence[Sequence[Line]]) -> tuple[float, float] | None:
    """Limits of a vertical axis that all panels share, rounded outwards to a multiple of five.

    The first fifth of the rounds, in which all methods rise from chance level, does not count: it
    would compress the rest.
    """
    values = []
    for line in (line for lines in panels for line in lines):
        settled = [index for index, (number, _) in enumerate(line.points) if late(line, number)]
        values += [line.points[index][1] for index in settled]
        values += [value for number, value in line.raw if late(line, number)]
        values += [ends[index] for ends in (line.low, line.high) if ends for index in settled]
        values += [line.level] if line.level is not None else []
    if not values:
        return None
    low, high = 5 * math.floor(min(values) / 5), 5 * math.ceil(max(values) / 5)
    return (low, high) if high > low else (low - 5, high + 5)


def late(line: Line, number: float) -> bool:
    """Return True if a round is after the first fifth of a line's rounds."""
    return number > line.points[-1][0] / 5


def cut(line: Line, low: float) -> Line:
    """The line without points below ``low``, all of which are in its first rounds."""
    kept = [index for index, (_, value) in enumerate(line.points) if value >= low]
    return replace(
        line,
        points=[line.points[index] for index in kept],
        low=[max(line.low[index], low) for index in kept] if line.low else (),
        high=[line.high[index] for index in kept] if line.high else (),
        raw=[point for point in line.raw if point[1] >= low],
    )


def average(name: str, runs: Sequence[Points], level: float | None = None) -> Line | None:
    """The mean of several seeds' curves over their common rounds; None without any."""
    by_round: dict[float, list[float]] = {}
    for points in runs:
        for number, value in points:
            if math.isfinite(value):
                by_round.setdefault(number, []).append(value)
    shared = sorted(number for number, values in by_round.items() if len(values) == len(runs))
    if not shared:
        return None
    points = [(number, math.fsum(by_round[number]) / len(runs)) for number in shared]
    if len(runs) == 1:
        return Line(name, points, level=level)
    low = [min(by_round[number]) for number in shared]
    high = [max(by_round[number]) for number in shared]
    return Line(name, points, low, high, level)


def smoothed(line: Line, rounds: int) -> Line:
    """A moving average over at most that many points, above the raw line; without a range."""
    if rounds < 2:
        return line
    return replace(line, points=averaged(line.points, rounds), low=(), high=(), raw=line.points)


def averaged(points: Points, rounds: int) -> Points:
    """A moving average over at most that many points."""
    values, means = [value for _, value in points], []
    for index, (number, _) in enumerate(points):
        last = values[max(0, index + 1 - rounds) : index + 1]
        means.append((number, math.fsum(last) / len(last)))
    return means
