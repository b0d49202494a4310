"""What the page of claims and the start page draw and count of verdicts, read off the SVG."""

import html
import re
from collections import Counter
from dataclasses import replace

import pytest

from fedrepro.report.cells.findings import CompactPair, Finding, Side, experiments, finding_of
from fedrepro.report.pages.claims import ClaimView, findings_of, summary
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import Word
from fedrepro.report.papers.pairs import PrintedFinding, PrintedWord

SEEDS = (1, 2, 3, 4, 5)
WIGGLE = dict(zip(SEEDS, (-1.0, 0.5, 0.0, -0.5, 1.0), strict=True))


def claim_of(name: str, system: str = "s", **keys: object) -> Claim:
    return Claim.model_validate({
        "system": system, "name": name, "says": f"Says {name}.", "source": "x", "basis": "table",
        "tables": ["table_1"], "left": {"method": "A"}, "right": {"method": "B"},
        "expect": "more", **keys,
    })  # fmt: skip


def finding(claim: Claim, *leads: tuple[float, float], **keys: object) -> Finding:
    """Of comparisons with these mean leads and spreads over five seeds; a NaN is not computed."""
    pairs = [CompactPair(0, at, f"words {at}", f"rival {at}") for at, _ in enumerate(leads, 1)]
    sides = [
        (
            Side("left", {seed: 50 + mean + spread * each for seed, each in WIGGLE.items()}),
            Side(f"right {at}", dict.fromkeys(SEEDS, 50.0) if mean == mean else {}),
        )
        for at, (mean, spread) in enumerate(leads)
    ]  # fmt: skip
    made = finding_of(claim, pairs, sides, 0.5, "percent", compact=True)
    return replace(made, unit="points", **keys)


def view(claim: Claim, compact: Finding | None, **keys: object) -> ClaimView:
    ours = finding(claim, (float("nan"), 1.0))
    about = {"printed": PrintedFinding(PrintedWord.SUPPORTS, 1, 1, 1.0, ()), "ours": ours} | keys
    return ClaimView(claim, about["printed"], about["ours"], ours, compact, (), (), (), "")


def bars(svg: str) -> dict[str, dict[str, object]]:
    """By the claim's name, in the order drawn: lines and marks of each bar."""
    found = {}
    for link, about, inside in re.findall(
        r'<a href="claims\.html#([^"]*)" aria-label="([^"]*)"><title>.*?</title>(.*?)</a>', svg
    ):
        spans = [
            tuple(map(float, each))
            for each in re.findall(r'd="M([\d.]+),[\d.]+H([\d.]+)" stroke="[^"]*" stroke-w', inside)
        ]
        marks = [
            (kind, float(x) + (float(wide) / 2 if kind == "rect" else 0.0), colour)
            for kind, x, wide, colour in re.findall(
                r'<(circle|rect) c?x="([\d.]+)" c?y="[^"]*" (?:r|width)="([\d.]+)"'
                r'(?: height="[^"]*")? fill="([^"]*)"', inside,
            )
        ]  # fmt: skip
        found[link.removeprefix("s-")] = {
            "about": html.unescape(about), "spans": spans, "marks": marks
        }  # fmt: skip
    return found


def test_a_bar_is_its_lead_in_half_widths_and_the_comparison_that_decides() -> None:
    holds, not_, open_ = claim_of("holds"), claim_of("not"), claim_of("open", by=1.0)
    mean, far = claim_of("mean", quantifier="average"), claim_of("far")
    findings = {
        "not": finding(not_, (1.0, 1.0), (-2.0, 0.1), (-3.0, 1.0)),
        "open": finding(open_, (1.4, 2.0), (1.5, 0.5)),
        "holds": finding(holds, (4.0, 2.0), (3.0, 0.2), (3.5, 0.1)),
        "mean": finding(mean, (2.0, 2.0), (3.0, 2.5)),
        "far": finding(far, (40.0, 0.1), (30.0, 0.1)),
        "without": finding(claim_of("without"), (float("nan"), 1.0)),
    }
    claims = {each.name: each for each in (holds, not_, open_, mean, far, claim_of("without"))}
    views = [view(claims[name], each) for name, each in findings.items()]
    told = findings_of([*views, view(claim_of("none"), None)])["s"]
    assert (told["total"], told["no_test"]) == (7, 1)
    assert told["words"] == Counter(each.word for each in findings.values())
    assert findings["holds"].word == findings["far"].word == Word.HOLDS
    assert findings["not"].word == Word.DOES_NOT_HOLD and findings["open"].word == Word.UNDECIDED
    drawn = bars(told["plot"])
    width = int(re.search(r'viewBox="0 0 (\d+) ', told["plot"])[1])
    assert [*drawn] == ["far", "holds", "mean", "open", "not"]  # the furthest ahead comes first
    units = [span[1] - span[0] for span in (each["spans"][0] for each in drawn.values())]
    unit = units[0] / 2  # pixels of a half width
    assert units == pytest.approx([2 * unit] * len(units), abs=0.21)
    # That whose interval begins lowest; of those that are against, that whose interval ends lowest.
    # A claim about a mean has none.
    deciders = {"holds": 0, "open": 0, "not": 1, "mean": None, "far": 1}
    for name, bar in drawn.items():
        made, by = findings[name], claims[name].by
        _, lead, high = made.overall.interval
        half = high - lead
        at = min(6.0, (lead - by) / half)
        (kind, x, colour), *rival = bar["marks"]
        assert x == pytest.approx(width / 2 + unit * at, abs=0.15)
        assert sum(bar["spans"][0]) / 2 == pytest.approx(x, abs=0.15)
        assert (kind, colour) == {
            Word.HOLDS: ("circle", "var(--agrees)"),
            Word.DOES_NOT_HOLD: ("rect", "var(--differs)"),
        }.get(made.word, ("circle", "var(--paper)"))
        assert bar["about"].startswith(claims[name].says) and f"{lead:+.2f} [" in bar["about"]
        decider = deciders[name]
        assert len(rival) == len(bar["spans"]) - 1 == (decider is not None)
        assert bool(re.search(r"rival \d", bar["about"])) == (decider is not None)
        if decider is not None:
            ends = made.comparisons[decider].test.interval
            places = [max(-6.0, min(6.0, (end - by) / half)) for end in ends]
            assert f"rival {decider + 1}, {ends[1]:+.2f}" in bar["about"]
            wanted = (width / 2 + unit * places[0], width / 2 + unit * places[2])
            assert bar["spans"][1] == pytest.approx(wanted, abs=0.15)
            assert rival[0][1] == pytest.approx(width / 2 + unit * places[1], abs=0.15)


def test_the_picture_of_a_claim_has_each_comparison_its_mean_and_the_margin() -> None:
    """From above in their order; zero is in the middle, and the widest interval still fits."""
    claim = claim_of("x")
    made = finding(claim, (2.0, 1.0), (-4.0, 0.5), (float("nan"), 1.0), (0.2, 0.1))
    svg = view(claim, made).plot
    width = int(re.search(r'viewBox="0 0 (\d+) ', svg)[1])
    inside = svg.partition("<g ")[2]
    spans = [
        tuple(map(float, each))
        for each in re.findall(r'd="M([\d.]+),[\d.]+H([\d.]+)" stroke="', inside)
    ]
    means = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', inside)]
    tests = [each.test for each in made.computed]
    intervals = [test.interval for test in (*tests, made.overall or tests[0])]
    assert len(spans) == len(means) == (3 if made.overall is None else 4)
    ends = [value for interval in intervals for value in interval]
    unit = (width / 2 - 6) / max(map(abs, ends))
    for interval, span, mean in zip(intervals, spans, means, strict=False):
        low, lead, high = interval
        assert span == pytest.approx((width / 2 + unit * low, width / 2 + unit * high), abs=0.1)
        assert mean == pytest.approx(width / 2 + unit * lead, abs=0.1)
    band = re.search(r'<rect x="([\d.]+)" y="0" width="([\d.]+)"', inside)
    assert band and float(band[1]) == pytest.approx(width / 2 - 0.5 * unit, abs=0.1)
    assert float(band[2]) == pytest.approx(unit, abs=0.1)  # a margin of .5 on both sides
    assert view(claim, None).plot == ""


def test_the_counts_above_the_claims_add_up() -> None:
    """By word: all claims by what is printed, those of runs, and those that small runs can test."""
    claim = claim_of("x")
    runs = [frozenset({("s/a", ("m",))}), frozenset({("s/b", ("m",))})]
    runs.append(runs[0] | {("s/c", ("n",))})
    good, bad = finding(claim, (4.0, 0.2)), finding(claim, (-4.0, 0.2))
    small = [
        replace(good, runs=runs[0]), replace(good, runs=runs[1]), replace(good, runs=runs[2]),
        replace(bad, runs=runs[1]), None, None,
    ]  # fmt: skip
    printed = [PrintedWord.SUPPORTS] * 2 + [PrintedWord.DOES_NOT_SUPPORT]
    printed += [PrintedWord.SUPPORTS] * 3
    ours = [good, good, bad, replace(good, counted=True), good, bad]
    views = [
        view(claim, each, printed=PrintedFinding(word, 1, 1, 1.0, ()), ours=own)
        for each, word, own in zip(small, printed, ours, strict=True)
    ]
    told = summary(iter(views))
    assert told["total"] == 6 and told["counted"] == 1 and told["no_compact"] == 2
    assert {word: count for word, count in told["printed"].items() if count} == Counter(printed)
    assert {word: count for word, count in told["ours"].items() if count} == {
        Word.HOLDS: 3, Word.DOES_NOT_HOLD: 2
    }  # fmt: skip
    assert {word: count for word, count in told["compact"].items() if count} == {
        Word.HOLDS: 3, Word.DOES_NOT_HOLD: 1
    }  # fmt: skip
    # The first and the third share runs.
    assert told["experiments"][Word.HOLDS] == told["experiments"][Word.DOES_NOT_HOLD] + 1 == 2
    chained = [replace(good, runs=each) for each in (runs[0], runs[1], runs[0] | runs[1])]
    assert experiments(chained) == 1 and experiments(chained[:2]) == 2


def test_a_row_of_facts_has_each_side_s_own_numbers() -> None:
    claim = claim_of("x")
    paper, small = finding(claim, (4.0, 0.2), (5.0, 0.2)), finding(claim, (-2.0, 0.3))
    small = replace(small, diverged=3)
    facts = view(claim, small, ours=replace(paper, printed_lead=1.25)).facts
    low, lead, high = paper.overall.interval
    assert facts["lead"] == f"{lead:+.2f} [{low:+.2f}, {high:+.2f}]"
    low, lead, high = small.overall.interval
    assert facts["compact_lead"] == f"{lead:+.2f} [{low:+.2f}, {high:+.2f}]"
    assert facts["ours"].startswith(Word.HOLDS) and facts["ours"].endswith("(2 of 2)")
    assert facts["compact"] == small.verdict and small.word == Word.DOES_NOT_HOLD
    assert (facts["seeds"], facts["compact_seeds"], facts["compact_diverged"]) == (5, 5, 3)
    assert facts["printed_lead"] == "+1.25" and facts["released"] == Word.NOT_COMPUTED
    bare = view(claim_of("y", compact="no data"), None).facts
    assert (bare["compact"], bare["compact_why"], bare["compact_lead"]) == ("none", "no data", "")
    assert (bare["seeds"], bare["compact_seeds"], bare["lead"], bare["printed_lead"]) == (
        0,
        0,
        "",
        "",
    )
