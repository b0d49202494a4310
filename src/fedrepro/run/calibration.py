"""Measure how fast this machine is: a few rounds of the engine on random data.

Every model is measured separately with FedAvg, in its own process (to get its peak memory). Every
method is measured on one small model, as a multiple of FedAvg.
"""

import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.config.settings import Evaluate, OptimizerSpec, Setting
from fedrepro.config.values import Executor, Hyperparameters
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid
from fedrepro.data.tensors.samples import ClientData
from fedrepro.engine import tree
from fedrepro.engine.descent import TOGETHER
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.executors import eager, sequential
from fedrepro.engine.method import name_of
from fedrepro.engine.round import Federation, begin, play_round
from fedrepro.methods import registry
from fedrepro.methods._combining import Withstanding
from fedrepro.models import registry as models
from fedrepro.models.weights import untrained
from fedrepro.run.assembly import Plan, StoredArtifact, make_plan
from fedrepro.run.card_table import shipped
from fedrepro.run.memory import keep_freed_memory
from fedrepro.run.on_paper import PAPER, Clock, on_paper
from fedrepro.run.rates import DRAWN, MethodRate, ModelRate, Rates, Workload, family_of_method
from fedrepro.run.store import ClientStore
from fedrepro.support.cores import usable_cores
from fedrepro.support.errors import UserError

LONG = 8  # steps of the longer of two rounds; a step takes their difference
FEW, MANY = 16, 256  # samples of the two evaluations
ENOUGH = 0.15  # seconds of one measurement
SLOW = 4.0  # seconds beyond which one measurement is enough; PyTorch's first call may take less
REFERENCE = Workload("ima_fmnist_cnn", (1, 28, 28), "bytes", 10, "classification", 10)
ROUNDS = 3  # of a method, so that IMA averages in the last
FEW_TIMES = 3  # instead of LONG on a GPU on paper, whose clock is exact
RECORDED = 3  # times that steps are played on a GPU on paper, of which the last is recorded
EARLY = 0.6  # share of the limit after which no model is started that has a surrogate
AT_ONCE = 8  # methods with the same epochs that one process measures
# The names under which methods are given artifacts during their measurement.
MAKERS = {"generator": "wgan_gp_small", "discriminators": "discriminator_small"}

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
    """Measure the rates that ``rates`` lacks and add them.

    Args:
        workloads: by key, the most important first.
        methods: a run of each method, by key.
        limit: seconds after which no further measurement is started.
        say: called with a line about the next measurement.

    Returns:
        What could not be measured, and why.
    """
    device, threads = rates.machine["device"], rates.machine.get("threads", 1)
    if "table" in rates.machine:
        device, rates.start_seconds = PAPER, shipped().start_seconds
    until = time.monotonic() + limit
    if rates.start_seconds is None:
        say("start")
        rates.start_seconds = start_seconds()
    # One of each family first, so that every run gets an estimate; and models before methods,
    # whose rates are of no use without them.
    measured = [key for key in workloads if key in rates.models]
    first_models, other_models = _one_of_each(
        workloads, lambda key: workloads[key].family, measured
    )
    short = sorted(methods, key=lambda key: methods[key].setting.epochs)
    first_methods, other_methods = _one_of_each(short, family_of_method, rates.methods)
    wanted: list[Wanted] = [[(key, workloads[key])] for key in first_models]
    wanted += _grouped([(key, methods[key]) for key in first_methods])
    wanted += _grouped([(key, methods[key]) for key in other_methods])
    tasks: list[Task] = [(each, device, threads, until) for each in wanted]
    early = until - (1 - EARLY) * limit
    tasks += [([(key, workloads[key])], device, threads, early) for key in other_models]
    failed: dict[str, str] = {}
    for key, found in _in_children(tasks, device, threads):
        say(key)
        match found:
            case ModelRate():
                rates.models[key] = found
            case MethodRate():
                rates.methods[key] = found
            case _:
                failed[key] = found
    return failed


def _one_of_each(
    keys: Iterable[str], kin_of: Callable[[str], object], known: Collection[str]
) -> tuple[list[str], list[str]]:
    """What is not measured yet: first one per unmeasured family, then the rest."""
    first: list[str] = []
    others: list[str] = []
    seen = {kin_of(key) for key in known}
    for key in keys:
        if key not in known:
            (others if kin_of(key) in seen else first).append(key)
            seen.add(kin_of(key))
    return first, others


def _grouped(specs: Iterable[tuple[str, RunSpec]]) -> "list[Wanted]":
    """Groups of methods with the same local epochs, each measured against one FedAvg run."""
    by_epochs: dict[int, Wanted] = {}
    for key, spec in specs:
        by_epochs.setdefault(spec.setting.epochs, []).append((key, spec))
    return [
        group[first : first + AT_ONCE]
        for group in by_epochs.values()
        for first in range(0, len(group), AT_ONCE)
    ]


def start_seconds() -> float:
    """CPU seconds that a command takes before it starts training."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import fedrepro.run.runner"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


Wanted = list[tuple[str, "Workload | RunSpec"]]  # or runs of methods with the same epochs, by key
Task = tuple[Wanted, str, int, float]  # device, threads, and the second after which not to begin
Found = ModelRate | MethodRate | str  # a text: why it could not be measured


def _in_children(tasks: Sequence[Task], device: str, threads: int) -> Iterator[tuple[str, Found]]:
    """The results, measured with the parallelism of real runs.

    Each in its own process, to get its peak memory.
    """
    # A fork saves the imports; CUDA and macOS libraries do not survive it.
    forks = sys.platform == "linux" and device != "cuda"
    workers = max(1, usable_cores() // threads) if device != "cuda" else 1
    context = multiprocessing.get_context("fork" if forks else "spawn")
    # A forked child has the tasks already. Any other is sent them, which a plug-in's partition
    # scheme does not survive; measuring uses its own.
    if device == PAPER:
        import torch._dynamo  # noqa: F401 - which takes seconds, in each of the forks
    if not forks:
        tasks = [([(key, _sendable(what)) for key, what in each[0]], *each[1:]) for each in tasks]
    count = min(workers, max(1, len(tasks)))
    with context.Pool(count, _receive, (tasks,), maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(_measure, range(len(tasks))):
            yield from found


def _sendable(what: Workload | RunSpec) -> Workload | RunSpec:
    if isinstance(what, RunSpec):
        return _with_plain_partition(what)
    return replace(what, by=_with_plain_partition(what.by)) if what.by else what


def _with_plain_partition(spec: RunSpec) -> RunSpec:
    setting = spec.setting.model_copy(update={"partition": Iid(scheme="iid", clients=1)})
    given = {
        name: _with_plain_partition(each) if isinstance(each, RunSpec) else each
        for name, each in spec.given.items()
    }
    return replace(spec, setting=setting, given=given)


_TASKS: list[Task] = []  # in a child


def _receive(tasks: Sequence[Task]) -> None:
    # Not `_TASKS.extend` itself: without a fork a child would get a copy of that list.
    _TASKS.extend(tasks)


def _measure(number: int) -> list[tuple[str, Found]]:
    wanted, device, threads, until = _TASKS[number]
    torch.set_num_threads(threads)
    plain: dict[int, float] = {}
    found: list[tuple[str, Found]] = []
    for key, what in wanted:
        if time.monotonic() > until:
            found.append((key, LATER))
            continue
        try:
            rate: Found
            if isinstance(what, Workload):
                rate = measure_model(what, device, threads)
            else:
                rate = measure_method(what, device, threads, plain)
            found.append((key, rate))
        except UserError as error:
            found.append((key, str(error)))
        except torch.OutOfMemoryError:
            found.append((key, f"does not fit into the memory of {device}"))
        except (RuntimeError, TypeError, ValueError) as error:
            if device != PAPER:
                raise
            why = str(error).partition("\n")[0] or type(error).__name__
            found.append((key, f"cannot be counted without the GPU: {why:.120}"))
    return found


def measure_model(workload: Workload, device: str, threads: int) -> ModelRate:
    """FedAvg's rounds with one client, one step and several steps; and two evaluations.

    Raises:
        UserError: if the model cannot be built, for example because a package is missing.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()
    by = workload.by
    composition, values = (by.composition, clients_part(by)) if by else ("fedavg", {})
    # Stacked clients take several steps in one launch.
    clients, least = (workload.stacked, TOGETHER) if workload.stacked else (1, 1)
    size = least * workload.batch_size
    times = FEW_TIMES if device == PAPER else LONG
    plan = random_plan(workload, clients, times * size, composition, values, 1, device, threads)
    with _timing(plan, workload, device, threads) as (clock, worked):
        return _model_rate(plan, size, clock, worked, device)


@contextmanager
def _timing(
    plan: Plan, workload: Workload, device: str, threads: int
) -> Iterator[tuple[Callable[[], float], Callable[[], float]]]:
    """The clock by which a plan is measured, and that of a GPU on paper while it works."""
    if device != PAPER:
        yield clock_of(device, threads), lambda: 0.0
        return
    context = plan.federation.context
    nets = [context.net, *context.nets.values()]
    with on_paper(nets, shipped(), workload.precision, workload.stacked > 0) as clock:
        yield clock.wait, lambda: clock.worked


def _model_rate(
    plan: Plan,
    size: int,
    clock: Callable[[], float],
    worked: Callable[[], float],
    device: str,
) -> ModelRate:
    """The rate of a plan; a second one of its rounds has ``size`` samples of each client only."""
    long, test = plan.federation, plan.test
    assert isinstance(long.clients, ClientData)
    clients, least = len(long.clients.indices), size // long.batch_size
    times = len(long.clients.indices[0]) // size
    few_each = [each[:size] for each in long.clients.indices]
    short = replace(long, clients=ClientData(long.clients.samples, few_each))
    server, busy = begin(long), 1.0

    def once(federation: Federation) -> Callable[[], object]:
        return lambda: play_round(federation, server, ClientStore(Path(folder)), 0)

    with tempfile.TemporaryDirectory() as folder:
        one = _seconds(once(short), clock, device, RECORDED)
        step, client = one / clients / least, 0.0
        if one < ENOUGH or device == PAPER:
            if device == PAPER:
                before = worked()
                _seconds(once(short), clock, device)
                between = worked()
            more = max(_seconds(once(long), clock, device) - one, 0.0)
            if device == PAPER:
                # In a short round the host's work for a client hides the card's; in a long one,
                # the card's is what counts.
                work, of_short = worked() - between, between - before
                more = max(more, work - of_short)
                busy = min((work - of_short) / more, 1.0) if more else 1.0
            step = more / (times - 1) / clients / least
            client = max(one / clients - step * least, 0.0)
    context = long.context

    def score(samples: int, measured: bool) -> Callable[[], object]:
        bound = server["params"]
        assert test is not None
        return lambda: evaluate(context.net, context.task, bound, test, samples, measured)

    few = _seconds(score(FEW, False), clock, device) if long.method.classifies else 0.0
    sample, call = few / FEW, 0.0
    if 0 < few < ENOUGH / 2:
        sample = max(_seconds(score(MANY, False), clock, device) - few, 0.0) / (MANY - FEW)
        call = max(_seconds(score(FEW, True), clock, device) - FEW * sample, 0.0)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return ModelRate(
        step_seconds=step,
        client_seconds=client,
        sample_seconds=sample,
        score_seconds=call,
        parameters=sum(leaf.numel() for leaf in tree.leaves(server.get("params", {}))),
        memory_bytes=shipped().process_bytes
        if device == PAPER
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        busy=busy,
    )


def measure_method(spec: RunSpec, device: str, threads: int, plain: dict[int, float]) -> MethodRate:
    """A few rounds of two clients with one mini-batch each, next to FedAvg's.

    Args:
        plain: FedAvg's seconds by local epochs, as far as known; this function adds to it.
    """
    epochs, size = spec.setting.epochs, REFERENCE.batch_size
    if device == PAPER:
        return _method_on_paper(spec, plain)
    if epochs not in plain:
        fedavg = random_plan(REFERENCE, 2, size, "fedavg", {}, epochs, device, threads)
        plain[epochs] = _rounds(fedavg, device, threads)
    workload, composition = replace(REFERENCE, plugins=spec.plugins), spec.composition
    plan = random_plan(workload, 2, size, composition, clients_part(spec), epochs, device, threads)
    layers = plan.federation.method.layers()
    pooled = plan.federation.method.centralized
    # A centralised method has one client; an epoch of it has two mini-batches.
    factor = _rounds(plan, device, threads) / plain[epochs]
    return MethodRate(factor, pooled, any(layer.interpolates for layer in layers))


def _method_on_paper(spec: RunSpec, plain: dict[int, float]) -> MethodRate:
    """By how much more a round takes with two mini-batches than with one; the rest is the server's.

    Args:
        plain: FedAvg's seconds by epochs times mini-batches of a client.
    """
    epochs, size = spec.setting.epochs, REFERENCE.batch_size
    workload = replace(REFERENCE, plugins=spec.plugins)

    def rounds(batches: int, composition: str, values: Mapping[str, Hyperparameters]) -> Plan:
        return random_plan(workload, 2, batches * size, composition, values, epochs, PAPER, 1)

    for batches in (1, 2):
        if epochs * batches not in plain:
            plain[epochs * batches] = _rounds(rounds(batches, "fedavg", {}), PAPER, 1)
    values = clients_part(spec)
    plans = [rounds(batches, spec.composition, values) for batches in (1, 2)]
    one, two = (_rounds(plan, PAPER, 1) for plan in plans)
    first, second = plain[epochs], plain[2 * epochs]
    method = plans[0].federation.method
    server = (2 * one - two) - (2 * first - second)
    factor = (two - one) / (second - first)
    return MethodRate(
        factor if method.centralized else max(factor, 1.0),  # a long server's round hides a step
        method.centralized,
        any(layer.interpolates for layer in method.layers()),
        max(server, 0.0) / (ROUNDS - 1),
    )


def clients_part(spec: RunSpec) -> dict[str, Hyperparameters]:
    """A run's hyperparameters without those that depend on other sizes than its clients'.

    A server that distils iterates over its own samples, and a method that draws images draws a
    fixed number: :mod:`fedrepro.workflow.cost` counts these. A share of the two clients that are
    measured would be nobody.
    """
    method, _ = registry.compose(spec.composition, spec.hyperparameters, spec.plugins)
    values = {part: {**each} for part, each in spec.hyperparameters.items()}
    for layer in method.layers():
        own = values.setdefault(name_of(layer), {})
        if layer.distills and hasattr(layer, "server_epochs"):
            own["server_epochs"] = 0
        if layer.centralized and hasattr(layer, "number"):
            own["number"] = DRAWN
        if isinstance(layer, Withstanding):
            own["share"] = 0.0
    return values


def _rounds(plan: Plan, device: str, threads: int) -> float:
    """Seconds of all rounds except the first, which initialises states and warms up code."""
    federation = plan.federation
    times: list[float] = []
    with _timing(plan, REFERENCE, device, threads) as (clock, _):
        while not times if device == PAPER else sum(times) < ENOUGH / 2:
            server = begin(federation)
            with tempfile.TemporaryDirectory() as folder:
                client_states = ClientStore(Path(folder), device=device)
                server, _ = play_round(federation, server, client_states, 0)
                began = clock()
                for number in range(1, ROUNDS):
                    server, _ = play_round(federation, server, client_states, number)
            times.append(clock() - began)
    return times[-1] if device == PAPER else median(times)


def random_plan(
    workload: Workload,
    clients: int,
    size: int,
    composition: str,
    hyperparameters: Mapping[str, Hyperparameters],
    epochs: int,
    device: str,
    threads: int,
) -> Plan:
    """A run on random data with ``clients`` clients of ``size`` samples each.

    Raises:
        UserError: for a method whose artifacts cannot be made up, or a model that cannot be built.
    """
    random = np.random.default_rng(0)

    def split(samples: int) -> Split:
        shape, kind = (samples, *workload.shape), KINDS[workload.numbers]
        if workload.numbers == "features":
            x = random.standard_normal(shape).astype(kind)
        elif workload.numbers == "words":
            x = np.ones(shape, kind)  # a token of every vocabulary, and a mask of ones
        else:
            x = random.integers(0, 256, shape).astype(kind)
        wide = workload.shape if workload.task == "next_word" else ()
        first = 4 if workload.task == "next_word" else 0  # the first word's token
        y = random.integers(first, workload.classes, (samples, *wide)).astype(np.int64)
        y = y if wide else np.arange(samples) % workload.classes  # image methods need all classes
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
        rounds=workload.by.setting.rounds if workload.by else ROUNDS,
        participation=1.0,
        epochs=epochs,
        batch_size=workload.batch_size,
        optimizer=OptimizerSpec(lr=1e-3),
        evaluate=Evaluate(),
        scaling=workload.by.setting.scaling if workload.by else None,
        precision="float32" if device == PAPER else workload.precision,
    )
    executor: Executor = "vectorised" if workload.stacked else "sequential"
    execution = Execution(executor, device, threads)
    spec = RunSpec(
        setting, composition, composition, hyperparameters, 1, execution, plugins=workload.plugins
    )
    needs = registry.compose(composition, hyperparameters, spec.plugins)[0].requires
    given = {need: _made_up(need, workload, train, clients) for need in needs}
    away = Clock(shipped()) if device == PAPER else nullcontext()
    with untrained(), away:
        plan = make_plan(spec, dataset, make_partition(train.y, None, partition, 1), given)
    if device != PAPER:
        return plan
    # No compiler knows tensors without memory, and the clock no streams.
    execute = eager if workload.stacked else sequential
    return replace(plan, federation=replace(plan.federation, execute=execute))


def _made_up(need: str, workload: Workload, train: Split, clients: int) -> StoredArtifact:
    """An artifact of the right shape: an untrained network, or training samples.

    Raises:
        UserError: for any other kind of artifact.
    """
    if need == "unlabelled":
        return StoredArtifact("", {"x": torch.from_numpy(np.array(train.x))}, {})
    source = workload.by.given.get(need) if workload.by else None
    model = source.setting.model if isinstance(source, RunSpec) else MAKERS.get(need)
    if model is None:
        raise UserError(f"it requires an artifact that cannot be made up ({need})")
    module, part = models.build(model, workload.shape, 1, folders=workload.plugins), ""
    if need == "generator":
        module, part, latent = module.get_submodule(need), need, module.latent
    tensors = {name: leaf for name, leaf in module.state_dict().items() if leaf.is_floating_point()}
    each_client = need == "discriminators"
    if each_client:
        tensors = {name: torch.stack([leaf] * clients) for name, leaf in tensors.items()}
    facts = {
        "model": model,
        "part": part,
        "input_shape": list(workload.shape),
        "outputs": 1,
        "clients": clients if each_client else None,
        "about": {"latent": latent} if part else {},
    }
    return StoredArtifact("", tensors, facts)


def clock_of(device: str, threads: int) -> Callable[[], float]:
    """CPU seconds with one thread; otherwise wall time, after the device has finished."""
    if device == "cpu":
        return time.process_time if threads == 1 else time.perf_counter

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def _seconds(
    once: Callable[[], object], clock: Callable[[], float], device: str, repeats: int = 1
) -> float:
    """The median of the durations; the first, a warm-up, counts only if it is slow.

    Args:
        repeats: how often it is played on a GPU on paper, until all is recorded.
    """
    if device == PAPER:  # each is the same, once all is recorded
        return [_timed(once, clock) for _ in range(repeats)][-1]
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
