"""What there is between two rounds of a run."""

from dataclasses import dataclass

from fedrepro.engine.round import begin
from fedrepro.engine.tree import Tree
from fedrepro.run.assembly import Plan
from fedrepro.run.record import (
    CLIENT_COLUMNS,
    DECISION_COLUMNS,
    PERSONAL_CLIENT_COLUMNS,
    PERSONAL_ROUND_COLUMNS,
    ROUND_COLUMNS,
    Rows,
)
from fedrepro.run.store import ClientStore


@dataclass
class State:
    """All that there is between two rounds."""

    server: Tree
    owns: ClientStore
    rounds: Rows
    clients: Rows
    decisions: Rows  # of methods that decide from losses; else it stays empty
    done: int = 0
    diverged_at: int | None = None
    bytes_down: int = 0
    bytes_up: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    resumed: int = 0


def first_state(plan: Plan, owns: ClientStore) -> State:
    """The state before the first round."""
    rounds, clients = columns_of(plan)
    return State(begin(plan.federation), owns, Rows(rounds), Rows(clients), Rows(DECISION_COLUMNS))


def columns_of(plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a run's rounds and of its clients."""
    if not plan.personal:
        return ROUND_COLUMNS, CLIENT_COLUMNS
    further = tuple(plan.federation.context.task.measures)
    over = tuple(f"{kind}_{name}" for name in further for kind in ("client", "test"))
    return (*PERSONAL_ROUND_COLUMNS, *over), (*PERSONAL_CLIENT_COLUMNS, *further)
