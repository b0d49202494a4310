import html
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from fedrepro.report.cells.claims import margin_of
from fedrepro.report.pages.templates import environment
from fedrepro.report.papers import published
from fedrepro.report.papers.estimate import Borrowed, Estimate, Paired
from fedrepro.report.papers.pairs import Pair
from fedrepro.report.papers.published import PrintedCell, PrintedMetric, Spread
from fedrepro.report.papers.verdict import (
    MOST_SEEDS,
    TWINS,
    WORDS,
    Verdict,
    judge,
    judge_computed,
    least_seeds,
    tolerance,
)
from support.places import ROOT

NO_SPREAD = Spread(over="none", source="one seed")
CLIENTS = Spread(over="clients", source="item 32")
FEDGO = Spread(over="seeds", source="item A19", seeds=5, ddof=0)
AAGGFF = Spread(over="seeds", source="scripts", seeds=3, ddof=1)


# By hand: Student's t, 97.5 %, two degrees of freedom, and what a further draw has of it for n = 3.
T_2 = 4.302653
DRAW_OF_3 = T_2 * math.sqrt(4 / 3)
DIGIT = 0.005  # half a unit of the last printed digit, which every limit includes


def printed(
    mean: float | None = 80.0, std: float | None = None, metric: str = "acc1", decimals: int = 2
) -> PrintedCell:
    kind = PrintedMetric(
        unit={"acc1": "percent", "worst10": "percent", "ece": "fraction"}.get(metric, "own")
    )
    text = "empty" if mean is None else f"{mean:.{decimals}f}"
    number = ("d", "c", "m", metric, mean, std, text, decimals, "")
    return PrintedCell(*number, "s", "table_1", "1", kind)


def test_estimate_by_students_t() -> None:
    ours = Estimate.of([80.0, 82.0, 84.0])
    assert ours.mean == 82
    assert ours.std == pytest.approx(2)
    interval = stats.t.interval(0.95, 2, loc=82, scale=2 / math.sqrt(3))
    assert ours.half_width == pytest.approx(interval[1] - 82)


def test_one_value_has_no_spread() -> None:
    assert Estimate.of([3.0]) == Estimate(1, 3.0, None, None)


def test_no_value_has_no_estimate() -> None:
    with pytest.raises(ValueError, match="estimate"):
        Estimate.of([])


@pytest.mark.parametrize("spread", [NO_SPREAD, CLIENTS])
@pytest.mark.parametrize("ours", [81.0, 99.0])
def test_one_seed_without_a_spread_is_undecided(spread: Spread, ours: float) -> None:
    cell = printed(std=11.0 if spread is CLIENTS else None)
    found = judge(cell, Estimate.of([ours]), spread)
    assert (found.word, found.basis, found.limit, found.seeds) == ("undecided", None, None, 1)
    assert re.fullmatch(r"\D+ 2", found.needs) and found.why


def test_seeds_that_do_not_vary_show_no_spread() -> None:
    found = judge(printed(), Estimate.of([90.0, 90.0]), NO_SPREAD)
    assert (found.word, found.limit, found.needs) == ("undecided", None, "")
    assert found.why


@pytest.mark.parametrize(
    ("mean", "metric", "expected"),
    [(80, "acc1", 1), (96, "acc1", 1), (99, "acc1", 0.25), (2, "acc1", 0.5), (50, "worst10", 1),
     (0.5, "ece", 0.01), (0.02, "ece", 0.005), (100, "acc1", 0), (300, "rounds_to_target", 0)],
)  # fmt: skip
def test_the_tolerance_is_a_quarter_of_the_error_rate(
    mean: float, metric: str, expected: float
) -> None:
    assert tolerance(printed(mean, None, metric)) == pytest.approx(expected)


def test_one_seed_may_borrow_a_spread() -> None:
    """Of 98.3 against 99.3, where a quarter of the errors is .175 points."""
    lent = Borrowed(0.05, 2, "the 3 seeds next door")
    found = judge(printed(99.3), Estimate.of([98.3]), CLIENTS, borrowed=lent)
    assert (found.word, found.basis) == ("differs", "borrowed")
    assert found.limit == pytest.approx(T_2 * 0.05 * math.sqrt(2) + DIGIT)
    assert "the 3 seeds next door" in found.why
    close = judge(printed(99.3), Estimate.of([99.2]), CLIENTS, 1.0, borrowed=lent)
    assert (close.word, close.margin) == ("agrees", 1.0)
    # A spread that is not its own never makes a difference out of less than the tolerance.
    found = judge(printed(), Estimate.of([80.9]), NO_SPREAD, borrowed=lent)
    assert found.word == "undecided" and "own" in found.why
    # Seeds of one's own come first.
    own = judge(printed(), Estimate.of([80.9, 80.9, 80.8]), NO_SPREAD, borrowed=lent)
    assert own.basis == "draw"


def test_a_printed_number_is_one_draw() -> None:
    wide = Estimate.of([81.6, 82.0, 82.4])
    found = judge(printed(), wide, NO_SPREAD)
    assert found.limit == pytest.approx(DRAW_OF_3 * 0.4 + DIGIT)  # 1.99
    assert (found.word, found.basis) == ("differs", "draw")
    assert judge(printed(80.1), wide, NO_SPREAD).word == "undecided"


def test_agreement_needs_difference_and_limit_within_the_margin() -> None:
    """Not either of them alone: 2.8 is not excluded here, although 1.5 is claimed."""
    ours = Estimate(5, 61.4, 0.99, None)
    found = judge(printed(60.0, 0.89), ours, FEDGO, claimed_effect=1.5)
    assert found.limit is not None and found.limit < 1.5 and found.word == "undecided"
    near = replace(ours, mean=60.05, std=0.5)
    assert judge(printed(60.0, 0.5), near, FEDGO, claimed_effect=1.5).word == "agrees"
    # The largest margin is two points, and the least difference may be beyond chance.
    sure = Estimate.of([61.0, 61.01, 61.02])
    found = judge(printed(60.0), sure, NO_SPREAD, claimed_effect=30.0)
    assert (found.word, found.margin) == ("agrees", 2.0)
    assert found.limit is not None and found.limit < 0.1
    assert judge(printed(60.0), sure, NO_SPREAD, claimed_effect=0.9).word == "differs"
    assert judge(printed(60.5), sure, NO_SPREAD, claimed_effect=0.3).word == "differs"
    # Without an effect it is the tolerance; equal printed numbers claim none.
    for effect in (None, 0.0):
        assert judge(printed(60.0), sure, NO_SPREAD, claimed_effect=effect).margin == 1.0


def test_what_is_undecided_says_how_many_seeds_decide() -> None:
    """If difference and spread stay: the first number of seeds with which the word is another."""
    for spread, effect, gap in ((0.3, 1.5, 0.4), (1.0, 2.0, 3.0), (0.4, 2.0, 1.0)):
        found = judge(printed(), three(80 + gap, spread), NO_SPREAD, effect)
        assert found.word == "undecided"

        def word(n: int, spread: float = spread, effect: float = effect, gap: float = gap) -> str:
            return judge(printed(), Estimate(n, 80 + gap, spread, None), NO_SPREAD, effect).word

        wanted = next(n for n in range(4, 101) if word(n) != "undecided")
        assert found.needs == str(wanted) and re.search(rf"\b{wanted}\b", found.why)
    # The printed number is one draw, however many seeds of ours there are.
    for found in (
        judge(printed(), three(81.0, 1.0), NO_SPREAD, 1.5),
        judge(printed(80.0, 3.0), three(81.0, 1.0), FEDGO, 1.5),
    ):
        assert re.fullmatch(r"\D+ 100", found.needs)  # more than that


def three(mean: float, std: float) -> Estimate:
    return Estimate.of([mean - std, mean, mean + std])


@pytest.mark.parametrize(
    ("cell", "ours", "spread", "lent", "std"),
    [
        # One seed of ours scatters as the printed ones, whose spread is that of a population.
        (printed(80.0, 0.8), Estimate.of([80.5]), FEDGO, None, 0.8 * math.sqrt(5 / 4)),
        (printed(80.0, 0.8), Estimate(2, 80.5, 1.5, None), FEDGO, None, 1.5),
        (printed(), Estimate.of([80.5]), NO_SPREAD, Borrowed(0.3, 2, "next door"), 0.3),
        (printed(decimals=0), three(80.6, 0.4), NO_SPREAD, None, 0.4),
        (printed(), three(80.6, 0.699), NO_SPREAD, None, 0.699),
    ],
)
def test_a_forecast_is_what_so_many_seeds_with_this_spread_say(
    cell: PrintedCell, ours: Estimate, spread: Spread, lent: Borrowed | None, std: float
) -> None:
    found = judge(cell, ours, spread, 2.0, borrowed=lent)
    later = (
        (n, judge(cell, Estimate(n, ours.mean, std, None), spread, 2.0).word)
        for n in range(ours.n + 1, 101)
    )
    needed = next(n for n, word in later if word != "undecided")
    assert (found.word, found.needs) == ("undecided", str(needed))


def test_the_least_number_of_seeds() -> None:
    decided = [least_seeds(lambda n, at=at: n >= at, 3) for at in (2, 4, 57, MOST_SEEDS)]
    assert decided == [4, 4, 57, MOST_SEEDS]
    assert least_seeds(lambda n: n > MOST_SEEDS, 3) is None
    assert least_seeds(lambda n: True, MOST_SEEDS) is None


def test_a_fraction_has_a_hundredth_for_a_point() -> None:
    ours = Estimate.of([0.1799, 0.18, 0.1801])
    cell = printed(0.18, 0.03, "ece", 3)
    assert (judge(cell, ours, CLIENTS).word, judge(cell, ours, CLIENTS).margin) == ("agrees", 0.01)
    assert judge(replace(cell, mean=0.16), ours, CLIENTS).word == "differs"


SPREADS = [NO_SPREAD, CLIENTS, FEDGO, AAGGFF]


def a_hundredth(cell: PrintedCell) -> PrintedCell:
    """The same number as a fraction of 1."""
    one, std = cell.mean, cell.std
    assert one is not None
    kind = cell.kind.model_copy(update={"unit": "fraction"})
    less = None if std is None else std / 100
    decimals = cell.decimals + 2
    text = f"{one / 100:.{decimals}f}"
    return replace(cell, mean=one / 100, std=less, text=text, decimals=decimals, kind=kind)


@pytest.mark.parametrize("mean", [0.4, 3.0, 18.0, 50.0, 97.0, 99.6])
@pytest.mark.parametrize("effect", [None, 0.3, 1.5, 30.0])
def test_a_fraction_is_judged_as_the_same_number_in_percent(
    mean: float, effect: float | None
) -> None:
    """Words, limits and margins, by every kind of limit: an ECE of .18 is one of 18 %."""
    random, words = np.random.default_rng(1), set()
    for number in range(60):
        spread = SPREADS[number % 4]
        std = None if spread is NO_SPREAD else float(random.uniform(0.05, 3))
        cell = printed(mean, std)
        size, scale = int(random.integers(1, 6)), float(random.choice([0.03, 0.3, 1.5]))
        values = mean + random.normal(0, 1) * 1.5 + scale * random.normal(size=size)
        own = float(random.uniform(0.02, 0.6))
        paired = Paired(own, size, 3) if size > 1 and number % 3 == 0 else None
        lent = Borrowed(own, 2, "others") if number % 2 else None
        lent_less = Borrowed(own / 100, 2, "others") if lent else None
        found = judge(cell, Estimate.of([*map(float, values)]), spread, effect, paired, lent)
        less = judge(
            a_hundredth(cell),
            Estimate.of([float(value) / 100 for value in values]),
            spread,
            None if effect is None else effect / 100,
            replace(paired, std=own / 100) if paired else None,
            lent_less,
        )
        words.add(found.word)
        assert (found.word, found.basis, found.needs) == (less.word, less.basis, less.needs)
        for of_percent, of_one in ((found.limit, less.limit), (found.margin, less.margin)):
            if of_percent is None or of_one is None:
                assert of_percent == of_one
            else:
                assert of_percent == pytest.approx(100 * of_one)
    assert len(words) > 1


@pytest.mark.parametrize("by", [0.0, 1.0])
def test_what_is_too_small_to_matter_is_so_in_either_unit(by: float) -> None:
    """Half a point, or .005; other units have no such margin, nor has a claim of some size."""
    claim = published.load(ROOT).claims[0].model_copy(update={"by": by, "margin": None})
    margins = []
    for cell in (printed(18.0), a_hundredth(printed(18.0)), printed(18.0, metric="loss")):
        margins.append(margin_of(claim, [Pair(cell, cell, 0.0)]))
    assert margins == ([None] * 3 if by else [0.5, 0.005, None])
    own = claim.model_copy(update={"by": 0.0, "margin": 2.0})
    assert margin_of(own, [Pair(printed(), printed(), 0.0)]) == 2.0


def test_methods_are_twins_by_the_same_difference_in_either_unit() -> None:
    """Of a hundredth of the numbers a hundredth of the spread, also where some are twins."""
    assert TWINS["percent"] == pytest.approx(100 * TWINS["fraction"]) and not TWINS["own"]
    random = np.random.default_rng(2)
    for _ in range(20):
        own, first, second = random.normal(70, 2, (3, 4))
        others = [first, second, first + 0.04 * random.uniform(-1, 1, 4), own + 0.06]
        found = Paired.of(own, others, TWINS["percent"])
        less = Paired.of(own / 100, [each / 100 for each in others], TWINS["fraction"])
        assert found is not None and less is not None
        assert (found.seeds, found.others) == (less.seeds, less.others) == (4, 3)
        assert found.std == pytest.approx(100 * less.std)


def test_other_units_have_no_tolerance() -> None:
    rounds = printed(260, None, "rounds_to_target", 0)
    assert judge(rounds, Estimate.of([261.0]), NO_SPREAD).word == "undecided"
    ours = Estimate.of([255.0, 262.0, 266.0])
    found = judge(rounds, ours, NO_SPREAD)
    assert (found.word, found.basis, found.margin) == ("undecided", "draw", None)
    assert "claimed" in found.why
    assert judge(rounds, ours, NO_SPREAD, claimed_effect=9.0).word == "undecided"
    assert judge(rounds, ours, NO_SPREAD, claimed_effect=60.0).word == "agrees"


def test_joint_standard_error_is_welchs() -> None:
    """Against scipy's own Welch test, whose degrees of freedom are rounded down here."""
    ours = [70.0, 71.0, 72.0]
    sample = 1.5 * math.sqrt(5 / 4)  # the printed spread is a population one
    for mean in (68.0, 68.6, 69.0, 70.0, 73.5, 74.5):
        wanted = stats.ttest_ind_from_stats(71, 1, 3, mean, sample, 5, equal_var=False)
        degrees = math.floor((1 / 3 + sample**2 / 5) ** 2 / (1 / 18 + sample**4 / 100))
        p = 2 * stats.t.sf(abs(wanted.statistic), degrees)
        verdict = judge(printed(mean, 1.5), Estimate.of(ours), FEDGO)
        assert (verdict.word == "differs") == (p < 0.05), (mean, p)
        assert verdict.basis == "joint"


def test_population_and_sample_spread_differ() -> None:
    ours = Estimate.of([70.0, 71.0, 72.0])
    as_population = judge(printed(70, 1.5), ours, FEDGO).limit
    as_sample = judge(printed(70, 1.5), ours, replace_ddof(FEDGO)).limit
    assert as_population is not None
    assert as_sample is not None
    assert as_population > as_sample


def replace_ddof(spread: Spread) -> Spread:
    return spread.model_copy(update={"ddof": 1})


def test_with_one_seed_the_printed_spread_stands_for_ours() -> None:
    found = judge(printed(70, 1.0), Estimate.of([74.0]), AAGGFF)
    assert found.limit == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 1) + DIGIT)
    assert (found.word, found.basis) == ("undecided", "joint")
    assert found.why


def test_a_methods_own_scatter_about_the_others() -> None:
    """Seeds shift both by -1, -1, 2 and -3, 1, 2: 2, -2, 0 remain of the first."""
    own, other = [12.0, 12.0, 15.0], [12.0, 16.0, 17.0]
    found = Paired.of(own, [other], 0.05)
    assert found == Paired(pytest.approx(2.0), 3, 1)
    # Its twins do not count, and others that are twins count once.
    twins = [[12.01, 12.0, 14.97], [12.0, 16.04, 17.0]]
    assert Paired.of(own, [twins[0], other, twins[1]], 0.05) == found
    assert Paired.of(own, [twins[0], other, twins[1]], 0.0).others == 3
    assert Paired.of(own, [twins[0]], 0.05) is None
    assert Paired.of(own, [], 0.05) is None and Paired.of([1.0], [[2.0]], 0.05) is None
    # Methods are compared by what a seed does to them, however high they are: -2, -1, 2 is the
    # median of -2, -1, 3 and -2, 3, -1 and -1, -1, 2, and leaves 0, 2, -1 of -2, 1, 1.
    levels = [[11.0, 12.0, 16.0], [50.0, 55.0, 51.0], [90.0, 90.0, 93.0]]
    apart = Paired.of([70.0, 73.0, 73.0], levels, 0.05)
    assert apart == Paired(pytest.approx(math.sqrt(7 / 3)), 3, 3)


def test_one_method_that_scatters_widens_its_own_limit_only() -> None:
    calm = [[0.0, 10.0 + 0.1 * k, 20.0] for k in range(1, 6)]
    wild = [0.0, 18.0, 12.0]
    alone = Paired.of(calm[0], calm[1:], 0.0)
    beside = Paired.of(calm[0], [*calm[1:], wild], 0.0)
    assert alone and beside and beside.std < 2 * alone.std < 0.3
    own = Paired.of(wild, calm, 0.0)
    assert own and own.std > 7


def test_on_the_authors_own_splits_what_seeds_share_cancels() -> None:
    """Seeds that differ by ten points: no difference of less is seen but seed by seed."""
    ours = Estimate.of([70.0, 80.0, 90.0])
    cell = printed(77.0, 8.0)
    assert judge(cell, ours, AAGGFF).word == "undecided"
    steady = Paired(0.3, 3, 5)
    found = judge(cell, ours, AAGGFF, claimed_effect=4.0, paired=steady)
    assert found.limit == pytest.approx(T_2 * 0.3 * math.sqrt(2 / 3) + DIGIT)
    assert (found.word, found.basis) == ("differs", "paired")
    assert judge(printed(79.5, 8.0), ours, AAGGFF, 4.0, steady).word == "agrees"
    found = judge(printed(79.5, 8.0), ours, AAGGFF, 0.8, steady)
    assert (found.word, found.needs) == ("undecided", "")
    assert found.why


def test_a_spread_of_zero_counts_as_unknown() -> None:
    """Three equal printed seeds, as three of ours, say nothing about a fourth."""
    assert judge(printed(70.0, 0.0), Estimate.of([75.0]), AAGGFF).limit is None
    assert judge(printed(70.0, 0.0), three(75.0, 1.0), AAGGFF).basis == "draw"
    same = judge(printed(70.0, 1.0), three(75.0, 1.0), AAGGFF, paired=Paired(0.0, 3, 4))
    assert same.basis == "joint"


def test_a_verdict_is_read_as_it_was_written() -> None:
    for word in WORDS:
        today = Verdict(word, "", 1.0, "paired", 2.0, 3)
        values = TypeAdapter(Verdict).dump_python(today, mode="json")
        assert TypeAdapter(Verdict).validate_python(values) == today


def test_an_empty_printed_cell_is_not_comparable() -> None:
    assert judge(printed(None), Estimate.of([1.0]), FEDGO).word == "not comparable"


@pytest.mark.parametrize(
    ("word", "basis", "is_current"),
    [("not comparable", None, False), ("not comparable", "not comparable", True),
     ("undecided", None, True), ("differs", "joint", True)],
)  # fmt: skip
def test_a_number_of_current_runs_may_be_of_another_kind(
    word: Any, basis: Any, is_current: bool
) -> None:
    assert Verdict(word, "", basis=basis).is_of_current_runs == is_current


@pytest.mark.parametrize("spread", [NO_SPREAD, CLIENTS, FEDGO, AAGGFF])
def test_the_rule_is_said_in_words(spread: Spread) -> None:
    macros = environment(ROOT / "reports/templates").get_template("macros.html.j2").module
    text = html.unescape(str(macros.rule(spread, 100, TWINS["percent"])))  # type: ignore[attr-defined]
    assert spread.source in text
    assert "demo" in text
    assert ("population" in text) == (spread is FEDGO)


@pytest.mark.parametrize(
    ("text", "half"),
    [("1500", 0.5), ("1.5e3", 50.0), ("1.50e3", 5.0), ("1.5E-3", 0.00005), ("0.25", 0.005),
     ("2e0", 0.5)],
)  # fmt: skip
def test_a_limit_includes_half_of_the_last_digit_however_it_is_printed(
    text: str, half: float
) -> None:
    cell = replace(printed(float(text), metric="own"), text=text)
    verdict = judge(cell, Estimate(3, float(text), half, None), NO_SPREAD)
    assert verdict.limit == pytest.approx(half * (1 + DRAW_OF_3))


@pytest.mark.parametrize(
    ("text", "ours", "numbers", "word"),
    [
        ("300", 303, ["3.00", "0"], "differs"),
        ("0.25", 0.26, ["0.0100", "0.01"], "agrees"),
        ("1.5e6", 1_712_345, ["2.12e+05", "100000"], "differs"),
    ],
)
def test_a_computed_difference_is_told_in_the_printed_unit(
    text: str, ours: float, numbers: list[str], word: str
) -> None:
    """A count and a rounded number get two digits more, a number in powers of ten three in all."""
    decimals = len(text.partition(".")[2]) if "e" not in text else 0
    cell = replace(printed(float(text), decimals=decimals), text=text)
    found = judge_computed(cell, ours)
    assert found.word == word
    assert re.findall(r"\d[\d.e+]*\b", found.why) == numbers


@pytest.mark.parametrize(
    ("text", "std", "ours", "our_std", "word"),
    [("300", None, 300, None, "agrees"), ("300", None, 301, None, "differs"),
     ("0.25", None, 0.26, None, "agrees"), ("0.25", None, 0.2612, None, "differs"),
     ("1.5e6", None, 1.6e6, None, "agrees"), ("1.5e6", None, 1.61e6, None, "differs"),
     ("0.25", 0.05, 0.25, 0.06, "agrees"), ("0.25", 0.05, 0.25, 0.08, "differs"),
     ("0.25", 0.05, 0.28, 0.05, "differs"), ("0.25", 0.05, 0.26, None, "agrees"),
     ("0.25", None, 0.26, 0.9, "agrees")],
)  # fmt: skip
def test_a_computed_number_agrees_within_its_last_printed_digit(
    text: str, std: float | None, ours: float, our_std: float | None, word: str
) -> None:
    """Mean and spread; a count only if it is equal."""
    decimals = len(text.partition(".")[2]) if "e" not in text else 0
    cell = replace(printed(float(text), std, decimals=decimals), text=text)
    found = judge_computed(cell, ours, our_std)
    assert (found.word, found.basis) == (word, "arithmetic")
