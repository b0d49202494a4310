"""How many clicks lead from the start page to a claim, a cell's curves and its exact setting."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from fedrepro.cli.site import described_methods
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.papers import published
from support.report_world import constant_run, make_world

CELL = "row-1-2"  # IMA's Table I, FMNIST, #C=2, FedAvg + IMA
SETTING = {"setting": "ima/fmnist-shards2", "method": "ima+fedavg"}
VOID = {"img", "meta", "link", "input", "br", "hr", "source", "path", "rect", "circle", "line"}


@dataclass
class Element:
    """An element, the words in it, and what is around it."""

    tag: str
    attributes: dict[str, str]
    around: "Element | None"
    words: str = ""
    inside: list["Element"] = field(default_factory=list)

    def all(self) -> list["Element"]:
        return [self, *(found for each in self.inside for found in each.all())]

    @property
    def closed(self) -> int:
        """How many closed details around it a reader must open first."""
        number, at, below = 0, self.around, self
        while at:
            number += at.tag == "details" and "open" not in at.attributes and below.tag != "summary"
            at, below = at.around, at
        return number


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.whole = self.at = Element("page", {}, None)
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.inside.append(made)
        if tag not in VOID:
            self.at = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.inside.append(Element(tag, {a: b or "" for a, b in attrs}, self.at))

    def handle_endtag(self, tag: str) -> None:
        at: Element | None = self.at
        while at and at.tag != tag:
            at = at.around
        if at and at.around:
            self.at = at.around

    def handle_data(self, data: str) -> None:
        at: Element | None = self.at
        while at:
            at.words += data
            at = at.around


def clicks(start: Path, is_there: Callable[[Path, str], bool]) -> int:
    """The fewest clicks from a page to an address; opening closed details is a click, too."""
    reached, costs = {(start, ""): 0}, [(start, "")]
    for limit in range(5):
        for path, part in costs:
            if reached[path, part] == limit and is_there(path, part):
                return limit
        for path, part in [each for each in costs if reached[each] <= limit]:
            if path.suffix != ".html":
                continue
            for link in (each for each in Page(path).whole.all() if each.tag == "a"):
                href, _, anchor = link.attributes.get("href", "").partition("#")
                target = (path.parent / unquote(href)).resolve() if href else path
                place, cost = (target, anchor), reached[path, part] + 1 + link.closed
                if target.is_file() and cost < reached.get(place, 9):
                    reached[place] = cost
                    costs.append(place)
    raise AssertionError("not within four clicks")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_world(tmp_path_factory.mktemp("walks"), rows=2, columns=2)
    bench, papers = load(root), published.load(root)
    for method, end in (("fedavg", 0.8), ("ima+fedavg", 0.85)):
        constant_run(bench, RunKey("ima/fmnist-shards2", method, 1), end)
    target = bench.table("ima", "table_1", "paper")
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    return root / site.write_site(bench, papers, described_methods(bench.plugins), "paper")


def test_whether_imas_claim_is_true_is_one_click_away(start: Path) -> None:
    """Its verdicts stand in the row of the claim."""

    def is_there(path: Path, part: str) -> bool:
        if path.name != "claims.html":
            return False
        rows = [each for each in Page(path).whole.all() if each.tag == "tr"]
        return any("IMA" in row.words and "supports" in row.words for row in rows)

    assert clicks(start, is_there) <= 1


def test_the_curves_of_a_cell_are_two_clicks_away(start: Path) -> None:
    def is_there(path: Path, part: str) -> bool:
        if (path.name, part) != ("table_1.html", CELL):
            return False
        found: Element | None = next(
            each for each in Page(path).whole.all() if each.attributes.get("id") == CELL
        )
        while found and found.tag != "section":
            found = found.around
        charts = [each for each in found.all() if each.tag == "svg"] if found else []
        return any(
            "with IMA ends at 85.00" in each.attributes.get("aria-label", "") and not each.closed
            for each in charts
        )

    assert clicks(start, is_there) <= 2


def test_the_exact_setting_of_a_cell_is_two_clicks_away(start: Path) -> None:
    def is_there(path: Path, part: str) -> bool:
        if path.suffix != ".yaml":
            return False
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {key: found[key] for key in SETTING} == SETTING

    assert clicks(start, is_there) <= 2


def test_links_in_closed_details_cost_a_click_more(tmp_path: Path) -> None:
    """Otherwise the walks above would find what no reader sees."""
    (tmp_path / "end.html").write_text("<p>end</p>", encoding="utf-8")
    link = '<a href="end.html">x</a>'
    for text, count in (
        (link, 1),
        (f"<details><summary>{link}</summary></details>", 1),
        (f"<details><summary>s</summary>{link}</details>", 2),
        (f"<details><summary>s</summary><details open>{link}</details></details>", 2),
    ):
        (tmp_path / "start.html").write_text(text, encoding="utf-8")
        found = clicks(tmp_path / "start.html", lambda path, part: path.name == "end.html")
        assert found == count, text
