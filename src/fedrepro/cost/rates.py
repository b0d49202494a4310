"""The seconds of a training step, by model, method and device, from tables beside this module.

``cpu.json`` was measured in short rounds on an AMD EPYC and has by how much landed runs differed;
``h100.json`` is predicted from ``scripts/h100.yaml``, except for what was measured on such a GPU.
``scripts/measure_rates.py`` makes both. Seconds are CPU seconds of one thread, on a GPU wall time.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedrepro.config.run_spec import RunSpec
from fedrepro.support.files import read_json
from fedrepro.support.plugins import Folders

FOLDER = Path(__file__).parent
DRAWN = 250  # images that a generator draws in its measurement
SERVERS = ("server_", "decay")  # hyperparameters that do not affect clients
Precision = Literal["float32", "tf32", "bfloat16"]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Workload:
    """What determines the cost of a training step with FedAvg.

    Attributes:
        shape: of one sample.
        numbers: its kind of numbers, as in :class:`fedrepro.data.catalogue.entries.DataSize`.
        stacked: clients that a GPU computes side by side; 0: one after another.
        precision: float32 on a CPU, whatever the run has.
        method: if it trains something other than a classifier; "" for FedAvg.
    """

    model: str
    shape: tuple[int, ...]
    numbers: str
    classes: int
    batch_size: int
    stacked: int = 0
    precision: Precision = "float32"
    method: str = ""

    @property
    def name(self) -> str:
        shape = "x".join(map(str, self.shape))
        name = f"{self.model} {shape} {self.numbers} {self.classes} batch {self.batch_size}"
        way = f" stacked {self.stacked}" if self.stacked else ""
        precise = f" {self.precision}" if self.precision != "float32" else ""
        return f"{name}{way}{precise} {self.method}".rstrip()

    @property
    def pixels(self) -> int:
        """Pixels per image; 1 for other samples."""
        return math.prod(self.shape[1:]) if self.numbers == "bytes" else 1

    @property
    def way(self) -> tuple[bool, str, bool]:
        """How it is computed: rates are taken from workloads of the same way only."""
        return self.stacked > 0, self.precision, bool(self.method)

    @property
    def family(self) -> tuple[object, ...]:
        """Workloads of one family differ in batch size, image size and number of classes."""
        shape = () if self.numbers == "bytes" else self.shape
        return self.model, shape, self.numbers, self.method.partition(" ")[0], self.way


@dataclass(frozen=True)
class MethodKey:
    """What determines the work of a method's clients, compared with FedAvg's.

    Attributes:
        options: hyperparameters that are integers or switches, such as a method's own epochs.
        epochs: of local training.
    """

    composition: str
    options: str
    epochs: int

    @classmethod
    def of(cls, spec: RunSpec) -> "MethodKey":
        options = {
            f"{part}.{name}": value
            for part, values in spec.hyperparameters.items()
            for name, value in values.items()
            if isinstance(value, int) and part in spec.composition and not name.startswith(SERVERS)
        }
        text = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(options.items()))
        return cls(spec.composition, text, spec.setting.epochs)

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.composition, self.options, f"epochs {self.epochs}")))

    @property
    def parts(self) -> list[str]:
        """Its parts, whether as in the paper or in released code."""
        return [part.partition("@")[0] for part in self.composition.split("+")]


@dataclass(frozen=True)
class ModelRate:
    """The cost of FedAvg with a model.

    Attributes:
        step_seconds: of one local step.
        client_seconds: fixed cost of a client's round: data, sums, the server's share.
        sample_seconds: of evaluating one sample.
        score_seconds: fixed cost of an evaluation.
        parameters: number of the model's parameters.
        memory_bytes: the peak of a process with one or two clients and little data.
        busy: the share of a step's time in which a GPU computes.
        flop: floating-point operations of the model for one sample; 0 if unknown.
        source: where whole rounds of it were measured; "" for a prediction.
    """

    step_seconds: float
    client_seconds: float
    sample_seconds: float
    score_seconds: float
    parameters: int
    memory_bytes: int
    busy: float = 1.0
    flop: int = 0
    source: str = ""


@dataclass(frozen=True)
class MethodRate:
    """The cost of a method relative to FedAvg.

    Attributes:
        factor: its training time divided by FedAvg's, with the same model and local epochs.
        round_seconds: that its server takes more than FedAvg's, if that is not in the factor.
        source: where whole rounds of it were measured; "" for a prediction.
    """

    factor: float
    round_seconds: float = 0.0
    source: str = ""


LIKE_FEDAVG = MethodRate(1.0)


@dataclass
class Rates:
    """A table of rates.

    Attributes:
        machine: on which it was measured, or for which it was predicted.
        start_seconds: of a run around its rounds: start, files, table.
        landed: seconds of landed runs divided by those of the rates, by the names of workload and
            method, and by that of the workload alone.
    """

    machine: dict[str, Any]
    start_seconds: float
    models: dict[Workload, ModelRate] = field(default_factory=dict)
    methods: dict[MethodKey, MethodRate] = field(default_factory=dict)
    landed: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, device: str) -> "Rates":
        """The shipped table of a device."""
        content = read_json(FOLDER / ("cpu.json" if device == "cpu" else "h100.json"))
        models = {
            Workload(**{**row["of"], "shape": tuple(row["of"]["shape"])}): ModelRate(**row["rate"])
            for row in content["models"]
        }
        methods = {MethodKey(**row["of"]): MethodRate(**row["rate"]) for row in content["methods"]}
        start, landed = content["start_seconds"], content["landed"]
        return cls(content["machine"], start, models, methods, landed)

    def of_model(self, workload: Workload, plugins: Folders) -> ModelRate:
        """A workload's rate, that of the nearest one of its family, or one by floating operations.

        Raises:
            UserError: if the model is unknown to the table and cannot be built.
        """
        if workload in self.models:
            return self.models[workload]

        def distance(known: Workload) -> tuple[float, ...]:
            pixels, size = known.pixels - workload.pixels, known.batch_size - workload.batch_size
            return abs(pixels), abs(size), abs(known.stacked - workload.stacked)

        if near := _nearest(self.models, distance, lambda known: known.family == workload.family):
            return _scaled(self.models[near], near, workload, workload.pixels / near.pixels)
        from fedrepro.cost.network_size import size_of  # which imports PyTorch

        flop, parameters = size_of(workload, plugins)

        def ratio(known: Workload) -> tuple[float, ...]:
            work = flop * workload.batch_size
            return (abs(math.log(work / (self.models[known].flop * known.batch_size))),)

        counted = [known for known, rate in self.models.items() if rate.flop]
        near = _nearest(counted, ratio, lambda known: known.way == workload.way)
        near = near or _nearest(counted, ratio, lambda known: True)
        assert near  # a table is not empty
        rate = _scaled(self.models[near], near, workload, flop / self.models[near].flop)
        return replace(rate, parameters=parameters)

    def of_method(self, key: MethodKey) -> MethodRate:
        """A method's rate, or a prediction.

        That of the most similar one with the same parts, else the product over its parts, where an
        unknown part takes as long as FedAvg.
        """
        if key in self.methods:
            return self.methods[key]

        def distance(known: MethodKey) -> tuple[float, ...]:
            return known.composition != key.composition, abs(known.epochs - key.epochs)

        near = _nearest(self.methods, distance, lambda known: known.parts == key.parts)
        if near:
            return replace(self.methods[near], source="")
        if len(key.parts) == 1:
            return LIKE_FEDAVG
        parts = [replace(key, composition=part) for part in key.composition.split("+")]
        rates = [self.of_method(part) for part in parts]
        factor = math.prod(rate.factor for rate in rates)
        return MethodRate(factor, math.fsum(rate.round_seconds for rate in rates))


def _nearest(
    keys: Iterable[Key], distance: Callable[[Key], tuple[float, ...]], fits: Callable[[Key], bool]
) -> Key | None:
    return min(filter(fits, keys), key=distance, default=None)


def _scaled(rate: ModelRate, known: Workload, workload: Workload, larger: float) -> ModelRate:
    """The rate of a workload whose samples take ``larger`` times as long as the known one's."""
    return replace(
        rate,
        step_seconds=rate.step_seconds * larger * workload.batch_size / known.batch_size,
        sample_seconds=rate.sample_seconds * larger,
        memory_bytes=round(rate.memory_bytes * max(1.0, workload.pixels / known.pixels)),
        source="",
    )
