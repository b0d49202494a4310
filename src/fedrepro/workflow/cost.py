"""What targets cost before they are made: jobs, steps, hours, disk, memory, downloads.

Amounts of work follow from the experiment files and the partitions; where a partition is not there
yet, from how many samples and clients the catalogue says a data set has (``holds``), which is an
estimate. Hours follow from a calibration of this machine (:mod:`fedrepro.run.rates`).
"""

import json
import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from fedrepro.config.run_spec import DataSpec, RunSpec
from fedrepro.config.settings import Setting
from fedrepro.config.targets import FigureTarget, Run, SearchTarget, Target
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.entries import Fetched, RawFile
from fedrepro.data.dataset import PREPARED
from fedrepro.data.fetching.raw_files import DOWNLOADS, RECORD
from fedrepro.run import fingerprint
from fedrepro.run.rates import DRAWN, MethodRate, ModelRate, Rates, Workload, key_of_method
from fedrepro.run.results import read_run
from fedrepro.run.trunk import kept_in, kept_of, shared_rounds
from fedrepro.support.errors import bad_value
from fedrepro.workflow.amounts import (
    Data,
    Shares,
    cohort_size,
    counted_shares,
    data_of,
    estimated_shares,
)
from fedrepro.workflow.resources import Estimate

MIXTURES = 11  # at which clients are evaluated after the last round (fedrepro.run.scoring)
FLOAT = 4  # bytes
ITSELF = MethodRate(1.0, pooled=False, mixes=False)  # of what is not measured beside FedAvg
AROUND = 0.9  # seconds of a core around a run: its start, its files, its table; seen in the demo
ROW = 100  # bytes of a client's row in clients.parquet, at most


@dataclass(frozen=True)
class RunCost:
    """What one run takes.

    Attributes:
        done: it is there, by today's configuration and code; then nothing else counts.
        steps: local steps of all clients over all rounds; None where the data are unknown.
        seconds: None where steps or the machine's rates are unknown.
        disk: bytes of its files. memory: bytes of its process.
        counted: whether the clients' sizes are known and not estimated.
        side_by_side: clients run side by side, which is faster than the rates say.
        why: it has no seconds.
    """

    run: Run
    done: bool
    steps: float | None = None
    seconds: float | None = None
    disk: float = 0
    memory: float = 0
    counted: bool = True
    side_by_side: bool = False
    why: str = ""


@dataclass(frozen=True)
class Line:
    """A sum over runs, each counted once.

    Attributes:
        kind: "table", "figure", "method", "system" or "all".
        done: runs that are there, which nothing is counted for.
        steps, hours: of the others, as far as known; of one process after another.
        wall: hours of a clock, with as many at a time as the machine has cores for.
        unknown: how many of the others have no hours.
        memory: of the largest, in bytes.
    """

    kind: str
    name: str
    runs: int
    done: int
    steps: float
    hours: float
    wall: float
    unknown: int
    disk: float
    memory: float

    @classmethod
    def of(cls, kind: str, name: str, costs: Iterable[RunCost], wall: float) -> "Line":
        costs = list(costs)
        left = [cost for cost in costs if not cost.done]
        return cls(
            kind,
            name,
            len(costs),
            len(costs) - len(left),
            math.fsum(cost.steps or 0 for cost in left),
            math.fsum(cost.seconds or 0 for cost in left) / 3600,
            wall / 3600,
            sum(cost.seconds is None for cost in left),
            math.fsum(cost.disk for cost in left),
            max((cost.memory for cost in left), default=0),
        )


@dataclass(frozen=True)
class Missing:
    """A data set that is not prepared, and what it takes to have it.

    Attributes:
        fetch: "downloaded", "to download" or "your own files"; the last are nobody's to fetch.
        download: bytes to fetch, as far as the catalogue knows.
        unsized: files whose size it does not know.
        disk: bytes when it is prepared; None where unknown.
    """

    name: str
    runs: int
    fetch: str
    download: int
    unsized: int
    disk: int | None


class Bill:
    """What some targets cost.

    Args:
        bench: the experiment files; results are looked for in its root.
        targets: each run that several of them need is counted once.

    Attributes:
        unmeasured: why a workload or method has no rate, by its key.
    """

    def __init__(self, bench: Workbench, targets: Iterable[Target]) -> None:
        self.bench = bench
        self.targets = [target for target in targets if target.runs]
        self.unmeasured: dict[str, str] = {}
        self._data: dict[str, Data | None] = {}
        self._shares: dict[tuple[Path, int], Shares] = {}
        self._abouts: dict[tuple[str, str], _About] = {}
        self._firsts: dict[Run, list[Run]] = {}

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, each once, and those that the workflow makes first: trunks, what is given."""
        found: dict[Run, None] = {}
        waiting = [run for target in reversed(self.targets) for run in reversed(target.runs)]
        while waiting:
            run = waiting.pop()
            if run not in found:
                found[run] = None
                waiting += self._first(run)
        return tuple(found)

    def _first(self, run: Run) -> list[Run]:
        """What the workflow makes before a run: what it is given, and its trunk."""
        if run not in self._firsts:
            trunk = self.bench.trunk_of(run)
            given = (each for each in self.spec(run).given.values() if isinstance(each, RunSpec))
            found = [Run(each.setting.name, each.method, each.seed) for each in given]
            self._firsts[run] = [*found, *([trunk] if trunk else [])]
        return self._firsts[run]

    @cached_property
    def left(self) -> tuple[Run, ...]:
        """Those that are not there yet."""
        return tuple(run for run in self.runs if not self._is_done(run))

    def spec(self, run: Run) -> RunSpec:
        return self.bench.run_spec(run.setting, run.method, run.seed)

    def _is_done(self, run: Run) -> bool:
        record, spec = read_run(self.bench.root, run), self.spec(run)
        if record.state not in ("finished", "diverged"):
            return False
        made_by = record.manifest.get("config_hash"), record.manifest.get("code")
        return made_by == (fingerprint.of_config(spec), fingerprint.of_code(spec))

    def data(self, name: str) -> Data | None:
        """What a data set holds; None where nobody says."""
        if name not in self._data:
            self._data[name] = data_of(self.bench, name)
        return self._data[name]

    def shares(self, setting: Setting, seed: int, data: Data) -> Shares | None:
        """How samples are shared out; None where not even the number of clients is known."""
        path = (self.bench.root / setting.partition_path(seed)).with_suffix(".json")
        if not path.exists():
            # Natural clients of prepared data are counted when these are shared out.
            return estimated_shares(setting, data)
        key = path, setting.batch_size
        if key not in self._shares:
            self._shares[key] = counted_shares(*key)
        return self._shares[key]

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """What must be measured for the runs that are left, by key: the most frequent first."""
        counts: dict[Workload, int] = {}
        for run in self.left:
            workload = self.workload(self.spec(run))
            if workload:
                counts[workload] = counts.get(workload, 0) + 1
        return {each.key: each for each in sorted(counts, key=lambda each: -counts[each])}

    def workload(self, spec: RunSpec) -> Workload | None:
        """What a step of a run is; None where its data are unknown."""
        setting, data = spec.setting, self.data(spec.setting.dataset)
        if data is None:
            return None
        task = self.bench.datasets[setting.dataset].task
        shape = data.shape, data.numbers, data.classes
        plain = Workload(setting.model, *shape, task, setting.batch_size, weights=spec.weights)
        if self._about(spec).like_fedavg:
            return plain
        return replace(plain, by=spec, method=key_of_method(spec))

    def methods(self) -> dict[str, RunSpec]:
        """A run of each method that must be measured beside FedAvg, by key."""
        specs = (spec for spec in map(self.spec, self.left) if self._about(spec).like_fedavg)
        return {key_of_method(spec): spec for spec in specs}

    def _about(self, spec: RunSpec) -> "_About":
        """What a plan must know of a run's method."""
        from fedrepro.methods._registry import compose

        key = spec.composition, json.dumps(spec.hyperparameters, sort_keys=True)
        if key not in self._abouts:
            method, _ = compose(spec.composition, spec.hyperparameters)
            teaching = (layer for layer in method.layers() if layer.teaches)
            self._abouts[key] = _About(
                # What trains a classifier takes a multiple of FedAvg's time, but for what trains
                # the generator that it is given, too: there that network's size counts.
                method.classifies and "generator" not in method.needs,
                next((_Teaching.of(layer) for layer in teaching), None),
                getattr(method, "number", None) if method.pooled else None,
            )
        return self._abouts[key]

    def _rate(self, workload: Workload, rates: Rates) -> ModelRate | None:
        """A workload's rate, or that of the nearest mini-batch that was measured of its kin."""
        if workload.key in rates.models:
            return rates.models[workload.key]
        kin = [
            other
            for key, other in self.workloads.items()
            if other.kin == workload.kin and key in rates.models
        ]
        if not kin:
            return None
        nearest = min(kin, key=lambda other: abs(other.batch_size - workload.batch_size))
        rate = rates.models[nearest.key]
        ratio = workload.batch_size / nearest.batch_size
        return replace(rate, step_seconds=rate.step_seconds * ratio)

    def _unlabelled(self, spec: RunSpec) -> int | None:
        """How many samples a server distils on; None where nobody says."""
        match spec.given.get("unlabelled"):
            case "server":
                data = self.data(spec.setting.dataset)
                return round(data.train * spec.setting.partition.server) if data else None
            case DataSpec(dataset, share):
                data = self.data(dataset)
                return round(data.train * share) if data else None
            case RunSpec() as maker:
                return self._about(maker).number
        return None

    def costs(self, rates: Rates) -> dict[Run, RunCost]:
        """What each run takes."""
        left = set(self.left)
        return {
            run: self.cost(run, rates, self.taken_over(run, left))
            if run in left
            else RunCost(run, True)
            for run in self.runs
        }

    def taken_over(self, run: Run, left: Collection[Run]) -> int:
        """How many of a run's rounds another has played, or will have, of those that are left."""
        trunk = self.bench.trunk_of(run)
        shared = shared_rounds(self.bench, run) if trunk else 0
        if trunk is None or trunk in left:
            return shared
        kept = kept_in(self.bench.root / kept_of(trunk))
        return max((round for round, _ in kept if round <= shared), default=0)

    def cost(self, run: Run, rates: Rates, taken_over: int = 0) -> RunCost:
        """What a run takes that is not there yet, but for rounds that are ``taken_over``."""
        spec = self.spec(run)
        setting, data = spec.setting, self.data(spec.setting.dataset)
        shares = self.shares(setting, run.seed, data) if data else None
        workload = self.workload(spec)
        if data is None or shares is None or workload is None:
            what = "what it holds" if data is None else "how many clients it has"
            return RunCost(
                run, False, counted=False, why=f"data set {setting.dataset}: unknown {what}"
            )
        about, key = self._about(spec), key_of_method(spec)
        rate, method = self._rate(workload, rates), rates.methods.get(key)
        method = ITSELF if workload.by else method
        pooled = method.pooled if method else False
        clients = 1 if pooled else cohort_size(setting, shares.clients)
        rounds = setting.rounds - taken_over
        passes = rounds * setting.epochs
        if pooled:
            steps = float(passes * -(-shares.train // setting.batch_size))
        else:
            steps = passes * clients * shares.steps / shares.clients
        unlabelled = self._unlabelled(spec) if about.teaching else 0
        if rate is None or method is None or unlabelled is None:
            missing = workload.key if rate is None else key
            why = f"{missing}: {self.unmeasured.get(missing, 'not measured')}"
            if rate and method:
                why = "how many samples its server distils on is unknown"
            return RunCost(run, False, steps, counted=shares.counted, why=why)
        times, recorded = (-(-each // setting.evaluate.every) for each in (rounds, setting.rounds))
        everyone = shares.clients if setting.evaluate.clients else 0
        held = shares.test if setting.evaluate.clients else 0
        extra = MIXTURES if method.mixes else 0
        training = steps * rate.step_seconds + rounds * clients * rate.client_seconds
        if about.number is not None:  # what draws images takes no steps
            training = (rate.step_seconds + rate.client_seconds) * about.number / DRAWN
        scoring = (times * (data.test + held) + extra * held) * rate.sample_seconds
        scoring += (times * ((data.test > 0) + everyone) + extra * everyone) * rate.score_seconds
        if about.teaching:
            distilling = about.teaching.seconds(unlabelled, clients, setting.batch_size, rate)
            # A round's clients are scored together, too.
            scoring += rounds * distilling + times * clients * data.test * rate.sample_seconds
        return RunCost(
            run,
            False,
            steps,
            training * method.factor + scoring + (rates.start_seconds or 0.0),
            FLOAT * rate.parameters * (1 + self._kept_models(run, clients))
            + ROW * recorded * (everyone or clients),
            rate.memory_bytes
            + data.sample_bytes * (data.train + data.test + held)
            + FLOAT * rate.parameters * clients,
            shares.counted,
            self._is_side_by_side(spec, steps / rounds * setting.rounds),
        )

    def _kept_models(self, run: Run, clients: int) -> int:
        """How many models a run leaves beside its own: what `keep` says, and as a trunk."""
        kept = len(set(self.bench.setting(run.setting).keep.get(run.method, ())))
        return kept * (clients + 1) + len(self._kept_for_tails.get(run, ()))

    @cached_property
    def _kept_for_tails(self) -> dict[Run, set[int]]:
        """The rounds after which a run keeps its checkpoint for others, as ``sharing_of`` has it.

        Server optimizers' moments and clients' states, which lie beside the model, are left out.
        """
        found: dict[Run, set[int]] = {}
        left = set(self.left)
        targets = (target for scale in SCALES for target in self.bench.targets(scale).values())
        for run in {run for target in targets for run in target.runs}:
            trunk = self.bench.trunk_of(run)
            if trunk in left and (shared := shared_rounds(self.bench, run)):
                found.setdefault(trunk, set()).add(shared)
        return found

    def _is_side_by_side(self, spec: RunSpec, steps: float) -> bool:
        from fedrepro.engine.executors import choose, kind_of_steps
        from fedrepro.models._registry import find
        from fedrepro.run.assembly import compose

        device = spec.execution.device.partition(":")[0]
        family = find(spec.setting.model).family
        kind = kind_of_steps(compose(spec)[0], spec.setting.optimizer.momentum)
        return choose(spec.execution.executor, family, device, kind, int(steps)) == "vectorised"

    def lines(self, costs: Mapping[Run, RunCost], start: float = 0.0) -> list[Line]:
        """Tables and figures, methods, systems, all; a run that several share counts in each.

        Args:
            start: seconds of starting that are in each run's.
        """
        groups = [
            (
                _kind_of(target),
                f"{target.system}/{target.item}",
                [costs[run] for run in target.runs],
            )
            for target in self.targets
        ]
        methods: dict[str, list[RunCost]] = {}
        systems: dict[str, list[RunCost]] = {}
        for run, cost in costs.items():
            system = run.setting.partition("/")[0]
            methods.setdefault(f"{system} {run.method}", []).append(cost)
            systems.setdefault(system, []).append(cost)
        groups += [("method", name, methods[name]) for name in sorted(methods)]
        groups += [("system", name, each) for name, each in systems.items()]
        groups.append(("all", "all", list(costs.values())))
        return [Line.of(*group, self.wall_seconds(group[2], start)) for group in groups]

    @property
    def at_once(self) -> int:
        """How many runs this machine does at a time."""
        return max(1, (os.cpu_count() or 1) // self.bench.config.threads)

    def wall_seconds(self, costs: Iterable[RunCost], start: float) -> float:
        """Seconds of a clock that runs take, a core each.

        Args:
            start: seconds of starting that are in each run's; Snakemake starts runs from a process
                that has imported everything, so that :data:`AROUND` counts instead.
        """
        seconds = {
            cost.run: max(0.0, cost.seconds - start) + AROUND
            for cost in costs
            if cost.seconds is not None
        }
        after = {run: [each for each in self._first(run) if each in seconds] for run in seconds}
        return makespan(seconds, after, self.at_once)

    def missing(self) -> list[Missing]:
        """The data sets of the runs that are left that are not prepared."""
        counts: dict[str, int] = {}
        for run in self.left:
            name = self.bench.setting(run.setting).dataset
            counts[name] = counts.get(name, 0) + 1
        seen: set[str] = set()
        return [
            self._missing(name, runs, seen)
            for name, runs in sorted(counts.items())
            if not (self.bench.root / PREPARED / name / "meta.json").exists()
        ]

    def _missing(self, name: str, runs: int, seen: set[str]) -> Missing:
        """A file that two data sets share is fetched for the first; ``seen`` has its checksum."""
        spec, data = self.bench.datasets[name], self.data(name)
        disk = data.sample_bytes * (data.train + data.test) if data else None
        if not isinstance(spec, Fetched):
            return Missing(name, runs, "your own files", 0, 0, disk)
        if (self.bench.root / DOWNLOADS / name / RECORD).exists():
            return Missing(name, runs, "downloaded", 0, 0, disk)
        new = [file for file in spec.raw_files if _checksum(file) not in seen]
        seen.update(map(_checksum, new))
        sizes = [_size(file) for file in new]
        known = [size for size in sizes if size is not None]
        return Missing(name, runs, "to download", sum(known), len(sizes) - len(known), disk)

    def jobs(self) -> dict[str, int]:
        """How many jobs are left, but those of tables and pages, which take seconds."""
        missing = self.missing()
        partitions = {self.bench.setting(run.setting).partition_path(run.seed) for run in self.left}
        analyses = {path for target in self.targets for path in target.analyses}
        analyses.update(target.study for target in self.targets if target.study)
        return {
            "download": sum(each.fetch != "downloaded" for each in missing),
            "prepare": len(missing),
            "partition": _absent(self.bench.root, partitions),
            "run": len(self.left),
            "analysis": _absent(self.bench.root, analyses),
        }

    def as_json(self, rates: Rates, costs: Mapping[Run, RunCost]) -> dict[str, Any]:
        """All of it, for scripts."""
        left = [cost for cost in costs.values() if not cost.done]
        why: dict[str, int] = {}
        for cost in left:
            if cost.why:
                why[cost.why] = why.get(cost.why, 0) + 1
        return {
            "machine": rates.machine,
            "at_once": self.at_once,
            "jobs": self.jobs(),
            "lines": [asdict(line) for line in self.lines(costs, rates.start_seconds or 0.0)],
            "estimated_partitions": sum(not cost.counted for cost in left),
            "side_by_side": sum(cost.side_by_side for cost in left),
            "without_hours": why,
            "missing": [asdict(each) for each in self.missing()],
        }

    def estimates(self, costs: Mapping[Run, RunCost]) -> dict[str, Estimate]:
        """What to ask a cluster for, by the hash of a run's description, as far as known."""
        return {
            fingerprint.of_config(self.spec(cost.run)): Estimate.of(cost.memory, cost.seconds)
            for cost in costs.values()
            if cost.seconds is not None
        }


@dataclass(frozen=True)
class _Teaching:
    """How a server distils an ensemble, as :mod:`fedrepro.methods.feddf` does it.

    Attributes:
        epochs, batch: of the server.
        looks: how often each teacher sees a sample: again where the body judges it.
    """

    epochs: int
    batch: int
    looks: int

    @classmethod
    def of(cls, method: Any) -> "_Teaching":
        return cls(method.server_epochs, method.server_batch, 1 + ("generator" in method.needs))

    def seconds(self, samples: int, teachers: int, batch_size: int, rate: ModelRate) -> float:
        """Of one round. The student's loss is looked at after its steps."""
        if not self.epochs:
            return 0.0
        step = rate.step_seconds * self.batch / batch_size
        looking = samples * (teachers * self.looks + 1) * rate.sample_seconds
        return self.epochs * -(-samples // self.batch) * step + looking


@dataclass(frozen=True)
class _About:
    """What a plan must know of a method.

    Attributes:
        like_fedavg: what it takes is a multiple of FedAvg's.
        number: of images that it draws, where it does nothing else.
    """

    like_fedavg: bool
    teaching: _Teaching | None
    number: int | None


def makespan(
    seconds: Mapping[Run, float], after: Mapping[Run, Collection[Run]], at_once: int
) -> float:
    """When all jobs are over, if of those that can begin the one with the longest way to go does.

    Args:
        seconds: of each job. after: those that each waits for, which are among them.
    """
    followers: dict[Run, list[Run]] = {run: [] for run in seconds}
    for run, firsts in after.items():
        for first in firsts:
            followers[first].append(run)
    order = tuple(TopologicalSorter(after).static_order())
    ahead: dict[Run, float] = {}
    for run in reversed(order):
        ahead[run] = seconds[run] + max((ahead[each] for each in followers[run]), default=0.0)
    waits = {run: len(after[run]) for run in seconds}
    number = {run: place for place, run in enumerate(order)}  # between equals
    ready = [(-ahead[run], number[run], run) for run in order if not waits[run]]
    heapify(ready)
    running: list[tuple[float, int, Run]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < at_once:
            _, _, run = heappop(ready)
            heappush(running, (now + seconds[run], number[run], run))
        now, _, done = heappop(running)
        for run in followers[done]:
            waits[run] -= 1
            if not waits[run]:
                heappush(ready, (-ahead[run], number[run], run))
    return now


def _kind_of(target: Target) -> str:
    match target:
        case FigureTarget():
            return "figure"
        case SearchTarget():
            return "search"
    return "table"


def chosen(bench: Workbench, names: Iterable[str], scale: str | None) -> list[Target]:
    """The targets called ``SYSTEM`` or ``SYSTEM/ITEM``; without a name, all.

    Raises:
        UserError: for a name that is none, with the nearest one.
    """
    every = bench.targets(scale)
    found: dict[tuple[str, str], Target] = {}
    for name in names:
        system, _, item = name.partition("/")
        matching = {key: each for key, each in every.items() if key in ((system, item),)}
        if not item:
            matching = {key: each for key, each in every.items() if key[0] == system}
        if not matching:
            known = [*bench.experiments, *("/".join(key) for key in every)]
            wanted = "a system or SYSTEM/ITEM, such as ima or ima/table_1"
            raise bad_value("the command line", "TARGET", name, wanted, known)
        found |= matching
    return list((found or every).values())


def _size(file: RawFile) -> int | None:
    return file.packed.size if file.packed else file.size


def _checksum(file: RawFile) -> str:
    return str(file.sha256 or file.md5)


def _absent(root: Path, paths: Iterable[Path]) -> int:
    return sum(not (root / path).exists() for path in paths)
