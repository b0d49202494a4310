"""Save the training state between rounds, and resume from it.

Checkpoints are in a folder that has the name of its holder's lock. Who takes the lock next renames
it and puts a file in its place: a holder that stalled and wakes up, at whatever moment, can neither
read nor write there, and changes nothing that another relies on.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.provenance.identity import Identity, Meaning, at_least, differences, in_words
from fedrepro.run.assembly import Plan
from fedrepro.run.results import FINISHED, changed_files
from fedrepro.run.shared_prefix import ParentRun, kept_in
from fedrepro.run.state import DECISION_COLUMNS, WHOLE, Rows, State, columns_of, first_state
from fedrepro.run.store import ClientStore, damaged, load_tree, save_tree
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, cannot_write, writing
from fedrepro.support.files import TOKEN, atomic_folder, flush, make_folder, sha256_of
from fedrepro.support.locks import Held

# Bump this when you change the checkpoint format: checkpoints of another layout are discarded. The
# code that reads and writes them is not part of a run's fingerprint.
LAYOUT = 4
UNSTATED = 4  # the layout of checkpoints that do not state theirs

CHECKPOINT = "checkpoint.safetensors"
CLIENTS = "clients"
HOLDER = "holder-"  # and the token of a lock
A_HOLDERS = re.compile(rf"{HOLDER}[0-9a-f]{{{TOKEN}}}")
ASIDE = ".aside-"  # the same, in the name of a folder that was moved aside
ROUND_FILES = "beside"  # folder for the files of single rounds until the run is finished
ABOUT = "about.json"  # of a checkpoint that is kept for child runs
PLACE = 7  # parts of its path: trunks/SYSTEM/SETTING/METHOD/seedS/roundN/about
COUNTERS = (
    "done", "diverged_at", "bytes_down", "bytes_up", "wall_seconds", "cpu_seconds", "resumed",
    "began", "beside",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a run is carried out, while this process holds its lock.

    Attributes:
        folder: of its result.
        own: the lock holder's folder of checkpoints.
        identity_keys: the identity of the run, with the keys of a manifest.
    """

    folder: Path
    own: Path
    lock: Held
    identity_keys: Mapping[str, Any]


def claim(partial: Path, lock: Held) -> Path:
    """The lock holder's own folder in ``partial``, with what the last holder left.

    Raises:
        UserError: if the disk fails.
    """
    mine = partial / f"{HOLDER}{lock.token}"
    with writing(partial):
        make_folder(partial)
        # More than one if a holder lost the lock before it had a folder.
        left = [folder for folder in _of_holders(partial) if folder.is_dir()]
        left.sort(key=lambda each: (each / CHECKPOINT).exists())
        if left:
            os.rename(left[-1], mine)
            left[-1].touch()
            flush(partial)
        else:
            make_folder(mine)
        for folder in left[:-1]:
            shutil.rmtree(folder)
    return mine


def leave(partial: Path, mine: Path) -> None:
    """Remove the holder's own folder, and ``partial`` unless it holds something else."""
    discard(mine)
    for file in _of_holders(partial):
        if file.is_file():
            file.unlink(missing_ok=True)
    with suppress(OSError):
        partial.rmdir()


def _of_holders(partial: Path) -> list[Path]:
    """The entries of holders of the lock in a folder of checkpoints, where others' may be too."""
    return [folder for folder in partial.iterdir() if A_HOLDERS.fullmatch(folder.name)]


def resume(place: Place, plan: Plan, note: Callable[[str], None] = lambda line: None) -> State:
    """The state of the last checkpoint, or a new one.

    A checkpoint of other code, configuration, data, packages or another kind of machine is moved
    aside, next to the run's folder. It is continued by the first run that it fits.

    Args:
        note: gets one line about a checkpoint that is moved aside, also if it is damaged.

    Raises:
        UserError: if the disk fails, or the system refuses to read the checkpoint.
    """
    partial, damage = place.own, ""
    checkpoint = partial / CHECKPOINT
    try:
        if not checkpoint.exists():
            _bring_back(place)
        if checkpoint.exists():
            saved, facts = load_tree(checkpoint, checksummed=True)
            if misfit := _unlike(facts, place.identity_keys):
                done = _so_far_in(checkpoint, saved, facts).done
                aside = _move_aside(partial)
                note(f"the rounds played up to {done} are now in {aside}: {misfit}")
                # From a checkpoint that fits, if there is one.
                return resume(place, plan, note)
            state = _state_of(checkpoint, saved, facts, plan, partial / CLIENTS)
            for client in state.client_states.clients():  # check now, not hours later
                state.client_states.get(client)
            _refuse_others(partial, state)
            state.resumed += 1
            return state
    except UserError as error:
        if error.code != "damaged":  # it may be read another time
            raise
        damage = str(error)
    except OSError as error:
        raise cannot_write(partial, error) from error
    with writing(partial):
        if damage:
            note(f"{damage}: cannot resume from it; it is now in {_move_aside(partial)}")
        discard(partial)
        make_folder(partial)
    device = plan.federation.context.net.device
    return first_state(plan, ClientStore(partial / CLIENTS, device=device))


def _unlike(facts: Mapping[str, Any], identity_keys: Mapping[str, Any]) -> str:
    """The reason why a run can't continue a checkpoint with these facts, in words; or ""."""
    if facts.get("layout", UNSTATED) != LAYOUT:
        return "saved in the format of another version"
    recorded = facts.get("subject")
    if not recorded:
        return "it is not recorded what they were made with"
    listed = differences(Identity.of(recorded), Identity.of(identity_keys))
    return in_words(at_least(Meaning.OTHER_BITS, listed))


def _move_aside(partial: Path) -> Path:
    """Move a holder's folder next to the run's, under a name that nothing else has."""
    run = partial.parent
    token = partial.name.removeprefix(HOLDER)
    aside = run.with_name(f"{run.name.removesuffix('.partial')}{ASIDE}{token}")
    os.rename(partial, aside)
    make_folder(partial)
    flush(run.parent)
    return aside


def _bring_back(place: Place) -> None:
    """Put the first folder that was moved aside and fits a run in the place of its empty one.

    One to which someone has added a file stays where it is: a holder's folder is removed in the
    end.
    """
    partial, run = place.own, place.own.parent
    for aside in sorted(run.parent.glob(f"{run.name.removesuffix('.partial')}{ASIDE}*")):
        try:
            _, facts = load_tree(aside / CHECKPOINT, checksummed=True)
        except UserError:  # damaged, or of something else
            continue
        fits = not _unlike(facts, place.identity_keys)
        if fits and not any(partial.iterdir()) and is_as_left(aside):
            partial.rmdir()
            os.rename(aside, partial)
            return


def is_as_left(aside: Path) -> bool:
    """True if a folder has nothing but what a holder writes."""
    for path in aside.rglob("*"):
        first, *inside = path.relative_to(aside).parts
        if first not in (CHECKPOINT, CLIENTS, ROUND_FILES, FINISHED) or len(inside) > 1:
            return False
        if inside and path.suffix not in (".safetensors", ".parquet", ".json"):
            return False
    return True


@dataclass(frozen=True)
class SoFar:
    """The rows of an unfinished run up to its last checkpoint, after round ``done``.

    Attributes:
        rounds: by column; whole numbers where the finished run's file will have them.
        clients: likewise.
        identity_keys: the identity of the run, with the keys of a manifest; empty if an older
            version began it.
    """

    done: int
    rounds: dict[str, list[float]]
    clients: dict[str, list[float]]
    identity_keys: dict[str, Any]


def so_far(partial: Path) -> SoFar | None:
    """The rows in the last checkpoint of ``partial``; None if there is no checkpoint.

    Another process may be writing there, and nothing is changed.

    Raises:
        UserError: if the checkpoint is damaged.
    """
    file = next(partial.glob(f"{HOLDER}*/{CHECKPOINT}"), None)
    return _so_far_in(file, *load_tree(file, checksummed=True)) if file else None


def _so_far_in(file: Path, saved: Mapping[str, Any], facts: Mapping[str, Any]) -> SoFar:
    try:
        rounds, clients = (
            {
                column: (values.long() if column in WHOLE else values).tolist()
                for column, values in saved[table].items()
            }
            for table in ("rounds", "clients")
        )
        return SoFar(int(facts["counters"]["done"]), rounds, clients, facts.get("subject", {}))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise damaged(file, error) from error


def _refuse_others(partial: Path, state: State) -> None:
    """Raises UserError unless the files of single rounds are those that this run wrote."""
    for name, digest in state.beside.items():
        file = partial / ROUND_FILES / name
        if not file.is_file() or sha256_of(file) != digest:
            raise damaged(file, ValueError("missing, or of another run"))


def _state_of(
    checkpoint: Path, saved: Tree, facts: Mapping[str, Any], plan: Plan, client_states: Path
) -> State:
    """The state that a checkpoint holds; ``client_states`` is the folder of the clients' files.

    Raises:
        UserError: if the checkpoint is damaged.
    """
    device = plan.federation.context.net.device
    try:
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


def save(state: State, place: Place) -> None:
    """Save ``state``; if the process is killed meanwhile, the previous checkpoint remains.

    Raises:
        UserError: if the disk fails.
    """
    facts = {
        "layout": LAYOUT,
        "subject": dict(place.identity_keys),
        "versions": state.client_states.flush(),
        "counters": {name: getattr(state, name) for name in COUNTERS},
    }
    what = {
        "server": state.server,
        "rounds": state.rounds.as_tree(),
        "clients": state.clients.as_tree(),
        "decisions": state.decisions.as_tree(),
    }
    save_tree(place.own / CHECKPOINT, what, facts, checksummed=True)
    state.client_states.settle()


def keep(place: Place, folder: Path) -> None:
    """Copy the checkpoint just saved to ``folder`` for child runs; a whole one is left alone.

    Files are hard links where the file system supports them, because they are never rewritten.

    Raises:
        UserError: if the disk fails.
    """
    about = {"layout": LAYOUT, "subject": dict(place.identity_keys)}
    partial, there = place.own, about_of(folder)
    if there and not _unlike(there, place.identity_keys) and not any(changed_files(folder, there)):
        return
    files = [partial / CHECKPOINT, *sorted((partial / CLIENTS).glob("*.safetensors"))]
    with atomic_folder(folder, lambda there: about_of(there).get("files", {})) as temporary:
        for file in files:
            _link(file, temporary / file.relative_to(partial))
        hashes = {str(file.relative_to(partial)): sha256_of(file) for file in files}
        what = checksummed_json.place(folder / ABOUT, PLACE)
        checksummed_json.write(temporary / ABOUT, {**about, "files": hashes}, what)


def resume_from_parent(
    parent: ParentRun, plan: Plan, place: Place, note: Callable[[str], None]
) -> State | None:
    """The parent run's last usable state, converted to ``plan``'s method, or None.

    Args:
        place: of ``plan``'s run, with the parent run's identity, which has the same data and
            execution.
        note: gets one line that says why a checkpoint cannot be used.
    """
    clients = place.own / CLIENTS
    for round, folder in sorted(kept_in(parent.folder), reverse=True):
        about = about_of(folder)
        if round > parent.rounds:
            continue
        changed = next(changed_files(folder, about), None) if about else "about.json"
        if changed:
            note(f"{folder}: cannot resume from it: damaged: {changed}; remove it")
            continue
        checkpoint = folder / CHECKPOINT
        saved, facts = load_tree(checkpoint, checksummed=True)
        if why := _unlike(facts, place.identity_keys):
            note(f"{folder}: cannot resume from it: {why}")
            continue
        for file in (folder / CLIENTS).glob("*.safetensors"):
            _link(file, clients / file.name)
        state = _state_of(checkpoint, saved, facts, plan, clients)
        federation = plan.federation
        state.server = federation.method.from_parent(federation.context, state.server)
        state.wall_seconds = state.cpu_seconds = 0.0
        state.resumed = 0
        state.beside = {}
        state.began = {"method": parent.spec.method, "seed": plan.spec.seed, "round": round}
        return state
    return None


def about_of(folder: Path) -> dict[str, Any]:
    """A kept checkpoint's metadata; empty if it is damaged, missing or of another checkpoint."""
    try:
        return checksummed_json.read(folder / ABOUT, checksummed_json.place(folder / ABOUT, PLACE))
    except (FileNotFoundError, UserError):
        return {}


def _link(file: Path, place: Path) -> None:
    make_folder(place.parent)
    try:
        os.link(file, place)
    except OSError:  # a file system without links
        shutil.copyfile(file, place)


def discard(partial: Path) -> None:
    """Remove a folder of checkpoints; first the checkpoint, because it refers to client files."""
    (partial / CHECKPOINT).unlink(missing_ok=True)
    flush(partial)
    shutil.rmtree(partial)
