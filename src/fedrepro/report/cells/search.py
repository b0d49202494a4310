"""Score a search's candidates on validation samples and select one.

The selection sees validation scores only. Of a setting's searched keys, such as its learning rate,
the smallest values within one standard error of the best are selected, and their search goes on by
half-decades while the best is at an end of what was tried. Of a paper's own grid the best is
selected, as of a method's. The candidate with the best test score is shown for comparison:
selecting it would be invalid, as its score is biased upwards.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any

from fedrepro.config.searches import Candidate, is_number
from fedrepro.config.targets import SearchTarget, Trial
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity, Record
from fedrepro.report.cells.cell import Result, best_of
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
class MethodSearch:
    """A method's candidates.

    Attributes:
        published, selected, test_selected: indices into ``tried``; the latter two are None until
            some candidate has a score with every seed.
        in_use: the index of the values that the setting has; None if they were not tried.
        best: the index of the best validation score, which is selected unless keys are searched,
            and not in a paper's own grid.
        waiting: how many candidates lack a seed and have not diverged; until it is 0, another one
            may still be selected.
    """

    trial: Trial
    tried: tuple[Tried, ...]
    published: int
    selected: int | None
    test_selected: int | None
    waiting: int
    in_use: int | None
    best: int | None


def compute(workbench: Workbench, target: SearchTarget) -> list[MethodSearch]:
    """Select a candidate for each method, from its runs. Missing runs leave holes.

    Raises:
        UserError: if a run's files are damaged.
    """
    return [_searched(workbench, target, trial) for trial in target.trials]


def as_far_as_it_went(workbench: Workbench, target: SearchTarget) -> SearchTarget:
    """A search with the candidates to which its runs have led.

    Raises:
        UserError: if a run's files are damaged.
    """
    while True:
        searches = compute(workbench, target)
        trials = tuple(_gone_on(workbench, target, search) for search in searches)
        if trials == target.trials:
            return target
        target = replace(target, trials=trials)


def _gone_on(workbench: Workbench, target: SearchTarget, search: MethodSearch) -> Trial:
    trial, searched = search.trial, search.trial.searched
    if search.waiting or search.best is None:
        return trial
    for key in searched.keys:
        searched = searched.gone_on(key, trial.candidates[search.best].values[key])
    gone_on = Trial.of(searched, trial.published.values)
    # So many half-decades beyond the grid there are no settings.
    names = {target.setting + candidate.suffix for candidate in gone_on.candidates}
    return gone_on if names <= workbench.settings.keys() else trial


def _searched(workbench: Workbench, target: SearchTarget, trial: Trial) -> MethodSearch:
    quantity, tried = target.search.metric.quantity, []
    for candidate in trial.candidates:
        runs = {candidate.method: target.runs_of(candidate)}
        setting = target.setting + candidate.suffix
        validation, test = (
            result_of(workbench, setting, runs, each, target.search.summary)
            for each in (on_validation(quantity), quantity)
        )
        tried.append(Tried(candidate, validation, test))
    published, seeds = trial.candidates.index(trial.published), len(target.seeds)
    scores = [_score(candidate.validation, seeds) for candidate in tried]
    best = select(scores, quantity.higher_is_better, (published,))
    selected = best
    if best is not None and trial.searched.keys and not trial.searched.paper_grid:
        selected = _smallest(tried, scores, best, [*trial.searched.keys])
    preferred = (published,) if selected is None else (selected, published)
    own = _own_values(workbench, target, trial)
    values = [candidate.values for candidate in trial.candidates]
    return MethodSearch(
        trial,
        tuple(tried),
        published,
        selected,
        select(
            [_score(candidate.test, seeds) for candidate in tried],
            quantity.higher_is_better,
            preferred,
        ),
        sum(candidate.validation.n < seeds and not candidate.diverged for candidate in tried),
        values.index(own) if own in values else None,
        best,
    )


def _smallest(
    tried: Sequence[Tried], scores: Sequence[float | None], best: int, keys: Sequence[str]
) -> int:
    """Of the candidates within one standard error of the best, that with the smallest values.

    Of several with these, such as those of a method's own grid, that with the best score.
    """
    values = [*tried[best].validation.by_seed.values()]
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    top = scores[best]
    assert top is not None
    behind = {place: abs(score - top) for place, score in enumerate(scores) if score is not None}
    near = [place for place, distance in behind.items() if distance <= error]
    sizes = {place: [tried[place].candidate.values[key] for key in keys] for place in near}
    if not all(is_number(value) for those in sizes.values() for value in those):
        return best
    return min(near, key=lambda place: (sizes[place], behind[place], place != best))


def at_an_end(workbench: Workbench, target: SearchTarget) -> Iterator[str]:
    """The values in use that are the least or the largest of a method's own grid, in words.

    Another might be better still: such a grid does not go on.
    """
    for trial in target.trials:
        own = _own_values(workbench, target, trial) or {}
        for key, grid in trial.searched.closed_grids.items():
            numbers: list[Any] = [value for value in grid if is_number(value)]
            ends = {min(numbers), max(numbers)} if len(numbers) == len(grid) > 1 else set[Any]()
            if own.get(key) in ends:
                label = trial.searched.label or trial.searched.method
                yield f"{label}, {key} {own[key]:g}"


def _own_values(workbench: Workbench, target: SearchTarget, trial: Trial) -> dict[str, Any] | None:
    """The searched keys' values in the searched setting, if it has one of each."""
    experiment = workbench.experiments[target.system]
    unpublished = trial.searched.model_copy(update={"published": {}})
    return experiment.choice(target.search, unpublished)


def on_validation(quantity: Quantity) -> Quantity:
    """The same metric on clients' validation samples; never reads a test score."""
    of_all = quantity.together

    def validated(record: Record) -> RunRecord:
        assert isinstance(record, RunRecord)
        return replace(record, scored_on="validation")

    return replace(
        quantity,
        series=lambda record: quantity.series(validated(record)),
        together=of_all and (lambda records: of_all([*map(validated, records)])),
        without="has no validation scores",
        remark=lambda record: quantity.remark(validated(record)),
    )


def _score(result: Result, seeds: int) -> float | None:
    """The mean over all seeds; None if one is missing, as means over fewer are not comparable."""
    return result.mean if result.n == seeds else None


def select(
    scores: Sequence[float | None], higher_is_better: bool, preferred: Sequence[int]
) -> int | None:
    """The index of the best score; ties go to a preferred index, then to the first."""
    known = {place: score for place, score in enumerate(scores) if score is not None}
    best = best_of(known, higher_is_better)
    return next((place for place in (*preferred, *sorted(best)) if place in best), None)
