"""Cost estimates of runs: steps, seconds, disk, memory.

The amount of work follows from the experiment files and the partitions. For a missing partition, it
is estimated from the samples and clients that the catalogue states (``size``). Seconds are by the
rates of a shipped table, corrected by the timings of runs that this machine has finished.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from fedrepro.config.partition_sizes import DataShares, cohort_size, estimated_shares
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromData, Setting
from fedrepro.config.targets import RunKey, Target
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.cost.data_sizes import counted_shares, data_of, sample_bytes
from fedrepro.cost.rates import DRAWN, LIKE_FEDAVG, MethodKey, ModelRate, Rates, Workload
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.engine.executor_facts import STACKED
from fedrepro.provenance import arithmetic
from fedrepro.run.results import RunRecord, manifest_in, read_run, run_of
from fedrepro.run.shared_prefix import kept_in, kept_of, shared_rounds
from fedrepro.run.standing import standing_of
from fedrepro.support.errors import UserError

if TYPE_CHECKING:  # it imports torch
    from fedrepro.engine.method import Method

MIXTURES = 11  # evaluated after the last round (fedrepro.run.scoring)
FLOAT = 4  # bytes
ROW = 100  # bytes of a client's row in clients.parquet, at most
RECENT = 300  # runs of this machine, the newest, whose timings are read
Basis = Literal["measured", "landed", "predicted"]


@dataclass(frozen=True)
class RunCost:
    """The cost of one run.

    Attributes:
        done: whether it is finished, with today's configuration and code; then it costs nothing.
        steps: local steps of all clients over all rounds; None if the data are unknown.
        seconds: None if steps are unknown, or the run is impossible on this device.
        disk: bytes of its files.
        memory: bytes of its process.
        counted: whether the clients' sizes are known rather than estimated.
        basis: "measured" by runs of the same model and method on this machine, "landed" by such
            runs elsewhere, else "predicted".
        workload: None if its seconds are unknown.
        busy: the share of its time in which a GPU computes.
        why: the reason why its seconds are unknown.
    """

    run: RunKey
    done: bool
    steps: float | None = None
    seconds: float | None = None
    disk: float = 0
    memory: float = 0
    counted: bool = True
    basis: Basis = "predicted"
    workload: Workload | None = None
    busy: float = 1.0
    why: str = ""


@dataclass(frozen=True)
class _Work:
    """The work of a run's rounds.

    Attributes:
        rounds: that it plays itself.
        clients: that take part in a round.
    """

    setting: Setting
    data: DataSize
    shares: DataShares
    rounds: int
    clients: int
    method: "Method"
    rate: ModelRate

    @property
    def scored(self) -> tuple[int, int]:
        """The number of clients that are scored, and of the samples that they hold out."""
        return (self.shares.clients, self.shares.test) if self.setting.evaluate.clients else (0, 0)

    @property
    def evaluations(self) -> int:
        return -(-self.rounds // self.setting.evaluate.every)

    def scoring_seconds(self) -> float:
        """Seconds of all evaluations."""
        times, (everyone, held) = self.evaluations, self.scored
        extra = MIXTURES if any(layer.interpolates for layer in self.method.layers()) else 0
        # Validation samples are scored with the shared model and with the clients' models.
        kept, chooses = self.shares.validation, self.shares.validation > 0
        test = self.data.test
        samples = (test + kept if test else 0) + held + (kept if everyone else 0)
        scores = (1 + chooses) * ((test > 0) + everyone)
        return (times * samples + extra * held) * self.rate.sample_seconds + (
            times * scores + extra * everyone
        ) * self.rate.score_seconds

    def distilling_seconds(self, samples: int) -> float:
        """Seconds of a server that distills an ensemble, as in :mod:`fedrepro.methods.feddf`.

        The student's loss is evaluated after its steps, and the ensemble is scored.
        """
        teacher: Any = next((layer for layer in self.method.layers() if layer.distills), None)
        if teacher is None:
            return 0.0
        sample = self.rate.sample_seconds
        ensemble = self.evaluations * self.clients * self.data.test * sample
        if not teacher.server_epochs:
            return ensemble
        # Each teacher sees a sample twice if a discriminator judges it, too.
        looks: int = self.clients * (1 + ("generator" in teacher.requires)) + 1
        step: float = self.rate.step_seconds * teacher.server_batch / self.setting.batch_size
        steps: int = teacher.server_epochs * -(-samples // teacher.server_batch)
        return ensemble + self.rounds * (steps * step + samples * looks * sample)


class CostModel:
    """The costs of the runs of some targets, each run once.

    Args:
        bench: the workbench, whose root has the results.
        targets: the targets to make.
        rates: default: those of the table for the configured device.
    """

    def __init__(
        self, bench: Workbench, targets: Iterable[Target], rates: Rates | None = None
    ) -> None:
        self.bench = bench
        self.targets = [target for target in targets if target.required]
        self.rates = rates or Rates.read(bench.config.device)
        self.data = cache(partial(data_of, bench))
        self.first = cache(self._first)
        self._counted_shares = cache(counted_shares)
        self._methods: dict[MethodKey, Method] = {}

    @cached_property
    def runs(self) -> tuple[RunKey, ...]:
        """All runs, each once, including those that others need: parent runs and inputs."""
        runs: dict[RunKey, None] = {}
        waiting = [run for target in reversed(self.targets) for run in reversed(target.required)]
        while waiting:
            run = waiting.pop()
            if run not in runs:
                runs[run] = None
                waiting += self.first(run)
        return tuple(runs)

    def _first(self, run: RunKey) -> list[RunKey]:
        """The runs that the workflow makes before a run: its inputs and its parent run."""
        parent, sources = self.bench.parent_of(run), self.bench.spec_of(run).inputs.values()
        inputs = [source.key for source in sources if isinstance(source, RunSpec)]
        return [*inputs, *([parent] if parent else [])]

    @cached_property
    def left(self) -> tuple[RunKey, ...]:
        """The unfinished runs."""
        return tuple(run for run in self.runs if not standing_of(self.bench, run).is_current)

    def _shares_of(self, setting: Setting, seed: int, data: DataSize) -> DataShares | None:
        """The clients' shares; None if not even the number of clients is known."""
        path = (self.bench.root / setting.partition_path(seed)).with_suffix(".json")
        if not path.exists():
            # Natural clients of prepared data are counted when the partition is made.
            return estimated_shares(setting, data)
        return self._counted_shares(path, setting.batch_size)

    def method(self, spec: RunSpec) -> "Method":
        """A run's method, composed once for all runs with the same work."""
        from fedrepro.methods.registry import compose

        values = {part: tuple(sorted(each.items())) for part, each in spec.hyperparameters.items()}
        key = replace(MethodKey.of(spec), options=repr(sorted(values.items())))
        if key not in self._methods:
            arguments = spec.composition, spec.hyperparameters, spec.plugins
            self._methods[key] = compose(*arguments)[0]
        return self._methods[key]

    def workload(self, spec: RunSpec, data: DataSize) -> Workload:
        """The work of a run's step."""
        setting, method, stacked = spec.setting, self.method(spec), 0
        precision = "float32" if spec.execution.device == "cpu" else setting.precision
        # Methods that train a classifier take a multiple of FedAvg's time, except for those that
        # also train a given generator: their time depends on its size.
        like_fedavg = method.classifies and "generator" not in method.requires
        if like_fedavg and spec.execution.device != "cpu":
            is_stacked = arithmetic.of_spec(spec).startswith(STACKED)
            shares = estimated_shares(setting, data) if is_stacked else None
            stacked = cohort_size(setting, shares.clients) if shares else 0
        return Workload(
            setting.model,
            data.shape,
            data.numbers,
            data.classes,
            setting.batch_size,
            stacked,
            precision,
            "" if like_fedavg else MethodKey.of(spec).name,
        )

    def _unlabelled(self, spec: RunSpec) -> int | None:
        """The number of samples that a server distills on; None if unknown."""
        if not any(layer.distills for layer in self.method(spec).layers()):
            return 0
        match spec.inputs.get("unlabelled"):
            case "server":
                data = self.data(spec.setting.dataset)
                return round(data.train * spec.setting.partition.server) if data else None
            case ArtifactFromData(dataset=dataset, share=share):
                data = self.data(dataset)
                return round(data.train * share) if data else None
            case RunSpec() as maker:
                method = self.method(maker)
                return getattr(method, "number", None) if method.centralized else None
        return None

    def costs(self) -> dict[RunKey, RunCost]:
        """The cost of each run."""
        left = set(self.left)
        return {
            run: self.cost(run, self.inherited_rounds(run, left))
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

    def cost(self, run: RunKey, inherited_rounds: int = 0) -> RunCost:
        """The cost of an unfinished run, by the table and this machine's timings."""
        cost = self.predicted(run, inherited_rounds)
        if cost.seconds is None:
            return cost
        for place, key in enumerate(self._kinds(cost)):
            if key in self._timings:
                ratio = self._timings[key]
                seconds = self.rates.start_seconds + ratio * (
                    cost.seconds - self.rates.start_seconds
                )
                return replace(cost, seconds=seconds, basis="measured" if place < 2 else cost.basis)
        return cost

    @cached_property
    def _timings(self) -> dict[object, float]:
        """Seconds of this machine's finished runs divided by the predicted ones, by kind."""
        ratios: dict[object, list[float]] = {}
        for record in recent_runs(self.bench):
            try:
                timed = self.timed(record)
            except UserError:  # of a method whose file is gone or broken
                continue
            if timed:
                cost, ratio = timed
                for key in self._kinds(cost):
                    ratios.setdefault(key, []).append(ratio)
        return {key: median(values) for key, values in ratios.items()}

    def _kinds(self, cost: RunCost) -> tuple[object, ...]:
        """What timings of a run say something about, the narrowest first."""
        run = cost.run
        key = MethodKey.of(self.bench.spec_of(run))
        return (run.setting, run.method), (cost.workload, key), cost.workload, "all"

    def timed(self, record: RunRecord) -> tuple[RunCost, float] | None:
        """A finished run's predicted cost, and its seconds divided by the predicted ones.

        None if it was made on another kind of device, or nothing is known of it.
        """
        manifest, timing, config = record.manifest, record.timing, self.bench.config
        on_cpu = config.device == "cpu"
        same = (str(manifest.get("device")) == "cpu") == on_cpu
        if not timing or not same or manifest.get("threads", 1) != config.threads:
            return None
        seconds = timing["cpu_seconds" if on_cpu and config.threads == 1 else "wall_seconds"]
        played = round(timing["rounds_per_second"] * timing["wall_seconds"])
        rounds = self.bench.setting(record.run.setting).rounds
        cost = self.predicted(record.run, max(rounds - played, 0))
        if cost.seconds is None or not seconds:
            return None
        return cost, seconds / (cost.seconds - self.rates.start_seconds)

    def predicted(self, run: RunKey, inherited_rounds: int = 0) -> RunCost:
        """The cost of a run by the table, without its first ``inherited_rounds``."""
        spec = self.bench.spec_of(run)
        setting, data = spec.setting, self.data(spec.setting.dataset)
        shares = self._shares_of(setting, run.seed, data) if data else None
        if data is None or shares is None:
            what = "what it holds" if data is None else "how many clients it has"
            why = f"data set {setting.dataset}: unknown {what}"
            return RunCost(run, False, counted=False, why=why)
        method, workload = self.method(spec), self.workload(spec, data)
        clients = 1 if method.centralized else cohort_size(setting, shares.clients)
        rounds = setting.rounds - inherited_rounds
        if method.centralized:
            steps = float(-(-shares.train // setting.batch_size))
        else:
            steps = clients * shares.steps / shares.clients
        steps *= rounds * setting.epochs
        unknown = RunCost(run, False, steps, counted=shares.counted)
        unlabelled = self._unlabelled(spec)
        if unlabelled is None:
            why = "the number of samples that its server distills on is unknown"
            return replace(unknown, why=why)
        try:
            arithmetic.refuse_without_gpu(spec)
            rate = self.rates.of_model(workload, spec.plugins)
        except UserError as error:
            return replace(unknown, why=str(error))
        key = MethodKey.of(spec)
        factor = LIKE_FEDAVG if workload.method else self.rates.of_method(key)
        training = steps * rate.step_seconds + rounds * clients * rate.client_seconds
        if method.centralized and hasattr(method, "number"):  # it only draws images
            training = (rate.step_seconds + rate.client_seconds) * method.number / DRAWN
        seconds = training * factor.factor + rounds * factor.round_seconds
        work = _Work(setting, data, shares, rounds, clients, method, rate)
        seconds += work.scoring_seconds() + work.distilling_seconds(unlabelled)
        pair = f"{workload.name}, {key.name}"
        seconds *= self.rates.landed.get(pair, self.rates.landed.get(workload.name, 1.0))
        known = pair in self.rates.landed or (rate.source and (workload.method or factor.source))
        everyone, held = work.scored
        recorded = -(-setting.rounds // setting.evaluate.every)
        model = FLOAT * rate.parameters
        return RunCost(
            run,
            False,
            steps,
            seconds + self.rates.start_seconds,
            model * (1 + self._kept_models(run, clients)) + ROW * recorded * (everyone or clients),
            rate.memory_bytes
            + sample_bytes(data) * (data.train + data.test + held)
            + model * clients,
            shares.counted,
            "landed" if known else "predicted",
            workload,
            rate.busy,
        )

    def _kept_models(self, run: RunKey, clients: int) -> int:
        """The number of models that a run saves besides its own, also for child runs."""
        kept = len(set(self.bench.setting(run.setting).save_models_at.get(run.method, ())))
        return kept * (clients + 1) + len(self._kept_for_tails.get(run, ()))

    @cached_property
    def _kept_for_tails(self) -> dict[RunKey, set[int]]:
        """The rounds whose checkpoints a parent run saves for child runs, as in ``sharing_of``.

        The states of server optimizers and clients in these checkpoints are not counted.
        """
        rounds: dict[RunKey, set[int]] = {}
        left = set(self.left)
        targets = (target for scale in SCALES for target in self.bench.targets(scale).values())
        for run in {run for target in targets for run in target.runs}:
            parent = self.bench.parent_of(run)
            if parent in left and (shared := shared_rounds(self.bench, run)):
                rounds.setdefault(parent, set()).add(shared)
        return rounds


def recent_runs(bench: Workbench) -> list[RunRecord]:
    """The newest finished runs of this machine with today's configuration."""
    paths = (bench.root / "results/runs").glob("*/*/*/seed*/timing.json")
    records = []
    for path in sorted(paths, key=lambda path: path.stat().st_mtime)[-RECENT:]:
        try:
            run = run_of(manifest_in(path.parent))
            record = read_run(bench.root, run)
            spec = bench.spec_of(run)
            if record.manifest["config_hash"] == spec.digest:
                records.append(record)
        except (UserError, KeyError, TypeError, ValueError):
            continue  # damaged, or of an experiment that is gone
    return records
