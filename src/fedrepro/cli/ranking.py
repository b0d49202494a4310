"""The work of ``fedrepro rank``: cost, runs, which Snakemake makes, and what is printed."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fedrepro.cli.arguments import require_at_least
from fedrepro.cli.console import print_rows, printed_as_json
from fedrepro.config.loading import load
from fedrepro.config.searches import Searched
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.cost.estimate import CellTarget, CostEstimate, cost_line
from fedrepro.cost.model import CostModel
from fedrepro.report.cells import tables
from fedrepro.report.cells.league import (
    BASELINE,
    BASELINE_LABEL,
    Choice,
    Chosen,
    Entry,
    League,
    Match,
    PlayedMatch,
    league_of,
)
from fedrepro.report.pages.league import PAGE, as_json, in_words, write_league
from fedrepro.report.pages.templates import SITE, Renderer, without_dead_links
from fedrepro.report.papers import published
from fedrepro.report.papers.leads import PairedTest
from fedrepro.run.results import read_run
from fedrepro.support.cores import usable_cores
from fedrepro.support.errors import COMMAND_LINE, Interrupted, bad_argument, listed, refusal
from fedrepro.support.files import sync_disk
from fedrepro.support.grouping import grouped
from fedrepro.support.interruption import asked_to_stop
from fedrepro.support.printing import counted, sentence_case, with_interval, with_spread
from fedrepro.support.scoped_cache import read_once
from fedrepro.support.terminal import say
from fedrepro.support.typed_yaml import read_value, validate
from fedrepro.workflow.league import (
    Search,
    choose,
    chosen_matches,
    is_there,
    obstacle,
    refuse_unknown,
    searches_of,
    suffix_of,
)

SEARCHES = ("own", "each", "alike")
SHOWN = 3  # rows named beside a reason that they share
POLL = 0.1  # seconds between looks at Snakemake


@dataclass(frozen=True)
class Request:
    """What the command line asks for, in the matches in which the method can play.

    Attributes:
        unable: by title, the other matches, and why.
    """

    bench: Workbench
    method: str
    matches: Sequence[Match]
    unable: Mapping[str, str]
    searches: Sequence[Search]
    search: str
    seeds: int | None
    cores: int

    @property
    def candidates(self) -> dict[RunKey, bool]:
        """The runs of searches that are not there yet, and whether their set is judged."""
        runs = {run: each.match.judged for each in self.searches for run in each.runs}
        return {run: asks for run, asks in runs.items() if not is_there(self.bench, run, asks)}

    def runs(self, chosen: Chosen) -> dict[RunKey, bool]:
        """The runs that count and are not there yet, and whether their synthetic set is judged.

        Args:
            chosen: by setting and method, what a search chose.
        """
        runs: dict[RunKey, bool] = {}
        for match in self.matches:
            own = match.setting, match.method(self.method)
            rivals = (
                (trial.match.setting, trial.method) for trial in self.searches if trial.candidates
            )
            for place in dict.fromkeys((own, *(rival for rival in rivals if rival[0] == own[0]))):
                for seed in match.seeds[: self.seeds]:
                    run = RunKey(*chosen.get(place, place), seed)
                    runs[run] = runs.get(run, False) or match.judged
        return {run: asks for run, asks in runs.items() if not is_there(self.bench, run, asks)}

    @property
    def costliest(self) -> Chosen:
        """By setting and method, what a search may choose that leaves the most runs to train.

        A search of which no candidate gets a score chooses what is there without it.
        """
        chosen: dict[tuple[str, str], tuple[str, str]] = {}
        for search in self.searches:
            setting, judged = search.match.setting, search.match.judged
            of_it = [
                match.seeds[: self.seeds] for match in self.matches if match.setting == setting
            ]
            seeds, most = {seed for some in of_it for seed in some}, -1
            places = [
                (setting + suffix_of(self.bench, setting, suffix), name)
                for suffix, name in search.candidates
            ]
            for place in (*places, (setting, search.method)):
                runs = (RunKey(*place, seed) for seed in seeds)
                missing = sum(not is_there(self.bench, run, judged) for run in runs)
                if missing > most:
                    chosen[setting, search.method], most = place, missing
                if missing == len(seeds):
                    break
        return chosen


def rank(arguments: argparse.Namespace) -> int:
    """Print the cost, train, and print and write the league. Returns 1 if a run failed."""
    request = _requested(arguments)
    bench, candidates = request.bench, request.candidates
    # Before a search has ended its choice is not known.
    choices = [] if candidates else _choices(request)
    chosen = request.costliest if candidates else _chosen(request, choices)
    runs = {**candidates, **request.runs(chosen)}
    lines = _cost_lines(bench, [*runs], request.cores)
    if arguments.plan:
        content = {
            "lines": lines,
            "at_most": bool(candidates),
            "cannot_run": dict(request.unable),
        }
        if printed_as_json(arguments, content):
            return 0
        cells = [
            (line["name"], str(line["runs"] - line["done"]), f"{60 * line['hours']:.1f}")
            for line in lines[:-1]
        ]
        print_rows(("setting", "runs", "CPU_minutes"), cells)
    _say_cost(lines[-1], request.cores, at_most=bool(candidates))
    _say_unable(request.unable)
    if request.search == "own":
        _say_without_baseline(request)
    if arguments.plan:
        return 0
    failed = train(bench, candidates, request.cores)
    if candidates:
        choices = _choices(request)
    chosen = _chosen(request, choices)
    failed += train(bench, request.runs(chosen), request.cores)
    league = _league(request, chosen, choices)
    if printed_as_json(arguments, as_json(league)):
        return 1 if failed else 0
    own = str(league.own)
    header = ("setting", own, BASELINE_LABEL, "best other", "lead (95 %)", "rank", "seeds")
    print_rows(header, [_row(league, played) for played in league.played])
    for line in _remarks(league):
        print(line)
    return 1 if failed else 0


def _requested(arguments: argparse.Namespace) -> Request:
    """Check the command line.

    Raises:
        UserError: for a wrong value, and if the method can play in no match.
    """
    bench, name = load(), arguments.method
    matches = chosen_matches(bench, arguments.on)
    refuse_unknown(bench, matches, name)
    most = max(len(match.seeds) for match in matches)
    if arguments.seeds is not None and not 1 <= arguments.seeds <= most:
        wanted = f"a whole number from 1 to {most}: other methods have no more"
        raise bad_argument("--seeds", arguments.seeds, wanted)
    if arguments.cores is not None:
        require_at_least("--cores", arguments.cores, 1)
    unable = {match.title: why for match in matches if (why := obstacle(bench, match, name))}
    able = [match for match in matches if match.title not in unable]
    if not able:
        title, why = next(iter(unable.items()))
        why = f"can't run in any setting of the league: {title}: {why}"
        raise refusal(f"method {name}", why)
    grid, search = _grid(name, arguments.grid) if arguments.grid else None, arguments.search
    if search not in SEARCHES:
        raise bad_argument("--search", search, f"one of {', '.join(SEARCHES)}", SEARCHES)
    if search != "own" and not grid:
        raise bad_argument(
            "--search", search, "own without --grid: no other method has what to try"
        )
    searches = searches_of(bench, able, name, grid, search != "own") if grid else []
    cores = arguments.cores or max(1, usable_cores() // bench.config.threads)
    return Request(bench, name, able, unable, searches, search, arguments.seeds, cores)


def _grid(method: str, texts: Sequence[str]) -> Searched:
    """The values of ``--grid``."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not key or not equals or not values or key in grid:
            raise bad_argument("--grid", text, "NAME=VALUE,VALUE, each name once")
        option = f"--grid {key}"
        grid[key] = [read_value(value, COMMAND_LINE, option) for value in values.split(",")]
    return validate(Searched, {"method": method, "grid": grid}, COMMAND_LINE)


def _choices(request: Request) -> list[Choice]:
    return choose(request.bench, request.searches, request.search == "alike")


def _chosen(request: Request, choices: Sequence[Choice]) -> dict[tuple[str, str], tuple[str, str]]:
    """By setting and method, the setting and the method whose runs count instead."""
    pairs = zip(request.searches, choices, strict=False)
    return {
        (search.match.setting, search.method): (choice.setting + choice.suffix, choice.method)
        for search, choice in pairs
    }


def _cost_lines(bench: Workbench, runs: Sequence[RunKey], cores: int) -> list[dict[str, Any]]:
    """The costs of runs by setting, of what they start from, and of all, as JSON values."""
    target = CellTarget("", "", "compact", tuple(runs))
    estimate = CostEstimate(CostModel(bench, [target]))
    costs = estimate.costs
    settings = grouped(
        costs.values(), lambda cost: cost.run.setting if cost.run in runs else "inputs"
    )
    wall = estimate.wall_seconds(costs.values(), cores)
    lines = [cost_line("setting", name, group, 0.0) for name, group in settings.items()]
    lines.append(cost_line("all", "all", costs.values(), wall))
    return lines


def _say_cost(total: Mapping[str, Any], cores: int, at_most: bool = False) -> None:
    left = total["runs"] - total["done"]
    if not left:
        say("Nothing to train: all runs are there.")
        return
    unknown = f"; {total['unknown']} of them at unknown cost" if total["unknown"] else ""
    hours, wall = span(total["hours"], "CPU "), span(total["wall"])
    most = "; at most, as runs of what the search chooses may be there" if at_most else ""
    cost = f"{hours}, {wall} with {cores} at a time{unknown}{most}"
    say(f"{counted(left, 'run')} to train: {cost}.")


def span(hours: float, of: str = "") -> str:
    """A time, such as ``7.2 minutes`` and ``2.5 CPU hours``."""
    return f"{60 * hours:.1f} {of}minutes" if hours < 1 else f"{hours:.1f} {of}hours"


def _say_unable(unable: Mapping[str, str]) -> None:
    for why, titles in grouped(unable, unable.__getitem__).items():
        more = len(titles) - SHOWN
        shown = "; ".join(titles[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        say(f"can't run in {shown}: {why}")


def _say_without_baseline(request: Request) -> None:
    """Name the settings in which FedAvg lacks seeds: no leads there, and few ranks."""
    settings: dict[str, str] = {}
    for match in request.matches:
        if match.judged:  # FedAvg makes no synthetic set
            continue
        seeds = match.seeds[: request.seeds]
        runs = [RunKey(match.setting, match.method(BASELINE), seed) for seed in seeds]
        there = sum(is_there(request.bench, run) for run in runs)
        if there < len(seeds):
            of = f"{there} of {counted(len(seeds), 'seed')}"
            settings.setdefault(match.setting, f"{match.setting} ({of})")
    if settings:
        say(
            f"without results of {BASELINE_LABEL} there is no lead in "
            f"{listed([*settings.values()])}; `fedrepro rank {BASELINE}` trains what is missing"
        )


def train(bench: Workbench, runs: Mapping[RunKey, bool], cores: int) -> int:
    """Let Snakemake make runs and what they need. Returns the number of runs that failed.

    Args:
        runs: and whether their synthetic set is judged.

    Raises:
        UserError: if Snakemake fails before any of the runs begins.
        Interrupted: after a signal, once Snakemake has ended.
    """
    if not runs:
        return 0
    files = [
        str(run.analysis("quality") if judged else run.manifest) for run, judged in runs.items()
    ]
    status = _snakemake(files, cores * bench.config.threads)
    missing = [run for run, judged in runs.items() if status and not is_there(bench, run, judged)]
    records = [read_run(bench.root, run) for run in missing]
    if len(missing) == len(runs) and all(record.state == "not run" for record in records):
        why = f"ended with status {status}; see above: what the runs need could not be made"
        raise refusal("snakemake", why, code="")
    for record in records:
        why = record.why.removeprefix("failed: ") or "see its log"
        say(f"{record.run.words}: failed: {why}")
    return len(missing)


def _snakemake(files: Sequence[str], cores: int) -> int:
    """Make files, whether or not some fail. Signals go on to Snakemake and its jobs."""
    here = [sys.executable, "-P", "-m", "snakemake"]
    command = [*here, "--cores", str(cores), "--keep-going", *files]
    passed_on = False
    with asked_to_stop() as stop:
        called = subprocess.Popen(command, stdout=2, process_group=0)  # stdout is the result's
        while called.poll() is None:
            if stop.signal_number and not passed_on:
                passed_on = True
                with suppress(ProcessLookupError):
                    os.killpg(called.pid, stop.signal_number)
            with suppress(subprocess.TimeoutExpired):
                called.wait(POLL)
    if stop.signal_number:
        raise Interrupted(
            "interrupted: finished runs and checkpoints are kept; run the same command again",
            stop.signal_number,
        )
    return called.returncode


def _league(request: Request, chosen: Chosen, choices: Sequence[Choice]) -> League:
    """Compute the league, and write its page.

    A match without any finished run of the method counts as one in which it cannot run.
    """
    bench, unable = request.bench, {**request.unable}
    for match in request.matches:
        place = match.setting, match.method(request.method)
        keys = (RunKey(*chosen.get(place, place), n) for n in match.seeds[: request.seeds])
        records = [read_run(bench.root, run) for run in keys]
        if all(record.state == "failed" for record in records):
            unable[match.title] = records[0].why.removeprefix("failed: ")
    papers = published.load(bench.root)
    items = dict.fromkeys((match.system, match.item) for match in request.matches)
    with read_once():
        computed = {
            item: tables.compute(bench, bench.table(*item, "compact"), papers) for item in items
        }
    league = league_of(
        bench,
        computed,
        matches=[match for match in request.matches if match.title not in unable],
        own=request.method,
        methods=chosen,
        seeds=request.seeds,
    )
    league = replace(league, unable=unable, searched=tuple(choices), search=request.search)
    renderer = Renderer(bench.root, league=True)
    renderer.write_assets()
    # The other pages are there once the workflow has made them.
    without_dead_links(bench.root, write_league(renderer, bench, league, papers.references))
    sync_disk()
    return league


def _row(league: League, played: PlayedMatch) -> tuple[str, ...]:
    """A line about the own method in a match."""
    best, rank = played.best_other, played.ranks.get(str(league.own))
    quantity = played.match.quantity
    decimals = played.decimals
    return (
        f"{played.match.title}{'' if quantity.higher_is_better else ' (lower is better)'}",
        _mean(played.entry(league.own), decimals),
        _mean(played.baseline, decimals),
        f"{_mean(best, decimals)} {best.name}" if best else "",
        _in_words(played.lead(league.own), decimals),
        f"{rank:g} of {len(played.ranks)}" if rank else "",
        str(len(played.seeds)),
    )


def _mean(entry: Entry | None, decimals: int) -> str:
    """A mean with the half-width of its 95 % interval, as on pages."""
    mean = entry.estimate if entry else None
    if mean is None:
        return entry.why if entry else ""
    return with_spread(mean.mean, mean.half_width, decimals)


def _in_words(lead: PairedTest | None, decimals: int) -> str:
    """A lead, such as ``+1.20 [+0.40, +2.00]``; "" without one."""
    return with_interval(lead.lead, lead.interval, f"{{:+.{decimals}f}}".format) if lead else ""


def _remarks(league: League) -> Iterator[str]:
    """The lines below the table."""
    for standing in league.standings:
        if standing.mean_ranks:
            # Not by commas, which names have: "Per-FedAvg, HF".
            items = standing.mean_ranks.means.items()
            means = "; ".join(f"{name} {mean:.2f}" for name, mean in items)
            yield f"Mean ranks, {standing.group}: {means}."
        yield f"{standing.group}: {in_words(standing, league.own)}."
    if alone := [played.match.title for played in league.played if not played.ranks]:
        yield f"No rank in {'; '.join(alone)}: no two methods have a result with all seeds."
    if league.preliminary:
        yield f"{sentence_case(league.preliminary)}: a rank in the league needs at least five."
    for choice in league.searched:
        who = choice.setting if league.search == "own" else f"{choice.setting} {choice.method}"
        if choice.chosen is None:
            yield f"{who}: no search: {choice.why}."
        else:
            values = ", ".join(f"{key}={value}" for key, value in choice.chosen.items())
            of = f"{choice.tried} of {choice.candidates} candidates scored on validation samples"
            best = "the best for all methods together" if league.search == "alike" else "the best"
            yield f"{who}: {values}, {best} of {of}."
    for title, why in league.unable.items():
        yield f"Can't run in {title}: {why}"
    for name, why in league.left_out:
        yield f"Left out: {name}: {why}."
    same = "" if league.search == "own" else ", and tried the same values of the setting"
    yield f"Built-in methods have their papers' hyperparameters{same}; no choice used test samples."
    yield f"Made with {league.about}."
    yield str(SITE / PAGE)
