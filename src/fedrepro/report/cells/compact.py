"""Test the papers' claims on the tables of scale compact (docs/compact.md)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedrepro.config.metrics import RoundsTo
from fedrepro.config.tables import Table
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable, TableCell, diverged_in_words
from fedrepro.report.papers.claim import Claim, CompactSelector, CompactTest
from fedrepro.report.papers.leads import LOOKS, Diverged, Judged, judge_leads
from fedrepro.report.papers.pairs import OTHERS
from fedrepro.run.results import PAPERS
from fedrepro.support.errors import UserError, bad_value

Lasts = Sequence[int | None]
Leads = dict[int, float]

CENTRAL = "central"  # a reference that no claim is about


@dataclass(frozen=True)
class CompactPair:
    """Two cells of a compact table: their positions in it, and what they compare in words."""

    left: int
    right: int
    words: str


@dataclass(frozen=True)
class CompactFinding:
    """The verdict of scale compact on a claim.

    Attributes:
        item: the table.
        pairs: its comparisons, in the order of those in ``judged``.
        judged: the verdict; its leads are in the direction of the claim.
        unit: of the leads, or "".
        diverged: how many runs of its cells diverged; ``judged.why`` names them.
    """

    item: str
    pairs: tuple[CompactPair, ...]
    judged: Judged
    unit: str = ""
    diverged: int = 0


def judge_compact(
    workbench: Workbench,
    claim: Claim,
    tables: Mapping[tuple[str, str], ComputedTable],
    margin: float | None,
) -> CompactFinding | None:
    """Test a claim on the compact runs; None if its entry says why none can.

    None also in a workbench without the paper's compact tables.

    Args:
        tables: the computed ones.
        margin: how small a mean lead does not matter, or None.

    Raises:
        UserError: if claims.yaml names a table, row or column that there is not.
    """
    test, experiment = claim.compact, workbench.experiments.get(claim.system)
    if isinstance(test, str) or experiment is None or not experiment.compact:
        return None
    pairs = tuple(pairs_of(workbench, claim, test))
    found = tables.get((claim.system, test.table))
    cells = found.cells if found else ()
    lasts = lasts_of(workbench, claim.system, test.table)
    leads = [_leads(claim.sign, cells, pair, lasts) for pair in pairs]
    places = dict.fromkeys(place for pair in pairs for place in (pair.left, pair.right))
    seeds = {place: cells[place].paper.diverged if cells else () for place in places}
    diverged = [Diverged(len(seeds[pair.left]), len(seeds[pair.right])) for pair in pairs]
    judged = judge_leads(leads, claim.by, claim.over == "each", margin, diverged)
    judged = _after_first_look(judged)
    table = experiment.compact[test.table]
    named = {_label(table, place): those for place, those in seeds.items()}
    judged = replace(judged, why=judged.why + diverged_in_words(named))
    unit = unit_of(workbench, claim.system, test.table, pairs[0].left)
    count = sum(map(len, seeds.values()))
    return CompactFinding(test.table, pairs, judged, unit, count)


def _label(table: Table, place: int) -> str:
    """A cell's column, and its row if there are several."""
    row, column = divmod(place, len(table.columns))
    label = table.columns[column].label
    return f"{label} ({table.rows[row].label})" if len(table.rows) > 1 else label


def unit_of(workbench: Workbench, system: str, item: str, place: int) -> str:
    """The unit of differences in a cell: a measure in percent has them in points."""
    target = workbench.table(system, item, "compact")
    unit = target.table.metric_of(target.cells[place].row, target.cells[place].column).reading.unit
    return "points" if unit == "%" else unit


def _after_first_look(judged: Judged) -> Judged:
    """Nothing is decided before the first look; seeds in between would be looks of their own."""
    seeds = judged.overall.seeds if judged.overall else 0
    if judged.word in ("not computed", "undecided") or seeds >= LOOKS[0]:
        return judged
    why = f"{seeds} of {LOOKS[0]} seeds, with which it is judged first."
    return replace(judged, word="undecided", why=why, needs=str(LOOKS[0]))


def pairs_of(workbench: Workbench, claim: Claim, test: CompactTest) -> Iterator[CompactPair]:
    """The comparisons of a claim at scale compact.

    Raises:
        UserError: as :func:`judge_compact`, and if there are none.
    """
    known = workbench.experiments[claim.system].compact
    file = PAPERS / claim.system / "claims.yaml"
    at = f"{claim.name}.compact"
    if test.table not in known:
        wanted = f"a table of config/compact/{claim.system}.yaml"
        raise bad_value(file, f"{at}.table", test.table, wanted, known)
    table = known[test.table]
    for key, selector in (("left", test.left), ("right", test.right)):
        _check(table, selector, file, f"{at}.{key}")
    wide, some = len(table.columns), False
    places = [(row, column) for row in range(len(table.rows)) for column in range(wide)]
    for left in places:
        stars = _match(table, test.left, left)
        if stars is None:
            continue
        for right in places:
            if left != right and _answers(table, test, left, right, stars):
                some = True
                one, other = (_name(table, place, left, right) for place in (left, right))
                where = ""
                if left[0] == right[0]:
                    where = f"{table.rows[left[0]].label}: "
                elif left[1] == right[1] and wide > 1:
                    where = f"{table.columns[left[1]].label}: "
                yield CompactPair(
                    left[0] * wide + left[1],
                    right[0] * wide + right[1],
                    f"{where}{one} against {other}",
                )
    if not some:
        raise UserError(f"{file}: {at}: matches no cells")


def _check(table: Table, selector: CompactSelector, file: object, at: str) -> None:
    """Reject labels that a table does not have."""
    labels = {
        "row": [row.label for row in table.rows],
        "column": [column.label for column in table.columns],
    }
    for key, known in labels.items():
        for name in _listed(getattr(selector, key)):
            some = any(_star(name, label) is not None for label in known)
            if not some and not (key == "column" and name == OTHERS):
                wanted = f"the label of a {key} of its table"
                raise bad_value(file, f"{at}.{key}", name, wanted, known)


def _listed(named: str | Sequence[str] | None) -> Sequence[str]:
    return (named,) if isinstance(named, str) else named or ()


def _star(pattern: str, label: str) -> str | None:
    """What ``*`` stands for in a label that fits the pattern, "" without one; None if none fits."""
    match = re.fullmatch(re.escape(pattern).replace(r"\*", "(.+)"), label)
    if match is None:
        return None
    return match[1] if match.groups() else ""


def _match(
    table: Table, selector: CompactSelector, place: tuple[int, int]
) -> dict[str, str] | None:
    """What ``*`` stands for in a cell's row and column; None if it is not selected."""
    labels = {"row": table.rows[place[0]].label, "column": table.columns[place[1]].label}
    stars: dict[str, str] = {}
    for key, label in labels.items():
        patterns = _listed(getattr(selector, key))
        found = [star for each in patterns if (star := _star(each, label)) is not None]
        if patterns and not found:
            return None
        stars[key] = found[0] if found else ""
    return stars


def _answers(
    table: Table,
    test: CompactTest,
    left: tuple[int, int],
    right: tuple[int, int],
    stars: Mapping[str, str],
) -> bool:
    """Whether a claim compares two cells: what ``right`` does not name is as on the left."""
    for key, place in (("row", 0), ("column", 1)):
        wanted = getattr(test.right, key)
        label = (table.rows if key == "row" else table.columns)[right[place]].label
        if wanted is None:
            same = left[place] == right[place]
        elif wanted == OTHERS and key == "column":
            named = _listed(test.left.column)
            same = all(_star(each, label) is None for each in named)
            same &= table.columns[right[1]].method != CENTRAL
        else:
            same = label in {each.replace("*", stars[key]) for each in _listed(wanted)}
        if not same:
            return False
    return True


def _name(
    table: Table, place: tuple[int, int], left: tuple[int, int], right: tuple[int, int]
) -> str:
    """A cell's column; its row where that differs, alone if the column does not."""
    row, column = table.rows[place[0]].label, table.columns[place[1]].label
    if left[0] == right[0]:
        return column
    return row if left[1] == right[1] else f"{column}, {row}"


def _leads(sign: int, cells: Sequence[TableCell], pair: CompactPair, lasts: Lasts) -> Leads:
    """Leads by seed; empty if a cell lacks numbers of today's code and configuration."""
    if not cells:
        return {}
    left, right = (by_seed(cells[place], lasts[place]) for place in (pair.left, pair.right))
    return {seed: sign * (left[seed] - right[seed]) for seed in sorted(left.keys() & right.keys())}


def lasts_of(workbench: Workbench, system: str, item: str) -> Lasts:
    """For each cell of a table of rounds until a target, the last round of its runs; else None."""
    target = workbench.table(system, item, "compact")
    return [
        workbench.setting(cell.setting).rounds
        if isinstance(target.table.metric_of(cell.row, cell.column), RoundsTo)
        else None
        for cell in target.cells
    ]


def by_seed(cell: TableCell, last: int | None = None) -> dict[int, float]:
    """A cell's numbers by seed that are of today's configuration and code.

    Args:
        last: what counts for a finished run that never reached the target. Leaving such seeds out
            would leave out the worst ones.
    """
    result = cell.paper
    runs = result.runs_of_the_chosen or (result.runs if len(result.methods) == 1 else ())
    found = {}
    for run in runs:
        value = run.value if run.value is not None or run.state != "finished" else last
        if value is not None and not run.changed and not run.code:
            found[run.seed] = float(value)
    return found
