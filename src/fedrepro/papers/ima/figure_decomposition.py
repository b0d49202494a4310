"""Decomposition: terms of the expected loss of averaged models, by round (IMA, Theorem 1)."""

import math
from pathlib import Path
from typing import Any

from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.ima.kinds import Decomposition
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.figures.base import Drawn, titled
from fedrepro.run.derived_files import damaged, read_derived

WORDS = {
    "total": "sum of the five terms",
    "loss": "loss of the average",
    "ensemble_loss": "loss of the ensemble",
    "error": "test error, %",
    "distance": "largest L2 distance of a client",
    "gap": "average against ensemble",
    "slope": "slope of Lemma 1",
    "cka": "linear CKA of logits",
}


def draw(workbench: Workbench, target: FigureTarget, figure: Decomposition) -> Drawn:
    terms = [term for group in figure.show for term in group]
    names = [WORDS.get(term, term.replace("_", " ")) for term in terms]
    drawn = Drawn("", ("Panel", "Round", *names), names=names)
    about: dict[str, None] = {}
    for place in figure.panels:
        setting, samples = place.setting_at(target.scale), str(figure.samples)
        (path,) = target.analyses_in(setting, figure.method, samples)
        analysis = read_derived(workbench.root, path)
        if analysis is None:
            continue
        rounds, series = _columns(path, analysis, figure)
        seeds, tested = ", ".join(map(str, analysis["seeds"])), analysis["samples"]
        words = f"over the seeds {seeds}, on {tested} test samples, of {analysis['estimates']}"
        about[words] = None
        label = titled(place.label, place, target)
        lines = {
            term: Line(name, points)
            for term, name, values in zip(terms, names, series, strict=True)
            if (points := [at for at in zip(rounds, values, strict=True) if math.isfinite(at[1])])
        }
        for group in figure.show:
            shown = [lines[term] for term in group if term in lines]
            if not shown:
                continue
            title = ", ".join(line.name for line in shown)
            ends = ", ".join(f"{line.name} {line.points[-1][1]:.3g}" for line in shown)
            words = f"{place.label}: after round {rounds[-1]:.0f} {ends}."
            apart = f": {title}" if len(figure.show) > 1 else ""
            drawn.add_lines(f"{label}{apart}", shown, words, unit="")
            moved = ", ".join(
                f"{line.name} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}"
                for line in shown
            )
            drawn.say(
                f"{label}: from round {shown[0].points[0][0]:.0f} to "
                f"{shown[0].points[-1][0]:.0f}, {moved}."
            )
        for index, number in enumerate(rounds):
            numbers = (_number(values[index]) for values in series)
            drawn.rows.append((label, f"{number:.0f}", *numbers))
    squared = "" if terms == ["cka"] else "Squared errors of softmax outputs. "
    drawn.caption = f"{squared}Estimated {'; '.join(about)}." if about else squared
    return drawn


def _columns(
    path: Path, analysis: dict[str, Any], figure: Decomposition
) -> tuple[list[float], list[list[float]]]:
    """The rounds, and the values of each of the figure's terms; NaN if missing."""
    try:
        rounds = [float(each["round"]) for each in analysis["rounds"]]
        series = [
            [math.nan if each[term] is None else float(each[term]) for each in analysis["rounds"]]
            for group in figure.show
            for term in group
        ]
        assert analysis["estimates"] and analysis["samples"] and analysis["seeds"]
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise damaged(path, error) from None
    return rounds, series


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"
