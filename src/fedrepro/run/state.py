"""Training state between two rounds of a run."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, name_of
from fedrepro.engine.round import begin
from fedrepro.engine.tree import Tree
from fedrepro.run import stopping
from fedrepro.run.assembly import Plan
from fedrepro.run.record import DECISION_COLUMNS, Rows
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import bad_value

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
    stopping.refuse_unrecorded(plan, rounds)
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
