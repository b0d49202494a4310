"""Whether a run ends before its last round: at a target, or after evaluations without gain."""

from collections.abc import Sequence

import numpy as np

from fedrepro.measures import registry
from fedrepro.measures.base import Measure
from fedrepro.run.assembly import Plan
from fedrepro.run.record import Rows
from fedrepro.support.errors import bad_value

ROUNDING = 1e-9  # an accuracy of 0.6 is 59.999999999999993 %


def why(plan: Plan, rounds: Rows) -> str:
    """Why a run ends after the round that was evaluated last, in words; "" if it goes on.

    It follows from the rows alone, so that a run that resumes ends in the same round.
    """
    stop = plan.spec.setting.stop
    if stop is None:
        return ""
    measure = registry.the(stop.measure, "client", "round", folders=plan.spec.plugins)
    column = rounds.table[:, rounds.columns.index(_column(plan, measure))]
    sign, words = 1 if measure.higher_is_better else -1, measure.words
    if plan.validation is not None:
        words = f"{words} on validation samples"
    scores = np.nan_to_num(sign * measure.factor * column, nan=-np.inf)
    if stop.at is not None and scores[-1] >= sign * stop.at - ROUNDING:
        return f"{words} reached {stop.at:g} {measure.unit}".rstrip()
    if stop.patience and len(scores) - 1 - int(scores.argmax()) >= stop.patience:
        return f"{words} has not improved in {stop.patience} evaluations"
    return ""


def refuse_unrecorded(plan: Plan, columns: Sequence[str]) -> None:
    """Raise UserError if a run stops by a measure that is in none of its columns of rounds."""
    stop, folders = plan.spec.setting.stop, plan.spec.plugins
    known = registry.known("client", "round", folders=folders) if stop else {}
    recorded = [name for name, each in known.items() if _column(plan, each) in columns]
    if stop and stop.measure not in recorded:
        samples = "clients' validation samples" if plan.validation is not None else "test samples"
        wanted = f"a measure that the run records on {samples}: {', '.join(recorded)}"
        raise bad_value(
            f"setting {plan.spec.setting.name}", "stop.measure", stop.measure, wanted, recorded
        )


def _column(plan: Plan, measure: Measure) -> str:
    """Its column in rounds.parquet: on validation samples, if clients hold any out."""
    if plan.validation is not None:
        return f"validation_{measure.name}"
    return measure.column if measure.per == "round" else f"test_{measure.name}"
