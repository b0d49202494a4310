"""``fedrepro rank``: rank your own method in the league of scale compact."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedrepro.cli.console import print_rows
from fedrepro.cli.rank_runs import Cost, Wanted, cost_of, train
from fedrepro.config.loading import load
from fedrepro.config.searches import Searched
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.support.cores import usable_cores
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.printing import counted
from fedrepro.support.terminal import say
from fedrepro.support.typed_yaml import read_value, validate

if TYPE_CHECKING:
    from fedrepro.report.cells.league import Choice, League
    from fedrepro.report.cells.matches import Match
    from fedrepro.workflow.league import Search

LINE = "the command line"
SHOWN = 3  # rows named beside a reason that they share


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "rank",
        help="rank your own method beside all others in the small settings of scale compact",
        description="Train a method in the settings of the league, and rank it beside the methods "
        "whose results are there. Only this method trains. The cost is printed first. Finished "
        "runs are kept, so the same command resumes. Writes reports/site/league.html, .csv and "
        ".tex.",
        epilog="Example: fedrepro rank ima+my_method --on label-skew --grid mu=0.01,0.1,1",
    )
    parser.add_argument("method", metavar="METHOD", help="such as my_method or ima+my_method")
    parser.add_argument("--on", metavar="GROUP", help="one group of settings (default: all)")
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="values of a hyperparameter to try on clients' validation samples; may be repeated, "
        "then all combinations are tried",
    )
    parser.add_argument("--seeds", type=int, help="how many seeds (default: those of the scale)")
    parser.add_argument("--cores", type=int, help="how many runs at a time (default: all cores)")
    parser.add_argument("--plan", action="store_true", help="print the cost and stop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=handle)


@dataclass(frozen=True)
class Chosen:
    """What searches chose.

    Attributes:
        bench: in which the chosen variants are known.
        methods: by setting and method, the variant to run instead.
    """

    bench: Workbench
    methods: Mapping[tuple[str, str], str] = field(default_factory=dict)
    choices: "tuple[Choice, ...]" = ()

    def method(self, match: "Match", name: str) -> str:
        """The method whose runs count for ``name`` in a match."""
        own = match.method(name)
        return self.methods.get((match.setting, own), own)


@dataclass(frozen=True)
class Request:
    """What the command line asks for, in the matches in which the method can play."""

    bench: Workbench
    method: str
    matches: "Sequence[Match]"
    unable: Mapping[str, str]
    searches: "Sequence[Search]"
    seeds: int | None
    cores: int

    def wanted(self, chosen: Chosen) -> list[Wanted]:
        """The runs that count and are not there yet, seed by seed."""
        from fedrepro.workflow.league import is_there

        found: dict[RunKey, bool] = {}
        most = max(len(match.seeds) for match in self.matches)
        for place in range(min(most, self.seeds or most)):
            for match in self.matches:
                if place < len(match.seeds):
                    name = chosen.method(match, self.method)
                    run = RunKey(match.setting, name, match.seeds[place])
                    found[run] = found.get(run, False) or match.judged
        return [
            Wanted(run, judged)
            for run, judged in found.items()
            if not is_there(chosen.bench, run, judged)
        ]

    @property
    def searched(self) -> list[Wanted]:
        """The runs of candidates that are not there yet."""
        from fedrepro.workflow.league import is_there

        runs = [run for search in self.searches for run in search.runs]
        return [Wanted(run) for run in runs if not is_there(self.bench, run)]


def handle(arguments: argparse.Namespace) -> int:
    request = _requested(arguments)
    searched = request.searched
    # Before a search has ended its choice is not known: a run with the defaults costs as much.
    chosen = Chosen(request.bench) if searched else _choose(request)
    wanted = [*searched, *request.wanted(chosen)]
    cost = cost_of(request.bench, [each.run for each in wanted], request.cores)
    if arguments.plan:
        _print_plan(request, cost, as_json=arguments.json)
        return 0
    say(cost.in_words(request.cores))
    _say_unable(request)
    _say_alone(request)
    failed = 0
    if searched:
        failed += train(request.bench, searched, request.cores, cost.seconds, "search")
        chosen = _choose(request)
    failed += train(chosen.bench, request.wanted(chosen), request.cores, cost.seconds, "run")
    _show(_league(request, chosen), arguments)
    return 1 if failed else 0


def _print_plan(request: Request, cost: Cost, *, as_json: bool) -> None:
    if as_json:
        found = {"lines": cost.lines, "cannot_run": dict(request.unable)}
        print(json.dumps(found, indent=2))
        return
    cost.print()
    say(cost.in_words(request.cores))
    _say_unable(request)
    _say_alone(request)


def _say_unable(request: Request) -> None:
    reasons: dict[str, list[str]] = {}
    for title, why in request.unable.items():
        reasons.setdefault(why, []).append(title)
    for why, titles in reasons.items():
        more = len(titles) - SHOWN
        shown = "; ".join(titles[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        say(f"can't run in {shown}: {why}")


def _say_alone(request: Request) -> None:
    """Name the settings in which FedAvg lacks seeds: no leads there, and few ranks."""
    from fedrepro.report.cells.matches import BASELINE, BASELINE_LABEL
    from fedrepro.workflow.league import is_there

    settings: dict[str, str] = {}
    for match in request.matches:
        if match.setting in settings or match.judged:  # FedAvg makes no synthetic set
            continue
        seeds = match.seeds[: request.seeds]
        runs = [RunKey(match.setting, match.method(BASELINE), seed) for seed in seeds]
        there = sum(is_there(request.bench, run) for run in runs)
        if there < len(seeds):
            settings[match.setting] = f"{match.setting} ({there} of {counted(len(seeds), 'seed')})"
    if settings:
        where = ", ".join(settings.values())
        say(
            f"without results of {BASELINE_LABEL} there is no lead in {where}; "
            "`make compact` computes what is missing of the others"
        )


def _choose(request: Request) -> Chosen:
    from fedrepro.workflow.league import choose

    bench, methods, choices = request.bench, {}, []
    for search in request.searches:
        bench, name, choice = choose(bench, search)
        methods[search.match.setting, search.method] = name
        choices.append(choice)
    return Chosen(bench, methods, tuple(choices))


def _requested(arguments: argparse.Namespace) -> Request:
    """Check the command line.

    Raises:
        UserError: for a wrong value, and if the method can play in no match.
    """
    from fedrepro.workflow import league

    bench, name = load(), arguments.method
    matches = league.chosen_matches(bench, arguments.on)
    league.refuse_unknown(bench, name)
    most = max(len(match.seeds) for match in matches)
    if arguments.seeds is not None and not 1 <= arguments.seeds <= most:
        wanted = f"a whole number from 1 to {most}: other methods have no more"
        raise bad_value(LINE, "--seeds", arguments.seeds, wanted)
    if arguments.cores is not None and arguments.cores < 1:
        raise bad_value(LINE, "--cores", arguments.cores, "a whole number of at least 1")
    unable = {match.title: why for match in matches if (why := league.obstacle(bench, match, name))}
    able = [match for match in matches if match.title not in unable]
    if not able:
        title, why = next(iter(unable.items()))
        raise UserError(f"method {name} can't run in any setting of the league: {title}: {why}")
    searches: list[Search] = []
    if arguments.grid:
        bench, searches = league.with_searches(bench, able, name, _grid(name, arguments.grid))
    cores = arguments.cores or max(1, usable_cores() // bench.config.threads)
    return Request(bench, name, able, unable, searches, arguments.seeds, cores)


def _grid(method: str, texts: Sequence[str]) -> Searched:
    """The values of ``--grid``."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not key or not equals or not values or key in grid:
            raise bad_value(LINE, "--grid", text, "NAME=VALUE,VALUE, each name once")
        grid[key] = [read_value(each, LINE, f"--grid {key}") for each in values.split(",")]
    return validate(Searched, {"method": method, "grid": grid}, LINE)


def _league(request: Request, chosen: Chosen) -> "League":
    """Compute the league, and write its page.

    A match without any finished run of the method counts as one in which it cannot run.
    """
    from fedrepro.report.cells import tables
    from fedrepro.report.cells.league import league_of
    from fedrepro.report.pages.league_files import write_league
    from fedrepro.report.pages.standalone import without_dead_links
    from fedrepro.report.pages.templates import Renderer
    from fedrepro.report.papers import published
    from fedrepro.run.results import read_run
    from fedrepro.support.files import sync_disk

    bench = chosen.bench
    papers, unable = published.load(bench.root), {**request.unable}
    for match in request.matches:
        name = chosen.method(match, request.method)
        seeds = match.seeds[: request.seeds]
        found = [read_run(bench.root, RunKey(match.setting, name, seed)) for seed in seeds]
        if all(record.state == "failed" for record in found):
            unable[match.title] = found[0].why.removeprefix("failed: ")
    items = dict.fromkeys((match.system, match.item) for match in request.matches)
    with tables.computed_once():
        computed = {
            item: tables.compute(bench, bench.table(*item, "compact"), papers) for item in items
        }
    league = league_of(
        bench,
        computed,
        matches=request.matches,
        own=request.method,
        methods=chosen.methods,
        seeds=request.seeds,
        unable=unable,
        searched=chosen.choices,
    )
    renderer = Renderer(bench.root)
    renderer.write_assets()
    # The other pages are there once the workflow has made them.
    without_dead_links(bench.root, write_league(renderer, league))
    sync_disk()
    return league


def _show(league: "League", arguments: argparse.Namespace) -> None:
    from fedrepro.cli.ranking import facts, header, remarks
    from fedrepro.report.pages.league_files import as_json

    if arguments.json:
        print(json.dumps(as_json(league), indent=2))
        return
    print_rows(header(league), [facts(league, each) for each in league.played])
    for line in remarks(league):
        print(line)
