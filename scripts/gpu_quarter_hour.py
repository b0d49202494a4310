"""Use a quarter of an hour on a GPU: does it work, is it equal, how fast is it, and reference runs.

    python scripts/gpu_quarter_hour.py --minutes 9 --out FOLDER

Rows of results are printed and added to FOLDER/rows.jsonl as they come, FOLDER/table.md and
FOLDER/summary.json are rewritten after each part, and finished reference runs are packed into
FOLDER/reference-*.zip, which ``--land`` adds to reports/papers. A part's rows run in a process of
their own. A row that fails, dies or takes too long is reported; the rows after it run in a new one.
``--device cpu --tiny`` rehearses all of it. What is not there (a method, MPS, pfl) skips a row.
"""

import argparse
import json
import math
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MARK = "@row "  # begins a line of results on a child's standard output
ROWS, TABLE, SUMMARY, LOG = "rows.jsonl", "table.md", "summary.json", "log.txt"
PACKED, LARGEST = "reference-{}.zip", 14 * 2**20  # bytes, of what comes back in one file
START = 60.0  # seconds of a process until it takes rows: the first import from a cold disk
SPOILT = ("CUDA", "captur", "cuDNN", "CUBLAS")  # in errors after which a process is of no use


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    device: str
    tiny: bool
    out: Path
    archives: Path
    workers: int
    queue: Path | None = None

    @property
    def cuda(self) -> bool:
        return self.device != "cpu"

    @property
    def arguments(self) -> list[str]:
        named = ("--device", self.device, "--out", str(self.out), "--workers", str(self.workers))
        more = ["--queue", str(self.queue)] if self.queue else []
        more += ["--tiny"] if self.tiny else []
        return [*named, "--archives", str(self.archives), *more]


@dataclass(frozen=True)
class Part:
    """Rows that belong together.

    Attributes:
        rows: their names.
        row: what one finds: names and values.
        children: how many processes take rows; 0: as many as the command line says.
        share: of the whole time, at most; 1: whatever is left.
        seconds: that one row may take.
    """

    title: str
    rows: Callable[[Options], list[str]]
    row: Callable[[Options, str], dict[str, Any]]
    children: int
    share: float
    seconds: float


class NotThere(Exception):
    """Something that this machine, or this version of the code, does not have."""


# ------------------------------------------------------------------ part 1: is all of it there?

NEEDED = ("numpy", "pandas", "pyarrow", "pydantic", "daqp", "yaml", "rich", "safetensors", "scipy",
          "torchvision", "triton", "hypothesis", "pytest", "latex2mathml", "jinja2")  # fmt: skip


def rows_of_the_machine(options: Options) -> list[str]:
    return ["versions", "imports", "launch", "copies", "products", "recorded step", "engine"]


def of_the_machine(options: Options, row: str) -> dict[str, Any]:
    return MACHINE[row](options)


def versions(options: Options) -> dict[str, Any]:
    import torch

    found = {"python": sys.version.split()[0], "torch": torch.__version__, "cores": os.cpu_count()}
    if options.cuda:
        found |= {"card": torch.cuda.get_device_name(), "cuda": torch.version.cuda,
                  "cudnn": torch.backends.cudnn.version()}  # fmt: skip
    asked = "name,driver_version,clocks.sm,clocks.mem,power.limit,compute_mode,mig.mode.current"
    with suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        found["nvidia-smi"] = said.stdout.strip()
    found["mps"] = shutil.which("nvidia-cuda-mps-control") or ""
    found["compilers"] = [name for name in ("gcc", "g++", "clang") if shutil.which(name)]
    return {**found, "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}


def imports(options: Options) -> dict[str, Any]:
    import importlib

    missing = {}
    for name in (*NEEDED, "fedrepro.cli.run", "fedrepro.run.runner", "fedrepro.engine.graphs"):
        try:
            importlib.import_module(name)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return {"missing": missing}


def launch(options: Options) -> dict[str, Any]:
    """Microseconds for one tiny kernel: told by Python, and carried out."""
    import torch

    x = torch.zeros(8, device=options.device)
    graph_us, number = None, 300 if options.tiny else 5000

    def each(action: Callable[[], Any], times: int) -> tuple[float, float]:
        sync(options)
        began = time.perf_counter()
        for _ in range(times):
            action()
        told = time.perf_counter() - began
        sync(options)
        return 1e6 * told / times, 1e6 * (time.perf_counter() - began) / times

    each(lambda: x.add_(1), number)
    told, done = each(lambda: x.add_(1), number)
    if options.cuda:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(100):
                x.add_(1)
        each(graph.replay, 10)
        graph_us = each(graph.replay, 200)
    return {"told_us": told, "done_us": done, "graph_of_100_us": graph_us}


def copies(options: Options) -> dict[str, Any]:
    import torch

    size = 2**20 if options.tiny else 2**28
    a = torch.zeros(size, device=options.device)
    b = torch.empty_like(a)
    rate = {"on_card_GB/s": 8 * size / 1e9 / timed(options, lambda: b.copy_(a), 10)}
    if options.cuda:
        host = torch.zeros(size // 8, pin_memory=True)
        part = a[: size // 8]
        sent = timed(options, lambda: part.copy_(host, non_blocking=True), 5)
        rate["to_card_GB/s"] = 4 * (size // 8) / 1e9 / sent
    return rate


def products(options: Options) -> dict[str, Any]:
    """TFLOP/s of a matrix product and of a ResNet's middle convolution, forward."""
    import torch
    from torch.nn import functional

    from fedrepro.engine import tf32

    size, batch = (128, 2) if options.tiny else (8192, 64)
    found: dict[str, Any] = {}
    for name, dtype in (("float32", torch.float32), ("tf32", torch.float32),
                        ("bfloat16", torch.bfloat16)):  # fmt: skip
        tf32.impose(name == "tf32")
        a = torch.randn(size, size, device=options.device, dtype=dtype)
        x = torch.randn(batch, 128, 16, 16, device=options.device, dtype=dtype)
        weight = torch.randn(128, 128, 3, 3, device=options.device, dtype=dtype)
        flop = 2 * batch * 128 * 128 * 9 * 256
        for layout in (torch.contiguous_format, torch.channels_last):
            one, two = x.to(memory_format=layout), weight.to(memory_format=layout)
            takes = timed(options, partial(functional.conv2d, one, two, padding=1), 30)
            last = ", channels last" if layout is torch.channels_last else ""
            found[f"convolution {name}{last}"] = flop / takes / 1e12
        takes = timed(options, partial(torch.matmul, a, a), 5 if name == "float32" else 20)
        found[f"product {name}"] = 2 * size**3 / takes / 1e12
    tf32.impose(False)
    return found


def recorded_step(options: Options) -> dict[str, Any]:
    """One forward and backward pass, recorded by hand, against the same told by Python."""
    import torch
    from torch import nn

    if not options.cuda:
        raise NotThere("a CUDA graph: no GPU")
    net = nn.Sequential(nn.Conv2d(1, 8, 5), nn.Flatten(), nn.Linear(8 * 576, 10)).to(options.device)
    x = torch.randn(20, 1, 28, 28, device=options.device)
    leaves = list(net.parameters())

    def step() -> tuple[Any, ...]:
        return torch.autograd.grad(net(x).square().mean(), leaves)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    sync(options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = step()
    graph.replay()
    sync(options)
    same = all(torch.equal(a, b) for a, b in zip(found, step(), strict=True))
    return {
        "equal": same,
        "eager_us": 1e6 * timed(options, step, 100),
        "graph_us": 1e6 * timed(options, graph.replay, 100),
    }


def engine(options: Options) -> dict[str, Any]:
    """Whether one workload's steps are recorded, and equal."""
    return equal(partial(model_world, options, "mcmahan_cnn", (1, 28, 28)), options)


MACHINE: dict[str, Callable[[Options], dict[str, Any]]] = {
    "versions": versions, "imports": imports, "launch": launch, "copies": copies,
    "products": products, "recorded step": recorded_step, "engine": engine,
}  # fmt: skip


def sync(options: Options) -> None:
    import torch

    if options.cuda:
        torch.cuda.synchronize()


def timed(options: Options, action: Callable[[], Any], times: int) -> float:
    """Seconds of one call, after three others."""
    for _ in range(3):
        action()
    sync(options)
    began = time.perf_counter()
    for _ in range(times):
        action()
    sync(options)
    return (time.perf_counter() - began) / times


# ------------------------------------------------------------------ part 2: is it equal?

MODELS = [  # name, shape of a sample
    ("mcmahan_cnn", (1, 28, 28)), ("superfed_twonn", (1, 28, 28)),
    ("superfed_twocnn", (1, 28, 28)), ("ima_fmnist_cnn", (1, 28, 28)),
    ("ima_cifar_cnn", (3, 32, 32)), ("small_bn_cnn", (1, 28, 28)), ("resnet18", (3, 32, 32)),
    ("ima_resnet18", (3, 32, 32)), ("ima_vgg11", (3, 32, 32)), ("superfed_resnet9", (3, 28, 28)),
    ("superfed_mobilenet", (3, 64, 64)), ("celeba_cnn", (3, 84, 84)), ("m5", (1, 16_000)),
]  # fmt: skip
TINY_MODELS = ("mcmahan_cnn", "superfed_twonn", "small_bn_cnn")
LAYERED = ("fedavg", "fedprox", "ditto", "scaffold", "apfl", "lg_fedavg")
TRAPS = ("ReadsTheRound", "ReadsTheRate", "ReadsTheSizes", "CopiesTheContext", "ReadsATensor",
         "ReadsTheBatch", "ReadsTheMessage", "ReadsTheNorm", "HoldsAClosure")  # fmt: skip


def rows_of_equality(options: Options) -> list[str]:
    from support.on_device import compositions

    names = sorted(compositions())
    first = ("fedavg", "scaffold", "superfed_mm", "ditto")
    names = [*first, *(name for name in names if name not in first)]
    models = [name for name, _ in MODELS if not options.tiny or name in TINY_MODELS]
    many = slice(4 if options.tiny else None)
    pairs = [f"{way}: {name}" for name in names[many] for way in ("graph", "lanes", "stacked")]
    return [
        "pytest",
        *(f"model: {name}" for name in models),
        *(f"trap: {name}" for name in TRAPS[many]),
        *(f"layers: {name}, {optimizer}" for name in LAYERED[many] for optimizer in OPTIMIZERS),
        *pairs,
    ]


OPTIMIZERS = ("momentum", "adam")


def of_equality(options: Options, row: str) -> dict[str, Any]:
    if row == "pytest":
        return pytest_row(options)
    import torch

    from fedrepro.check.world import in_float64
    from fedrepro.engine.executors import Lanes, eager
    from fedrepro.engine.net import Net
    from fedrepro.engine.optim import adam, sgd
    from property import test_graphs
    from support.worlds import federation

    what, _, name = row.partition(": ")
    if what == "model":
        return equal(partial(model_world, options, name, dict(MODELS)[name]), options)
    given: dict[str, Any] = {}
    if what == "lanes":
        given["execute"] = Lanes(2)
    elif what == "stacked":
        given["execute"] = eager
    elif what == "trap":
        given["method"] = getattr(test_graphs, name)()
    name, _, optimizer = name.partition(", ")

    def world() -> Any:
        made = federation("fedavg" if what == "trap" else name, cohort=4, rounds=6, **given)
        if what == "layers":
            net = Net(test_graphs.Normed().double())
            chosen = adam(weight_decay=1e-3) if optimizer == "adam" else sgd(0.9, 1e-3)
            context = replace(made.context, net=net, optimizer=chosen)
            made = replace(made, context=replace(context, batch_size=7))
        return moved(options, made)

    def plain() -> Any:
        made = world()
        return replace(made, execute=type(made).execute) if what == "lanes" else made

    torch.set_num_threads(1)
    with in_float64():
        return equal(world, options, plain)


def moved(options: Options, made: Any) -> Any:
    from support.on_device import on_device

    if not options.cuda:
        return made
    return on_device(made, lambda leaf: leaf.to(options.device), lambda net: net.to(options.device))


def model_world(options: Options, name: str, shape: tuple[int, ...]) -> Any:
    """FedAvg with momentum, a rate that decays and last mini-batches of half the size."""
    from benchmarks.workloads import Workload

    batch = 4 if options.tiny else 16
    work = Workload("", "", name, shape, 10, 4, batch * 5 // 2, 2, 2, batch, 1, 1, lr=0.01)
    loop = engine_loop(work, "sequential", "float32", "fedavg", options, 0.9)
    context = replace(loop.federation.context, schedule=lambda round: 0.01 * 0.9**round)
    return replace(loop.federation, context=context)


def equal(make: Callable[[], Any], options: Options, plain: Any = None) -> dict[str, Any]:
    """Whether recorded steps leave the same bits, what was recorded, and what was said about it."""
    import torch

    from fedrepro.check.world import Memory
    from fedrepro.engine import graphs, tree
    from fedrepro.engine.round import begin, play_round

    graphs.AFTER = 4  # there are few steps
    rounds = 2 if options.tiny else 6

    def played(world: Any) -> dict[str, Any]:
        server, own = begin(world), Memory()
        for round in range(rounds):
            server, _ = play_round(world, server, own, round)
        return {"server": server, **{f"client {key}": each for key, each in own.known.items()}}

    before = (plain or make)()
    forget(before)
    expected = played(before)
    world = make()
    counts, notes = record(world, options)
    found = played(world)
    sync(options)
    pairs = zip(tree.named(expected), tree.named(found), strict=True)
    other = [
        key
        for (key, one), (_, two) in pairs
        if not torch.equal(one.nan_to_num(123.0), two.nan_to_num(123.0))
    ]
    finite = all(bool(leaf.isfinite().all()) for leaf in tree.leaves(found["server"]))
    differing = {"other": other[:3]} if other else {}
    return {"equal": not other, "finite": finite, **differing, **counts, "notes": notes}


def pytest_row(options: Options) -> dict[str, Any]:
    """The tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-x" if options.tiny else "-n8",
               "-p", "no:cacheprovider", "tests/property/test_gpu.py"]  # fmt: skip
    with (options.out / "pytest.log").open("w") as log:
        status = subprocess.run(command, stdout=log, stderr=log, cwd=ROOT, check=False).returncode
    said = last_line(options.out / "pytest.log")
    return {"passed": said} if status == 0 else {"failed": said, "status": status}


def last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def networks(world: Any) -> list[Any]:
    return [world.context.net, *world.context.nets.values()]


def forget(world: Any) -> None:
    """Let nothing be recorded: the eager baseline."""
    for net in networks(world):
        net.graphs = None


# What was recorded lives as long as its process: memory of a graph that is gone might be used by
# another through what cuBLAS remembers of its streams (pytorch#193402).
KEPT: list[Any] = []


def record(world: Any, options: Options, count: bool = True) -> tuple[Counter[str], list[str]]:
    """Let a federation's steps be recorded: numbers and notes, which grow while it is played."""
    import torch

    try:
        from fedrepro.engine.graphs import Graphs, OnCuda
        from support.tape import Counted, Tape
    except ImportError as error:
        raise NotThere(str(error)) from error
    counts: Counter[str] = Counter(recorded=0, replayed=0)
    notes: list[str] = []
    recorder: Any = OnCuda(torch.device(options.device)) if options.cuda else Tape()
    recorder = Counted(recorder, counts) if count else recorder
    common = Graphs(recorder, notes.append)
    for net in networks(world):
        net.graphs = common
    KEPT.append(common)
    return counts, notes


# ------------------------------------------------------------------ part 3: how fast is it?

LOW = ("tf32", "bfloat16")
# What the targets are about; the other rows are found in the time that these leave.
FIRST = [
    *(f"W1 | {way}" for way in ("eager", "graph", "lanes 2", "lanes 4", "bare")),
    *(f"W2 | {way}" for way in ("eager", "stacked graph", "stacked", "bare")),
    *(f"W2 superfed_mm | {way}" for way in ("eager", "stacked graph")),
    *(
        f"{name} | {way}"
        for name in ("W4", "R18")
        for way in ("eager", "graph", "graph | tf32", "graph | bfloat16", "bare", "bare | tf32")
    ),
    "processes",
    *(f"W5 | {way}" for way in ("pfl", "pfl | tf32", "eager", "graph", "lanes 4", "bare")),
    "processes with MPS",
]


def workloads(options: Options) -> dict[str, Any]:
    """W1 to W4, W5 as pfl-research's published benchmark, and FedGO's ResNet-18 with BatchNorm."""
    from benchmarks.workloads import WORKLOADS, Workload

    found = {each.name: each for each in WORKLOADS}
    found["W5"] = Workload(
        "W5", "CNN on 32x32, 1,000 clients x 50, 50 a round, batch 10", "mcmahan_cnn", (3, 32, 32),
        10, 1000, 50, 50, 1, 10, 1, 1,
    )  # fmt: skip
    found["TwoCNN"] = Workload(
        "TwoCNN", "SuPerFed's CNN, 100 clients x 100, 10 a round, batch 10", "superfed_twocnn",
        (1, 28, 28), 10, 100, 100, 10, 1, 10, 1, 1,
    )  # fmt: skip
    found["IMA-CNN"] = Workload(
        "IMA-CNN", "IMA's CNN on 32x32, 100 clients x 500, 5 a round, batch 50", "ima_cifar_cnn",
        (3, 32, 32), 10, 100, 500, 5, 1, 50, 1, 1,
    )  # fmt: skip
    found["R18"] = Workload(
        "R18", "ResNet-18 with BatchNorm on 32x32, 5 clients x 128, batch 64", "resnet18",
        (3, 32, 32), 10, 5, 128, 5, 1, 64, 1, 1,
    )  # fmt: skip
    if options.tiny:
        small = {"clients": 4, "samples": 12, "cohort": 2, "epochs": 1, "batch_size": 4}
        return {name: replace(each, **small) for name, each in found.items()}
    return found


def rows_of_speed(options: Options) -> list[str]:
    """``<workload>[ <method>] | <way>[ | <precision>]``, the most important first."""
    plain = ["bare", "bare graph", "eager", "graph", "lanes 2", "lanes 4"]
    stacked = ["stacked", "stacked graph"]
    first = ["W1", "W2"]
    heavy = [name for name in ("W4", "R18") if not (options.tiny and name == "R18")]
    rows = [f"{name} | {way}" for name in first for way in (*plain, *stacked)]
    rows += [f"W2 superfed_mm | {way}" for way in ("eager", "graph", *stacked)]
    rows += [f"{name} | {way}" for name in heavy for way in plain]
    rows += [
        f"{name} | {way} | {low}"
        for name in heavy
        for low in LOW
        for way in ("bare", "bare graph", "graph", "lanes 2")
    ]
    rows += ["processes", "processes with MPS"]
    rows += [f"W5 | {way}" for way in ("pfl", "pfl | tf32", *plain, *stacked)]
    rows += [f"W3 | {way}" for way in (*plain, *stacked)]
    rows += [f"{name} | {way}" for name in ("TwoCNN", "IMA-CNN") for way in plain]
    rows += ["W1 | bare | tf32", "W1 | bare graph | tf32", "W1 | graph | tf32"]
    rows += ["IMA-CNN | bare | tf32", "IMA-CNN | graph | tf32", "IMA-CNN | graph | bfloat16"]
    rows += ["W1 superfed_mm | graph", "W4 | stacked graph"]
    if options.tiny:
        return [*rows[:5], rows[6], "processes", "W5 | pfl"]
    return sorted(rows, key=lambda row: FIRST.index(row) if row in FIRST else len(FIRST))


def engine_loop(
    work: Any, executor: str, precision: str, method: str, options: Options, momentum: float = 0.0
) -> Any:
    from benchmarks.loops import EngineLoop

    folder = Path(tempfile.mkdtemp(prefix="states"))
    return EngineLoop(work, executor, folder, precision, method, momentum, options.device)


def of_speed(options: Options, row: str) -> dict[str, Any]:
    if row.startswith("processes"):
        return crowd(options, with_mps=row.endswith("MPS"))
    loop, work, seen = loop_of(options, row)
    begun = time.perf_counter()
    loop.run(1)
    sync(options)
    first = time.perf_counter() - begun
    loop.run(rounds_to_warm(options, work) - 1)
    sync(options)
    found = {"first_s": first, **checksum(loop)}
    rounds = rounds_for(options, loop, 0.3)
    rates = [rate_of(options, loop, work, rounds) for _ in range(3)]
    rate, told = statistics.median(rates)
    found |= {"steps/s": rate, "told": told, "rounds": rounds, **seen}
    if os.environ.get("PROFILE"):
        found |= busy(options, loop, work)
    return found


def loop_of(options: Options, row: str) -> tuple[Any, Any, dict[str, Any]]:
    """What a row plays: something with ``run(rounds)``, its workload, and what it has recorded."""
    from fedrepro.engine.executors import Lanes

    named, way, *low = row.split(" | ")
    name, _, method = named.partition(" ")
    work, precision = workloads(options)[name], low[0] if low else "float32"
    prepared(options, precision, way)
    if way == "pfl":
        return pfl_loop(options, work), work, {}
    if way.startswith("bare"):
        return bare_loop(options, work, precision, way == "bare graph"), work, {}
    executor = "vectorised" if way.startswith("stacked") else "sequential"
    if executor == "vectorised" and not options.cuda:
        raise NotThere("stacked clients: compiled for minutes here")
    loop = engine_loop(work, executor, precision, method or "fedavg", options)
    seen: dict[str, Any] = {}
    forget(loop.federation)
    if way not in ("eager", "stacked"):
        seen["notes"] = record(loop.federation, options, count=False)[1]
    if way.startswith("lanes"):
        loop.federation = replace(loop.federation, execute=Lanes(int(way.split()[1])))
    return loop, work, seen


def prepared(options: Options, precision: str, way: str) -> None:
    """As the engine wants a GPU; others' loops in TF32 have PyTorch's defaults."""
    import torch

    from fedrepro.engine import tf32
    from fedrepro.run import devices

    torch.set_num_threads(1)
    devices.prepare(options.device)
    tf32.impose(False)
    if way.startswith(("bare", "pfl")) and precision != "float32":
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False
        tf32.impose(True)


def bare_loop(options: Options, work: Any, precision: str, recorded: bool) -> Any:
    import torch

    from benchmarks.loops import BareLoop

    if recorded and not options.cuda:
        raise NotThere("a CUDA graph: no GPU")

    class Loop(BareLoop):
        """The bare loop in another precision, or with each size of mini-batch recorded."""

        graphs: dict[int, Any]

        def outputs(self, inputs: Any) -> Any:
            low = torch.autocast(inputs.device.type, torch.bfloat16, cache_enabled=False)
            with low if precision == "bfloat16" else nullcontext():
                return super().outputs(inputs).float()

        def step(self, inputs: Any, targets: Any) -> None:
            if not recorded:
                super().step(inputs, targets)
                return
            if len(targets) not in self.graphs:
                self.graphs[len(targets)] = self.recorded(inputs.clone(), targets.clone())
            to_inputs, to_targets, graph = self.graphs[len(targets)]
            to_inputs.copy_(inputs)
            to_targets.copy_(targets)
            graph.replay()

        def recorded(self, inputs: Any, targets: Any) -> Any:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    super().step(inputs, targets)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                super().step(inputs, targets)
            return inputs, targets, graph

    loop = Loop(work, options.device)
    loop.graphs = {}
    KEPT.append(loop.graphs)
    if precision == "bfloat16":
        loop.module.to(memory_format=torch.channels_last)
    return loop


def rounds_to_warm(options: Options, work: Any) -> int:
    """Until everything has been recorded: after eight calls, each of up to eight stacked steps."""
    steps = work.epochs * math.ceil(work.samples / work.batch_size)
    return 2 if options.tiny else max(2, math.ceil(10 / math.ceil(steps / 8)))


def rounds_for(options: Options, loop: Any, seconds: float) -> int:
    sync(options)
    began = time.perf_counter()
    loop.run(1)
    sync(options)
    return 1 if options.tiny else max(1, round(seconds / (time.perf_counter() - began)))


def rate_of(options: Options, loop: Any, work: Any, rounds: int) -> tuple[float, float]:
    """Steps per second, and the share of the time in which Python was still telling the card."""
    sync(options)
    began = time.perf_counter()
    loop.run(rounds)
    told = time.perf_counter() - began
    sync(options)
    took = time.perf_counter() - began
    return rounds * work.steps_per_round / took, told / took


def checksum(loop: Any) -> dict[str, Any]:
    """The same number for the same bits: of two ways with the same number of rounds."""
    from fedrepro.engine import tree

    if not hasattr(loop, "server"):
        return {}
    leaves = [leaf.double().sum() for leaf in tree.leaves(loop.server["params"])]
    return {"sum": float(sum(leaves)).hex()}


def busy(options: Options, loop: Any, work: Any) -> dict[str, Any]:
    """Microseconds of a step in which the card computed, in one round."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        loop.run(1)
        sync(options)
    events = [each for each in profiled.events() if each.device_type == DeviceType.CUDA]
    spans = sorted((each.time_range.start, each.time_range.end) for each in events)
    total, until = 0.0, -math.inf
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return {"kernels": len(spans) / work.steps_per_round, "busy_us": total / work.steps_per_round}


PROFILED = ("graph", "stacked graph", "eager", "bare graph", "lanes 4")


def rows_of_busy(options: Options) -> list[str]:
    """Profiled in a process of their own, as a profiler slows what comes after it."""
    rows = [row for row in rows_of_speed(options) if row.split(" | ")[-1] in (*PROFILED, *LOW)]
    rows = [row for row in rows if row.split(" | ")[1] in PROFILED and "lanes 2" not in row]
    return rows if options.cuda else []


def of_busy(options: Options, row: str) -> dict[str, Any]:
    loop, work, _ = loop_of(options, row)
    loop.run(rounds_to_warm(options, work))
    return busy(options, loop, work)


CROWD = ("W1 | graph", "W2 | stacked graph", "W4 | graph", "W1 | eager")


def crowd(options: Options, with_mps: bool) -> dict[str, Any]:
    """Steps per second of four processes at once, all together."""
    number, rows = (2, ("W1 | eager",)) if options.tiny else (4, CROWD)
    environment = dict(os.environ)
    with mps(environment) if with_mps else nullcontext(), tempfile.TemporaryDirectory() as place:
        command = [sys.executable, sys.argv[0], *options.arguments, "--member", place, str(number)]
        begin = partial(subprocess.Popen, stdout=subprocess.PIPE, text=True, env=environment)
        members = [begin([*command, str(each), *rows]) for each in range(number)]
        try:
            said = [member.communicate(timeout=60)[0] for member in members]
        finally:
            for member in members:
                member.kill()
    found = [json.loads(text.rpartition(MARK)[2]) for text in said if MARK in text]
    rates = {row: sum(each[row] for each in found) for row in rows if all(row in e for e in found)}
    return {"processes": len(found), **rates}


@contextmanager
def mps(environment: dict[str, str]) -> Iterator[None]:
    """NVIDIA's multi-process service, in folders of its own; no setting of the card changes."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise NotThere("nvidia-cuda-mps-control")
    with tempfile.TemporaryDirectory(prefix="mps") as place:
        environment |= {"CUDA_MPS_PIPE_DIRECTORY": f"{place}/p", "CUDA_MPS_LOG_DIRECTORY": place}
        (Path(place) / "p").mkdir()
        subprocess.run([control, "-d"], env=environment, timeout=10, check=True)
        try:
            yield
        finally:
            with suppress(subprocess.SubprocessError):
                subprocess.run([control], input="quit\n", text=True, env=environment, timeout=10,
                               check=False)  # fmt: skip


def member(options: Options, place: Path, number: int, mine: int, rows: list[str]) -> None:
    """One process of a crowd: all begin each row together and measure for the same time."""
    found = {}
    for position, row in enumerate(rows):
        try:
            loop, work, _ = loop_of(options, row)
            loop.run(rounds_to_warm(options, work))
            sync(options)
        except Exception as error:
            print(f"{row}: {error}", file=sys.stderr, flush=True)
            loop = None
        (place / f"{position}-{mine}").touch()
        while len(list(place.glob(f"{position}-*"))) < number:
            time.sleep(0.001)
        began, rounds = time.perf_counter(), 0
        while loop and time.perf_counter() - began < (0.1 if options.tiny else 1.5):
            loop.run(1)
            sync(options)
            rounds += 1
        if loop:
            found[row] = rounds * work.steps_per_round / (time.perf_counter() - began)
        loop = None
    print(f"{MARK}{json.dumps(found)}", flush=True)


def pfl_loop(options: Options, work: Any) -> Any:
    """The same federation by pfl-research, which takes the card by itself if there is one."""
    from benchmarks.peers.contestant import Job, random_job
    from benchmarks.peers.pfl import Pfl

    clients = [(x.to(options.device), y.to(options.device)) for x, y in random_job(work).clients]
    return Pfl(Job(work, clients))


# ------------------------------------------------------------------ part 4: reference runs

TABLES = ("table_2_3", "table_2_3_released", "table_2_6_released", "table_2_6_earlier")
DEARER = {"two models": 2.4, "own": 2.0}  # times FedAvg's step, about; only for the order


def rows_of_reference(options: Options) -> list[str]:
    """SuPerFed's runs on MNIST at scale paper: ``setting method seed``, most cells a minute first.

    Only of settings and methods without a landed run: those are of another class of arithmetic, and
    no cell averages over two. Seed 1 of all comes before the others.
    """
    if options.queue:
        return options.queue.read_text(encoding="utf-8").splitlines()
    from fedrepro.config.targets import RunKey
    from fedrepro.methods import facts
    from fedrepro.provenance import arithmetic
    from fedrepro.run.results import read_run

    bench = workbench_of(options)
    cells: Counter[tuple[str, str]] = Counter()
    seeds: dict[tuple[str, str], set[int]] = defaultdict(set)
    for item in TABLES:
        for cell in bench.table("superfed", item, "paper").cells:
            if bench.setting(cell.setting).dataset == "mnist":
                for method in cell.methods:
                    cells[cell.setting, method] += 1
                    seeds[cell.setting, method] |= {*cell.seeds}
    cost = {}
    for (setting, method), its in seeds.items():
        runs = [RunKey(setting, method, seed) for seed in its]
        if any(read_run(Path(), run, reference=True).manifest for run in runs):
            continue
        spec = bench.run_spec(setting, method, min(its))
        dearer = DEARER.get(facts.facts_of(spec.composition, spec.plugins).steps, 1.0)
        steps = arithmetic.client_steps(spec.setting, spec.data_size)
        cost[setting, method] = steps * dearer / cells[setting, method]
    ordered = sorted(cost, key=lambda each: (cost[each], each))
    rounds = sorted({seed for each in ordered for seed in seeds[each]})
    return [f"{s} {m} {seed}" for seed in rounds for s, m in ordered if seed in seeds[s, m]]


def workbench_of(options: Options) -> Any:
    from fedrepro.config.config_file import Overrides
    from fedrepro.config.loading import load

    bench = load(overrides=Overrides(device=options.device))
    # All processes share one card: each needs a place on it, or it would wait for the others.
    changed: dict[str, Any] = {"runs_per_gpu": options.workers}
    if options.archives.is_dir():
        changed["data"] = bench.config.data.model_copy(update={"archives": options.archives})
    return replace(bench, config=bench.config.model_copy(update=changed))


def of_reference(options: Options, row: str) -> dict[str, Any]:
    """Make one run, and pack what `make reference` keeps of it."""
    import fcntl

    from fedrepro.cli.run import carry_out
    from fedrepro.config.targets import RunKey
    from fedrepro.run.results import read_run

    setting, method, seed = row.rsplit(" ", 2)
    run, bench = RunKey(setting, method, int(seed)), workbench_of(options)
    with (options.out.parent / "prepare.lock").open("w") as lock:  # data and partition once
        fcntl.flock(lock, fcntl.LOCK_EX)
        from fedrepro.cli.run import prepare

        prepare(bench, run)
    carry_out(bench, run)
    record = read_run(Path(), run)
    timing = json.loads((run.folder / "timing.json").read_bytes())
    with (options.out.parent / "pack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        put = packed(options.out, run)
    found = {"state": record.state, "arithmetic": record.manifest["arithmetic"], "in": put}
    return found | {key: each for key, each in timing.items() if isinstance(each, float | int)}


def packed(out: Path, run: Any) -> str:
    """Add a run's files, except its model, to the newest archive with room; its name."""
    files = [each for each in sorted(run.folder.iterdir()) if each.suffix != ".safetensors"]
    size, number = sum(each.stat().st_size for each in files), 1
    while (there := out / PACKED.format(number)).exists():
        if there.stat().st_size + size < LARGEST:
            break
        number += 1
    new = out.parent / f"{there.name}.part"  # whole or not at all, whenever this is killed
    if there.exists():
        shutil.copyfile(there, new)
    with zipfile.ZipFile(new, "a") as archive:
        for each in files:
            archive.write(each, each.as_posix())
    os.replace(new, there)
    return there.name


def land(folder: Path) -> None:
    """Keep the runs that came back in ``folder`` as `make reference` keeps those made here."""
    import reference

    from fedrepro.config.loading import load
    from fedrepro.run.results import changed_files, fault_of_manifest, read_run, run_of

    bench = load()
    for archive in sorted(folder.glob(PACKED.format("*"))):
        with tempfile.TemporaryDirectory() as place:
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(place)
            for path in sorted(Path(place).glob("**/manifest.json")):
                manifest = json.loads(path.read_bytes())
                run, source = run_of(manifest), path.parent
                faults = [fault_of_manifest(manifest, run)]
                faults += changed_files(source, manifest, ".parquet")
                if manifest["run"] != json.loads(
                    json.dumps(bench.run_spec(run.setting, run.method, run.seed).description())
                ):
                    faults.append("of another configuration")
                if read_run(Path(), run, reference=True).manifest:
                    faults.append("landed already")
                if why := "; ".join(filter(None, faults)):
                    print(f"left out: {run.setting} {run.method} seed {run.seed}: {why}")
                else:
                    print(f"kept: {reference.keep(run, source)}")


# ------------------------------------------------------------------ rows in processes of their own

PARTS: dict[str, Part] = {
    "1": Part("the machine", rows_of_the_machine, of_the_machine, 1, 0.1, 30),
    "2": Part("equal to the bit", rows_of_equality, of_equality, 6, 0.15, 60),
    "3": Part("rates", rows_of_speed, of_speed, 1, 0.4, 75),
    "4": Part("reference runs", rows_of_reference, of_reference, 0, 1.0, math.inf),
    "busy": Part("time in which the card computes", rows_of_busy, of_busy, 1, 0.1, 30),
}


def child(options: Options, part: str) -> None:
    """Find the rows that are named on standard input; end at an error that spoils a GPU."""
    if options.cuda and part != "4":  # a run does it itself
        import torch

        from fedrepro.run import devices

        devices.prepare(options.device)
        torch.set_num_threads(1)
    for line in sys.stdin:
        row, began, spoilt = line.strip(), time.perf_counter(), False
        try:
            found = PARTS[part].row(options, row)
        except NotThere as why:
            found = {"not_there": str(why)}
        except (ImportError, AttributeError) as why:
            found = {"not_there": f"{type(why).__name__}: {why}", "traceback": where(why)}
        except Exception as why:
            found = {"failed": f"{type(why).__name__}: {str(why)[:500]}", "traceback": where(why)}
            spoilt = any(word in str(why) for word in SPOILT)
        tell({"part": part, "row": row, "s": time.perf_counter() - began, **found})
        if spoilt:
            sys.stdout.flush()
            os._exit(3)


def where(error: BaseException) -> list[str]:
    return [line.strip() for line in traceback.format_tb(error.__traceback__)[-3:]]


def tell(what: dict[str, Any]) -> None:
    print(f"{MARK}{json.dumps(rounded(what))}", flush=True)


def rounded(what: Any) -> Any:
    if isinstance(what, float):
        return float(f"{what:.5g}") if math.isfinite(what) else str(what)
    if isinstance(what, dict):
        return {str(key): rounded(each) for key, each in what.items()}
    return [rounded(each) for each in what] if isinstance(what, list | tuple) else what


class Book:
    """What has been found: printed, and added to a file, at once."""

    def __init__(self, out: Path) -> None:
        self.out, self.began, self.lock = out, time.monotonic(), threading.Lock()
        self.found: list[dict[str, Any]] = []

    def add(self, found: dict[str, Any], told: bool = True) -> None:
        with self.lock:
            self.found.append(found)
            with (self.out / ROWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            if not told:
                return
            shown = {key: each for key, each in found.items() if key not in ("part", "row")}
            at = time.monotonic() - self.began
            words = json.dumps(shown, ensure_ascii=False)
            print(f"[{at:5.1f}] {found['part']} {found['row']}: {words[:1500]}", flush=True)


def play(options: Options, name: str, rows: list[str], until: float, book: Book) -> None:
    """Have a part's rows found by its processes, until a time; the others are listed as left."""
    part, left = PARTS[name], deque(rows)
    threads = [
        threading.Thread(target=_play, args=(options, name, left, until, book), daemon=True)
        for _ in range(min(len(rows), part.children or options.workers))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for row in left:  # often a hundred: they would push what was found out of sight
        book.add({"part": name, "row": row, "failed": "no time left"}, told=False)
    if left:
        print(f"{part.title}: no time left for {len(left)} rows, from {left[0]!r} on", flush=True)


def _play(options: Options, name: str, left: deque[str], until: float, book: Book) -> None:
    """Give rows to a process, one after another, and to a new one if it ends or overruns."""
    process: Any = None
    with (options.out / LOG).open("a", encoding="utf-8") as log:
        while time.monotonic() < until:
            try:
                row = left.popleft()
            except IndexError:
                break
            seconds = PARTS[name].seconds
            if process is None:
                seconds += START
                process, lines = _begun(options, name, log)
            found = None
            with suppress(queue.Empty, BrokenPipeError):
                process.stdin.write(f"{row}\n")
                process.stdin.flush()
                patience = max(0.0, min(until - time.monotonic(), seconds))
                found = lines.get(timeout=patience)
            if found is None:
                why = "no time left" if time.monotonic() >= until else f"overran {seconds:g} s"
                code = process.poll()
                why = why if code is None else "its process ended"
                book.add({"part": name, "row": row, "failed": why, "status": code})
            else:
                book.add(found)
            if found is None or any(word in found.get("failed", "") for word in SPOILT):
                end(process)
                process = None
    if process is not None:
        end(process)


def _begun(options: Options, name: str, log: Any) -> tuple[Any, queue.SimpleQueue[Any]]:
    """A new process for rows of a part, and the queue that gets what it finds."""
    process = subprocess.Popen(
        [sys.executable, sys.argv[0], *options.arguments, "--child", name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        start_new_session=True,
    )  # fmt: skip
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        for line in process.stdout:  # type: ignore[union-attr]
            if line.startswith(MARK):
                lines.put(json.loads(line.removeprefix(MARK)))
            else:
                with suppress(ValueError):  # closed: the part is over
                    log.write(line)
        process.wait()
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return process, lines


def end(process: Any) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def find_fedrepro() -> None:
    """Let this process and those that it starts import fedrepro, its tests and its scripts.

    Where it is not installed, they also get what tells its version, which manifests state.
    """
    places = [str(ROOT / each) for each in ("src", "tests", "scripts")]
    try:
        metadata.version("fedrepro")
    except metadata.PackageNotFoundError:
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        number = project.partition('version = "')[2].partition('"')[0]
        place = Path(tempfile.mkdtemp(prefix="fedrepro"))
        about = place / f"fedrepro-{number}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: fedrepro\nVersion: {number}\n", encoding="utf-8")
        places.append(str(place))
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join((*places, os.environ.get("PYTHONPATH", "")))


# ------------------------------------------------------------------ what is written


def write_summary(options: Options, book: Book) -> None:
    by_part: dict[str, dict[str, dict[str, Any]]] = {}
    for found in book.found:
        by_part.setdefault(found["part"], {})[found["row"]] = found
    (options.out / SUMMARY).write_text(json.dumps(by_part, indent=1), encoding="utf-8")
    lines = [*_of_machine(by_part.get("1", {})), *_of_equal(by_part.get("2", {}))]
    lines += _of_rates(by_part.get("3", {}), by_part.get("busy", {}))
    (options.out / TABLE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _of_machine(rows: dict[str, Any]) -> list[str]:
    return [f"- {row}: {json.dumps(found, ensure_ascii=False)}" for row, found in rows.items()]


def _of_equal(rows: dict[str, Any]) -> list[str]:
    checked = [row for row, found in rows.items() if "equal" in found]
    other = [row for row in checked if not rows[row]["equal"]]
    failed = [row for row, found in rows.items() if "equal" not in found]
    words = [f"\nEqual to the bit: {len(checked) - len(other)} of {len(checked)}."]
    words += [f"- other bits: {row}" for row in other]
    return words + [f"- {row}: {json.dumps(rows[row])[:300]}" for row in failed]


def _of_rates(rates: dict[str, Any], busies: dict[str, Any]) -> list[str]:
    lines = ["", "| | steps/s | per client eager = 1 | first round, s | card busy |",
             "|---|---|---|---|---|"]  # fmt: skip
    for row, found in rates.items():
        rate, (named, *ways) = found.get("steps/s"), row.split(" | ")
        shown = ", ".join((named, *ways))
        if rate is None:
            told = {key: each for key, each in found.items() if key not in ("part", "row", "s")}
            lines.append(f"| {shown} | {json.dumps(told)[:200]} | | | |")
            continue
        base = rates.get(f"{named} | eager", {}).get("steps/s")
        factor = f"{rate / base:.1f}" if base else ""
        its = busies.get(row, {}).get("busy_us")
        share = f"{its * rate / 1e6:.0%} ({its:.0f} us a step)" if its else ""
        lines.append(f"| {shown} | {rate:,.0f} | {factor} | {found['first_s']:.1f} | {share} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--parts", default="1,2,3,busy,4", help="such as 1,2,3, or 1:20,3:60 (s)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results/card")))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="small sizes, for a rehearsal")
    parser.add_argument("--archives", type=Path, default=ROOT / ".card", help="with MNIST")
    parser.add_argument("--workers", type=int, default=8, help="reference runs at once")
    parser.add_argument("--queue", type=Path, help="of reference runs: lines SETTING METHOD SEED")
    parser.add_argument("--land", type=Path, metavar="FOLDER", help="keep the runs that came back")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--member", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    options = Options(
        given.device, given.tiny, given.out.absolute(), given.archives.absolute(), given.workers,
        given.queue and given.queue.absolute(),
    )  # fmt: skip
    if given.child:
        child(options, given.child)
        return
    if given.member:
        place, number, mine, *rows = given.member
        member(options, Path(place), int(number), int(mine), rows)
        return
    find_fedrepro()
    if given.land:
        land(given.land)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    cache = Path(tempfile.gettempdir()) / "fedrepro-compiled"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "inductor"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache / "triton"))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONUNBUFFERED"] = "1"
    book = Book(options.out)
    whole, finish = 60 * given.minutes, book.began + 60 * given.minutes
    for each in given.parts.split(","):
        name, _, seconds = each.partition(":")
        mine = float(seconds) if seconds else PARTS[name].share * whole
        until = min(finish, time.monotonic() + mine)
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "8" if PARTS[name].children == 1 else "1"
        try:
            rows = [row for row in PARTS[name].rows(options) if given.only in row]
            play(options, name, rows, until, book)
        except Exception:
            traceback.print_exc()
        write_summary(options, book)
    print(f"done after {time.monotonic() - book.began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
