"""Matches of the league: methods beside each other in a setting of scale compact (docs/league.md).

A row of a compact table that names a group in ``league`` is a match. A method plays in it with
its number over all seeds, from runs of today's code and configuration.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedrepro.config.tables import Summary, full_name, wrapped
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Reading
from fedrepro.report.cells.cell import ComputedTable, Result
from fedrepro.report.cells.compact import CENTRAL
from fedrepro.report.cells.tables import result_of
from fedrepro.report.papers.estimate import Estimate
from fedrepro.report.papers.leads import PairedTest
from fedrepro.report.papers.ranks import ranks

BASELINE, BASELINE_LABEL = "fedavg", "FedAvg"  # what leads are over


@dataclass(frozen=True)
class Match:
    """A row of a compact table in which methods are compared.

    Attributes:
        row: its number in its table.
        setting: of the row, in full; columns may have another one.
        around: the wrapper that the row puts around all methods.
        measure: of a method of the reader's own.
        judged: whether a number needs the evaluation of a synthetic set.
    """

    system: str
    item: str
    row: int
    group: str
    label: str
    setting: str
    around: str | None
    measure: Reading
    judged: bool
    summary: Summary
    seeds: tuple[int, ...]

    @property
    def title(self) -> str:
        """Which no other match has: two tables may have rows with one label."""
        return f"{self.setting}: {self.label}"

    def method(self, name: str) -> str:
        """The method that is trained for ``name``."""
        return wrapped(self.around, [name])[0]


def matches_of(workbench: Workbench) -> list[Match]:
    """All matches, in the order of the files."""
    return [
        Match(
            system,
            item,
            number,
            row.league,
            row.label,
            full_name(system, row.setting),
            row.around,
            table.metric_of(row).reading,
            table.metric_of(row).analysis is not None,
            table.summary,
            workbench.seeds("compact", system),
        )
        for system, experiment in workbench.experiments.items()
        for item, table in experiment.compact.items()
        for number, row in enumerate(table.rows)
        if row.league
    ]


@dataclass(frozen=True)
class Entry:
    """A method in a match.

    Attributes:
        name: the column's label, or the reader's own method.
        method: that of its runs.
        values: by seed, in printed units, of the match's seeds only.
        why: why it has no number over all seeds; or "".
        diverged: whether a seed diverged, which makes it the last.
    """

    name: str
    method: str
    values: Mapping[int, float]
    why: str = ""
    diverged: bool = False

    @property
    def estimate(self) -> Estimate | None:
        """Over all seeds; None without them."""
        return None if self.why else Estimate.of([*self.values.values()])


@dataclass(frozen=True)
class Played:
    """A match with the methods' numbers.

    Attributes:
        seeds: those that a method needs for a rank.
        own: the name of the reader's own method, if it plays.
        left_out: methods that do not play, and why.
    """

    match: Match
    seeds: tuple[int, ...]
    entries: tuple[Entry, ...]
    own: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def scores(self) -> dict[str, float]:
        """By method, greater is better: a method that diverged has the least."""
        sign = 1 if self.match.measure.rising else -1
        found = {}
        for entry in self.entries:
            if entry.diverged:
                found[entry.name] = -math.inf
            elif entry.estimate:
                found[entry.name] = sign * entry.estimate.mean
        return found

    @property
    def ranks(self) -> dict[str, float]:
        """Of all methods with a number in this match; empty if there is only one."""
        scores = self.scores
        if len(scores) < 2:
            return {}
        return dict(zip(scores, ranks([*scores.values()]), strict=True))

    @property
    def best_other(self) -> Entry | None:
        """The best method but the reader's own."""
        scores = self.scores
        others = [each for each in self.entries if each.estimate and each.name != self.own]
        return max(others, key=lambda each: scores[each.name], default=None)

    def entry(self, name: str | None) -> Entry | None:
        return next((each for each in self.entries if each.name == name), None)

    @property
    def baseline(self) -> Entry | None:
        """FedAvg."""
        return self.entry(BASELINE_LABEL)

    def lead(self, name: str, over: str) -> PairedTest | None:
        """How much better a method is than another, seed by seed; None without both."""
        one, other = self.entry(name), self.entry(over)
        if one is None or other is None or one.why or other.why or one is other:
            return None
        sign = 1 if self.match.measure.rising else -1
        return PairedTest.of([sign * (one.values[s] - other.values[s]) for s in self.seeds], 0.0)


def play(
    workbench: Workbench,
    match: Match,
    table: ComputedTable | None,
    own: tuple[str, str] | None = None,
    seeds: Sequence[int] = (),
) -> Played:
    """A match with the numbers that there are.

    Args:
        table: the match's, computed; None if it is not.
        own: the reader's method: its name, and that of its runs in this setting.
        seeds: to compare with; by default the match's.

    Raises:
        UserError: if files of runs are damaged.
    """
    wanted, entries, left_out = tuple(seeds) or match.seeds, [], {}
    if own:
        name, method = own
        runs = [RunKey(match.setting, method, seed) for seed in wanted]
        found = result_of(workbench, match.setting, {method: runs}, match.measure, match.summary)
        entries.append(_entry(name, found, wanted))
    experiment = workbench.experiments[match.system].compact[match.item]
    row = experiment.rows[match.row]
    for number, column in enumerate(experiment.columns if table else ()):
        assert table
        result = table.cells[match.row * len(experiment.columns) + number].paper
        if result.methods == (CENTRAL,):
            continue
        if own and (result.setting, result.methods) == (match.setting, (own[1],)):
            continue  # the same runs
        selection = experiment.metric_of(row, column).selection
        if selection or len(result.methods) > 1:
            left_out[column.label] = selection or "the best of several methods is chosen by tests"
            continue
        label = BASELINE_LABEL if result.methods == (match.method(BASELINE),) else column.label
        entries.append(_entry(label, result, wanted))
    return Played(match, wanted, tuple(entries), own[0] if own else None, left_out)


def _entry(name: str, result: Result, seeds: Sequence[int]) -> Entry:
    """A method's numbers by seed, of today's configuration and code only."""
    runs = {run.seed: run for run in result.runs if run.seed in seeds}
    today = {seed: run for seed, run in runs.items() if not run.changed and not run.code}
    values = {seed: run.value for seed, run in sorted(today.items()) if run.value is not None}
    method = result.methods[0]
    if any(run.state == "diverged" for run in today.values()):
        return Entry(name, method, values, "diverged", diverged=True)
    if len(values) == len(seeds):
        return Entry(name, method, values)
    others = [run for seed, run in runs.items() if seed not in today and run.value is not None]
    failed = [run for seed, run in today.items() if seed not in values and run.state != "not run"]
    why = f"{len(values)} of {len(seeds)} seeds" if values else "no result"
    if others:
        why += f"; {others[0].code or 'made with another configuration'}"
    elif failed:
        why += f"; seed {failed[0].seed} {failed[0].why}"
    return Entry(name, method, values, why)
