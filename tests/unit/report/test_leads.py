"""What leads over paired seeds say of a claim; tests/unit/report/test_error_rates.py simulates."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedrepro.report.papers import published
from fedrepro.report.papers.claim import Quantifier
from fedrepro.report.papers.leads import (
    COUNTED,
    LOOKS,
    OPEN,
    POCOCK,
    Diverged,
    PairedTest,
    Rule,
    Single,
    Word,
    judge_leads,
    level_at,
    tally,
)
from fedrepro.report.papers.pairs import Pair, PrintedWord, _is_beyond, judge_printed, printed_pairs
from fedrepro.report.papers.published import Spread
from support.places import ROOT


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values, 1))


UP, DOWN, WIDE = seeds(2.0, 1.9, 2.1), seeds(-1.0, -1.1, -0.9), seeds(-8.0, 1.0, 13.0)


def test_single_comparisons_stand_beside_a_word_for_all() -> None:
    for words, leading in (
        ([Single.LEADS, Single.UNDECIDED, Single.LEADS], ["2", "3"]),
        ([Single.AGAINST_BY_ITSELF, Single.NOT_COMPUTED], ["0", "2"]),
    ):
        first, *others = tally(words).split(", ")
        assert re.findall(r"\d+", first) == leading
        rest = [word for word in words if word != Single.LEADS]
        assert others == [f"1 {COUNTED[word]}" for word in rest]
    alone = tally([Single.LEADS])
    assert alone and not re.search(r"\d", alone)
    assert tally([Single.NOT_COMPUTED] * 2) == ""


NEAR = seeds(0.1, -0.1, 0.15)


def word(*leads: dict[int, float], by: float = 0.0, of: Quantifier = "each") -> Word:
    return judge_leads(leads, Rule(by, of, 0.5)).word


def test_words_of_a_claim_about_each() -> None:
    assert word(UP, UP) == Word.HOLDS
    assert word(UP, NEAR) == Word.NOT_BEHIND
    assert word(UP, UP, DOWN) == Word.DOES_NOT_HOLD
    assert word(UP, UP, seeds(2.0, -1.0, 1.5)) == Word.LEADS_ON_AVERAGE
    assert word(NEAR, NEAR) == Word.TOO_SMALL
    assert word(UP, WIDE) == Word.UNDECIDED
    assert word({}, {}) == Word.NOT_COMPUTED
    # A claim of a lead of some size has no margin: half a point short is short.
    assert word(seeds(2.4, 2.45, 2.5), by=2.0) == Word.HOLDS
    assert word(seeds(1.7, 1.8, 1.75), by=2.0) == Word.DOES_NOT_HOLD
    assert word(seeds(1.7, 1.8, 1.75), by=2.0, of="amount") == Word.DOES_NOT_HOLD


@pytest.mark.parametrize("of", ["more", "average"])
def test_words_of_a_claim_about_the_mean(of: Quantifier) -> None:
    assert word(UP, UP, DOWN, of=of) == Word.HOLDS
    assert word(DOWN, DOWN, of=of) == Word.DOES_NOT_HOLD
    assert word(UP, WIDE, of=of) == Word.UNDECIDED
    # Only the mean has to be within the margin.
    assert word(seeds(5.0, 5.1, 4.9), seeds(-5.0, -5.05, -4.9), of=of) == Word.TOO_SMALL
    # It allows no single comparison to lag.
    assert judge_leads([seeds(-0.4, -0.55, -0.45)], Rule(0.0, of, 0.5)).words == (Single.AGAINST,)


def test_words_of_a_claim_that_two_are_the_same() -> None:
    """Within a margin of the text on both sides; without one it cannot be tested."""
    assert word(NEAR, NEAR, of="same") == word(NEAR, of="same") == Word.HOLDS
    assert word(NEAR, UP, of="same") == word(NEAR, DOWN, of="same") == Word.DOES_NOT_HOLD
    assert word(NEAR, WIDE, of="same") == Word.UNDECIDED
    for leads in (NEAR, UP, DOWN):
        without = judge_leads([leads], Rule(quantifier="same"))
        assert (without.word, without.needs) == (Word.UNDECIDED, "")
    # What is farther apart than the margin does not lead; a run that diverged may hide the rest.
    rule, lost = (
        Rule(quantifier="same", margin=0.5),
        {"left": Diverged(1, 0), "right": Diverged(0, 1)},
    )
    assert judge_leads([UP], rule).words == (Single.NOT_BEHIND,)
    found = {
        (name, side): judge_leads([leads], rule, [gone]).word
        for name, leads in (("up", UP), ("down", DOWN))
        for side, gone in lost.items()
    }
    assert found == {
        ("up", "left"): Word.UNDECIDED, ("up", "right"): Word.DOES_NOT_HOLD,
        ("down", "left"): Word.DOES_NOT_HOLD, ("down", "right"): Word.UNDECIDED,
    }  # fmt: skip


@pytest.mark.parametrize("of", ["each", "average"])
def test_a_run_that_diverged_counts_as_the_worst_that_could_be(of: Quantifier) -> None:
    """For the side that it is on; the others' leads are as before."""
    small, none = seeds(-0.05, 0.0, 0.05), Diverged()
    words = {
        (name, side): judge_leads([leads, leads], Rule(0.0, of, 0.5), [none, lost]).word
        for name, leads in (("up", UP), ("down", DOWN), ("small", small))
        for side, lost in (("none", none), ("left", Diverged(1, 0)), ("right", Diverged(0, 1)))
    }
    assert words == {
        ("up", "none"): Word.HOLDS,
        ("up", "left"): Word.UNDECIDED,
        ("up", "right"): Word.HOLDS,
        ("down", "none"): Word.DOES_NOT_HOLD,
        ("down", "left"): Word.DOES_NOT_HOLD,
        ("down", "right"): Word.DOES_NOT_HOLD if of == "each" else Word.UNDECIDED,  # one is against
        ("small", "none"): Word.TOO_SMALL,
        ("small", "left"): Word.UNDECIDED,
        ("small", "right"): Word.UNDECIDED,
    }
    # A verdict that stands in spite of it needs no word about it.
    assert judge_leads([UP], Rule(0.0, of, 0.5), [Diverged(0, 1)]).why == ""
    found = judge_leads([UP, UP], Rule(0.0, of, 0.5), [none, Diverged(2, 0)])
    assert (found.words, found.needs) == ((Single.LEADS, Single.UNDECIDED), "")
    alone = judge_leads([DOWN], Rule(0.0, of, 0.5), [Diverged(0, 1)])
    assert (alone.word, alone.words) == (Word.UNDECIDED, (Single.UNDECIDED,))


@pytest.mark.parametrize("of", ["each", "average"])
def test_a_lead_that_is_too_small_to_matter(of: Quantifier) -> None:
    """Its interval is within half a point of zero, on whichever side of it."""
    for middle in (0.12, 0.0, -0.12):
        small = seeds(middle - 0.05, middle, middle + 0.05)
        assert word(small, small, of=of) == Word.TOO_SMALL or middle > 0
        assert judge_leads([small], Rule(0.0, of, None)).word != Word.TOO_SMALL
    # On neither side may it be beyond.
    for sign in (1, -1):
        assert word(seeds(0.4 * sign, 0.8 * sign, 0.1 * sign), of=of) == Word.UNDECIDED
    # Nor may a single one be, of a claim about each, though their mean is small.
    across = seeds(1.0, -1.0, 0.5), seeds(-0.9, 1.05, -0.45)
    assert word(*across, of=of) == (Word.TOO_SMALL if of == "average" else Word.UNDECIDED)
    # A claim to lag by at most a point is no claim of a lead.
    assert word(small, small, by=-1.0, of=of) == Word.HOLDS


def test_what_is_not_computed_leaves_open_but_what_is_against() -> None:
    assert word(UP, {}) == word(UP, {}, of="average") == Word.UNDECIDED
    assert judge_leads([UP, {}], Rule()).needs == ""  # further seeds do not help
    assert word(DOWN, {}) == Word.DOES_NOT_HOLD
    assert word(DOWN, {}, of="average") == Word.UNDECIDED


def test_holms_family_is_the_claim_not_what_is_computed() -> None:
    """t = -6.5, p = .023: against among one or two comparisons, not among three."""
    lean = seeds(-1.0, -1.6, -1.1)
    (alone,) = (PairedTest.of(list(lean.values()), 0.0),)
    assert alone.p is not None and 0.05 / 3 < alone.p < 0.05 / 2
    for family, single in ((1, Single.AGAINST), (2, Single.AGAINST), (3, Single.AGAINST_BY_ITSELF)):
        found = judge_leads([lean, *[{}] * (family - 1)], Rule())
        assert found.words[0] == single
        assert found.comparisons[0].p == pytest.approx(family * alone.p)
    found = judge_leads([lean, WIDE, WIDE], Rule())
    assert found.words == (Single.AGAINST_BY_ITSELF, Single.UNDECIDED, Single.UNDECIDED)
    # Its own interval, which a page shows, is below zero in either case.
    test = found.comparisons[0].test
    assert test and test.high is not None and test.high < 0


def test_against_is_corrected_at_the_level_of_the_look() -> None:
    """Of five seeds, p = .019: against alone, as .0221 is the level, but not among two."""
    lean = seeds(-1.0, -0.1, -0.9, -0.4, -0.77)
    p = judge_leads([lean, lean], Rule()).comparisons[0].p
    assert p is not None and POCOCK < p < 0.05
    assert judge_leads([lean], Rule()).words == (Single.AGAINST,)
    assert judge_leads([lean, lean], Rule()).words == (Single.AGAINST_BY_ITSELF,) * 2


def test_against_is_beyond_the_margin() -> None:
    """An interval below zero that is within the margin, in part, is not against."""
    slight = seeds(-0.4, -0.55, -0.45)
    assert judge_leads([slight], Rule(margin=0.5)).words == (Single.UNDECIDED,)
    assert judge_leads([slight], Rule()).words == (Single.AGAINST,)
    far = judge_leads([seeds(-0.8, -0.85, -0.9)], Rule(margin=0.5))
    assert far.words == (Single.AGAINST,)
    wanted = stats.ttest_1samp([-0.8, -0.85, -0.9], -0.5).pvalue
    assert far.comparisons[0].p == pytest.approx(wanted)
    # The mean is tested against the claimed lead itself.
    assert far.overall and far.overall.p == pytest.approx(
        stats.ttest_1samp([-0.8, -0.85, -0.9], 0.0).pvalue
    )


def test_intervals_are_those_of_the_look() -> None:
    """Three looks at 2.21 % are one test at 5 %; three seeds are one look."""
    assert [level_at(n) for n in (2, 3, 4, 5, 15)] == [0.05] * 3 + [POCOCK] * 2
    for n in (3, 4, *LOOKS):
        leads = [float(each % 4) for each in range(n)]
        found = PairedTest.of(leads, 0.5)
        wanted = stats.ttest_1samp(leads, 0.5)
        low, high = wanted.confidence_interval(1 - level_at(n))
        assert (found.low, found.high) == pytest.approx((low, high))
        assert found.p == pytest.approx(wanted.pvalue)
        again = found.with_seeds(n, 0.5)
        assert (again.low, again.high, again.p) == pytest.approx((found.low, found.high, found.p))


def test_seeds_are_blocks() -> None:
    """What one comparison gains by a seed another loses: the mean has no spread of its own."""
    found = judge_leads([seeds(1.0, 5.0, 3.2), seeds(5.0, 1.0, 3.0)], Rule())
    assert found.overall and found.overall.low is not None and found.overall.low > 2.8
    assert found.word == Word.LEADS_ON_AVERAGE
    # Only seeds that all computed comparisons have.
    found = judge_leads([seeds(1.0, 5.0, 3.2), {2: 1.0, 3: 3.0}, {}], Rule())
    assert found.overall and found.overall.seeds == 2


def test_an_open_claim_says_how_many_seeds_decide() -> None:
    leads = seeds(1.0, 3.0, -1.0)
    found = judge_leads([leads], Rule())
    assert found.word == Word.UNDECIDED
    wanted = next(
        n for n in range(4, 101)
        if stats.t.ppf(1 - level_at(n) / 2, n - 1) * 2 / n**0.5 < 1
    )  # fmt: skip
    assert found.needs == str(wanted) and str(wanted) in found.why
    # Of a claim about each, all comparisons are to be decided, not only their mean.
    both = judge_leads([UP, leads], Rule())
    assert (both.word, both.needs) == (Word.UNDECIDED, str(wanted))
    # Beside a number that is no exact one stands a word.
    assert re.fullmatch(r"\D+ 2", judge_leads([seeds(1.0)], Rule()).needs)
    assert re.fullmatch(r"\D+ 100", judge_leads([seeds(0.01, 9.0, -9.0)], Rule()).needs)


def spread_out(n: int, *pairs: tuple[float, float]) -> list[dict[int, float]]:
    """Leads of these means and deviations over ``n`` seeds, which move all alike."""
    steps = np.linspace(-1.0, 1.0, n)
    steps /= np.std(steps, ddof=1)
    return [seeds(*map(float, mean + std * steps)) for mean, std in pairs]


@pytest.mark.parametrize(
    ("rule", "pairs", "decided"),
    [
        (Rule(), [(2.0, 1.0)], Word.HOLDS),
        (Rule(), [(0.9, 1.0), (0.4, 0.9)], Word.HOLDS),
        (Rule(margin=0.5), [(1.5, 1.0), (0.0, 0.4)], Word.NOT_BEHIND),
        (Rule(margin=0.5), [(-1.2, 1.0), (-1.0, 1.0), (0.3, 1.0)], Word.DOES_NOT_HOLD),
        (Rule(margin=0.5), [(0.05, 0.6)], Word.TOO_SMALL),
        (Rule(1.0, "amount"), [(1.6, 0.7)], Word.HOLDS),
        (Rule(1.0, "average"), [(3.0, 2.0), (0.1, 0.5)], Word.HOLDS),
        (Rule(0.0, "more", 0.5), [(-0.5, 1.0), (-0.2, 0.5)], Word.DOES_NOT_HOLD),
        (Rule(0.0, "same", 0.5), [(0.1, 0.4), (-0.2, 0.3)], Word.HOLDS),
    ],
)
def test_a_forecast_is_the_first_number_of_seeds_that_decides(
    rule: Rule, pairs: list[tuple[float, float]], decided: Word
) -> None:
    for have in (2, 3):
        found = judge_leads(spread_out(have, *pairs), rule)
        assert found.word in OPEN
        later = ((n, judge_leads(spread_out(n, *pairs), rule).word) for n in range(have + 1, 101))
        seeds_needed, word = next((n, word) for n, word in later if word not in OPEN)
        assert (found.needs, word) == (str(seeds_needed), decided)


SPREAD = Spread(over="seeds", source="known", seeds=5, ddof=1)


@pytest.fixture(scope="module")
def pair() -> Pair:
    papers = published.load(ROOT)
    claim = next(each for each in papers.claims if each.anchor == "fedgo-accuracy")
    return printed_pairs(claim, papers)[0]


@pytest.mark.parametrize("over", ["each", "average"])
def test_printed_numbers_are_tested_by_their_own_spread(pair: Pair, over: Quantifier) -> None:
    """Against scipy's Welch test, on either side of p = .05."""
    papers = published.load(ROOT)
    claim = next(each for each in papers.claims if each.anchor == "fedgo-accuracy")
    claim = claim.model_copy(update={"quantifier": over})
    for lead in (0.5, 1.0, 1.5, 2.0, 3.0):
        left = replace(pair.left, mean=70 + lead, std=1.0)
        right = replace(pair.right, mean=70.0, std=1.3)
        found = judge_printed(claim, [Pair(left, right, lead)], SPREAD)
        p = stats.ttest_ind_from_stats(70 + lead, 1.0, 5, 70, 1.3, 5, equal_var=False).pvalue
        assert found.beyond == (p < 0.05)
        assert found.word == (PrintedWord.SUPPORTS if p < 0.05 else PrintedWord.WITHIN_THE_SPREAD)
    # Over clients, or not printed, a spread says nothing about seeds.
    clients = SPREAD.model_copy(update={"over": "clients"})
    for spread, std in ((clients, 1.0), (SPREAD, None)):
        near = Pair(replace(left, std=std), right, 0.5)
        found = judge_printed(claim, [near], spread)
        assert (found.word, found.beyond) == (PrintedWord.SUPPORTS, None)


@pytest.mark.parametrize(("lead", "beyond"), [(0.9, False), (1.0, True)])
def test_a_mean_of_leads_scatters_less_than_each(pair: Pair, lead: float, beyond: bool) -> None:
    """Four numbers that count by half: 2.12 x sqrt(4 x (1/2)^2 / 5) is 0.948, of 16 degrees."""
    claim = published.load(ROOT).claims[0].model_copy(update={"by": 0.0})
    spread = SPREAD.model_copy(update={"ddof": 1})
    pairs = [
        Pair(replace(pair.left, mean=mean + lead, std=1.0), replace(pair.right, mean=mean, std=1.0),
             lead)
        for mean in (70.0, 75.0)
    ]  # fmt: skip
    assert _is_beyond(claim, pairs, spread) == beyond


@pytest.mark.parametrize(("lead", "beyond"), [(1.2, False), (1.3, True)])
def test_a_number_of_several_pairs_scatters_in_all_of_them(
    pair: Pair, lead: float, beyond: bool
) -> None:
    """2.306 x sqrt((2 x (1/2)^2 + 1) / 5) is 1.263, of 8 degrees."""
    claim = published.load(ROOT).claims[0].model_copy(update={"by": 0.0})
    spread = SPREAD.model_copy(update={"ddof": 1})
    lefts = [replace(pair.left, mean=70 + lead, std=1.0, method=name) for name in "ab"]
    right = replace(pair.right, mean=70.0, std=1.0)
    assert _is_beyond(claim, [Pair(left, right, lead) for left in lefts], spread) == beyond
    mirrored = [replace(each, mean=70 - lead) for each in lefts]
    pairs = [Pair(right, each, lead) for each in mirrored]  # the same on the other side
    assert _is_beyond(claim, pairs, spread) == beyond


def test_ties_as_printed_are_a_state_of_their_own(pair: Pair) -> None:
    papers = published.load(ROOT)
    claim = next(each for each in papers.claims if each.anchor == "fedgo-accuracy")
    ahead, tie, behind = (replace(pair, lead=lead) for lead in (1.0, 0.0, -1.0))
    for pairs, said in (
        ([ahead, tie], PrintedWord.BUT_FOR_TIES),
        ([ahead, tie, behind], PrintedWord.DOES_NOT_SUPPORT),
        ([ahead, ahead], PrintedWord.SUPPORTS),
    ):
        found = judge_printed(claim, pairs)
        assert (found.word, found.ties) == (said, pairs.count(tie))
        assert found.held == pairs.count(ahead)
