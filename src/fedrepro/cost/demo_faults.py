"""What scale demo, which is to take seconds, would train or leave empty of a paper."""

import math
from collections.abc import Iterator

from fedrepro.config.tables import full_name, named_settings
from fedrepro.config.targets import FigureTarget, RunKey, SearchTarget, TableTarget, Target
from fedrepro.config.workbench import Workbench
from fedrepro.cost.model import CostModel
from fedrepro.support.errors import UserError, listed

SHORT = 60.0  # seconds: a run that takes less needs no small form


def faults_at_demo(workbench: Workbench, system: str) -> Iterator[str]:
    """Places whose full-size runs scale demo makes, and figures that are empty there."""
    file = workbench.files[system]
    large: dict[str, dict[RunKey, None]] = {}
    for (owner, item), target in workbench.targets("demo").items():
        if owner != system or not target.awaited:
            continue
        for place, setting in _without_demo(target):
            same = (run for run in target.runs if run.setting == setting)
            large.setdefault(place, {}).update(dict.fromkeys(same))
        if not target.runs and workbench.target(owner, item, "paper").runs:
            yield f"{file}: figures.{item}: empty at scale demo: expected a point with `demo`"
    model = CostModel(workbench, [])
    for place, runs in large.items():
        seconds = [_seconds(model, run) for run in runs]
        known = [each for each in seconds if each is not None]
        if len(known) < len(seconds) or max(known, default=0.0) > SHORT:
            takes = _in_words(math.fsum(known)) if len(known) == len(seconds) else "an unknown time"
            names = listed(list(dict.fromkeys(run.setting for run in runs)))
            why = f"scale demo trains {names}, for {takes}: expected a small setting"
            yield f"{file}: {place}.demo: missing: {why}"


def _without_demo(target: Target) -> Iterator[tuple[str, str]]:
    """The places of a target, and their settings, that are the same at scale demo as at paper."""
    if isinstance(target, TableTarget):
        for cell in target.cells:
            full = target.table.setting_of(cell.row, cell.column, "paper")
            if cell.setting == full_name(target.system, full):
                yield f"tables.{target.item}.rows.{cell.row.label}", cell.setting
    elif isinstance(target, FigureTarget):
        named = dict(named_settings(target.figure, f"figures.{target.item}"))
        for key, name in named.items():
            place, _, last = key.rpartition(".")
            if last == "setting" and named.get(f"{place}.demo", "") is None:
                yield place, f"{target.system}/{name}"
    elif isinstance(target, SearchTarget) and target.search.demo is None:
        yield f"search.{target.item}", target.setting


def _seconds(model: CostModel, run: RunKey) -> float | None:
    """What a run takes alone; None if unknown."""
    try:
        return model.cost(run, 0).seconds
    except UserError:  # named by another check
        return None


def _in_words(seconds: float) -> str:
    if seconds < 3600:
        return f"about {seconds / 60:.0f} minutes"
    return f"about {seconds / 3600:,.1f} hours"
