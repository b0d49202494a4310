"""Cost estimates of runs: steps, seconds, disk, memory.

The amount of work follows from the experiment files and the partitions. For a missing partition, it
is estimated from the samples and clients that the catalogue states (``holds``). Hours follow from a
calibration of this machine (:mod:`fedrepro.run.rates`).
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrepro.config.partition_sizes import DataShares, cohort_size, estimated_shares
from fedrepro.config.run_spec import ResolvedData, RunSpec
from fedrepro.config.settings import Setting
from fedrepro.config.targets import RunKey, Target
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.provenance import arithmetic
from fedrepro.run.rates import DRAWN, MethodRate, ModelRate, Rates, Workload, key_of_method
from fedrepro.run.shared_prefix import kept_in, kept_of, shared_rounds
from fedrepro.run.standing import standing_of
from fedrepro.support.errors import UserError
from fedrepro.workflow.amounts import Data, counted_shares, data_of

MIXTURES = 11  # evaluated after the last round (fedrepro.run.scoring)
FLOAT = 4  # bytes
# The rate of methods that are not measured relative to FedAvg.
ITSELF = MethodRate(1.0, centralized=False, interpolates=False)
ROW = 100  # bytes of a client's row in clients.parquet, at most


@dataclass(frozen=True)
class RunCost:
    """The cost of one run.

    Attributes:
        done: whether it is finished, with today's configuration and code; then it costs nothing.
        steps: local steps of all clients over all rounds; None if the data are unknown.
        seconds: None if steps or the machine's rates are unknown.
        disk: bytes of its files.
        memory: bytes of its process.
        counted: whether the clients' sizes are known rather than estimated.
        side_by_side: whether clients are vectorised, which is faster than the rates say.
        measured: whether its seconds use measured rates of its own model and method, not of similar
            ones or predictions.
        workload: the key of its workload; "" if its seconds are unknown.
        busy: the share of its time in which a GPU computes.
        why: why its seconds are unknown.
    """

    run: RunKey
    done: bool
    steps: float | None = None
    seconds: float | None = None
    disk: float = 0
    memory: float = 0
    counted: bool = True
    side_by_side: bool = False
    measured: bool = True
    workload: str = ""
    busy: float = 1.0
    why: str = ""


class CostModel:
    """The costs of the runs of some targets, each run once.

    Args:
        bench: the workbench, whose root has the results.
        targets: the targets to make.

    Attributes:
        unmeasured: why a workload or method has no rate, by its key.
    """

    def __init__(self, bench: Workbench, targets: Iterable[Target]) -> None:
        self.bench = bench
        self.targets = [target for target in targets if target.required]
        self.unmeasured: dict[str, str] = {}
        self._data: dict[str, Data | None] = {}
        self._shares: dict[tuple[Path, int], DataShares] = {}
        self._abouts: dict[tuple[str, str], _About] = {}
        self._firsts: dict[RunKey, list[RunKey]] = {}

    @cached_property
    def runs(self) -> tuple[RunKey, ...]:
        """All runs, each once, including those that others need: parent runs and inputs."""
        found: dict[RunKey, None] = {}
        waiting = [run for target in reversed(self.targets) for run in reversed(target.required)]
        while waiting:
            run = waiting.pop()
            if run not in found:
                found[run] = None
                waiting += self.first(run)
        return tuple(found)

    def first(self, run: RunKey) -> list[RunKey]:
        """The runs that the workflow makes before a run: its inputs and its parent run."""
        if run not in self._firsts:
            parent = self.bench.parent_of(run)
            given = (each for each in self.spec(run).given.values() if isinstance(each, RunSpec))
            found = [RunKey(each.setting.name, each.method, each.seed) for each in given]
            self._firsts[run] = [*found, *([parent] if parent else [])]
        return self._firsts[run]

    @cached_property
    def left(self) -> tuple[RunKey, ...]:
        """The unfinished runs."""
        return tuple(run for run in self.runs if not self._is_done(run))

    def spec(self, run: RunKey) -> RunSpec:
        return self.bench.run_spec(run.setting, run.method, run.seed)

    def _is_done(self, run: RunKey) -> bool:
        return standing_of(self.bench, run).is_current

    def data(self, name: str) -> Data | None:
        """The size of a data set; None if unknown."""
        if name not in self._data:
            self._data[name] = data_of(self.bench, name)
        return self._data[name]

    def shares(self, setting: Setting, seed: int, data: Data) -> DataShares | None:
        """The clients' shares; None if not even the number of clients is known."""
        path = (self.bench.root / setting.partition_path(seed)).with_suffix(".json")
        if not path.exists():
            # Natural clients of prepared data are counted when the partition is made.
            return estimated_shares(setting, data)
        key = path, setting.batch_size
        if key not in self._shares:
            self._shares[key] = counted_shares(*key)
        return self._shares[key]

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """The workloads to measure for the unfinished runs, by key, the most frequent first."""
        counts: dict[Workload, int] = {}
        for run in self.left:
            workload = self.workload(self.spec(run))
            if workload:
                counts[workload] = counts.get(workload, 0) + 1
        return {each.key: each for each in sorted(counts, key=lambda each: -counts[each])}

    def workload(self, spec: RunSpec) -> Workload | None:
        """The work of a run's step; None if its data are unknown."""
        setting, data = spec.setting, self.data(spec.setting.dataset)
        if data is None:
            return None
        task = self.bench.datasets[setting.dataset].task
        shape = data.shape, data.numbers, data.classes
        plain = Workload(setting.model, *shape, task, setting.batch_size, plugins=spec.plugins)
        on_gpu = spec.execution.device != "cpu"
        if on_gpu:
            plain = replace(plain, precision=setting.precision)
        if self._about(spec).like_fedavg:
            if on_gpu and self._is_stacked(spec):
                shares = estimated_shares(setting, data)
                clients = cohort_size(setting, shares.clients) if shares else 0
                return replace(plain, stacked=clients)
            return plain
        return replace(plain, by=spec, method=key_of_method(spec))

    def _is_stacked(self, spec: RunSpec) -> bool:
        return arithmetic.of_spec(spec).startswith(arithmetic.STACKED)

    def methods(self) -> dict[str, RunSpec]:
        """A run of each method to measure relative to FedAvg, by key."""
        specs = (spec for spec in map(self.spec, self.left) if self._about(spec).like_fedavg)
        return {key_of_method(spec): spec for spec in specs}

    def _about(self, spec: RunSpec) -> "_About":
        """The facts of a run's method that cost estimates need."""
        from fedrepro.methods.registry import compose

        key = spec.composition, json.dumps(spec.hyperparameters, sort_keys=True)
        if key not in self._abouts:
            method, _ = compose(spec.composition, spec.hyperparameters, spec.plugins)
            teaching = (layer for layer in method.layers() if layer.distills)
            self._abouts[key] = _About(
                # Methods that train a classifier take a multiple of FedAvg's time, except for those
                # that also train a given generator: their time depends on its size.
                method.classifies and "generator" not in method.requires,
                next((_Teaching.of(layer) for layer in teaching), None),
                getattr(method, "number", None) if method.centralized else None,
            )
        return self._abouts[key]

    def _rate(self, workload: Workload, rates: Rates) -> ModelRate | None:
        """A workload's rate, or one derived from the most similar workload of its family."""
        if workload.key in rates.models:
            return rates.models[workload.key]

        def unlike(other: Workload) -> tuple[int, int]:
            return abs(other.pixels - workload.pixels), abs(other.batch_size - workload.batch_size)

        family = (other for other in self.workloads.values() if other.family == workload.family)
        measured = (other for other in family if other.key in rates.models)
        nearest = min(measured, key=unlike, default=None)
        return workload.from_family(nearest, rates.models[nearest.key]) if nearest else None

    def _unlabelled(self, spec: RunSpec) -> int | None:
        """The number of samples that a server distills on; None if unknown."""
        match spec.given.get("unlabelled"):
            case "server":
                data = self.data(spec.setting.dataset)
                return round(data.train * spec.setting.partition.server) if data else None
            case ResolvedData(dataset, share):
                data = self.data(dataset)
                return round(data.train * share) if data else None
            case RunSpec() as maker:
                return self._about(maker).number
        return None

    def costs(self, rates: Rates) -> dict[RunKey, RunCost]:
        """The cost of each run."""
        left = set(self.left)
        return {
            run: self.cost(run, rates, self.inherited_rounds(run, left))
            if run in left
            else RunCost(run, True)
            for run in self.runs
        }

    def inherited_rounds(self, run: RunKey, left: Collection[RunKey]) -> int:
        """The number of a run's rounds that its parent run has computed, or will have."""
        parent = self.bench.parent_of(run)
        shared = shared_rounds(self.bench, run) if parent else 0
        if parent is None or parent in left:
            return shared
        if not standing_of(self.bench, parent).is_current:
            return 0
        kept = kept_in(self.bench.root / kept_of(parent))
        return max((round for round, _ in kept if round <= shared), default=0)

    def cost(self, run: RunKey, rates: Rates, inherited_rounds: int = 0) -> RunCost:
        """The cost of an unfinished run, without its first ``inherited_rounds``."""
        spec = self.spec(run)
        setting, data = spec.setting, self.data(spec.setting.dataset)
        shares = self.shares(setting, run.seed, data) if data else None
        workload = self.workload(spec)
        if data is None or shares is None or workload is None:
            what = "what it holds" if data is None else "how many clients it has"
            return RunCost(
                run, False, counted=False, why=f"data set {setting.dataset}: unknown {what}"
            )
        try:
            arithmetic.refuse_without_gpu(spec)
        except UserError as error:
            return RunCost(run, False, counted=shares.counted, why=str(error))
        about, key = self._about(spec), key_of_method(spec)
        rate, method = self._rate(workload, rates), rates.method_like(key)
        measured = rates.is_measured(workload.key)
        measured &= bool(workload.by) or rates.is_measured(key)
        method = ITSELF if workload.by else method
        pooled = method.centralized if method else False
        clients = 1 if pooled else cohort_size(setting, shares.clients)
        rounds = setting.rounds - inherited_rounds
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
                why = "the number of samples that its server distills on is unknown"
            return RunCost(run, False, steps, counted=shares.counted, why=why)
        times, recorded = (-(-each // setting.evaluate.every) for each in (rounds, setting.rounds))
        everyone = shares.clients if setting.evaluate.clients else 0
        held = shares.test if setting.evaluate.clients else 0
        extra = MIXTURES if method.interpolates else 0
        training = steps * rate.step_seconds + rounds * clients * rate.client_seconds
        if about.number is not None:  # it only draws images, without training steps
            training = (rate.step_seconds + rate.client_seconds) * about.number / DRAWN
        # Validation samples are scored with the shared model and with the clients' models.
        kept, chooses = shares.validation, shares.validation > 0
        samples = (data.test + kept if data.test else 0) + held + (kept if everyone else 0)
        scores = (1 + chooses) * ((data.test > 0) + everyone)
        scoring = (times * samples + extra * held) * rate.sample_seconds
        scoring += (times * scores + extra * everyone) * rate.score_seconds
        if about.teaching:
            distilling = about.teaching.seconds(unlabelled, clients, setting.batch_size, rate)
            # The ensemble of a round's clients is scored, too.
            scoring += rounds * distilling + times * clients * data.test * rate.sample_seconds
        return RunCost(
            run,
            False,
            steps,
            training * method.factor
            + rounds * method.round_seconds
            + scoring
            + (rates.start_seconds or 0.0),
            FLOAT * rate.parameters * (1 + self._kept_models(run, clients))
            + ROW * recorded * (everyone or clients),
            rate.memory_bytes
            + data.sample_bytes * (data.train + data.test + held)
            + FLOAT * rate.parameters * clients,
            shares.counted,
            self._is_stacked(spec) and not workload.stacked,
            measured,
            workload.key,
            rate.busy,
        )

    def _kept_models(self, run: RunKey, clients: int) -> int:
        """The number of models that a run saves besides its own: `keep`, and for child runs."""
        kept = len(set(self.bench.setting(run.setting).keep.get(run.method, ())))
        return kept * (clients + 1) + len(self._kept_for_tails.get(run, ()))

    @cached_property
    def _kept_for_tails(self) -> dict[RunKey, set[int]]:
        """The rounds whose checkpoints a parent run saves for child runs, as in ``sharing_of``.

        The states of server optimizers and clients in these checkpoints are not counted.
        """
        found: dict[RunKey, set[int]] = {}
        left = set(self.left)
        targets = (target for scale in SCALES for target in self.bench.targets(scale).values())
        for run in {run for target in targets for run in target.runs}:
            parent = self.bench.parent_of(run)
            if parent in left and (shared := shared_rounds(self.bench, run)):
                found.setdefault(parent, set()).add(shared)
        return found


@dataclass(frozen=True)
class _Teaching:
    """How a server distills an ensemble, as in :mod:`fedrepro.methods.feddf`.

    Attributes:
        epochs, batch: of the server.
        looks: how often each teacher sees a sample: twice if a discriminator judges it, too.
    """

    epochs: int
    batch: int
    looks: int

    @classmethod
    def of(cls, method: Any) -> "_Teaching":
        return cls(method.server_epochs, method.server_batch, 1 + ("generator" in method.requires))

    def seconds(self, samples: int, teachers: int, batch_size: int, rate: ModelRate) -> float:
        """Seconds of one round. The student's loss is evaluated after its steps."""
        if not self.epochs:
            return 0.0
        step = rate.step_seconds * self.batch / batch_size
        looking = samples * (teachers * self.looks + 1) * rate.sample_seconds
        return self.epochs * -(-samples // self.batch) * step + looking


@dataclass(frozen=True)
class _About:
    """The facts of a method that cost estimates need.

    Attributes:
        like_fedavg: whether its cost is a multiple of FedAvg's.
        number: the number of images that it draws, if it does nothing else.
    """

    like_fedavg: bool
    teaching: _Teaching | None
    number: int | None
