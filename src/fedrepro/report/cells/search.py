"""What a search comes to: candidates scored on validation samples, by which one is selected.

The selection is given validation scores and nothing else. Which candidate has the best test score
is shown beside it for what it is: a choice that nobody may make, as its score is no estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedrepro.config.searches import Candidate
from fedrepro.config.targets import SearchTarget, Trial
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Reading, Record, Series
from fedrepro.report.cells.cell import Result
from fedrepro.report.cells.tables import result_of
from fedrepro.run.results import RunRecord


@dataclass(frozen=True)
class Tried:
    """A candidate and its scores over seeds, from the same runs."""

    candidate: Candidate
    validation: Result
    test: Result

    @property
    def diverged(self) -> bool:
        return any(run.state == "diverged" for run in self.validation.runs)


@dataclass(frozen=True)
class Found:
    """A method's candidates.

    Attributes:
        published, selected, test_selected: places in ``tried``; the latter two are None as long as
            no candidate has a score with every seed.
        waiting: how many candidates are still to be run with some seed, none of which diverged: so
            long another one may yet be selected.
    """

    trial: Trial
    tried: tuple[Tried, ...]
    published: int
    selected: int | None
    test_selected: int | None
    waiting: int


def compute(workbench: Workbench, target: SearchTarget) -> list[Found]:
    """What is selected for each method, from runs. Missing ones are holes.

    Raises:
        UserError: when a run's files are damaged.
    """
    measure = target.search.metric.reading
    return [_found(workbench, target, trial, measure) for trial in target.trials]


def _found(workbench: Workbench, target: SearchTarget, trial: Trial, measure: Reading) -> Found:
    kept = on_validation(measure)
    tried = []
    for candidate in trial.candidates:
        runs = {candidate.method: target.runs_of(candidate)}
        validation, test = (
            result_of(workbench, target.setting, runs, each, target.search.summary)
            for each in (kept, measure)
        )
        tried.append(Tried(candidate, validation, test))
    published, seeds = trial.candidates.index(trial.published), len(target.seeds)
    selected = select(
        [_score(each.validation, seeds) for each in tried], measure.rising, (published,)
    )
    preferred = (published,) if selected is None else (selected, published)
    return Found(
        trial,
        tuple(tried),
        published,
        selected,
        select([_score(each.test, seeds) for each in tried], measure.rising, preferred),
        sum(each.validation.n < seeds and not each.diverged for each in tried),
    )


def on_validation(measure: Reading) -> Reading:
    """The same measure of what clients keep for validation; it sees no test score of a run."""

    def series(record: Record) -> Series:
        assert isinstance(record, RunRecord)
        return measure.series(replace(record, scored_on="validation"))

    return replace(measure, series=series, without="has no validation scores")


def _score(result: Result, seeds: int) -> float | None:
    """The mean over all seeds: over fewer it can't be compared."""
    return result.mean if result.n == seeds else None


def select(scores: Sequence[float | None], rising: bool, preferred: Sequence[int]) -> int | None:
    """The place of the best score; of equal ones a preferred place, then the first, counts."""
    known = [score for score in scores if score is not None]
    best = (max if rising else min)(known, default=math.nan)
    order: list[int] = [*preferred, *range(len(scores))]
    for place in order:
        if scores[place] == best:
            return place
    return None
