"""A page by itself: nothing that it shows lies elsewhere."""

import re

from fedrepro.report.pages.standalone import standalone

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
