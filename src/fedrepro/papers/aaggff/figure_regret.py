"""Regret: the cost of decisions over the best fixed one, and its proven bound."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.aaggff.kinds import Regret
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Points
from fedrepro.report.pages.figures.base import Drawn, distinct_settings
from fedrepro.run.derived_files import damaged, read_as

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
Numbers = list[Number]


@dataclass(frozen=True)
class Account:
    """The result of ``fedrepro regret``: numbers after each round, NaN if missing."""

    clients: int
    round: Numbers
    regret: Numbers
    bound: Numbers

    @property
    def rounds_above(self) -> int:
        """The number of rounds in which the regret exceeds its bound."""
        return sum(ours > bound for ours, bound in zip(self.regret, self.bound, strict=True))


def draw(workbench: Workbench, target: FigureTarget, figure: Regret) -> Drawn:
    names = ("cumulative regret", "bound")
    drawn = Drawn(
        "The cost of all decisions so far over the best fixed one, with "
        "the theorem's bound for that many rounds. If clients are sampled, it is "
        "the regret of the linearised decision losses. The band spans the lowest to the "
        "highest seed.",
        ("Setting", "Clients", "Rounds", "Regret", "Bound", "Rounds above the bound"),
        names=names,
    )
    for label, setting in distinct_settings(figure.panels, target):
        paths = target.analyses_in(setting, figure.method)
        analyses = (_read(workbench.root, path) for path in paths)
        accounts = [account for account in analyses if account and account.round]
        series: list[list[Points]] = [
            [list(zip(account.round, account.regret, strict=True)) for account in accounts],
            [list(zip(account.round, account.bound, strict=True)) for account in accounts],
        ]
        lines = [
            line
            for name, points in zip(names, series, strict=True)
            if points and (line := curves.average(name, points))
        ]
        if not lines:
            continue
        ends = [line.points[-1][1] for line in lines]
        above = sum(account.rounds_above for account in accounts)
        clients = max(account.clients for account in accounts)
        shown = ", ".join(f"{name} {end:.3g}" for name, end in zip(names, ends, strict=False))
        words = f"{label}, setting {setting}: after the last round {shown}."
        drawn.add_lines(f"{label}, {clients} clients", lines, words, unit="")
        if len(ends) == 2 and ends[1]:
            drawn.say(
                f"{label}: at the end, the regret is "
                f"{100 * ends[0] / ends[1]:.3g} % of its bound; it was above it in {above} rounds."
            )
        last = f"{lines[0].points[-1][0]:.0f}"
        numbers = [f"{end:.4g}" for end in ends] + [""] * (2 - len(ends))
        drawn.rows.append((setting, str(clients), last, *numbers, str(above)))
    return drawn


def _read(root: Path, path: Path) -> Account | None:
    account = read_as(Account, root, path)
    if account and not len(account.round) == len(account.regret) == len(account.bound):
        raise damaged(path, "expected a regret and a bound for every round")
    return account
