"""Which reading a cell follows: the paper's text, or the released code where it differs."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fedrepro.config.metrics import Metric, OfRounds
from fedrepro.config.targets import Cell, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.methods.facts import facts_of
from fedrepro.report.cells.cell import ComputedTable, TableCell
from fedrepro.report.papers.published import Name, Printed, Published
from fedrepro.support.names import Composition, SettingName

READINGS: tuple[Literal["text", "released"], ...] = ("text", "released")  # as in :class:`Both`


@dataclass(frozen=True)
class Answer:
    """A printed cell and a number of ours for it.

    Attributes:
        row, column: as its table labels them.
        released: what follows the released code: "settings", "methods", "scoring".
        items: the discrepancies that the reading follows; if none, those that it could follow.
        unit: of our number.
    """

    row: str
    column: str
    cell: TableCell
    printed: Printed
    released: tuple[str, ...]
    items: tuple[str, ...]
    unit: str

    @property
    def word(self) -> str:
        return self.cell.verdict.word if self.cell.verdict else ""

    @property
    def rank(self) -> tuple[bool, int]:
        """Among the numbers of a cell: today's code first, then the most complete reading."""
        verdict = self.cell.verdict
        return bool(verdict and verdict.is_of_current_runs), len(self.released)


@dataclass(frozen=True)
class Both:
    """A printed cell in both readings; None where a reading has no number."""

    text: Answer | None
    released: Answer | None


def in_both_readings(answers: Iterable[Answer]) -> dict[Name, Both]:
    """Group by printed cell: of each reading the first of the numbers with the highest rank."""
    by_name: dict[Name, dict[bool, Answer]] = {}
    for answer in answers:
        of_cell = by_name.setdefault(answer.printed.name, {})
        before = of_cell.setdefault(bool(answer.released), answer)
        if answer.rank > before.rank:
            of_cell[bool(answer.released)] = answer
    return {name: Both(both.get(False), both.get(True)) for name, both in by_name.items()}


def released_in(workbench: Workbench, cell: Cell) -> tuple[str, ...]:
    """What in a cell at scale paper follows the released code; empty if it follows the text."""
    composition, _ = workbench.composition_of(workbench.setting(cell.setting), cell.methods[0])
    parts = {
        "settings": SettingName.parse(cell.setting).is_released,
        "methods": any(part.released for part in Composition.parse(composition).parts),
        "scoring": cell.metric.quantity.as_released,
    }
    return tuple(name for name, is_so in parts.items() if is_so)


def answers_of(
    workbench: Workbench, target: TableTarget, table: ComputedTable, ledger: Container[str]
) -> Iterable[Answer]:
    """The printed cells for which a table has one of our numbers.

    Args:
        target: the table at scale paper.
        ledger: the numbers of the system's discrepancies; a method shared with another system may
            also deviate from that system's code.
    """
    for wanted, cell in zip(target.cells, table.cells, strict=True):
        if cell.answered is None or not cell.result.n:
            continue
        released = released_in(workbench, wanted)
        setting = workbench.setting(wanted.setting)
        composition, _ = workbench.composition_of(setting, cell.result.chosen or wanted.methods[0])
        plain = workbench.setting(str(SettingName.parse(setting.name).plain))
        settings = tuple(plain.released) if "settings" in released or not released else ()
        methods = (
            number
            for part in Composition.parse(composition).parts
            if part.released or not released
            for number in facts_of(part.name, workbench.plugins).departures
            if number in ledger
        )
        yield Answer(
            wanted.row.label,
            wanted.column.label,
            cell,
            cell.answered,
            released,
            tuple(dict.fromkeys((*settings, *methods))),
            wanted.metric.quantity.unit,
        )


def is_of_shared_model(
    workbench: Workbench, metric: Metric, setting: str, methods: Iterable[str]
) -> bool:
    """Return True if a method's number is of the shared model, beside which clients have their own.

    Args:
        setting: its full name.
    """
    curve, chosen = metric.curve, workbench.setting(setting)
    if not isinstance(curve, OfRounds) or not curve.measure.column.startswith("test_"):
        return False
    compositions = (workbench.composition_of(chosen, method)[0] for method in methods)
    return any(facts_of(composition, workbench.plugins).own_models for composition in compositions)


@dataclass(frozen=True)
class Readings:
    """A workbench's computed tables beside the printed cells, in both readings of the papers.

    Attributes:
        tables: the computed ones, by system and item.
    """

    workbench: Workbench
    published: Published
    tables: Mapping[tuple[str, str], ComputedTable]

    @cached_property
    def by_table(self) -> dict[tuple[str, str], dict[Name, Both]]:
        """By system and printed table (such as "2.3"), whichever tables have its cells."""
        by_table: dict[tuple[str, str], list[Answer]] = {}
        ledgers: dict[str, set[str]] = {}
        for entry in self.published.ledger:
            ledgers.setdefault(entry.system, set()).add(entry.number)
        for (system, item), table in self.tables.items():
            if not table.published_table:
                continue
            target = self.workbench.table(system, item, "paper")
            if not target.table.diagnostic:
                answers = by_table.setdefault((system, table.published_table), [])
                answers += answers_of(self.workbench, target, table, ledgers.get(system, ()))
        return {key: in_both_readings(answers) for key, answers in by_table.items()}
