"""Areas, planes, regions and partitions: a cell's shade is read off the SVG where the cell is."""

import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrepro.data.dataset import FORMAT, what_is
from fedrepro.data.partition.partition import PLACE
from fedrepro.papers.fedgo import figure_regions
from fedrepro.report.drawing import planes
from fedrepro.report.drawing.frame import CHARACTER, Axis, Frame, axis
from fedrepro.report.drawing.planes import Mark, Range, Words, range_of
from fedrepro.report.drawing.style import MARK_PATHS
from fedrepro.report.pages.figures import partitions
from fedrepro.support import checksummed_json

NUMBER = r"-?[\d.]+(?:e-?\d+)?"
BOX = re.compile(rf"M({NUMBER}),({NUMBER})H({NUMBER})V({NUMBER})H{NUMBER}z")
SHADED = re.compile(r'<path d="([^"]*)" fill="([^"]*)" [^>]*fill-opacity="([^"]*)"')
LABEL = re.compile(rf'<text x="({NUMBER})" y="({NUMBER})"[^>]*>([^<]*)</text>')


def hits(path: str, x: float, y: float) -> int:
    """How many boxes of a path cover a pixel."""
    boxes = (tuple(map(float, box)) for box in BOX.findall(path))
    return sum(
        min(left, right) < x < max(left, right) and min(top, bottom) < y < max(top, bottom)
        for left, top, right, bottom in boxes
    )


def shades_at(svg: str, x: float, y: float) -> list[tuple[str, float]]:
    """Colour and opacity of the areas that cover a pixel."""
    return [
        (colour, float(opacity))
        for path, colour, opacity in SHADED.findall(svg)
        for _ in range(hits(path, x, y))
    ]


def ground_of(svg: str) -> tuple[float, float, float, float]:
    """Left, top, width and height of the plot."""
    found = re.search(rf'<rect x="({NUMBER})" y="8" width="({NUMBER})" height="({NUMBER})"', svg)
    assert found
    left, width, height = map(float, found.groups())
    return left, 8.0, width, height


@pytest.mark.parametrize("seed", range(6))
def test_areas_cover_each_cell_once_and_nothing_else(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, columns = random.integers(1, 7, 2)
    grid = random.integers(0, 3, (rows, columns)).tolist()
    start, size = (-1.5, 2.0), (0.5, 0.25)
    frame = Frame(
        Axis(-3.0, 4.0, (), ()), Axis(1.0, 5.0, (), ()), "", 700, 400
    )  # larger than the grid
    paths = planes.areas(frame, grid, start, size)
    assert [*paths] == sorted({value for row in grid for value in row})
    for row in range(-2, rows + 2):
        for column in range(-2, columns + 2):
            x = frame.left + 700 * (start[0] + (column + 0.5) * size[0] + 3.0) / 7.0
            y = 8 + 400 * (1 - (start[1] + (row + 0.5) * size[1] - 1.0) / 4.0)
            there = 0 <= row < rows and 0 <= column < columns
            wanted = [grid[row][column]] if there else []
            assert [v for v, path in paths.items() for _ in range(hits(path, x, y))] == wanted
    drawn = planes.shaded({-1: "a", 0: "b", 1: "c", 25: "d"}, 50.0)
    assert [re.search(r'd="(\w)".*opacity="([^"]*)"', one).groups() for one in drawn] == [
        ("c", "0.02"), ("d", "0.5")
    ]  # fmt: skip


@pytest.mark.parametrize("logarithmic", [False, True])
def test_levels_are_round_numbers_within_the_range(logarithmic: bool) -> None:
    for least, most in ((0.1, 10.0), (0.96, 1.0), (1.0, 1.04), (0.3, 7.7), (20.0, 900.0)):
        shared = Range(least, most, logarithmic)
        levels = shared.levels()
        assert levels == sorted({*levels}) and len(levels) <= planes.LEVELS
        assert all(least < level < most for level in levels)
        assert all(float(f"{level:.2g}") == level for level in levels)
        if most / least > 5:
            assert len(levels) == planes.LEVELS
            places = [shared.place(level) for level in levels]
            even = np.arange(1, planes.LEVELS + 1) / (planes.LEVELS + 1)
            assert places == pytest.approx(even, abs=0.06)
    scale = math.log if logarithmic else float
    shared = range_of([[[2.0, math.inf]], [[8.0, 5.0], [math.nan, 3.0]]], logarithmic)
    assert (shared.least, shared.most) == (2.0, 8.0)
    for value in (2.0, 3.0, 5.0, 8.0):
        wanted = (scale(value) - scale(2.0)) / (scale(8.0) - scale(2.0))
        assert shared.place(value) == pytest.approx(wanted)
    assert (shared.place(1.0), shared.place(9.0)) == (0.0, 1.0)
    assert Range(3.0, 3.0, logarithmic).place(3.0) == 0.0


X, Y = [-1.0, 0.0, 1.0, 2.0], [0.5, 1.5, 2.5]
VALUES = [[1.0, 2.0, 3.0, 4.0], [5.0, math.inf, 7.0, 8.0], [9.0, 6.0, 4.5, 2.5]]
MARKS = [Mark("first", -0.4, 1.2, True), Mark("", 1.0, 2.0, True), Mark("mean", 1.6, 0.8, False)]


def plane() -> str:
    shared = Range(1.0, 10.0, logarithmic=False)
    return planes.draw(planes.Grid(X, Y, VALUES), MARKS, shared, title="loss", description="x")


def test_a_plane_has_each_value_s_shade_around_its_place_and_its_marks_where_they_are() -> None:
    """The plot goes half a step beyond the first and the last value."""
    svg = plane()
    left, top, width, height = ground_of(svg)
    assert width == height == planes.SIZE

    def pixel(x: float, y: float) -> tuple[float, float]:
        return left + width * (x + 1.5) / 4.0, top + height * (1 - y / 3.0)

    for row, y in enumerate(Y):
        for column, x in enumerate(X):
            value = VALUES[row][column]
            place = (value - 1) / 9
            shade = round(planes.SHADES * place) if math.isfinite(value) else 0
            wanted = planes.STRONGEST * shade / planes.SHADES
            for away in (-0.45, 0.0, 0.45):
                found = shades_at(svg, *pixel(x + away, y + away))
                assert [opacity for _, opacity in found] == pytest.approx(
                    [wanted] if shade else [], abs=2e-3
                )
    signs = re.findall(rf'<path d="M({NUMBER}),({NUMBER})(m[^"]*)" fill="[^"]*" stroke', svg)
    assert [sign[2] for sign in signs] == [MARK_PATHS[number] for number in range(len(MARKS))]
    for (x, y, _), mark in zip(signs, MARKS, strict=True):
        assert (float(x), float(y)) == pytest.approx(pixel(mark.x, mark.y), abs=0.06)
    texts = {said: (float(x), float(y)) for x, y, said in LABEL.findall(svg)}
    first = pixel(-0.4, 1.2)
    assert texts["first"] == pytest.approx((first[0], first[1] + 20), abs=0.06)  # a corner's: below
    x, y = pixel(1.6, 0.8)
    assert math.dist(texts["mean"], (x, y)) < 60 and texts["mean"] != (x, y)


def test_corners_are_named_below_their_marks_and_others_where_there_is_room() -> None:
    """In whatever order they come."""
    shared = Range(1.0, 10.0, logarithmic=False)
    near = [Mark("mean", 0.5, 1.5, False), Mark("corner", 0.55, 1.5, True)]
    for marks in (near, near[::-1]):
        svg = planes.draw(planes.Grid(X, Y, VALUES), marks, shared, title="loss", description="x")
        left, top, width, height = ground_of(svg)
        texts = {said: (float(x), float(y)) for x, y, said in LABEL.findall(svg)}
        place = left + width * (0.55 + 1.5) / 4, top + height * (1 - 1.5 / 3) + 20
        assert texts["corner"] == pytest.approx(place, abs=0.06)
        assert abs(texts["mean"][1] - place[1]) > 12 or abs(texts["mean"][0] - place[0]) > 40


@pytest.mark.parametrize(("least", "most"), [(1.996, 2.1), (1.0, 10.0), (0.97, 1.04)])
def test_the_numbers_of_a_colour_bar_do_not_cover_each_other(least: float, most: float) -> None:
    values = [[least, most], [most, least]]
    shared = Range(least, most, logarithmic=False)
    svg = planes.draw(
        planes.Grid([0, 1], [0, 1], values), [], shared, title="loss", description="x"
    )
    left, _, width, _ = ground_of(svg)
    beside = [float(y) for x, y, said in LABEL.findall(svg)
              if float(x) > left + width + 10 and said != "loss"]  # fmt: skip
    assert len(beside) >= 2
    assert all(below - above > 10 for below, above in pairwise(beside))


def test_the_colour_bar_has_the_lowest_value_below_and_is_as_dark_as_the_plane() -> None:
    svg = plane()
    left, top, width, height = ground_of(svg)
    cells = [
        (float(y), float(tall), float(opacity))
        for y, tall, opacity in re.findall(
            rf'<rect x="[^"]*" y="({NUMBER})" width="12" height="({NUMBER})"[^>]*'
            r'fill-opacity="([^"]*)"', svg,
        )
    ]  # fmt: skip
    assert len(cells) == 32
    low, high = max(y + tall for y, tall, _ in cells), min(y for y, _, _ in cells)
    for y, tall, opacity in cells:
        share = (low - y - tall / 2) / (low - high)
        assert opacity == pytest.approx(planes.STRONGEST * share, abs=2e-3)
    beside = [
        (float(said), float(y) - 4.5)
        for x, y, said in LABEL.findall(svg)
        if float(x) > left + width + 10 and re.fullmatch(NUMBER, said)
    ]
    assert (beside[0][0], beside[-1][0]) == (1.0, 10.0)
    for value, y in beside:
        assert y == pytest.approx(low + (high - low) * (value - 1) / 9, abs=0.2)
    inner = [value for value, _ in beside[1:-1]]
    levels = Range(1.0, 10.0, logarithmic=False).levels()
    assert inner == [level for level in levels if 1.45 < level < 9.55]
    assert low <= top + height + 0.1


def test_words_on_a_surface_do_not_cover_each_other_nor_leave_it() -> None:
    frame = Frame(axis(0, 1), axis(0, 1), "", 200, 200)
    words = Words(frame)
    random = np.random.default_rng(0)
    shifts = [(0.0, 20.0), (0.0, -9.0), (40.0, 4.5), (-40.0, 4.5)]
    written = 0
    for number in range(60):
        at = tuple(random.uniform(0.05, 0.95, 2))
        before = len(words.taken)
        said = words.write(at, f"name {number}", shifts)
        assert bool(said) == (len(words.taken) == before + 1)
        written += bool(said)
    assert 8 < written < 60
    for left, top, right, bottom in words.taken:
        assert frame.left <= left < right <= frame.left + 200 and top < bottom
    for one in range(written):
        for other in range(one):
            a, b = words.taken[one], words.taken[other]
            assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
    # Above, below, to the left and to the right of others there is room.
    for away in ((0.0, -40.0), (0.0, 40.0), (-60.0, 0.0), (60.0, 0.0)):
        alone = Words(frame)
        assert alone.write((0.5, 0.5), "here", [(0.0, 0.0)])
        assert alone.write((0.5, 0.5), "there", [(0.0, 0.0), away])
        assert not alone.write((0.5, 0.5), "there", [(0.0, 0.0), away])
        assert alone.write((0.5, 0.5), "there", [(0.0, 0.0), away], must=True)


def test_contours_are_labelled_by_their_level_near_their_line() -> None:
    grid = np.linspace(-1, 1, 41).tolist()
    shared = Range(1.0, 10.0, logarithmic=False)
    for height_at in (lambda a, b: 1 + 9 * math.hypot(a, b), lambda a, b: 5.5 + 4.5 * a,
                      lambda a, b: 5.5 - 4.5 * b):  # fmt: skip
        values = [[height_at(a, b) for a in grid] for b in grid]
        labelled_at_their_line(grid, values, shared, height_at)


def labelled_at_their_line(
    grid: list[float], values: Any, shared: Range, height_at: Callable[[float, float], float]
) -> None:
    svg = planes.draw(planes.Grid(grid, grid, values), [], shared, title="loss", description="x")
    left, top, width, height = ground_of(svg)
    inside = [
        (float(said), float(x), float(y) - 4.5)
        for x, y, said in LABEL.findall(svg)
        if left < float(x) < left + width and top < float(y) < top + height
        if re.fullmatch(NUMBER, said)
    ]
    assert len(inside) >= 6 and len({level for level, _, _ in inside}) == len(inside)
    reach = 1 + (grid[1] - grid[0]) / 2
    for level, x, y in inside:
        across, up = (x - left) / width, 1 - (y - top) / height
        found = height_at(across * 2 * reach - reach, up * 2 * reach - reach)
        assert found == pytest.approx(level, abs=0.2)
        assert 0.07 < across < 0.93 and 0.07 < up < 0.93


def test_regions_have_their_class_s_colour_and_points_their_mark() -> None:
    grid = [[0, 1, 1, 2], [0, 0, 1, 2], [2, 2, 1, 0], [7, 2, 1, 0]]
    points = [(-1.5, 0.5, 0), (1.0, 1.75, 2), (0.25, -1.0, None), (0.5, -0.5, 7)]
    svg = figure_regions.picture(grid, 2.0, points, description="x")
    left = float(re.search(rf'd="M({NUMBER}),{NUMBER}H', svg)[1])

    def pixel(x: float, y: float) -> tuple[float, float]:
        return left + 240 * (x + 2) / 4, 8 + 240 * (1 - (y + 2) / 4)

    for row in range(4):
        for column in range(4):
            label = grid[row][column]
            found = shades_at(svg, *pixel(-1.5 + column, -1.5 + row))
            assert found == [(f"var(--series-{label % 6 + 1})", 0.3)]
    signs = {
        (float(x), float(y)): (mark, colour)
        for path, colour in re.findall(r'<path d="([^"z]*m[^"]*)" fill="([^"]*)" stroke="', svg)
        for x, y, mark in re.findall(rf"M({NUMBER}),({NUMBER})(m[^M]*)", path)
    }
    assert len(signs) == len(points)
    for x, y, label in points:
        here = np.array(pixel(x, y))
        (at,) = (place for place in signs if np.abs(np.array(place) - here).max() < 0.1)
        if label is None:
            assert signs[at] == (MARK_PATHS[-1], "var(--figure-ink)")
        else:
            wanted = MARK_PATHS[label % len(MARK_PATHS)], f"var(--series-{label % 6 + 1})"
            assert signs[at] == wanted
    assert not SHADED.findall(figure_regions.picture([], 2.0, points, description="x"))


@pytest.mark.parametrize(("clients", "classes"), [(3, 4), (20, 10), (21, 25), (60, 2)])
def test_a_partition_is_as_dark_as_clients_have_samples(clients: int, classes: int) -> None:
    random = np.random.default_rng(clients)
    counts = random.integers(0, 40, (clients, classes))
    counts[random.random((clients, classes)) < 0.3] = 0
    counts[1, 1] = 90
    svg = partitions.heat_map(counts.tolist(), description="x")
    left, top, width, height = ground_of(svg)
    for client in range(clients):
        for label in range(classes):
            x = left + width * (client + 0.5) / clients
            y = top + height * (label + 0.5) / classes
            count = counts[client, label]
            wanted = [round(12 + 88 * count / 90) / 100] if count else []
            assert [opacity for _, opacity in shades_at(svg, x, y)] == pytest.approx(wanted)
    labels = [(float(x), float(y) - 4.5, said) for x, y, said in LABEL.findall(svg)]
    beside = {said: y for x, y, said in labels if x < left and said}
    assert 2 <= len(beside) <= 10 and "0" in beside
    for said, y in beside.items():
        assert y == pytest.approx(top + height * (int(said) + 0.5) / classes, abs=0.06)
    below = {said: x for x, y, said in labels if y > top + height and said.isdigit()}
    shift = 0.5 if clients <= partitions.FEW else 0.0
    for said, x in below.items():
        assert x == pytest.approx(left + width * (int(said) + shift) / clients, abs=0.06)
    assert len(below) >= 3


@pytest.mark.parametrize("clients", [1, 2, partitions.FEW, partitions.FEW + 1])
@pytest.mark.parametrize("scheme", ["natural", "iid"])
def test_a_partition_is_told_in_numbers_and_few_natural_clients_by_name(
    tmp_path: Path, clients: int, scheme: str
) -> None:
    counts = [[client**2 + 1, 0, 3 * client, 1] for client in range(clients)]
    path = Path("results/partitions/clinics/natural/seed3.json")
    histogram = {
        "name": "natural", "seed": 3, "clients": clients, "classes": 4, "train": counts,
        "spec": {"scheme": scheme}, "test": None,
    }  # fmt: skip
    (tmp_path / path).parent.mkdir(parents=True)
    checksummed_json.write(tmp_path / path, histogram, checksummed_json.place(path, PLACE))
    groups = [f"clinic {number}" for number in range(clients)]
    meta = tmp_path / "results/data/clinics/meta.json"
    meta.parent.mkdir(parents=True)
    for named in (groups, groups[:-1], [*groups, "one more"]):
        content = {"groups": named, "format": FORMAT}
        checksummed_json.write(meta, content, what_is("clinics"))
        found = partitions.draw_partition(tmp_path, path)
        shown = [said for _, _, said in LABEL.findall(found.svg) if said.startswith("clinic")]
        wanted = named == groups and scheme == "natural" and clients <= partitions.FEW
        assert ({*shown} <= {*groups} and len(shown) > 0) == wanted
    sizes = [sum(row) for row in counts]
    held = [sum(count > 0 for count in row) for row in counts]
    numbers = [int(number) for number in re.findall(r"\d+", found.summary)]
    spread = [min(sizes), *([max(sizes), round(float(np.median(sizes)))] if clients > 1 else [])]
    kinds = [min(held), *([max(held)] if min(held) < max(held) else []), 4]
    assert numbers == [*([clients] if clients > 1 else []), *spread, *kinds]
    assert (found.seed, found.most) == (3, max(max(row) for row in counts))


# --- the frame around all of these ----------------------------------------------------------------
@pytest.mark.parametrize("high", [7, 95, 1_000, 123_456, 5e6])
@pytest.mark.parametrize("width", [120, 222, 700])
def test_the_numbers_of_an_axis_fit_beside_each_other_and_into_the_picture(
    high: float, width: int
) -> None:
    for behind in (0.0, 62.0):
        frame = Frame(axis(0, high), axis(0, high), "round", width, 140, behind=behind)
        svg = frame.svg([], "x")
        whole = float(re.search(r'viewBox="0 0 (\d+) ', svg)[1])
        below = [
            (float(x), said)
            for x, said in re.findall(rf'x="({NUMBER})" y="165.0"[^>]*>([^<]*)<', svg)
        ]
        assert len(below) >= 2
        for (x, said), (after, later) in pairwise(below):
            assert x + CHARACTER * len(said) / 2 < after - CHARACTER * len(later) / 2
        last, said = below[-1]
        assert last + CHARACTER * len(said) / 2 <= whole + 0.5
        assert whole - frame.left - width >= behind - 0.5


@pytest.mark.parametrize("label", ["1", "100 %", "1 000 000 %"])
def test_a_title_along_the_vertical_axis_has_room_beside_its_numbers(label: str) -> None:
    up = Axis(0, 1, (0.0, 1.0), ("0", label))
    plain, titled = (Frame(axis(0, 1), up, "", beside=beside) for beside in ("", "loss"))
    for frame, room in ((plain, 0), (titled, 14)):
        x = float(re.search(rf'<text x="({NUMBER})"[^>]*>{label}<', frame.svg([], "x"))[1])
        assert x - CHARACTER * len(label) >= room
    assert titled.left > plain.left
