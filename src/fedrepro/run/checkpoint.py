"""How what there is between two rounds of a run outlives the process."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrepro.engine import tree
from fedrepro.run.assembly import Plan
from fedrepro.run.manifest import hardware
from fedrepro.run.record import DECISION_COLUMNS, Rows
from fedrepro.run.results import changed_files
from fedrepro.run.shared_prefix import ParentRun, kept_in
from fedrepro.run.state import State, columns_of, first_state
from fedrepro.run.store import ClientStore, damaged, load_tree, save_tree
from fedrepro.support.errors import UserError, cannot_write
from fedrepro.support.files import flush, make_folder, sha256_of, whole_folder

# Raised when the files of a checkpoint change: those of another layout are thrown away. The code
# that reads and writes them is no part of a run's fingerprint.
LAYOUT = 3

CHECKPOINT = "checkpoint.safetensors"
CLIENTS = "clients"
ABOUT = "about.json"  # of a checkpoint that is kept for other runs
COUNTERS = (
    "done", "diverged_at", "bytes_down", "bytes_up", "wall_seconds", "cpu_seconds", "resumed",
    "began",
)  # fmt: skip


def resume(
    partial: Path, plan: Plan, identity: str, note: Callable[[str], None] = lambda line: None
) -> State:
    """The state of the last checkpoint, or a new one.

    Args:
        identity: of the run; a checkpoint with another one is thrown away.
        note: told in one line of a damaged checkpoint, which is thrown away, too.

    Raises:
        UserError: when the disk refuses.
    """
    checkpoint, state = partial / CHECKPOINT, None
    try:
        if checkpoint.exists():
            state = _load(checkpoint, plan, identity, partial / CLIENTS)
        if state:
            for client in state.client_states.clients():  # not when their turn comes, hours later
                state.client_states.get(client)
            state.resumed += 1
            return state
    except UserError as error:
        note(f"{error}: not gone on from")
    try:
        discard(partial)  # another code, configuration or data: nothing to go on from
        make_folder(partial)
    except OSError as error:
        raise cannot_write(partial, error) from error
    device = plan.federation.context.net.device
    return first_state(plan, ClientStore(partial / CLIENTS, device=device))


def _load(checkpoint: Path, plan: Plan, identity: str, client_states: Path) -> State | None:
    """The state of a checkpoint, None of another identity; ``client_states`` is their folder.

    Raises:
        UserError: when it is damaged.
    """
    saved, facts = load_tree(checkpoint, checksummed=True)
    device = plan.federation.context.net.device
    try:
        if facts["identity"] != identity:
            return None
        rounds, clients = columns_of(plan, saved["server"])
        return State(
            tree.apply(lambda leaf: leaf.to(device), saved["server"]),
            ClientStore(client_states, facts["versions"], device),
            Rows.from_tree(rounds, saved["rounds"]),
            Rows.from_tree(clients, saved["clients"]),
            Rows.from_tree(DECISION_COLUMNS, saved["decisions"]),
            **facts["counters"],
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise damaged(checkpoint, error) from error


def save(state: State, partial: Path, identity: str) -> None:
    """Keep ``state``; a process that is killed while this happens leaves the checkpoint before.

    Raises:
        UserError: when the disk refuses.
    """
    facts = {
        "identity": identity,
        "versions": state.client_states.flush(),
        "counters": {name: getattr(state, name) for name in COUNTERS},
    }
    what = {
        "server": state.server,
        "rounds": state.rounds.as_tree(),
        "clients": state.clients.as_tree(),
        "decisions": state.decisions.as_tree(),
    }
    save_tree(partial / CHECKPOINT, what, facts, checksummed=True)
    state.client_states.settle()


def keep(partial: Path, folder: Path, identity: str, device: str) -> None:
    """Leave the checkpoint that was just saved in ``folder`` for other runs; one stays as it is.

    Files are linked where the file system can: none of them is ever written again.

    Raises:
        UserError: when the disk refuses.
    """
    about = {"identity": identity, "machine": hardware(device)}
    if about.items() <= _about(folder).items():
        return
    files = [partial / CHECKPOINT, *sorted((partial / CLIENTS).glob("*.safetensors"))]
    with whole_folder(folder) as temporary:
        for file in files:
            _link(file, temporary / file.relative_to(partial))
        hashes = {str(file.relative_to(partial)): sha256_of(file) for file in files}
        (temporary / ABOUT).write_text(json.dumps({**about, "files": hashes}), encoding="utf-8")


def resume_from_parent(
    parent: ParentRun, plan: Plan, partial: Path, identity: str, note: Callable[[str], None]
) -> State | None:
    """What the parent run left last, as ``plan``'s method has it, or None where nothing fits.

    Args:
        identity: the parent run's, with the same data and execution as ``plan``'s.
        note: told in one line why a checkpoint is not gone on from.
    """
    machine = hardware(plan.spec.execution.device)
    for round, folder in sorted(kept_in(parent.folder), reverse=True):
        about = _about(folder)
        if round > parent.rounds:
            continue
        if (about.get("identity"), about.get("machine")) != (identity, machine):
            note(f"{folder}: of other code, configuration, data or machine: not gone on from")
            continue
        changed = next(changed_files(folder, about), None)
        if changed:
            note(f"{folder}: damaged: {changed}: not gone on from; remove it")
            continue
        for file in (folder / CLIENTS).glob("*.safetensors"):
            _link(file, partial / CLIENTS / file.name)
        state = _load(folder / CHECKPOINT, plan, identity, partial / CLIENTS)
        assert state, "its identity has been compared"
        context = replace(plan.federation.context, seed=plan.spec.seed)
        state.server = plan.federation.method.from_parent(context, state.server)
        state.wall_seconds = state.cpu_seconds = 0.0
        state.resumed = 0
        state.began = {"method": parent.spec.method, "seed": plan.spec.seed, "round": round}
        return state
    return None


def _about(folder: Path) -> dict[str, Any]:
    """What a kept checkpoint says of itself; nothing where it is damaged or there is none."""
    try:
        found = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(found, dict) and isinstance(found.get("files"), dict)
    return found if whole else {}


def _link(file: Path, place: Path) -> None:
    make_folder(place.parent)
    try:
        os.link(file, place)
    except OSError:  # a file system without links
        shutil.copyfile(file, place)


def discard(partial: Path) -> None:
    """Remove a folder of checkpoints; the checkpoint first, as it means the clients' files."""
    (partial / CHECKPOINT).unlink(missing_ok=True)
    flush(partial)
    shutil.rmtree(partial)
