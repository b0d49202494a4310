"""One run, setting x method x seed, from prepared data to a finished folder.

The folder appears whole or not at all. While a run is under way its checkpoints lie beside it in
``seed<k>.partial``; the same command goes on from the last one, and ends with the same bits as if
nothing had happened.
"""

import fcntl
import hashlib
import json
import math
import os
import platform
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro import fingerprint, metrics, models, registry, tree
from fedrepro.data.batches import ClientData, Samples, Scaling
from fedrepro.data.noise import with_noise
from fedrepro.data.partition import Partition
from fedrepro.data.prepared import Dataset
from fedrepro.data.standardise import standardised
from fedrepro.engine import (
    Federation,
    Round,
    begin,
    choose_cohort,
    context_of,
    play_round,
    update_norms,
)
from fedrepro.errors import UserError, bad_value
from fedrepro.evaluate import Score, evaluate
from fedrepro.executors import EXECUTORS, choose
from fedrepro.files import flush, lock_of, sha256_of
from fedrepro.memory import keep_freed_memory
from fedrepro.method import Context, Method
from fedrepro.net import Net
from fedrepro.optim import sgd
from fedrepro.record import (
    CLIENT_COLUMNS,
    DECISION_COLUMNS,
    LOSS,
    MIXTURE_COLUMNS,
    PERSONAL_CLIENT_COLUMNS,
    PERSONAL_ROUND_COLUMNS,
    ROUND_COLUMNS,
    Rows,
)
from fedrepro.server_optimizers import ServerOptimizer
from fedrepro.steps import steps_per_epoch
from fedrepro.store import ClientStore, load_tree, save_tree
from fedrepro.task import TASKS
from fedrepro.tree import Tree

# Between the shared model (0) and the client's own (1), for methods whose clients mix the two.
MIXTURES = tuple(number / 10 for number in range(11))
PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "safetensors")


@dataclass(frozen=True)
class Progress:
    """How far a run has come. ``seconds_left`` is None before the first round is over."""

    round: int
    rounds: int
    rounds_per_second: float
    seconds_left: float | None
    accuracy: float


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Plan:
    """A run made ready: what is trained, on what, and what it is tested on."""

    federation: Federation
    executor: str
    test: Samples | None
    client_tests: list[Samples]
    client_sizes: list[int]
    rounds: int
    every: int

    @property
    def personal(self) -> bool:
        return bool(self.client_tests)


def compose(run: Mapping[str, Any]) -> tuple[Method, ServerOptimizer]:
    """The method and the server optimizer that ``run`` names.

    Raises:
        UserError: for what :func:`fedrepro.registry.compose` refuses, and for a sample of clients
            where the method needs all of them.
    """
    method, server_optimizer = registry.compose(run["composition"], run["hyperparameters"])
    if run["participation"] < 1 and any(each.full_participation for each in method.layers()):
        raise bad_value(
            f"method {run['composition']}",
            "participation",
            run["participation"],
            "1, as it decides on the losses of all clients in every round; "
            "aaggff_d learns from a sample of clients",
        )
    return method, server_optimizer


def make_plan(run: Mapping[str, Any], dataset: Dataset, partition: Partition) -> Plan:
    """Everything that ``run`` (as ``config.run_config`` makes it) asks for.

    Raises:
        UserError: for what only shows when data, model and method meet.
    """
    method, server_optimizer = compose(run)
    device = run["device"]
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device: {device!r}: expected a device that is there; use cpu")
    task = TASKS[dataset.task].with_batch_size(run["batch_size"])
    outputs = 1 if task.name == "binary" else dataset.classes
    net = Net(models.build(run["model"], dataset.input_shape, outputs).to(device))

    if not partition.fits(dataset.train.y):
        raise UserError(
            f"partition {partition.name}: it was not made from the present data set "
            f"{dataset.name}: make it again (fedrepro partition SETTING --seed {run['seed']})"
        )
    scaling = Scaling.of(dataset, device)
    split = standardised(dataset, partition)
    split = with_noise(split, partition, dataset.classes, run.get("noise"), run["seed"])
    training = Samples.of(split, scaling, device)
    clients = ClientData(training, partition.train)
    clients = clients.pooled() if method.pooled else clients
    tests = [training.some(each) for each in partition.test or []]
    everyone = len(clients.sizes)
    cohort = max(1, int(run["participation"] * everyone + 1e-9))

    mean_size = sum(clients.sizes) / everyone
    client_steps = (
        cohort
        * run["rounds"]
        * run["epochs"]
        * steps_per_epoch(round(mean_size), run["batch_size"])
    )
    family = models.find(run["model"]).family
    executor = choose(run["executor"], family, device.partition(":")[0], client_steps)

    context = Context(
        net=net,
        task=task,
        clients=everyone,
        rounds=run["rounds"],
        epochs=run["epochs"],
        optimizer=sgd(run["optimizer"]["momentum"], run["optimizer"]["weight_decay"]),
        server_optimizer=server_optimizer.build(),
        schedule=schedule(run["optimizer"]["lr"], run["lr_decay"]),
        server_lr=server_optimizer.lr,
    )
    method.check(context)
    federation = Federation(
        method=method,
        context=context,
        clients=clients,
        cohort=cohort,
        epochs=run["epochs"],
        batch_size=run["batch_size"],
        seed=run["seed"],
        execute=EXECUTORS[executor],
        device=device,
    )
    return Plan(
        federation,
        executor,
        Samples.of(dataset.test, scaling, device) if dataset.test else None,
        tests if run["evaluate"]["clients"] else [],
        [len(each) for each in partition.train],
        run["rounds"],
        run["evaluate"]["every"],
    )


def schedule(rate: float, decay: float | Mapping[str, Any]) -> Callable[[int], float]:
    """The learning rate of a round, counted from 0; ``decay`` as in ``config.Setting.lr_decay``."""
    if isinstance(decay, Mapping):
        factor, every = decay["factor"], decay["every"]
        return lambda round: rate * factor ** (round // every)
    return lambda round: rate * decay**round


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


COUNTERS = (
    "done", "diverged_at", "bytes_down", "bytes_up", "wall_seconds", "cpu_seconds", "resumed",
)  # fmt: skip


def run(
    run: Mapping[str, Any],
    dataset: Dataset,
    partition: Partition,
    folder: Path,
    code: str,
    report: Report = lambda progress: None,
) -> dict[str, Any]:
    """Carry a run out and leave its files in ``folder``.

    Args:
        run: what to do, as ``config.run_config`` makes it.
        code: fingerprint of the code that defines the run.
        report: told after every round.

    Returns:
        The manifest.

    Raises:
        UserError: for bad input, a full disk, or a second process on the same run.
    """
    torch.set_num_threads(run["threads"])
    keep_freed_memory()
    plan = make_plan(run, dataset, partition)
    partial = folder.with_name(f"{folder.name}.partial")
    with _alone(partial):
        data = _data_of(dataset, partition)
        identity = _identity(run, plan, code, data)
        state = _resume(partial, plan, identity)
        _train(plan, state, partial, identity, run["checkpoint_every"], report)
        try:
            return _finish(plan, state, run, code, data, partial, folder)
        except OSError as error:
            raise _not_written(folder, error) from error


def _not_written(folder: Path, error: OSError) -> UserError:
    return UserError(f"{folder}: could not be written: {error.strerror or error}")


def _data_of(dataset: Dataset, partition: Partition) -> dict[str, Any]:
    """What identifies the samples of a run, and which client holds which."""
    digest = hashlib.sha256()
    for indices in (*partition.train, *(partition.test or [])):
        digest.update(len(indices).to_bytes(8, "little") + indices.tobytes())
    return {
        "content_sha256": dataset.meta.get("content_sha256"),
        "partition_sha256": digest.hexdigest(),
    }


def _identity(run: Mapping[str, Any], plan: Plan, code: str, data: Mapping[str, Any]) -> str:
    """What a checkpoint must share with a run to be gone on from."""
    execution = [plan.executor, run["device"], run["threads"], code, data, torch.__version__]
    return fingerprint.of_text(json.dumps([fingerprint.of_config(run), *execution]))


@contextmanager
def _alone(partial: Path) -> Iterator[None]:
    """Keep a second process off the same run."""
    lock = lock_of(partial)
    try:
        partial.mkdir(parents=True, exist_ok=True)
        opened = lock.open("w")
    except OSError as error:
        raise _not_written(partial, error) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{partial}: another process is working on this run") from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _resume(partial: Path, plan: Plan, identity: str) -> State:
    """The state of the last checkpoint, or a new one."""
    columns: tuple[str, ...] = ROUND_COLUMNS
    client_columns: tuple[str, ...] = CLIENT_COLUMNS
    if plan.personal:
        further = tuple(plan.federation.context.task.measures)
        over = tuple(f"{kind}_{name}" for name in further for kind in ("client", "test"))
        columns = (*PERSONAL_ROUND_COLUMNS, *over)
        client_columns = (*PERSONAL_CLIENT_COLUMNS, *further)
    owns, checkpoint = partial / "clients", partial / "checkpoint.safetensors"
    device = plan.federation.device
    if checkpoint.exists():
        saved, facts = load_tree(checkpoint)
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
    try:
        shutil.rmtree(partial)  # another code, configuration or data: nothing to go on from
        partial.mkdir()
    except OSError as error:
        raise _not_written(partial, error) from error
    return State(
        begin(plan.federation),
        ClientStore(owns, device=device),
        Rows(columns),
        Rows(client_columns),
        Rows(DECISION_COLUMNS),
    )


def _checkpoint(state: State, partial: Path, identity: str) -> None:
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
    save_tree(partial / "checkpoint.safetensors", what, facts)
    state.owns.settle()


def _train(
    plan: Plan, state: State, partial: Path, identity: str, every: int, report: Report
) -> None:
    """Play the rounds that are left."""
    started_at, first = time.perf_counter(), state.done
    wall, cpu = time.perf_counter(), time.process_time()
    while state.done < plan.rounds and state.diverged_at is None:
        _one_round(plan, state)
        now, now_cpu = time.perf_counter(), time.process_time()
        state.wall_seconds += now - wall
        state.cpu_seconds += now_cpu - cpu
        wall, cpu = now, now_cpu
        speed = (state.done - first) / (now - started_at)
        column = "client_accuracy" if plan.personal else "test_accuracy"
        accuracy = state.rounds.last(column) if state.rounds.rows else math.nan
        left = (plan.rounds - state.done) / speed
        report(Progress(state.done, plan.rounds, speed, left, accuracy))
        if state.done % every == 0 and state.done < plan.rounds:
            _checkpoint(state, partial, identity)


def _one_round(plan: Plan, state: State) -> None:
    federation, number = plan.federation, state.done + 1
    state.server, played = play_round(federation, state.server, state.owns, state.done)
    state.done = number
    if not federation.method.pooled:  # one place: nothing travels
        state.bytes_down += played.bytes_down
        state.bytes_up += played.bytes_up
    _record_decision(state, played)
    finite = all(bool(leaf.isfinite().all()) for leaf in _floats(state.server))
    if number % plan.every and number < plan.rounds and finite:
        return
    ctx = context_of(federation, number - 1, played.cohort)
    row: dict[str, float] = {
        "round": number,
        "learning_rate": played.learning_rate,
        "bytes_down": 0 if federation.method.pooled else played.bytes_down,
        "bytes_up": 0 if federation.method.pooled else played.bytes_up,
    }
    sizes = federation.clients.sizes
    if plan.personal:
        everyone = range(len(plan.client_tests))
        # One client's state at a time: all of them need not fit in memory.
        scores = [
            _score_client(
                plan,
                client,
                federation.method.model(ctx, state.server, _own_of(plan, state, client)),
            )
            for client in everyone
        ]
        row |= _summary(scores)
        taken = participations(federation, number)
        state.clients.extend(
            {
                "round": number,
                "client": client,
                "train_samples": plan.client_sizes[client],
                "test_samples": score.samples,
                "participations": taken[_holder(federation, client)],
                "loss": score.loss,
                "accuracy": score.accuracy,
                **score.more,
            }
            for client, score in enumerate(scores)
        )
    else:
        state.clients.extend(
            {
                "round": number,
                "client": client,
                "train_samples": sizes[client],
                "update_norm": norm,
            }
            for client, norm in zip(played.cohort, update_norms(played.reports), strict=True)
        )
    if plan.test is not None:
        params = federation.method.model(ctx, state.server, {})
        score = evaluate(ctx.net, ctx.task, params, plan.test, len(plan.test))
        row |= {"test_loss": score.loss, "test_accuracy": score.accuracy}
    elif not plan.personal:
        raise UserError("evaluate: clients: False: expected True, as the data set has no test set")
    state.rounds.add(row)
    losses = (row["test_loss"], row.get("client_loss", 0.0))
    if not finite or not all(map(math.isfinite, losses)):
        state.diverged_at = number


def _record_decision(state: State, played: Round) -> None:
    """What the clients' losses were before they trained, and how they were then mixed."""
    if LOSS not in played.reports:
        return
    columns = (played.cohort, played.reports[LOSS].tolist(), played.weights.tolist())
    state.decisions.extend(
        {"round": state.done, "client": client, "loss": loss, "weight": weight}
        for client, loss, weight in zip(*columns, strict=True)
    )


def _floats(what: Tree) -> Iterator[Tensor]:
    return (leaf for leaf in tree.leaves(what) if leaf.is_floating_point())


def _own_of(plan: Plan, state: State, client: int) -> Tree:
    """A client's state; empty before it has taken part, so that it uses the shared model."""
    return state.owns.get(_holder(plan.federation, client)) or {}


def _holder(federation: Federation, client: int) -> int:
    """Who holds a client's data: where all are pooled, one for all."""
    return 0 if federation.method.pooled else client


def participations(federation: Federation, rounds: int) -> list[int]:
    """In how many of the first ``rounds`` rounds each client took part."""
    counts = [0] * federation.context.clients
    for round in range(rounds):
        for client in choose_cohort(federation, round):
            counts[client] += 1
    return counts


def _score_client(plan: Plan, client: int, params: Tree) -> Score:
    samples, ctx = plan.client_tests[client], plan.federation.context
    if not len(samples):
        return Score(0, math.nan, math.nan, dict.fromkeys(ctx.task.measures, math.nan))
    return evaluate(ctx.net, ctx.task, params, samples, len(samples), measured=True)


def _mixtures(plan: Plan, state: State) -> Rows:
    """Every client's scores at every mixture of its two models, after the last round."""
    federation = plan.federation
    ctx = context_of(federation, state.done - 1, choose_cohort(federation, state.done - 1))
    rows = Rows((*MIXTURE_COLUMNS, *ctx.task.measures))
    for client in range(len(plan.client_tests)):
        own = _own_of(plan, state, client)
        for weight in MIXTURES:
            params = federation.method.mixture(ctx, state.server, own, weight)
            score = _score_client(plan, client, params)
            rows.add(
                {
                    "client": client,
                    "weight": weight,
                    "test_samples": score.samples,
                    "loss": score.loss,
                    "accuracy": score.accuracy,
                    **score.more,
                }
            )
    return rows


def _summary(scores: list[Score]) -> dict[str, float]:
    """Over clients that have test samples; their mean by samples stands in for a test set.

    Further measures are there both ways, plain (``client_``) and weighted by samples (``test_``).
    """
    tested = [score for score in scores if score.samples]
    accuracies = np.array([score.accuracy for score in tested])
    losses = np.array([score.loss for score in tested])
    samples = np.array([score.samples for score in tested])
    return {
        "client_loss": float(losses.mean()),
        "client_accuracy": float(accuracies.mean()),
        "client_accuracy_std": float(accuracies.std()),
        "test_loss": float(np.average(losses, weights=samples)),
        "test_accuracy": float(np.average(accuracies, weights=samples)),
        **{
            f"{kind}_{name}": metrics.average(
                np.array([score.more[name] for score in tested]), samples if weighted else None
            )
            for name in tested[0].more
            for kind, weighted in (("client", False), ("test", True))
        },
    }


def _finish(
    plan: Plan,
    state: State,
    run: Mapping[str, Any],
    code: str,
    data: Mapping[str, Any],
    partial: Path,
    folder: Path,
) -> dict[str, Any]:
    """Write the files and put the folder in its place."""
    method = plan.federation.method
    ctx = plan.federation.context
    staged = partial / "finished"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    state.rounds.write(staged / "rounds.parquet")
    state.clients.write(staged / "clients.parquet")
    if plan.personal and any(layer.mixes for layer in method.layers()):
        _mixtures(plan, state).write(staged / "mixtures.parquet")
    if state.decisions.rows:
        state.decisions.write(staged / "decisions.parquet")
    model = method.model(ctx, state.server, {}) if not plan.personal else state.server["params"]
    save_tree(staged / "model.safetensors", model)
    manifest = {**_manifest(plan, state, run, code, staged), "data": data}
    _write_json(staged / "manifest.json", manifest)
    _write_json(staged / "timing.json", _timing(state))
    for file in staged.iterdir():
        flush(file)
    _replace(staged, folder)
    shutil.rmtree(partial)
    return manifest


def _replace(staged: Path, folder: Path) -> None:
    """Rename ``staged`` to ``folder``, whatever lies there."""
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(staged, folder)
    flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _write_json(path: Path, what: object) -> None:
    path.write_text(json.dumps(what, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _manifest(
    plan: Plan, state: State, run: Mapping[str, Any], code: str, staged: Path
) -> dict[str, Any]:
    params = plan.federation.context.net.trainable(state.server.get("params", {}))
    return {
        "status": "finished" if state.diverged_at is None else "diverged",
        "diverged_at": state.diverged_at,
        "rounds_done": state.done,
        "run": fingerprint.meaning(run),
        "config_hash": fingerprint.of_config(run),
        "code": code,
        "executor": plan.executor,
        "device": run["device"],
        "threads": run["threads"],
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "clients": plan.federation.context.clients,
        "parameters": sum(leaf.numel() for leaf in tree.leaves(params)),
        "bytes_down": state.bytes_down,
        "bytes_up": state.bytes_up,
        "packages": {name: version(name) for name in ("fedrepro", *PACKAGES)},
        "hardware": hardware(run["device"]),
        "files": {file.name: sha256_of(file) for file in sorted(staged.iterdir())},
    }


def hardware(device: str) -> dict[str, Any]:
    """The machine, as far as it can change the bits of a result."""
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if device.startswith("cuda"):
        facts["accelerator"] = torch.cuda.get_device_name(device)
    return facts


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def _timing(state: State) -> dict[str, float]:
    return {
        "wall_seconds": state.wall_seconds,
        "cpu_seconds": state.cpu_seconds,
        "rounds_per_second": state.done / state.wall_seconds if state.wall_seconds else 0.0,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "resumed": state.resumed,
    }
