"""The printed cells that a claim compares decide its printed verdict (single pairs: test_leads)."""

from dataclasses import replace
from typing import Any

import pytest

from fedrepro.report.cells.cell import CellRun, Result, TableCell
from fedrepro.report.cells.claims import index_of, judge_claim, margin_of
from fedrepro.report.cells.readings import Answer, Both
from fedrepro.report.papers.claim import CompactSelector
from fedrepro.report.papers.leads import Single, Word
from fedrepro.report.papers.pairs import Pair, PrintedWord, judge_printed, printed_pairs
from fedrepro.report.papers.published import (
    PrintedCell,
    PrintedMetric,
    Published,
    Spread,
    System,
    Unit,
)
from support.claims import claim

SEEDS = Spread(over="seeds", source="known", seeds=5, ddof=1)


def cell(method: str, text: str, std: float | None = None, **keys: str) -> PrintedCell:
    place = {"dataset": "d", "setting": "one", "metric": "acc", "item": "table_1", "system": "s"}
    return PrintedCell(
        **place | keys, table="1", method=method, mean=float(text) if text else None, std=std,
        text=text, decimals=len(text.partition(".")[2]), doubt="", kind=PrintedMetric(),
    )  # fmt: skip


# --- which cells ----------------------------------------------------------------------------------
LABELS = ("A", "B", "A + I", "B + I", "+ I", "A.C", "AxC", "Ref")


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ({"column": "A"}, {"column": "B"}, "A 1/B 1, A 2/B 2"),
        ({"column": "A"}, {"column": ["B", "Ref", "A"]}, "A 1/B 1, A 1/Ref 1, A 2/B 2, A 2/Ref 2"),
        ({"column": ["A", "B"], "row": "1"}, {"column": "Ref"}, "A 1/Ref 1, B 1/Ref 1"),
        ({"column": "* + I", "row": "2"}, {"column": "*"}, "A + I 2/A 2, B + I 2/B 2"),
        ({"column": ["* + I", "*.C"], "row": "1"}, {"column": ["*", "*xC"]},
         "A + I 1/A 1, A + I 1/AxC 1, B + I 1/B 1, A.C 1/A 1, A.C 1/AxC 1"),
        ({"column": "*C", "row": "1"}, {"column": "others"},
         "A.C 1/A 1, A.C 1/B 1, A.C 1/A + I 1, A.C 1/B + I 1, A.C 1/+ I 1, "
         "AxC 1/A 1, AxC 1/B 1, AxC 1/A + I 1, AxC 1/B + I 1, AxC 1/+ I 1"),
        ({"row": "1", "column": ["A", "Ref"]}, {"row": "2"}, "A 1/A 2, Ref 1/Ref 2"),
        ({"row": "1", "column": "A"}, {"row": "2", "column": "*"}, ""),
        ({"row": "1", "column": "Ref*"}, {"column": "A"}, ""),
        ({"row": "1", "column": ["A"]}, {}, ""),
    ],
)  # fmt: skip
def test_cells_are_compared_by_their_labels(
    left: dict[str, Any], right: dict[str, Any], wanted: str
) -> None:
    """Of columns and rows; a dot in a label is a dot, and a star is never empty."""
    cells = [{"row": row, "column": column} for row in "12" for column in LABELS]
    pairs = CompactSelector(**left).pairs_with(CompactSelector(**right), cells, ["Ref"])
    told = [tuple(f"{cells[place]['column']} {cells[place]['row']}" for place in pair)
            for pair in pairs]  # fmt: skip
    assert sorted("/".join(pair) for pair in told) == sorted(filter(None, wanted.split(", ")))


@pytest.mark.parametrize(("expect", "sign"), [("more", 1), ("less", -1)])
def test_a_claim_compares_the_numbers_of_all_its_tables(expect: str, sign: int) -> None:
    about = dict.fromkeys(("system", "name", "title", "changes", "paper"), "s")
    system = System.model_validate({**about, "spread": SEEDS, "references": ["Ref"]})
    cells = (
        cell("A", "3.0"), cell("B", "1.0"), cell("Ref", "9.0"), cell("C", ""),
        cell("A", "5.0", item="table_2"), cell("B", "9.0", item="table_2", setting="two"),
        cell("C", "4.5", item="table_2"),
        cell("B", "8.0", item="table_3"), cell("B", "7.0", system="other"),
    )  # fmt: skip
    papers = Published(cells, {"s": system, "other": system})
    asked = claim(tables=["table_1", "table_2"], right={"method": "others"}, expect=expect)
    compared = [
        (pair.left.text, pair.right.text, pair.lead) for pair in printed_pairs(asked, papers)
    ]
    assert compared == [
        ("3.0", "1.0", 2.0 * sign), ("3.0", "4.5", -1.5 * sign),
        ("5.0", "1.0", 4.0 * sign), ("5.0", "4.5", 0.5 * sign),
    ]  # fmt: skip


# --- what they say --------------------------------------------------------------------------------
def pairs_with(*texts: tuple[str, str], std: float | None = None) -> list[Pair]:
    both = [
        (cell("A", left, std, setting=str(at)), cell("B", right, std, setting=str(at)))
        for at, (left, right) in enumerate(texts)
    ]
    return [Pair(left, right, left.mean - right.mean) for left, right in both]


@pytest.mark.parametrize(
    ("keys", "texts", "said"),
    [
        ({}, [("61.0", "60.0"), ("60.0", "60.0")], (PrintedWord.BUT_FOR_TIES, 1, 1)),
        ({}, [("61.0", "60.0"), ("59.9", "60.0")], (PrintedWord.DOES_NOT_SUPPORT, 1, 0)),
        ({}, [("60.0", "60.0"), ("59.9", "60.0")], (PrintedWord.DOES_NOT_SUPPORT, 0, 1)),
        # Only the mean counts.
        ({"quantifier": "more"}, [("63.0", "60.0"), ("59.0", "60.0")],
         (PrintedWord.SUPPORTS, 1, 0)),
        ({"quantifier": "average"}, [("63.0", "60.0"), ("60.0", "60.0")],
         (PrintedWord.SUPPORTS, 1, 1)),
        ({"quantifier": "average"}, [("61.0", "60.0"), ("58.0", "60.0")],
         (PrintedWord.DOES_NOT_SUPPORT, 1, 0)),
        # Rounding may have changed a lead by half a unit of both last digits, here by .55.
        ({"by": 1.45}, [("60.9", "60")], (PrintedWord.SUPPORTS, 1, 0)),
        ({"by": 1.5}, [("60.9", "60")], (PrintedWord.DOES_NOT_SUPPORT, 0, 0)),
        # And a mean of leads by the mean of that, here by .325.
        ({"by": 1.2, "quantifier": "average"}, [("60.9", "60"), ("60.9", "60.0")],
         (PrintedWord.SUPPORTS, 1, 0)),
        ({"by": 1.25, "quantifier": "average"}, [("60.9", "60"), ("60.9", "60.0")],
         (PrintedWord.DOES_NOT_SUPPORT, 1, 0)),
        # To lag by at most a point; equal numbers are ties only where any lead will do.
        ({"by": -1.0}, [("59.5", "60.0"), ("58.95", "60.0")], (PrintedWord.SUPPORTS, 2, 0)),
        ({"by": -1.0}, [("58.8", "60.0")], (PrintedWord.DOES_NOT_SUPPORT, 0, 0)),
        ({"by": 1.0}, [("60.0", "60.0")], (PrintedWord.DOES_NOT_SUPPORT, 0, 0)),
        # The same is so on both sides, and equal numbers are as claimed.
        ({"quantifier": "same", "margin": 1.0}, [("60.0", "60.0"), ("61.0", "60.0")],
         (PrintedWord.SUPPORTS, 2, 0)),
        ({"quantifier": "same", "margin": 1.0}, [("61.1", "60.0"), ("58.9", "60.0")],
         (PrintedWord.SUPPORTS, 2, 0)),
        ({"quantifier": "same", "margin": 1.0}, [("61.2", "60.0"), ("59.9", "60.0")],
         (PrintedWord.DOES_NOT_SUPPORT, 1, 0)),
        ({"quantifier": "same", "margin": 1.0}, [("58.8", "60.0"), ("60.0", "60.0")],
         (PrintedWord.DOES_NOT_SUPPORT, 1, 0)),
        ({"quantifier": "same"}, [("60.1", "60.0")], (PrintedWord.SUPPORTS, 1, 0)),
        ({"quantifier": "same"}, [("60.2", "60.0")], (PrintedWord.DOES_NOT_SUPPORT, 0, 0)),
        # Comparable or better: only how far it lags is bounded.
        ({"quantifier": "same", "by": -1.0}, [("90.0", "60.0"), ("59.0", "60.0")],
         (PrintedWord.SUPPORTS, 2, 0)),
    ],
)  # fmt: skip
def test_what_printed_numbers_say(
    keys: dict[str, Any], texts: list[tuple[str, str]], said: tuple[PrintedWord, int, int]
) -> None:
    pairs = pairs_with(*texts)
    made = judge_printed(claim(**keys), pairs)
    assert (made.word, made.held, made.ties) == said
    assert (made.of, made.beyond) == (len(pairs), None)
    assert made.lead == pytest.approx(sum(pair.lead for pair in pairs) / len(pairs))


def test_the_furthest_against_comes_first_and_ties_come_last() -> None:
    pairs = pairs_with(("59.0", "60.0"), ("60.0", "60.0"), ("62.0", "60.0"), ("57.0", "60.0"))
    assert [pair.lead for pair in judge_printed(claim(), pairs).against] == [-3.0, -1.0, 0.0]
    same = judge_printed(claim(quantifier="same", margin=0.5), pairs)
    assert [pair.lead for pair in same.against] == [-3.0, 2.0, -1.0]


@pytest.mark.parametrize(
    ("of", "leads", "said"),
    [
        # 2.306 x sqrt(2 / 5) is 1.458: one of two is not beyond it.
        ("each", ("1.5", "1.43"), (PrintedWord.WITHIN_THE_SPREAD, 1)),
        ("each", ("1.5", "1.6"), (PrintedWord.SUPPORTS, 2)),
        # 2.12 x sqrt(1 / 5) is 0.948: their mean is, though neither is.
        ("average", ("1.0", "1.0"), (PrintedWord.SUPPORTS, 0)),
        ("average", ("0.9", "0.9"), (PrintedWord.WITHIN_THE_SPREAD, 0)),
        ("each", ("1.6", "0.0"), (PrintedWord.BUT_FOR_TIES, 1)),
    ],
)
def test_leads_within_the_printed_spread(
    of: str, leads: tuple[str, str], said: tuple[PrintedWord, int]
) -> None:
    pairs = pairs_with(*((lead, "0.0") for lead in leads), std=1.0)
    made = judge_printed(claim(quantifier=of), pairs, SEEDS)
    assert (made.word, made.beyond) == said
    # Over clients, or where one of all has none, a spread says nothing.
    gap = [pairs[0], Pair(cell("A", leads[1]), pairs[1].right, pairs[1].lead)]
    other = [pairs[0], Pair(pairs[1].left, cell("B", "0.0", 0.0), pairs[1].lead)]
    clients = SEEDS.model_copy(update={"over": "clients"})
    for some, spread in ((pairs, clients), (gap, SEEDS), (other, SEEDS)):
        assert judge_printed(claim(quantifier=of), some, spread).beyond is None


@pytest.mark.parametrize(
    ("lead", "keys", "ddof", "beyond"),
    [
        ("1.5", {}, 1, 1),
        ("1.5", {}, 0, 0),  # of a population of five the variance is 5/4 of what is printed
        ("1.7", {}, 0, 1),
        ("2.5", {"by": 1.0}, 1, 1),
        ("2.4", {"by": 1.0}, 1, 0),  # beyond the claimed lead, not beyond zero
        ("0.5", {"quantifier": "same", "margin": 2.0}, 1, 1),  # 1.5 from the margin
        ("-0.5", {"quantifier": "same", "margin": 2.0}, 1, 1),
        ("0.6", {"quantifier": "same", "margin": 2.0}, 1, 0),
        ("-0.6", {"quantifier": "same", "margin": 2.0}, 1, 0),
    ],
)
def test_a_lead_is_beyond_the_spread_by_more_than_is_claimed(
    lead: str, keys: dict[str, Any], ddof: int, beyond: int
) -> None:
    spread = SEEDS.model_copy(update={"ddof": ddof})
    made = judge_printed(claim(**keys), pairs_with((lead, "0.0"), std=1.0), spread)
    assert made.beyond == beyond


@pytest.mark.parametrize(
    ("lead", "word"), [("0.7", PrintedWord.WITHIN_THE_SPREAD), ("0.8", PrintedWord.SUPPORTS)]
)
def test_a_number_on_both_sides_has_no_part_in_the_mean(lead: str, word: PrintedWord) -> None:
    """The mean of a - b and b - c is half of a - c: 2.306 x sqrt(2 x (1/2)^2 / 5) is 0.729."""
    first, last = cell("A", str(2 * float(lead)), 1.0), cell("C", "0.0", 1.0)
    middle = cell("B", "0.5", 1.0)
    pairs = [Pair(a, b, a.mean - b.mean) for a, b in ((first, middle), (middle, last))]
    assert judge_printed(claim(quantifier="average"), pairs, SEEDS).word == word


# --- what is counted, and how small a lead does not matter ----------------------------------------
@pytest.mark.parametrize(
    ("keys", "counted", "word", "words"),
    [
        ({}, [(3, 2), (5, 0)], Word.HOLDS, (Single.LEADS, Single.LEADS)),
        ({}, [(3, 2), (5, 5)], Word.DOES_NOT_HOLD, (Single.LEADS, Single.AGAINST)),
        ({}, [(3, 2), (5, None)], Word.UNDECIDED, (Single.LEADS, Single.NOT_COMPUTED)),
        ({}, [(None, 2), (1, 5)], Word.DOES_NOT_HOLD, (Single.NOT_COMPUTED, Single.AGAINST)),
        # None of a thing is a count.
        ({}, [(3, 2), (1, 0)], Word.HOLDS, (Single.LEADS, Single.LEADS)),
        ({"expect": "less"}, [(2, 3), (0, 5)], Word.HOLDS, (Single.LEADS, Single.LEADS)),
        ({"by": 2.0}, [(4, 2), (5, 0)], Word.HOLDS, (Single.LEADS, Single.LEADS)),
        ({"by": 2.0}, [(3, 2), (5, 0)], Word.DOES_NOT_HOLD, (Single.AGAINST, Single.LEADS)),
        ({"quantifier": "average"}, [(3, 2), (4, 5), (2, 1)], Word.HOLDS,
         (Single.LEADS, Single.AGAINST, Single.LEADS)),
        ({"quantifier": "average"}, [(3, 2), (2, 5)], Word.DOES_NOT_HOLD,
         (Single.LEADS, Single.AGAINST)),
        ({"quantifier": "average"}, [(2, 5), (None, 1)], Word.UNDECIDED,
         (Single.AGAINST, Single.NOT_COMPUTED)),
        ({"quantifier": "average", "by": 2.0}, [(4, 3), (5, 3)], Word.DOES_NOT_HOLD,
         (Single.AGAINST, Single.LEADS)),
        ({"quantifier": "same", "margin": 1.0}, [(4, 3), (2, 3)], Word.HOLDS,
         (Single.LEADS, Single.LEADS)),
        ({"quantifier": "same", "margin": 1.0}, [(5, 3), (1, 3)], Word.DOES_NOT_HOLD,
         (Single.AGAINST, Single.AGAINST)),
    ],
)  # fmt: skip
def test_counts_are_compared_not_tested(
    keys: dict[str, Any],
    counted: list[tuple[float | None, ...]],
    word: Word,
    words: tuple[Single, ...],
) -> None:
    pairs = pairs_with(*[("9.0", str(at)) for at, _ in enumerate(counted)])
    told = {
        (one.system, one.table, one.name): value
        for pair, values in zip(pairs, counted, strict=True)
        for one, value in zip((pair.left, pair.right), values, strict=True)
        if value is not None
    }
    made = judge_claim(claim(**keys), pairs, {}, told)
    assert (made.word, made.words, made.counted) == (word, words, True)
    known = [at for at, values in enumerate(counted) if None not in values]
    assert made.printed_lead == pytest.approx(sum(9.0 - at for at in known) / len(known))
    sign = -1 if keys.get("expect") == "less" else 1
    leads = [None if None in both else sign * (both[0] - both[1]) for both in counted]
    assert [each.test and each.test.lead for each in made.comparisons] == leads


def ours(*runs: tuple[str, int, float | None, str]) -> TableCell:
    """A cell's runs of several methods, of which m is the best: method, seed, number and state."""
    made = tuple(
        CellRun(method, seed, state, "", value, False, (), "", None)  # type: ignore[arg-type]
        for method, seed, value, state in runs
    )
    result = Result("s/x", ("m", "n"), "m", {}, made, None, "", 1, 1.0, None, None)
    return TableCell(0, 0, None, result, None, "", None, None)


@pytest.mark.parametrize(("reading", "word"), [("text", Word.UNDECIDED), ("released", Word.HOLDS)])
def test_a_side_has_the_numbers_of_the_best_method_in_one_reading(reading: Any, word: str) -> None:
    (pair,) = pairs_with(("9.0", "1.0"))
    whole = [("m", seed, 5.0 + seed / 10, "finished") for seed in (1, 2, 3)]
    lost = [("m", 4, None, "diverged"), ("m", 5, None, "failed"), ("n", 6, 9.0, "finished")]
    text, released = ours(*whole, *lost), ours(*whole)
    rival = ours(*(("m", seed, 1.0, "finished") for seed in range(1, 7)))
    answers = {
        ("s", "1"): {
            pair.left.name: Both(*(answer_of(one, pair.left) for one in (text, released))),
            pair.right.name: Both(*[answer_of(rival, pair.right)] * 2),
            ("d", "two", "A", "acc"): Both(None, None),
        }
    }
    index = index_of(answers, reading)
    assert len(index) == 2
    made = judge_claim(claim(), [pair], index)
    test = made.comparisons[0].test
    assert (made.word, made.diverged, test and test.seeds) == (
        word, int(reading == "text"), 3
    )  # fmt: skip


def answer_of(one: TableCell, printed: PrintedCell) -> Answer:
    return Answer("row", "column", one, printed, (), (), "%")


@pytest.mark.parametrize(
    ("keys", "unit", "margins"),
    [
        ({}, "percent", (0.5, 0.5)),
        ({}, "own", (None, None)),
        ({"margin": 2.0}, "own", (2.0, 2.0)),
        ({"by": 3.0}, "percent", (None, None)),
        # Small runs test the direction of an amount only.
        ({"by": 3.0, "quantifier": "amount"}, "percent", (None, 0.5)),
        ({"by": 3.0, "quantifier": "average"}, "percent", (None, None)),
        ({"quantifier": "same"}, "percent", (None, None)),
        ({"quantifier": "same", "margin": 1.0}, "fraction", (1.0, 1.0)),
    ],
)
def test_how_small_a_lead_does_not_matter(
    keys: dict[str, Any], unit: Unit, margins: tuple[float | None, float | None]
) -> None:
    """At scale paper, and of small runs."""
    pairs = [Pair(*[replace(cell("A", "1.0"), kind=PrintedMetric(unit=unit))] * 2, 0.0)]
    asked = claim(**keys)
    assert (margin_of(asked, pairs), margin_of(asked, pairs, compact=True)) == margins


@pytest.mark.parametrize(
    ("text", "value", "written", "last_digit"),
    [("84.68", 1.005e2, "100.50", 0.01), ("312", 299.6, "300", 1.0),
     ("1.5e6", 1_712_345, "1.7e+06", 1e5), ("0.250", 0.25, "0.250", 0.001),
     ("1e6", 1_712_345, "2e+06", 1e6)],
)  # fmt: skip
def test_our_number_has_the_printed_digits(
    text: str, value: float, written: str, last_digit: float
) -> None:
    decimals = 0 if "e" in text else len(text.partition(".")[2])
    for shown in (text, f"{text} (0.1)"):
        one = replace(cell("A", text), text=shown, decimals=decimals)
        assert one.written(value) == written and one.last_digit == pytest.approx(last_digit)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [({"unit": "percent"}, "points"), ({"unit": "fraction"}, ""), ({}, ""),
     ({"unit": "percent", "lead_unit": "%"}, "%"), ({"lead_unit": "rounds"}, "rounds"),
     ({"unit": "percent", "lead_unit": ""}, "")],
)  # fmt: skip
def test_the_unit_of_a_lead(kind: dict[str, Any], unit: str) -> None:
    pair = Pair(*[replace(cell("A", "1.0"), kind=PrintedMetric(**kind))] * 2, 0.0)
    assert pair.left.lead_unit == judge_claim(claim(), [pair], {}).unit == unit
