"""Measure the rates of all shipped experiments, for src/fedrepro/cost/cpu.json and h100.json.

`python scripts/measure_rates.py cpu` plays a few rounds of the engine on random data: each model
with FedAvg, each method on one small model as a multiple of FedAvg, one after another, each in its
own process (to get its peak memory); then it compares the table with all landed runs. `make paper`
calls it with h100: the rounds are played on paper (gpu_on_paper.py), by the numbers of h100.yaml,
and what was measured on such a GPU is entered.

What a table has is not measured again; delete the table's rows for that, or change a number from
which h100.yaml predicts.
"""

import argparse
import json
import math
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from card_table import shipped
from gpu_on_paper import PAPER, Clock, on_paper

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import load
from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.config.settings import Evaluate, OptimizerSpec, Setting
from fedrepro.config.values import SCALES, ExecutorName, Hyperparameters
from fedrepro.cost.estimate import chosen
from fedrepro.cost.model import CostModel
from fedrepro.cost.network_size import size_of
from fedrepro.cost.rates import DRAWN, FOLDER, MethodKey, MethodRate, ModelRate, Rates, Workload
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
from fedrepro.models.pretrained import untrained
from fedrepro.run.assembly import Plan, make_plan
from fedrepro.run.devices import keep_freed_memory
from fedrepro.run.landed_runs import runs_landed_in, settings_with_results
from fedrepro.run.networks import StoredArtifact
from fedrepro.run.results import read_run, reference_runs
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically
from fedrepro.support.plugins import NONE, Folders

LONG = 8  # steps of the longer of two rounds; a step takes their difference
FEW, MANY = 16, 256  # samples of the two evaluations
ENOUGH = 0.15  # seconds of one measurement
SLOW = 4.0  # seconds beyond which one measurement is enough; PyTorch's first call may take less
ROUNDS = 3  # of a method, so that IMA averages in the last
FEW_TIMES = 3  # instead of LONG on a GPU on paper, whose clock is exact
RECORDED = 3  # times that steps are played on a GPU on paper, of which the last is recorded
# The names under which methods are given artifacts during their measurement.
MAKERS = {"generator": "wgan_gp_small", "discriminators": "discriminator_small"}

KINDS = {"bytes": np.uint8, "sound": np.int16, "features": np.float32, "words": np.int32}


@dataclass(frozen=True)
class Subject(Workload):
    """A workload with what playing it takes besides.

    Attributes:
        by: a run to measure itself, if its method trains something other than a classifier.
    """

    task: str = "classification"
    by: RunSpec | None = field(default=None, compare=False)
    plugins: Folders = field(default=NONE, compare=False)


REFERENCE = Subject("ima_fmnist_cnn", (1, 28, 28), "bytes", 10, 10)


def subjects(device: str) -> tuple[dict[Workload, Subject], dict[MethodKey, RunSpec]]:
    """All workloads and methods of the shipped experiments, each with a run to play."""
    bench = load(overrides=Overrides(device=device))
    workloads: dict[Workload, Subject] = {}
    methods: dict[MethodKey, RunSpec] = {}
    for scale in SCALES:
        model = CostModel(bench, chosen(bench, (), scale))
        for spec in map(bench.spec_of, model.runs):
            data = model.data(spec.setting.dataset)
            if data is None:
                continue
            workload = model.workload(spec, data)
            task, by = bench.datasets[spec.setting.dataset].task, spec if workload.method else None
            if not by:
                methods.setdefault(MethodKey.of(spec), spec)
            subject = Subject(**vars(workload), task=task, by=by, plugins=spec.plugins)
            workloads.setdefault(workload, subject)
    for row in shipped().models if device == "cuda" else ():
        precision = row.precision
        named = row.model, row.shape, "bytes", 10, row.batch_size, row.stacked, precision
        workloads.setdefault(Workload(*named), Subject(*named))
    return workloads, methods


def measure(device: str) -> None:
    """Measure what a device's table lacks, and write it after each."""
    rates, played = Rates.read(device), "cpu"
    if device == "cuda":
        machine = {"device": device, "accelerator": shipped().name, "table": shipped().digest}
        if rates.machine != machine:
            rates = Rates(machine, shipped().start_seconds)
        played = PAPER
        import torch._dynamo  # noqa: F401 - which takes seconds, in each of the forks
    workloads, methods = subjects(device)
    wanted: list[tuple[Workload | MethodKey, Subject | RunSpec]] = [
        *((key, subject) for key, subject in workloads.items() if key not in rates.models),
        *((key, spec) for key, spec in methods.items() if key not in rates.methods),
    ]
    for key, subject in wanted:
        print(key.name, flush=True)
        rate = in_a_process(subject, played)
        match key, rate:
            case Workload(), ModelRate():
                rates.models[key] = replace(rate, flop=size_of(key, NONE)[0])
            case MethodKey(), MethodRate():
                rates.methods[key] = rate
            case _:
                print(f"not measured: {key.name}: {rate}")
        save(rates, device)
    if device == "cuda":
        enter_measurements(rates)
    else:
        enter_landed(rates)
    save(rates, device)


def save(rates: Rates, device: str) -> None:
    with write_atomically(FOLDER / ("cpu.json" if device == "cpu" else "h100.json")) as temporary:
        temporary.write_text(text_of(rates), encoding="utf-8")


def text_of(table: Rates) -> str:
    """The content of a table's file, a row on a line."""

    def rows(rates: dict[Any, Any]) -> str:
        lines = sorted(
            json.dumps({"of": _stated(key), "rate": _stated(rate)}) for key, rate in rates.items()
        )
        return "[\n" + ",\n".join(lines) + "\n]"

    return (
        f'{{"machine": {json.dumps(table.machine, sort_keys=True)},\n'
        f'"start_seconds": {table.start_seconds},\n"models": {rows(table.models)},\n'
        f'"methods": {rows(table.methods)},\n'
        f'"landed": {json.dumps(table.landed, indent=0, sort_keys=True)}}}\n'
    )


def _stated(part: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not at their defaults."""
    defaults = {name: each.default for name, each in part.__dataclass_fields__.items()}
    return {name: value for name, value in asdict(part).items() if value != defaults[name]}


def in_a_process(subject: Subject | RunSpec, device: str) -> ModelRate | MethodRate | str:
    """The rate of a workload or method; or the reason why it has none."""
    with multiprocessing.get_context("fork").Pool(1, _receive, (subject,)) as pool:
        return pool.apply(_measure, (device,))


_SUBJECTS: list[Subject | RunSpec] = []  # in a child: a run cannot be sent to it


def _receive(subject: Subject | RunSpec) -> None:
    _SUBJECTS[:] = [subject]


def _measure(device: str) -> ModelRate | MethodRate | str:
    torch.set_num_threads(1)
    (subject,) = _SUBJECTS
    try:
        if isinstance(subject, Subject):
            return measure_model(subject, device, 1)
        return measure_method(subject, device, 1, {})
    except (UserError, RuntimeError, TypeError, ValueError) as error:
        return str(error).partition("\n")[0] or type(error).__name__


def enter_measurements(rates: Rates) -> None:
    """Enter what h100.yaml has of models and methods that were measured in whole rounds."""
    for workload, rate in rates.models.items():
        if row := shipped().row_of(workload):
            # Its steps include what a client's round takes besides.
            step = 1 / row.steps_per_second - rate.client_seconds / row.client_steps
            step = max(step, 0.5 / row.steps_per_second)
            rates.models[workload] = replace(rate, step_seconds=step, source=row.source)
    for key, factor in rates.methods.items():
        if key.composition == "fedavg":
            rates.methods[key] = replace(factor, source="FedAvg")
        for measured in shipped().methods:
            if (key.composition, key.epochs) == (measured.method, measured.epochs):
                source = measured.source
                rates.methods[key] = replace(factor, factor=measured.factor, source=source)


def enter_landed(rates: Rates) -> None:
    """Enter by how much the CPU time of landed runs differs from the table, and print it."""
    rates.landed = {}
    model = CostModel(load(), (), rates)
    records = [
        read_run(Path(), run, reference=True)
        for setting in settings_with_results(Path())
        for run in runs_landed_in(Path(), setting)
    ]
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    for record in [*records, *reference_runs(Path())]:
        try:
            timed = model.timed(record)
        except UserError:  # of an experiment that is gone
            continue
        if timed and (workload := timed[0].workload) and timed[0].seconds:
            cost, ratio = timed
            expected = timed[0].seconds - rates.start_seconds
            key = MethodKey.of(model.bench.spec_of(cost.run))
            names = workload.name, f"{workload.name}, {key.name}"
            for name in (*names, f"paper {record.run.setting.partition('/')[0]}"):
                known = seconds.setdefault(name, ([], []))
                known[0].append(ratio * expected)
                known[1].append(expected)
    for name, (spent, predicted) in seconds.items():
        ratio = math.fsum(spent) / math.fsum(predicted)
        if name.startswith("paper "):
            print(f"{name}: {len(spent)} landed runs took {ratio:.2f} times the table's seconds")
        else:
            rates.landed[name] = float(f"{ratio:.3g}")


def measure_model(workload: Subject, device: str, threads: int) -> ModelRate:
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
    plan: Plan, workload: Subject, device: str, threads: int
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
    clients, least = len(long.clients.indices), size // long.context.batch_size
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
    # A centralised method has one client; an epoch of it has two mini-batches.
    return MethodRate(_rounds(plan, device, threads) / plain[epochs])


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
        max(server, 0.0) / (ROUNDS - 1),
    )


def clients_part(spec: RunSpec) -> dict[str, Hyperparameters]:
    """A run's hyperparameters without those that depend on other sizes than its clients'.

    A server that distils iterates over its own samples, and a method that draws images draws a
    fixed number: :mod:`fedrepro.cost.model` counts these. A share of the two clients that are
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
    workload: Subject,
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
    executor: ExecutorName = "vectorised" if workload.stacked else "sequential"
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


def _made_up(need: str, workload: Subject, train: Split, clients: int) -> StoredArtifact:
    """An artifact of the right shape: an untrained network, or training samples.

    Raises:
        UserError: for any other kind of artifact.
    """
    if need == "unlabelled":
        return StoredArtifact("", {"x": torch.from_numpy(np.array(train.x))}, {})
    source = workload.by.inputs.get(need) if workload.by else None
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("cpu", "h100"))
    measure("cpu" if parser.parse_args().table == "cpu" else "cuda")
