"""Cost estimates of targets: sums over runs, jobs, downloads."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedrepro.config.experiment import how_to_add
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import FigureTarget, RunKey, SearchTarget, Target
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.entries import Fetched, RawFile
from fedrepro.data.dataset import PREPARED
from fedrepro.data.fetching.raw_files import DOWNLOADS, RECORD
from fedrepro.provenance import fingerprint
from fedrepro.run import cards
from fedrepro.run.card_table import shipped
from fedrepro.run.rates import Rates, Workload, stored, stored_on_paper
from fedrepro.support.cores import usable_cores
from fedrepro.support.errors import bad_value
from fedrepro.support.terminal import say
from fedrepro.workflow.cost import CostModel, RunCost
from fedrepro.workflow.resources import ResourceEstimate
from fedrepro.workflow.schedule import makespan

LIMIT = 100.0  # seconds after which a calibration starts no further measurement
AROUND = 0.9  # CPU seconds of overhead per run: start, files, table; measured in the demo


@dataclass(frozen=True)
class CostLine:
    """A sum over runs, each counted once.

    Attributes:
        kind: "table", "figure", "search", "cell", "method", "system" or "all".
        done: finished runs, which cost nothing.
        steps, hours: of the other runs, as far as known, one after another.
        predicted: those of the hours that are not by measured rates of the run's own model and
            method, but by predicted ones or those of similar ones.
        wall: wall-clock hours, with as many runs at a time as the machine has cores or GPUs for.
        unknown: the number of other runs with unknown hours.
        memory: of the largest run, in bytes.
    """

    kind: str
    name: str
    runs: int
    done: int
    steps: float
    hours: float
    predicted: float
    wall: float
    unknown: int
    disk: float
    memory: float

    @classmethod
    def of(cls, kind: str, name: str, costs: Iterable[RunCost], wall: float) -> "CostLine":
        costs = list(costs)
        left = [cost for cost in costs if not cost.done]
        return cls(
            kind,
            name,
            len(costs),
            len(costs) - len(left),
            math.fsum(cost.steps or 0 for cost in left),
            math.fsum(cost.seconds or 0 for cost in left) / 3600,
            math.fsum(cost.seconds or 0 for cost in left if not cost.measured) / 3600,
            wall / 3600,
            sum(cost.seconds is None for cost in left),
            math.fsum(cost.disk for cost in left),
            max((cost.memory for cost in left), default=0),
        )


@dataclass(frozen=True)
class Missing:
    """A data set that is not prepared, and what preparing it takes.

    Attributes:
        fetch: "downloaded", "to download" or "your own files", which the user must supply.
        download: bytes to download, as far as the catalogue states them.
        unsized: the number of files without a stated size.
        disk: bytes of the prepared data set; None if unknown.
    """

    name: str
    runs: int
    fetch: str
    download: int
    unsized: int
    disk: int | None


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

    def lines(self, costs: Mapping[RunKey, RunCost], start: float = 0.0) -> list[CostLine]:
        """Sums by table or figure, method and system, and the total; shared runs count in each.

        Args:
            start: seconds of start-up included in each run's.
        """
        groups = [
            (
                _kind_of(target),
                f"{target.system}/{target.item}",
                [costs[run] for run in target.required],
            )
            for target in self.cost_model.targets
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
        return [CostLine.of(*group, self.wall_seconds(group[2], start)) for group in groups]

    @property
    def at_once(self) -> int:
        """The number of runs that this machine computes at a time, or those of its GPUs."""
        config = self.cost_model.bench.config
        if config.device != "cpu":
            return self.gpus * config.runs_per_gpu
        return max(1, usable_cores() // config.threads)

    def wall_seconds(self, costs: Iterable[RunCost], start: float) -> float:
        """Wall-clock seconds of runs, with one core each.

        Runs that share a GPU do not slow each other until it is busy all the time.

        Args:
            start: seconds of start-up included in each run's. Snakemake starts runs from a process
                that has imported everything, so :data:`AROUND` replaces them.
        """
        sharing = self.at_once / self.gpus if self.cost_model.bench.config.device != "cpu" else 0
        seconds = {
            cost.run: (max(0.0, cost.seconds - start) + AROUND) * max(1.0, sharing * cost.busy)
            for cost in costs
            if cost.seconds is not None
        }
        after = {
            run: [each for each in self.cost_model.first(run) if each in seconds] for run in seconds
        }
        return makespan(seconds, after, self.at_once)

    def missing(self) -> list[Missing]:
        """The unprepared data sets of the unfinished runs."""
        counts: dict[str, int] = {}
        for run in self.cost_model.left:
            name = self.cost_model.bench.setting(run.setting).dataset
            counts[name] = counts.get(name, 0) + 1
        seen: set[str] = set()
        return [
            self._missing(name, runs, seen)
            for name, runs in sorted(counts.items())
            if not (self.cost_model.bench.root / PREPARED / name / "meta.json").exists()
        ]

    def _missing(self, name: str, runs: int, seen: set[str]) -> Missing:
        """``seen`` has the checksums of files counted so far: a shared file counts only once."""
        spec, data = self.cost_model.bench.datasets[name], self.cost_model.data(name)
        disk = data.sample_bytes * (data.train + data.test) if data else None
        if not isinstance(spec, Fetched):
            return Missing(name, runs, "your own files", 0, 0, disk)
        if (self.cost_model.bench.root / DOWNLOADS / name / RECORD).exists():
            return Missing(name, runs, "downloaded", 0, 0, disk)
        fetched = {_checksum(file): _size(file) for file in spec.raw_files}
        sizes = [size for checksum, size in fetched.items() if checksum not in seen]
        seen.update(fetched)
        known = [size for size in sizes if size is not None]
        return Missing(name, runs, "to download", sum(known), len(sizes) - len(known), disk)

    def jobs(self) -> dict[str, int]:
        """The number of jobs left, without those of tables and pages, which take seconds."""
        missing = self.missing()
        partitions = {
            self.cost_model.bench.setting(run.setting).partition_path(run.seed)
            for run in self.cost_model.left
        }
        analyses = {path for target in self.cost_model.targets for path in target.analyses}
        analyses.update(target.study for target in self.cost_model.targets if target.study)
        return {
            "download": sum(each.fetch != "downloaded" for each in missing),
            "prepare": len(missing),
            "partition": _absent(self.cost_model.bench.root, partitions),
            "run": len(self.cost_model.left),
            "analysis": _absent(self.cost_model.bench.root, analyses),
        }

    def as_json(self, rates: Rates, costs: Mapping[RunKey, RunCost]) -> dict[str, Any]:
        """The whole estimate as plain JSON."""
        left = [cost for cost in costs.values() if not cost.done]
        why: dict[str, int] = {}
        precisions: dict[str, int] = {}
        for cost in left:
            if cost.why:
                why[cost.why] = why.get(cost.why, 0) + 1
            precision = self.cost_model.spec(cost.run).setting.precision
            precisions[precision] = precisions.get(precision, 0) + 1
        return {
            "machine": rates.machine,
            "at_once": self.at_once,
            "jobs": self.jobs(),
            "lines": [asdict(line) for line in self.lines(costs, rates.start_seconds or 0.0)],
            "estimated_partitions": sum(not cost.counted for cost in left),
            "side_by_side": sum(cost.side_by_side for cost in left),
            "rates": self.rates(rates, left),
            "by_others_alike": sum(cost.seconds is not None and not cost.measured for cost in left),
            "precisions": precisions,
            "without_hours": why,
            "missing": [asdict(each) for each in self.missing()],
        }

    def rates(self, rates: Rates, left: Iterable[RunCost]) -> list[dict[str, Any]]:
        """The rate of each workload, the one with most hours first."""
        runs: dict[str, list[RunCost]] = {}
        for cost in left:
            if cost.workload:
                runs.setdefault(cost.workload, []).append(cost)
        found = [
            {
                "workload": key,
                "runs": len(each),
                "hours": math.fsum(cost.seconds or 0.0 for cost in each) / 3600,
                "steps_per_second": 1 / rate.step_seconds if rate and rate.step_seconds else None,
                "source": _source(rates, key),
            }
            for key, each in runs.items()
            for rate in [rates.models.get(key)]
        ]
        return sorted(found, key=lambda each: -each["hours"])

    def estimates(self, costs: Mapping[RunKey, RunCost]) -> dict[str, ResourceEstimate]:
        """The resources to request from a cluster, by config hash, as far as known."""
        return {
            fingerprint.of_config(self.cost_model.spec(cost.run)): ResourceEstimate.of(
                cost.memory, cost.seconds
            )
            for cost in costs.values()
            if cost.seconds is not None
        }


def _source(rates: Rates, key: str) -> str:
    """Where a rate comes from, in words."""
    if key not in rates.models:
        return "of a similar one"
    where = rates.elsewhere.get(key)
    if where is None:
        return "measured here"
    return f"measured: {where}" if where else "predicted"


def rates_for(cost_model: CostModel) -> Rates:
    """The rates of the configured device; measure and save those that are missing.

    A GPU that is not here is played on paper (:mod:`fedrepro.run.on_paper`), as is what could not
    be measured on one that is.
    """
    config, root = cost_model.bench.config, cost_model.bench.root
    if config.device == "cpu":
        rates = stored(root, "cpu", config.threads)
        return _measured(cost_model, rates, cost_model.workloads, cost_model.methods())
    here = cards.known(config.device)
    if not here:
        return _on_paper(cost_model)
    with cards.borrowed(config.device, config.runs_per_gpu):
        rates = stored(root, "cuda", config.threads, here[0].name)
        rates = _measured(cost_model, rates, cost_model.workloads, cost_model.methods())
    if not cost_model.unmeasured:
        return rates
    rest = _on_paper(cost_model)
    elsewhere = {**dict.fromkeys([*rest.models, *rest.methods], ""), **rest.elsewhere}
    for key in [*rates.models, *rates.methods]:
        elsewhere.pop(key, None)
    return replace(
        rates,
        models={**rest.models, **rates.models},
        methods={**rest.methods, **rates.methods},
        elsewhere=elsewhere,
    )


def _on_paper(cost_model: CostModel) -> Rates:
    """The shipped table's rates, and predicted ones of all that it does not have."""
    rates = stored_on_paper(cost_model.bench.root)
    # What is like something predicted waits for `make paper`: some kinds take minutes.
    every = cost_model.workloads.values()
    known = {workload.family for workload in every if workload.key in rates.models}
    strange = {each.key: each for each in every if each.family not in known}
    methods = cost_model.methods()
    unlike = {key: methods[key] for key in methods if rates.method_like(key) is None}
    rates = _measured(cost_model, rates, strange, unlike)
    rates.elsewhere = dict.fromkeys([*rates.models, *rates.methods], "")
    for key, workload in cost_model.workloads.items():
        row = shipped().row_of(workload)
        if row and (rate := rates.models.get(key)):
            # Its steps include what a client's round takes besides.
            step = 1 / row.steps_per_second - rate.client_seconds / row.client_steps
            step = max(step, 0.5 / row.steps_per_second)
            rates.models[key] = replace(rate, step_seconds=step)
            rates.elsewhere[key] = row.source
    # Its own factor is one.
    rates.elsewhere |= {key: "FedAvg" for key in rates.methods if key.startswith("fedavg epochs ")}
    for factor in shipped().methods:
        key = f"{factor.method} epochs {factor.epochs}"
        if key in rates.methods:
            rates.methods[key] = replace(rates.methods[key], factor=factor.factor)
            rates.elsewhere[key] = factor.source
    return rates


def _measured(
    cost_model: CostModel,
    rates: Rates,
    workloads: Mapping[str, Workload],
    methods: Mapping[str, RunSpec],
) -> Rates:
    """Measure and save the rates that are missing of some, here or on paper."""
    if workloads.keys() <= rates.models.keys() and methods.keys() <= rates.methods.keys():
        return rates
    from fedrepro.run.calibration import LATER, calibrate

    new = [*(methods.keys() - rates.methods.keys()), *(workloads.keys() - rates.models.keys())]
    kinds = f"{len(new)} new kind{'' if len(new) == 1 else 's'} of training"
    what = f"{kinds} on this machine" if rates.models else "this machine"
    if "table" in rates.machine:
        what = f"{kinds} on a GPU that is not here"
    doing = "predicting" if "table" in rates.machine else "measuring"
    say(f"fedrepro: {doing} {what}, once")
    failed = calibrate(rates, workloads, methods, LIMIT)
    cost_model.unmeasured = failed
    later = sum(why == LATER for why in failed.values())
    if later:
        say(f"fedrepro: {later} not measured yet: run this command again")
    rates.save(cost_model.bench.root)
    return rates


def _kind_of(target: Target) -> str:
    match target:
        case FigureTarget():
            return "figure"
        case SearchTarget():
            return "search"
        case CellTarget():
            return "cell"
    return "table"


def chosen(bench: Workbench, names: Sequence[str], scale: str | None) -> list[Target]:
    """The targets with names ``SYSTEM`` or ``SYSTEM/ITEM``, or a cell; all if there are no names.

    Args:
        names: of targets, or those of one setting and one method.
        scale: default: for a compact table its own, otherwise the configured one.

    Raises:
        UserError: for an unknown name, with the nearest one.
    """
    every = bench.targets(scale)
    if len(names) == 2 and names[0] in bench.settings:
        return [_cell(bench, names[0], names[1], scale)]
    found: dict[tuple[str, str], Target] = {}
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
            wanted += how_to_add(name, bench.root)
            known.discard(name)
            raise bad_value("the command line", "TARGET", name, wanted, known)
        found |= matching
    return list((found or every).values())


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
