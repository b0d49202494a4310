"""Equations of methods on their pages."""

import re
from functools import cache

import pytest

from fedrepro.cli.site import described_methods
from fedrepro.methods import registry
from fedrepro.report.pages.equations import equations_in, is_equation, symbols_in, without_equations
from fedrepro.report.pages.method import InLeague, MethodText, method_page
from fedrepro.support.plugins import NONE


@cache  # not while tests are collected, which every process does
def methods() -> dict[str, MethodText]:
    return {method.facts["name"]: method for method in described_methods(NONE)}


@pytest.mark.parametrize("name", registry.parts())
def test_every_method_has_equations_that_are_mathml(name: str) -> None:
    page = method_page(methods()[name], [], None, InLeague(), {})
    parts = [part for parts in page["equations"] for part in parts]
    assert parts
    assert all(part.startswith("<math") for part in parts)
    # An unknown command is shown with its backslash.
    assert not [part for part in parts if "\\" in part]
    assert not [
        text for text in (page["title"], page["difference"], *page["paragraphs"]) if "$$" in text
    ]


def test_a_paragraph_is_cut_at_its_gaps() -> None:
    assert is_equation("$$ a = b, \\quad\nc = d $$")
    assert not is_equation("It costs $$ and more.")
    first, second = equations_in("$$ a = b, \\quad\nc = d $$")
    assert "<mi>b</mi>" in first and "<mi>c</mi>" not in first
    assert "<mi>c</mi>" in second


@pytest.mark.parametrize("wrong", [r"\left( x", r"\begin{cases} a"])
def test_what_is_no_latex_is_shown_as_written(wrong: str) -> None:
    assert equations_in(f"$$ {wrong} $$") == [f"<code>{wrong}</code>"]


@pytest.mark.parametrize(
    "latex",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\href{https://example.org}{x}",
        r"\style{position:fixed;inset:0}{x}",
        r"\style{background:url(//example.org)}{x}",
        r"\class{page}{x}",
        r'\style{a" href="b}{x}',
        r"\frac{\href{a}{x}}{\style{b}{y}}",
    ],
)
def test_an_equation_neither_links_nor_styles(latex: str) -> None:
    (block,), inline = equations_in(f"$$ {latex} $$"), symbols_in(f"Symbols: ${latex}$.")
    for made in (block, inline):
        assert "<mi>x</mi>" in made
        assert not re.search(r"<[^>]*\b(href|style|class|id|src|on\w+)=", made)


def test_an_equation_keeps_its_looks() -> None:
    (made,) = equations_in(r"$$ \color{red}{x} \left( \frac{a}{b} \right) \mathbf{y} $$")
    for each in ('mathcolor="red"', 'stretchy="true"', 'display="block"'):
        assert each in made


def test_symbols_are_mathml_in_a_sentence() -> None:
    found = symbols_in("Symbols: $h_i$: features of\nsample $i$; ``pull``, <b>.")
    assert found.startswith("<math") and found.count("<math") == 2
    assert found.endswith("; <code>pull</code>, &lt;b&gt;.")


def test_a_terminal_shows_no_latex() -> None:
    text = "Title.\n\n$$ a = b $$\n\nSymbols: $a$: one.\n\nIt costs $$ and more."
    assert without_equations(text) == ["Title.", "It costs $$ and more."]
    for name, method in methods().items():
        assert "\\" not in "".join(without_equations(method.documentation)), name


def test_text_cannot_contain_html() -> None:
    (found,) = equations_in(r"$$ \text{<script>alert(1)</script>} $$")
    assert "<script" not in found
