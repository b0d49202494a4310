"""The rules of the verdicts, as sentences for the reader of a table."""

from fedrepro.report.papers.limits import MOST
from fedrepro.report.papers.published import Spread, Unit

# Two of our methods are twins if no seed separates them by more than this; they count once.
TWINS: dict[Unit, float] = {"percent": 0.05, "fraction": 0.0005, "own": 0.0}

COMPUTED_RULE = (
    "These numbers involve no randomness. A count agrees if it is equal. A rounded number, mean "
    "or spread agrees if it differs by at most one unit of the last printed digit, as printed "
    "numbers may have been computed from rounded ones. Words and expressions agree if they are "
    "equal."
)

DRAW = (
    "A printed number without a spread over seeds is one draw, which we take to scatter as our "
    "seeds do. The limit is t s √(1 + 1/n), the 95 % prediction interval of one more seed. One "
    "seed of ours has no spread. It gets the largest one that this column shows over several "
    "seeds in another row on the same data set, or that of its own last evaluated rounds if that "
    "is wider, and each verdict says which; a difference within the tolerance then never differs. "
    "Without such a row there is no verdict: rounds alone do not show how seeds scatter."
)


def rule_in_words(spread: Spread) -> tuple[str, ...]:
    """The rule for a system's tables, as sentences for the reader."""
    if spread.over == "seeds":
        kind = "population" if spread.ddof == 0 else "sample"
        first: tuple[str, ...] = (
            f"The printed spread is over {spread.seeds} seeds ({spread.source}), as a {kind} "
            "standard deviation. The limit is that of the joint standard error (Welch's t). With "
            "one seed of ours the printed spread also serves as ours.",
        )
        if spread.own_splits:
            first += (_paired(spread),)
        first += (f"Where no spread is printed: {DRAW[0].lower()}{DRAW[1:]}",)
    else:
        unseeded = {
            "clients": "The printed spread is over clients, not over seeds",
            "none": "The paper prints no spread over seeds",
        }
        first = (f"{unseeded[spread.over]} ({spread.source}). {DRAW}",)
    return (
        "Each difference has a 95 % limit: numbers with the same true value differ by more in 5 % "
        "of cases. Two numbers differ if their difference is more than its limit (a test of "
        "difference at 5 %). They agree if difference and limit together are within the effect "
        "that the paper claims there (an equivalence test: two one-sided tests at 2.5 % each). "
        "That effect is the printed distance between the proposed method and the best other one, "
        "or between a method with and without a plug-in, but at most two points. Where the paper "
        "claims none, it is the tolerance: one percentage point, or a quarter of the printed error "
        "rate (or of the rate itself) if that is smaller, such as 0.25 points at 99 %. A small "
        "difference may be beyond chance and agree. Everything else is undecided, with the number "
        "of seeds that would decide if difference and spread stay as they are: at most "
        f"{MOST}, or more than that.",
        *first,
        "Half a unit of the last printed digit is added to each limit. Numbers that are neither "
        "percentages nor fractions, such as rounds or a loss, have no tolerance.",
        "A cell is not comparable if a run of its method, or of the best of several, diverged; "
        "if some of the methods behind a printed best have not run yet; if ours is from other code "
        "than today's, from another configuration than the published one or on a surrogate for the "
        "published data; if its runs differ in their arithmetic; if it is a measure of another "
        "kind than the printed one; or if the printed cell is empty. "
        "A number at scale demo has no verdict.",
    )


def _paired(spread: Spread) -> str:
    assert spread.own_splits
    names, seeds = ", ".join(spread.own_splits.datasets), spread.own_splits.seeds
    return (
        f"On {names} our seeds and splits are the authors' own ({', '.join(map(str, seeds))}: "
        f"{spread.own_splits.source}). What a seed does to all methods then cancels. No number is "
        "printed per seed, so a method's scatter is estimated from our runs alone: s is the "
        "standard deviation, over the seeds, of its value less the median of the other methods' "
        "values (in the same reading, the paper's or the released code's), with "
        f"{len(seeds) - 1} degrees of freedom. Each method has its own s; none are pooled. Methods "
        f"that no seed separates by more than {TWINS['percent']} points are twins: a method's "
        "twins are left out of its median, and others that are twins count once. The limit is "
        "t s √(2/n)."
    )
