"""The page of a figure: panels, key, the numbers as a table, and the runs."""

from importlib import import_module
from typing import Any

from fedrepro.config.targets import FigureTarget
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.provenance.identity import in_words
from fedrepro.report.cells.readings import is_of_shared_model
from fedrepro.report.pages.about import about
from fedrepro.report.pages.downloads import has_png
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.report.papers.published import Published
from fedrepro.run.results import find_run
from fedrepro.run.standing import of_another
from fedrepro.support import papers


def figure_page(workbench: Workbench, target: FigureTarget, published: Published) -> dict[str, Any]:
    """The content of a figure's page, from its runs. Runs that are missing are holes.

    Raises:
        UserError: if a file of a run is damaged.
    """
    figure = target.figure
    if figure.kind in papers.files_of("figure"):
        kind = papers.load("figure", figure.kind)
    else:
        kind = import_module(f"fedrepro.report.pages.figures.{figure.kind}")
    drawn: Drawn = kind.draw(workbench, target, figure)
    records = [find_run(workbench.root, run) for run in target.runs]
    own = (record for record in records if record.state == "finished" and not record.reference)
    reasons = {record.run.name: in_words(of_another(workbench, record)) for record in own}
    shared = dict.fromkeys(
        one.label
        for one in figure.shown(target.scale)
        if is_of_shared_model(workbench, one.metric, f"{target.system}/{one.setting}", one.methods)
    )
    if shared and drawn.panels:
        drawn.caption += f" Of {', '.join(shared)}: the shared model; clients have their own."
    return {
        "target": target,
        "drawn": drawn,
        "png": has_png(),
        "finished": sum(record.state == "finished" for record in records),
        "needs_demo": not target.runs and bool(figure.needs("paper")),
        "seeds": {scale: workbench.seeds(scale, target.system, figure.seeds) for scale in SCALES},
        "records": [record for record in records if record.manifest],
        "holes": [record for record in records if record.state != "finished"],
        "printed_figure": published.figure_of(target.system, target.item),
        # This machine's results that are not of today's configuration and code.
        "others": {name: why for name, why in reasons.items() if why},
        **about(published, target.system, target.item, ""),
    }
