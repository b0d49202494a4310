"""Hold a run's state between two rounds: the rows so far, their columns, and why it ends early."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, name_of
from fedrepro.engine.round import begin
from fedrepro.engine.tree import Tree
from fedrepro.measures import registry
from fedrepro.measures.base import Measure
from fedrepro.run.assembly import Plan
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import bad_value

WHOLE = {
    "round", "client", "train_samples", "test_samples", "validation_samples", "participations",
    "bytes_down", "bytes_up",
}  # fmt: skip

DECISION_COLUMNS = ("round", "client", "loss", "weight")
MIXTURE_COLUMNS = ("client", "weight", "test_samples", "loss", "accuracy")


class Rows:
    """A growing table of numbers; int columns are kept as floats, exact up to 2**53.

    A row must have all of ``columns``; what else it has is not kept.
    """

    def __init__(self, columns: tuple[str, ...], table: NDArray[np.float64] | None = None) -> None:
        self.columns = columns
        empty = np.empty((0, len(columns)))
        self._blocks = [empty if table is None else table]  # as they came, [rows, columns]

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def put(self, values: Mapping[str, ArrayLike]) -> None:
        """Add one row or more, as columns; a single number is the same in all of them."""
        columns = np.broadcast_arrays(*(np.atleast_1d(values[column]) for column in self.columns))
        self._blocks.append(np.stack(columns, axis=1).astype(np.float64, copy=False))

    @property
    def table(self) -> NDArray[np.float64]:
        """All rows, [rows, columns]."""
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def as_tree(self) -> dict[str, torch.Tensor]:
        """The columns as float64 tensors, for a checkpoint."""
        table = torch.from_numpy(self.table)
        return {column: table[:, index].clone() for index, column in enumerate(self.columns)}

    @classmethod
    def from_tree(cls, columns: tuple[str, ...], saved: Mapping[str, torch.Tensor]) -> "Rows":
        return cls(columns, np.stack([saved[column].numpy() for column in columns], axis=1))

    def last(self) -> dict[str, float]:
        """The row added last; empty if there is none."""
        last = self._blocks[-1]
        return dict(zip(self.columns, last[-1].tolist(), strict=True)) if len(last) else {}

    def write(self, path: Path) -> None:
        """Write Parquet; equal rows give equal bytes."""
        # Imported here, as it is needed once per run and must not delay the first round.
        import pyarrow.parquet

        arrays = []
        for index, column in enumerate(self.columns):
            kind = np.int64 if column in WHOLE else np.float64
            values = np.ascontiguousarray(self.table[:, index], dtype=kind)
            # From bytes: for any other object pyarrow imports pandas, which takes a second.
            arrays.append(
                pyarrow.Array.from_buffers(
                    pyarrow.from_numpy_dtype(kind), len(values), [None, pyarrow.py_buffer(values)]
                )
            )
        pyarrow.parquet.write_table(
            pyarrow.Table.from_arrays(arrays, names=list(self.columns)), path
        )


ROUND_COLUMNS = (
    "round", "learning_rate", "test_loss", "test_accuracy", "bytes_down", "bytes_up",
)  # fmt: skip
PERSONAL_ROUND_COLUMNS = (*ROUND_COLUMNS, "client_loss", "client_accuracy", "client_accuracy_std")
VALIDATION_COLUMNS = ("validation_loss", "validation_accuracy")  # of rounds, if clients have any
ENSEMBLE_COLUMNS = ("ensemble_loss", "ensemble_accuracy")  # of methods that distil
CLIENT_COLUMNS = ("round", "client", "train_samples", "update_norm")
PERSONAL_CLIENT_COLUMNS = (
    "round", "client", "train_samples", "test_samples", "participations", "loss", "accuracy",
)  # fmt: skip
# Columns that a task without right and wrong predictions does not have.
ACCURACIES = {
    "accuracy", "test_accuracy", "client_accuracy", "client_accuracy_std", "validation_accuracy",
    "ensemble_accuracy",
}  # fmt: skip


@dataclass
class State:
    """Training state between two rounds."""

    server: Tree
    client_states: ClientStore
    rounds: Rows
    clients: Rows
    decisions: Rows  # of methods with adaptive weighting; otherwise empty
    done: int = 0
    diverged_at: int | None = None
    stopped: str = ""  # why it ends before its last round; no checkpoint of such a round is saved
    bytes_down: int = 0
    bytes_up: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    resumed: int = 0
    began: dict[str, Any] | None = None  # method, seed and round of the parent run, if any
    # Files of single rounds that the run has written so far: name -> SHA-256.
    beside: dict[str, str] = field(default_factory=dict)
    # The rounds in which each client took part, of the first ``counted`` ones; not in checkpoints.
    taken: NDArray[np.int64] | None = None
    counted: int = 0

    @property
    def ended(self) -> bool:
        """Whether no further round is played, although some may be left."""
        return self.diverged_at is not None or bool(self.stopped)


def first_state(plan: Plan, client_states: ClientStore) -> State:
    """The state before the first round."""
    server = begin(plan.federation)
    rounds, clients = columns_of(plan, server)
    refuse_unrecorded(plan, rounds)
    return State(server, client_states, Rows(rounds), Rows(clients), Rows(DECISION_COLUMNS))


def columns_of(plan: Plan, server: Tree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a run's rounds and clients; ``server`` is any state of its server.

    :class:`Rows` keeps these and nothing else, so a new number of a round is named here, too.
    """
    federation, task = plan.federation, plan.federation.context.task
    rounds, clients = list(ROUND_COLUMNS), list(CLIENT_COLUMNS)
    if plan.scores_clients:
        over = (f"{kind}_{name}" for name in task.measures for kind in ("client", "test"))
        rounds = [*PERSONAL_ROUND_COLUMNS, *over]
        clients = [*PERSONAL_CLIENT_COLUMNS, *task.measures]
        if plan.client_validations:
            scores = ("samples", "loss", "accuracy", *task.measures)
            clients += [f"validation_{name}" for name in scores]
    clients += plan.reported_by_clients
    rounds += reported(federation.method, federation.context, server)
    rounds += ENSEMBLE_COLUMNS if plan.distills else ()
    rounds += VALIDATION_COLUMNS if plan.validation is not None else ()
    rounds += [*(measure.name for measure in plan.measures_of_round), *plan.test_columns]
    left_out = set() if task.has_accuracy else ACCURACIES

    def kept(columns: list[str]) -> tuple[str, ...]:
        return tuple(name for name in dict.fromkeys(columns) if name not in left_out)

    return kept(rounds), kept(clients)


def reported(method: Method, ctx: Context, server: Tree) -> dict[str, float]:
    """The numbers that a method reports of a round.

    Raises:
        UserError: for a name that a column of the engine has, or what is no number.
    """
    numbers = dict(method.metrics(ctx, server))
    over = (f"{kind}_{name}" for name in ctx.task.measures for kind in ("client", "test"))
    taken = {*PERSONAL_ROUND_COLUMNS, *ENSEMBLE_COLUMNS, *VALIDATION_COLUMNS, *over}
    for name, value in numbers.items():
        where = f"method {name_of(method)}: metrics"
        if not isinstance(name, str) or name in taken:
            raise bad_value(where, "name", name, "a name that no column of rounds has")
        try:
            numbers[name] = math.nan if value is None else float(value)
        except (TypeError, ValueError, RuntimeError):
            raise bad_value(where, name, value, "a number") from None
    return numbers


ROUNDING = 1e-9  # an accuracy of 0.6 is 59.999999999999993 %


def why_it_ends(plan: Plan, rounds: Rows) -> str:
    """Say why a run ends after the round that was evaluated last; "" if it goes on.

    It follows from the rows alone, so that a run that resumes ends in the same round.

    Raises:
        UserError: if it would end as one that has not improved, and no round has a number.
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
        if np.isnan(column).all():
            wanted = f"one that has a number: in {len(column)} evaluated rounds it had none"
            where = f"setting {plan.spec.setting.name}"
            raise bad_value(where, "stop.measure", stop.measure, wanted)
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
