"""A panel: the building block of figures and of the charts of tables and runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrepro.measures.base import Quantity
from fedrepro.report.cells.cell import Result
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Line, Points
from fedrepro.run.results import read_run


@dataclass(frozen=True)
class Panel:
    """One small figure among several of a row."""

    title: str
    svg: str


def curves_of(root: Path, result: Result | None, quantity: Quantity) -> list[Points]:
    """The series of each finished run of the chosen method."""
    if result is None:
        return []
    return [
        quantity.series(read_run(root, result.run_of(run), reference=run.reference))
        for run in result.runs_of_the_chosen
        if run.state == "finished"
    ]


def panel_of(
    title: str, lines: Sequence[Line], quantity: Quantity, setting: str, **options: Any
) -> Panel:
    """Learning curves as a panel; ``options`` are those of :func:`curves.draw`."""
    words = description_of(title, lines, quantity, setting)
    return Panel(title, curves.draw(lines, description=words, unit=quantity.unit, **options))


def description_of(title: str, lines: Sequence[Line], quantity: Quantity, setting: str) -> str:
    ends = "; ".join(
        f"{line.name} ends at {line.points[-1][1]:.2f} {quantity.unit}".rstrip() for line in lines
    )
    return f"Test {quantity.words} by round, {title}, setting {setting}: {ends}."
