"""Objective: the cumulative global objective by round (Hahn et al., ICML 2024, Figure A1)."""

from pathlib import Path

from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.papers.aaggff.kinds import Objective
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Points
from fedrepro.report.pages.figures.base import Drawn, distinct_settings, leaders
from fedrepro.run.derived_files import damaged, read_derived
from fedrepro.run.results import find_run


def draw(workbench: Workbench, target: FigureTarget, figure: Objective) -> Drawn:
    drawn = Drawn(
        "The sum, over all rounds so far and the clients of each, of p times loss before training; "
        "p is the decision with which the round begins. Smaller is better. The mean over seeds; "
        "the band spans lowest to highest.",
        ("Setting", "Function", "Rounds", "Cumulative objective", "Lowest", "Highest", "Seeds"),
        names=[column.label for column in figure.columns],
    )
    last: list[tuple[str, dict[str, float]]] = []
    for label, setting in distinct_settings(figure.panels, target):
        lines = []
        for column in figure.columns:
            each = (target.runs_in(setting, method) for method in column.methods_at(target.scale))
            points = (points_of(workbench.root, run) for runs in each for run in runs)
            series = [*filter(None, points)]
            line = curves.average(column.label, series)
            if line is None:
                continue
            lines.append(line)
            at, end = line.points[-1]
            ends = (line.low[-1], line.high[-1]) if line.low else (end, end)
            numbers = (f"{value:.4g}" for value in (end, *ends))
            drawn.rows.append((setting, column.label, f"{at:.0f}", *numbers, str(len(series))))
        if lines:
            ended = "; ".join(f"{line.name} {line.points[-1][1]:.4g}" for line in lines)
            words = f"Cumulative objective by round, {label}, setting {setting}: {ended}."
            drawn.add_lines(label, lines, words, unit="")
            last.append((label, {line.name: line.points[-1][1] for line in lines}))
    drawn.sees = leaders(last, higher_is_better=False)
    return drawn


def points_of(root: Path, run: RunKey) -> Points:
    """The cumulative objective after each round of a finished run; empty without it.

    Empty, too, if a round is missing because a loss was not finite: the sum would be over fewer
    rounds.

    Raises:
        UserError: if the analysis is damaged.
    """
    record, path = find_run(root, run), run.analysis("regrets")
    analysis = read_derived(root, path) if record.state == "finished" else None
    if analysis is None:
        return []
    try:
        points = [
            (int(number), float(value))
            for number, value in zip(analysis["round"], analysis["objective"], strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from None
    return points if len(points) == record.manifest.get("rounds_done") else []
