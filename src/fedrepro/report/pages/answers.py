"""The number that each table cell takes from a run: for its page, and in lines after its end."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace

from fedrepro.config.metrics import Metric
from fedrepro.config.targets import Cell, RunKey
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import Result, TableCell, value_of
from fedrepro.report.cells.tables import compute, printed_cell, result_in
from fedrepro.report.pages.about import use_of
from fedrepro.report.papers.published import PrintedCell, Published, label_of, load
from fedrepro.report.papers.verdict import Verdict
from fedrepro.run.results import RunRecord
from fedrepro.support.printing import decimals_for
from fedrepro.support.scoped_cache import read_once

OWN = "at the method's own mixture"


@dataclass(frozen=True, kw_only=True)
class CellUse(Cell):
    """One cell that uses a run; its seeds are those in its mean.

    Attributes:
        table, page: the table's name, and its page's address relative to the site's root.
        place, address: the cell in words, and its address.
        demo: whether the run only has the cell's demo setting.
        printed: what is printed there, if anything.
        result: reads the cell's other runs and returns its number over seeds.
    """

    table: str
    page: str
    place: str
    address: str
    demo: bool
    printed: PrintedCell | None
    result: Callable[[], Result]


def cells_of_runs(
    workbench: Workbench,
    published: Published,
    wanted: AbstractSet[RunKey],
    only: str | None = None,
) -> dict[RunKey, list[CellUse]]:
    """Each run in ``wanted`` -> the cells that use it, at either scale.

    Args:
        only: look at the tables of this system.
    """
    uses_by_run: dict[RunKey, dict[tuple[str, bool], CellUse]] = {}
    for scale in SCALES:
        for target in workbench.tables(scale, only).values():
            if wanted.isdisjoint(target.runs):
                continue
            about, wide = use_of(target, published), len(target.table.columns)
            for index, cell in enumerate(target.cells):
                demo = scale == "demo" and cell.row.demo is not None
                use = CellUse(
                    **vars(cell),
                    table=about["label"],
                    page=about["page"],
                    place=f"{cell.row.label}, {cell.column.label}",
                    address=f"{about['page']}#row-{index // wide + 1}-{index % wide + 1}",
                    demo=demo,
                    printed=None if demo else printed_cell(target, cell, published),
                    result=cache(partial(result_in, workbench, cell)),  # once for all runs' pages
                )
                for run in wanted & {run for method in cell.methods for run in cell.runs(method)}:
                    uses_by_run.setdefault(run, {})[use.address, use.demo] = use
    return {run: list(uses.values()) for run, uses in uses_by_run.items()}


def answers_of(record: RunRecord, uses: Sequence[CellUse]) -> list[SimpleNamespace]:
    """The numbers that cells take from a run; published settings come first.

    Cells with a printed number or a mean of their own are listed one by one, others together:
    ``use`` is the first of them. ``words`` are of its metric, with the mixture of clients' two
    models if there are two; ``value`` is None if the run has no such number; ``whole`` is the
    cell's own number, if it is over several seeds, and None for a demo; ``decimals`` are as
    printed, but at least two, or those that suit the value.
    """
    groups: dict[tuple[object, ...], list[CellUse]] = {}
    for use in uses:
        own = use.address if not use.demo and (use.printed or len(use.seeds) > 1) else ""
        summary = use.summary.rounds, use.summary.up_to or 0
        # Not its words alone: two metrics may share them.
        metric = f"{_words(record, use.metric)} {use.metric!r}"
        groups.setdefault((use.demo, use.page, metric, summary, use.seeds, own), []).append(use)
    answers = []
    for _, (use, *others) in sorted(groups.items(), key=lambda item: item[0][:2]):
        value, printed = _value(record, use), use.printed
        answers.append(
            SimpleNamespace(
                use=use,
                places=[(cell.place, cell.address) for cell in (use, *others)],
                words=_words(record, use.metric),
                value=value,
                unit=use.metric.quantity.unit,
                decimals=decimals_for([value])
                if printed is None or printed.mean is None
                else max(printed.decimals, 2),
                seed=_seed(record.run.seed, use.seeds),
                whole=use.result() if len(use.seeds) > 1 and not use.demo else None,
            )
        )
    return answers


def _value(record: RunRecord, use: CellUse) -> float | None:
    """The run's number in a cell; a ratio takes a second run, too."""
    if use.metric.of_both is None:
        return value_of(record, use.metric.quantity, use.summary)
    runs = (run for run in use.result().runs if use.result().run_of(run) == record.run)
    return next((run.value for run in runs), None)


def _words(record: RunRecord, metric: Metric) -> str:
    """A metric in words, with the mixture of clients' two models if the method has them."""
    words, mixture = metric.quantity.words, metric.quantity.mixture
    if not has_mixtures(record) or metric.at_mix("fixed") == metric.at_mix("best"):
        return words
    return f"{words}, {mixture or OWN}"


def has_mixtures(record: RunRecord) -> bool:
    """Return True if clients' mixtures of two models were scored after the last round."""
    return "mixtures.parquet" in record.manifest.get("files", {})


def _seed(seed: int, seeds: tuple[int, ...]) -> str:
    if len(seeds) == 1:
        return f"seed {seed}, the only one"
    return f"seed {seed} of seeds {', '.join(map(str, seeds))}"


def headline(answers: Iterable[SimpleNamespace]) -> list[SimpleNamespace]:
    """Each number once, however many tables take it."""
    distinct: dict[tuple[str, int, int | None], SimpleNamespace] = {}
    for answer in answers:
        if answer.value is not None:
            key = answer.words, answer.use.summary.rounds, answer.use.summary.up_to
            distinct.setdefault(key, answer)
    return list(distinct.values())


def lines_of(workbench: Workbench, run: RunKey) -> list[str]:
    """The run's number, the printed one and the verdict, for each printed cell with the run.

    A cell that a part of a table repeats has one line.

    A verdict may depend on other cells of its table, so whole tables are computed: a second each.

    Raises:
        UserError: if the printed cells or another run's files are damaged.
    """
    every = workbench.tables("paper", only=run.setting.partition("/")[0]).values()
    targets = [target for target in every if target.table.published and run in target.runs]
    published = load(workbench.root) if targets else Published()
    lines: list[str] = []
    seen: set[PrintedCell] = set()
    with read_once():
        for target in targets:
            assert target.table.published
            label, before = label_of(target.item, target.table.published.table), frozenset(seen)
            for index, cell in enumerate(target.cells):
                printed = printed_cell(target, cell, published) if _has(cell, run) else None
                if printed and printed not in before:
                    seen.add(printed)
                    ours = compute(workbench, target, published).cells[index]
                    place = f"{label}, {cell.row.label}, {cell.column.label}"
                    lines.append(f"{place}: {_ours(ours, run, printed, len(cell.seeds))}")
    return lines


def _has(cell: Cell, run: RunKey) -> bool:
    return any(run in cell.runs(method) for method in (*cell.methods, *cell.rivals))


def _ours(cell: TableCell, run: RunKey, printed: PrintedCell, seeds: int) -> str:
    result = cell.result
    values = [
        each.value
        for each in result.runs
        if (each.method, each.seed) == (run.method, run.seed) and each.value is not None
    ]
    own = ", ".join(map(printed.written, values)) or "no number"
    if values and result.n == 1 < seeds:
        own += f" (1 of {seeds} seeds)"
    elif result.mean is not None and seeds > 1:
        own += f" (mean of {result.n} of {seeds} seeds: {printed.written(result.mean)})"
    return f"{own}, printed {printed.text}: {_in_words(cell.verdict, result.hole)}"


def _in_words(verdict: Verdict | None, hole: str | None) -> str:
    if verdict is None:
        return f"no verdict: {hole}"
    if verdict.word == "not comparable":
        return f"{verdict.word}: {verdict.why}"
    return f"{verdict.word}, needs {verdict.needs} seeds" if verdict.needs else verdict.word
