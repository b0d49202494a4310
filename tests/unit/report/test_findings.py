"""A finding counts twins once, and leaves out impossible measures and diverged seeds."""

import re
from typing import Any

import pytest

from fedrepro.report.cells.findings import CompactPair, Finding, Side, finding_of
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import Comparison, PairedTest, Single, Word
from fedrepro.report.papers.published import Unit
from support.claims import claim

STEPS = (-1.0, 0.5, 0.0, -0.5, 1.0)


def side(name: str, mean: float, spread: float = 0.1, seeds: int = 5, **keys: Any) -> Side:
    values = {seed: mean + spread * step for seed, step in enumerate(STEPS[:seeds], 1)}
    return Side(name, values, **keys)


def found(
    *sides: tuple[Side, Side], asked: Claim | None = None, unit: Unit = "percent", **keys: Any
) -> Finding:
    pairs = [
        CompactPair(0, place, f"{left.name}/{right.name}", right.name)
        for place, (left, right) in enumerate(sides, 1)
    ]
    return finding_of(asked or claim(), pairs, sides, keys.pop("margin", 0.5), unit, **keys)


def names(pairs: Any) -> list[str]:
    return [pair.words for pair in pairs]


OURS = side("ours", 60.0, 0.3)
FIRST = side("first", 50.0)


def shifted(by: float, seed: int = 3, scale: float = 1.0, **keys: Any) -> Side:
    """A rival that one seed separates from the first by this."""
    values = {each: value * scale for each, value in FIRST.by_seed.items()}
    values[seed] += by
    return Side("again", values, **keys)


@pytest.mark.parametrize(
    ("again", "is_twin"),
    [
        (shifted(0.05), True),
        (shifted(-0.05), True),
        (shifted(0.06), False),
        (shifted(0.0, diverged=(6,)), False),
        (Side("again", {1: FIRST.by_seed[1]}), False),
        (Side("again", {**FIRST.by_seed, 6: 50.0}), False),
    ],
)
def test_a_comparison_that_no_seed_separates_from_another_counts_once(
    again: Side, is_twin: bool
) -> None:
    other = side("other", 40.0)
    made = found((OURS, other), (OURS, FIRST), (OURS, again))
    assert (names(made.twins) == ["ours/again"]) == is_twin
    assert len(made.comparisons) == (2 if is_twin else 3)
    # It is the comparison that has a twin: both of its sides.
    apart = side("ours, too", 61.0, 0.3)
    assert not found((OURS, FIRST), (apart, again)).twins
    assert not found((FIRST, OURS), (again, apart)).twins


@pytest.mark.parametrize(
    ("unit", "scale", "apart", "is_twin"),
    [("fraction", 0.01, 0.0004, True), ("fraction", 0.01, 0.0006, False), ("own", 1.0, 0.0, False)],
)
def test_twins_are_as_close_as_the_unit_allows(
    unit: Unit, scale: float, apart: float, is_twin: bool
) -> None:
    """Numbers such as rounds have no distance that is close: equal ones are two comparisons."""
    first = shifted(0.0, scale=scale)
    made = found((OURS, first), (OURS, shifted(apart, scale=scale)), unit=unit, margin=None)
    assert bool(made.twins) == is_twin


def test_one_seed_shows_no_twins_nor_does_one_that_diverged() -> None:
    one, gone = side("a", 50.0, seeds=1), side("a", 50.0, diverged=(6,))
    for rival in (one, gone):
        assert not found((OURS, rival), (OURS, rival._replace(name="b"))).twins
    assert not found((OURS, gone), (OURS, FIRST)).twins
    two = side("a", 50.0, seeds=2)
    assert found((OURS, two), (OURS, two._replace(name="b"))).twins


def test_what_cannot_have_the_measure_is_no_comparison() -> None:
    nothing = Side("nothing", {}, impossible=True)
    made = found((OURS, FIRST), (OURS, nothing), (nothing, FIRST))
    assert made.word == Word.HOLDS and names(row.pair for row in made.comparisons) == ["ours/first"]
    assert names(made.impossible) == ["ours/nothing", "nothing/first"]
    # Of what is only not made yet, it is undecided; where nothing can be, all is shown.
    assert found((OURS, FIRST), (OURS, Side("later", {}))).word == Word.UNDECIDED
    none = found((OURS, nothing), (nothing, FIRST))
    assert (none.word, len(none.comparisons), none.impossible) == (Word.NOT_COMPUTED, 2, [])


def test_leads_and_means_are_over_the_seeds_that_both_have() -> None:
    left = Side("left", {1: 60.0, 2: 62.0, 3: 90.0})
    right = Side("right", {0: 10.0, 1: 55.0, 2: 55.5})
    for expect, sign in (("more", 1), ("less", -1)):
        (row,) = found((left, right), asked=claim(expect=expect)).comparisons
        assert row.test and (row.test.seeds, row.test.lead) == (2, sign * 5.75)
        assert row.means == (61.0, 55.25)


def beside_its_word(made: Finding) -> list[str]:
    """The names of one letter, and the numbers, that a verdict has beside its word."""
    assert made.verdict.startswith(made.word)
    return re.findall(r"\b[a-z]\b|\d+", made.verdict.removeprefix(made.word))


def test_a_verdict_names_the_first_rivals_that_it_is_against() -> None:
    ahead = [side(name, 70.0 + place) for place, name in enumerate("abcde")]
    wide = side("wide", 60.0, 2.0)
    made = found(*((OURS, rival) for rival in (FIRST, wide, *ahead[:3])))
    assert (made.word, beside_its_word(made)) == (Word.DOES_NOT_HOLD, ["a", "b", "c"])
    made = found(*((OURS, rival) for rival in (FIRST, *ahead)))
    assert (made.word, beside_its_word(made)) == (Word.DOES_NOT_HOLD, ["a", "b", "c", "2"])
    apart = found((OURS, FIRST), asked=claim(quantifier="same", margin=0.5))
    assert apart.verdict == Word.DOES_NOT_HOLD  # none is against it by falling behind
    near = side("near", 60.0, 0.2)
    made = found((OURS, FIRST), (OURS, near), (OURS, wide))
    assert made.words == (Single.LEADS, Single.NOT_BEHIND, Single.UNDECIDED)
    assert (made.word, beside_its_word(made)) == (Word.LEADS_ON_AVERAGE, ["1", "3"])


@pytest.mark.parametrize(
    ("by", "compact", "word"),
    [
        (3.0, False, Word.HOLDS),
        (3.0, True, Word.HOLDS_IN_DIRECTION),
        (20.0, False, Word.DOES_NOT_HOLD),
        (20.0, True, Word.HOLDS_IN_DIRECTION),
    ],
)
def test_small_runs_test_the_direction_of_an_amount(by: float, compact: bool, word: Word) -> None:
    asked = claim(quantifier="amount", by=by)
    made = found((OURS, FIRST), asked=asked, margin=None, compact=compact)
    assert (made.word, made.by) == (word, 0.0 if compact else by)
    assert bool(made.why) == compact and made.margin is None
    assert found((OURS, FIRST), asked=asked, margin=0.25, compact=compact).margin == 0.25
    behind = found((FIRST, OURS), asked=asked, margin=None, compact=compact)
    assert behind.word == Word.DOES_NOT_HOLD
    assert found((OURS, FIRST), asked=claim(by=by), margin=None, compact=True).by == by


def test_each_run_that_diverged_is_counted_once() -> None:
    """Whichever side it is on, and however many comparisons its cell is in."""
    ours = OURS._replace(diverged=(6, 7))
    lost = side("lost", 50.0, 0.5, diverged=(8,))
    made = found((ours, FIRST), (ours, lost))
    assert made.diverged == 3 and made.word == Word.UNDECIDED
    assert re.findall(r"ours|lost|\d+", made.why) == ["ours", "6", "7", "lost", "8"]
    assert found((OURS, FIRST), (OURS, lost)).word == Word.HOLDS
    assert found((FIRST, OURS)).word == Word.DOES_NOT_HOLD
    assert found((FIRST, ours)).word == Word.UNDECIDED
    assert found((ours, FIRST), (OURS, FIRST)).diverged == 2


def test_small_runs_decide_nothing_before_the_first_look() -> None:
    """It is the mean over all comparisons that needs five seeds."""
    fewer = side("fewer", 40.0, seeds=4)
    for rivals, word, needs in (
        ((FIRST, fewer), Word.UNDECIDED, "5"),
        ((FIRST, side("whole", 40.0)), Word.HOLDS, ""),
    ):
        made = found(*((OURS, rival) for rival in rivals), compact=True)
        assert (made.word, made.needs) == (word, needs)
        assert found(*((OURS, rival) for rival in rivals)).word == Word.HOLDS
    # Of comparisons that share no seed there is no mean.
    later = [
        one._replace(by_seed={5 + seed: value for seed, value in one.by_seed.items()})
        for one in (OURS, FIRST)
    ]
    apart = found((FIRST, OURS), (later[0], later[1]), compact=True)
    assert apart.overall is None and apart.word == Word.UNDECIDED
    # What is open is so by its own forecast.
    wide = side("wide", 59.9, 9.0, seeds=4)
    small, paper = found((OURS, wide), compact=True), found((OURS, wide))
    assert small.word == paper.word == Word.UNDECIDED and small.needs == paper.needs != "5"


def test_what_is_counted_has_no_tally_of_tests() -> None:
    test = PairedTest(0, 1.0, None, None, None)
    about = (Word.HOLDS, "", None, (Comparison(Single.LEADS, test),) * 2)
    assert Finding(*about, counted=True).tally == ""
    assert Finding(*about).tally == "2 of 2 comparisons lead"


def named_without(made: Finding) -> list[str]:
    """The rivals without whom, as it says, its mean lead would not be decided."""
    assert [*made.rests_on] == re.findall(r"Without (\w+),", made.why)
    return [*made.rests_on]


def test_a_mean_lead_that_rests_on_one_rival_names_it() -> None:
    mean = claim(quantifier="more")
    close = [side(f"close{number}", 60.0, 0.5 + number) for number in range(3)]
    made = found(*((OURS, rival) for rival in (*close, FIRST)), asked=mean)
    assert (made.word, named_without(made)) == (Word.HOLDS, ["first"])
    assert "+0.00 [" in made.why
    two = found(*((OURS, rival) for rival in (*close, FIRST, side("second", 51.0))), asked=mean)
    assert (two.word, named_without(two)) == (Word.HOLDS, [])  # without either the other is left
    behind = found(*((OURS, rival) for rival in (*close, side("ahead", 70.0))), asked=mean)
    assert (behind.word, named_without(behind)) == (Word.DOES_NOT_HOLD, ["ahead"])


def test_a_claim_about_every_rival_rests_on_each_of_them() -> None:
    close, wide = side("close", 59.0, 0.2), side("wide", 58.0, 4.0)
    assert named_without(found((OURS, FIRST), (OURS, close))) == []  # all are led
    open_ = found((OURS, FIRST), (OURS, wide))
    assert (open_.word, named_without(open_)) == (Word.LEADS_ON_AVERAGE, ["first"])
