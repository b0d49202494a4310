"""Tables and progress bars on a terminal; tab-separated lines for scripts."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedrepro.support.printing import printable

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text

NUMBER = re.compile(r"[\d,.]*")
BETWEEN = 2  # spaces between columns
READABLE = 14  # characters; text in narrower columns is hard to read
Progress = Callable[[float], None]  # called with the fraction that is done


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A progress bar on a terminal, nothing elsewhere; hidden until it is first updated."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    with progress.Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=1.0, visible=False)
        yield lambda share: bar.update(task, completed=share, visible=True)


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal; elsewhere one line per row, with tabs between cells."""
    if sys.stdout.isatty():
        _print_table(header, rows)
        return
    for row in (header, *rows):
        print("\t".join(re.sub(r"\s*[\n\t]\s*", "; ", cell) for cell in row))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print named facts: as two columns on a terminal, elsewhere as tab-separated lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
    Console().print(table)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as the terminal (or COLUMNS).

    Text that does not fit is wrapped, except for numbers and the first column, which names the row.
    If that leaves a column too narrow to read, each row is a paragraph instead.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    columns = list(zip(header, *rows, strict=True))
    fits = sum(max(map(len, cells)) + BETWEEN for cells in columns) <= console.width
    if sum(_least_width(place, *cells) for place, cells in enumerate(columns)) > console.width:
        for row in rows:
            console.print(_paragraph(header, row, console.width))
        return
    folded = any("\n" in cell for row in rows for cell in row)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_lines=folded,
        show_edge=False,
        padding=(0, BETWEEN if fits else 1, 0, 0),
    )
    for place, (name, *cells) in enumerate(columns):
        number = all(NUMBER.fullmatch(cell) for cell in cells)
        table.add_column(
            name.replace("_", " "),
            justify="right" if number else "left",
            no_wrap=fits or place == 0,
            overflow="fold",
            min_width=max(map(len, [*cells, *name.split("_")])) if number else None,
            vertical="top",
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def _least_width(place: int, name: str, *cells: str) -> int:
    """The width of a column in which it can be read, with the space after it."""
    longest = max(map(len, (*cells, *name.split("_"))))
    whole = place == 0 or all(NUMBER.fullmatch(cell) for cell in cells)
    return (longest if whole else min(longest, READABLE)) + 1


def _paragraph(header: Sequence[str], row: Sequence[str], width: int) -> "Padding | Text":
    """A row as its name, and after or below it what its other columns say."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    said = [
        f"{name.replace('_', ' ')}: {cell}"
        for name, cell in zip(header[1:], row[1:], strict=True)
        if cell
    ]
    name, rest = Text(printable(row[0]), style="bold"), printable("; ".join(said))
    if len(name) + BETWEEN + len(rest) <= width:
        return name.append(" " * BETWEEN + rest, style="not bold")
    return Padding(Group(name, Padding(Text(rest), (0, 0, 0, BETWEEN))), (0, 0, 1, 0))
