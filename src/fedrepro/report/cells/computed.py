"""Tables that need no runs: computed from a formula, counted in data or in networks.

Each kind is a module of a paper's package (:mod:`fedrepro.support.papers`), whose ``compute`` makes
what :class:`Found` holds of the printed cells.
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
    """A printed cell and what we compute for it.

    Attributes:
        value, std: None where there is nothing to compute from; std also where none is printed.
        hole: why there is no value, or "".
        entry: of the ledger, which says why it is not as printed; or "".
    """

    printed: PrintedCell
    value: float | None
    std: float | None
    hole: str
    verdict: Verdict | None
    entry: str = ""


@dataclass(frozen=True)
class ComputedWording:
    """A cell that is printed in words, and what follows from what we count.

    Attributes:
        text: None where nothing was counted yet.
    """

    printed: Wording
    text: str | None

    @property
    def verdict(self) -> str:
        """Empty without a text of ours."""
        if self.text is None:
            return ""
        return "agrees" if self.text == self.printed.text else "differs"


@dataclass(frozen=True)
class Found:
    """What a table comes to.

    Attributes:
        texts: by printed table, setting and metric, what is said in cells that have words.
    """

    cells: Sequence[ComputedCell]
    texts: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def compute(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> Sequence[ComputedCell]:
    """A value for every printed cell of the table that needs no training.

    Raises:
        UserError: when a partition's histogram, or what was counted, is damaged.
    """
    return _found(workbench, target, published).cells


def compute_words(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> list[ComputedWording]:
    """What we say in every cell of a table that is printed in words or as expressions.

    Raises:
        UserError: when what was counted is damaged.
    """
    words = published.words.get((target.system, target.item), ())
    texts = _found(workbench, target, published).texts if words else {}
    table = target.item.removeprefix("table_")
    return [ComputedWording(word, texts.get((table, word.setting, word.metric))) for word in words]


def _found(workbench: Workbench, target: ComputedTarget, published: Published) -> Found:
    printed = published.tables.get((target.system, target.item), ())
    found: Found = papers.load("table", target.spec.kind).compute(workbench, target, printed)
    return found


def hole(cell: PrintedCell, why: str, entry: str = "") -> ComputedCell:
    """A cell for which there is nothing to compute from."""
    return ComputedCell(cell, None, None, why, None, entry)


def with_verdict(cell: PrintedCell, value: float, std: float | None = None) -> ComputedCell:
    """A cell with a value."""
    return ComputedCell(cell, value, std, "", judge_computed(cell, value, std))
