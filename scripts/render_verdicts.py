"""Simulate verdicts whose truth is known, and render their error rates in docs/verdicts.md."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro.report.papers.estimate import LEVEL, Borrowed, Estimate, Paired
from fedrepro.report.papers.leads import LOOKS, judge_leads
from fedrepro.report.papers.published import PrintedCell, PrintedMetric, Spread
from fedrepro.report.papers.rule import TWINS
from fedrepro.report.papers.verdict import ERRORS, judge

PAGE = Path("docs/verdicts.md")
MARKS = "<!-- rendered: {} -->\n", "<!-- end -->"
TABLES = 2000
MARGIN = 1.0  # the effect that the paper claims, in points
TRUTH = 60.0
# A method's spread over seeds: much smaller than the margin, and as large. False agreement is most
# frequent with the small one, a false difference with the large one, with which nothing agrees.
SMALL_SPREAD, LARGE_SPREAD = MARGIN / 4, MARGIN

# From a spread over seeds and the true difference to the word of a cell.
Cell = Callable[[np.random.Generator, float, float], str]


@dataclass(frozen=True)
class Case:
    """A basis with a number of our seeds.

    Attributes:
        promised: whether its error rates are. They are not where an assumption is broken on
            purpose, to show what it is worth.
    """

    what: str
    seeds: int
    cell: Cell
    promised: bool = True

    @property
    def most(self) -> tuple[float, float] | None:
        """What is promised of false differences and agreements, if anything is."""
        found = (rates for basis, rates in ERRORS.items() if self.what.startswith(basis))
        return next(found, (0.0, 0.0)) if self.promised else None


@dataclass(frozen=True)
class Rates:
    """Of a case, in shares of 1.

    Attributes:
        differs: how often equal truths are said to differ, with the large spread.
        agrees: how often truths a margin apart are said to agree, with the small spread.
        power: how often equal truths are said to agree, with the small spread.
    """

    differs: float
    agrees: float
    power: float


NAME, PLACE = ("d", "c", "m", "acc1"), ("s", "table_1", "1")
KIND = PrintedMetric(unit="percent")


def printed(mean: float, std: float | None) -> PrintedCell:
    """A percentage as printed, to two decimals."""
    spread = None if std is None else round(std, 2)
    return PrintedCell(*NAME, round(mean, 2), spread, "", 2, "", *PLACE, KIND)


def joint(theirs: int, ddof: int, ours: int) -> Cell:
    spread = Spread.model_validate(
        {"over": "seeds", "source": "known", "seeds": theirs, "ddof": ddof}
    )

    def cell(random: np.random.Generator, std: float, apart: float) -> str:
        there = random.normal(TRUTH, std, theirs)
        found = Estimate.of(random.normal(TRUTH + apart, std, ours).tolist())
        shown = printed(float(there.mean()), float(there.std(ddof=ddof)))
        return judge(shown, found, spread, MARGIN).word

    return cell


UNSEEDED = Spread(over="none", source="known")


def draw(ours: int) -> Cell:
    def cell(random: np.random.Generator, std: float, apart: float) -> str:
        shown = printed(random.normal(TRUTH, std), None)
        found = Estimate.of(random.normal(TRUTH + apart, std, ours).tolist())
        return judge(shown, found, UNSEEDED, MARGIN).word

    return cell


def borrowed(wider: float, rounds: float) -> Cell:
    """One seed; another row's three, and five rounds of its own.

    Args:
        wider, rounds: the spread of the other row and of the rounds, in multiples of the truth.
    """

    def cell(random: np.random.Generator, std: float, apart: float) -> str:
        shown = printed(random.normal(TRUTH, std), None)
        found = Estimate.of([random.normal(TRUTH + apart, std)])
        lent = [
            Borrowed(float(random.normal(0, std * each, n).std(ddof=1)), n - 1, "")
            for each, n in ((wider, 3), (rounds, 5))
        ]
        widest = max(lent, key=lambda each: each.limit)
        return judge(shown, found, UNSEEDED, MARGIN, None, widest).word

    return cell


def alone(random: np.random.Generator, std: float, apart: float) -> str:
    """One seed, and no spread from anywhere."""
    found = Estimate.of([random.normal(TRUTH + apart, std)])
    return judge(printed(random.normal(TRUTH, std), None), found, UNSEEDED, MARGIN).word


def paired(seeds: int, spreads: Sequence[float], twins: int = 0) -> Cell:
    """The first of several methods on the authors' own seeds, whose effects are large.

    Args:
        spreads: of each method beyond what a seed does to all, in multiples of the truth.
        twins: how many of the others have the values of the last one, but for a hundredth.
    """
    spread = Spread.model_validate({"over": "seeds", "source": "known", "seeds": seeds, "ddof": 1})

    def cell(random: np.random.Generator, std: float, apart: float) -> str:
        shared = random.normal(TRUTH, 5 * MARGIN, seeds)
        own = random.normal(0, 1, (len(spreads), seeds)) * std * np.array(spreads)[:, None] + shared
        if twins:
            own[-1 - twins : -1] = own[-1] + 0.01
        there = shared + random.normal(0, std * spreads[0], seeds)
        shown = printed(float(there.mean()), float(there.std(ddof=1)))
        first = own[0] + apart
        found = Paired.of(first.tolist(), own[1:].tolist(), TWINS["percent"])
        return judge(shown, Estimate.of(first.tolist()), spread, MARGIN, found).word

    return cell


def cases() -> Iterator[Case]:
    """All cases, in the order of the page."""
    for theirs, ddof in ((5, 0), (3, 0)):
        for seeds in (1, 2, 3, 5, 10):
            yield Case(f"joint, {theirs} printed seeds", seeds, joint(theirs, ddof, seeds))
    for seeds in (2, 3, 5, 10, 15):
        yield Case("draw", seeds, draw(seeds))
    yield Case("borrowed", 1, borrowed(1, 0.5))
    yield Case("borrowed, but the other row scatters half as much", 1, borrowed(0.5, 0.25), False)
    yield Case("one seed and no spread", 1, alone)
    yield Case("paired, 7 methods", 3, paired(3, (1,) * 7))
    yield Case("paired, 7 methods", 5, paired(5, (1,) * 7))
    yield Case("paired, 2 methods", 3, paired(3, (1,) * 2))
    yield Case("paired, four of the other six are twins", 3, paired(3, (1,) * 7, 3))
    wild, calm = (4, *(1,) * 6), (1, 4, *(1,) * 5)
    yield Case("paired, this one scatters four times as much", 3, paired(3, wild))
    yield Case("paired, another one scatters four times as much", 3, paired(3, calm))


def rates_of(case: Case, random: np.random.Generator) -> Rates:
    def share(word: str, std: float, apart: float) -> float:
        return sum(case.cell(random, std, apart) == word for _ in range(TABLES)) / TABLES

    return Rates(
        share("differs", LARGE_SPREAD, 0.0),
        share("agrees", SMALL_SPREAD, MARGIN),
        share("agrees", SMALL_SPREAD, 0.0),
    )


# A mean lead this small does not matter.
SMALL = 0.5

FIRST = 0


@dataclass(frozen=True)
class Claims:
    """How often a claim gets a word.

    Attributes:
        truth: what is true, in words.
        most: what is promised if the word is false; None if it is true.
        shares: by number of seeds; :data:`FIRST` is the first of the looks that decides.
    """

    word: str
    truth: str
    most: float | None
    shares: dict[int, float]


@dataclass(frozen=True)
class Truth:
    """True leads of four comparisons, and the words that a claim about every one may get.

    Attributes:
        most: what is promised if these words are false; None if they are true.
        std: of each lead over seeds; half of its variance is the seed's.
    """

    words: tuple[str, ...]
    what: str
    leads: tuple[float, float, float, float]
    most: float | None = None
    std: float = 1.0


HOLDS = ("holds", "holds everywhere")
TRUTHS = (
    Truth(HOLDS, "no lead", (0, 0, 0, 0), LEVEL / 2),
    Truth(HOLDS[1:], "one of four has no lead", (0, 9, 9, 9), LEVEL / 2),
    Truth(("too small to matter",), "leads as large as the margin", (SMALL,) * 4, LEVEL / 2, 0.2),
    Truth(("does not hold",), "no lead, and none against", (0, 0, 0, 0), LEVEL),
    Truth(HOLDS, "leads of twice the spread", (2, 2, 2, 2)),
    Truth(HOLDS[1:], "leads of twice the spread", (2, 2, 2, 2)),
    Truth(("does not hold",), "twice the spread against", (-2, -2, -2, -2)),
    Truth(("too small to matter",), "no lead, and a spread of 0.4 margins", (0,) * 4, None, 0.2),
)


def claims(random: np.random.Generator) -> Iterator[Claims]:
    """The rates of all words of claims."""
    for truth in TRUTHS:
        counts = Counter[int]()
        tables = TABLES if truth.most is not None else TABLES // 4  # power need not be exact
        for _ in range(tables):
            words = _claim(random, truth, *LOOKS)
            first = next((word for word in words.values() if word != "undecided"), "")
            words |= _claim(random, truth, 3) | {FIRST: first}
            counts.update(seeds for seeds, word in words.items() if word in truth.words)
        shares = {seeds: counts[seeds] / tables for seeds in (3, *LOOKS, FIRST)}
        yield Claims(" or ".join(truth.words), truth.what, truth.most, shares)


def _claim(random: np.random.Generator, truth: Truth, *looks: int) -> dict[int, str]:
    """The word after each look at the same growing seeds."""
    most = max(looks)
    std = truth.std * math.sqrt(0.5)
    values = random.normal(0, std, most) + random.normal(0, std, (len(truth.leads), most))
    values += np.array(truth.leads)[:, None]
    return {
        seeds: judge_leads(
            [dict(enumerate(each[:seeds].tolist())) for each in values], 0.0, True, SMALL
        ).word
        for seeds in looks
    }


def simulate() -> tuple[list[tuple[Case, Rates]], list[Claims]]:
    """All rates; the same ones each time."""
    found = [(case, rates_of(case, np.random.default_rng(at))) for at, case in enumerate(cases())]
    return found, list(claims(np.random.default_rng(len(found))))


def render(cells: Sequence[tuple[Case, Rates]], words: Sequence[Claims]) -> str:
    """The page, with fresh tables."""
    lines = [
        '| basis | our seeds | at most | equal, says "differs" | at most '
        '| a margin apart, says "agrees" | equal, says "agrees" |',
        "|---|---|---|---|---|---|---|",
    ]
    for case, rates in cells:
        differs, agrees = map(_percent, case.most) if case.most else ("", "")
        shown = differs, _percent(rates.differs), agrees, _percent(rates.agrees)
        shown += (_percent(rates.power),)
        lines.append(f"| {case.what} | {case.seeds} | {' | '.join(shown)} |")
    heads = " | ".join([*(f"{seeds} seeds" for seeds in (3, *LOOKS)), "first look that decides"])
    rows = [
        f"| word | truth | at most | {heads} |",
        "|---|---|---|" + "---|" * (len(LOOKS) + 2),
    ]
    for each in words:
        most = "" if each.most is None else _percent(each.most)
        shown = map(_percent, each.shares.values())
        rows.append(f"| {each.word} | {each.truth} | {most} | {' | '.join(shown)} |")
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("cells", lines), ("claims", rows)):
        start, end = MARKS[0].format(name), MARKS[1]
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = f"{before}{start}{chr(10).join(table)}\n{end}{after}"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    PAGE.write_text(render(*simulate()), encoding="utf-8")
