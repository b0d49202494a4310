"""Simulate verdicts whose truth is known, and render their error rates in docs/verdicts.md."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from fedrepro.report.papers.estimate import LEVEL, Borrowed, Estimate, Paired, student_t
from fedrepro.report.papers.leads import LOOKS, Word, level_at
from fedrepro.report.papers.published import PrintedCell, PrintedMetric, Spread
from fedrepro.report.papers.verdict import ERRORS, TWINS, judge

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
    return PrintedCell(*NAME, round(mean, 2), spread, f"{mean:.2f}", 2, "", *PLACE, KIND)


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


# --- claims ---------------------------------------------------------------------------------------
DRAWS = 2000  # claims a case
CLOSE, FAR = 0.0, 5.0  # true leads over rivals, in standard deviations of a paired lead
# Every case is played for each of these: margins in standard deviations, numbers of comparisons,
# correlations between them, and tails (normal, or Student's t with three degrees of freedom).
MARGINS, NUMBERS, CORRELATIONS, TAILS = (0.0, 0.5, 1.0, 2.0), (1, 4, 8, 20), (0.0, 0.5, 0.9), (0, 3)
AHEAD = (Word.HOLDS, Word.NOT_BEHIND, Word.LEADS_ON_AVERAGE)


@dataclass(frozen=True)
class Truth:
    """True leads, and the words that a claim about each may not get, or should.

    Attributes:
        one: the true lead over one rival, in standard deviations; None: less the margin.
        others: over all others.
        least_margin: the truth is another one below this margin.
    """

    words: tuple[Word, ...]
    what: str
    one: float | None
    others: float
    least_margin: float = 0.0


FALSE = (
    Truth((Word.HOLDS,), "one rival is equal", CLOSE, FAR),
    Truth((Word.HOLDS, AHEAD[1]), "one rival is a margin ahead", None, FAR),
    Truth(AHEAD, "every rival is equal", CLOSE, CLOSE),
    Truth((Word.DOES_NOT_HOLD,), "every rival is equal", CLOSE, CLOSE),
    Truth((Word.TOO_SMALL,), "one lead is the margin, the others are 0", None, 0.0, 0.5),
)
TRUE = (
    Truth((Word.HOLDS,), "leads of two standard deviations", 2.0, 2.0),
    Truth((Word.HOLDS,), "leads of one standard deviation", 1.0, 1.0),
    Truth(AHEAD, "leads of one standard deviation", 1.0, 1.0),
    Truth((Word.DOES_NOT_HOLD,), "one rival is two standard deviations ahead", -2.0, 2.0),
    Truth((Word.DOES_NOT_HOLD,), "one rival is one standard deviation ahead", -1.0, 2.0),
)


@dataclass(frozen=True)
class Claims:
    """How often a claim about each comparison gets a word.

    Attributes:
        most: what is promised if the word is false; None if it is true.
        shares: by number of seeds; :data:`EVER` is at any of the looks. If the word is false, the
            largest of all margins, numbers of comparisons, correlations and tails.
    """

    word: str
    truth: str
    most: float | None
    shares: dict[int, float]


EVER = 0


def words_of(leads: NDArray[np.float64], margin: float) -> NDArray[np.str_]:
    """The words of many claims at once, as ``leads.Rule`` gives them one by one.

    Args:
        leads: [claims, seeds, comparisons].
    """
    seeds, of = leads.shape[1:]
    level = level_at(seeds)
    half = student_t(seeds - 1, level)

    def interval(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        mean, error = values.mean(1), values.std(1, ddof=1) / seeds**0.5
        return [mean - half * error, mean + half * error, mean, error]

    low, high, mean, error = interval(leads)
    mean_low, mean_high, *_ = interval(leads.mean(2))
    p = 2 * stdtr(seeds - 1, -np.abs(mean + margin) / error)
    order = np.argsort(p, 1)
    stepped = np.take_along_axis(p, order, 1) * (of - np.arange(of))
    corrected = np.minimum(np.maximum.accumulate(stepped, 1), 1)
    behind = np.take_along_axis(high < -margin, order, 1)
    within = ((low >= -margin) & (high <= margin)).all(1)
    within &= (mean_low >= -margin) & (mean_high <= margin)
    ahead = mean_low > 0
    return np.select(
        [
            (behind & (corrected <= level)).any(1),
            (low > 0).all(1),
            ahead & (low > -margin).all(1),
            within & (margin > 0),
            ahead,
        ],
        [Word.DOES_NOT_HOLD, Word.HOLDS, Word.NOT_BEHIND, Word.TOO_SMALL, Word.LEADS_ON_AVERAGE],
        Word.UNDECIDED,
    )


def drawn(
    random: np.random.Generator, shape: tuple[int, int, int], correlation: float, degrees: int
) -> NDArray[np.float64]:
    """Leads of mean 0 and standard deviation 1; what a seed does to all is their correlation."""

    def draw(*shape: int) -> NDArray[np.float64]:
        if not degrees:
            return random.standard_normal(shape)
        return random.standard_t(degrees, shape) / (degrees / (degrees - 2)) ** 0.5

    claims, seeds, of = shape
    shared = correlation**0.5 * draw(claims, seeds, 1)
    return shared + (1 - correlation) ** 0.5 * draw(claims, seeds, of)


def rates_of_truth(
    random: np.random.Generator, truth: Truth, margin: float, of: int, correlation: float, tail: int
) -> dict[int, float]:
    """How often a claim gets one of the words, by number of seeds and at any look."""
    leads = drawn(random, (DRAWS, max(LOOKS), of), correlation, tail) + truth.others
    leads[:, :, 0] += (truth.one if truth.one is not None else _edge(truth, margin)) - truth.others
    said = {seeds: np.isin(words_of(leads[:, :seeds], margin), truth.words) for seeds in LOOKS}
    shares = {seeds: float(each.mean()) for seeds, each in said.items()}
    return shares | {EVER: float(np.any([*said.values()], axis=0).mean())}


def _edge(truth: Truth, margin: float) -> float:
    return margin if truth.words == (Word.TOO_SMALL,) else -margin


def claims(random: np.random.Generator) -> Iterator[Claims]:
    """The rates of all words of claims about each comparison."""
    for truth in FALSE:
        cases = [
            rates_of_truth(random, truth, *case)
            for case in product(MARGINS, NUMBERS, CORRELATIONS, TAILS)
            if case[0] >= truth.least_margin
        ]
        worst = {seeds: max(rates[seeds] for rates in cases) for seeds in (*LOOKS, EVER)}
        yield Claims(" or ".join(truth.words), truth.what, LEVEL, worst)
    for truth in TRUE:
        rates = rates_of_truth(random, truth, 0.5, 8, 0.5, 0)
        yield Claims(" or ".join(truth.words), truth.what, None, rates)


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
    heads = " | ".join([*(f"{seeds} seeds" for seeds in LOOKS), "at any look"])
    rows = [
        f"| word | truth | at most | {heads} |",
        "|---|---|---|" + "---|" * (len(LOOKS) + 1),
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
