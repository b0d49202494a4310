"""Cost estimates of targets: sums over runs, jobs, downloads."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from fedrepro.config.experiment import how_to_add
from fedrepro.config.targets import FigureTarget, RunKey, SearchTarget, Target
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.cost.data_sizes import sample_bytes
from fedrepro.cost.model import Basis, CostModel, RunCost
from fedrepro.data.catalogue.entries import Fetched, RawFile
from fedrepro.data.dataset import PREPARED, is_prepared
from fedrepro.data.fetching.raw_files import DOWNLOADS, RECORD
from fedrepro.support.cores import usable_cores
from fedrepro.support.errors import bad_argument
from fedrepro.support.grouping import grouped


def cost_line(kind: str, name: str, costs: Iterable[RunCost], wall: float) -> dict[str, Any]:
    """A sum over runs, each counted once, as JSON.

    ``kind`` is "table", "figure", "search", "cell", "setting", "method", "system" or "all".
    ``done`` runs are finished and cost nothing. ``steps`` and ``hours`` are of the others, as far
    as known, one after another; ``landed`` and ``predicted`` those of the hours that are by landed
    runs of the same model and method, and by the rates of a table: the rest is measured on this
    machine. ``unknown`` is the number of other runs with unknown hours; ``disk`` and ``memory`` are
    in bytes, the latter of the largest run.

    Args:
        wall: wall-clock seconds, with as many runs at a time as the machine has cores or GPUs for.
    """
    costs = list(costs)
    left = [cost for cost in costs if not cost.done]

    def hours(*bases: Basis) -> float:
        return math.fsum(cost.seconds or 0 for cost in left if cost.basis in bases) / 3600

    return {
        "kind": kind,
        "name": name,
        "runs": len(costs),
        "done": len(costs) - len(left),
        "steps": math.fsum(cost.steps or 0 for cost in left),
        "hours": hours("measured", "landed", "predicted"),
        "landed": hours("landed"),
        "predicted": hours("predicted"),
        "wall": wall / 3600,
        "unknown": sum(cost.seconds is None for cost in left),
        "disk": math.fsum(cost.disk for cost in left),
        "memory": max((cost.memory for cost in left), default=0),
    }


@dataclass(frozen=True)
class CellTarget(Target):
    """One setting with one method, outside of any table.

    Attributes:
        wanted: a run for each seed.
    """

    wanted: tuple[RunKey, ...]

    @property
    def runs(self) -> tuple[RunKey, ...]:
        return self.wanted


@dataclass(frozen=True)
class CostEstimate:
    """The cost of some targets, summed from their runs.

    Attributes:
        gpus: that compute, if the device is one.
    """

    cost_model: CostModel
    gpus: int = 1

    @cached_property
    def costs(self) -> dict[RunKey, RunCost]:
        return self.cost_model.costs()

    def lines(self) -> list[dict[str, Any]]:
        """Sums by table or figure, method and system, and the total; shared runs count in each."""
        groups = [
            (
                KINDS.get(type(target), "table"),
                f"{target.system}/{target.item}",
                [self.costs[run] for run in target.required],
            )
            for target in self.cost_model.targets
        ]
        costs = self.costs.values()
        methods = grouped(costs, lambda cost: f"{cost.run.system} {cost.run.method}")
        systems = grouped(costs, lambda cost: cost.run.system)
        groups += [("method", name, methods[name]) for name in sorted(methods)]
        groups += [("system", name, costs) for name, costs in systems.items()]
        groups.append(("all", "all", list(costs)))
        return [cost_line(*group, self.wall_seconds(group[2], self.at_once)) for group in groups]

    @property
    def at_once(self) -> int:
        """The number of runs that this machine computes at a time, or those of its GPUs."""
        config = self.cost_model.bench.config
        if config.device != "cpu":
            return self.gpus * config.runs_per_gpu
        return max(1, usable_cores() // config.threads)

    def wall_seconds(self, costs: Iterable[RunCost], at_once: int) -> float:
        """Wall-clock seconds of runs, with one core each.

        Runs that share a GPU do not slow each other until it is busy all the time.
        """
        sharing = at_once / self.gpus if self.cost_model.bench.config.device != "cpu" else 0
        seconds = {
            cost.run: cost.seconds * max(1.0, sharing * cost.busy)
            for cost in costs
            if cost.seconds is not None
        }
        after = {
            run: [first for first in self.cost_model.first(run) if first in seconds]
            for run in seconds
        }
        return makespan(seconds, after, at_once)

    def missing(self) -> list[dict[str, Any]]:
        """The unprepared data sets of the unfinished runs, and what preparing them takes, as JSON.

        ``fetch`` is "downloaded", "to download" or "your own files", which the user must supply;
        ``download`` the bytes to download, as far as the catalogue states them; ``unsized`` the
        number of files without a stated size; ``disk`` the bytes of the prepared data set, None if
        unknown.
        """
        bench, seen = self.cost_model.bench, set[str]()  # a shared file counts only once
        names = Counter(bench.setting(run.setting).dataset for run in self.cost_model.left)
        rows = []
        for name in (
            name for name in sorted(names) if not is_prepared(name, bench.root / PREPARED)
        ):
            spec, data = bench.datasets[name], self.cost_model.data(name)
            fetch, fetched = "your own files", dict[str, int | None]()
            if isinstance(spec, Fetched) and (bench.root / DOWNLOADS / name / RECORD).exists():
                fetch = "downloaded"
            elif isinstance(spec, Fetched):
                fetch = "to download"
                fetched = {_checksum(file): _size(file) for file in spec.raw_files}
            sizes = [size for checksum, size in fetched.items() if checksum not in seen]
            seen.update(fetched)
            rows.append(
                {
                    "name": name,
                    "runs": names[name],
                    "fetch": fetch,
                    "download": sum(size for size in sizes if size is not None),
                    "unsized": sizes.count(None),
                    "disk": sample_bytes(data) * (data.train + data.test) if data else None,
                }
            )
        return rows

    def jobs(self) -> dict[str, int]:
        """The number of jobs left, without those of tables and pages, which take seconds."""
        missing = self.missing()
        partitions = {
            self.cost_model.bench.setting(run.setting).partition_path(run.seed)
            for run in self.cost_model.left
        }
        analyses = {path for target in self.cost_model.targets for path in target.analyses}
        return {
            "download": sum(row["fetch"] != "downloaded" for row in missing),
            "prepare": len(missing),
            "partition": _absent(self.cost_model.bench.root, partitions),
            "run": len(self.cost_model.left),
            "analysis": _absent(self.cost_model.bench.root, analyses),
        }

    def as_json(self) -> dict[str, Any]:
        """The whole estimate as plain JSON."""
        left = [cost for cost in self.costs.values() if not cost.done]
        specs = [self.cost_model.bench.spec_of(cost.run) for cost in left]
        return {
            "machine": self.cost_model.rates.machine,
            "at_once": self.at_once,
            "jobs": self.jobs(),
            "lines": self.lines(),
            "estimated_partitions": sum(not cost.counted for cost in left),
            "rates": self.rates(left),
            "bases": Counter(cost.basis for cost in left if cost.seconds is not None),
            "precisions": Counter(spec.setting.precision for spec in specs),
            "at_most": sum(spec.setting.stop is not None for spec in specs),
            "without_hours": Counter(cost.why for cost in left if cost.why),
            "missing": self.missing(),
        }

    def rates(self, left: Iterable[RunCost]) -> list[dict[str, Any]]:
        """The rate of each workload, the one with most hours first."""
        rates = self.cost_model.rates
        rows = []
        for workload, costs in grouped(left, lambda cost: cost.workload).items():
            if workload is None:
                continue
            rate = rates.of_model(workload, self.cost_model.bench.plugins)
            source = "predicted" if workload in rates.models else "predicted from a similar one"
            if rate.source:
                source = f"measured: {rate.source}"
            elif workload.name in rates.landed:
                source = "landed runs"
            rows.append(
                {
                    "workload": workload.name,
                    "runs": len(costs),
                    "hours": math.fsum(cost.seconds or 0.0 for cost in costs) / 3600,
                    "steps_per_second": 1 / rate.step_seconds if rate.step_seconds else None,
                    "source": source,
                }
            )
        return sorted(rows, key=lambda row: -float(row["hours"]))


def makespan(
    seconds: Mapping[RunKey, float], after: Mapping[RunKey, Collection[RunKey]], at_once: int
) -> float:
    """The time at which all jobs are done, starting ready jobs by longest remaining path.

    Args:
        seconds: the duration of each job.
        after: for each job, the jobs that it waits for, all of which are in ``seconds``.
        at_once: the number of jobs at a time.
    """
    order = tuple(TopologicalSorter(after).static_order())
    number = {run: place for place, run in enumerate(order)}  # breaks ties
    path = {**seconds}  # from the start of a job to the end of the last one that waits for it
    for run in reversed(order):
        for first in after[run]:
            path[first] = max(path[first], seconds[first] + path[run])
    jobs = TopologicalSorter(after)
    jobs.prepare()
    ready: list[tuple[float, int, RunKey]] = []
    running: list[tuple[float, int, RunKey]] = []
    now = 0.0
    while jobs.is_active():
        for run in jobs.get_ready():
            heappush(ready, (-path[run], number[run], run))
        while ready and len(running) < at_once:
            _, _, run = heappop(ready)
            heappush(running, (now + seconds[run], number[run], run))
        now, _, done = heappop(running)
        jobs.done(done)
    return now


KINDS = {FigureTarget: "figure", SearchTarget: "search", CellTarget: "cell"}  # others are tables


def chosen(bench: Workbench, names: Sequence[str], scale: str | None) -> list[Target]:
    """The targets with names ``SYSTEM`` or ``SYSTEM/ITEM``, or a cell; all if there are no names.

    Args:
        names: of targets, or those of one setting and one method.
        scale: default: for a compact table its own, otherwise the configured one.

    Raises:
        UserError: for an unknown name, with the nearest one.
    """
    every = bench.targets(scale)
    if len(names) == 2 and bench.find_setting(names[0]):
        return [_cell(bench, names[0], names[1], scale)]
    targets: dict[tuple[str, str], Target] = {}
    for name in names:
        system, _, item = name.partition("/")
        matching = {key: each for key, each in every.items() if key[0] == system}
        if item:
            compact = system in bench.experiments and item in bench.experiments[system].compact
            at = scale or ("compact" if compact else None)
            matching = {key: bench.target(*key, at) for key in matching if key[1] == item}
        if not matching:
            known = {*bench.experiments, *("/".join(key) for key in every), *bench.settings}
            wanted = "a system of this workbench, SYSTEM/ITEM, or a setting and then one method"
            if system in bench.experiments and not item:  # without a table
                setting = next(iter(bench.experiments[system].settings), "SETTING")
                wanted = f"a system with a table or figure, or `{system}/{setting} METHOD`"
            wanted += how_to_add(name, bench.root)
            known.discard(name)
            raise bad_argument("TARGET", name, wanted, known)
        targets |= matching
    return list((targets or every).values())


def _cell(bench: Workbench, setting: str, method: str, scale: str | None) -> CellTarget:
    """The runs of a setting with a method, for the seeds of all tables and figures that have them.

    Args:
        scale: of these tables and figures; default: the configured one or, where nothing has such
            runs at it, all. Where nothing has any, the seeds are those of the system.
    """
    system, _, name = setting.partition("/")
    at, others = bench.scale(scale), () if scale else SCALES
    seeds = bench.seeds_of(setting, method, [at]) or bench.seeds_of(setting, method, others)
    wanted = (RunKey(setting, method, seed) for seed in sorted(seeds or bench.seeds(at, system)))
    return CellTarget(system, f"{name} {method}", at, tuple(wanted))


def _size(file: RawFile) -> int | None:
    return file.packed.size if file.packed else file.size


def _checksum(file: RawFile) -> str:
    return file.packed.sha256 if file.packed else str(file.sha256 or file.md5)


def _absent(root: Path, paths: Iterable[Path]) -> int:
    return sum(not (root / path).exists() for path in paths)
