"""Objective: the cumulative global objective by round (Hahn et al., ICML 2024, Figure A1)."""

from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.papers.aaggff.kinds import Objective
from fedrepro.papers.aaggff.regret_of_run import played_of
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Points
from fedrepro.report.pages.figures.base import Drawn, distinct_settings, key_of
from fedrepro.report.pages.figures.panel import Panel
from fedrepro.run.results import RunRecord, find_run
from fedrepro.support.plugins import NONE, Folders


def draw(workbench: Workbench, target: FigureTarget, figure: Objective) -> Drawn:
    names = [column.label for column in figure.columns]
    drawn = Drawn(
        "The sum, over all rounds so far and the clients of each, of p times loss before training; "
        "p is the decision with which the round begins. Smaller is better. The mean over seeds; "
        "the band spans lowest to highest.",
        ("Setting", "Function", "Rounds", "Cumulative objective", "Lowest", "Highest", "Seeds"),
        key=key_of(names),
    )
    for label, setting in distinct_settings(figure.panels, target):
        lines = []
        for column in figure.columns:
            runs = [
                RunKey(f"{target.system}/{setting}", method, seed)
                for method in column.methods_at(target.scale)
                for seed in target.seeds
            ]
            records = [find_run(workbench.root, run) for run in runs]
            series = [made for each in records if (made := objective_of(each, workbench.plugins))]
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
            svg = curves.draw(lines, description=words, names=names, unit="")
            drawn.panels.append(Panel(label, svg))
    return drawn


def objective_of(record: RunRecord, own: Folders = NONE) -> Points:
    """The cumulative objective after each round of a finished run; empty without decisions.

    Empty, too, if a round is missing, because a loss was not finite or only the last round was
    landed: the sum would be over fewer rounds.
    """
    points: list[tuple[float, float]] = []
    total = 0.0
    for played in played_of(record, own) if record.state == "finished" else ():
        total += float(played.before["decision"][played.seen.cohort] @ played.seen.losses)
        points.append((played.seen.round + 1, total))
    return points if len(points) == record.manifest.get("rounds_done") else []
