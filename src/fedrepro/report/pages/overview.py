"""The pages besides the tables: state of all tables, discrepancies, uses of each method."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any

from fedrepro.config.targets import (
    ComputedTarget,
    FigureTarget,
    RunKey,
    SearchTarget,
    TableTarget,
    Target,
)
from fedrepro.config.values import Scale
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.coverage import ARITHMETIC, are_inputs_made
from fedrepro.report.cells.readings import Both, Readings
from fedrepro.report.pages.about import use_of
from fedrepro.report.pages.claims import ClaimView, findings_of, summary
from fedrepro.report.pages.run import are_inputs, with_inputs
from fedrepro.report.pages.templates import SITE
from fedrepro.report.papers.published import Name, Published, natural
from fedrepro.run.results import RunRecord
from fedrepro.support.names import Composition

Number = tuple[str, str]  # of a discrepancy: its system and number


def tables_of_runs(
    workbench: Workbench, papers: Published, wanted: AbstractSet[RunKey]
) -> dict[RunKey, list[dict[str, str]]]:
    """Run -> the tables and figures that need it, directly or as an input, at either scale.

    Args:
        wanted: the runs to include.
    """
    by_run: dict[RunKey, dict[str, dict[str, str]]] = {}
    given = are_inputs(workbench, wanted)
    for scale in ("paper", "demo"):
        for target in workbench.targets(scale).values():
            runs = with_inputs(workbench, target.runs) if given else target.runs
            use = use_of(target, papers)
            for run in wanted & set(runs):
                by_run.setdefault(run, {})[use["page"]] = use
    return {run: list(uses.values()) for run, uses in by_run.items()}


def start_page(
    readings: Readings,
    targets: Mapping[tuple[str, str], Target],
    counts: Mapping[tuple[str, str], Counter[str]],
    views: Sequence[ClaimView],
    scale: Scale,
) -> dict[str, Any]:
    """The findings of each paper, and the state of all tables.

    Of a table, figure or search: whether an experiment file has it (``covered``); how many of its
    cells at scale demo, or of the runs of a figure, search or compact table, have a result; and
    whether it repeats a part of another table (``again``). Of a paper: its claims at scale compact,
    in numbers and as a plot, and the first that is tested there.

    Args:
        views: the claims' verdicts.
        scale: at which the site is made.
    """
    published = readings.published

    def state(key: tuple[str, str]) -> SimpleNamespace:
        target, table = targets.get(key), readings.tables.get(key)
        count = counts.get(key, Counter())
        demo = None
        if table and table.scale == "demo" and (cells := [c.demo for c in table.cells if c.demo]):
            demo = sum(result.n > 0 for result in cells), len(cells)
        return SimpleNamespace(
            label=published.label_of(*key),
            title=_title_of(published, key, target),
            page=f"{key[0]}/{key[1]}.html",
            covered=target is not None,
            counts=count,
            demo=demo,
            figure=_progress_of(readings.workbench, target, table) if target else None,
            compact=bool(target and target.scale == "compact"),
            again=key not in published.tables and bool(count["printed"]),
        )

    systems, findings = [], findings_of(views)
    keys = sorted({**published.tables, **targets}, key=lambda key: natural(key[1]))
    for name, system in published.systems.items():
        states = [state(key) for key in keys if key[0] == name]
        # A table that repeats a part of another one must not count again.
        whole = sum((counts[key] for key in published.tables if key[0] == name), Counter())
        tested = (view for view in views if view.claim.system == name and view.compact)
        systems.append(
            SimpleNamespace(
                about=system,
                tables=states,
                counts=whole,
                compact=findings.get(name),
                first=next(tested, None),
                readings=readings_of(name, readings.by_table, targets),
            )
        )
    everything = sum((counts[key] for key in published.tables), Counter())
    own = [state(key) for key in targets if key[0] not in published.systems]
    return {
        "systems": systems,
        "own": own,
        "counts": everything,
        "arithmetic": sum(everything[name] for name in ARITHMETIC.values()),
        "claims": summary(views),
        "scale": scale,
    }


def readings_of(
    name: str,
    by_table: Mapping[tuple[str, str], Mapping[Name, Both]],
    targets: Mapping[tuple[str, str], Target],
) -> list[SimpleNamespace]:
    """A line for each printed table with trained cells: verdicts in both readings.

    ``ledger`` has the discrepancies between the two.
    """
    pages = {
        (target.system, target.table.published.table): target.page.relative_to(SITE).as_posix()
        for target in reversed([*targets.values()])
        if isinstance(target, TableTarget) and target.table.published
    }
    rows = []
    for (system, table), cells in by_table.items():
        text = [both.text for both in cells.values() if both.text]
        released = [both.released for both in cells.values() if both.released]
        if system == name and (text or released):
            items = {number for answer in released for number in answer.items}
            rows.append(
                SimpleNamespace(
                    table=table,
                    page=pages[system, table],
                    text=Counter(answer.word for answer in text if answer.word),
                    released=Counter(answer.word for answer in released if answer.word),
                    ledger=sorted(items, key=natural),
                )
            )
    return sorted(rows, key=lambda row: natural(row.table))


def _progress_of(
    workbench: Workbench, target: Target, table: ComputedTable | None
) -> tuple[int, int] | None:
    """How many runs of a figure, search or compact table are there, of how many; else None."""
    if isinstance(target, FigureTarget | SearchTarget):
        if isinstance(target, FigureTarget) and not target.runs:
            return int(are_inputs_made(workbench, target)), 0
        manifests = (workbench.root / run.folder / "manifest.json" for run in target.runs)
        return sum(path.exists() for path in manifests), len(target.runs)
    if target.scale != "compact":
        return None
    results = [cell.result for cell in table.cells] if table else []
    runs = {key for result in results for key, run in result.by_key if run.value is not None}
    return len(runs & {*target.runs}), len(target.runs)


def _title_of(published: Published, key: tuple[str, str], target: Target | None) -> str:
    """The caption's title; without a caption that of the experiment file, or ""."""
    if caption := published.captions.get(key):
        return caption.title
    match target:
        case TableTarget():
            return target.table.title
        case ComputedTarget():
            return target.spec.title
        case FigureTarget():
            return target.figure.title
        case SearchTarget():
            return target.search.title
    return ""


def all_pages(
    published: Published,
    targets: Mapping[tuple[str, str], Target],
    methods: Iterable[Mapping[str, Any]],
    runs: Iterable[RunRecord],
) -> list[tuple[str, str, str]]:
    """(address, title, kind) of everything that a reader may search for."""
    label = published.label_of
    pages = []
    for key in sorted({*published.tables, *targets}, key=lambda key: (key[0], natural(key[1]))):
        system, title = published.systems.get(key[0]), _title_of(published, key, targets.get(key))
        name = f"{system.name if system else key[0]}, {label(*key)}"
        pages.append((f"{key[0]}/{key[1]}.html", f"{name}: {title}".strip(": "), "table or figure"))
    pages += [
        (f"methods/{method['name']}.html", method["name"], method["kind"]) for method in methods
    ]
    for claim in published.claims:
        pages.append((f"claims.html#{claim.anchor}", claim.says, "claim"))
    for entry in published.ledger:
        place = f"discrepancies.html#item-{entry.number}"
        pages.append((place, f"{entry.number} {entry.topic}", "discrepancy"))
    for run in runs:
        title = f"{run.run.setting} {run.run.method}, seed {run.run.seed}"
        pages.append((run.page.as_posix(), title, "run"))
    return pages


def effects_of(
    by_table: Mapping[tuple[str, str], Mapping[Name, Both]],
) -> dict[Number, SimpleNamespace]:
    """By system and number, the largest change that a discrepancy made, alone or ``beside`` others.

    It is our number in the released reading less that in the text's; a change by fewer
    discrepancies goes before a larger one by more.

    Only numbers in percent count, as others have another scale, and only those of current runs.
    """
    effects: dict[Number, SimpleNamespace] = {}
    for (system, _), cells in by_table.items():
        for both in cells.values():
            text, released = both.text, both.released
            if text is None or released is None or text.unit != "%":
                continue
            verdicts = text.cell.verdict, released.cell.verdict
            if not all(verdict and verdict.is_of_current_runs for verdict in verdicts):
                continue
            change = (released.cell.result.mean or 0.0) - (text.cell.result.mean or 0.0)
            for number in released.items:
                beside = tuple(item for item in released.items if item != number)
                old = effects.get((system, number))
                new = SimpleNamespace(change=change, both=both, beside=beside)
                if old is None or _weight(new) > _weight(old):
                    effects[system, number] = new
    return effects


def _weight(effect: SimpleNamespace) -> tuple[int, float]:
    return -len(effect.beside), abs(effect.change)


def ledger(readings: Readings, targets: Mapping[tuple[str, str], Target]) -> dict[str, Any]:
    """The discrepancies, those with the largest measured effect first.

    ``pages`` are the tables and figures to link to, ``kinds`` the numbers by kind of evidence.
    """
    published, groups = readings.published, []
    effects = effects_of(readings.by_table)
    for name, system in published.systems.items():
        entries = [entry for entry in published.ledger if entry.system == name]
        measured = {entry.number: effects.get((name, entry.number)) for entry in entries}
        entries.sort(
            key=lambda entry: -abs(effect.change if (effect := measured[entry.number]) else 0)
        )
        groups.append({"about": system, "entries": entries, "effects": measured})
    kinds: dict[str, list[str]] = {}
    for entry in published.ledger:
        for kind in entry.evidence:
            kinds.setdefault(kind, []).append(entry.number)
    return {
        "groups": groups,
        "largest": sorted(effects.items(), key=lambda item: -abs(item[1].change)),
        "kinds": kinds,
        "total": len(published.ledger),
        "label_of": published.label_of,
        "pages": {*published.tables, *targets},
    }


def tables_of_parts(workbench: Workbench, papers: Published) -> dict[str, list[dict[str, str]]]:
    """Part of a composition -> the tables and figures with a method that has this part."""
    by_part: dict[str, dict[str, dict[str, str]]] = {}
    for target in workbench.targets("paper").values():
        use = use_of(target, papers)
        for setting, method in {(run.setting, run.method) for run in target.runs}:
            composition, _ = workbench.composition_of(workbench.setting(setting), method)
            for name in Composition.parse(composition).names:
                by_part.setdefault(name, {})[use["page"]] = use
    return {part: list(uses.values()) for part, uses in by_part.items()}
