"""How what there is between two rounds of a run outlives the process."""

import shutil
from pathlib import Path

from fedrepro.engine import tree
from fedrepro.run.assembly import Plan
from fedrepro.run.record import DECISION_COLUMNS, Rows
from fedrepro.run.state import State, columns_of, first_state
from fedrepro.run.store import ClientStore, damaged, load_tree, save_tree
from fedrepro.support.errors import cannot_write
from fedrepro.support.files import flush, make_folder

# Raised when the files of a checkpoint change: those of another layout are thrown away. The code
# that reads and writes them is no part of a run's fingerprint.
LAYOUT = 1

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
    owns, checkpoint = partial / "clients", partial / CHECKPOINT
    device = plan.federation.context.net.device
    if checkpoint.exists():
        saved, facts = load_tree(checkpoint)
        try:
            if facts["identity"] == identity:
                rounds, clients = columns_of(plan, saved["server"])
                state = State(
                    tree.apply(lambda leaf: leaf.to(device), saved["server"]),
                    ClientStore(owns, facts["versions"], device),
                    Rows.from_tree(rounds, saved["rounds"]),
                    Rows.from_tree(clients, saved["clients"]),
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
    return first_state(plan, ClientStore(owns, device=device))


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
