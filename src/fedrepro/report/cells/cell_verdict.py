"""A cell's verdict: whether our number may be compared with the printed one, and what it says."""

from collections.abc import Sequence

from fedrepro.measures.base import Quantity
from fedrepro.report.cells.cell import CellRun, Result
from fedrepro.report.papers.estimate import Borrowed, Estimate, Paired
from fedrepro.report.papers.published import PrintedCell, Published
from fedrepro.report.papers.verdict import Verdict, judge

Spreads = tuple[Paired | None, Borrowed | None]


def verdict_of(
    published: Published,
    printed: PrintedCell | None,
    result: Result,
    spreads: Spreads,
    incomparable: str,
) -> Verdict | None:
    """The verdict; None with nothing to compare. ``incomparable`` says why ours can't be."""
    chosen = result.runs_of_the_chosen
    diverged = [run for run in (chosen or result.runs) if run.state == "diverged"]
    if printed is not None and result.apart:
        return Verdict("not comparable", f"{result.hole}.")
    if printed is None or not (result.n or diverged):
        return None
    changed = sorted({key for run in chosen if run.value is not None for key in run.changed})
    # A diverged run counts as run; it was not the best.
    tried = {run.method for run in result.runs if run.state == "diverged"} | {*result.tried}
    if diverged:
        return Verdict("not comparable", f"Seed {diverged[0].seed} {diverged[0].why}.")
    if changed:
        in_what = ", ".join(changed)
        return Verdict("not comparable", f"The configuration has changed since, in {in_what}.")
    stale = [run for run in chosen if run.value is not None and run.stale]
    if stale:
        whose = seeds_in_words(stale).capitalize()
        return Verdict("not comparable", f"{whose}: {stale[0].stale}.")
    if len(tried) < len(result.methods):
        there, wanted = len(tried), len(result.methods)
        are = "is" if there == 1 else "are"
        why = f"The printed number is the best of {wanted}; {there} of them {are} run."
        return Verdict("not comparable", why)
    if incomparable:
        return Verdict("not comparable", incomparable, basis="not comparable")
    assert result.mean is not None
    ours = Estimate(result.n, result.mean, result.std, result.half_width)
    spread = published.systems[printed.system].spread
    return judge(printed, ours, spread, published.effect(printed), *spreads)


def other_unit(printed: PrintedCell, ours: Quantity) -> str:
    """Why a printed fraction of 1 is not compared with ours in percent; "" for other units."""
    if printed.unit != "fraction" or ours.unit not in ("%", "points"):
        return ""
    return f"It is printed as a fraction of 1 (`unit` in paper.yaml), and ours is in {ours.unit}."


def seeds_in_words(runs: Sequence[CellRun]) -> str:
    return f"seed{'s' * (len(runs) > 1)} {' and '.join(str(run.seed) for run in runs)}"
