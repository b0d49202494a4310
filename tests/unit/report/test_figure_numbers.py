"""The numbers of figures, from made-up results and analyses: no run is needed."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedrepro.config.figures import Charts, HeatMap, Shown, Trend
from fedrepro.config.targets import RunKey
from fedrepro.report.cells.cell import CellRun, Result, comparable
from fedrepro.report.drawing import sheet
from fedrepro.report.pages.figures import (
    bars,
    base,
    heat_map,
    landscape,
    lines,
    planes,
    segments,
    sheets,
    trend,
)
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.report.pages.figures.landscape import Surface
from fedrepro.report.pages.figures.planes import Model, Through
from support.refusals import refused

SEEDS = (1, 2, 3)
NUMBER = r"-?\d+(?:\.\d+)?"


def target(scale: str = "paper", seeds: tuple[int, ...] = SEEDS) -> Any:
    made = SimpleNamespace(scale=scale, seeds=seeds, system="own", runs=(), item="figure_1")

    def runs_in(setting: str, method: str) -> list[RunKey]:
        return [RunKey(f"own/{setting}", method, seeds[0])]

    def analyses_in(setting: str, method: str, part: str = "") -> list[Path]:
        return [run.analysis("landscapes", part) for run in runs_in(setting, method)]

    made.runs_in, made.analyses_in = runs_in, analyses_in
    return made


def result(setting: str, method: str, values: Mapping[int, float]) -> Result:
    """With a worse method beside it, whose numbers no figure shows."""
    runs = [
        CellRun(name, seed, "finished", "", value - away, False, (), "", None)
        for name, away in (("other", 50.0), (method, 0.0))
        for seed, value in values.items()
    ]
    known = [*values.values()]
    mean = sum(known) / len(known) if known else None
    chosen = method if known else None
    return Result(
        setting, ("other", method), chosen, {}, tuple(runs), None, "", len(known), mean, None, None
    )


def given(monkeypatch: pytest.MonkeyPatch, module: Any, made: Mapping[Any, Any]) -> None:
    """Let a figure find these values by seed, by setting and method; none elsewhere."""

    def found(_bench: Any, _target: Any, shown: Shown, *_: Any) -> Result:
        method = shown.methods[0]
        return result(shown.setting, method, made.get((shown.setting, method), {}))

    monkeypatch.setattr(module, "result_at", found)


# --- the best -------------------------------------------------------------------------------------
def test_a_lost_seed_disqualifies_and_a_stale_one_does_not() -> None:
    """Two seeds of older data are left out; they leave the mean of the third as good as any."""
    plain = result("s/x", "plain", {1: 70.0})
    kept = result("s/x", "kept", {1: 80.0})
    for state, counts in (("left out", True), ("not run", True), ("diverged", False)):
        lost = CellRun("kept", 2, state, "why", None, False, (), "", None)  # type: ignore[arg-type]
        best = comparable({"plain": plain, "kept": replace(kept, runs=(*kept.runs, lost))})
        assert ("kept" in best) == counts, state


def test_only_current_numbers_are_the_best_beside_stale_ones() -> None:
    old = result("s/x", "old", {1: 90.0})
    stale = replace(old, runs=tuple(replace(run, data="of other data") for run in old.runs))
    current = {name: result("s/x", name, {1: 70.0}) for name in ("a", "b")}
    assert comparable({**current, "old": stale}) == {"a": 70.0, "b": 70.0}
    assert comparable({"old": stale}) == {"old": 90.0}


# --- trends ---------------------------------------------------------------------------------------
def test_a_trend_spans_the_seeds_and_its_points_are_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the order of the file; a point without a number is left out."""
    points = [
        {"at": at, "setting": f"s{at}", "methods": ["fedavg", "fedprox"]} for at in (0.5, 0.1, 2.0)
    ]
    figure = Trend.model_validate({
        "kind": "trend", "title": "T", "lines": ["A", "B"],
        "panels": [{"label": "P", "x": "alpha", "points": points}],
    })  # fmt: skip
    made = {
        ("s0.5", "fedavg"): {1: 60.0, 2: 75.0, 3: 63.0}, ("s0.1", "fedavg"): {1: 50.0, 2: 41.0},
        ("s2.0", "fedavg"): {1: 80.0}, ("s0.1", "fedprox"): {1: 70.0, 2: 72.0},
        ("s2.0", "fedprox"): {1: 10.0, 2: 20.0, 3: 60.0},
    }  # fmt: skip
    for seeds in (SEEDS, SEEDS[:2], SEEDS[:1]):
        given(monkeypatch, trend, made)
        drawn = trend.draw(None, target(seeds=seeds), figure)
        rows = {(row[1], row[3]): row[4:] for row in drawn.rows}
        assert rows == {
            (setting[1:].removesuffix(".0"), method): (
                f"{np.mean([*values.values()]):.2f}", f"{min(values.values()):.2f}",
                f"{max(values.values()):.2f}", str(len(values)),
            )
            for (setting, method), values in made.items()
        }  # fmt: skip
        (panel,) = drawn.panels
        curves = re.findall(r'd="M([^"Zm]*)" fill="none" [^>]*stroke-width="1.8"', panel.svg)
        places = [[float(at.split(",")[0]) for at in curve.split("L")] for curve in curves]
        assert [len(each) for each in places] == [3, 2]
        assert all(each == sorted(each) for each in places)
        assert panel.svg.count('opacity="0.16"') == (2 if len(seeds) > 1 else 0)
        assert "A 45.50 to 80.00" in panel.svg and "B 71.00 to 30.00" in panel.svg


def test_a_point_without_a_small_setting_is_counted_as_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        {"at": at, "setting": f"s{at}", "methods": ["fedavg"], **({"demo": "d"} if at < 3 else {})}
        for at in range(1, 6)
    ]
    figure = Trend.model_validate({
        "kind": "trend", "title": "T", "lines": ["A"],
        "panels": [{"label": "P", "x": "alpha", "points": points}],
    })  # fmt: skip
    given(monkeypatch, trend, {("d", "fedavg"): {1: 50.0}})
    drawn = trend.draw(None, target("demo"), figure)
    assert re.findall(NUMBER, drawn.caption.partition("Left out")[2]) == ["3", "5"]
    assert [row[2] for row in drawn.rows] == ["d", "d"]


# --- bars and heat maps ---------------------------------------------------------------------------
def test_bars_span_the_seeds_of_the_best_method(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Charts.model_validate({
        "kind": "bars", "title": "T", "rows": [{"label": "R", "setting": "s"}],
        "columns": [{"label": name, "method": name} for name in ("fedavg", "fedprox", "none")],
    })  # fmt: skip
    made = {("s", "fedavg"): {1: 10.0, 2: 40.0, 3: 13.0}, ("s", "fedprox"): {2: 30.0}}
    given(monkeypatch, base, made)
    drawn = bars.draw(None, target(), figure)
    assert [row[2:] for row in drawn.rows] == [
        ("fedavg", "21.00", "10.00", "40.00", "3"), ("fedprox", "30.00", "30.00", "30.00", "1")
    ]  # fmt: skip
    (panel,) = drawn.panels
    spans = re.findall(
        r'd="M([\d.]+),[\d.]+H([\d.]+)" stroke="[^"]*" stroke-width="1.6"', panel.svg
    )
    long, none = (float(right) - float(left) for left, right in spans)
    assert long > 100 and none == 0


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_a_heat_map_frames_the_best_of_the_cells_with_every_seed(
    monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    """Means over fewer seeds are shown, but not compared; less is better for a loss."""
    names = [["a", "b"], ["c", "d"], ["e", "f"]]
    figure = HeatMap.model_validate({
        "kind": "heat_map", "title": "T", "setting": "s", "metric": metric,
        "x": {"label": "mu", "values": [1, 2]}, "y": {"label": "alpha", "values": [3, 4, 5]},
        "panels": [{"label": "P", "methods": names}],
    })  # fmt: skip
    whole = {"a": 50.0, "b": 80.0, "c": 20.0, "d": 60.0}
    few = {"e": {1: 99.0, 2: 99.0}, "f": {1: 1.0}}
    made = {("s", name): dict.fromkeys(SEEDS, mean) for name, mean in whole.items()}
    made |= {("s", name): values for name, values in few.items()}
    given(monkeypatch, heat_map, made)
    drawn = heat_map.draw(None, target(), figure)
    assert [row[1:] for row in drawn.rows] == [
        ("3", "50.00", "80.00"), ("4", "20.00", "60.00"), ("5", "99.00", "1.00")
    ]  # fmt: skip
    (panel,) = drawn.panels
    boxes = re.findall(r'<path d="(M[^"]*z)" fill="[^"]*" fill-opacity="([^"]*)"', panel.svg)
    (framed,) = re.findall(r'<path d="(M[^"]*z)" fill="none"', panel.svg)
    best = "b" if metric == "accuracy" else "c"
    assert [box for box, _ in boxes].index(framed) == [n for row in names for n in row].index(best)
    shares = [float(share) for _, share in boxes]
    assert [*np.argsort(shares)] == [*np.argsort([50.0, 80.0, 20.0, 60.0, 99.0, 1.0])]
    assert drawn.header[1:] == ("α", "μ 1", "μ 2")


def test_rows_of_one_small_setting_share_a_panel_unless_their_measures_differ() -> None:
    rows = [
        SimpleNamespace(label=label, demo=demo, metric=metric, setting_at=lambda _, at=demo: at)
        for label, demo, metric in (
            ("A", "d", None), ("B", "d", "m"), ("C", "d", None), ("D", "e", None), ("E", "d", "m"),
        )
    ]  # fmt: skip
    found = base.distinct_rows(rows, target("demo"), "accuracy")  # type: ignore[arg-type]
    assert [(title, row.label, metric) for title, row, metric in found] == [
        ("A; C (d)", "A", "accuracy"), ("B; E (d)", "B", "m"), ("D (e)", "D", "accuracy")
    ]  # fmt: skip


# --- landscapes -----------------------------------------------------------------------------------
def test_a_landscape_s_numbers_are_its_middle_and_its_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the first seed; the middle is nearest to (0, 0), wherever the grid begins."""
    x, y = [-1.5, -0.5, 0.1, 0.9], [-0.2, 0.4, 1.0]
    loss = [[3.0, 7.0, 0.5, 9.0], [0.25, 4.0, None, 5.0], [2.0, 6.0, 8.0, 1.0]]
    other = [[value and value / 2 for value in row] for row in loss]
    asked = []

    def read(_root: Any, path: Path) -> Surface | None:
        asked.append(path)
        made = {"fedavg": loss, "fedprox": other}.get(path.parent.name)
        return made and Surface(x, y, made, "two")  # type: ignore[return-value]

    monkeypatch.setattr(landscape, "_read_landscape", read)
    columns = [
        SimpleNamespace(label=name.upper(), methods_at=lambda _, at=name: (at,))
        for name in ("fedavg", "fedprox", "missing")
    ]
    figure = SimpleNamespace(setting="s", demo="d", columns=columns)
    bench = SimpleNamespace(root=Path())
    for scale, setting in (("paper", "s"), ("demo", "d")):
        asked.clear()
        drawn = landscape.draw(bench, target(scale), figure)  # type: ignore[arg-type]
        assert {path.name for path in asked} == {"seed1.json"}
        assert {path.parts[-3] for path in asked} == {setting}
        assert [row[2:] for row in drawn.rows] == [("0.5", "0.25", "9"), ("0.25", "0.125", "4.5")]
        said = [float(number) for number in re.findall(NUMBER, drawn.sees)]
        assert said == [0.25, 0.5, 9.0, 4.5]  # least and greatest middle, steepest and flattest


# --- planes and segments --------------------------------------------------------------------------
def through(**changes: Any) -> Through:
    marks = [
        Model("client 3", 0.0, 0.0, 0.0, 0.5, 0.75),
        Model("client 5", 3.0, 0.0, 5e-4, 0.25, 0.5),
        Model("global, round 2", 1.5, 2.0, 0.25, 0.125, 0.9),
        Model("global, round 4", -3.0, 4.0, 12.5, None, None),
    ]
    told = {
        "x": [-1.0, 0.0, 0.5, 1.0, 2.0], "y": [0.0],
        "loss": [[9.0, 0.5, 0.75, 0.25, 8.0]], "accuracy": [[0.1, 0.75, 0.625, 0.5, None]],
        "marks": marks, "samples": 40, "precision": "float32",
    }  # fmt: skip
    return Through(**(told | changes))


def test_a_model_s_row_has_its_distance_its_loss_and_its_error() -> None:
    assert planes.numbers([("P", through())]) == [
        ("P", "client 3", "0", "0", "0.5", "25.00"),
        ("P", "client 5", "3", "0", "0.25", "50.00"),
        ("P", "global, round 2", "2.5", "0.25", "0.125", "10.00"),
        ("P", "global, round 4", "5", "12", "inf", "inf"),
    ]
    line = through(marks=[Model("client 3", 0.5, None, 2.0, 0.5, 0.75)])
    assert planes.numbers([("P", line)])[0][2:4] == ("0.5", "2")


def test_of_several_global_models_the_round_is_the_name() -> None:
    marks = through().marks
    assert [planes._short(mark.name, marks) for mark in marks] == [
        "client 3", "client 5", "round 2", "round 4"
    ]  # fmt: skip
    assert planes._short("global, round 2", marks[:3]) == "global"


def test_a_plane_has_three_corners_and_the_least_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of losses and of errors; panels of one quantity share a scale."""
    grid = {"x": [0.0, 1.0], "y": [0.0, 1.0], "loss": [[1.0, 2.0], [3.0, 4.0]]}
    first = through(**grid, accuracy=[[0.5, 0.6], [0.7, 0.8]])
    second = through(**{**grid, "loss": [[1.0, 0.5], [3.0, 40.0]]}, accuracy=[[0.1, 0.2]] * 2)
    monkeypatch.setattr(planes, "views", lambda *_: [("P", first), ("Q", second)])
    asked: list[Any] = []
    monkeypatch.setattr(
        planes.planes, "draw", lambda *given, **named: asked.append((given, named)) or "<svg/>"
    )
    drawn = planes.draw(None, target(), SimpleNamespace(show=["loss", "error"]))  # type: ignore[arg-type]
    assert [panel.title for panel in drawn.panels] == ["P: loss", "Q: loss", "P: error", "Q: error"]
    for ((_, _, values), marks, shared), named in asked:
        assert [mark.corner for mark in marks] == [True] * 3 + [False]
        kind = named["title"]
        assert (shared.least, shared.most, shared.logarithmic) == (
            (0.5, 40.0, True) if kind == "loss" else (pytest.approx(20.0), 90.0, False)
        )
        assert kind == "loss" or values[0][0] in (pytest.approx(50.0), pytest.approx(90.0))
    assert (
        re.findall(r"round (\d+) in (\d+)", drawn.sees) == [("2", "2")] * 2
    )  # the least loss and the least error


@pytest.mark.parametrize(
    ("inner", "top", "rise"), [(0.75, 0.75, 0.25), (0.3, 0.5, 0.0), (math.inf, 0.5, 0.0)]
)
def test_a_segment_rises_over_the_higher_end_between_its_models(
    monkeypatch: pytest.MonkeyPatch, inner: float, top: float, rise: float
) -> None:
    """Beyond them it may rise as it likes."""
    made = through(loss=[[9.0, 0.5, inner if math.isfinite(inner) else None, 0.25, 8.0]])
    monkeypatch.setattr(segments, "views", lambda *_: [("P", made)])
    figure = SimpleNamespace(show=["loss", "error"])
    drawn = segments.draw(None, target(), figure)  # type: ignore[arg-type]
    loss, error = drawn.sees.split("P: ")[1:]
    assert [float(each) for each in re.findall(NUMBER, loss)] == [top, rise]
    assert [float(each) for each in re.findall(NUMBER, error)] == [50.0, 0.0]
    assert ("above" in loss) == (rise > 0)
    plotted = re.findall(r'd="M([^"Zm]*)" fill="none" [^>]*stroke-width="1.8"', drawn.panels[0].svg)
    assert plotted[0].count("L") == (4 if math.isfinite(inner) else 3)


# --- lines ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rounds", [10, 30, 100, 7])
@pytest.mark.parametrize("start", [0.1, 0.29, 0.3, 0.5, 0.57, 0.75, None])
def test_averaging_begins_in_the_round_after_its_share_of_them(
    monkeypatch: pytest.MonkeyPatch, rounds: int, start: float | None
) -> None:
    """.29 of 100 is 29, though floats say 28.999."""
    monkeypatch.setattr(lines, "late_wrapper_of", lambda *_: "ima")
    bench = SimpleNamespace(
        setting=lambda _: SimpleNamespace(rounds=rounds),
        composition_of=lambda *_: ("ima+fedavg", {"ima": {"start": start, "window": 5}}),
        plugins=None,
    )
    found = lines.averaging_begins(bench, "own/s", ["ima+fedavg"])  # type: ignore[arg-type]
    hundredths = None if start is None else round(100 * start)
    assert found == ([] if hundredths is None else [hundredths * rounds // 100 + 1])


# --- sheets ---------------------------------------------------------------------------------------
def run_with_images(rounds: list[int], numbers: Mapping[str, Any]) -> Any:
    """Two images of each of three classes; their shade is 10 x round + 3 x class + place."""

    def images(number: int) -> Any:
        shades = 10 * number + 3 * np.repeat([0, 1, 2], 2) + np.tile([0, 1], 3)
        return np.broadcast_to(shades[:, None, None, None], (6, 1, 2, 2)).astype(np.uint8)

    quality = {"classes": 3, "numbers": numbers, "files": {}}
    return SimpleNamespace(
        rounds_with_images=rounds, quality=quality, images=images, reference=True,
        run=RunKey("own/s", "m", 1), folder=Path("somewhere"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rounds", "shown"),
    [([4], [4]), ([2, 4], [2, 4]), ([1, 2, 3], [1, 2, 3]), ([1, 2, 5, 7, 9], [1, 5, 9]),
     ([1, 2, 5, 7], [1, 5, 7])],
)  # fmt: skip
def test_sheets_are_of_the_first_a_middle_and_the_last_round(
    monkeypatch: pytest.MonkeyPatch, rounds: list[int], shown: list[int]
) -> None:
    """And the strip is of the first image of each class, round by round."""
    seen: list[tuple[list[int], int]] = []
    frames: list[list[list[int]]] = []
    monkeypatch.setattr(
        sheet, "draw",
        lambda images, wide, **_: seen.append((images[:, 0, 0, 0].tolist(), wide)) or "<img/>",
    )  # fmt: skip
    monkeypatch.setattr(
        sheet, "animated",
        lambda each, classes, **_: frames.append([one[:, 0, 0, 0].tolist() for one in each]) or "",
    )  # fmt: skip
    real = np.zeros((6, 1, 2, 2), np.uint8)
    monkeypatch.setattr(sheets, "training_images", lambda *_: real)
    panels = [*sheets._panels(Path(), run_with_images(rounds, {}), "T")]
    numbers = [re.search(r"round (\d+)", panel.title) for panel in panels]
    assert [int(found[1]) for found in numbers if found] == shown
    each = [[10 * number + shade for shade in (0, 1, 3, 4, 6, 7)] for number in shown]
    assert [images for images, _ in seen[: len(shown)]] == each
    assert {wide for _, wide in seen} == {2}
    wanted = [[[10 * number, 10 * number + 3, 10 * number + 6] for number in rounds]]
    assert frames == (wanted if len(rounds) > 1 else [])


def test_training_images_of_another_shape_are_not_beside_the_sheets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for shape, there in (((6, 1, 2, 2), True), ((6, 3, 2, 2), False), ((6, 1, 4, 4), False)):
        real = np.zeros(shape, np.uint8)
        monkeypatch.setattr(sheets, "training_images", lambda *_, made=real: made)
        panels = [*sheets._panels(Path(), run_with_images([1], {}), "T")]
        assert len(panels) == 1 + there
    odd = run_with_images([1], {})
    odd.quality["classes"] = 4
    with refused("damaged", file="round1-images.safetensors", names=("6", "4")):
        list(sheets._panels(Path(), odd, "T"))


def test_measures_of_a_set_are_in_percent_where_their_unit_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The accuracy that is told is that of the best column; a missing number is a dash."""
    made = {
        "a": {"test_accuracy": 0.625, "stand_in": 12.345, "diversity": 0.5, "nearest": 0.0},
        "b": {"test_accuracy": 0.75, "membership": 0.5},
        "c": {},
    }
    monkeypatch.setattr(sheets, "find_run", lambda _, run: run_with_images([1], made[run.method]))
    monkeypatch.setattr(sheets, "training_images", lambda *_: None)

    def drawn_of(*names: str) -> Drawn:
        columns = [
            SimpleNamespace(label=name.upper(), methods_at=lambda _, at=name: (at,))
            for name in names
        ]
        place = SimpleNamespace(
            label="P", demo=None, setting_at=lambda _: "s", setting_for=lambda *_: "s"
        )
        figure = SimpleNamespace(panels=[place], columns=columns, column_settings={})
        drawn: Drawn = sheets.draw(SimpleNamespace(root=Path()), target(), figure)  # type: ignore[arg-type]
        return drawn

    drawn = drawn_of("a", "b", "c")
    percents = [sheets.SETS[name].unit == "%" for name in sheets.NUMBERS]
    assert percents[0] and not all(percents)
    for row, numbers in zip(drawn.rows, made.values(), strict=True):
        for said, name, percent in zip(row[2:], sheets.NUMBERS, percents, strict=True):
            value = numbers.get(name)
            if value is None:
                assert said == "–"
            else:
                assert float(said.removesuffix(" %")) == pytest.approx(
                    100 * value if percent else value, abs=0.06
                )
                assert said.endswith(" %") == percent
    told = [float(number) for number in re.findall(NUMBER, drawn.sees)]
    assert told == [75.0, 62.5] and re.findall(r"\b[A-C]\b", drawn.sees)[0] == "B"
    assert [float(number) for number in re.findall(NUMBER, drawn_of("a").sees)] == [62.5]
    assert drawn_of("c").sees == ""
