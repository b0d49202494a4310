"""What there is between two rounds of a run, and how it outlives the process."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from fedrepro.engine import tree
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
from fedrepro.run.store import ClientStore, damaged, load_tree, save_tree
from fedrepro.support.errors import cannot_write
from fedrepro.support.files import flush, make_folder


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


CHECKPOINT = "checkpoint.safetensors"
COUNTERS = (
    "done", "diverged_at", "bytes_down", "bytes_up", "wall_seconds", "cpu_seconds", "resumed",
)  # fmt: skip


def resume(partial: Path, plan: Plan, identity: str) -> State:
    """The state of the last checkpoint, or a new one.

    Args:
        identity: of the run; a checkpoint with another one is thrown away.

    Raises:
        UserError: for a damaged checkpoint, or when the disk refuses.
    """
    columns: tuple[str, ...] = ROUND_COLUMNS
    client_columns: tuple[str, ...] = CLIENT_COLUMNS
    if plan.personal:
        further = tuple(plan.federation.context.task.measures)
        over = tuple(f"{kind}_{name}" for name in further for kind in ("client", "test"))
        columns = (*PERSONAL_ROUND_COLUMNS, *over)
        client_columns = (*PERSONAL_CLIENT_COLUMNS, *further)
    owns, checkpoint = partial / "clients", partial / CHECKPOINT
    device = plan.federation.device
    if checkpoint.exists():
        saved, facts = load_tree(checkpoint)
        try:
            if facts["identity"] == identity:
                state = State(
                    tree.apply(lambda leaf: leaf.to(device), saved["server"]),
                    ClientStore(owns, facts["versions"], device),
                    Rows.from_tree(columns, saved["rounds"]),
                    Rows.from_tree(client_columns, saved["clients"]),
                    Rows.from_tree(DECISION_COLUMNS, saved["decisions"]),
                    **facts["counters"],
                )
                state.resumed += 1
                return state
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise damaged(checkpoint, error) from error
    try:
        discard(partial)  # another code, configuration or data: nothing to go on from
        make_folder(partial)
    except OSError as error:
        raise cannot_write(partial, error) from error
    return State(
        begin(plan.federation),
        ClientStore(owns, device=device),
        Rows(columns),
        Rows(client_columns),
        Rows(DECISION_COLUMNS),
    )


def save(state: State, partial: Path, identity: str) -> None:
    """Keep ``state``; a process that is killed while this happens leaves the checkpoint before.

    Raises:
        UserError: when the disk refuses.
    """
    facts = {
        "identity": identity,
        "versions": state.owns.flush(),
        "counters": {name: getattr(state, name) for name in COUNTERS},
    }
    what = {
        "server": state.server,
        "rounds": state.rounds.as_tree(),
        "clients": state.clients.as_tree(),
        "decisions": state.decisions.as_tree(),
    }
    save_tree(partial / CHECKPOINT, what, facts)
    state.owns.settle()


def discard(partial: Path) -> None:
    """Remove a folder of checkpoints; the checkpoint first, as it means the clients' files."""
    (partial / CHECKPOINT).unlink(missing_ok=True)
    flush(partial)
    shutil.rmtree(partial)
