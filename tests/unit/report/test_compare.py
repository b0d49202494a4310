"""Two methods beside each other: by hand, from made-up runs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import Result, read_table
from fedrepro.report.drawing import forest
from fedrepro.report.pages.compare import compare_pages, pair_pages
from fedrepro.report.pages.table import table_page
from fedrepro.report.pages.templates import Renderer
from fedrepro.report.papers import published
from support.report_world import constant_run, make_world

SETTING = "ima/fmnist-shards2"


def pages_of(root: Path, scores: dict[str, dict[int, float]]) -> dict[str, Any]:
    """The pages where methods have these scores, by seed."""
    bench = load(make_world(root, rows=1, columns=2))
    for method, by_seed in scores.items():
        for seed, score in by_seed.items():
            constant_run(bench, RunKey(SETTING, method, seed), score)
    target = bench.table("ima", "table_1", "demo")
    tables.write(bench, target, published.load(bench.root))
    table = read_table(bench.root, target)
    assert table is not None
    return compare_pages(bench, {("ima", "table_1"): table})


def test_differences_are_paired_and_wins_follow_the_metric(tmp_path: Path) -> None:
    first, second = {1: 0.80, 2: 0.81, 3: 0.82}, {1: 0.82, 2: 0.84, 3: 0.86}
    pages = pages_of(tmp_path, {"fedavg": first, "ima+fedavg": second})
    assert sorted(pages) == ["fedavg", "fedavg-ima"]
    (rivalry,) = pages["fedavg-ima"]["rivalries"]
    (meeting,) = rivalry.meetings
    assert (meeting.ours, meeting.theirs) == (pytest.approx(84), pytest.approx(81))
    assert meeting.difference.mean == pytest.approx(3) and meeting.difference.n == 3
    assert meeting.difference.half_width == pytest.approx(2.484, abs=1e-3)  # 4.303 / sqrt(3)
    counts = [rivalry.won("paper"), *(rivalry.met(each) for each in ("paper", "compact", "demo"))]
    assert counts == [1, 1, 0, 0]
    (other,) = pages["fedavg"]["rivalries"]
    assert other.won("paper") == 0 and other.meetings[0].lead == pytest.approx(-3)
    # One page for both directions.
    ((address, content),) = pair_pages(pages).items()
    assert address == rivalry.page == other.page == "fedavg/fedavg-ima.html"
    other.other = "<b>x"  # a label is data
    written = Renderer(tmp_path).write(Path("compare") / address, "pair.html.j2", content)
    text = (tmp_path / written).read_text(encoding="utf-8")
    assert "−3.00" in text and "± 2.48" in text and "<b>" not in text
    assert 'href="../../ima/table_1.html#row-1"' in text
    assert f'scope="row">{meeting.data}<' in text and meeting.data == "Fashion-MNIST"
    written = Renderer(tmp_path).write(Path("compare/x.html"), "compare.html.j2", pages["fedavg"])
    text = (tmp_path / written).read_text(encoding="utf-8")
    assert 'href="fedavg/fedavg-ima.html"' in text and "<b>" not in text


def test_means_are_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """Else a lead would not be the difference of the means beside it."""
    scores = {"fedavg": {1: 0.10, 2: 0.81, 3: 0.83}, "ima+fedavg": {2: 0.85, 3: 0.86}}
    pages = pages_of(tmp_path, scores)
    for page, ours, theirs in (("fedavg", 82, 85.5), ("fedavg-ima", 85.5, 82)):
        (meeting,) = pages[page]["rivalries"][0].meetings
        assert (meeting.ours, meeting.theirs) == (pytest.approx(ours), pytest.approx(theirs))
        assert meeting.lead == pytest.approx(ours - theirs)


def test_strips_share_one_scale_about_zero() -> None:
    first, second = forest.strips([(2.0, 2.0), (-1.0, 0.0)])
    # 188 px from -4 to 4, behind a margin of 6: 2 is at 147, 0 to 4 reach from 100 to 194.
    assert 'd="M147.0,9m' in first and 'd="M100.0,9H194.0"' in first
    assert 'd="M76.5,9m' in second
    axis = forest.strips_axis([(2.0, 2.0), (-1.0, 0.0)])
    assert 'x="53.0"' in axis and ">−2<" in axis  # half of the way from the middle to 6
    assert 'x="147.0"' in axis and ">+2<" in axis and 'x="100.0"' in axis
    assert ">+0.1<" in forest.strips_axis([(0.09999999999999998, 0.0)])
    assert forest.strips_axis([(0.0, 0.0)]).count("<text") == 3
    places = re.findall(r'<text x="([\d.]+)"', forest.strips_axis([(50.0, 1.0)]))
    assert float(places[0]) > 9 and float(places[-1]) < forest.WIDTH - 9, "no label is cut off"


def test_verdicts_are_drawn_on_one_scale_about_zero_and_say_what_they_are_of() -> None:
    bars = [
        forest.Bar((1.0, 2.0, 3.0), "green", "A > B", "a > b", "claims.html#a"),
        forest.Bar((-4.0, -3.0, -2.0), "red", "", "c", "claims.html#c"),
    ]
    drawn = forest.verdicts(bars, "two claims")
    # 328 px from -4 to 4, behind a margin of 6: 1 to 3 reach from 211 to 293, 2 is at 252.
    assert 'stroke="green"' in drawn and 'd="M211.0,32H293.0"' in drawn and 'cx="252.0"' in drawn
    assert 'd="M6.0,54H88.0" stroke="red"' in drawn
    assert '<a href="claims.html#a" aria-label="A &gt; B"><title>A &gt; B</title>' in drawn
    assert ">a &gt; b</text>" in drawn and 'aria-label="two claims"' in drawn
    assert "<rect" not in drawn, "a dot"
    rival = forest.Bar((1.0, 2.0, 3.0), "red", "", "c", "", "square", (-4.0, -3.0, -2.0))
    drawn = forest.verdicts([rival], "a rival decides")
    assert 'd="M6.0,37H88.0"' in drawn and drawn.count("<rect") == 2, "on its own side of the line"
    assert forest.verdicts([], "") == ""


def test_a_forest_has_the_axis_of_strips() -> None:
    drawn = forest.forest([(-1.0, 1.0, 4.0)], (0.0, 1.0, 2.0), 0.5, "leads")
    axis = forest.strips_axis([(0.0, 4.0)]).partition(">")[2].removesuffix("</svg>")
    assert axis in drawn and ">+2<" in axis


def test_a_demo_names_the_data_that_were_used_once(tmp_path: Path) -> None:
    """Not the row that it stands for, whose data are others; and not once for each such row."""
    bench = load(make_world(tmp_path, rows=12, columns=2))
    rows = bench.table("ima", "table_1", "demo").table.rows
    demo = f"ima/{rows[0].demo}"
    same = [row.label for row in rows if row.demo == rows[0].demo]
    assert 1 < len(same) < len(rows)
    for method, score in (("fedavg", 0.5), ("ima+fedavg", 0.6)):
        constant_run(bench, RunKey(demo, method, 1), score)
    target = bench.table("ima", "table_1", "demo")
    papers = published.load(bench.root)
    table = tables.compute(bench, target, papers)
    title = bench.datasets[bench.setting(demo).dataset].title
    (rivalry,) = compare_pages(bench, {("ima", "table_1"): table})["fedavg-ima"]["rivalries"]
    (meeting,) = rivalry.meetings
    assert (meeting.entry.scale, meeting.data, meeting.entry.place) == ("demo", title, rows[0].demo)
    assert [rivalry.met(scale) for scale in ("paper", "compact", "demo")] == [0, 0, 1]
    content = compare_pages(bench, {("ima", "table_1"): table})["fedavg-ima"]
    written = Renderer(tmp_path).write(Path("compare/x.html"), "compare.html.j2", content)
    text = (tmp_path / written).read_text(encoding="utf-8")
    assert ">Better" not in text and "Compared, <span" in text  # a demo decides nothing
    page = table_page(bench, target, table, papers)
    shown, missing = page["demo_rows"]
    assert (shown.data, shown.setting, shown.labels) == (title, rows[0].demo, same)
    assert missing.setting == next(row.demo for row in rows if row.label not in same)
    written = Renderer(tmp_path).write(Path("x.html"), "table.html.j2", page)
    text = (tmp_path / written).read_text(encoding="utf-8")
    assert f"{title}, <code>{rows[0].demo}</code>" in text


@pytest.mark.parametrize("stale", [{"changed": ("lr",)}, {"code": "made by other code: core"}])
def test_no_run_of_other_code_or_configuration_is_compared(
    tmp_path: Path, stale: dict[str, Any]
) -> None:
    """Nor at scale demo, whose cells have no verdict that would say so."""
    bench = load(make_world(tmp_path, rows=1, columns=2))
    target = bench.table("ima", "table_1", "demo")
    settings = SETTING, f"ima/{target.table.rows[0].demo}"
    for setting in settings:
        for method, score in (("fedavg", 0.5), ("ima+fedavg", 0.6)):
            constant_run(bench, RunKey(setting, method, 1), score)
    table = tables.compute(bench, target, published.load(bench.root))
    assert _met(compare_pages(bench, {("ima", "table_1"): table})) == {"paper", "demo"}

    def made_stale(result: Result) -> Result:
        return replace(result, runs=tuple(replace(run, **stale) for run in result.runs))

    for key in ("result", "demo"):
        first, *others = table.cells
        other = replace(first, verdict=None, **{key: made_stale(getattr(first, key))})
        pages = compare_pages(bench, {("ima", "table_1"): replace(table, cells=(other, *others))})
        assert _met(pages) == {"paper", "demo"} - {"paper" if key == "result" else "demo"}


def _met(pages: dict[str, dict[str, Any]]) -> set[str]:
    """The scales at which any two methods met."""
    rivalries = [rivalry for page in pages.values() for rivalry in page["rivalries"]]
    return {meeting.entry.scale for rivalry in rivalries for meeting in rivalry.meetings}
