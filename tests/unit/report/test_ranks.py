"""Ranks, Nemenyi's critical difference, and its diagram."""

import math

import pytest

from fedrepro.report.drawing.charts import diagram
from fedrepro.report.papers.ranks import MeanRanks, critical_difference, mean_ranks, ranks

# Demsar (2006), table 5a: critical values of the two-tailed Nemenyi test at 0.05, by methods.
NEMENYI = {
    2: 1.960,
    3: 2.343,
    4: 2.569,
    5: 2.728,
    6: 2.850,
    7: 2.949,
    8: 3.031,
    9: 3.102,
    10: 3.164,
}


def test_scores_that_differ_by_rounding_errors_only_share_their_rank() -> None:
    assert 0.1 + 0.2 != 0.3
    assert ranks([0.3, 0.1 + 0.2, 1.0, -math.inf]) == [2.5, 2.5, 1.0, 4.0]
    assert ranks([70.0, 70.0001, 70.0002]) == [3.0, 2.0, 1.0]
    assert ranks([1.2e-11, 0.9e-11, 1.0e-11, 0.9e-11 * (1 + 1e-15)]) == [1.0, 3.5, 2.0, 3.5]
    assert ranks([2.0, 1e-15, 0.0]) == [1.0, 2.5, 2.5]
    assert ranks([-1e20, -0.3, -0.4, -math.inf]) == [3.0, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(("methods", "q"), NEMENYI.items())
def test_critical_differences_are_those_of_the_printed_table(methods: int, q: float) -> None:
    settings = 14
    expected = q * math.sqrt(methods * (methods + 1) / (6 * settings))
    assert critical_difference(methods, settings) == pytest.approx(expected, rel=3e-4)


def test_the_example_of_the_paper() -> None:
    """Section 3.2.2: four classifiers on fourteen data sets, critical difference 1.25."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_equal_scores_share_their_ranks() -> None:
    assert ranks([3.0, 5.0, 3.0, 1.0]) == [2.5, 1.0, 2.5, 4.0]
    assert ranks([-math.inf, 0.0, -math.inf]) == [2.5, 1.0, 2.5]


def test_mean_ranks_are_over_methods_that_every_setting_has() -> None:
    rows = [{"a": 3.0, "b": 2.0, "c": 1.0}, {"b": 5.0, "a": 4.0}]
    both = mean_ranks([[row] for row in rows])
    assert both is not None
    assert both.means == {"a": 1.5, "b": 1.5}
    assert both.settings == 2
    assert both.critical == critical_difference(2, 2)
    assert mean_ranks([[{"a": 1.0}], [{"a": 1.0, "b": 2.0}]]) is None
    assert mean_ranks([]) is None


def test_rows_of_one_setting_count_once() -> None:
    twice = [{"a": 2.0, "b": 1.0}, {"a": 2.0, "b": 1.0}]
    other = [{"a": 1.0, "b": 2.0}]
    both = mean_ranks([twice, other])
    assert both is not None
    assert both.means == {"a": 1.5, "b": 1.5}
    assert both.settings == 2
    assert both.critical == critical_difference(2, 2)


def test_groups_are_the_longest_that_do_not_differ() -> None:
    means = MeanRanks({"a": 1.0, "b": 2.0, "c": 2.5, "d": 4.5}, 9, 1.75)
    assert means.groups == [("a", "b", "c")]
    assert means.apart_from("d") == (["a", "b", "c"], [])
    assert means.apart_from("a") == ([], ["d"])
    # What is as far apart as the critical difference differs.
    exact = MeanRanks({"a": 1.0, "b": 2.0, "c": 3.0}, 9, 2.0)
    assert exact.groups == [("a", "b"), ("b", "c")]
    assert (exact.apart_from("a"), exact.apart_from("c")) == (([], ["c"]), (["a"], []))
    assert exact.apart_from("b") == ([], [])
    # Ranks of three methods are at most two apart.
    for critical, can_decide in ((1.9, True), (2.0, True), (2.1, False)):
        assert MeanRanks(exact.means, 9, critical).can_decide == can_decide
    wide = MeanRanks({"a": 1.0, "b": 2.0, "c": 2.5, "d": 3.5}, 9, 1.75)
    assert wide.groups == [("a", "b", "c"), ("b", "c", "d")]


def test_the_diagram_names_all_methods_and_marks_the_own_one() -> None:
    means = MeanRanks({"own": 1.2, "a": 2.0, "b < c": 2.8}, 3, 1.9)
    svg = diagram(means, "own", "about")
    for name in ("own 1.20", "a 2.00", "2.80 b &lt; c"):
        assert f">{name}</text>" in svg
    assert svg.count('font-weight="bold"') == 1
    assert svg.count('stroke-width="4"') == len(means.groups) == 1
