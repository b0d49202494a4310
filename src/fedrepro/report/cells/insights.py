"""Fill the sentences of what_follows.yaml and claims.yaml with the runs' numbers."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedrepro.report.cells.cell import ComputedTable, TableCell
from fedrepro.report.papers.claim import Address, Claim, Insight
from fedrepro.report.papers.published import CLAIMS, INSIGHTS, Printed
from fedrepro.run.landed_runs import PAPERS
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.printing import MINUS

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Number(NamedTuple):
    """What a sentence can say of a cell; ``ours`` is None without current runs."""

    ours: float | None
    seeds: int
    printed: Printed | None
    form: str  # as of Python's format, with the sign between its two parts

    def value_of(self, which: str) -> float | None:
        """Ours, or the ``printed`` one, the ``difference`` of both, or how many ``seeds``."""
        printed = self.printed.mean if self.printed else None
        if which == "printed" or self.ours is None:
            return printed if which == "printed" else None
        if which == "seeds":
            return self.seeds
        if which == "difference":
            return None if printed is None else self.ours - printed
        return self.ours


Numbers = Mapping[tuple[str, str], Number]  # of a table's cells, by the labels of row and column
Find = Callable[[str], Numbers]  # of a table of the sentence's system
Where = tuple[Path, str]  # file and key


def sentence(insight: Insight, find: Find) -> str | None:
    """The sentence, or None if a number is missing.

    A cell that the experiment file does not have counts as missing, so that a row can be removed
    without editing the sentences about it.

    Raises:
        UserError: if a placeholder names an unknown number.
    """
    where = (PAPERS / insight.system / INSIGHTS, "says")
    return filled(insight.says, insight.numbers, insight.tables[0], find, where)


def looked_at(claim: Claim, tables: Mapping[tuple[str, str], ComputedTable]) -> str:
    """What was looked at before a claim's small runs were believed; "" if a number is missing.

    Args:
        tables: the computed ones.

    Raises:
        UserError: as :func:`sentence`.
    """
    test = claim.compact
    if isinstance(test, str) or not test.looked_at:
        return ""

    def find(item: str) -> Numbers:
        table = tables.get((claim.system, item))
        return {} if table is None else compact_numbers(table)

    where = (PAPERS / claim.system / CLAIMS, f"{claim.name}.compact.looked_at")
    return filled(test.looked_at, test.numbers, test.table, find, where) or ""


def filled(
    says: str, numbers: Mapping[str, Address], item: str, find: Find, where: Where
) -> str | None:
    """Replace each placeholder; None if a number is missing.

    Args:
        item: the table of an address that names none.
        where: for errors.
    """
    terms = {text: _terms(where, numbers, text) for text in PLACEHOLDER.findall(says)}
    known: dict[str, Number | None] = {}
    for name, address in numbers.items():
        try:
            known[name] = find(address.table or item).get((address.row, address.column))
        except UserError:  # the experiment file has no such table
            known[name] = None
    written = {text: _written(pair, known) for text, pair in terms.items()}
    if None in written.values():
        return None
    return PLACEHOLDER.sub(lambda match: written[match[1]] or "", says)


def printed_numbers(table: ComputedTable) -> Numbers:
    """The cells of a table that has printed ones; ours is None unless it is of current runs."""
    return _by_label(table, [_of_printed(cell) for cell in table.cells])


def _of_printed(cell: TableCell) -> Number | None:
    printed, result = cell.printed, cell.result
    if printed is None or printed.mean is None:
        return None
    current = bool(result.n and cell.verdict and cell.verdict.is_of_current_runs)
    form = f".{printed.decimals}f"
    return Number(result.mean if current else None, result.n, printed, form)


def compact_numbers(table: ComputedTable) -> Numbers:
    """The cells of a compact table, from the runs that a claim counts."""
    numbers = []
    for cell in table.cells:
        values = [*cell.result.counted_by_seed().values()]
        mean = math.fsum(values) / len(values) if values else None
        form = ".1f" if table.rows[cell.row].unit == "%" else ".3g"
        numbers.append(Number(mean, len(values), None, form))
    return _by_label(table, numbers)


def _by_label(table: ComputedTable, numbers: list[Number | None] | list[Number]) -> Numbers:
    labels = ((row.label, column.label) for row in table.rows for column in table.columns)
    return {label: number for label, number in zip(labels, numbers, strict=True) if number}


Terms = list[tuple[str, str]]  # one number, or the difference of two: (name, which value of it)


def _terms(where: Where, numbers: Mapping[str, Address], text: str) -> Terms:
    terms = []
    for term in text.split(" - "):
        name, _, which = term.strip().partition(".")
        if name not in numbers:
            raise bad_value(*where, f"{{{text}}}", "a name under `numbers`", numbers)
        if which not in ("", "printed", "difference", "seeds"):
            raise bad_value(*where, f"{{{text}}}", "printed, difference or seeds")
        terms.append((name, which))
    return terms


def _written(terms: Terms, numbers: Mapping[str, Number | None]) -> str | None:
    known = [(numbers[name], which) for name, which in terms]
    values = [number.value_of(which) if number else None for number, which in known]
    (first, which), several = known[0], len(terms) > 1
    if first is None or None in values:
        return None
    if which == "printed" and not several and first.printed:
        return first.printed.text.split()[0]  # without a spread
    value, *rest = (value for value in values if value is not None)
    value -= sum(rest)
    if which == "seeds":
        return "one seed" if value == 1 else f"{value:.0f} seeds"
    sign = "+" if which == "difference" or several else ""
    return f"{value:{sign}{first.form}}".replace("-", MINUS)
