"""The page of a table: its cells, the figures of its rows, the text about it, and its export.

The export is for a paper's appendix: the table's numbers, its runs, and what to cite for it.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fedrepro
from fedrepro.config.targets import RunKey, TableTarget
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.provenance.identity import flatten
from fedrepro.report.cells.cell import (
    Best,
    ComputedTable,
    Result,
    TableCell,
    TableRow,
    best_of_rows,
    kinds_of_machine,
)
from fedrepro.report.cells.coverage import count_of, first_answers
from fedrepro.report.cells.readings import is_of_shared_model
from fedrepro.report.pages import row_figures
from fedrepro.report.pages.about import about, scales_of
from fedrepro.report.pages.downloads import as_bibtex, as_csv, as_latex, rows_as_csv
from fedrepro.report.pages.interpretation import what_follows
from fedrepro.report.pages.run_files import (
    RUNS_HEADER,
    identity_of,
    landed_files,
    setting_beside,
    unpaged,
)
from fedrepro.report.pages.templates import repository, software
from fedrepro.report.papers.published import Printed, Published
from fedrepro.report.papers.verdict import ERRORS, MOST_SEEDS, TWINS
from fedrepro.support.names import Composition
from fedrepro.support.printing import counted


def table_page(
    workbench: Workbench, target: TableTarget, table: ComputedTable, published: Published
) -> dict[str, Any]:
    """The content of a table's page, from its JSON and its runs."""
    system = published.systems.get(target.system)
    own, shown, folded = order_of(table, system.proposes if system else ())
    counts = _counts(table.cells)
    uncovered = len(published.tables.get((target.system, target.item), ())) - counts["printed"]
    demo = table.scale == "demo"
    surrogates = {workbench.setting(row.demo).dataset for row in table.rows if row.demo and demo}
    units = {table.measure_of(cell)[1] for cell in table.cells}
    return {
        "table": table,
        "compact": table.scale == "compact",
        "earlier_rule": target.table.earlier_rule,
        "unprinted": table.scale == "compact" or not (counts["printed"] or uncovered),
        "scales": scales_of(workbench, published, target, demo=counts["demo"] > 0),
        "rows": _rows(workbench, target, table, best_of_rows(target, table, [*shown, *folded])),
        "own": own,
        "shown": shown,
        "folded": folded,
        "unpaged": len(unpaged(table)),
        "methods": _methods(workbench, target),
        "counts": counts,
        "further": _further(table.cells),
        "unit": units.pop() if len(units) == 1 else None,
        "rule": system
        and {"spread": system.spread, "most_seeds": MOST_SEEDS, "twins": TWINS["percent"]},
        "tested": _tested(table.cells),
        "other_arithmetic": _other_arithmetic(table),
        "mixed": kinds_of_machine(table.cells),
        "seeds": {
            scale: workbench.seeds(scale, target.system, target.table.seeds) for scale in SCALES
        },
        "stages": _stages(workbench, target, table) if demo else (),
        "demo_rows": _demo_rows(workbench, table),
        "alike": _alike(table.cells),
        "surrogates": sorted(surrogates),
        "doubts": [cell for cell in table.cells if cell.printed and cell.printed.doubt],
        "follows": what_follows(workbench, target, table, published),
        "records": table.records(workbench.root, lambda run: run.page),
        **about(published, target.system, target.item, table.published_table or ""),
        "uncovered": uncovered,
    }


def _rows(
    workbench: Workbench, target: TableTarget, table: ComputedTable, best: Sequence[Best]
) -> list[SimpleNamespace]:
    """The rows with their cells and figures.

    Of each: ``wanted`` says what its runs would take if none has a result; ``best`` has the columns
    with the best numbers; ``curve`` says whether its number is of rounds; ``notes`` and ``hows``
    are of its cells; ``about`` is its setting, key by key; ``landed`` are Parquet files of its
    settings' landed results, in the site; ``above`` is the first row above that shows the same
    runs, which then has the ``scene`` of both.
    """
    rows: list[SimpleNamespace] = []
    for index, head in enumerate(table.rows):
        cells = _cells(table, index)
        runs = _runs(cell.result for cell in cells)
        above = next((row for row in rows if runs and runs <= row.runs), None)
        rows.append(
            SimpleNamespace(
                head=head,
                anchor=f"row-{index + 1}",
                wanted=_wanted(workbench, cells),
                best=best[index],
                curve=not target.table.metric_of(target.table.rows[index]).quantity.of_a_run,
                notes=[_note(workbench, target, head, cell) for cell in cells],
                hows=[_how(workbench, table, cell.result) for cell in cells],
                about=[*about_setting(workbench, head.setting)],
                landed=_landed(workbench.root, cells) if table.scale == "compact" else (),
                cells=cells,
                runs=runs,
                above=above,
                scene=None if above else row_figures.scene_of(workbench, target, cells, "paper"),
            )
        )
    return rows


def _stages(
    workbench: Workbench, target: TableTarget, table: ComputedTable
) -> list[SimpleNamespace]:
    """The runs of each demo setting, with the labels of the rows that it represents."""
    stages: list[SimpleNamespace] = []
    for index, row in enumerate(table.rows):
        cells = _cells(table, index)
        runs = _runs(cell.demo for cell in cells)
        stage = next((stage for stage in stages if runs and runs <= stage.runs), None)
        if stage:
            stage.labels.append(row.label)
        elif scene := row_figures.scene_of(workbench, target, cells, "demo"):
            note = workbench.setting(scene.setting).note
            stages.append(SimpleNamespace(runs=runs, labels=[row.label], scene=scene, note=note))
    return stages


def _cells(table: ComputedTable, row: int) -> tuple[TableCell, ...]:
    return tuple(cell for cell in table.cells if cell.row == row)


def _other_arithmetic(table: ComputedTable) -> dict[str, int]:
    """How runs differ from the configured class of arithmetic, and how many do."""
    runs = {(key, run.arithmetic) for key, run in table.runs if run.arithmetic}
    return Counter(sorted(words for _, words in runs))


def _demo_rows(workbench: Workbench, table: ComputedTable) -> list[SimpleNamespace]:
    """The rows of the demo, each once, with the labels of all rows that have its numbers."""
    rows: dict[object, SimpleNamespace] = {}
    for index, row in enumerate(table.rows):
        cells = _cells(table, index)
        results = [cell.demo for cell in cells]
        used = next((result.setting for result in results if result), None)
        if used is None:
            continue
        numbers = [cell and (cell.setting, cell.methods, cell.mean, cell.hole) for cell in results]
        title = workbench.datasets[workbench.setting(used).dataset].title
        demo = SimpleNamespace(
            data=title, setting=used.partition("/")[2], metric=row.metric, labels=[], cells=cells
        )
        rows.setdefault((row.metric, row.unit, *numbers), demo).labels.append(row.label)
    return list(rows.values())


def _alike(cells: Iterable[TableCell]) -> bool:
    """Return True if cells of one row with different published runs share runs at scale demo."""
    shared: dict[tuple[int, frozenset[RunKey]], set[frozenset[RunKey]]] = {}
    for cell in cells:
        if cell.demo:
            demo, paper = (
                frozenset(key for key, _ in result.by_key) for result in (cell.demo, cell.result)
            )
            shared.setdefault((cell.row, demo), set()).add(paper)
    return any(len(papers) > 1 for papers in shared.values())


def order_of(
    table: ComputedTable, proposes: Sequence[str]
) -> tuple[set[int], list[int], list[int]]:
    """The columns of the paper's own methods; those to show, own ones first; those to fold.

    A wrapper stays beside its inner method. Columns whose printed cells all have a number in an
    earlier column are further readings and are folded.
    """
    printed: list[list[Printed]] = [[] for _ in table.columns]
    for cell in table.cells:
        if cell.printed:
            printed[cell.column].append(cell.printed)
    plug_ins = tuple(name for name in proposes if name.startswith("+"))
    own, leading, folded, seen = set[int](), [], [], set[tuple[str, str, str, str]]()
    for number, (column, cells) in enumerate(zip(table.columns, printed, strict=True)):
        name = cells[0].method if cells else column.label.replace(" + ", "+")
        if name in proposes or (plug_ins and name.endswith(plug_ins)):
            own.add(number)
        if name in proposes:
            leading.append(number)
        if cells and all(cell.name in seen for cell in cells):
            folded.append(number)
        seen |= {cell.name for cell in cells}
    rest = [number for number in range(len(printed)) if number not in {*leading, *folded}]
    return own, [*(number for number in leading if number not in folded), *rest], folded


def _wanted(workbench: Workbench, cells: Sequence[TableCell]) -> str:
    """The runs that a row without any result takes, in words; "" if something has run."""
    runs = {key for cell in cells for key, _ in cell.result.by_key}
    if any(run.state != "not run" for cell in cells for run in cell.result.runs):
        return ""
    rounds = sorted({workbench.setting(run.setting).rounds for run in runs})
    each = f"{rounds[0]:,}" if len(rounds) == 1 else f"{rounds[0]:,} to {rounds[-1]:,}"
    if any(workbench.setting(run.setting).stop for run in runs):
        each = f"at most {each}"
    return f"{counted(len(runs), 'run')} of {each} rounds"


def _how(workbench: Workbench, table: ComputedTable, result: Result) -> SimpleNamespace:
    """How to compute a number: the parts of the method, the commands, and its setting as YAML."""
    method = result.chosen or result.methods[0]
    composition, values = workbench.composition_of(workbench.setting(result.setting), method)
    runs = [run for run in result.runs if run.method == method]
    seeds = sorted({run.seed for run in runs})
    settings = (
        setting_beside(table.system, table.item, result.run_of(run), run.page)
        for run in runs
        if run.page or run.value is not None
    )
    return SimpleNamespace(
        composition=composition,
        hyperparameters=[*flatten(values)],
        commands=[RunKey(result.setting, method, seed).command for seed in seeds],
        setting=next(settings, None),
    )


def about_setting(workbench: Workbench, name: str) -> Iterable[tuple[str, object]]:
    """A setting's resolved keys, without those about methods."""
    left_out = {"name", "methods", "demo", "evaluate", "inputs", "save_models_at"}
    setting = workbench.setting(name)
    keys = setting.model_dump(mode="json", by_alias=False, exclude_defaults=True)
    return flatten({key: value for key, value in keys.items() if key not in left_out})


def _note(workbench: Workbench, target: TableTarget, row: TableRow, cell: TableCell) -> str:
    """How a cell differs from the others in its row."""
    row_of, column = target.table.rows[cell.row], target.table.columns[cell.column]
    notes, metric = [], column.metric
    if metric:
        said = metric.quantity.words, metric.quantity.unit, metric.quantity.mixture
        notes.append(", ".join(filter(None, said)))
    if cell.result.setting != row.setting:
        notes.append(f"in {cell.result.setting}")
    if cell.demo and cell.demo.setting != row.demo:
        notes.append(f"demo in {cell.demo.setting}")
    wanted, methods = target.table.metric_of(row_of, column), cell.result.methods
    if is_of_shared_model(workbench, wanted, cell.result.setting, methods):
        notes.append("of the shared model; clients have their own")
    return "; ".join(notes)


def _landed(root: Path, cells: Iterable[TableCell]) -> tuple[str, ...]:
    settings = sorted({cell.result.setting for cell in cells})
    return tuple(file for setting in settings for file in landed_files(root, setting))


def _runs(results: Iterable[Result | None]) -> set[RunKey]:
    """The runs of results that have a page."""
    return {key for result in results if result for key, run in result.by_key if run.page}


def _counts(cells: Sequence[TableCell]) -> Counter[str]:
    """Counts over cells, by the names of :mod:`fedrepro.report.cells.coverage`, and of demos.

    If several columns answer a printed cell, the first counts. Numbers on surrogate data answer
    none.
    """
    first = first_answers(cells)
    answers = [cell for cell in first if cell.answered or not cell.printed]
    counts = Counter(
        printed=sum(cell.printed is not None for cell in answers),
        demo=sum(bool(cell.demo and cell.demo.n) for cell in first),
    )
    for cell in answers:
        counts.update(count_of(cell))
    return counts


def _further(cells: Iterable[TableCell]) -> Counter[str]:
    """The verdicts of further readings of printed cells, which :func:`_counts` leaves out."""
    cells = list(cells)
    first = {(cell.row, cell.column) for cell in first_answers(cells)}
    return Counter(
        cell.verdict.word
        for cell in cells
        if cell.verdict and cell.answered and (cell.row, cell.column) not in first
    )


def _tested(cells: Iterable[TableCell]) -> dict[str, float]:
    """How many verdicts a test gave, and how many false ones to expect of them at most."""
    bases = (cell.verdict.basis for cell in cells if cell.verdict)
    rates = [ERRORS[basis] for basis in bases if basis in ERRORS]
    differs, agrees = map(math.fsum, zip(*rates, strict=True)) if rates else (0.0, 0.0)
    return {"verdicts": len(rates), "differs": differs, "agrees": agrees}


def _methods(workbench: Workbench, target: TableTarget) -> list[dict[str, Any]]:
    """Each column's methods, for links to their pages."""
    setting = workbench.setting(target.cells[0].setting)
    methods = []
    for column in target.table.columns:
        composition, _ = workbench.composition_of(setting, column.methods_at(target.scale)[0])
        parts = list(Composition.parse(composition).names)
        methods.append({"label": column.label, "parts": parts})
    return methods


def texts_of(target: TableTarget, table: ComputedTable, published: Published) -> dict[str, str]:
    """A table as CSV and LaTeX, by the ending of the file."""
    system = published.systems.get(table.system)
    own, shown, folded = order_of(table, system.proposes if system else ())
    columns = [*shown, *folded]
    best = best_of_rows(target, table, columns)
    latex = as_latex(table, columns, system.paper if system else "", own, best)
    return {".csv": as_csv(table), ".tex": latex}


def appendix_of(
    workbench: Workbench, target: TableTarget, published: Published, table: ComputedTable
) -> dict[str, str]:
    """The files of a table's export, by name."""
    over = ("finished", "diverged", "left out")
    records = table.records(workbench.root, lambda run: run.state in over)
    files = {
        f"{target.item}{end}": text for end, text in texts_of(target, table, published).items()
    }
    files["runs.csv"] = rows_as_csv(RUNS_HEADER, map(identity_of, records))
    manifests = [{**record.manifest, "folder": str(record.folder)} for record in records]
    files["manifests.json"] = json.dumps(manifests, indent=1) + "\n"
    files["references.bib"] = bibliography_of(workbench, target, published)
    return files


def bibliography_of(workbench: Workbench, target: TableTarget, published: Published) -> str:
    """BibTeX of the paper, the methods, the data and this package; comments for the rest."""
    works: dict[str, str] = {}
    if paper := published.references.of_paper(target.system):
        works[paper[0]] = as_bibtex(paper[0], paper[1].fields)
    elif about := published.systems.get(target.system):
        works[target.system] = as_bibtex(target.system, {"title": about.paper})
    methods = {method: cell.setting for cell in target.cells for method in cell.methods}
    for method, name in methods.items():
        setting, experiment = workbench.setting(name), workbench.experiments[name.split("/")[0]]
        for part in Composition.parse(method).parts:
            base, _ = experiment.part(setting, part.name)
            key, work = published.references.of_method(base) or (base, None)
            works[key] = as_bibtex(key, work.fields) if work else f"% {base}: no paper is known\n"
    for name in dict.fromkeys(workbench.setting(cell.setting).dataset for cell in target.cells):
        data = workbench.datasets[name]
        said = "" if data.citation == "none" else f"{data.citation} "
        fields = {"title": data.title, "note": f"{said}Licence: {data.licence}"}
        works[name] = as_bibtex(name, fields)
    package = {"title": "fedrepro", "version": fedrepro.__version__}
    package |= {"note": f"commit {commit}"} if (commit := software().commit) else {}
    package |= {"url": address} if (address := repository()) else {}
    works["fedrepro"] = as_bibtex("fedrepro", package)
    return "\n".join(works.values())
