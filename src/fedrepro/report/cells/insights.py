"""Fill the sentences of what_follows.yaml with the runs' numbers."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fedrepro.config.targets import TableTarget
from fedrepro.report.cells.cell import ComputedTable, TableCell
from fedrepro.report.papers.insight import Address, Insight
from fedrepro.report.papers.published import INSIGHTS
from fedrepro.run.results import PAPERS
from fedrepro.support.errors import UserError, bad_value

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
MINUS = "\N{MINUS SIGN}"

# A table of the sentence's system at scale paper, with its numbers.
Find = Callable[[str], tuple[TableTarget, ComputedTable]]


def sentence(insight: Insight, find: Find) -> str | None:
    """The sentence, or None if a number is missing.

    A cell that the experiment file does not have counts as missing, so that a row can be removed
    without editing the sentences about it.

    Raises:
        UserError: if a placeholder names an unknown number.
    """
    where = PAPERS / insight.system / INSIGHTS
    terms = {text: _terms(where, insight, text) for text in PLACEHOLDER.findall(insight.says)}
    cells: dict[str, TableCell] = {}
    for name, address in insight.numbers.items():
        cell = _cell(address, address.table or insight.tables[0], find)
        if cell is None:
            return None
        cells[name] = cell
    if not all(_is_there(cells[name], of) for pair in terms.values() for name, of in pair):
        return None
    return PLACEHOLDER.sub(lambda match: _written(terms[match[1]], cells), insight.says)


def _cell(address: Address, item: str, find: Find) -> TableCell | None:
    try:
        target, table = find(item)
    except UserError:
        return None
    rows, columns = ([head.label for head in kind] for kind in (table.rows, table.columns))
    if address.row not in rows or address.column not in columns:
        return None
    place = rows.index(address.row) * len(target.table.columns) + columns.index(address.column)
    return table.cells[place]


Terms = list[tuple[str, str]]  # one number, or the difference of two: (name, which value of it)


def _terms(where: Path, insight: Insight, text: str) -> Terms:
    terms = []
    for term in text.split(" - "):
        name, _, of = term.strip().partition(".")
        if name not in insight.numbers:
            wanted = f"a name under `numbers` in {insight.says[:40]!r}"
            raise bad_value(where, "says", f"{{{text}}}", wanted, insight.numbers)
        if of not in ("", "printed", "difference", "seeds"):
            raise bad_value(where, "says", f"{{{text}}}", "printed, difference or seeds")
        terms.append((name, of))
    return terms


def _is_there(cell: TableCell, of: str) -> bool:
    """Return True if the cell has a printed number and, unless that is asked, a current one."""
    is_printed = cell.printed is not None and cell.printed.mean is not None
    if of == "printed" or not is_printed:
        return is_printed
    return bool(cell.paper.n and cell.verdict and cell.verdict.is_of_current_runs)


def _value(terms: Terms, cells: Mapping[str, TableCell]) -> float:
    first, *rest = (_of(cells[name], of) for name, of in terms)
    return first - sum(rest)


def _of(cell: TableCell, of: str) -> float:
    assert cell.printed is not None and cell.printed.mean is not None
    if of == "printed":
        return cell.printed.mean
    if of == "seeds":
        return cell.paper.n
    assert cell.paper.mean is not None
    return cell.paper.mean - (cell.printed.mean if of else 0.0)


def _written(terms: Terms, cells: Mapping[str, TableCell]) -> str:
    name, of = terms[0]
    cell = cells[name]
    assert cell.printed is not None
    if of == "printed" and len(terms) == 1:
        return cell.printed.text.split()[0]  # without a spread
    value = _value(terms, cells)
    if of == "seeds":
        return "one seed" if value == 1 else f"{value:.0f} seeds"
    sign = "+" if of == "difference" or len(terms) > 1 else ""
    return f"{value:{sign}.{cell.printed.decimals}f}".replace("-", MINUS)
