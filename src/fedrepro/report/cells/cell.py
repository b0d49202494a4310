"""A table's cells as typed values, and as the JSON that ``results/tables/`` keeps.

A cell has up to two results: ``result`` comes from the row's own setting (the published one, at
scale compact the small one; runs of this machine, or else reference results in reports/papers) and
may carry a verdict; ``demo`` comes from the smaller demo setting and never does.

A run's number is the mean of those of its last rounds that count in the table; of each row the best
numbers are found as they are printed.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey, TableTarget
from fedrepro.config.values import Scale
from fedrepro.measures.base import Quantity, Series
from fedrepro.report.papers.published import Printed
from fedrepro.report.papers.verdict import Verdict
from fedrepro.run.derived_files import adapter, read_as
from fedrepro.run.results import RunRecord, RunStatus, read_run
from fedrepro.support.checksummed_json import in_lines
from fedrepro.support.packaged import PACKAGE
from fedrepro.support.printing import decimals_for

NOT_RUN = "not run"


def series_of(record: RunRecord, quantity: Quantity, summary: Summary) -> Series:
    """The rounds of a run that a table can take, in printed units; empty of an unfinished run."""
    if record.state != "finished":
        return []
    series = quantity.series(cut(record, summary))
    # `cut` leaves no later rounds; `until` also drops a number that is dated at the run's last one.
    return series if quantity.of_a_run else until(series, summary.up_to)


def cut(record: RunRecord, summary: Summary) -> RunRecord:
    """A run with those of its rounds that a table can take."""
    return record if summary.up_to is None else replace(record, up_to=summary.up_to)


def value_of(record: RunRecord, quantity: Quantity, summary: Summary) -> float | None:
    """A run's number in a table, in printed units; None without one."""
    return last(series_of(record, quantity, summary), summary.rounds)


def until(series: Series, round: int | None) -> Series:
    """The curve up to and including a round; all of it for None."""
    return [at for at in series if round is None or at[0] <= round]


def last(series: Series, rounds: int) -> float | None:
    """The mean of the last ``rounds`` values; None if there are none or one is not finite."""
    values = [value for _, value in series[-rounds:]]
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.fsum(values) / len(values)


def fewer(series: Series, rounds: int) -> str:
    """A note for :func:`last` if fewer than ``rounds`` values exist, or ""."""
    there = len(series)
    return f"is the mean of {there} evaluated rounds, not of {rounds}" if there < rounds else ""


@dataclass(frozen=True)
class CellRun:
    """A run that contributes to a result.

    Attributes:
        state: as of the run's record, or "left out": not averaged with the method's other seeds.
        why: an explanation of any state but "finished".
        value: the summary of its learning curve, in printed units; None without a number.
        reference: whether it is committed: a reference result, or a landed run of scale compact.
        changed: keys whose values differ from the current configuration.
        code: why the current code might give other numbers, or "".
        data: how its data or its partition differ from today's, or "".
        page: its page, relative to the site; None without a result, and for landed compact runs.
        made_on: the packages and the machine that it is from; or "".
        arithmetic: how a run of this workbench differs from the class of arithmetic that is
            configured; or "".
        unreached: what a claim counts without a number, as the target was never reached: all rounds
            or megabytes; None for another number.
    """

    method: str
    seed: int
    state: RunStatus | Literal["left out"]
    why: str
    value: float | None
    reference: bool
    changed: tuple[str, ...]
    folder: str
    page: str | None
    code: str = ""
    data: str = ""
    made_on: str = ""
    arithmetic: str = ""
    unreached: float | None = None

    @property
    def counted(self) -> float | None:
        """Its number in a claim. Runs that never arrive are the worst, and are not left out."""
        return self.unreached if self.value is None and self.state == "finished" else self.value

    @property
    def stale(self) -> str:
        """How it differs from today's configuration and code, in words; "" if it is current."""
        keys = ", ".join(self.changed)
        return f"made with another configuration: {keys}" if keys else self.code or self.data


@dataclass(frozen=True)
class Result:
    """A number over seeds, of the best of the cell's methods.

    Attributes:
        chosen: the best method; None if no run of any method has a number.
        tried: the mean of each method that has a number.
        hole: why the number is missing, or None.
        trouble: errors in runs of the chosen method, or "".
        n: how many seeds have a number; if 0, the other numbers are None.
        std, half_width: as in :class:`fedrepro.report.papers.estimate.Estimate`.
        precision: the training precision, if any run used a non-default one; or "".
        apart: whether the number is missing because its runs must not be averaged.
    """

    setting: str
    methods: tuple[str, ...]
    chosen: str | None
    tried: Mapping[str, float]
    runs: tuple[CellRun, ...]
    hole: str | None
    trouble: str
    n: int
    mean: float | None
    std: float | None
    half_width: float | None
    precision: str = ""
    apart: bool = False

    @property
    def runs_of_the_chosen(self) -> tuple[CellRun, ...]:
        return tuple(run for run in self.runs if run.method == self.chosen)

    @property
    def note(self) -> str:
        """Remarks on its number; without one, the reason, unless no run of it has begun."""
        return self.trouble or ("" if self.hole == NOT_RUN else self.hole or "")

    @property
    def stale(self) -> str:
        """How its first run that is not current differs from today's; "" if all are current."""
        runs = (run for run in self.runs_of_the_chosen if run.value is not None)
        return next((run.stale for run in runs if run.stale and not run.reference), "")

    @property
    def by_seed(self) -> dict[int, float]:
        """The numbers of the chosen method, in printed units."""
        return {run.seed: run.value for run in self.runs_of_the_chosen if run.value is not None}

    def current_by_seed(self) -> dict[int, float]:
        """The numbers that comparisons and the league count: of current runs only."""
        return {run.seed: run.value for run in self._current if run.value is not None}

    def counted_by_seed(self) -> dict[int, float]:
        """The numbers that claims count: also those of runs that never reached their target."""
        return {run.seed: run.counted for run in self._current if run.counted is not None}

    @property
    def _current(self) -> Iterator[CellRun]:
        runs = self.runs_of_the_chosen or (self.runs if len(self.methods) == 1 else ())
        return (run for run in runs if not run.stale)

    @property
    def lost_seeds(self) -> bool:
        """True if a run of the chosen method has ended without a number, which its mean lacks.

        One that is left out, such as of other data, has a number.
        """
        missing = (run.state for run in self.runs_of_the_chosen if run.value is None)
        return any(state not in ("not run", "under way", "left out") for state in missing)

    @property
    def diverged(self) -> tuple[int, ...]:
        """The seeds with which the chosen method diverged; without one, any of its methods."""
        runs = self.runs_of_the_chosen or self.runs
        return tuple(run.seed for run in runs if run.state == "diverged" and not run.stale)

    @property
    def by_key(self) -> list[tuple[RunKey, CellRun]]:
        """Its runs, each with setting, method and seed."""
        return [(self.run_of(run), run) for run in self.runs]

    def run_of(self, run: CellRun) -> RunKey:
        """Setting, method and seed of one of its runs."""
        return RunKey(self.setting, run.method, run.seed)


Place = TypeVar("Place")


def comparable(results: Mapping[Place, Result]) -> dict[Place, float]:
    """Return the means of which one may be called the best: over the same seeds, none lost.

    Where some are of today's configuration, data and code, the others are left out.
    They are of as many seeds as any has. Seeds that diverged or never reached a target would have
    been the worst of their method.
    """
    current = {place: each for place, each in results.items() if not each.stale and each.n}
    results = current or results
    most = max((result.n for result in results.values()), default=0)
    complete = {place: result for place, result in results.items() if result.n == most}
    if len({frozenset(result.by_seed) for result in complete.values()}) > 1:
        return {}
    return {
        place: result.mean
        for place, result in complete.items()
        if result.mean is not None and not result.lost_seeds
    }


def seeds_in_words(seeds: Collection[int]) -> str:
    """Such as ``seed 1`` and ``seeds 1 and 3``."""
    return f"seed{'s' * (len(seeds) > 1)} {' and '.join(map(str, seeds))}"


def diverged_in_words(seeds: Mapping[str, Sequence[int]]) -> str:
    """A sentence about the runs that diverged, from their seeds by method; "" if none did."""
    said = [f"{name}, {seeds_in_words(those)}" for name, those in seeds.items() if those]
    return f" Diverged: {'; '.join(said)}." if said else ""


@dataclass(frozen=True)
class TableCell:
    """The printed number and ours; rows and columns count from 0, ``difference`` is ours - printed.

    ``selection`` says what was selected on test data, as in the paper; or "". ``surrogate_for`` is
    the data set that ours is a surrogate for; or "".
    """

    row: int
    column: int
    printed: Printed | None
    result: Annotated[Result, Field(alias="paper")]
    demo: Result | None
    selection: str
    difference: float | None
    verdict: Verdict | None
    surrogate_for: str = ""

    @property
    def results(self) -> tuple[Result, ...]:
        return (self.result, self.demo) if self.demo else (self.result,)

    @property
    def answered(self) -> Printed | None:
        """The printed cell if our number was computed on the same data."""
        return None if self.surrogate_for else self.printed


@dataclass(frozen=True)
class TableRow:
    """The head of a row: the metric in words, its unit, and its settings' full names."""

    label: str
    metric: str
    unit: str
    setting: str
    demo: str | None


@dataclass(frozen=True)
class TableColumn:
    """The head of a column; with its own metric, that in words and its unit, else ""."""

    label: str
    metric: str = ""
    unit: str = ""

    @property
    def head(self) -> str:
        """Its label, and its own metric."""
        return f"{self.label}: {', '.join(filter(None, self.own))}" if self.metric else self.label

    @property
    def own(self) -> tuple[str, str]:
        """Its own metric and unit."""
        return self.metric, self.unit


@dataclass(frozen=True)
class ComputedTable:
    """``results/tables/<scale>/<system>/<item>.json``, its cells row by row."""

    system: str
    item: str
    scale: Scale
    title: str
    published_table: str | None
    summary: Summary
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    cells: tuple[TableCell, ...]

    @property
    def runs(self) -> list[tuple[RunKey, CellRun]]:
        """The runs of all results, once for each that has them."""
        return [pair for cell in self.cells for result in cell.results for pair in result.by_key]

    def records(self, root: Path, wanted: Callable[[CellRun], object]) -> list[RunRecord]:
        """The records of those of its runs that are wanted, each once."""
        keys = dict.fromkeys((key, run.reference) for key, run in self.runs if wanted(run))
        return [read_run(root, key, reference=landed) for key, landed in keys]

    def measure_of(self, cell: TableCell) -> tuple[str, str]:
        """A cell's metric in words, and its unit: its column's own ones, or those of its row."""
        row, column = self.rows[cell.row], self.columns[cell.column]
        return column.own if column.metric else (row.metric, row.unit)

    def decimals(self, cell: TableCell) -> int:
        """The decimals of a row's numbers of one measure: the most printed, or those that suit."""
        row = (other for other in self.cells if other.row == cell.row)
        alike = [other for other in row if self.measure_of(other) == self.measure_of(cell)]
        printed = [
            each.decimals for other in alike if (each := other.printed) and each.mean is not None
        ]
        return max(printed, default=decimals_for(other.result.mean for other in alike))

    def as_values(self) -> dict[str, Any]:
        """As JSON values."""
        values: dict[str, Any] = adapter(ComputedTable).dump_python(
            self, mode="json", by_alias=True
        )
        return values

    def to_json(self) -> str:
        """Raises ValueError for a number that is not finite."""
        return in_lines(self.as_values())


def read_table(root: Path, target: TableTarget) -> ComputedTable | None:
    """A table's JSON, or None if the file does not exist.

    Raises:
        UserError: if the file is damaged, or was made from other results than there are now.
    """
    return read_as(ComputedTable, root, target.path)


def kinds_of_machine(cells: Iterable[TableCell]) -> list[str]:
    """The packages and machines of the numbers, as far as they differ; [] if all are alike.

    Our own version is left out: what it changes in numbers is in the ids of the code.
    """
    places = {
        tuple(fact for fact in run.made_on.split(", ") if not fact.startswith(f"{PACKAGE.name} "))
        for cell in cells
        for result in cell.results
        for run in result.runs_of_the_chosen
        if run.value is not None and run.made_on
    }
    if len(places) < 2:
        return []
    same = set.intersection(*map(set, places))
    return sorted(", ".join(fact for fact in place if fact not in same) for place in places)


@dataclass(frozen=True)
class Best:
    """The columns with the best number of a row; of equal ones all.

    Attributes:
        printed: as far as printed digits tell.
        ours: empty if fewer than two columns have comparable means.
    """

    printed: frozenset[int]
    ours: frozenset[int]


def best_of_rows(target: TableTarget, table: ComputedTable, columns: Sequence[int]) -> list[Best]:
    """The best of each row among these columns, whose metric is the row's."""
    best = []
    for index, row in enumerate(target.table.rows):
        quantity = target.table.metric_of(row).quantity
        cells = [
            cell
            for cell in table.cells
            if cell.row == index and cell.column in columns
            if target.table.metric_of(row, target.table.columns[cell.column]).quantity.words
            == quantity.words
        ]
        printed = {
            cell.column: cell.printed.mean
            for cell in cells
            if cell.printed and cell.printed.mean is not None
        }
        means = comparable({cell.column: cell.result for cell in cells})
        # As they are shown, so that what looks equal is.
        ours = {
            cell.column: round(means[cell.column], table.decimals(cell))
            for cell in cells
            if cell.column in means
        }
        both = (
            best_of(values, quantity.higher_is_better) if len(values) > 1 else frozenset[int]()
            for values in (printed, ours)
        )
        best.append(Best(*both))
    return best


def best_of(values: Mapping[Place, float], higher_is_better: bool) -> frozenset[Place]:
    """The places with the best value: of equal ones all."""
    best = (max if higher_is_better else min)(values.values(), default=None)
    return frozenset(place for place, value in values.items() if value == best)
