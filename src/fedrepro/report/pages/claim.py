"""A claim's own page: all that its authors need to check our verdict, and how to object."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.search import at_an_end
from fedrepro.report.pages.claims import ClaimView
from fedrepro.report.pages.templates import repository
from fedrepro.report.papers.published import System
from fedrepro.run.run_archive import folder_of

FORM = "objection.yml"  # in .github/ISSUE_TEMPLATE


def claim_page(
    workbench: Workbench, system: System, view: ClaimView, views: Iterable[ClaimView]
) -> dict[str, Any]:
    """The content of a claim's page.

    Args:
        views: all claims, of which those that share runs are named.
    """
    claim, compact = view.claim, view.compact
    experiment = workbench.experiments.get(claim.system)
    runs = _runs(workbench, view)
    settings = {run.setting for run in runs}
    searches = [
        SimpleNamespace(
            page=f"{claim.system}/{item}.html",
            title=search.title,
            at_an_end=[*at_an_end(workbench, workbench.search(claim.system, item, "compact"))],
        )
        for item, search in (experiment.compact_search if experiment else {}).items()
        if settings & {f"{claim.system}/{name}" for name in (search.setting, *search.selects_for)}
    ]
    first = next(iter(runs), None)
    address = repository()
    asked = {"template": FORM, "title": f"Objection: {claim.anchor}", "claim": claim.anchor}
    return {
        "system": system,
        "view": view,
        "runs": runs,
        "searches": searches,
        "witnesses": [
            other.claim
            for other in views
            if compact and other.compact and other is not view
            if compact.runs & other.compact.runs
        ],
        "again": f"make compact ONLY='{claim.system}/{compact.item}' AGAIN=1" if compact else "",
        "explain": f"fedrepro explain {first.setting} {first.methods.split(', ')[0]} --seed 1"
        if first
        else "",
        "form": f"{address}/issues/new?{urlencode(asked)}" if address else "",
        "file": f".github/ISSUE_TEMPLATE/{FORM}",
    }


def _runs(workbench: Workbench, view: ClaimView) -> list[SimpleNamespace]:
    """The runs that a claim rests on, by setting, and the folders that they are kept in."""
    if view.compact is None:
        return []
    target = workbench.table(view.claim.system, view.compact.item, "compact")
    methods: dict[str, dict[str, None]] = {}
    for setting, names in sorted(view.compact.runs):
        methods.setdefault(setting, {}).update(dict.fromkeys(names))
    seeds = {cell.setting: cell.seeds for cell in target.cells}
    return [
        SimpleNamespace(
            setting=setting,
            methods=", ".join(names),
            seeds=", ".join(map(str, seeds[setting])),
            folder=_folder(workbench, setting),
        )
        for setting, names in methods.items()
    ]


def _folder(workbench: Workbench, setting: str) -> str:
    """Where the runs of a setting are: landed or, in a workbench that has made its own, results."""
    landed = folder_of(setting)
    made = Path("results/runs", setting)
    return (landed if (workbench.root / landed).exists() else made).as_posix()
