"""Tables and progress for people."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

SHORT = 18  # characters; a column of such cells is never folded
NUMBER = re.compile(r"[\d,.]*")
Progress = Callable[[float], None]  # told the share that is done


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A bar on a terminal, nothing elsewhere; not shown before there is something to count."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    with progress.Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=1.0, visible=False)
        yield lambda share: bar.update(task, completed=share, visible=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal, long cells folded; a file gets wider lines."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    folded = any("\n" in cell for row in rows for cell in row)
    table = Table(box=box.SIMPLE_HEAD, show_lines=folded)
    for name, *cells in zip(header, *rows, strict=True):
        short = max(map(len, (name, *cells))) <= SHORT
        number = all(NUMBER.fullmatch(cell) for cell in cells)
        table.add_column(
            name,
            justify="right" if number else "left",
            no_wrap=short,
            overflow="fold",
            vertical="top",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def print_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal; elsewhere a line for each row, its cells separated by tabs."""
    if sys.stdout.isatty():
        print_table(header, rows)
        return
    for row in (header, *rows):
        print("\t".join(row))
