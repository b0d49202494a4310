import math
from dataclasses import replace

import pytest
from scipy import stats

from fedrepro.report.papers.estimate import Estimate, Residual
from fedrepro.report.papers.published import PrintedCell, PrintedMetric, Spread
from fedrepro.report.papers.verdict import judge, judge_computed, rule_in_words, tolerance

NO_SPREAD = Spread(over="none", source="one seed")
CLIENTS = Spread(over="clients", source="item 32")
FEDGO = Spread(over="seeds", source="item A19", seeds=5, ddof=0)
AAGGFF = Spread(over="seeds", source="scripts", seeds=3, ddof=1)


# By hand: Student's t, 97.5 %, two degrees of freedom, and what a further draw has of it for n = 3.
T_2 = 4.302653
DRAW_OF_3 = T_2 * math.sqrt(4 / 3)


def printed(
    mean: float | None = 80.0, std: float | None = None, metric: str = "acc1", decimals: int = 2
) -> PrintedCell:
    kind = PrintedMetric(
        unit={"acc1": "percent", "worst10": "percent", "ece": "fraction"}.get(metric, "own")
    )
    place = ("s", "table_1", "1", "d", "c", "m", metric)
    return PrintedCell(*place, mean, std, "", decimals, "", kind)


def test_estimate_by_students_t() -> None:
    ours = Estimate.of([80.0, 82.0, 84.0])
    assert ours.mean == 82
    assert ours.std == pytest.approx(2)
    interval = stats.t.interval(0.95, 2, loc=82, scale=2 / math.sqrt(3))
    assert ours.half_width == pytest.approx(interval[1] - 82)
    assert ours.reach_of_a_draw == pytest.approx(2 * ours.half_width)  # for n = 3


def test_one_value_has_no_spread() -> None:
    assert Estimate.of([3.0]) == Estimate(1, 3.0, None, None)


def test_no_value_has_no_estimate() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Estimate.of([])


@pytest.mark.parametrize("spread", [NO_SPREAD, CLIENTS])
def test_one_point_decides_for_one_seed(spread: Spread) -> None:
    cell = printed(std=11.0 if spread is CLIENTS else None)
    assert judge(cell, Estimate.of([81.0]), spread).word == "agrees"
    assert judge(cell, Estimate.of([81.01]), spread).word == "differs"
    assert judge(cell, Estimate.of([78.9]), spread).word == "differs"
    found = judge(cell, Estimate.of([81.0]), spread)
    assert (found.basis, found.seeds) == ("tolerance", 1)
    assert "one seed" in found.why


@pytest.mark.parametrize(
    ("mean", "metric", "expected"),
    [(80, "acc1", 1), (96, "acc1", 1), (99, "acc1", 0.25), (2, "acc1", 0.5), (50, "worst10", 1),
     (0.5, "ece", 0.01), (0.02, "ece", 0.005), (100, "acc1", 0), (300, "rounds_to_target", 0)],
)  # fmt: skip
def test_the_tolerance_is_a_quarter_of_the_error_rate(
    mean: float, metric: str, expected: float
) -> None:
    assert tolerance(printed(mean, None, metric)) == pytest.approx(expected)


def test_near_all_right_a_point_is_much() -> None:
    """98.3 has 2.4 times the errors of 99.3."""
    assert judge(printed(99.3), Estimate.of([98.3]), CLIENTS).word == "differs"
    assert judge(printed(99.3), Estimate.of([99.2]), CLIENTS).word == "agrees"


def test_a_draw_decides_where_it_reaches_further() -> None:
    wide = Estimate.of([81.6, 82.0, 82.4])
    found = judge(printed(), wide, NO_SPREAD)
    assert found.limit == pytest.approx(DRAW_OF_3 * 0.4)  # 1.99
    assert (found.word, found.basis) == ("differs", "draw")
    assert judge(printed(80.1), wide, NO_SPREAD).word == "agrees"
    narrow = Estimate.of([81.99, 82.0, 82.01])
    found = judge(printed(), narrow, NO_SPREAD)
    assert (found.word, found.limit, found.basis) == ("differs", 1.0, "tolerance")


def test_a_limit_beyond_two_points_is_weak() -> None:
    wide = Estimate.of([81.0, 82.0, 83.0])
    found = judge(printed(), wide, NO_SPREAD)
    assert found.limit == pytest.approx(DRAW_OF_3)  # 4.97
    assert found.word == "weak"
    assert "two percentage points" in found.why


def test_a_limit_beyond_the_claimed_effect_is_weak() -> None:
    ours = Estimate.of([80.2])
    assert judge(printed(), ours, NO_SPREAD, effect=1.0).word == "agrees"
    found = judge(printed(), ours, NO_SPREAD, effect=0.9)
    assert (found.word, found.effect) == ("weak", 0.9)
    assert "the effect that the paper claims here" in found.why
    # One that differs is told apart, weak or not.
    assert judge(printed(), Estimate.of([82.0]), NO_SPREAD, effect=0.9).word == "differs"


def test_a_fraction_has_a_hundredth_for_a_point() -> None:
    assert judge(printed(0.17, 0.03, "ece"), Estimate.of([0.18]), CLIENTS).word == "agrees"
    assert judge(printed(0.17, 0.03, "ece"), Estimate.of([0.19]), CLIENTS).word == "differs"


def test_other_units_have_no_point() -> None:
    rounds = printed(260, None, "rounds_to_target", 0)
    assert judge(rounds, Estimate.of([261.0]), NO_SPREAD).word == "not comparable"
    found = judge(rounds, Estimate.of([255.0, 262.0, 266.0]), NO_SPREAD)
    assert (found.word, found.basis) == ("agrees", "draw")
    assert judge(rounds, Estimate.of([255.0, 262.0, 266.0]), NO_SPREAD, effect=9.0).word == "weak"


def test_joint_standard_error_is_welchs() -> None:
    """Against scipy's own Welch test, on either side of p = 0.05."""
    ours = [70.0, 71.0, 72.0]
    sample = 1.5 * math.sqrt(5 / 4)  # the printed spread is a population one
    for mean in (68.0, 68.6, 69.0, 70.0, 73.5, 74.5):
        p = stats.ttest_ind_from_stats(71, 1, 3, mean, sample, 5, equal_var=False).pvalue
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
    assert found.limit == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 1))
    assert found.word == "weak"  # a limit of 4.97 points
    assert "one seed" in found.why


def test_what_two_methods_leave_over_the_same_seeds() -> None:
    """Means of the seeds 12, 14, 16, of the methods 13, 15; 1, -1, 0 and its mirror remain."""
    found = Residual.of([[12.0, 12.0, 15.0], [12.0, 16.0, 17.0], [12.0, 12.0, 15.0]])
    assert found is not None
    assert (found.methods, found.degrees) == (2, 2)  # equal ones count once
    assert found.std == pytest.approx(math.sqrt(4 / 2))
    assert found.limit(3) == pytest.approx(T_2 * math.sqrt(2) * math.sqrt(2 / 3))


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], [[1.0], [2.0]]])
def test_a_residual_needs_two_methods_and_seeds(values: list[list[float]]) -> None:
    assert Residual.of(values) is None


def test_on_the_authors_own_splits_what_seeds_share_cancels() -> None:
    """Seeds that differ by ten points: no difference of less is seen but seed by seed."""
    ours = Estimate.of([70.0, 80.0, 90.0])
    cell = printed(77.0, 8.0)
    assert judge(cell, ours, AAGGFF).word == "weak"
    steady = Residual(0.5, 8, 5)
    found = judge(cell, ours, AAGGFF, effect=4.0, residual=steady)
    assert found.limit == pytest.approx(stats.t.ppf(0.975, 8) * 0.5 * math.sqrt(2 / 3))
    assert (found.word, found.basis) == ("differs", "paired")
    assert judge(printed(79.5, 8.0), ours, AAGGFF, 4.0, steady).word == "agrees"
    assert judge(printed(79.5, 8.0), ours, AAGGFF, 0.8, steady).word == "weak"


def test_no_printed_spread_falls_back_to_the_point() -> None:
    assert judge(printed(33.4), Estimate.of([34.3]), FEDGO).word == "agrees"


def test_a_limit_is_never_tighter_than_the_printed_digits() -> None:
    exact = Estimate.of([50.004, 50.004])
    assert judge(printed(50.0, 0.0), exact, AAGGFF).word == "agrees"
    assert judge(printed(50.01, 0.0), replace(exact, mean=50.0), AAGGFF).word == "differs"


def test_an_empty_printed_cell_is_not_comparable() -> None:
    assert judge(printed(None), Estimate.of([1.0]), FEDGO).word == "not comparable"


@pytest.mark.parametrize("spread", [NO_SPREAD, CLIENTS, FEDGO, AAGGFF])
def test_the_rule_is_said_in_words(spread: Spread) -> None:
    text = " ".join(rule_in_words(spread))
    assert spread.source in text
    assert "scale demo has no verdict" in text
    assert ("population" in text) == (spread is FEDGO)


@pytest.mark.parametrize(
    ("text", "ours", "words"),
    [("300", 303, "3.00 is more than 0"), ("0.25", 0.26, "0.0100 is at most 0.01"),
     ("1.5e6", 1_712_345, "2.12e+05 is more than 100000")],
)  # fmt: skip
def test_a_computed_difference_is_told_in_the_printed_unit(
    text: str, ours: float, words: str
) -> None:
    """A count and a rounded number get two digits more, a number in powers of ten three in all."""
    decimals = len(text.partition(".")[2]) if "e" not in text else 0
    cell = replace(printed(float(text), decimals=decimals), text=text)
    assert judge_computed(cell, ours).why == f"The difference of {words}."
