"""Score a search's candidates on validation samples and select one.

The selection sees validation scores only. The candidate with the best test score is shown for
comparison: selecting it would be invalid, as its score is biased upwards.
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
    """A candidate and its validation and test scores over seeds, from the same runs."""

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
        published, selected, test_selected: indices into ``tried``; the latter two are None until
            some candidate has a score with every seed.
        waiting: how many candidates lack a seed and have not diverged; until it is 0, another one
            may still be selected.
    """

    trial: Trial
    tried: tuple[Tried, ...]
    published: int
    selected: int | None
    test_selected: int | None
    waiting: int


def compute(workbench: Workbench, target: SearchTarget) -> list[Found]:
    """Select a candidate for each method, from its runs. Missing runs leave holes.

    Raises:
        UserError: if a run's files are damaged.
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
    """The same metric on clients' validation samples; never reads a test score."""

    def series(record: Record) -> Series:
        assert isinstance(record, RunRecord)
        return measure.series(replace(record, scored_on="validation"))

    return replace(measure, series=series, without="has no validation scores")


def _score(result: Result, seeds: int) -> float | None:
    """The mean over all seeds; None if one is missing, as means over fewer are not comparable."""
    return result.mean if result.n == seeds else None


def select(scores: Sequence[float | None], rising: bool, preferred: Sequence[int]) -> int | None:
    """The index of the best score; ties go to a preferred index, then to the first."""
    known = [score for score in scores if score is not None]
    best = (max if rising else min)(known, default=math.nan)
    order: list[int] = [*preferred, *range(len(scores))]
    for place in order:
        if scores[place] == best:
            return place
    return None
