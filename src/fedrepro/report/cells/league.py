"""The league: mean ranks of methods over matches, and their provenance (docs/league.md)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedrepro.config.values import Scalar
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.matches import Match, Played, matches_of, play
from fedrepro.report.papers.leads import LOOKS
from fedrepro.report.papers.ranks import MeanRanks, mean_ranks
from fedrepro.support import checkout
from fedrepro.support.printing import counted


@dataclass(frozen=True)
class Standing:
    """The mean ranks of a group of matches; None with fewer than two methods in all of them."""

    group: str
    matches: tuple[Played, ...]
    found: MeanRanks | None


ALL = "all groups"


def standings(played: Iterable[Played]) -> list[Standing]:
    """Mean ranks by group, then over all groups if there are several.

    With an own method, its matches count; otherwise those in which two methods have a number.
    """
    counted = [
        each
        for each in played
        if len(each.scores) > 1 and (each.own is None or each.own in each.scores)
    ]
    groups: dict[str, list[Played]] = {}
    for each in counted:
        groups.setdefault(each.match.group, []).append(each)
    found = [_standing(name, group) for name, group in groups.items()]
    return [*found, _standing(ALL, counted)] if len(groups) > 1 else found


def _standing(group: str, matches: Collection[Played]) -> Standing:
    settings: dict[str, list[dict[str, float]]] = {}
    for each in matches:
        settings.setdefault(each.match.setting, []).append(each.scores)
    return Standing(group, tuple(matches), mean_ranks([*settings.values()]))


@dataclass(frozen=True)
class Choice:
    """The search of the own method's hyperparameters in a setting.

    Attributes:
        tried: the number of candidates that have a validation score.
        chosen: the values of the best; None if there was no search.
        score: its score on clients' validation samples, in printed units.
        why: why there was no search, or "".
    """

    setting: str
    candidates: int
    tried: int
    chosen: Mapping[str, Scalar] | None
    score: float | None
    why: str = ""


@dataclass(frozen=True)
class League:
    """All that the page shows.

    Attributes:
        own: the name of the reader's method, or None.
        unable: matches in which it cannot run, and why.
        about: commit, data sets and seeds, in words.
    """

    played: tuple[Played, ...]
    standings: tuple[Standing, ...]
    about: str
    own: str | None = None
    unable: Mapping[str, str] | None = None
    searched: tuple[Choice, ...] = ()

    @property
    def least_seeds(self) -> int:
        """Of the matches with a rank, the least number of seeds; 0 without any."""
        return min((len(each.seeds) for each in self.ranked), default=0)

    @property
    def preliminary(self) -> str:
        """A warning if there are too few seeds; or ""."""
        few = 0 < self.least_seeds < LOOKS[0]
        return f"preliminary: {counted(self.least_seeds, 'seed')}" if few else ""

    @property
    def ranked(self) -> list[Played]:
        """The matches that the standings count."""
        return [match for each in self.standings if each.group != ALL for match in each.matches]


def league_of(
    workbench: Workbench,
    tables: Mapping[tuple[str, str], ComputedTable],
    *,
    matches: Iterable[Match] | None = None,
    own: str | None = None,
    methods: Mapping[tuple[str, str], str] | None = None,
    seeds: int | None = None,
    unable: Mapping[str, str] | None = None,
    searched: Sequence[Choice] = (),
) -> League:
    """The league from the numbers that there are.

    Args:
        tables: the computed compact tables.
        matches: by default all.
        own: the reader's method.
        methods: by setting and method, the variant whose runs count instead.
        seeds: how many of the first seeds to compare; by default all.
        unable: by title, the matches in which ``own`` cannot run, and why.

    Raises:
        UserError: if files of runs are damaged.
    """
    played = []
    for match in matches_of(workbench) if matches is None else matches:
        if own and match.title in (unable or {}):
            continue
        table = tables.get((match.system, match.item))
        runs = None
        if own:
            method = match.method(own)
            runs = own, (methods or {}).get((match.setting, method), method)
        played.append(play(workbench, match, table, runs, match.seeds[:seeds]))
    return League(
        tuple(played),
        tuple(standings(played)),
        _about(workbench, played),
        own,
        unable,
        tuple(searched),
    )


def _about(workbench: Workbench, played: Sequence[Played]) -> str:
    """Commit, data sets and seeds in a line."""
    code = checkout.of_package()
    commit = f"commit {code['commit'][:10]}" if code else "a version without a commit"
    if code and code["dirty"]:
        commit += " with uncommitted changes"
    data = sorted({workbench.setting(each.match.setting).dataset for each in played})
    seeds = sorted({seed for each in played for seed in each.seeds})
    words = "seed" if len(seeds) == 1 else "seeds"
    return f"{commit}; data sets {', '.join(data)}; {words} {', '.join(map(str, seeds))}"
