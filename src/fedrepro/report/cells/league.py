"""The league: methods beside each other in settings of scale compact (docs/league.md).

A row of a compact table that names a group in ``league`` is a match. A method plays in it with
its number over all seeds, from runs of today's code and configuration. Mean ranks are over the
matches of a group.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedrepro.config.tables import Summary, Table, full_name, wrapped
from fedrepro.config.targets import RunKey
from fedrepro.config.values import Scalar
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, read_meta
from fedrepro.measures.base import Quantity
from fedrepro.methods.facts import facts_of
from fedrepro.report.cells.cell import ComputedTable, Result
from fedrepro.report.cells.claims import CENTRAL
from fedrepro.report.cells.tables import result_of
from fedrepro.report.papers.estimate import Estimate
from fedrepro.report.papers.leads import LOOKS, PairedTest
from fedrepro.report.papers.ranks import MeanRanks, mean_ranks, ranks
from fedrepro.run.results import find_run
from fedrepro.support import checkout
from fedrepro.support.grouping import grouped
from fedrepro.support.printing import counted, decimals_for

UNSHARED = "its clients share no model, and the setting scores the shared one"
BASELINE, BASELINE_LABEL = "fedavg", "FedAvg"  # the method that leads are over
ALL = "all groups"
# By setting and method, the setting and the method whose runs count instead.
Chosen = Mapping[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Match:
    """A row of a compact table in which methods are compared.

    Attributes:
        row: its number in its table.
        setting: of the row, in full; columns may have another one.
        wrapper: the wrapper that the row puts around all methods.
        quantity: of a method of the reader's own.
        judged: whether a number needs the evaluation of a synthetic set.
        on_test_set: whether a number is of the shared model on the test set, if the data have one.
        earlier_rule: whether its setting was chosen by a rule that has been replaced.
    """

    system: str
    item: str
    row: int
    group: str
    label: str
    setting: str
    wrapper: str | None
    quantity: Quantity
    judged: bool
    summary: Summary
    seeds: tuple[int, ...]
    earlier_rule: bool = False
    on_test_set: bool = False

    @property
    def title(self) -> str:
        """A name that no other match has: two tables may have rows with one label."""
        return f"{self.setting}: {self.label}"

    def method(self, name: str) -> str:
        """The method that is trained for ``name``."""
        return wrapped(self.wrapper, [name])[0]


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
            row.wrapper,
            table.metric_of(row).quantity,
            table.metric_of(row).analysis is not None,
            table.summary,
            _seeds(workbench, system, table),
            table.earlier_rule,
            table.metric_of(row).on_test_set,
        )
        for system, experiment in workbench.experiments.items()
        for item, table in experiment.compact.items()
        for number, row in enumerate(table.rows)
        if row.league
    ]


def reads_test_set(workbench: Workbench, match: Match) -> bool:
    """Return True if its numbers are of the shared model, on a test set that the data have.

    Raises:
        UserError: if only the prepared data can say so, and they are damaged.
    """
    if not match.on_test_set:
        return False
    name = workbench.setting(match.setting).dataset
    if size := workbench.datasets[name].size:
        return size.test > 0
    return "test" in (read_meta(workbench.root / PREPARED / name) or {}).get("splits", {})


def unshared(workbench: Workbench, match: Match, result: Result) -> str:
    """The reason why a column's number is of no shared model on the test set; or "".

    Without a shared model it is over the samples that clients hold out. Of a model in part, it is
    of one whose other part has its initial values.
    """
    if not reads_test_set(workbench, match):
        return ""
    composition, _ = workbench.composition_of(workbench.setting(result.setting), result.methods[0])
    runs = (RunKey(result.setting, run.method, run.seed) for run in result.runs)
    if facts_of(composition, workbench.plugins).own_classifier or any(
        find_run(workbench.root, run).manifest.get("shares_part_of_model") for run in runs
    ):
        return UNSHARED
    return ""


def _seeds(workbench: Workbench, system: str, table: Table) -> tuple[int, ...]:
    """The seeds of a match: the system's, unless its table's own seeds lack one of them."""
    own = workbench.seeds("compact", system, table.seeds)
    seeds = workbench.seeds("compact", system)
    return seeds if {*seeds} <= {*own} else own


@dataclass(frozen=True)
class Entry:
    """A method in a match.

    Attributes:
        name: the column's label, or the reader's own method.
        method: that of its runs.
        values: by seed, in printed units, of the match's seeds only.
        why: why it has no number over all seeds; or "".
        diverged: whether a seed diverged, which makes it the last.
        column: its column's label, which another entry may have as its name.
    """

    name: str
    method: str
    values: Mapping[int, float]
    why: str = ""
    diverged: bool = False
    column: str = ""

    @classmethod
    def of(cls, name: str, result: Result, seeds: Sequence[int]) -> "Entry":
        """A method's numbers by seed, of today's configuration and code only."""
        runs = [run for run in result.runs if run.seed in seeds]
        by_seed = sorted(result.current_by_seed().items())
        values = {seed: value for seed, value in by_seed if seed in seeds}
        method = result.methods[0]
        if any(run.state == "diverged" and not run.stale for run in runs):
            return cls(name, method, values, "diverged", diverged=True)
        if len(values) == len(seeds):
            return cls(name, method, values)
        why = f"{len(values)} of {len(seeds)} seeds" if values else "no result"
        stale = [run.stale for run in runs if run.stale]
        today = [run for run in runs if not run.stale]
        failed = [run for run in today if run.value is None and run.state != "not run"]
        if stale:
            why += f"; {stale[0]}"
        elif failed:
            why += f"; seed {failed[0].seed} {failed[0].why}"
        return cls(name, method, values, why)

    @property
    def estimate(self) -> Estimate | None:
        """The mean over all seeds; None without them."""
        return None if self.why else Estimate.of([*self.values.values()])


@dataclass(frozen=True)
class PlayedMatch:
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
    def sign(self) -> int:
        return 1 if self.match.quantity.higher_is_better else -1

    @property
    def decimals(self) -> int:
        """Those of the methods' means."""
        means = (entry.estimate for entry in self.entries)
        return decimals_for(mean.mean for mean in means if mean)

    @property
    def scores(self) -> dict[str, float]:
        """By method, greater is better: a method that diverged has the least."""
        means = [(entry, entry.estimate) for entry in self.entries]
        return {
            entry.name: self.sign * mean.mean if mean else -math.inf
            for entry, mean in means
            if mean or entry.diverged
        }

    @property
    def ranks(self) -> dict[str, float]:
        """The ranks of all methods with a number in this match; empty if there is only one."""
        scores = self.scores
        return dict(zip(scores, ranks([*scores.values()]), strict=True)) if len(scores) > 1 else {}

    @property
    def counts(self) -> bool:
        """True with two methods that have a number, among them the reader's own if it plays."""
        return len(self.scores) > 1 and (self.own is None or self.own in self.scores)

    @property
    def best_other(self) -> Entry | None:
        """The best method but the reader's own."""
        scores = self.scores
        rivals = (entry for entry in self.entries if entry.estimate and entry.name != self.own)
        return max(rivals, key=lambda entry: scores[entry.name], default=None)

    def entry(self, name: str | None) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def baseline(self) -> Entry | None:
        """FedAvg."""
        return self.entry(BASELINE_LABEL)

    def lead(self, name: str | None, over: str = BASELINE_LABEL) -> PairedTest | None:
        """How much better a method is than another, seed by seed; None without both."""
        one, rival = self.entry(name), self.entry(over)
        if one is None or rival is None or one.why or rival.why or one is rival:
            return None
        return PairedTest.of(
            [self.sign * (one.values[seed] - rival.values[seed]) for seed in self.seeds], 0.0
        )


@dataclass(frozen=True)
class GroupRanks:
    """The mean ranks of a group of matches; None with fewer than two methods in all of them."""

    group: str
    matches: tuple[PlayedMatch, ...]
    mean_ranks: MeanRanks | None

    @classmethod
    def of(cls, group: str, matches: Iterable[PlayedMatch]) -> "GroupRanks":
        """The rows of one setting come from the same runs, so they count once."""
        matches = tuple(matches)
        settings = grouped(matches, lambda played: played.match.setting).values()
        scores = [[played.scores for played in rows] for rows in settings]
        return cls(group, matches, mean_ranks(scores))


@dataclass(frozen=True)
class Choice:
    """The search of a method's values in a setting.

    Attributes:
        method: whose runs count: with the best values or, without a search, with the defaults.
        tried: the number of candidates that have a validation score.
        chosen: the values of the best; None if there was no search.
        score: its score on clients' validation samples, in printed units.
        why: why there was no search, or "".
        suffix: what follows the setting's name in that of the runs that count.
    """

    setting: str
    method: str
    candidates: int
    tried: int
    chosen: Mapping[str, Scalar] | None
    score: float | None
    why: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class League:
    """All that the page shows.

    Attributes:
        about: commit, data sets and seeds, in words.
        own: the name of the reader's method, or None.
        unable: matches in which it cannot run, and why.
        search: who searched: "own", or with the same values all methods, "each" for itself or
            "alike", with one choice for all.
    """

    played: tuple[PlayedMatch, ...]
    standings: tuple[GroupRanks, ...]
    about: str
    own: str | None = None
    unable: Mapping[str, str] = field(default_factory=dict)
    searched: tuple[Choice, ...] = ()
    search: str = "own"

    @property
    def ranked(self) -> list[PlayedMatch]:
        """The matches that the standings count."""
        groups = (standing for standing in self.standings if standing.group != ALL)
        return [played for standing in groups for played in standing.matches]

    @property
    def preliminary(self) -> str:
        """A warning if a match that counts has too few seeds; or ""."""
        least = min((len(played.seeds) for played in self.ranked), default=0)
        return f"preliminary: {counted(least, 'seed')}" if 0 < least < LOOKS[0] else ""

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """The methods that do not play in some match, and why."""
        return sorted({item for played in self.played for item in played.left_out.items()})


def league_of(
    workbench: Workbench,
    tables: Mapping[tuple[str, str], ComputedTable],
    *,
    matches: Iterable[Match] | None = None,
    own: str | None = None,
    methods: Chosen | None = None,
    seeds: int | None = None,
) -> League:
    """The league of the numbers that there are.

    Args:
        tables: computed, by system and item; a match without its table has no methods.
        matches: by default all.
        own: a method of the reader's own, which plays in all of these matches.
        methods: by setting and method, the setting and the method whose runs count instead.
        seeds: how many of the first seeds to compare; by default all.

    Raises:
        UserError: if files of runs are damaged.
    """
    played = []
    for match in matches_of(workbench) if matches is None else matches:
        table = tables.get((match.system, match.item))
        played.append(_play(workbench, match, table, own, methods or {}, match.seeds[:seeds]))
    counting = [played_match for played_match in played if played_match.counts]
    groups = grouped(counting, lambda played_match: played_match.match.group)
    if len(groups) > 1:
        groups[ALL] = counting
    standings = tuple(GroupRanks.of(group, matches) for group, matches in groups.items())
    return League(tuple(played), standings, _about(workbench, played), own)


def _play(
    workbench: Workbench,
    match: Match,
    table: ComputedTable | None,
    own: str | None,
    chosen: Chosen,
    seeds: tuple[int, ...],
) -> PlayedMatch:
    """A match with the numbers that there are.

    Args:
        own: the reader's method.
        chosen: by setting and method, the setting and the method whose runs count instead.
    """

    def searched(place: tuple[str, str], quantity: Quantity) -> Result:
        setting, method = chosen.get(place, place)
        runs = {method: [RunKey(setting, method, seed) for seed in seeds]}
        return result_of(workbench, setting, runs, quantity, match.summary)

    entries, left_out = [], {}
    place = match.setting, match.method(own or "")
    if own:
        entries.append(Entry.of(own, searched(place, match.quantity), seeds))
    compact = workbench.experiments[match.system].compact[match.item]
    cells = table.cells[match.row * len(compact.columns) :] if table else ()
    for column, cell in zip(compact.columns, cells, strict=False):
        result = cell.result
        if result.methods == (CENTRAL,):
            continue
        asked = result.setting, result.methods[0]
        its = asked if asked == place else chosen.get(asked, asked)
        if own and len(result.methods) == 1 and its == chosen.get(place, place):
            continue  # the same runs
        metric = compact.metric_of(compact.rows[match.row], column)
        why = metric.quantity.selection
        if not why and len(result.methods) > 1:
            why = "the best of several methods is chosen by tests"
        why = why or unshared(workbench, match, result)
        if not why and metric.quantity.words != match.quantity.words:
            why = f"its column has another number, {metric.quantity.words}"
        if why:
            left_out[column.label] = why
            continue
        is_baseline = result.methods == (match.method(BASELINE),)
        in_use = {entry.name for entry in entries} | (set() if is_baseline else {BASELINE_LABEL})
        label = column.label
        names = [BASELINE_LABEL] if is_baseline else []
        names += [label, f"{label} ({result.methods[0]})", f"{label} of {match.item}"]
        if its != asked:
            result = searched(asked, metric.quantity)
        name = next(name for name in names if name not in in_use)
        entries.append(replace(Entry.of(name, result, seeds), column=label))
    return PlayedMatch(match, seeds, tuple(entries), own, left_out)


def _about(workbench: Workbench, played: Sequence[PlayedMatch]) -> str:
    """Commit, data sets and seeds in a line."""
    code = checkout.of_package()
    commit = f"commit {code['commit'][:10]}" if code else "a version without a commit"
    if code and code["dirty"]:
        commit += " with uncommitted changes"
    data = sorted({workbench.setting(each.match.setting).dataset for each in played})
    seeds = sorted({seed for each in played for seed in each.seeds})
    words = "seed" if len(seeds) == 1 else "seeds"
    return f"{commit}; data sets {', '.join(data)}; {words} {', '.join(map(str, seeds))}"
