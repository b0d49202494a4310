"""One run (setting x method x seed), from prepared data to a finished folder.

The folder appears complete or not at all. During a run, checkpoints are kept next to it in
``seed<k>.partial``. The same command resumes from the last checkpoint and ends with the same bits
as an uninterrupted run. A second process that is given the same run waits for the first.
"""

import json
import math
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedrepro.check.hooks import float32_by_default, refuse_lone_samples, watched
from fedrepro.config.run_spec import RunSpec
from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.engine.round import play_round
from fedrepro.engine.tree import Tree
from fedrepro.measures.clients import without_value
from fedrepro.methods.personal.partly_shared import PartlyShared, keeps_a_part
from fedrepro.provenance import arithmetic
from fedrepro.provenance.identity import Identity, differences, other_numbers
from fedrepro.provenance.numerics import NONE, Numerics, refuse_changed_code
from fedrepro.run import checkpoint, devices, manifest, privacy, replacement, results, scoring
from fedrepro.run.assembly import Plan, make_plan
from fedrepro.run.checkpoint import Place
from fedrepro.run.input_artifacts import data_of_plan, facts_of
from fedrepro.run.networks import StoredArtifact
from fedrepro.run.replacement import Replaces, drop_result
from fedrepro.run.shared_prefix import ALONE, ParentRun, Sharing
from fedrepro.run.state import State
from fedrepro.run.store import save_tree
from fedrepro.support import checksummed_json, plugins
from fedrepro.support.errors import Interrupted, bad_value, refusal, writing
from fedrepro.support.files import flush, real_folder, sha256_of
from fedrepro.support.interruption import StopRequest, asked_to_stop
from fedrepro.support.locks import Held, exclusive_lock


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Speed and time left leave out the first round of a call, which may be far slower: it compiles
    and warms up. ``seconds_left`` is None after that round.

    ``scores`` is what this round recorded, empty if it was not evaluated. ``accuracy`` is the last
    that was recorded: the plain mean of clients' if ``of_clients``, else on the test set.
    """

    round: int
    rounds: int
    rounds_per_second: float
    seconds_left: float | None
    accuracy: float
    scores: Mapping[str, float] = field(default_factory=dict)
    of_clients: bool = False


Report = Callable[[Progress], None]


@plugins.no_exit()
def run(
    spec: RunSpec,
    dataset: Dataset,
    partition: Partition,
    folder: Path,
    fingerprint: str,
    report: Report = lambda progress: None,
    given: Mapping[str, StoredArtifact] | None = None,
    sharing: Sharing = ALONE,
    numerics: Numerics = NONE,
    replaces: Replaces = "others",
    note: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Carry out a run and write its files to ``folder``, unless it is finished and current.

    Args:
        spec: the run's description.
        fingerprint: of the code that defines the run.
        report: called after every round played.
        given: the artifacts that the method requires.
        sharing: the first rounds that other runs play alike (docs/architecture.md, "Shared
            prefixes"); it does not affect the result.
        numerics: digests of the numerics of the code's parts: a finished run with the same ones is
            kept. Without them, a finished run of the same ``fingerprint`` is.
        replaces: the finished runs in ``folder`` that this one may replace: "none", "others" than
            this very run, or "all": a complete run is made again.
        note: gets each line that the run has to say, such as why a checkpoint is not continued.

    Returns:
        The manifest.

    Raises:
        UserError: for bad input or a full disk, if code has changed since it was imported, and if
            ``folder`` has the finished run with other arithmetic, another one that may not be
            replaced, or files that no run wrote.
        Interrupted: after Ctrl-C, SIGTERM or the like; the same call resumes the run.
    """
    plan = _ready(spec, dataset, partition, given or {}, note)
    folder = real_folder(folder)
    with exclusive_lock(results.partial_of(folder)) as lock, asked_to_stop() as stop:
        replacement.put_back(folder)
        if replaces != "all":
            _refuse_other_arithmetic(folder, spec)
        data = data_of_plan(plan, dataset, partition, given or {})
        identity_keys = manifest.identity_keys(plan, fingerprint, numerics) | {"data": data}
        place, finished = _take_folder(folder, identity_keys, lock, replaces)
        if finished:
            _leave(place)
            return finished
        origin = manifest.origin(spec)
        state = _begin(plan, place, sharing.parent, note)
        _play(plan, state, place, report, sharing, stop)
        with writing(folder):
            artifact = plan.federation.method.artifact(
                scoring.context_after(plan, state), state.server
            )
            made = artifact.tensors, facts_of(artifact, plan, dataset, partition)
            described = _finish(plan, state, place, origin, made)
            _leave(place)
            for line in _measures_without_value(folder / "clients.parquet", plan):
                note(line)
            return described


def _ready(
    spec: RunSpec,
    dataset: Dataset,
    partition: Partition,
    artifacts: Mapping[str, StoredArtifact],
    note: Callable[[str], None],
) -> Plan:
    """The run, assembled and checked.

    Raises:
        UserError: for bad input, and if code has changed since it was imported.
    """
    arithmetic.refuse_without_gpu(spec)
    torch.set_num_threads(1)  # no second thread, in case the run distributes clients over forks
    devices.keep_freed_memory()
    with float32_by_default():
        plan = make_plan(spec, dataset, partition, artifacts)
        if spec.setting.precision == "tf32":
            devices.require_tf32(spec.execution.device)
        refuse_lone_samples(plan.federation)
    privacy.refuse_unaccountable(plan.federation.method, spec.setting, dataset)
    _refuse_no_shared_model(plan, note)
    if graphs := plan.federation.context.net.graphs:
        graphs.note = note
    # By now, all code that counts has been imported, and its fingerprint taken.
    refuse_changed_code(spec)
    torch.set_num_threads(plan.threads)
    return replace(plan, federation=watched(plan.federation, server_optimizer=plan.optimizer))


def _take_folder(
    folder: Path, identity_keys: Mapping[str, Any], lock: Held, replaces: Replaces
) -> tuple[Place, dict[str, Any] | None]:
    """The run's place, and the manifest of a finished run that is kept.

    A finished run that a killed process did not put in its place is put there.
    """
    partial, wanted = results.partial_of(folder), Identity.of(identity_keys)
    finished = None if replaces == "all" else _finished(folder, wanted)
    if finished is None:
        replacement.refuse_foreign(folder, outside=replaces == "none")
        if replaces == "none":
            replacement.refuse_other_run(folder, identity_keys)
    place = Place(folder, checkpoint.claim(partial, lock), lock, identity_keys)
    if finished or replaces == "all":
        return place, finished
    for staged in (partial / results.FINISHED, place.own / results.FINISHED):
        if finished := _finished(staged, wanted):
            replacement.put_in_place(staged, folder, lock.token)
            return place, finished
    return place, None


def _begin(
    plan: Plan, place: Place, parent: ParentRun | None, note: Callable[[str], None]
) -> State:
    """The state of the last checkpoint, of the parent run, or before the first round."""
    state = checkpoint.resume(place, plan, note)
    if parent is None or state.done:
        return state
    parent_keys = manifest.identity_keys(
        replace(plan, spec=parent.spec), parent.fingerprint, parent.numerics
    )
    parent_keys |= {"data": place.identity_keys["data"]}
    parent_place = replace(place, identity_keys=parent_keys)
    return checkpoint.resume_from_parent(parent, plan, parent_place, note) or state


def _refuse_no_shared_model(plan: Plan, note: Callable[[str], None]) -> None:
    """Refuse to score a shared model if there is none; say how much of it is shared otherwise.

    Raises:
        UserError: if clients share no model and are not scored.
    """
    method, name = plan.federation.method, plan.spec.method
    if method.classifies and method.own_classifier and not plan.scores_clients:
        where = f"setting {plan.spec.setting.name}"
        wanted = "true (fedrepro.train: a `test_fraction`): the clients share no model"
        raise bad_value(where, "evaluate.clients", False, wanted)
    if method.own_classifier and plan.test is not None:
        note(
            f"method {name}: test_accuracy and test_loss are over the clients' own test samples, "
            "as they share no model"
        )
    keeps = keeps_a_part(method, plan.federation.context.net.module)
    if any(isinstance(layer, PartlyShared) for layer in method.layers()) and not keeps:
        note(
            f"method {name}: all of the model is averaged, as it has no part that a client would "
            "keep, such as BatchNorm: the method is FedAvg for it"
        )
    if plan.test is not None and keeps:
        where = "is in" if plan.scores_clients else "needs test samples of each client, for"
        note(
            f"method {name}: each client keeps a part of the model, which stays at its initial "
            "values in the shared model: test_accuracy, which scores that one on the test set, is "
            f"no client's accuracy; that {where} client_accuracy"
        )


def _measures_without_value(file: Path, plan: Plan) -> Iterator[str]:
    """A line for each measure without a value for clients that have test samples."""
    if not plan.scores_clients:
        return
    from pyarrow import parquet

    task = plan.federation.context.task
    measures = [*(["accuracy"] if task.has_accuracy else []), *task.measures]
    measures += ["loss"] if task.of_mean else []
    rows = parquet.read_table(file, columns=["round", "test_samples", *measures]).to_pydict()
    for name in measures:
        if without := without_value(rows, name):
            yield (
                f"{name}: {without}, as AUROC has with one class, R² with one sample, or a loss "
                "where no target counts: means are over the others"
            )


def _refuse_other_arithmetic(folder: Path, spec: RunSpec) -> None:
    """Refuse to replace a finished run whose numbers were computed in another way.

    Raises:
        UserError: with both classes, and how to get either.
    """
    try:
        about = checksummed_json.parsed(folder / results.MANIFEST)
        there, asked = arithmetic.of_manifest(about), arithmetic.of_spec(spec)
    except (OSError, ValueError, AttributeError):  # not a result: it is replaced
        return
    unknown = arithmetic.UNKNOWN in (there, asked)
    if about.get("config_hash") == spec.digest and there != asked and not unknown:
        keep = arithmetic.how_to_get(there)
        keep = f"use {keep} to keep it, or " if keep else ""
        why = (
            f"this run is finished with arithmetic {there!r}, and {asked!r} is asked for "
            f"({arithmetic.how_to_get(asked)}): {keep}make it again with `fedrepro run --again`"
        )
        raise refusal(folder, why, "arithmetic", there)


def _finished(folder: Path, wanted: Identity) -> dict[str, Any] | None:
    """The manifest of a finished run with this identity, if none of its files has changed."""
    try:
        about = results.manifest_in(folder)
        is_stale = other_numbers(differences(Identity.of(about), wanted))
        return None if is_stale or results.fault_of_result(folder, about) else about
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _play(
    plan: Plan, state: State, place: Place, report: Report, sharing: Sharing, stop: StopRequest
) -> None:
    """Play the remaining rounds.

    Raises:
        Interrupted: after a signal, once the current round is finished and saved.
    """
    rounds, every = plan.federation.context.rounds, plan.spec.execution.checkpoint_every
    started_at, first = time.perf_counter(), state.done
    wall, cpu, warming_up = time.perf_counter(), _cpu_seconds(), True
    while state.done < rounds and not state.ended:
        server_before, client_states = state.server, state.client_states
        try:
            state.server, played = play_round(
                plan.federation, server_before, client_states, state.done
            )
        except Exception as error:
            if stop.signal_number is None:
                raise
            # The signal may also have ended a compiler, without which the round cannot be played.
            raise Interrupted(
                f"interrupted in round {state.done + 1} of {rounds} ({type(error).__name__}): run "
                "the same command again to resume from the last checkpoint",
                stop.signal_number,
            ) from error
        state.done += 1
        scoring.record(plan, state, server_before, played)
        _keep(scoring.files_of_round(plan, state, server_before, played), place.own, state)
        now, now_cpu = time.perf_counter(), _cpu_seconds()
        state.wall_seconds += now - wall
        state.cpu_seconds += now_cpu - cpu
        wall, cpu = now, now_cpu
        speed = (state.done - first) / (now - started_at)
        of_clients = plan.scores_clients
        column = "client_accuracy" if of_clients else "test_accuracy"
        accuracy = state.rounds.last().get(column, math.nan)
        left = None if warming_up else (rounds - state.done) / speed
        if warming_up:
            started_at, first, warming_up = now, state.done, False
        report(Progress(state.done, rounds, speed, left, accuracy, _scores(state), of_clients))
        signal_number = stop.signal_number
        if state.done == rounds or state.ended:
            return
        shared = state.done in sharing.rounds
        if state.done % every == 0 or signal_number or shared:
            place.lock.check()
            checkpoint.save(state, place)
        # A run that resumes here would otherwise lack the images of earlier rounds.
        if shared and not any("-images." in name for name in state.beside):
            checkpoint.keep(place, sharing.folder / f"round{state.done}")
        if signal_number:
            raise Interrupted(
                f"interrupted after round {state.done} of {rounds}, which is saved: "
                "run the same command again to resume",
                signal_number,
            )


def _scores(state: State) -> dict[str, float]:
    """What was recorded of the round just played."""
    last = state.rounds.last()
    return last if last.get("round") == state.done else {}


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its finished child processes."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _keep(files: Iterator[tuple[str, Tree]], own: Path, state: State) -> None:
    """Write the files of a round. A round that is replayed writes the same files."""
    for name, what in files:
        (own / checkpoint.ROUND_FILES).mkdir(exist_ok=True)
        file = own / checkpoint.ROUND_FILES / f"{name}.safetensors"
        save_tree(file, what)
        state.beside[file.name] = sha256_of(file)


def _finish(
    plan: Plan,
    state: State,
    place: Place,
    origin: Mapping[str, Any],
    artifact: tuple[Tree, Mapping[str, Any]],
) -> dict[str, Any]:
    """Write the run's files, including ``artifact`` and its metadata, and move them into place."""
    staged = place.own / results.FINISHED
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    state.rounds.write(staged / "rounds.parquet")
    state.clients.write(staged / "clients.parquet")
    mixtures = scoring.mixtures(plan, state)
    if mixtures is not None:
        mixtures.write(staged / "mixtures.parquet")
    if len(state.decisions):
        state.decisions.write(staged / "decisions.parquet")
    save_tree(staged / results.MODEL, *artifact)
    for file in (place.own / checkpoint.ROUND_FILES / name for name in state.beside):
        # Copied: moving would lose them on an interrupt.
        shutil.copyfile(file, staged / file.name)
    described = {**place.identity_keys, **origin, **manifest.describe(plan, state, staged)}
    described["seal"] = checksummed_json.seal_of(described)
    _write_json(staged / results.MANIFEST, described)
    timing = checksummed_json.sealed(manifest.timing(plan, state), results.timing_of(described))
    _write_json(staged / results.TIMING, timing)
    for file in staged.iterdir():
        flush(file)
    flush(staged)
    place.lock.check()
    replacement.put_in_place(staged, place.folder, place.lock.token)
    return described


def _leave(place: Place) -> None:
    """Remove the checkpoints of a run that is in its folder, and an earlier result among them."""
    partial = results.partial_of(place.folder)
    drop_result(partial / results.FINISHED, place.folder)
    checkpoint.leave(partial, place.own)


def _write_json(path: Path, what: object) -> None:
    path.write_text(json.dumps(what, indent=2, sort_keys=True) + "\n", encoding="utf-8")
