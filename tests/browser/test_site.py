"""The whole site in a browser: it loads, links, fits and says nothing on the console."""

import itertools
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from fedrepro.cli.site import described_methods
from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget, RunKey, TableTarget
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.papers import published
from support.figure_world import WRITERS, add_figures, give_runs, write_mixtures, write_objective
from support.report_world import (
    constant_run,
    curve,
    fill,
    make_system,
    make_world,
    write_partition,
    write_run,
)

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, DESK = 390, 1280


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with every kind of page and cell."""
    root = make_world(tmp_path_factory.mktemp("site"), rows=1)
    add_figures(root)
    bench, papers = load(root), published.load(root)
    target = bench.table("ima", "table_1", "demo")
    fill(bench, target)
    shutil.rmtree(root / target.runs[3].folder)
    paper = "ima/fmnist-shards2"
    for seed in (1, 2, 3):
        constant_run(bench, RunKey(paper, "fedavg", seed), 0.81 + 0.001 * seed)
    constant_run(bench, RunKey(paper, "ima+fedavg", 1), 0.80)
    write_run(bench, RunKey(paper, "fedprox", 1), curve(9, 0.3), status="diverged", reference=True)
    write_partition(bench, paper, 1)
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    for key, target in bench.targets("demo").items():
        if isinstance(target, FigureTarget):
            give_runs(bench, target, {"mild", "strong", "fedavg", "mild+fedavgm"})
            for path in target.analyses:
                WRITERS[target.figure.kind](root / path)
            for run in target.runs:
                if target.figure.kind == "objective":
                    write_objective(bench, run)
                if key[1] == "figure_2_5":
                    write_mixtures(root / run.folder, (0.9, 0.4), (0.5, 0.6))
        if not isinstance(target, TableTarget):
            site.write_page(bench, target, papers)
    site.write_site(bench, papers, described_methods(bench.plugins), "demo")
    return root / "reports/site"


def pages_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))


@pytest.fixture(scope="session")
def browser() -> Iterator["sync_api.Browser"]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is on the path")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def tab(browser: "sync_api.Browser") -> "sync_api.Page":
    return browser.new_page()


@pytest.fixture
def page(tab: "sync_api.Page") -> "sync_api.Page":
    """The tab that tests share, as a new one takes longer than many of them."""
    tab.emulate_media(media="null", color_scheme="null")
    tab.set_viewport_size({"width": DESK, "height": 844})
    return tab


class Links(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.identifiers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value and not value.startswith("data:"):
                self.targets.append(value)
            if name == "id" and value:
                self.identifiers.append(value)


def parse(path: Path) -> Links:
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def test_no_link_is_broken(rendered: Path) -> None:
    parsed = {(rendered / name).resolve(): parse(rendered / name) for name in pages_of(rendered)}
    assert len(parsed) > 50
    for path, links in parsed.items():
        assert len(links.identifiers) == len(set(links.identifiers)), f"{path}: an id stands twice"
        for target in links.targets:
            if target.startswith("https://"):  # a paper
                continue
            address, _, fragment = target.partition("#")
            file = (path.parent / unquote(address)).resolve() if address else path
            assert file.is_file(), f"{path}: {target}"
            if fragment:
                assert fragment in parsed[file].identifiers, f"{path}: {target}"


def test_every_kind_of_page_is_there(rendered: Path) -> None:
    names = pages_of(rendered)
    for name in (
        "index.html", "ima/table_1.html", "fedgo/table_16.html", "superfed/table_2_6.html",
        "ima/figure_2_3.html", "aaggff/table_a1.html", "aaggff/table_a2.html",
        "methods/index.html", "methods/ima.html", "discrepancies.html", "cost.html",
        "compare/index.html", "compare/fedavg.html", "assets/pages.js", "ima/table_1.csv",
        "runs/ima/fmnist-shards2-demo/ima+fedavg/seed1.html",
        "reference/ima/fmnist-shards2/fedavg/seed2.html",
    ):  # fmt: skip
        assert name in names or (rendered / name).suffix != ".html"
        assert (rendered / name).is_file()


# What a page in a frame says of itself when it is asked. Only a message comes through: files are of
# different origins to each other, and so they must stay, as for whoever opens the site.
ANSWER = """addEventListener('message', ({source}) => {
  if (source === parent && parent !== window) source.postMessage({
    address: location.href, window: innerWidth, wide: document.documentElement.scrollWidth,
    counts: ['h1', 'main', 'table:not(:has(> caption))']
      .map(selector => document.querySelectorAll(selector).length)}, '*');
});"""
ASK_ALL = """async ([addresses, widths]) => {
  const frame = document.body.appendChild(document.createElement('iframe'));
  frame.style = 'border: 0; height: 844px';
  const answers = [];
  for (const address of addresses) {
    await new Promise(done => { frame.onload = done; frame.src = address; });
    for (const width of widths) {
      frame.style.width = `${width}px`;
      const answer = new Promise(done => addEventListener('message', done, {once: true}));
      frame.contentWindow.postMessage('', '*');
      answers.push((await answer).data);
    }
  }
  return answers;
}"""


def test_pages_load_fit_and_are_silent(
    browser: "sync_api.Browser", rendered: Path, tmp_path: Path
) -> None:
    """One after the other in a frame, which costs half of what loading them in a tab does."""
    context = browser.new_context(viewport={"width": DESK, "height": 844})
    context.add_init_script(ANSWER)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    (tmp_path / "frame.html").write_text("<!doctype html>", encoding="utf-8")
    page.goto((tmp_path / "frame.html").as_uri())
    addresses = [(rendered / name).as_uri() for name in pages_of(rendered)]
    answers = page.evaluate(ASK_ALL, [addresses, (DESK, PHONE)])
    expected = itertools.product(addresses, (DESK, PHONE))
    for (address, width), answer in zip(expected, answers, strict=True):
        assert (answer["address"], answer["window"]) == (address, width)
        assert answer["wide"] <= width, f"{address} is {answer['wide']} px wide"
        assert answer["counts"] == [1, 1, 0], address
    assert said == []
    assert all(address.startswith(("file:", "data:")) for address in asked)
    context.close()


def test_the_style_sheet_applies_in_both_schemes(page: "sync_api.Page", rendered: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto((rendered / "ima/table_1.html").as_uri())
        line = page.locator(".panel path[stroke='var(--series-1)']").first
        colours[scheme] = (
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            line.evaluate("line => getComputedStyle(line).stroke"),
        )
    assert colours["light"] != colours["dark"]
    for background, stroke in colours.values():
        assert contrast(background, stroke) > 3


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours as getComputedStyle gives them."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_words_have_enough_contrast(page: "sync_api.Page", rendered: Path) -> None:
    names = ("--ink", "--soft", "--link", "--agrees", "--differs", "--open", "--demo")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto((rendered / "index.html").as_uri())
        read = """name => { const probe = document.createElement('i');
          probe.style.color = `var(${name})`; document.body.append(probe);
          return getComputedStyle(probe).color; }"""
        paper = page.evaluate(read, "--paper")
        for name in names:
            assert contrast(paper, page.evaluate(read, name)) >= 4.5, (scheme, name)


def test_a_keyboard_reaches_the_content_and_the_tables(
    page: "sync_api.Page", rendered: Path
) -> None:
    page.set_viewport_size({"width": PHONE, "height": 844})
    page.goto((rendered / "ima/table_1.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    for box in page.locator(".scroll").all():
        assert box.get_attribute("tabindex") == "0"
        assert box.get_attribute("aria-label") or box.get_attribute("aria-labelledby")


def test_the_printed_table_fits_the_window(
    page: "sync_api.Page", tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All 16 columns of IMA's Table I at 1440 px, and every cell has an address of its own."""
    bench = load(make_system(tmp_path_factory.mktemp("whole"), "ima"))
    papers, target = published.load(bench.root), bench.table("ima", "table_1", "paper")
    tables.write(bench, target, papers)
    written = bench.root / site.write_page(bench, target, papers)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(written.as_uri())
    box = page.locator(".whole .scroll")
    assert page.locator(".whole thead th").count() == 17
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") == 0
    assert page.locator(".whole tbody td:not([id])").count() == 0


def test_tables_are_sorted_filtered_and_searched(page: "sync_api.Page", rendered: Path) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto((rendered / "ima/table_1.html").as_uri())
    rows = page.locator("#row-1 tbody tr")
    page.locator("#row-1 thead button", has_text="Printed").click()
    printed = [float(text) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    assert printed == sorted(printed) and len(printed) == 4
    page.get_by_role("searchbox", name="Method").fill("prox")
    assert page.locator("#row-1 tbody tr:visible").count() == 2
    assert page.locator(".whole thead th:visible").count() == 3  # with that of the settings
    page.get_by_role("searchbox", name="Method").fill("")
    page.get_by_role("combobox", name="Verdict").select_option("agrees")
    for row in page.locator("#row-1 tbody tr:visible").all():
        assert row.get_attribute("data-verdict") == "agrees"
    page.get_by_role("searchbox", name="Search the site").fill("scaffold")
    page.locator(".search li a", has_text="scaffold").first.click()
    assert page.url.endswith("/methods/scaffold.html")


def test_what_the_search_lists_is_within_a_phone_s_window(
    page: "sync_api.Page", rendered: Path
) -> None:
    page.set_viewport_size({"width": PHONE, "height": 800})
    page.goto((rendered / "ima/table_1.html").as_uri())
    page.get_by_role("searchbox", name="Search the site").fill("fedavg")
    page.locator(".search li a").first.wait_for()
    box = page.locator(".search ul").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE


def test_discrepancies_are_filtered_by_paper_and_evidence(
    page: "sync_api.Page", browser: "sync_api.Browser", rendered: Path
) -> None:
    address = (rendered / "discrepancies.html").as_uri()
    page.goto(address)
    entries = page.locator(".ledger > div")
    of_all, of_ima = entries.count(), page.locator("#ima .ledger > div").count()
    page.get_by_role("combobox", name="Paper").select_option("IMA")
    assert page.locator(".ledger > div:visible").count() == of_ima < of_all
    assert page.get_by_role("status").inner_text() == f"{of_ima} of {of_all} shown"
    page.get_by_role("combobox", name="Evidence").select_option("arithmetic")
    kinds = [
        each.get_attribute("data-kind") or ""
        for each in page.locator("#ima .ledger > div:visible").all()
    ]
    assert 0 < len(kinds) < of_ima and all("arithmetic" in kind.split() for kind in kinds)
    assert page.locator("section[data-paper]:visible").count() == 1
    # A link to an entry that is not shown shows it.
    hidden = page.locator("#superfed .ledger > div").first.get_attribute("id")
    page.evaluate(f"location.hash = '{hidden}'")
    page.locator(f"#{hidden}").wait_for(state="visible")
    assert page.locator(".ledger > div:visible").count() == of_all
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto(address)
    assert without.locator(".ledger > div:visible").count() == of_all
    assert without.get_by_role("combobox").count() == 0
    without.context.close()


def test_heads_of_long_tables_are_printed_on_each_page(
    page: "sync_api.Page", rendered: Path
) -> None:
    """Chromium repeats no buttons, so there must be none when a page is printed."""
    page.goto((rendered / "ima/table_1.html").as_uri())
    page.emulate_media(media="print")
    shown = page.locator("th button").first.evaluate("each => getComputedStyle(each).display")
    assert shown == "contents"


def test_headings_come_in_order(rendered: Path) -> None:
    for name in pages_of(rendered):
        text = (rendered / name).read_text(encoding="utf-8")
        levels = [int(level) for level in re.findall(r"<h([1-6])", text)]
        for above, below in itertools.pairwise(levels):
            assert below <= above + 1, f"{name}: h{above} and then h{below}"
        assert '<meta name="description" content="' in text, name
