"""A page by itself: nothing that it shows lies elsewhere."""

import re
from pathlib import Path

from fedrepro.report.pages.templates import standalone, without_dead_links, write_standalone

PAGE = """<head><link rel="stylesheet" href="../assets/site.css"></head>
<a class="brand" href="../index.html">home</a> <a href="table_2.html#row-1">other</a>
<a href="#row-1">here</a> <a href="https://doi.org/1">paper</a>
<svg><path d="M3 18"/></svg>"""


def test_a_page_alone_has_its_style_and_no_links_to_others() -> None:
    css = "body { color: red }"
    made = standalone(PAGE, css)
    assert css in made and "stylesheet" not in made
    assert re.findall(r'href="([^"]*)"', made) == ["#row-1", "https://doi.org/1"]
    assert '<a class="brand">home</a> <a>other</a>' in made
    assert '<svg><path d="M3 18"/></svg>' in made


def test_links_stay_that_lead_somewhere(tmp_path: Path) -> None:
    """A file of the site, or a place in it; the page itself; the web."""
    page = tmp_path / "site/own/table_1.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'{PAGE}<a href="table_3.html">gone</a>', encoding="utf-8")
    for name in ("index.html", "own/table_2.html"):
        (tmp_path / "site" / name).touch()
    without_dead_links(tmp_path, Path("site/own/table_1.html"))
    made = page.read_text(encoding="utf-8")
    assert made == f"{PAGE}<a>gone</a>"
    (tmp_path / "site/own/table_2.html").unlink()
    without_dead_links(tmp_path, Path("site/own/table_1.html"))
    assert re.findall('<a[^>]* href="([^"]*)"', page.read_text(encoding="utf-8")) == [
        "../index.html", "#row-1", "https://doi.org/1"
    ]  # fmt: skip


def test_a_page_alone_is_written_beside_the_site(tmp_path: Path) -> None:
    for name, text in {"own/table_1.html": PAGE, "assets/site.css": "p { margin: 0 }"}.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text, encoding="utf-8")
    write_standalone(tmp_path, Path("site/own/table_1.html"), Path("results/report/x.html"))
    made = (tmp_path / "results/report/x.html").read_text(encoding="utf-8")
    assert made == standalone(PAGE, "p { margin: 0 }")
    assert (tmp_path / "site/own/table_1.html").read_text(encoding="utf-8") == PAGE
