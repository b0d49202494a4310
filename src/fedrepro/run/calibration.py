"""Measuring how fast this machine is: a few rounds of the engine on random data.

Every model is measured by itself, with FedAvg, in a process of its own (so that its peak of memory
is its own); every method on one small model, as a multiple of FedAvg.
"""

import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.config.settings import Evaluate, OptimizerSpec, Setting
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid
from fedrepro.data.tensors.samples import ClientData
from fedrepro.engine import tree
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.round import Federation, begin, play_round
from fedrepro.run.assembly import Plan, compose, make_plan
from fedrepro.run.memory import keep_freed_memory
from fedrepro.run.rates import MethodRate, ModelRate, Rates, Workload
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import UserError

LONG = 8  # steps of the longer of two rounds, whose difference is what a step takes
FEW, MANY = 16, 256  # samples of the two evaluations
ENOUGH = 0.3  # seconds of one measurement
SLOW = 2.0  # seconds of what is done once only
REFERENCE = Workload("ima_fmnist_cnn", (1, 28, 28), "bytes", 10, "classification", 10)
ROUNDS = 3  # of a method: the last is one that IMA averages in

KINDS = {"bytes": np.uint8, "sound": np.int16, "features": np.float32, "words": np.int32}
LATER = "there was no time left"
Say = Callable[[str], None]


def calibrate(
    rates: Rates,
    workloads: Mapping[str, Workload],
    methods: Mapping[str, RunSpec],
    limit: float,
    say: Say = lambda line: None,
) -> dict[str, str]:
    """Measure what ``rates`` lacks and add it.

    Args:
        workloads: by key, what matters most first.
        methods: a run of each method, by key.
        limit: seconds after which nothing further is begun.
        say: told what is measured next.

    Returns:
        What could not be measured, and why.
    """
    device, threads = rates.machine["device"], rates.machine["threads"]
    torch.set_num_threads(threads)
    until = time.perf_counter() + limit
    failed: dict[str, str] = {}
    if rates.start_seconds is None:
        say("start")
        rates.start_seconds = start_seconds()
    plain: dict[int, float] = {}
    waiting: dict[str, Callable[[], None]] = {}

    def model(key: str) -> None:
        rates.models[key] = _in_a_child(workloads[key], device, threads)

    def method(key: str) -> None:
        rates.methods[key] = measure_method(methods[key], device, threads, plain)

    # Models first: without its model's rate a method's says nothing.
    waiting |= {key: partial(model, key) for key in workloads if key not in rates.models}
    waiting |= {key: partial(method, key) for key in methods if key not in rates.methods}
    for key, measure in waiting.items():
        if time.perf_counter() > until:
            failed[key] = LATER
            continue
        say(key)
        try:
            measure()
        except UserError as error:
            failed[key] = str(error)
    return failed


def start_seconds() -> float:
    """CPU seconds that a command takes before it trains."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import fedrepro.run.runner"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _in_a_child(workload: Workload, device: str, threads: int) -> ModelRate:
    # A fork spares the imports; CUDA and macOS's libraries don't survive one.
    forks = sys.platform == "linux" and device == "cpu"
    with multiprocessing.get_context("fork" if forks else "spawn").Pool(1) as pool:
        return pool.apply(measure_model, (workload, device, threads))


def measure_model(workload: Workload, device: str, threads: int) -> ModelRate:
    """FedAvg's rounds of one client, with one step and with several; and two evaluations.

    Raises:
        UserError: when the model can't be built: pre-trained ones need their weights.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()
    clock = clock_of(device, threads)
    by = workload.by
    composition, values = (by.composition, by.hyperparameters) if by else ("fedavg", {})
    size = LONG * workload.batch_size
    plan = random_plan(workload, 1, size, composition, values, 1, device, threads)
    long, test = plan.federation, plan.test
    assert isinstance(long.clients, ClientData)
    short = replace(
        long,
        clients=ClientData(long.clients.samples, [long.clients.indices[0][: workload.batch_size]]),
    )
    server = begin(long)

    def once(federation: Federation) -> Callable[[], object]:
        return lambda: play_round(federation, server, ClientStore(Path(folder)), 0)

    with tempfile.TemporaryDirectory() as folder:
        one = _seconds(once(short), clock)
        step, client = one, 0.0
        if one < ENOUGH:
            step = max(_seconds(once(long), clock) - one, 0.0) / (LONG - 1)
            client = max(one - step, 0.0)
    context = long.context

    def score(samples: int, measured: bool) -> Callable[[], object]:
        bound = server["params"]
        assert test is not None
        return lambda: evaluate(context.net, context.task, bound, test, samples, measured)

    few = _seconds(score(FEW, False), clock) if long.method.classifies else 0.0
    sample, call = few / FEW, 0.0
    if 0 < few < ENOUGH:
        sample = max(_seconds(score(MANY, False), clock) - few, 0.0) / (MANY - FEW)
        call = max(_seconds(score(FEW, True), clock) - FEW * sample, 0.0)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return ModelRate(
        step_seconds=step,
        client_seconds=client,
        sample_seconds=sample,
        score_seconds=call,
        parameters=sum(leaf.numel() for leaf in tree.leaves(server.get("params", {}))),
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def measure_method(spec: RunSpec, device: str, threads: int, plain: dict[int, float]) -> MethodRate:
    """A few rounds of two clients with one mini-batch each, beside FedAvg's.

    Args:
        plain: FedAvg's seconds by local epochs, as far as they are known; added to.
    """
    epochs = spec.setting.epochs
    if epochs not in plain:
        fedavg = _reference("fedavg", {}, epochs, device, threads)
        plain[epochs] = _rounds(fedavg, device, threads)
    plan = _reference(spec.composition, spec.hyperparameters, epochs, device, threads)
    layers = plan.federation.method.layers()
    pooled = plan.federation.method.pooled
    # A pooled method has one client, whose two mini-batches are an epoch.
    factor = _rounds(plan, device, threads) / plain[epochs]
    return MethodRate(factor, pooled, any(layer.mixes for layer in layers))


def _reference(
    composition: str, hyperparameters: Mapping[str, object], epochs: int, device: str, threads: int
) -> Plan:
    size = REFERENCE.batch_size
    return random_plan(REFERENCE, 2, size, composition, hyperparameters, epochs, device, threads)


def _rounds(plan: Plan, device: str, threads: int) -> float:
    """Seconds of all rounds but the first, in which states are made and code is warmed."""
    clock, federation = clock_of(device, threads), plan.federation
    times: list[float] = []
    while sum(times) < ENOUGH / 2:
        server = begin(federation)
        with tempfile.TemporaryDirectory() as folder:
            owns = ClientStore(Path(folder), device=device)
            server, _ = play_round(federation, server, owns, 0)
            began = clock()
            for number in range(1, ROUNDS):
                server, _ = play_round(federation, server, owns, number)
        times.append(clock() - began)
    return median(times)


def random_plan(
    workload: Workload,
    clients: int,
    size: int,
    composition: str,
    hyperparameters: Mapping[str, object],
    epochs: int,
    device: str,
    threads: int,
) -> Plan:
    """A run of :data:`ROUNDS` rounds on random data: ``clients`` with ``size`` samples each.

    Raises:
        UserError: for a method that takes what other runs make.
    """
    random = np.random.default_rng(0)

    def split(samples: int) -> Split:
        shape, kind = (samples, *workload.shape), KINDS[workload.numbers]
        if workload.numbers == "features":
            x = random.standard_normal(shape).astype(kind)
        elif workload.numbers == "words":
            x = np.ones(shape, kind)  # a token that every vocabulary has, and a mask of ones
        else:
            x = random.integers(0, 256, shape).astype(kind)
        wide = workload.shape if workload.task == "next_word" else ()
        first = 4 if workload.task == "next_word" else 0  # words begin there
        y = random.integers(first, workload.classes, (samples, *wide)).astype(np.int64)
        y = y if wide else np.arange(samples) % workload.classes  # what makes images wants each
        return Split(x, y, None)

    train, test = split(clients * size), split(MANY)
    dataset = Dataset(
        "random", workload.task, workload.classes, workload.shape, train, test, None, None, {}
    )
    partition = Iid(scheme="iid", clients=clients)
    setting = Setting(
        dataset="random",
        partition=partition,
        model=workload.model,
        rounds=ROUNDS,
        participation=1.0,
        epochs=epochs,
        batch_size=workload.batch_size,
        optimizer=OptimizerSpec(lr=1e-3),
        evaluate=Evaluate(),
        scaling=workload.by.setting.scaling if workload.by else None,
    )
    execution = Execution("sequential", device, threads)
    spec = RunSpec(setting, composition, composition, hyperparameters, 1, execution)  # type: ignore[arg-type]
    method, _ = compose(spec)
    if method.needs:  # to be made up, it would have to be made
        raise UserError(f"it takes what it is given ({', '.join(method.needs)})")
    return make_plan(spec, dataset, make_partition(train.y, None, partition, 1))


def clock_of(device: str, threads: int) -> Callable[[], float]:
    """CPU seconds where there is one thread; else a clock, after what the device has to do."""
    if device == "cpu":
        return time.process_time if threads == 1 else time.perf_counter

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def _seconds(once: Callable[[], object], clock: Callable[[], float]) -> float:
    """The median of what it takes; the first time, which warms up, counts only where it is slow."""
    first = _timed(once, clock)
    if first >= SLOW:
        return first
    times: list[float] = []
    while sum(times) < ENOUGH:
        times.append(_timed(once, clock))
    return median(times)


def _timed(once: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    once()
    return clock() - began
