"""Averaging: test error by the number of averaged clients and by their similarity (Figure 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.ima.kinds import Averaging
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.figures.base import Drawn, from_to, titled
from fedrepro.run.derived_files import read_as


@dataclass(frozen=True)
class After:
    """A round whose models were kept.

    Attributes:
        cka: of the clients' outputs, mean over pairs; None if undefined.
        error: of the average of all clients, %, mean over seeds.
        errors_by_number: of averages of 1, 2, ... clients, %, of the first seed.
    """

    round: int
    cka: float | None
    error: float
    errors_by_number: Annotated[list[float], Field(min_length=1)]


@dataclass(frozen=True)
class Averages:
    """The kept rounds of an analysis."""

    rounds: Annotated[list[After], Field(min_length=1)]


def draw(workbench: Workbench, target: FigureTarget, figure: Averaging) -> Drawn:
    drawn = Drawn(
        "By number: the mean over groups of consecutive clients, in a circle, for the first seed. "
        "By similarity: every kept round, with the linear CKA of the clients' outputs and the "
        "error of the average of all of them, means over seeds.",
        ("Setting", "Round", "CKA", "Error of one client, %", "Of their average, %"),
        names=[place.label for place in figure.panels],
    )
    by_label: dict[str, list[After]] = {}
    for place in figure.panels:
        setting, samples = place.setting_at(target.scale), str(figure.samples)
        (path,) = target.analyses_in(setting, figure.method, samples)
        analysis = read_as(Averages, workbench.root, path)
        if analysis is None:
            continue
        by_label[place.label] = rounds = analysis.rounds
        for after in rounds:
            cka = "–" if after.cka is None else f"{after.cka:.3f}"
            errors = (f"{after.errors_by_number[0]:.2f}", f"{after.error:.2f}")
            drawn.rows.append((titled(place.label, place, target), str(after.round), cka, *errors))
        drawn.say(
            f"{place.label}: after round {rounds[-1].round}, one client has "
            f"an error of {rounds[-1].errors_by_number[0]:.2f} %, the average of all "
            f"{rounds[-1].error:.2f} %."
        )
    for number in _shown(list(by_label.values())):
        by_number = [
            Line(name, list(enumerate(after.errors_by_number, 1)))
            for name, rounds in by_label.items()
            for after in rounds
            if after.round == number
        ]
        title = f"After round {number}, by the number of averaged clients"
        _add(drawn, title, by_number, "averaged clients")
    alike = [
        Line(name, points)
        for name, rounds in by_label.items()
        if (points := sorted((after.cka, after.error) for after in rounds if after.cka is not None))
    ]
    if alike:
        _add(drawn, "By the similarity of clients", alike, "linear CKA")
    return drawn


def _add(drawn: Drawn, title: str, lines: list[Line], across: str) -> None:
    words = f"Test error in percent. {title}: {from_to(lines)}."
    drawn.add_lines(title, lines, words, across=across)


def _shown(settings: Sequence[Sequence[After]]) -> list[int]:
    """The first, the middle and the last of the rounds that all settings kept."""
    common = set.intersection(*({after.round for after in rounds} for rounds in settings or [[]]))
    rounds = sorted(common)
    return sorted({rounds[0], rounds[len(rounds) // 2], rounds[-1]}) if rounds else []
