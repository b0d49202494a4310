"""The page of a search: the published, the selected and the test-selected choice side by side."""

from types import SimpleNamespace
from typing import Any

from fedrepro.config.searches import Search
from fedrepro.config.targets import SearchTarget
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.search import MethodSearch, as_far_as_it_went, compute
from fedrepro.report.drawing.charts import matrix
from fedrepro.report.pages.about import about
from fedrepro.report.pages.figures.base import Panel, symbol
from fedrepro.report.pages.templates import plain
from fedrepro.report.papers.published import Published
from fedrepro.run.results import find_run
from fedrepro.support.names import Composition

WIDEST = 9  # most values of a hyperparameter in a chart


def search_page(workbench: Workbench, target: SearchTarget, published: Published) -> dict[str, Any]:
    """The content of a search's page, from its runs.

    Raises:
        UserError: if a file of a run is damaged.
    """
    search = target.search
    setting = workbench.setting(target.setting)
    target = as_far_as_it_went(workbench, target)
    records = [find_run(workbench.root, run) for run in target.runs]
    views = []
    for method_search in compute(workbench, target):
        searched = method_search.trial.searched
        composition, _ = workbench.composition_of(setting, searched.method)
        views.append(
            SimpleNamespace(
                label=searched.label or searched.method,
                parts=Composition.parse(composition).names,
                search=method_search,
                in_grid=len(method_search.tried) == _size_of_grid(method_search),
                chart=_chart(target, method_search),
            )
        )
    return {
        "target": target,
        "views": views,
        "measure": _words(target),
        "keys": _keys_of(search, paper_grid=False),
        "paper_keys": _keys_of(search, paper_grid=True),
        "stands_in": target.scale == "demo" and search.demo is not None,
        "seeds": {scale: workbench.seeds(scale, target.system, search.seeds) for scale in SCALES},
        "records": [record for record in records if record.manifest],
        **about(published, target.system, target.item, ""),
    }


def _keys_of(search: Search, *, paper_grid: bool) -> list[str]:
    """The setting's keys that methods search, in a paper's own grid or not."""
    methods = (method for method in search.methods if method.paper_grid is paper_grid)
    return list(dict.fromkeys(key for method in methods for key in method.keys))


def _words(target: SearchTarget) -> str:
    """The metric's name on validation or test samples."""
    return target.search.metric.quantity.words.replace(" by test samples", " by samples")


def _size_of_grid(search: MethodSearch) -> int:
    return len(search.trial.searched.candidates(None))


def _chart(target: SearchTarget, search: MethodSearch) -> Panel | None:
    """A chart of the validation scores over a grid with one or two hyperparameters.

    The selected candidate is framed.
    """
    searched = search.trial.searched
    grid = searched.all_values
    across, *further = grid
    if len(further) > 1 or len(grid[across]) > WIDEST:
        return None
    words = _words(target)
    means = [candidate.validation.mean for candidate in search.tried[: _size_of_grid(search)]]
    # The first key varies slowest.
    down = grid[further[0]] if further else ["validation"]
    wide, tall = len(grid[across]), len(down)
    values = [[means[column * tall + row] for column in range(wide)] for row in range(tall)]
    if not any(value is not None for line in values for value in line):
        return None
    chosen = search.selected
    # The best mean may be of a candidate that lacks a seed, which cannot be selected.
    framed = set() if chosen is None else {(chosen % tall, chosen // tall)}
    svg = matrix(
        values,
        x=[plain(value) for value in grid[across]],
        y=[plain(value) for value in down],
        titles=(symbol(across), symbol(further[0]) if further else ""),
        framed=framed,
        description=f"{words} on validation samples by {' and '.join(grid)}; the "
        "numbers are in the table of candidates.",
    )
    return Panel(f"{words} on validation samples", svg)
