"""What is missing or doubtful in a paper's files, each in one line, before anything trains."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedrepro.config.experiment import COMPACT, EXPERIMENTS
from fedrepro.config.tables import Summary
from fedrepro.config.targets import Cell, ComputedTarget, FigureTarget, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import claims, computed
from fedrepro.report.cells.readings import is_of_shared_model
from fedrepro.report.cells.tables import printed_cell
from fedrepro.report.papers.claim import Claim, CompactTest
from fedrepro.report.papers.pairs import is_two_sided, judge_printed, printed_pairs
from fedrepro.report.papers.paper_files import KEYS
from fedrepro.report.papers.published import MOST, PrintedCell, Published, Spread, split_part
from fedrepro.run.landed_runs import PAPERS
from fedrepro.support.errors import UserError, bad_value, listed, nearest
from fedrepro.support.files import visible
from fedrepro.support.grouping import grouped
from fedrepro.support.printing import counted

FRACTION = 0.1  # a spread of more points is none of a fraction
TO_DO = "TODO"  # what `fedrepro init --paper` leaves to be filled in


def unfilled(root: Path, system: str) -> Iterator[str]:
    """The lines of a paper's files that still say what is to be filled in."""
    folder = root / PAPERS / system
    files = [root / place / f"{system}.yaml" for place in (EXPERIMENTS, COMPACT)]
    files += (file for file in visible(folder, "**/*") if file.suffix in (".csv", ".md", ".yaml"))
    for file in filter(Path.is_file, files):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            if TO_DO in line:
                yield f"{file.relative_to(root)}: line {number}: to be filled in: {line.strip()}"


def faults_of(workbench: Workbench, published: Published, system: str) -> Iterator[str]:
    """All faults of a paper whose files can be read, in the order of the files."""
    cells = [cell for cell in published.cells if cell.system == system]
    targets = {
        key: target
        for scale in ("paper", "compact")
        for key, target in workbench.targets(scale).items()
        if key[0] == system and target.awaited
    }
    yield from _of_experiment(workbench, published, system, targets.values())
    yield from _of_cells(workbench, published, system, targets.values())
    yield from _of_paper(published, system, cells)
    yield from _of_items(published, system, {item for _, item in targets})
    for claim in published.claims:
        if claim.system == system:
            yield from _of_claim(workbench, published, claim)
    yield from _of_numbers(workbench, system, targets.values())
    names = (claim.name for claim in published.claims if claim.system == system)
    yield from _repeated(names, f"{PAPERS / system}/claims.yaml: name")


def _repeated(names: Iterable[str], where: str) -> Iterator[str]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{where}: {name!r}: {times} times: expected each once"


def _of_experiment(
    workbench: Workbench, published: Published, system: str, targets: Iterable[object]
) -> Iterator[str]:
    """Labels, printed names, units and directions of tables, and settings that stand for none."""
    experiment, file = workbench.experiments[system], workbench.files[system]
    small = COMPACT / f"{system}.yaml"
    if not {*experiment.tables, *experiment.computed, *experiment.figures}:
        yield f"{file}: tables: missing: expected a table of the paper"
    for target in targets:
        if not isinstance(target, TableTarget):
            continue
        key = f"{small if target.item in experiment.compact else file}: tables.{target.item}"
        yield from _repeated((row.label for row in target.table.rows), f"{key}.rows: label")
        yield from dict.fromkeys(_of_printed_names(workbench, published, target, key))
    numbers = {entry.number for entry in published.ledger if entry.system == system}
    for name, setting in experiment.settings.items():
        for number in setting.released.keys() - numbers:
            wanted = f"the number of an entry of {PAPERS / system}/discrepancies.yaml"
            yield str(bad_value(file, f"settings.{name}.released", number, wanted, numbers))
    tested = {
        cell.setting.partition("/")[2]
        for claim in published.claims
        if claim.system == system and isinstance(claim.compact, CompactTest)
        if claim.compact.table in experiment.compact
        for cell in workbench.table(system, claim.compact.table, "compact").cells
    }
    words = {word for cell in published.cells if cell.system == system for word in cell.name}
    for item, figure in experiment.figures.items():
        for kind in ("rows", "columns"):
            for line in getattr(figure, kind, ()):
                said = getattr(line, "published", None) or {}
                for name in {said} if isinstance(said, str) else {*said.values()}:
                    if name not in words:
                        where = f"{file}: figures.{item}.{kind}.{line.label}"
                        wanted = f"one of {', '.join(KEYS)} of cells.csv"
                        yield str(bad_value(where, "published", name, wanted, words))
    settings = {name: setting for name, setting in experiment.settings.items() if name in tested}
    if alone := [name for name, setting in settings.items() if setting.stands_for is None]:
        wanted = f"the setting of {file} that it is a small form of"
        yield f"{small}: settings: {listed(alone)}: stands_for: missing: expected {wanted}"


def _of_numbers(workbench: Workbench, system: str, targets: Iterable[object]) -> Iterator[str]:
    """Numbers that are of another model, of other rounds or until another score than they seem."""
    for target in targets:
        if isinstance(target, TableTarget):
            summary = target.table.summary
            numbers = [(cell.metric, cell.setting, cell.methods) for cell in target.cells]
        elif isinstance(target, FigureTarget):
            summary = getattr(target.figure, "summary", Summary())
            numbers = [
                (one.metric, f"{system}/{one.setting}", one.methods)
                for one in target.figure.shown(target.scale)
            ]
        else:
            continue
        where = f"{workbench.files[system]}: {target.item}"
        for metric, setting, methods in dict.fromkeys(numbers):
            if is_of_shared_model(workbench, metric, setting, methods):
                wanted = "over_clients, or a method whose clients share their model"
                words = metric.quantity.words
                yield str(bad_value(f"{where}: metric", ", ".join(methods), words, wanted))
        for metric in dict.fromkeys(metric for metric, _, _ in numbers):
            if 0 < metric.quantity.reaches <= 1:
                yield f"{where}: metric: {metric.quantity.words}: expected percent, such as 97"
        averaged = {setting for metric, setting, _ in numbers if not metric.quantity.of_a_run}
        for setting in sorted(averaged):
            its = workbench.setting(setting)
            evaluated = -(-its.rounds // its.evaluate.every)
            if summary.rounds > evaluated:
                has = f"{setting} has {counted(evaluated, 'evaluated round')}"
                yield f"{where}: summary.rounds: {summary.rounds}: {has}"


def _of_printed_names(
    workbench: Workbench, published: Published, target: TableTarget, key: str
) -> Iterator[str]:
    """Rows and columns that name no printed cell, and cells whose numbers cannot be compared."""
    if target.table.published is None:
        return
    printed, name = published.cells, target.table.published.table
    tables = [cell.table for cell in printed if cell.system == target.system]
    if name not in tables:
        wanted = f"a `table` of {PAPERS / target.system}/cells.csv"
        yield str(bad_value(key, "published.table", name, wanted, tables))
        return
    # By the line's kind and label: whether a cell of it is printed.
    lines = {("rows", row.label): False for row in target.table.rows if row.published}
    lines |= {("columns", one.label): False for one in target.table.columns if one.published}
    for cell in target.cells:
        try:
            answered = printed_cell(target, cell, published)
        except UserError as error:
            yield str(error)
            continue
        if answered:
            lines["rows", cell.row.label] = lines["columns", cell.column.label] = True
            yield from _of_measure(target, cell, answered, key)
    for (kind, label), is_printed in lines.items():
        if not is_printed:
            wanted = f"the {', '.join(KEYS)} of a line of cells.csv with table {name}"
            yield f"{key}.{kind}.{label}.published: names no printed cell: expected {wanted}"


def _of_measure(target: TableTarget, cell: Cell, answered: PrintedCell, key: str) -> Iterator[str]:
    """A unit or direction other than the printed one."""
    quantity = cell.metric.quantity
    where = f"{PAPERS / target.system}/paper.yaml: metrics.{answered.metric}"
    percents = ("%",) if answered.unit != "percent" else ("%", "points", "")
    if (quantity.unit in percents) != (answered.unit == "percent"):
        ours = f"{quantity.words}, {quantity.unit or 'without a unit'}"
        yield f"{where}.unit: {answered.unit!r}: {key} compares it with {ours}"
    if quantity.higher_is_better != (answered.kind.better == "more"):
        ours = "more" if quantity.higher_is_better else "less"
        yield f"{where}.better: {answered.kind.better!r}: of {quantity.words}, {ours} is better"


def _of_cells(
    workbench: Workbench, published: Published, system: str, targets: Iterable[object]
) -> Iterator[str]:
    """Printed cells that are there twice, or in no table."""
    file = f"{PAPERS / system}/cells.csv"
    own = (cell for cell in published.cells if cell.system == system)
    items = grouped(own, lambda cell: cell.item)
    if not items:
        yield f"{file}: no cell: expected a line for each printed number"
    answered = {cell for target in targets for cell in _answers(workbench, published, target)}
    for item, printed in items.items():
        names = (", ".join(filter(None, cell.name)) for cell in printed)
        yield from _repeated(names, f"{file}: {item}")
        left = [cell for cell in printed if cell not in answered]
        if left:
            named = "; ".join(", ".join(filter(None, cell.name)) for cell in left[:3])
            yield (
                f"{file}: {item}: {len(left)} of {counted(len(printed), 'printed cell')} "
                f"{'has' if len(left) == 1 else 'have'} no setting, in no row and column of "
                f"{workbench.files[system]}: {named}{' ...' if len(left) > 3 else ''}"
            )


def _answers(
    workbench: Workbench, published: Published, target: object
) -> Iterator[PrintedCell | None]:
    if isinstance(target, ComputedTarget):
        yield from (cell.printed for cell in computed.compute(workbench, target, published))
    if isinstance(target, TableTarget):
        for cell in target.cells:
            try:
                yield printed_cell(target, cell, published)
            except UserError:  # named with its table
                continue


def _of_paper(published: Published, system: str, cells: Iterable[PrintedCell]) -> Iterator[str]:
    """What paper.yaml says of the printed numbers, compared with them."""
    cells, file = list(cells), f"{PAPERS / system}/paper.yaml"
    about = published.systems[system]
    for metric, kind in about.metrics.items():
        means = [cell.mean for cell in cells if cell.metric == metric and cell.mean is not None]
        if not any(cell.metric == metric for cell in cells):
            yield f"{file}: metrics.{metric}: no cell of cells.csv has it"
        if kind.unit == "percent" and means and max(means) <= MOST["fraction"]:
            yield f"{file}: metrics.{metric}.unit: 'percent': no number is above 1: is it fraction?"
    methods = {cell.method for cell in cells}
    for key, names in {"proposes": about.proposes, "references": about.references}.items():
        for name in names:
            if not any(method.endswith(name) for method in methods):
                hint = nearest(name, methods)
                yield f"{file}: {key}: {name!r}: expected a method of cells.csv{hint}"
    yield from _of_spread(about.spread, cells, file)


def _of_spread(spread: Spread, cells: Sequence[PrintedCell], file: str) -> Iterator[str]:
    """What paper.yaml says of the printed spreads, and spreads that can be none."""
    printed = [cell for cell in cells if cell.std is not None]
    said, over = spread.model_fields_set, f"{file}: spread.over: {spread.over!r}"
    if spread.over != "none" and not printed:
        yield f"{over}: no cell of cells.csv has a std"
    if spread.over == "none" and printed:
        yield f"{over}: {counted(len(printed), 'cell')} of cells.csv have a std"
    if spread.over == "seeds" and "ddof" not in said:
        wanted = "1 for the deviation of a sample, 0 of a population"
        yield f"{file}: spread.ddof: missing: expected {wanted}"
    if spread.over != "seeds" and (unused := said & {"seeds", "ddof", "own_splits"}):
        yield f"{over}: expected seeds, of which {listed(sorted(unused))} is said"
    for name in spread.own_splits.datasets if spread.own_splits else ():
        if name not in (known := {cell.dataset for cell in cells}):
            yield str(bad_value(file, "spread.own_splits", name, "a dataset of cells.csv", known))
    for cell in printed:
        most = MOST[cell.unit] / math.sqrt(2)  # of two numbers at the ends
        where = f"{file.replace('paper.yaml', 'cells.csv')}: {', '.join(filter(None, cell.name))}"
        if cell.mean is None:
            yield f"{where}: std: {cell.std:g}: there is no mean"
        elif cell.std is not None and cell.std > most and not cell.doubt:
            yield f"{where}: std: {cell.std:g}: expected at most {most:.2g} of a {cell.unit}"
    percents = [cell for cell in printed if cell.unit == "percent"]
    for metric, same in grouped(percents, lambda cell: cell.metric).items():
        largest = max(cell.std or 0.0 for cell in same)
        # The text of a cell is "mean (std)".
        digits = max(len(cell.text[:-1].rpartition(".")[2]) for cell in same)
        if largest < FRACTION and digits > max(cell.decimals for cell in same):
            yield f"{file}: metrics.{metric}: the largest std is {largest:g}: is it of a fraction?"


def _of_items(published: Published, system: str, targets: set[str]) -> Iterator[str]:
    """Captions that are missing, and files about tables or figures that there are not."""
    folder = PAPERS / system
    printed = {item for owner, item in published.tables if owner == system}
    known = printed | targets
    for item in sorted(printed):
        caption = published.captions.get((system, item))
        if caption is None or not (caption.title and caption.paragraphs):
            yield f"{folder}/captions/{item}.md: missing: expected a title, and what is compared"
    named = {
        "notes.csv": [item for owner, item in published.notes if owner == system],
        "captions": [item for owner, item in published.captions if owner == system],
        "discrepancies.yaml": [
            item for entry in published.ledger if entry.system == system for item in entry.tables
        ],
        "figures.csv": [
            figure.item for figure in published.figures if figure.system == system and figure.item
        ],
    }
    for name, items in named.items():
        for item in dict.fromkeys(items):
            if item not in known and split_part(item)[0] not in known:
                yield str(bad_value(folder / name, "item", item, "a table or figure", known))
    numbers = (entry.number for entry in published.ledger if entry.system == system)
    yield from _repeated(numbers, f"{folder}/discrepancies.yaml: number")


def _of_claim(workbench: Workbench, published: Published, claim: Claim) -> Iterator[str]:
    """A claim that says too little, or names cells that there are not."""
    where = f"{PAPERS / claim.system}/claims.yaml: {claim.name}"
    if "quantifier" not in claim.model_fields_set:
        yield f"{where}: quantifier: missing: expected each, more, average, same or amount"
    if not claim.place:
        yield f"{where}: place: missing: expected where in its text the paper says it"
    for table in claim.tables:
        if (claim.system, table) not in published.tables:
            known = [item for owner, item in published.tables if owner == claim.system]
            yield str(bad_value(where, "tables", table, "an item of cells.csv", known))
    if claim.quantifier == "same" and claim.margin is None and not isinstance(claim.compact, str):
        yield f"{where}: margin: missing: expected the limit within which two are the same"
    if isinstance(claim.compact, str):
        if not claim.compact:
            wanted = "the cells of scale compact that test it, or why none can"
            yield f"{where}: compact: missing: expected {wanted}"
    else:
        at = f"{where}: compact"
        settings = workbench.experiments[claim.system].settings
        target = workbench.table(claim.system, claim.compact.table, "compact")
        own = {cell.setting.partition("/")[2] for cell in target.cells}
        for ours, theirs in claim.compact.stands_for.items():
            if ours not in own:
                wanted = f"a setting of {claim.compact.table}"
                yield str(bad_value(at, "stands_for", ours, wanted, own))
            if theirs not in settings:
                yield str(bad_value(at, "stands_for", theirs, "a setting of the paper", settings))
        try:
            small = list(claims.compact_pairs(workbench, claim, claim.compact))
        except UserError as error:
            small = []
            yield str(error)
    try:
        pairs = printed_pairs(claim, published)
    except UserError as error:
        yield f"{error}: see left, right and tables"
        return
    better, most = pairs[0].left.kind.better, MOST[pairs[0].left.unit]
    for key, value, limit in (("by", abs(claim.by), most), ("margin", claim.margin or 0, most / 5)):
        if value > limit:
            wanted = f"at most {limit:g} of a {pairs[0].left.unit}"
            yield f"{where}: {key}: {value:g}: expected {wanted}"
    if isinstance(claim.compact, CompactTest) and small:
        target = workbench.table(claim.system, claim.compact.table, "compact")
        quantity = target.cells[small[0].left].metric.quantity
        if pairs[0].left.unit == "fraction" and quantity.unit in ("%", "points"):
            theirs = f"of the printed {pairs[0].left.metric} `by` and `margin` are fractions"
            yield f"{where}: compact.table: {claim.compact.table!r}: {theirs}, ours are percent"
        if quantity.higher_is_better != (better == "more"):
            theirs = f"of the printed {pairs[0].left.metric} {better} is better"
            other = f"of {quantity.words} {'more' if quantity.higher_is_better else 'less'} is"
            yield f"{where}: compact.table: {claim.compact.table!r}: {theirs}, {other}"
    if better != claim.expect and not is_two_sided(claim) and not judge_printed(claim, pairs).held:
        why = f"of {pairs[0].left.metric} {better} is better, and no printed number says otherwise"
        yield f"{where}: expect: {claim.expect!r}: {why}"
