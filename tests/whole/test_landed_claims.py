"""Every number on the pages of claims and of the league, computed again with pandas.

Which cells a claim compares is read from claims.yaml here; which runs a cell has, with the
project's code. Numbers come from cells.csv and Parquet files, rules from the pages' own words.
"""

import csv
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import special, stats

from fedrepro.cli.claims import print_claims
from fedrepro.config.metrics import RoundsTo
from fedrepro.config.targets import Cell, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import differences
from fedrepro.report.cells.cell import ComputedTable, TableCell, read_table
from fedrepro.report.cells.claims import judge_compact
from fedrepro.report.cells.findings import experiments
from fedrepro.report.cells.insights import looked_at
from fedrepro.report.cells.readings import Readings
from fedrepro.report.cells.search import as_far_as_it_went
from fedrepro.report.cells.search import compute as search_results
from fedrepro.report.pages import claims as one_claim
from fedrepro.report.pages.claims import FORM, claims_page, summary, views_of
from fedrepro.report.pages.templates import environment, software
from fedrepro.report.papers import published
from fedrepro.report.papers.claim import CompactTest, Objection
from fedrepro.report.papers.leads import Word
from support.landed import (
    PAPERS,
    Landed,
    averaged,
    by_method,
    cells_in,
    is_stale,
    landed_bench,
    parts,
    words,
)
from support.places import ROOT

PRINTED_KEYS = ("dataset", "setting", "method", "metric")
# Between three digits and the next a narrow space, of which `words` makes a plain one.
NUMBER = r"[+\N{MINUS SIGN}]?\d+(?:\s\d{3}\b)*(?:\.\d+)?"
LEAD = rf"({NUMBER})(?: \[({NUMBER}), ({NUMBER})\])?"
UNIT = r"(?: (points|rounds|million FLOPs|MB))?"
MARGINS = {"percent": 0.5, "fraction": 0.005}
FIRST_LOOK, LEVEL_OF_LOOKS = 5, 0.0221

Record = Mapping[str, Any]
BySeed = dict[int, float]


@cache
def star(pattern: str, text: str) -> str | None:
    """What ``*`` stands for; "" without one, None if the text does not fit."""
    match = re.fullmatch(re.escape(pattern).replace(r"\*", "(.+)"), text)
    return None if match is None else (match[1] if match.groups() else "")


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def selected(selector: Record, record: Record) -> dict[str, str] | None:
    """What ``*`` stands for by key, if a selector fits."""
    stars = {}
    for key, wanted in selector.items():
        fits = [found for each in listed(wanted) if (found := star(each, record[key])) is not None]
        if not fits:
            return None
        stars[key] = fits[0]
    return stars


def pairs(
    records: Sequence[Record], keys: Iterable[str], left: Record, right: Record
) -> Iterator[tuple[int, int]]:
    """The positions of the cells that a claim compares."""
    keys = tuple(keys)

    def answers(one: Record, other: Record, stars: Mapping[str, str]) -> bool:
        for key in keys:
            wanted = right.get(key)
            if wanted is None:
                fits = other[key] == one[key]
            elif wanted == "others":
                named = selected({key: left[key]}, other) is not None
                fits = not named and not other["reference"]
            else:
                known = {each.replace("*", stars.get(key, "")) for each in listed(wanted)}
                fits = other[key] in known
            if not fits:
                return False
        return True

    for i, one in enumerate(records):
        stars = selected(left, one)
        for j, other in enumerate(records) if stars is not None else ():
            if i != j and answers(one, other, stars):
                yield i, j


def says(text: str, value: float) -> bool:
    """Whether a number is a value to its last digit; a tie may be rounded either way."""
    plain = text.replace("\N{MINUS SIGN}", "-")
    plain = re.sub(r"\s", "", plain)
    last = 10.0 ** int(Decimal(plain).as_tuple().exponent)
    return abs(float(plain) - value) <= 0.5 * last * (1 + 1e-9) + 1e-9


@dataclass(frozen=True)
class Test:
    """Leads by seed: mean, interval and two-sided p; NaN where there is no interval."""

    __test__ = False  # not pytest's

    n: int
    lead: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, leads: Sequence[float], by: float, seeds: int | None = None) -> "Test":
        """Test leads, or so many of the same mean and spread."""
        n, lead = len(leads), float(np.mean(leads))
        if n == 1 or np.ptp(leads) < 1e-9:
            return cls(n, lead, math.nan, math.nan, math.nan)
        std, n = float(np.std(leads, ddof=1)), seeds or n
        error = std / n**0.5
        level = LEVEL_OF_LOOKS if n >= FIRST_LOOK else 0.05
        half = float(special.stdtrit(n - 1, 1 - level / 2)) * error
        p = 2 * float(special.stdtr(n - 1, -abs(lead - by) / error))
        return cls(n, lead, lead - half, lead + half, p)

    def shown(self, found: Sequence[str | None]) -> bool:
        """Whether three texts are lead and interval."""
        bare = found[1] is None and found[2] is None and math.isnan(self.low)
        lead, low, high = found
        return says(str(lead), self.lead) and (
            bare or (says(str(low), self.low) and says(str(high), self.high))
        )


@dataclass(frozen=True)
class Judged:
    """What the rule on the page says of leads.

    Attributes:
        counts: computed, of, alone, against.
        forecast: of the seeds that decide, in words; "" without one.
    """

    word: str
    overall: Test | None
    tests: tuple[Test | None, ...]
    singles: tuple[str, ...]
    ps: tuple[float, ...]
    counts: tuple[int, int, int, int]
    forecast: str


def judge(leads: Sequence[BySeed], by: float, says: str, margin: float | None) -> Judged:
    """Judge leads by what a claim says: ``each``, ``more``, ``average``, ``same`` or ``amount``."""
    of_mean = says in ("more", "average")
    limit = by - (margin or 0.0) if by == 0 and not of_mean else by
    if says == "same":
        limit = -(margin or 0.0)

    def tests_at(seeds: int | None) -> tuple[Test | None, ...]:
        return tuple(Test.of([*each.values()], limit, seeds) if each else None for each in leads)

    computed = [each for each in leads if each]
    complete = len(computed) == len(leads)
    shared = sorted(set.intersection(*({*each} for each in computed))) if computed else []
    means = [float(np.mean([each[seed] for each in computed])) for seed in shared]

    def singles_of(tests: Sequence[Test | None]) -> tuple[list[str], list[float]]:
        raw = [each.p if each else math.nan for each in tests]
        ps, least = [math.nan] * len(raw), 0.0
        order = [i for i in np.argsort(raw, kind="stable") if raw[i] == raw[i]]
        for rank, place in enumerate(order):
            ps[place] = least = max(least, min(1.0, (len(raw) - rank) * raw[place]))
        singles = []
        for test, p in zip(tests, ps, strict=True):
            if test is None:
                singles.append("not computed")
            elif test.high < limit:
                level = LEVEL_OF_LOOKS if test.n >= FIRST_LOOK else 0.05
                singles.append("against" if p <= level else "against by itself")
            elif test.low > by and says != "same":
                singles.append("leads")
            else:
                singles.append("not behind" if test.low > limit else "undecided")
        return singles, ps

    def word_at(seeds: int | None) -> str:
        tests = tests_at(seeds)
        singles, _ = singles_of(tests)
        if not computed:
            return "not computed"
        if says == "same" and margin is None:
            return "undecided"
        if not of_mean and "against" in singles:
            return "does not hold"
        if not complete or not means:
            return "undecided"
        mean = Test.of(means, by, seeds)
        counted = [mean] if of_mean else [mean, *(each for each in tests if each)]
        small = margin is not None and all(
            -margin <= each.low and each.high <= margin for each in counted
        )
        if of_mean:
            if mean.high < by:
                return "does not hold"
            if by == 0 and small:
                return "too small to matter"
            return "holds" if mean.low > by else "undecided"
        if says == "same":
            over = any(each.low > (margin or 0.0) for each in counted[1:])
            return "does not hold" if over else "holds" if small else "undecided"
        if {*singles} == {"leads"}:
            return "holds"
        if mean.low > by and {*singles} <= {"leads", "not behind"}:
            return "not behind, ahead on average"
        if by == 0 and small:
            return "too small to matter"
        return "leads on average" if mean.low > by else "undecided"

    tests, word = tests_at(None), word_at(None)
    singles, ps = singles_of(tests)
    forecast = ""
    spread = len(means) > 1 and np.ptp(means) >= 1e-9
    known = says != "same" or margin is not None
    if word in OPEN and complete and spread and known:
        more = [n for n in range(len(means) + 1, 101) if word_at(n) not in OPEN]
        forecast = str(more[0]) if more else "more than 100"
    overall = Test.of(means, by) if means else None
    counts = len(computed), len(leads), singles.count("leads"), singles.count("against")
    return Judged(word, overall, tests, tuple(singles), tuple(ps), counts, forecast)


OPEN = ("undecided", "leads on average")
SAME = {"percent": 0.05, "fraction": 0.0005}  # no seed separates twins by more


def kept(sides: Sequence[tuple[BySeed, BySeed]], most: float) -> list[int]:
    """The places of comparisons that are no twin of one before."""

    def alike(one: BySeed, other: BySeed) -> bool:
        return (
            len(one) > 1
            and one.keys() == other.keys()
            and max(abs(one[seed] - other[seed]) for seed in one) <= most * (1 + 1e-9)
        )

    places: list[int] = []
    for place, (left, right) in enumerate(sides):
        twin = any(alike(left, sides[i][0]) and alike(right, sides[i][1]) for i in places)
        if not (most and twin):
            places.append(place)
    return places


def check_judged(text: str, judged: Judged, at: object) -> None:
    """The numbers of a verdict's explanation."""
    for pattern, right in (
        (r"\d+ of (\d+) comparisons lead", judged.counts[1]),
        (r"(\d+) of \d+ comparisons lead", judged.counts[2]),
        (r"[,d] (\d+) against(?! by )", judged.counts[3]),
    ):
        for found in re.findall(pattern, text):
            assert int(found) == right, (at, pattern, text)
    assert "comparisons computed" not in text, "the tally says it"
    told = Counter[str]()
    for count, word in re.findall(rf"(\d+) ({'|'.join(TALLIED)})(?=,|$| )", tally_in(text)):
        told[TALLIED[word]] = int(count)
    if told:
        assert {**told} == {"leads": 0, **Counter(judged.singles)}, (at, text)
        assert tally_in(text).startswith(f"{told['leads']} of {len(judged.singles)} "), (at, text)
    found = re.search(r"stay as they are, (more than 100|\d+) seeds decide", text)
    assert (found[1] if found else "") == judged.forecast, (at, judged.forecast, text)


TALLIED = {
    "of": "leads",
    "not behind": "not behind",
    "undecided": "undecided",
    "against by themselves": "against by itself",
    "against": "against",
    "not computed": "not computed",
}


def tally_in(text: str) -> str:
    """What stands beside a claim's word of its single comparisons."""
    counts = "|".join(word for word in TALLIED if word != "of")
    found = re.search(rf": (\d+ of \d+ comparisons lead(?:, \d+ (?:{counts}))*)", text)
    return found[1] if found else ""


def check_singles(
    lines: Iterable[str],
    about: Sequence[tuple[str, ...]],
    judged: Judged,
    unit: str,
    at: object,
) -> int:
    """The lines of single comparisons: their names, leads, p and words."""
    lines = [line.replace("] ,", "],").replace("] :", "]:") for line in lines]
    assert len(lines) == len(about), at
    places = [
        place for place, line in enumerate(judged.tests) if line or len(lines) == len(judged.tests)
    ]
    for line, names, place in zip(lines, about, places, strict=True):
        test, word, p = judged.tests[place], judged.singles[place], judged.ps[place]
        assert all(name in line for name in names), (at, names, line)
        assert line.rsplit(": ", 1)[1] == word, (at, line, word)
        told = re.search(r"Holm's p (\d\.\d{3}|below \.001)", line)
        assert (told is None) == math.isnan(p), (at, line)
        bound = told is not None and told[1].startswith("below")
        assert told is None or (p < 0.001 if bound else says(told[1], p)), (at, line, p)
        if test:
            # Behind the last name, which may be "DaFKD, 1,008".
            lead = re.search(
                rf"(?:: |, ){LEAD}{UNIT}(?:,|:)", line[line.rindex(names[-1]) + len(names[-1]) :]
            )
            assert lead, (at, line)
            assert test.shown(lead.groups()[:3]), (at, line, test)
            assert (lead[4] or "") == unit, (at, line)
    return sum(test is not None for test in judged.tests)


class Papers:
    """The printed cells and claims of all papers, from their files."""

    def __init__(self) -> None:
        self.about = {
            path.parent.name: yaml.safe_load(path.read_text("utf-8"))
            for path in sorted(PAPERS.glob("*/paper.yaml"))
        }
        self.cells = {
            system: [
                each | {"reference": each["method"] in (about.get("references") or [])}
                for each in pd.read_csv(
                    PAPERS / system / "cells.csv", dtype=str, keep_default_na=False
                ).to_dict("records")
            ]
            for system, about in self.about.items()
        }
        self.claims: dict[str, dict[str, Any]] = {
            f"{system}-{claim['name']}": claim | {"system": system}
            for system in self.about
            for claim in yaml.safe_load((PAPERS / system / "claims.yaml").read_text("utf-8"))
        }
        self.compared = {name: self._printed(claim) for name, claim in self.claims.items()}

    def printed(self, claim: Record) -> list[tuple[Record, Record]]:
        """The printed cells that a claim compares."""
        return self.compared[f"{claim['system']}-{claim['name']}"]

    def _printed(self, claim: Record) -> list[tuple[Record, Record]]:
        cells = [
            cell
            for item in dict.fromkeys(each["item"] for each in self.cells[claim["system"]])
            if item in claim["tables"]
            for cell in self.cells[claim["system"]]
            if cell["item"] == item and number(cell["mean"]) is not None
        ]
        found = pairs(cells, PRINTED_KEYS, claim["left"], claim["right"])
        return [(cells[i], cells[j]) for i, j in found]

    def unit(self, claim: Record) -> str:
        """Of leads in printed numbers."""
        metric = self.about[claim["system"]]["metrics"][self.printed(claim)[0][0]["metric"]]
        default = "points" if metric.get("unit") == "percent" else ""
        return str(metric.get("lead_unit", default))

    def kind(self, claim: Record) -> str:
        """The kind of the printed numbers: percent, fraction or another."""
        metrics = self.about[claim["system"]]["metrics"]
        return str(metrics[self.printed(claim)[0][0]["metric"]].get("unit", "own"))

    def margin(self, claim: Record, *, compact: bool = False) -> float | None:
        """How small a lead does not matter."""
        says = claim.get("quantifier", "each")
        if says == "same":
            return claim.get("margin")
        if claim.get("by", 0.0) and not (compact and says == "amount"):
            return None
        metric = self.about[claim["system"]]["metrics"][self.printed(claim)[0][0]["metric"]]
        return claim.get("margin") or MARGINS.get(metric.get("unit", "own"))


@cache
def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def value(cell: Record) -> float:
    found = number(cell["mean"])
    assert found is not None
    return found


def text_of(cell: Record) -> str:
    return cell["mean"] + (f" ({cell['std']})" if cell["std"] else "")


def check_printed(claim: Record, papers: Papers, markup: str, at: object) -> str:
    """The printed numbers' column; its word."""
    text, sign = words(markup), 1 if claim["expect"] == "more" else -1
    by, every = claim.get("by", 0.0), claim.get("quantifier", "each") not in ("more", "average")
    found = papers.printed(claim)
    leads = [sign * (value(one) - value(other)) for one, other in found]
    digits = {
        id(cell): 10.0 ** int(Decimal(cell["mean"]).as_tuple().exponent)
        for pair in found
        for cell in pair
    }
    slack = [(digits[id(one)] + digits[id(other)]) / 2 for one, other in found]

    def good(lead: float, slack: float) -> bool:
        return lead > 0 if by == 0 else lead >= by - slack - 1e-9

    held = [good(*each) for each in zip(leads, slack, strict=True)]
    ties = sum(by == 0 and abs(lead) < 1e-9 for lead in leads)
    counts = re.search(r"(\d+) of (\d+) comparisons", text)
    assert counts, (at, text)
    assert (int(counts[1]), int(counts[2])) == (sum(held), len(held)), (at, text)
    assert (f"{ties} equal as printed" in text) == (ties > 0), (at, text)
    mean = re.search(rf"mean lead ({NUMBER}){UNIT}", text)
    assert mean and says(mean[1], float(np.mean(leads))), (at, text, np.mean(leads))
    assert (mean[2] or "") == papers.unit(claim), (at, text)
    lines = parts(markup, "li").values()
    against = [pair for pair, good_one in zip(found, held, strict=True) if not good_one]
    assert len(lines) == len(against), at
    told = " ".join(map(words, lines))
    for one, other in against:
        assert f"{one['method']} {text_of(one)}, {other['method']} {text_of(other)}" in told, at
    spread = papers.about[claim["system"]]["spread"]
    beyond = None
    if spread["over"] == "seeds" and all(number(cell["std"]) for pair in found for cell in pair):
        single = [
            is_beyond([pair], [lead], by, spread) for pair, lead in zip(found, leads, strict=True)
        ]
        beyond = sum(single)
        clear = beyond == len(found) if every else is_beyond(found, leads, by, spread)
    told_beyond = re.search(r"(\d+) beyond the printed spread", text)
    assert (int(told_beyond[1]) if told_beyond else None) == beyond, (at, text)
    if (
        sum(held) < len(held) - ties
        if every
        else not good(float(np.mean(leads)), float(np.mean(slack)))
    ):
        return "does not support"
    if every and ties:
        return "supports but for ties"
    return "supports" if beyond is None or clear else "supports within the spread"


def is_beyond(
    found: Sequence[tuple[Record, Record]], leads: Sequence[float], by: float, spread: Record
) -> bool:
    """Whether a mean lead is beyond what Welch's t allows."""
    n = spread["seeds"]
    shares: dict[int, float] = defaultdict(float)
    variance = {}
    for pair in found:
        for cell, sign in zip(pair, (1, -1), strict=True):
            shares[id(cell)] += sign / len(found)
            unbiased = n / (n - 1) if spread.get("ddof", 1) == 0 else 1.0
            variance[id(cell)] = float(cell["std"]) ** 2 * unbiased / n
    errors = [share**2 * variance[name] for name, share in shares.items() if share]
    degrees = sum(errors) ** 2 * (n - 1) / sum(each**2 for each in errors)
    return float(np.mean(leads)) - by > stats.t.ppf(0.975, degrees) * sum(errors) ** 0.5


def rounds_of(target: TableTarget, cell: Cell, methods: Sequence[str], last: int) -> BySeed:
    """By seed the rounds of the quickest method; all of them where it never arrives."""
    numbers = {method: averaged(target, cell, method) for method in methods}
    arriving = [method for method in methods if numbers[method]] or [*methods][:1]
    best = min(arriving, key=lambda name: float(np.mean([*numbers[name].values()] or [last])))
    runs = {seed: Landed(cell.setting, best, seed) for seed in cell.seeds}
    return {
        seed: numbers[best].get(seed, float(last))
        for seed, run in runs.items()
        if run.exists and not (run.alone and is_stale(cell.setting, best, seed))
    }


def values_of(target: TableTarget, cell: Cell, shown: TableCell, last: int | None) -> BySeed:
    """The numbers of a cell's chosen method, of today's code only.

    Args:
        last: the number of a finished run that never reached a target.
    """
    if cell.rivals and last is not None:
        own, rival = (rounds_of(target, cell, some, last) for some in (cell.methods, cell.rivals))
        return {seed: rival[seed] / number for seed, number in own.items() if seed in rival}
    chosen = shown.result.chosen or (shown.result.methods[0] if len(cell.methods) == 1 else None)
    computed = by_method(target, cell).get(str(chosen), {})
    found = {}
    for run in shown.result.runs:
        if run.method != chosen or run.changed or run.code:
            continue
        there = run.state == "finished" and Landed(cell.setting, run.method, run.seed).exists
        number = computed.get(run.seed, last if there else None)
        if number is not None:
            found[run.seed] = float(number)
    return found


def can_be(shown: TableCell, last: int | None) -> bool:
    """Not if all runs are finished and none has the measure."""
    runs = shown.result.runs
    done = [run.state == "finished" and not run.changed and not run.code for run in runs]
    return (
        last is not None or not runs or not all(done) or any(run.value is not None for run in runs)
    )


@pytest.fixture(scope="module")
def tables(made: tuple[Path, Workbench]) -> dict[tuple[str, str], ComputedTable]:
    """The tables' JSON: which runs each cell has."""
    _, bench = made
    targets = bench.tables("compact")
    found = {key: read_table(bench.root, target) for key, target in targets.items()}
    return {key: table for key, table in found.items() if table}


Tables = Mapping[tuple[str, str], ComputedTable]


def rows_of_claims(site: Path) -> dict[str, list[str]]:
    """By claim the four cells of its row."""
    markup = (site / "claims.html").read_text(encoding="utf-8")
    rows = parts(markup, "tr", id="[a-z0-9-]*")
    return {
        name: re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", row, re.DOTALL)
        for name, row in rows.items()
    }


def verdict_in(markup: str) -> str:
    """The word of the first verdict."""
    found = re.search(r'<span class="verdict[^"]*"><span[^>]*>[^<]*</span> ([^<]*)</span>', markup)
    return found[1] if found else ""


def test_settings_have_what_their_searches_select(made: tuple[Path, Workbench]) -> None:
    """A setting's `methods` replaces its parent's, so each setting is looked at by itself."""
    _, bench = made
    compared = 0
    for system, experiment in bench.experiments.items():
        for item in experiment.compact_search:
            target = as_far_as_it_went(bench, bench.search(system, item, "compact"))
            for method in search_results(bench, target):
                if method.selected is None or method.waiting:
                    continue
                selected = method.tried[method.selected].candidate.values
                searched = method.trial.searched.model_copy(update={"published": {}})
                for name in (target.search.setting, *target.search.selects_for):
                    search = target.search.model_copy(update={"setting": name})
                    has = experiment.choice(search, searched)
                    assert has == selected, (system, item, searched.method, name)
                    compared += 1
    assert compared >= 30


def test_claims_show_what_printed_numbers_and_small_runs_say(
    made: tuple[Path, Workbench], tables: Tables
) -> None:
    site, bench = made
    papers, rows = Papers(), rows_of_claims(site)
    assert rows.keys() == papers.claims.keys()
    seen: Counter[str] = Counter()
    for name, claim in papers.claims.items():
        _, printed, compact, _ = rows[name]
        word = check_printed(claim, papers, printed, name)
        assert verdict_in(printed) == word, name
        seen[f"printed: {word}"] += 1
        test = claim.get("compact", "")
        if isinstance(test, str):
            assert not verdict_in(compact), name
            seen["compact: can't be tested"] += 1
            continue
        target = bench.table(claim["system"], test["table"], "compact")
        shown = tables[claim["system"], test["table"]].cells
        records = [
            {"row": cell.row.label, "column": cell.column.label}
            | {"reference": cell.methods == ("central",)}
            for cell in target.cells
        ]
        asked = [*pairs(records, ("row", "column"), test["left"], test["right"])]
        lasts = [
            bench.setting(cell.setting).rounds
            if isinstance(metric.of_both or metric, RoundsTo)
            else None
            for cell in target.cells
            for metric in [target.table.metric_of(cell.row, cell.column)]
        ]
        sign = 1 if claim["expect"] == "more" else -1
        first = target.cells[asked[0][0]]
        unit = target.table.metric_of(first.row, first.column).quantity.unit.replace("%", "points")
        sides = [
            tuple(
                values_of(target, target.cells[place], shown[place], lasts[place]) for place in pair
            )
            for pair in asked
        ]
        possible = [
            place
            for place, pair in enumerate(asked)
            if all(can_be(shown[i], lasts[i]) for i in pair)
        ] or [*range(len(asked))]
        asked, sides = [asked[i] for i in possible], [sides[i] for i in possible]
        distinct = kept(sides, SAME["percent"] if unit == "points" else 0.0)
        asked, sides = [asked[i] for i in distinct], [sides[i] for i in distinct]
        leads = [
            {seed: sign * (one[seed] - other[seed]) for seed in sorted(one.keys() & other.keys())}
            for one, other in sides
        ]
        quantifier, by = claim.get("quantifier", "each"), claim.get("by", 0.0)
        if quantifier == "amount":
            by = 0.0
        judged = judge(leads, by, quantifier, papers.margin(claim, compact=True))
        text, overall = words(compact.partition("<details")[0]), judged.overall
        word, early = judged.word, False
        if overall and overall.n < FIRST_LOOK and word not in ("not computed", "undecided"):
            word = "undecided"
            assert f"{overall.n} of {FIRST_LOOK} seeds, with which it is judged first" in text, name
            early = True
        if quantifier == "amount" and word == "holds":
            word = "holds in direction"
        against = [asked[i][1] for i, single in enumerate(judged.singles) if single == "against"]
        assert verdict_in(compact).startswith(word), (name, word, text)
        for place in against if word == "does not hold" else ():
            assert any(records[place][key] in verdict_in(compact) for key in ("row", "column")) or (
                "more" in verdict_in(compact)
            ), (name, text)
        open_for = sum(single not in ("leads", "not behind") for single in judged.singles)
        assert word != "leads on average" or f"open for {open_for} of {len(asked)}" in text, name
        seen[f"compact: {word}"] += 1
        assert bool(tally_in(text)) == (len(asked) > 1 and judged.counts[0] > 0), (name, text)
        if not early:
            check_judged(text, judged, name)
        mean = re.search(rf"Mean lead {LEAD}{UNIT} ?, (\d+) seeds?\.", text)
        assert (mean is None) == (overall is None), (name, text)
        if mean and overall:
            assert overall.shown(mean.groups()[:3]), (name, text, overall)
            assert ((mean[4] or ""), int(mean[5])) == (unit, overall.n), (name, text)
            lines = parts(compact.partition("<summary>Each comparison")[2], "li").values()
            about = [named(records[i], records[j]) for i, j in asked]
            seen["comparisons"] += check_singles(map(words, lines), about, judged, unit, name)
    counts = summary_of(site / "claims.html")
    for name, count in counts.items():
        if name.startswith(("printed: ", "compact: ")):
            assert count == seen[name], (name, count, seen)
    assert counts["claims"] == len(papers.claims)
    assert seen["comparisons"] >= 190, seen  # as many at least as when this was written
    check_start_page(site, papers, seen)


def check_start_page(site: Path, papers: Papers, seen: Mapping[str, int]) -> None:
    """Its counts add up to all claims; its leads are those of the page of claims."""
    start, claims = (
        words((site / page).read_text("utf-8")) for page in ("index.html", "claims.html")
    )
    assert f"; they do not support {seen['printed: does not support']}." in start
    told = re.search(r"Of (\d+) claims, the printed numbers (.*?) In small", start)
    assert told and sum(map(int, re.findall(r"\d+", told[2]))) == int(told[1]), told
    lines = re.findall(r"\(scale compact\): of (\d+) claims, (.*?)\. Each bar", start)
    assert lines and sum(int(total) for total, _ in lines) <= len(papers.claims)
    for total, counts in lines:
        assert sum(map(int, re.findall(r"\d+", counts))) == int(total), counts
    first = re.findall(
        r"In small runs: (?:(?!In small runs).)*?; mean lead (.*?) over (\d+) p", start
    )
    assert first
    for lead, count in first:
        assert re.search(rf"Mean lead {re.escape(lead)} ?, {count} seeds?\.", claims), lead


def named(one: Record, other: Record) -> tuple[str, ...]:
    """The labels of two cells of a compact table in the order in which a line has them."""
    if one["row"] == other["row"]:
        return one["row"], one["column"], other["column"]
    if one["column"] == other["column"]:
        return one["row"], other["row"]
    return one["column"], one["row"], other["column"], other["row"]


def summary_of(page: Path) -> dict[str, int]:
    """The counts above the claims."""
    markup = page.read_text(encoding="utf-8").partition("</dl>")[0]
    found = re.findall(r"<dt>(.*?)</dt>\s*<dd>(\d+)\b", markup, re.DOTALL)
    return {words(name).lstrip("✓◐≠≈○ "): int(count) for name, count in found}


def test_a_claim_that_does_not_hold_says_what_was_looked_at(
    made: tuple[Path, Workbench], tables: Tables
) -> None:
    """A loss is not believed without a look at regime and reading."""
    _, bench = made
    said = set()
    for claim in published.load(bench.root).claims:
        if isinstance(claim.compact, CompactTest) and (claim.system, claim.compact.table) in tables:
            found = judge_compact(bench, claim, tables, 0.5)
            assert found, claim.anchor
            said.add(found.word)
            text = looked_at(claim, tables)
            assert text or found.word != Word.DOES_NOT_HOLD, claim.anchor
            assert bool(text) == bool(claim.compact.looked_at), "no number is missing"
    assert "holds" in said


@pytest.mark.parametrize(
    "function", ["weibull", "normal", "gumbel", "logistic", "exponential", "frechet"]
)
def test_the_words_of_silos_hang_on_the_distribution_function_and_on_one_seed(
    function: str,
) -> None:
    """Three claims' `looked_at` has the words with another one for Fashion-MNIST."""
    papers, bench = Papers(), landed_bench()
    target = bench.table("aaggff", "compact_searched_silos", "compact")
    records = [
        {"row": cell.row.label, "column": cell.column.label, "reference": False}
        for cell in target.cells
    ]
    low = function in ("weibull", "normal")  # the search selected Weibull's
    for metric, word in (("gini", "holds"), ("worst", "holds"), ("gap", "leads on average")):
        claim = papers.claims[f"aaggff-{metric}-cross-silo"]
        test, leads = claim["compact"], []
        for i, j in pairs(records, ("row", "column"), test["left"], test["right"]):
            one, other = target.cells[i], target.cells[j]
            method = f"aaggff_{function}+fedavg" if "fmnist" in one.setting else one.methods[0]
            ours, theirs = averaged(target, one, method), averaged(target, other, *other.methods)
            sign = 1 if claim["expect"] == "more" else -1
            leads.append({seed: sign * (ours[seed] - theirs[seed]) for seed in ours})
        judged = judge(leads, 0.0, claim["quantifier"], papers.margin(claim, compact=True))
        assert judged.word == ("undecided" if low else word), (metric, judged)
        mean = {seed: np.mean([lead[seed] for lead in leads]) for seed in leads[0]}
        assert not low or [seed for seed, lead in mean.items() if lead < 0] == [2], mean


def test_each_claim_has_a_page_on_which_its_authors_can_answer(
    made: tuple[Path, Workbench], tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, bench = made
    papers = published.load(bench.root)
    claims = (site / "claims.html").read_text(encoding="utf-8")
    views = views_of(Readings(bench, papers, tables))
    for claim, finding in ((view.claim, view.compact) for view in views):
        assert f'href="claims/{claim.anchor}.html"' in claims
        markup = (site / "claims" / f"{claim.anchor}.html").read_text(encoding="utf-8")
        assert all(f"<code>{place}</code>" in markup for place in claim.place)
        if isinstance(claim.compact, CompactTest) and finding:
            compared = differences.of_claim(bench, claim)
            lines = parts(markup.partition("<tbody>")[2].partition("</tbody>")[0], "tr")
            assert len(lines) == len(differences.grouped(compared)) > 0
            assert f"make compact ONLY='{claim.system}/{finding.item}'" in unescape(markup)
            for setting, _ in finding.runs:
                system, _, short = setting.partition("/")
                folder = f"reports/papers/{system}/compact/{short}"
                assert (ROOT / folder).is_dir() and f"<code>{folder}</code>" in markup
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / FORM).read_text(encoding="utf-8"))
    assert form["body"][0]["id"] == "claim"
    said = Objection(
        says="Its clients are too few.", by="An author", on="2026-11-27", answer="Yes."
    )
    view = next(view for view in views if view.claim.anchor == "fedgo-without-server-data")
    view = replace(view, claim=view.claim.model_copy(update={"objections": [said]}))
    monkeypatch.setattr(one_claim, "repository", lambda: "https://host.example/us/fedrepro")
    content = one_claim.claim_page(bench, papers.systems["fedgo"], view, views)
    assert content["form"].endswith(
        f"?template={FORM}&title=Objection%3A+{view.claim.anchor}&claim={view.claim.anchor}"
    )
    assert "fedgo-ensemble-above-server" in {other.anchor for other in content["witnesses"]}
    assert "ima-accuracy" not in {other.anchor for other in content["witnesses"]}
    templates = environment(ROOT / "reports/templates")
    common = {"up": "", "page": "", "software": software(), "is_clone": True, "has_league": True}
    for name, page in (
        ("claim", content),
        ("claims", {**claims_page(papers, [view]), "league": False}),
    ):
        text = templates.get_template(f"{name}.html.j2").render(**common, **page)
        verdict, objection = (text.index(each) for each in ("does not hold, against", said.says))
        assert verdict < objection < verdict + 1000, "beside the verdict"
        assert "note" not in text[text.rindex("<p", 0, objection) : objection], "in its size"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_each_claim_as_a_block_and_counts_at_the_end(
    made: tuple[Path, Workbench],
    tables: Tables,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    _, bench = made
    views = views_of(Readings(bench, published.load(bench.root), tables))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_claims([view.facts for view in views], summary(views))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= columns
    names = [view.claim.anchor for view in views]
    starts = [
        place for place, line in enumerate(lines) if line.split()[:1] and line.split()[0] in names
    ]
    ends = [place for place, line in enumerate(lines) if line.startswith("Of ")]
    assert len(starts) == len(names) and len(ends) == 1 and ends[0] > starts[-1]
    for system in dict.fromkeys(view.claim.system for view in views):
        mine = [
            place
            for place, name in zip(starts, names, strict=True)
            if name.startswith(f"{system}-")
        ]
        after = min([place for place in (*starts, *ends) if place > mine[-1]])
        assert after - mine[0] <= 140, system
    # One experiment is one witness: claims about the same runs do not count twice.
    counts = summary(views)
    accuracy = [view.compact for view in views if view.claim.anchor.startswith("ima-accuracy")]
    assert experiments(finding for finding in accuracy if finding) == 1 < len(accuracy)
    for word, count in counts["compact"].items():
        assert min(count, 1) <= counts["experiments"][word] <= count
    assert counts["experiments"]["holds"] < counts["compact"]["holds"]


def test_claims_show_what_runs_with_published_settings_say(
    made: tuple[Path, Workbench], tables: Tables
) -> None:
    site, bench = made
    papers, rows = Papers(), rows_of_claims(site)
    text, released, _ = answers_at_paper_scale(bench, tables)
    seen: Counter[str] = Counter()
    for name, claim in papers.claims.items():
        compared = papers.printed(claim)
        sign, by = 1 if claim["expect"] == "more" else -1, claim.get("by", 0.0)

        def judged_by(
            answers: Mapping[object, BySeed],
            claim: Record = claim,
            compared: Sequence[tuple[Record, Record]] = compared,
            sign: int = sign,
            by: float = by,
            says: str = claim.get("quantifier", "each"),
        ) -> tuple[Judged, list[float], list[tuple[Record, Record]]]:
            sides = [
                tuple(answers.get(name_of(claim, cell), {}) for cell in pair) for pair in compared
            ]
            distinct = kept(sides, SAME.get(papers.kind(claim), 0.0))
            compared, sides = [compared[i] for i in distinct], [sides[i] for i in distinct]
            leads = []
            for one, other in sides:
                shared = sorted(one.keys() & other.keys())
                leads.append({seed: sign * (one[seed] - other[seed]) for seed in shared})
            computed = [pair for pair, lead in zip(compared, leads, strict=True) if lead]
            printed = [sign * (value(one) - value(other)) for one, other in computed]
            return judge(leads, by, says, papers.margin(claim)), printed, compared

        markup = rows[name][3]
        own, others = words(markup.partition("<details")[0]).partition("With the released")[::2]
        judged, printed, compared = judged_by(text)
        assert verdict_in(markup).startswith(judged.word), name
        assert "Counted" not in own, name
        seen[f"paper scale: {judged.word}"] += 1
        check_judged(own, judged, name)
        mean = re.search(
            rf"Mean lead {LEAD}{UNIT} ?, (\d+) seeds?; printed ({NUMBER}) on the same (\d+)\.",
            own,
        )
        assert (mean is None) == (judged.overall is None), (name, own)
        if mean and judged.overall:
            assert judged.overall.shown(mean.groups()[:3]), (name, own)
            assert (mean[4] or "") == papers.unit(claim), (name, own)
            assert int(mean[5]) == judged.overall.n and int(mean[7]) == len(printed), (name, own)
            assert says(mean[6], float(np.mean(printed))), (name, own)
        lines = [*map(words, parts(markup, "li").values())]
        assert len(lines) == judged.counts[0], name
        if lines:
            about = [
                (one["dataset"], one["setting"].replace(",", ", "), one["method"], other["method"])
                for (one, other), test in zip(compared, judged.tests, strict=True)
                if test
            ]
            seen["comparisons"] += check_singles(lines, about, judged, papers.unit(claim), name)
            for line, lead in zip(lines, printed, strict=True):
                found = re.search(rf"printed ({NUMBER}), ", line)
                assert found and says(found[1], lead), (name, line, lead)
        judged, printed, _ = judged_by(released)
        assert (others == "") == (not printed), (name, others)
        if printed:
            assert f"settings and code: {judged.word}." in others, (name, others)
            check_judged(others, judged, name)
            mean = re.search(rf"Lead {LEAD}{UNIT} ?, printed ({NUMBER}) on the same\.", others)
            assert (mean is None) == (judged.overall is None), (name, others)
            if mean and judged.overall:
                assert judged.overall.shown(mean.groups()[:3]), (name, others)
                assert says(mean[5], float(np.mean(printed))), (name, others)
            seen["released"] += 1
    for name, count in summary_of(site / "claims.html").items():
        if name.startswith("paper scale: "):
            assert count == seen[name], (name, count, seen)
    assert seen["comparisons"] >= 19 and seen["released"] >= 5, seen


def name_of(claim: Record, cell: Record) -> object:
    return claim["system"], cell["table"], tuple(cell[key] for key in PRINTED_KEYS)


def answers_at_paper_scale(
    bench: Workbench, tables: Tables
) -> tuple[dict[object, BySeed], dict[object, BySeed], set[tuple[frozenset[str], float, float]]]:
    """Our numbers for printed cells as the text says, and as released.

    Also for each cell with both: the items in which they differ, and the two means.
    """
    numbers: dict[int, BySeed] = {}
    targets = bench.tables("compact")
    for (system, item), table in tables.items():
        target = targets[system, item]
        for cell, shown in zip(target.cells, table.cells, strict=True):
            if not (table.published_table and shown.answered and shown.result.n):
                continue
            verdict = shown.verdict
            unlike = verdict and (verdict.word, verdict.basis) == ("not comparable", None)
            numbers[id(shown)] = {} if unlike else values_of(target, cell, shown, None)
    text: dict[object, BySeed] = {}
    by_name: dict[object, BySeed] = {}
    means = set()
    for table, found in Readings(bench, published.load(bench.root), tables).by_table.items():
        for name, both in found.items():
            if both.text:
                text[(*table, name)] = numbers[id(both.text.cell)]
            if not both.released:
                continue
            theirs = by_name[(*table, name)] = numbers[id(both.released.cell)]
            ours = numbers[id(both.text.cell)] if both.text else {}
            if ours and theirs:
                values = (float(np.mean([*each.values()])) for each in (ours, theirs))
                means.add((frozenset(both.released.items), *values))
    return text, by_name, means


Entries = dict[str, BySeed]


def matches(bench: Workbench, tables: Tables) -> Iterator[tuple[str, str, str, bool, Entries]]:
    """Group, setting, label, whether more is better, and numbers by method, of each match."""
    for system, experiment in bench.experiments.items():
        for item, table in experiment.compact.items():
            target, shown = bench.table(system, item, "compact"), tables[system, item].cells
            wide = len(table.columns)
            for number, row in enumerate(table.rows):
                if not row.league:
                    continue
                entries = {}
                for place in range(number * wide, (number + 1) * wide):
                    cell = target.cells[place]
                    by_tests = table.metric_of(cell.row, cell.column).quantity.selection
                    if cell.methods == ("central",) or by_tests or len(cell.methods) > 1:
                        continue
                    label = (
                        "FedAvg"
                        if cell.methods[0].endswith("fedavg")
                        and cell.methods[0] in ("fedavg", f"{row.wrapper}+fedavg")
                        else cell.column.label
                    )
                    entries[label] = values_of(target, cell, shown[place], None)
                higher_is_better = table.metric_of(row).quantity.higher_is_better
                yield row.league, f"{system}/{row.setting}", row.label, higher_is_better, entries


def counted(
    some: Sequence[tuple[str, str, str, bool, Entries]], seeds: int
) -> list[tuple[str, str, str, bool, Entries]]:
    return [
        match for match in some if sum(len(values) == seeds for values in match[4].values()) > 1
    ]


def ranked(some: Sequence[tuple[str, str, str, bool, Entries]], seeds: int) -> pd.Series:
    """Mean ranks of the methods with all seeds in every match; rows of one setting count once.

    Matches in which fewer than two methods have all seeds do not count.
    """
    scores = pd.DataFrame(
        {
            (setting, label): {
                name: round(float(np.mean([*values.values()])), 9) * (1 if higher_is_better else -1)
                for name, values in entries.items()
                if len(values) == seeds
            }
            for _, setting, label, higher_is_better, entries in counted(some, seeds)
        }
    ).dropna()
    ranks = scores.rank(ascending=False)
    return ranks.T.groupby(level=0).mean().mean().sort_values(kind="stable")


def test_the_league_shows_means_spreads_and_ranks(
    made: tuple[Path, Workbench], tables: Tables
) -> None:
    site, bench = made
    markup = (site / "league.html").read_text(encoding="utf-8")
    sections = parts(markup, "section")
    seeds = len(bench.seeds("compact", "ima"))
    every, shown = [*matches(bench, tables)], 0
    groups: dict[str, list[tuple[str, str, str, bool, Entries]]] = {}
    for match in every:
        groups.setdefault(match[0], []).append(match)
    standing = {group: some for group, some in groups.items() if len(ranked(some, seeds)) > 1}
    for group, some in groups.items():
        section = next(each for each in sections.values() if f'id="{group}-title"' in each)
        ranks = ranked(some, seeds)
        check_standing(section, counted(some, seeds), ranks)
        rows = [cells_in(row) for row in parts(section, "tr").values()][1:]
        names = dict.fromkeys(name for match in some for name in match[4])
        assert {row[0] for row in rows} == names.keys(), group
        for row in rows:
            mean = ranks.get(row[0])
            assert row[1] == "–" if mean is None else says(row[1], mean), (group, row)
            for text, (_, _, label, _, entries) in zip(row[2:-1], some, strict=True):
                values = entries.get(row[0])
                at = group, row[0], label, text
                if values is None:
                    assert text == "–", at
                elif len(values) < seeds:
                    assert text.startswith(
                        f"{len(values)} of {seeds} seeds" if values else "no result"
                    ), at
                else:
                    told = re.fullmatch(rf"({NUMBER}) ± ({NUMBER})", text)
                    assert told and says(told[1], float(np.mean([*values.values()]))), at
                    half = stats.t.ppf(0.975, seeds - 1) * stats.sem([*values.values()])
                    assert says(told[2], float(half)), at
                    shown += 1
        in_order = [row[0] for row in rows if row[1] != "–"]
        assert [ranks[name] for name in in_order] == sorted(ranks), group
    assert shown >= 100, shown
    whole = [match for match in every if match[0] in standing]
    total = next((each for each in sections.values() if 'id="all-title"' in each), None)
    assert (total is None) == (len(ranked(whole, seeds)) < 2)
    check_league_file(site / "league.csv", every, seeds)


def check_standing(
    section: str, some: Sequence[tuple[str, str, str, bool, Entries]], ranks: "pd.Series[float]"
) -> None:
    """The sentence below a diagram of ranks, and the diagram's labels."""
    caption = words(" ".join(parts(section, "figcaption").values()))
    if len(ranks) < 2:
        assert "No mean ranks" in section and not caption
        return
    k, n = len(ranks), len({setting for _, setting, *_ in some})
    q = float(stats.studentized_range.ppf(0.95, k, math.inf)) / math.sqrt(2)
    critical = q * math.sqrt(k * (k + 1) / (6 * n))
    told = re.search(
        rf"(\d+) methods with a result in (\d+) settings?, critical difference ({NUMBER})", caption
    )
    assert told and (int(told[1]), int(told[2])) == (k, n), caption
    assert says(told[3], critical), (caption, critical)
    assert ("decide nothing" in caption) == (critical > k - 1), caption
    about = re.search(r'aria-label="Mean ranks, ([^"]*)"', section)
    assert about, section
    for name, mean in ranks.items():
        assert f"{name} {mean:.2f}" in about[1], (about[1], name)


def check_league_file(
    path: Path, every: Sequence[tuple[str, str, str, bool, Entries]], seeds: int
) -> None:
    """The CSV: mean, spread, rank and lead over FedAvg in every match."""
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    found = {(line["setting"], line["match"], line["method"]): line for line in lines}
    assert len(found) == len(lines) == sum(len(match[4]) for match in every)
    for _, setting, label, higher_is_better, entries in every:
        whole = {name: each for name, each in entries.items() if len(each) == seeds}
        sign = 1 if higher_is_better else -1
        ranks = pd.Series(
            {name: sign * round(np.mean([*each.values()]), 9) for name, each in whole.items()}
        )
        ranks = ranks.rank(ascending=False) if len(ranks) > 1 else ranks.iloc[:0]
        for name, values in entries.items():
            line, at = found[setting, label, name], (setting, label, name)
            if name not in whole:
                assert line["mean"] == line["rank"] == "" and line["why_not_ranked"], at
                continue
            assert float(line["mean"]) == pytest.approx(np.mean([*values.values()])), at
            assert float(line["std"]) == pytest.approx(np.std([*values.values()], ddof=1)), at
            assert line["rank"] == ("" if name not in ranks else str(ranks[name])), at
            if name == "FedAvg" or "FedAvg" not in whole:
                assert line["lead_over_fedavg"] == "", at
                continue
            test = Test.of([sign * (values[seed] - whole["FedAvg"][seed]) for seed in values], 0)
            for key, right in (
                ("lead_over_fedavg", test.lead),
                ("low", test.low),
                ("high", test.high),
            ):
                told = float(line[key]) if line[key] else math.nan
                assert told == pytest.approx(right, nan_ok=True), (at, key)


def test_discrepancies_have_the_effects_that_runs_show(
    made: tuple[Path, Workbench], tables: Tables
) -> None:
    site, bench = made
    *_, means = answers_at_paper_scale(bench, tables)
    lists = re.findall(
        r"<details[^>]*>(.*?)</details>",
        (site / "discrepancies.html").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    shown, last = [*map(words, parts(lists[0], "li").values())], math.inf
    for line in shown:
        told = re.search(
            rf"(\w+) : ({NUMBER}) points in .*: ({NUMBER}) as the text says, ({NUMBER}) as released"
            r"(?: \(together with (.*)\))?\.",
            line,
        )
        assert told, line
        items = {told[1], *filter(None, (told[5] or "").split(", "))}
        assert any(
            items == differing
            and says(told[2], theirs - ours)
            and says(told[3], ours)
            and says(told[4], theirs)
            for differing, ours, theirs in means
        ), line
        size = abs(float(told[2].replace("\N{MINUS SIGN}", "-")))
        assert size <= last, line  # the largest first
        last = size
    assert len(shown) >= 10


def test_pages_of_methods_have_the_leads_and_ranks_of_the_league(
    made: tuple[Path, Workbench],
) -> None:
    """Those of the league's file, which the test of the league computes from Parquet files."""
    site, _ = made
    lines = csv.DictReader((site / "league.csv").read_text(encoding="utf-8").splitlines())
    right = {(line["group"], line["match"], line["method"]): line for line in lines}
    seen = 0
    for page in sorted((site / "methods").glob("*.html")):
        sections = parts(
            page.read_text(encoding="utf-8"), "section", **{"aria-labelledby": "stands"}
        )
        for row in parts("".join(sections.values()), "tr").values():
            cells = cells_in(row)
            if cells[0] == "Setting":
                continue
            label = words(row.partition("<a")[2].partition(">")[2].partition("</a>")[0])
            column = cells[0].removeprefix(f"{label} ").partition(": ")[0]
            line = right[cells[1], label, column]
            told = re.fullmatch(rf"({NUMBER})(?: \[({NUMBER}), ({NUMBER})\])?", cells[2])
            assert told, (page, cells)
            for shown, key in zip(told.groups(), ("lead_over_fedavg", "low", "high"), strict=True):
                assert says(shown, float(line[key])) if shown else not line[key], (page, cells)
            assert cells[3].partition(" of ")[0] == f"{float(line['rank']):g}", (page, cells)
            seen += 1
    assert seen >= 60, seen
