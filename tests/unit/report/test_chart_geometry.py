"""What charts draw is where the numbers are: read off the SVG by its axes, not by its code."""

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest

from fedrepro.report.drawing import charts, curves, forest, frame
from fedrepro.report.drawing.charts import Bar
from fedrepro.report.drawing.curves import Line
from fedrepro.report.papers.ranks import MeanRanks

NUMBER = r"-?[\d.]+(?:e-?\d+)?"
SPANS = [
    (0, 1), (0, 100), (-3, 7), (0.2, 0.9), (81.3, 84.6), (-1e-4, 2e-4), (0, 1234567), (5, 5),
    (0, 0), (-7, -7), (1e-3, 2.5e-3), (0, 19), (0, 20), (0, 21), (0, 49.9), (0, 50), (99.9, 100.1),
]  # fmt: skip


def value_of(label: str) -> float:
    """A tick's label as a number."""
    for before, after in (("\N{NARROW NO-BREAK SPACE}", ""), (frame.MINUS, "-"), (" %", "")):
        label = label.replace(before, after)
    return float(label)


@pytest.mark.parametrize("nice", [False, True])
@pytest.mark.parametrize(("low", "high"), SPANS)
def test_an_axis_has_some_round_numbers_within_its_ends(
    low: float, high: float, nice: bool
) -> None:
    made = frame.axis(low, high, nice=nice, unit="%")
    steps = np.diff(made.ticks)
    assert steps == pytest.approx(steps[0])
    first = float(f"{steps[0]:.0e}".partition("e")[0])
    assert first in (1, 2, 5) and f"{steps[0]:.6e}"[1:8] == ".000000"
    assert 2 <= len(made.ticks) <= 10
    room = 1e-9 * steps[0]
    assert made.low - room <= made.ticks[0] < made.low + steps[0] * (1 + 1e-9)
    assert made.high - steps[0] * (1 + 1e-9) < made.ticks[-1] <= made.high + room
    assert made.low <= low <= high <= made.high and made.low < made.high
    if nice:
        assert (made.low, made.high) == pytest.approx((made.ticks[0], made.ticks[-1]), abs=room)
    elif low < high:
        assert (made.low, made.high) == (low, high)
    assert all(label.endswith(" %") for label in made.labels)
    read = [value_of(label) for label in made.labels]
    assert read == pytest.approx(made.ticks, rel=1e-2, abs=room + 1e-12)
    assert len({*made.labels}) == len(made.labels) and f"{frame.MINUS}0 %" not in made.labels
    middle = (made.low + made.high) / 2
    assert [made.place(each) for each in (made.low, middle, made.high)] == pytest.approx(
        [0, 0.5, 1]
    )
    assert made.place(made.low - 9 * steps[0]) == 0 and made.place(made.high + 9 * steps[0]) == 1


@pytest.mark.parametrize("high", [1, 2, 3, 5, 7, 12, 40, 1000])
def test_rounds_are_counted_in_whole_numbers(high: int) -> None:
    made = frame.counting(0, high)
    assert all(tick == int(tick) for tick in made.ticks) and 0 in made.ticks
    assert [value_of(label) for label in made.labels] == [*made.ticks]
    assert made.ticks[-1] <= high and (made.low, made.high) == (0, high)


def points_of(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(rf"[ML]({NUMBER}),({NUMBER})", path)]


def places_of_ticks(svg: str) -> tuple[dict[float, float], dict[float, float]]:
    """Pixels of the ticks of the horizontal and the vertical axis, by their numbers."""
    texts = re.findall(
        rf'<text x="({NUMBER})" y="({NUMBER})" text-anchor="(\w+)">([^<]*)</text>', svg
    )
    across, up = {}, {}
    for x, y, anchor, label in texts:
        try:
            number = value_of(label)
        except ValueError:
            continue
        if anchor == "middle":
            across[number] = float(x)
        elif anchor == "end":
            up[number] = float(y) - 4.5
    return across, up


def read_off(ticks: dict[float, float], pixels: Sequence[float]) -> list[float]:
    """Numbers at some pixels, by a straight line through the ticks."""
    slope, start = np.polyfit([*ticks.values()], [*ticks], 1)
    return [slope * each + start for each in pixels]


def test_a_curve_its_range_and_its_printed_number_are_where_their_numbers_are() -> None:
    rounds = [1, 3, 4, 8]
    runs = [[10.0, 30.0, 50.0, 60.0], [20.0, 40.0, 40.0, 90.0]]
    line = curves.average("a", [[*zip(rounds, run, strict=True)] for run in runs], 75.0)
    assert line is not None
    svg = curves.draw([line], description="x", unit="%")
    across, up = places_of_ticks(svg)
    assert len(across) > 2 and len(up) > 2
    paths = {
        kind: points_of(path)
        for kind, path in (
            ("range", re.findall(r'<path d="(M[^"]*Z)"', svg)[0]),
            (
                "curve",
                re.findall(r'<path d="(M[^"]*)" fill="none" [^>]*stroke-width="1.8"', svg)[0],
            ),
            ("level", re.findall(r'<path d="(M[^"]*)" fill="none" [^>]*dasharray="1,3"', svg)[0]),
        )
    }
    means = [15, 35, 45, 75]
    assert read_off(across, [x for x, _ in paths["curve"]]) == pytest.approx(rounds, abs=0.05)
    assert read_off(up, [y for _, y in paths["curve"]]) == pytest.approx(means, abs=0.3)
    ends = [20, 40, 50, 90, 60, 40, 30, 10]  # there above, and back below
    assert read_off(up, [y for _, y in paths["range"]]) == pytest.approx(ends, abs=0.3)
    back = [*rounds, *rounds[::-1]]
    assert read_off(across, [x for x, _ in paths["range"]]) == pytest.approx(back, abs=0.05)
    assert read_off(up, [paths["level"][0][1]]) == pytest.approx([75], abs=0.3)


@pytest.mark.parametrize("count", [1, 2, 6, 7, 8, 14, 15, 16, 100])
def test_a_line_has_marks_from_its_first_to_its_last_point(count: int) -> None:
    line = Line("a", [(number, float(number % 5)) for number in range(1, count + 1)])
    svg = curves.draw([line], description="x")
    (curve,) = re.findall(r'<path d="(M[^"]*)" fill="none" [^>]*stroke-width="1.8"', svg)
    marks = re.findall(rf'<path d="((?:M{NUMBER},{NUMBER}m[^M]*)+)" fill="var', svg)
    there = points_of(curve)
    marked = [(float(x), float(y)) for x, y in re.findall(rf"M({NUMBER}),({NUMBER})m", marks[-1])]
    assert marked[0] == there[0] and marked[-1] == there[-1] and {*marked} <= {*there}
    assert len(marked) == (count if count <= 14 else 7)


def test_means_over_seeds_and_rounds_by_numpy() -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=(3, 9))
    runs = [[*zip(range(1, 10), row.tolist(), strict=True)] for row in values]
    runs[1] = [*runs[1][:-2], (8, math.nan), (9, 1.0)]  # no number in round 8
    del runs[2][0]  # nor in round 1
    line = curves.average("a", runs)
    assert line is not None
    shared = [at for at in range(9) if at not in (0, 7)]
    last = values[:, shared]
    last[1, -1] = 1.0
    assert [number for number, _ in line.points] == [at + 1 for at in shared]
    assert [value for _, value in line.points] == pytest.approx(last.mean(0))
    assert [*line.low] == pytest.approx(last.min(0)) and [*line.high] == pytest.approx(last.max(0))
    alone = curves.average("a", runs[:1], 5.0)
    assert alone == Line("a", runs[0], level=5.0)
    assert curves.average("a", [runs[0][:2], runs[0][3:]]) is None
    for rounds in (1, 2, 3, 20):
        moving = curves.averaged(runs[0], rounds)
        wanted = [values[0][max(0, at + 1 - rounds) : at + 1].mean() for at in range(9)]
        assert [value for _, value in moving] == pytest.approx(wanted)
        assert [number for number, _ in moving] == [*range(1, 10)]
        smooth = curves.smoothed(line, rounds)
        assert smooth == line if rounds < 2 else (smooth.raw, smooth.low) == (line.points, ())


def test_shared_limits_leave_out_the_first_fifth() -> None:
    low = Line("a", [(number, 3.0 if number <= 20 else 41.0) for number in range(1, 101)])
    high = Line("b", [(10, 2.0), (50, 68.0)], low=[1.0, 66.0], high=[2.0, 71.0], level=None)
    assert curves.bounds([[low]]) == (40, 45)
    assert curves.bounds([[low], [high]]) == (40, 75)
    assert curves.bounds([[Line("c", [(1, 50.0)], level=83.0)]]) == (50, 85)
    assert curves.bounds([[Line("c", [(1, 50.0)])]]) == (45, 55) and curves.bounds([[]]) is None
    raw = Line("d", [(10, 50.0)], raw=[(1, 9.0), (2, 90.0), (3, 61.0)])
    assert curves.bounds([[raw]]) == (50, 65)  # the first fifth is up to round 2
    cut = curves.cut(
        Line("e", [(1, 1.0), (2, 9.0)], [0.0, 4.0], [2.0, 9.5], raw=[(1, 6.0), (2, 1.0)]), 5
    )
    assert (cut.points, cut.low, cut.high, cut.raw) == ([(2, 9.0)], [5], [9.5], [(1, 6.0)])


def test_bars_begin_at_zero_and_end_at_their_numbers() -> None:
    drawn = [Bar("a", 3.0, 2.5, 4.0), Bar("b", -1.5, -2.0, -1.0), Bar("c", 0.25, 0.2, 0.3)]
    svg = charts.bars(drawn, description="x")
    across, _ = places_of_ticks(svg)
    boxes = re.findall(
        rf'd="M({NUMBER}),({NUMBER})H({NUMBER})V[^"]*z" fill="[^"]*" fill-opacity', svg
    )
    spans = re.findall(
        rf'd="M({NUMBER}),({NUMBER})H({NUMBER})" stroke="[^"]*" stroke-width="1.6"', svg
    )
    texts = re.findall(
        rf'<text x="({NUMBER})" y="({NUMBER})" [^>]*anchor="start"[^>]*>([^<]*)<', svg
    )
    for bar, box, span, said in zip(drawn, boxes, spans, texts, strict=True):
        left, right = read_off(across, [float(box[0]), float(box[2])])
        assert (left, right) == pytest.approx(sorted((0.0, bar.value)), abs=0.03)
        low, high = read_off(across, [float(span[0]), float(span[2])])
        assert (low, high) == pytest.approx((bar.low, bar.high), abs=0.03)
        assert float(said[2].replace(frame.MINUS, "-")) == bar.value
        assert float(said[0]) > float(span[2])
    heights = [float(span[1]) for span in spans]
    assert heights == sorted(heights)  # in their order from above
    names = re.findall(rf'<text x="{NUMBER}" y="({NUMBER})" text-anchor="end">(\w)</text>', svg)
    assert {name: float(y) - 4.5 for y, name in names} == pytest.approx(
        dict(zip("abc", heights, strict=True)), abs=0.06
    )


def test_mean_ranks_are_on_their_line_and_bars_join_what_is_alike() -> None:
    means = {"a": 1.2, "b": 1.9, "c": 2.5, "own": 4.1, "e": 5.3}
    found = MeanRanks(means, 9, 1.0)
    svg = charts.diagram(found, "own", "x")
    ticks = {
        float(number): float(x)
        for x, number in re.findall(
            rf'<text x="({NUMBER})" y="48.0" text-anchor="middle">(\d)<', svg
        )
    }
    assert [*ticks] == [1, 2, 3, 4, 5]
    lines = [
        (float(x), colour)
        for x, colour in re.findall(rf'd="M({NUMBER}),58V[^"]*" stroke="([^"]*)"', svg)
    ]
    assert read_off(ticks, [x for x, _ in lines]) == pytest.approx([*means.values()], abs=0.01)
    colours = [colour for _, colour in lines]
    assert colours.count(colours[3]) == 1 and len({*colours}) == 2
    bars = re.findall(rf'd="M({NUMBER}),{NUMBER}H({NUMBER})" stroke="[^"]*" stroke-width="4"', svg)
    # a and b, b and c are within one; own and e are not.
    joined = [read_off(ticks, [float(left) + 3, float(right) - 3]) for left, right in bars]
    assert joined == [pytest.approx([1.2, 1.9], abs=0.02), pytest.approx([1.9, 2.5], abs=0.02)]
    (length,) = re.findall(rf"m0,-3h({NUMBER})", svg)
    assert float(length) == pytest.approx(
        ticks[2] - ticks[1], abs=0.06
    )  # a critical difference of 1
    shown = {name: f"{mean:.2f}" for name, mean in means.items()}
    for name, mean in shown.items():
        assert re.search(rf">({name} {mean}|{mean} {name})<", svg)
    wide = charts.diagram(MeanRanks(means, 1, 99.0), None, "x")
    assert float(re.findall(rf"m0,-3h({NUMBER})", wide)[0]) == ticks[5] - ticks[1]


def test_the_strips_of_a_table_share_one_scale() -> None:
    estimates = [(2.0, 0.5), (-3.0, 1.0), (0.5, 0.0)]
    drawn = forest.strips(estimates)
    axis = forest.strips_axis(estimates)
    width = int(re.search(r'viewBox="0 0 (\d+) ', axis)[1])
    ticks = {
        float(label.replace(frame.MINUS, "-")): float(x)
        for x, label in re.findall(rf'<text x="({NUMBER})"[^>]*>([^<]*)<', axis)
    }
    assert ticks[0.0] == width / 2 and sorted(ticks) == [-2.0, 0.0, 2.0]
    for (mean, half), svg in zip(estimates, drawn, strict=True):
        (left, right) = re.findall(
            rf'd="M({NUMBER}),{NUMBER}H({NUMBER})" stroke="[^"]*" stroke-w', svg
        )[0]
        (mark,) = re.findall(rf'd="M({NUMBER}),\d+m', svg)
        found = read_off(ticks, [float(left), float(mark), float(right)])
        assert found == pytest.approx([mean - half, mean, mean + half], abs=0.02)
    # The widest interval just fits.
    assert (
        min(float(each) for svg in drawn for each in re.findall(rf"M({NUMBER}),9H", svg)[1:]) == 6
    )


# --- what must fit, and where words stand ---------------------------------------------------------
LABELS = re.compile(rf'<text x="({NUMBER})" y="({NUMBER})"([^>]*)>([^<]*)</text>')


@pytest.mark.parametrize("reach", [1.0, 1.0001, 1.999, 2.0, 4.9, 99.0, 0.1, 0.03, 12_345.0])
def test_the_numbers_of_a_strip_s_axis_are_not_cut_off(reach: float) -> None:
    axis = forest.strips_axis([(reach, 0.0)])
    shown = LABELS.findall(axis)
    tick = max(float(said.replace(frame.MINUS, "-")) for *_, said in shown)
    assert reach / 2.5 < tick <= reach * (1 + 1e-6) and f"{tick:e}"[0] in "125"
    places = {said: float(x) for x, _, _, said in shown}
    for said, x in places.items():
        assert 3.2 * len(said) - 0.05 <= x <= forest.WIDTH - 3.2 * len(said) + 0.05
    lines = [float(x) for x in re.findall(rf'd="M({NUMBER}),14v4"', axis)]
    inner = forest.WIDTH / 2 - forest.MARGIN
    wanted = [forest.WIDTH / 2 + sign * inner * tick / reach for sign in (-1, 0, 1)]
    assert lines == pytest.approx(wanted, abs=0.06)


@pytest.mark.parametrize(("count", "apart"), [(2, 5), (24, 5), (25, 2), (40, 2)])
def test_many_comparisons_are_drawn_closer_together(count: int, apart: int) -> None:
    single = [(-1.0 - at, 0.5, 1.0 + at) for at in range(count)]
    for overall in (None, (0.0, 0.5, 1.0)):
        svg = forest.forest(single, overall, None, "x")
        rows = [float(y) for y in re.findall(rf'd="M{NUMBER},({NUMBER})H{NUMBER}" stroke=', svg)]
        rows = (
            [y for y in rows[1:] if y != forest.HEIGHT - 0.5][:count] if overall else rows[-count:]
        )
        assert [*np.diff(rows)] == [apart] * (count - 1)
        tall = float(re.search(r'viewBox="0 0 200 (\d+)"', svg)[1])
        assert max(rows) + forest.HEIGHT + (8 if overall else 0) < tall


def test_a_verdict_of_less_than_a_half_width_is_not_magnified() -> None:
    """The plot goes to one half width at least, on either side."""
    for wide, reach in ((0.4, 1.0), (1.0, 1.0), (3.0, 3.0)):
        bar = forest.Bar((-wide, wide / 4, wide / 2), "red", "about", "name", "page.html")
        svg = forest.verdicts([bar], "x")
        (ends,) = re.findall(rf'd="M({NUMBER}),{NUMBER}H({NUMBER})" stroke="red"', svg)
        unit = (340 / 2 - forest.MARGIN) / reach
        wanted = (170 - wide * unit, 170 + wide / 2 * unit)
        assert tuple(map(float, ends)) == pytest.approx(wanted, abs=0.06)


@pytest.mark.parametrize("names", [["a"], ["short", "a name that is much wider than the chart is"]])
def test_a_key_names_each_line_in_its_colour_below_the_chart(names: list[str]) -> None:
    lines = [Line(name, [(0, at), (9, at + 2.0)]) for at, name in enumerate(names)]
    plain = curves.draw(lines, description="x")
    tall = int(re.search(r'viewBox="0 0 \d+ (\d+)"', plain)[1])
    svg = curves.with_key(plain, names)
    width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    shown = [(float(x), float(y), said) for x, y, _, said in LABELS.findall(svg) if said in names]
    assert [said for _, _, said in shown] == names
    for number, (x, y, said) in enumerate(shown):
        assert tall < y < height - 2 and x + frame.CHARACTER * len(said) <= width
        colour = f"var(--series-{number + 1})"
        assert svg.count(f'{y - 4.5:g}h32" stroke="{colour}"') == 1
    assert len({y for _, y, _ in shown}) == len(names)


@pytest.mark.parametrize("begins", [1.0, 5.0, 8.0, 9.0, 10.0])
def test_where_averaging_begins_is_named_beside_its_line_within_the_plot(begins: float) -> None:
    line = Line("a", [(0, 1.0), (10, 2.0)], begins=[begins])
    svg = curves.draw([line], description="x", starts=True)
    (at,) = (float(x) for x in re.findall(rf'<line x1="({NUMBER})"', svg))
    across, _ = places_of_ticks(svg)
    assert read_off(across, [at]) == pytest.approx([begins], abs=0.05)
    x, anchor = re.search(rf'<text x="({NUMBER})" y="19" text-anchor="(\w+)"', svg).groups()
    end = float(x) + (20 if anchor == "start" else -20)
    edges = [value for key, value in across.items() if key in (0.0, 10.0)]
    assert min(edges) <= end <= max(edges) and 0 < abs(float(x) - at) < 8
    assert (float(x) > at) == (anchor == "start") == (begins < 8.5)
    assert "<tspan" not in curves.draw([line], description="x")


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("critical", [0.5, 1.5, 2.5])
def test_names_stand_in_two_columns_below_all_bars_and_none_on_another(
    count: int, critical: float
) -> None:
    """The better half on the left; the lines of no two cross, as the outermost are lowest."""
    means = {f"method {at}": 1.0 + at * (count - 1) / count for at in range(count)}
    svg = charts.diagram(MeanRanks(means, 9, critical), None, "x")
    _, tall = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    bars = [float(y) for y in re.findall(rf'd="M{NUMBER},({NUMBER})H{NUMBER}" stroke="[^"]*" '
                                         'stroke-width="4"', svg)]  # fmt: skip
    assert len(bars) == len(MeanRanks(means, 9, critical).groups) == len({*bars})
    columns: dict[str, list[tuple[float, str]]] = {"end": [], "start": []}
    for _, y, more, said in LABELS.findall(svg):
        if name := re.search(r"method \d+", said):
            columns[re.search(r'anchor="(\w+)"', more)[1]].append((float(y), name[0]))
    for column in columns.values():
        assert all(max(bars, default=0) < y < tall for y, _ in column)
        assert all(below - above >= 17 for (above, _), (below, _) in zip(
            sorted(column), sorted(column)[1:], strict=False))  # fmt: skip
    half = -(-count // 2)
    assert [name for _, name in sorted(columns["end"])] == [*means][:half]
    assert [name for _, name in sorted(columns["start"])] == [*means][half:][::-1]
