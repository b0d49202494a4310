"""Tables on a terminal: what does not fit is wrapped, and no number or word is cut."""

import re
import sys

import pytest

from fedrepro.cli import console
from fedrepro.cli.console import print_lines, print_rows

HEADER = ("kind", "name", "CPU hours", "memory_MB", "what it says")
ROWS = [
    ("table", "superfed/table_2_3_released", "> 14,827.25", "1,024", "one two three " * 4),
    ("table", "ima/table_1", "?", "412", "an_identifier_that_is_long and +5.23 [+4.23, +6.24]"),
]


@pytest.mark.parametrize("columns", [200, 100, 80, 60, 50])
def test_no_word_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows(HEADER, ROWS, title=1)
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, text.splitlines())) <= columns
    printed = {word.strip(";") for word in text.split()}
    assert {word for row in ROWS for cell in row for word in cell.split()} <= printed
    is_table = "\u2500" in text
    assert is_table == (columns >= 80)
    if not is_table:
        assert text.startswith("superfed/table_2_3_released")
    elif columns == 200:
        assert len(text.splitlines()) == len(ROWS) + 2


def test_sentences_are_wrapped_between_words_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "Of [these] hours, 14,827.25 are predicted"
    print_lines([line])
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_lines([line])
    assert [said.strip() for said in capsys.readouterr().out.splitlines()] == [
        "Of [these] hours,", "14,827.25 are predicted"
    ]  # fmt: skip


def test_a_terminal_without_a_width_is_not_left_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an editor's shell: Rich takes COLUMNS=0 for a width, and prints nothing."""
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for show in (
        lambda: print_lines(["a line"]),
        lambda: print_rows(("name",), [("a line",)]),
        lambda: console.print_facts([("name", "a line")]),
    ):
        show()
        assert "a line" in capsys.readouterr().out


def test_elsewhere_a_row_is_a_line_and_a_cell_has_no_tab(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor an end of line; a fact of several lines has its name before each of them."""
    console.print_rows(("a", "b c"), [("x\n  y\tz", "1"), ("", "2 3")])
    assert capsys.readouterr().out == "a\tb c\nx; y; z\t1\n\t2 3\n"
    console.print_facts([("a", ""), ("b", "1\n\n2"), ("", "3")])
    assert capsys.readouterr().out == "b\t1\nb\t2\n\t3\n"
