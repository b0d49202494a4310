"""Tables that need no runs: computed from a formula, counted in data or in networks.

Each kind is a module of a paper's package (:mod:`fedrepro.support.papers`), whose ``compute``
returns a :class:`Found` for the printed cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.papers.published import PrintedCell, Published, Wording
from fedrepro.report.papers.verdict import Verdict, judge_computed
from fedrepro.support import papers


@dataclass(frozen=True)
class ComputedCell:
    """A printed cell and our value for it.

    Attributes:
        value, std: None if the inputs are missing; std also if none is printed.
        hole: why the value is missing, or "".
        entry: the discrepancy that explains why our value differs from the printed one; or "".
    """

    printed: PrintedCell
    value: float | None
    std: float | None
    hole: str
    verdict: Verdict | None
    entry: str = ""


@dataclass(frozen=True)
class ComputedWording:
    """A cell that is printed in words, and the words that follow from our counts.

    Attributes:
        text: None if nothing has been counted yet.
    """

    printed: Wording
    text: str | None

    @property
    def verdict(self) -> str:
        """Empty if we have no text."""
        if self.text is None:
            return ""
        return "agrees" if self.text == self.printed.text else "differs"


@dataclass(frozen=True)
class Found:
    """The values of a table.

    Attributes:
        texts: by printed table, setting and metric, the words of cells that are printed in words.
    """

    cells: Sequence[ComputedCell]
    texts: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def compute(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> Sequence[ComputedCell]:
    """Return our value for every printed cell of a table that needs no training.

    Raises:
        UserError: if a partition's histogram or a study's result is damaged.
    """
    return _found(workbench, target, published).cells


def compute_words(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> list[ComputedWording]:
    """Return our text for every cell that is printed in words or as an expression.

    Raises:
        UserError: if a study's result is damaged.
    """
    words = published.words.get((target.system, target.item), ())
    texts = _found(workbench, target, published).texts if words else {}
    table = target.item.removeprefix("table_")
    return [ComputedWording(word, texts.get((table, word.setting, word.metric))) for word in words]


def _found(workbench: Workbench, target: ComputedTarget, published: Published) -> Found:
    printed = published.tables.get((target.system, target.item), ())
    computed: Found = papers.load("table", target.spec.kind).compute(workbench, target, printed)
    return computed


def hole(cell: PrintedCell, why: str, entry: str = "") -> ComputedCell:
    """A cell whose inputs are missing."""
    return ComputedCell(cell, None, None, why, None, entry)


def with_verdict(cell: PrintedCell, value: float, std: float | None = None) -> ComputedCell:
    """A cell with a value."""
    return ComputedCell(cell, value, std, "", judge_computed(cell, value, std))
