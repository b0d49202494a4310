"""Tables and progress bars on a terminal; tab-separated lines for scripts."""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box, progress
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrepro.support.printing import printable

NUMBER = re.compile(r"(> )?[\d,.]*|\?")
BETWEEN = 2  # spaces between columns
READABLE = 14  # characters; text in narrower columns is hard to read
Progress = Callable[[float], None]  # called with the fraction that is done


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A progress bar on a terminal, nothing elsewhere; hidden until it is first updated."""
    console = Console(stderr=True)
    with progress.Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=1.0, visible=False)
        yield lambda share: bar.update(task, completed=share, visible=True)


def printed_as_json(arguments: argparse.Namespace, content: Any) -> bool:
    """Print JSON values if a command is asked for them by `--json`. Return whether it is."""
    if arguments.json:
        print(json.dumps(content, indent=2))
    return bool(arguments.json)


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]], title: int = 0) -> None:
    """Print a table on a terminal; elsewhere one line per row, with tabs between cells.

    Args:
        title: the column that names a row; its cells are never wrapped.
    """
    if sys.stdout.isatty():
        _print_table(header, rows, title)
        return
    for row in (header, *rows):
        print("\t".join(re.sub(r"\s*[\n\t]\s*", "; ", cell) for cell in row))


def print_lines(lines: Iterable[str]) -> None:
    """Print sentences, on a terminal wrapped between words."""
    wrap = sys.stdout.isatty()
    for line in lines:
        if wrap:
            _console().print(line, markup=False, highlight=False)
        else:
            print(line)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print named facts: as two columns on a terminal, elsewhere as tab-separated lines."""
    said = [(name, text) for name, text in facts if text]
    if not sys.stdout.isatty():
        for name, text in said:
            for line in filter(None, text.splitlines()):
                print(f"{name}\t{line}")
        return
    table = Table(box=None, show_header=False, padding=(0, BETWEEN, 0, 0))
    table.add_column(no_wrap=True, vertical="top")
    table.add_column(overflow="fold")
    for name, text in said:
        table.add_row(Text(name, style="bold"), Text(printable(text)))
    _console().print(table)


def _console() -> Console:
    """A console as wide as the terminal. With COLUMNS=0, Rich's own would print nothing."""
    return Console(width=shutil.get_terminal_size().columns)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: int) -> None:
    """Print a table as wide as the terminal (or COLUMNS).

    Text that does not fit is wrapped between words, numbers never. If that leaves a column too
    narrow to read, each row is a paragraph instead.
    """
    console = _console()
    names = [name.replace("_", " ") for name in header]
    columns = [
        Column(name, [row[place] for row in rows], whole=place == title)
        for place, name in enumerate(names)
    ]
    tables = ((between, _widths(columns, console.width, between)) for between in (BETWEEN, 1))
    between, widths = next((table for table in tables if table[1]), (0, []))
    if not widths:
        for row in rows:
            console.print(_paragraph(names, row, title, console.width))
        return
    table = Table(
        box=box.SIMPLE_HEAD,
        show_lines=any("\n" in cell for row in rows for cell in row),
        show_edge=False,
        pad_edge=False,
        padding=(0, between - 1, 0, 0),  # the box has a space of its own
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.name,
            justify="right" if column.is_number else "left",
            width=width,
            overflow="fold",
            vertical="top",
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


@dataclass(frozen=True)
class Column:
    """A column of a table on a terminal; ``whole``: its cells are not to be wrapped."""

    name: str
    cells: Sequence[str]
    whole: bool

    @property
    def is_number(self) -> bool:
        return all(NUMBER.fullmatch(cell) for cell in self.cells)

    @property
    def longest(self) -> int:
        """The width in which no line is wrapped."""
        lines = (line for text in (self.name, *self.cells) for line in text.split("\n"))
        return max(map(len, lines))

    @property
    def least(self) -> int:
        """The width in which it can be read: no word is broken, and no number wrapped."""
        word = max(
            len(word) for text in (self.name, *self.cells) for word in (text.split() or [""])
        )
        if self.is_number or self.whole:
            return max([word, *map(len, self.cells)])
        return max(word, min(self.longest, READABLE))


def _widths(columns: Sequence[Column], width: int, between: int) -> list[int]:
    """The widths of columns that share a terminal's; empty if one would be too narrow."""
    widths = [column.least for column in columns]
    spare = width - sum(widths) - between * (len(widths) - 1)
    if spare < 0:
        return []
    while spare:
        wrapped = [place for place, column in enumerate(columns) if widths[place] < column.longest]
        if not wrapped:
            break
        widths[min(wrapped, key=widths.__getitem__)] += 1
        spare -= 1
    return widths


def _paragraph(names: Sequence[str], row: Sequence[str], title: int, width: int) -> "Group | Text":
    """A row as its title, and after or below it what its other columns say.

    What takes most of a line has lines of its own.
    """
    said = [
        f"{name}: {cell}"
        for place, (name, cell) in enumerate(zip(names, row, strict=True))
        if cell and place != title
    ]
    name, rest = Text(printable(row[title]), style="bold"), printable("; ".join(said))
    if len(name) + BETWEEN + len(rest) <= width:
        return name.append(" " * BETWEEN + rest, style="not bold")
    ended = ("\n" if len(text) >= 0.75 * width else "; " for text in said)
    lines = "".join(part for pair in zip(said, ended, strict=True) for part in pair)
    below = Text(printable(lines.removesuffix("; ").strip()))
    return Group(name, Padding(below, (0, 0, 0, BETWEEN)))
