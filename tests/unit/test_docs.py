"""Links of the documentation lead somewhere, and the site has every page and every key."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from fedrepro.cli.configuration import SCHEMAS
from support.places import ROOT
from support.scripts import script

PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.ipynb")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "config/README.md")),
    ROOT / "reports/papers/README.md",
    ROOT / "examples/README.md",
]
# Where a page may mean a file to lie that it names with a shorter path.
FOLDERS = ("", "src/fedrepro", "src/fedrepro/report", "tests", "workflow/skeleton")


def text_of(page: Path) -> str:
    """A page's text without its blocks of code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"[-\s]+", "-", each) for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_paths_lead_to_what_is_there(page: Path) -> None:
    text = text_of(page)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    for path in re.findall(
        r"`((?!results/|clinic/|[\w./]*(?:mcmahan|NAME))[\w.-]+/[\w./*-]+\.(?:md|py|smk|yaml|yml))`",
        text,
    ):
        assert any([*(ROOT / folder).glob(path)] for folder in FOLDERS), path


# Numbers of things that are fixed for good: of dated measurements, limits and examples.
FIXED = {
    "CONTRIBUTING.md": {"1,500 lines", "70 lines", "40 lines"},
    "docs/another_paper.md": {"20 small runs"},
    "docs/cluster.md": {
        "187 comparisons", "18 cells", "48 runs", "20,000 runs", "1,000 runs", "5,000 runs",
        "10,000 runs", "3,000 runs",
    },
    "docs/compact.md": {"38 runs", "14 runs"},
    "docs/mutants.md": {"120 bugs", "90 bugs"},
    "docs/verdicts.md": {"2,000 cells"},
}  # fmt: skip
COUNT = re.compile(
    r"\b(\d{1,3}(?:,\d{3})+|\d{2,}) ((?:printed |small )?(?:runs|tests|cells|claims|methods"
    r"|settings|figures|packages|models|tables|commands|bugs|files|measures|lines|comparisons))\b"
)


def test_no_page_types_a_count_that_changes() -> None:
    """What scripts render is theirs to compare."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        if name in ("docs/history.md", "examples/README.md") or page.suffix != ".md":
            continue  # what was counted then
        text = re.sub(r"<!-- rendered.*?<!-- end -->", "", text_of(page), flags=re.DOTALL)
        for number, noun in COUNT.findall(text):
            if f"{number} {noun}" not in FIXED.get(name, ()):
                raise AssertionError((name, number, noun))


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    return script("docs")


def leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from leaves(each)


def test_every_page_is_in_the_navigation_once(docs: ModuleType) -> None:
    nav = yaml.safe_load(docs.with_papers((ROOT / "docs/mkdocs.yml").read_text("utf-8")))["nav"]
    copied = [path.name for path in (ROOT / "docs").glob("*.md")]
    generated = [path for path, _ in docs.generated()]
    assert sorted(leaves(nav)) == sorted(["changelog.md", "contributing.md", *copied, *generated])


@pytest.mark.parametrize("name", ["config", "experiment", "datasets"])
def test_the_reference_has_every_key_with_its_meaning(docs: ModuleType, name: str) -> None:
    page = docs.config_reference.page(name)
    for anchor in re.findall(r"\]\(#(\w+)\)", page):
        assert f"{{#{anchor}}}" in page
    schema = SCHEMAS[f"{name}.json"].model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for key, value in model.get("properties", {}).items():
            meaning = docs.config_reference.as_markdown(value["description"])
            assert re.search(rf"^`{key}`: .+\n:   {re.escape(meaning)}$", page, re.MULTILINE), key


def test_the_reference_says_what_a_key_may_be(docs: ModuleType) -> None:
    page = docs.config_reference.page("experiment")
    said = dict(
        re.findall(r"^`(\w+)`: (.*)$", page[page.index("## `settings.NAME`") :], re.M)[::-1]
    )
    assert said["model"] == "text, required"
    assert said["rounds"] == "a whole number of at least 1, required"
    assert said["participation"] == "a number above 0 and at most 1, required"
    assert said["precision"] == "`float32`, `tf32` or `bfloat16`, default `float32`"
    assert said["lr_decay"] == "a number above 0 and at most 1 or [keys](#stepdecay), default `1.0`"
    assert said["save_models_at"] == "for each name: a list of: a whole number of at least 1"
    assert said["partition"].startswith("[`scheme: at_server`](#atserver), ")


def test_ci_builds_it_with_the_site_of_results_inside() -> None:
    text = (ROOT / ".github/workflows/docs.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["docs"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands[:2] == ["make docs TORCH=cpu", "make site TORCH=cpu"]
    assert commands[2].startswith("mv .site/reports/site .docs/site/")
    assert commands[3:] == ["make examples TORCH=cpu", "mv .examples .docs/site/examples"]
    assert steps[-1]["with"]["path"] == ".docs/site"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("docs", "site", "examples"):
        assert re.search(f"^{target}: ", makefile, re.MULTILINE)


def test_a_newcomer_reads_at_most_eight_files_of_1500_lines() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## Read these six files", 1)[1].split("\n## ", 1)[0]
    files = re.findall(r"(?m)^\| `([^`]+)` \|", section)
    lines = [len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files]
    assert 6 <= len(files) <= 8
    assert sum(lines) <= 1500
