"""The printed cells of the papers, doubts about them, and the list of discrepancies.

Each paper has a folder ``reports/papers/<system>/``, described in ``reports/papers/README.md``.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import Field, model_validator

from fedrepro.report.papers.claim import Claim, Insight
from fedrepro.report.papers.paper_files import KEYS, entries_of, entry_of, listed_in, rows_of
from fedrepro.report.papers.references import References, load_references
from fedrepro.run.landed_runs import ORDER, PAPERS
from fedrepro.support.errors import bad_value, missing_value, refusal
from fedrepro.support.files import visible
from fedrepro.support.grouping import grouped
from fedrepro.support.packaged import own_or_packaged
from fedrepro.support.printing import decimals_for, fixed
from fedrepro.support.typed_yaml import Typed, read_text, read_yaml

CLAIMS, INSIGHTS = "claims.yaml", "what_follows.yaml"
Name = tuple[str, str, str, str]  # of a printed cell in its table: its values of KEYS

Unit = Literal["percent", "fraction", "own"]
MOST: dict[Unit, float] = {"percent": 100.0, "fraction": 1.0, "own": math.inf}


class PrintedMetric(Typed):
    """How to read the numbers of a printed metric.

    Attributes:
        unit: percent (of 100), fraction (of 1), or any other kind of number, for which a tolerance
            in percentage points has no meaning.
        words: the head of its column; by default its name.
        lead_unit: of a difference of two numbers; by default points for percent, else none.
    """

    unit: Unit = "own"
    better: Literal["more", "less"] = "more"
    words: str | None = None
    lead_unit: str | None = None


@dataclass(frozen=True)
class Printed:
    """One printed number, as a table's JSON keeps it.

    Attributes:
        mean: None if the printed cell is empty.
        std: None if no spread is printed.
        decimals: of the printed mean; without one 0, which says nothing about ours.
        doubt: why the number is doubtful, or "".
    """

    dataset: str
    setting: str
    method: str
    metric: str
    mean: float | None
    std: float | None
    text: str
    decimals: int
    doubt: str

    @property
    def name(self) -> Name:
        """Identifies a printed cell within its table."""
        return self.dataset, self.setting, self.method, self.metric


@dataclass(frozen=True)
class PrintedCell(Printed):
    """One printed number with its place and its unit.

    Attributes:
        table: as printed, such as "2.3", "I" or "Section F.1".
        item: its name in the workflow, such as "table_2_3".
        kind: the metric's entry in paper.yaml.
    """

    system: str
    item: str
    table: str
    kind: PrintedMetric

    @property
    def number(self) -> Printed:
        """The part that a table's JSON keeps."""
        return Printed(*(getattr(self, field.name) for field in fields(Printed)))

    @property
    def last_digit(self) -> float:
        """One unit of the mean's last printed digit, such as 0.01; 1 for a count."""
        return float(10.0 ** int(Decimal(self.text.split()[0]).as_tuple().exponent))

    def written(self, value: float) -> str:
        """One of our values with the printed mean's number of decimals, or those that suit it."""
        if self.mean is None:
            return fixed(value, decimals_for([value]))
        mantissa, power, _ = self.text.split()[0].lower().partition("e")
        if power:
            return f"{value:.{len(mantissa.partition('.')[2])}e}"
        return f"{value:.{self.decimals}f}"

    @property
    def unit(self) -> Unit:
        return self.kind.unit

    @property
    def lead_unit(self) -> str:
        """Of a difference from another number of the metric, or ""."""
        if self.kind.lead_unit is not None:
            return self.kind.lead_unit
        return "points" if self.unit == "percent" else ""

    @property
    def metric_in_words(self) -> str:
        return self.kind.words or self.metric.replace("_", " ")

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """The keys that all methods of a printed row share."""
        return self.system, self.table, self.dataset, self.setting, self.metric


class OwnSplits(Typed):
    """Data sets on which we use the authors' seeds and splits, and the evidence for it."""

    datasets: list[str]
    seeds: list[int]
    source: str


class Spread(Typed):
    """The samples behind the +- in a paper's tables."""

    over: Literal["seeds", "clients", "none"]
    source: str
    seeds: int = Field(default=1, ge=1)
    ddof: Literal[0, 1] = 1
    own_splits: OwnSplits | None = None

    @model_validator(mode="after")
    def _over_several(self) -> Self:
        if self.over == "seeds" and self.seeds < 2:
            raise ValueError("`seeds`, at least 2, as the spread is over them")
        return self


class System(Typed):
    """paper.yaml: a paper whose tables are reproduced. ``system`` is its folder's name."""

    system: str
    name: str
    title: str
    changes: str
    paper: str
    spread: Spread
    proposes: list[str] = Field(
        default=[], description='The paper\'s own methods; "+IMA" is a plug-in of others.'
    )
    references: list[str] = Field(
        default=[], description="Methods that are references, not rivals."
    )
    metrics: dict[str, PrintedMetric] = Field(
        default={}, description="How the numbers in cells.csv are printed, by metric."
    )


class Discrepancy(Typed):
    """One numbered discrepancy, with the reading that this workbench takes."""

    system: str
    number: str
    topic: str
    text: str
    reading: str
    evidence: list[Literal["code", "text", "arithmetic", "inference"]]
    tables: list[str] = Field(default=[])


@dataclass(frozen=True)
class Wording:
    """A cell that is printed in words or as an expression, not as a number."""

    item: str
    setting: str
    metric: str
    text: str


State = Literal["as printed", "in part", "otherwise", "missing"]


class PrintedFigure(Typed):
    """An entry of figures.csv: a printed figure with data, and what our page has of it.

    Attributes:
        item: the figure's name in the workflow; empty if it is missing.
        state: "otherwise" is another quantity or setting than the printed one.
        note: what differs.
    """

    system: str
    figure: str
    item: str
    state: State
    note: str


@dataclass(frozen=True)
class Caption:
    """A table's caption, from captions/<item>.md: a title and paragraphs."""

    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """All of reports/papers except the reference results, by system and by (system, item)."""

    cells: list[PrintedCell] = field(default_factory=list)
    systems: dict[str, System] = field(default_factory=dict)
    ledger: list[Discrepancy] = field(default_factory=list)
    notes: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    words: dict[tuple[str, str], tuple[Wording, ...]] = field(default_factory=dict)
    captions: dict[tuple[str, str], Caption] = field(default_factory=dict)
    figures: list[PrintedFigure] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    insights: list[Insight] = field(default_factory=list)
    references: References = field(default_factory=References)

    @cached_property
    def tables(self) -> dict[tuple[str, str], tuple[PrintedCell, ...]]:
        """Cells by (system, item); systems in their order, tables sorted naturally."""
        tables = grouped(self.cells, lambda cell: (cell.system, cell.item))
        tables = {**{key: [] for key in self.words}, **tables}
        order = list(self.systems)
        keys = sorted(tables, key=lambda key: (order.index(key[0]), natural(key[1])))
        return {key: tuple(tables[key]) for key in keys}

    def find(self, system: str, table: str, wanted: Mapping[str, str]) -> PrintedCell | None:
        """The one printed cell of a table with these values of :data:`KEYS`.

        Raises:
            UserError: if there are several; the experiment file then needs a further key.
        """
        matches = [
            cell
            for cell in self._by_table.get((system, table), ())
            if all(getattr(cell, key, None) == value for key, value in wanted.items())
        ]
        if len(matches) > 1:
            given = ", ".join(f"{key}: {value}" for key, value in wanted.items())
            number, more = f"{len(matches)} cells have {given}", f"name more of {', '.join(KEYS)}"
            why = f"table {table}: {number}: expected one; {more}"
            raise refusal(PAPERS / system / "cells.csv", why, f"table {table}")
        return matches[0] if matches else None

    def effect(self, cell: PrintedCell) -> float | None:
        """The effect that the paper claims at a cell: the distance to the number it is compared to.

        A method with a plug-in is compared with the method alone, a proposed method with the best
        other one, and any other with the best proposed one. None if the row has no such number.
        """
        system = self.systems[cell.system]
        row = {
            rival.method: rival.mean
            for rival in self._by_row[cell.row]
            if rival.mean is not None and rival.method not in system.references
        }
        if cell.mean is None:
            return None
        proposes = system.proposes
        for plug_in in (name for name in proposes if name.startswith("+")):
            alone = cell.method.removesuffix(plug_in)
            pair = row.get(alone), row.get(alone + plug_in)
            if pair[0] is not None and pair[1] is not None:
                return abs(pair[0] - pair[1])
        if not {*proposes} & {*row}:
            return None
        own = cell.method in proposes
        rivals = [mean for name, mean in row.items() if (name in proposes) != own]
        if not rivals:
            return None
        best = min if cell.kind.better == "less" else max
        return abs(cell.mean - best(rivals))

    @cached_property
    def _by_row(self) -> dict[tuple[str, ...], list[PrintedCell]]:
        return grouped(self.cells, lambda cell: cell.row)

    @cached_property
    def _by_table(self) -> dict[tuple[str, str], list[PrintedCell]]:
        return grouped(self.cells, lambda cell: (cell.system, cell.table))

    def claims_on(self, system: str, item: str) -> tuple[Claim, ...]:
        """The claims about a table, or about the table that it is a part of."""
        return _about(self.claims, system, {item, split_part(item)[0]})

    def label_of(self, system: str, item: str) -> str:
        """An item's printed name, with its table's number as the paper prints it."""
        keys = ((system, item), (system, split_part(item)[0]))
        cells = next((self.tables[key] for key in keys if key in self.tables), ())
        return label_of(item, cells[0].table if cells else "")

    def figure_of(self, system: str, item: str) -> PrintedFigure | None:
        """The printed figure that a page shows."""
        key = system, item
        return next(
            (figure for figure in self.figures if (figure.system, figure.item) == key), None
        )

    def insights_on(self, system: str, item: str) -> tuple[Insight, ...]:
        """The sentences about a table."""
        return _about(self.insights, system, {item})

    def discrepancies(self, system: str, item: str) -> tuple[Discrepancy, ...]:
        """The discrepancies about a table, or about the table that it is a part of."""
        return _about(self.ledger, system, {item, split_part(item)[0]})


OfTables = TypeVar("OfTables", bound=Claim | Insight | Discrepancy)


def _about(entries: Iterable[OfTables], system: str, items: set[str]) -> tuple[OfTables, ...]:
    """The entries of a paper that name one of these tables."""
    return tuple(row for row in entries if row.system == system and items & {*row.tables})


def split_part(item: str) -> tuple[str, str]:
    """Split an item into table and part: table_7_heart is table_7 and heart."""
    match = re.fullmatch(r"((?:table|figure)_\w*\d)_([a-z]{2,}\d*)", item)
    return (match[1], match[2]) if match else (item, "")


def _name_of(item: str) -> str:
    """An item's name as a paper would print it; without a number, its word."""
    kind, _, number = item.partition("_")
    if kind in ("table", "figure") and re.search(r"\d", number):
        return f"{kind.capitalize()} {number.replace('_', '.').upper()}"
    words = number if kind in ("table", "figure") and number else item
    return words.replace("_", " ").capitalize()


def natural(item: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key: table_2_10 comes after table_2_9, B11 after B8, and sections after tables."""
    parts = re.findall(r"\d+|[^\d_.]+", item)
    kinds = {"table": 0, "figure": 1, "section": 2}
    return tuple(
        (kinds.get(part, 3 if not part.isdigit() else 2), int(part) if part.isdigit() else 0, part)
        for part in parts
    )


def label_of(item: str, table: str = "") -> str:
    """The printed name: "Table 2.3", "Section F.1", "Figure A1"; for a part "Table 7, Heart"."""
    if table.startswith("Section"):
        return table
    whole, part = split_part(item)
    name = f"Table {table}" if table else _name_of(whole)
    return f"{name}, {part.capitalize()}" if part else name


def load(root: Path = Path()) -> Published:
    """Read reports/papers, or the package's copy if there is no such folder.

    Raises:
        UserError: if a file is missing or invalid.
    """
    root = own_or_packaged(root, PAPERS).parents[1]
    folders = {str(name): PAPERS / str(name) for name in listed_in(root, ORDER, needed=True)}
    published = Published(references=load_references(root))
    for system, folder in folders.items():
        about = folder / "paper.yaml"
        paper = entry_of(System, about, system, read_yaml(root / about, about))
        published.systems[system] = paper
        rows = rows_of(root, folder / "cells.csv")
        if unsaid := {row["metric"] for row in rows} - {*paper.metrics}:
            wanted = "its unit, as it is printed in cells.csv"
            raise missing_value(about, f"metrics.{min(unsaid)}", wanted)
        published.cells.extend(_cell(system, row, paper.metrics[row["metric"]]) for row in rows)
        ledger = entries_of(Discrepancy, root, folder / "discrepancies.yaml", system)
        published.ledger.extend(ledger)
        claims = entries_of(Claim, root, folder / CLAIMS, system, old_keys="claims")
        published.claims.extend(claims)
        published.insights.extend(entries_of(Insight, root, folder / INSIGHTS, system))
        said = rows_of(root, folder / "notes.csv", needed=False)
        for item, group in grouped(said, lambda row: row["item"]).items():
            published.notes[system, item] = tuple(row["note"] for row in group)
        said = rows_of(root, folder / "words.csv", needed=False)
        wordings = (Wording(*(row[field.name] for field in fields(Wording))) for row in said)
        for item, texts in grouped(wordings, lambda wording: wording.item).items():
            published.words[system, item] = tuple(texts)
        path = folder / "figures.csv"
        drawn = rows_of(root, path, needed=False)
        published.figures.extend(entry_of(PrintedFigure, path, system, row) for row in drawn)
        for path in visible(root / folder / "captions", "*.md"):
            text = read_text(path, path.relative_to(root))
            published.captions[system, path.stem] = _caption(text)
    return published


def _cell(system: str, row: Mapping[str, str], kind: PrintedMetric) -> PrintedCell:
    mean, std = row["mean"], row["std"]
    return PrintedCell(
        system=system,
        **{key: row[key] for key in ("item", "table", *KEYS, "doubt")},
        mean=_number(system, row, "mean", MOST[kind.unit]),
        std=_number(system, row, "std", math.inf),
        text=f"{mean} ({std})" if mean and std else mean or "empty",
        decimals=max(0, -int(Decimal(mean).as_tuple().exponent)) if mean else 0,
        kind=kind,
    )


def _number(system: str, row: Mapping[str, str], key: str, most: float) -> float | None:
    """A printed number, or None.

    Raises:
        UserError: for text, a percentage or fraction of more than all, and a number below 0, which
            only a mean of another kind may be.
    """
    try:
        value = float(Decimal(row[key].replace("_", "?"))) if row[key] else None
    except (ValueError, ArithmeticError):
        value = math.nan
    least = -math.inf if key == "mean" and most == math.inf else 0.0
    if value is None or (least <= value <= most and math.isfinite(value)):
        return value
    where = ", ".join(filter(None, (row[name] for name in ("item", *KEYS))))
    wanted = "a number" + " of at least 0" * (least == 0)
    wanted += f" and at most {most:g}" * (most < math.inf)
    raise bad_value(f"{PAPERS / system}/cells.csv: {where}", key, row[key], wanted)


def _caption(text: str) -> Caption:
    title, *paragraphs = re.split(r"\n\s*\n", text.strip())
    return Caption(
        title.lstrip("# "), tuple(" ".join(paragraph.split()) for paragraph in paragraphs)
    )
