"""How fast a machine is, measured once and stored: the basis of a plan's hours.

Seconds are CPU seconds for runs with one CPU thread, which do not count the time that other
processes have; otherwise they are wall time. They do grow, by up to two times, where others keep
both hardware threads of a core busy: measure on an idle machine.
"""

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedrepro.config.run_spec import RunSpec
from fedrepro.provenance.machine import processor
from fedrepro.run.card_table import Precision, shipped
from fedrepro.support.errors import UserError
from fedrepro.support.files import read_json, write_atomically
from fedrepro.support.plugins import NONE, Folders

FOLDER = Path("results/calibration")
# Predictions for the shipped experiments by the shipped table; `make paper` makes them again.
PREDICTED = Path(__file__).parent / "h100_predicted.json"
DRAWN = 250  # images that a generator draws in its measurement


@dataclass(frozen=True)
class Workload:
    """What determines the cost of a training step.

    Attributes:
        shape: of one sample.
        numbers: its kind of numbers, as in :class:`fedrepro.data.catalogue.entries.Holding`.
        stacked: clients that a GPU computes side by side; 0: one after another.
        precision: float32 on a CPU, whatever the run has.
        by: a run to measure itself, if its method trains something other than a classifier.
        own: the plug-in folders with methods and models.
    """

    model: str
    shape: tuple[int, ...]
    numbers: str
    classes: int
    task: str
    batch_size: int
    stacked: int = 0
    precision: Precision = "float32"
    by: RunSpec | None = field(default=None, compare=False)
    method: str = ""  # the key of that run's method
    plugins: Folders = field(default=NONE, compare=False)

    @property
    def key(self) -> str:
        """Its name in a calibration."""
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
    def family(self) -> tuple[object, ...]:
        """The family: workloads with the same family can be surrogates for each other.

        They differ in batch size and image size, from which the time follows, and in the number of
        classes.
        """
        shape = () if self.numbers == "bytes" else self.shape
        way = self.stacked > 0, self.precision
        return self.model, shape, self.numbers, self.method.partition(" ")[0], way

    def from_family(self, other: "Workload", rate: "ModelRate") -> "ModelRate":
        """The estimated rate, from the rate of another workload of the family."""
        larger = self.pixels / other.pixels
        return replace(
            rate,
            step_seconds=rate.step_seconds * larger * self.batch_size / other.batch_size,
            sample_seconds=rate.sample_seconds * larger,
            memory_bytes=round(rate.memory_bytes * max(1.0, larger)),  # an overestimate
        )


SERVERS = ("server_", "decay")  # hyperparameters that do not affect clients


def key_of_method(spec: RunSpec) -> str:
    """The name of a run's method in a calibration.

    It includes the hyperparameters that are integers or switches, such as a method's own epochs:
    they determine how much work clients have, the others do not. It includes the local epochs,
    because they determine the relative cost of an additional pass.
    """
    options = {
        f"{part}.{name}": value
        for part, values in spec.hyperparameters.items()
        for name, value in values.items()
        if isinstance(value, int) and part in spec.composition and not name.startswith(SERVERS)
    }
    return " ".join(
        [
            spec.composition,
            *(f"{name}={json.dumps(value)}" for name, value in sorted(options.items())),
            f"epochs {spec.setting.epochs}",
        ]
    )


def family_of_method(key: str) -> str:
    """The family of a method's key: methods of one family can be surrogates for each other.

    They differ in readings (paper or released code), options and local epochs.
    """
    return "+".join(part.partition("@")[0] for part in _composition(key).split("+"))


def _composition(key: str) -> str:
    return key.partition(" ")[0]


def _epochs(key: str) -> int:
    return int(key.rpartition(" ")[2])


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
    """

    step_seconds: float
    client_seconds: float
    sample_seconds: float
    score_seconds: float
    parameters: int
    memory_bytes: int
    busy: float = 1.0


@dataclass(frozen=True)
class MethodRate:
    """The cost of a method, and further facts that a plan needs.

    Attributes:
        factor: its training time divided by FedAvg's, with the same model and local epochs.
        pooled: whether one client holds all data.
        mixes: whether clients are evaluated at several interpolations after the last round.
        round_seconds: that its server takes more than FedAvg's, if that is not in the factor.
    """

    factor: float
    centralized: bool
    interpolates: bool
    round_seconds: float = 0.0


@dataclass
class Rates:
    """A calibration of a machine and a device.

    Attributes:
        machine: on which it was measured.
        start_seconds: from a command to its first round.
        elsewhere: for each rate that was not measured here, by its key, where it was; "" if it was
            nowhere: it is predicted.
    """

    machine: dict[str, Any]
    start_seconds: float | None = None
    models: dict[str, ModelRate] = field(default_factory=dict)
    methods: dict[str, MethodRate] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def is_measured(self, key: str) -> bool:
        """Whether a model or method, by its key, is measured itself, here or elsewhere."""
        known = key in self.models or key in self.methods
        return known and self.elsewhere.get(key, "here") != ""

    @property
    def path(self) -> Path:
        text = json.dumps(self.machine, sort_keys=True)
        device = str(self.machine["device"]).replace(":", "")
        return FOLDER / f"{device}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"

    def method_like(self, key: str) -> MethodRate | None:
        """A method's rate, or that of the most similar one of its family, or None."""
        if key in self.methods:
            return self.methods[key]

        def unlike(other: str) -> tuple[bool, int]:
            another = _composition(other) != _composition(key)
            return another, abs(_epochs(other) - _epochs(key))

        family = (
            other for other in self.methods if family_of_method(other) == family_of_method(key)
        )
        nearest = min(family, key=unlike, default=None)
        return self.methods[nearest] if nearest else None

    def save(self, root: Path) -> None:
        """Write ``results/calibration/<device>-<machine>.json``."""
        with write_atomically(root / self.path) as temporary:
            content = asdict(self)
            del content["elsewhere"]
            text = json.dumps(content, indent=1, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")


# Older files, without these names.
OLD_KEYS = {"pooled": "centralized", "mixes": "interpolates"}


def stored(root: Path, device: str, threads: int, accelerator: str = "") -> Rates:
    """What was measured on this machine so far.

    Args:
        accelerator: the kind of GPU, for a device that is one.

    Raises:
        UserError: if the file is damaged.
    """
    rates = Rates(machine(device, threads, accelerator))
    return _read(root / rates.path, rates)


def stored_on_paper(root: Path) -> Rates:
    """What is predicted for a GPU that need not be here (:mod:`fedrepro.run.on_paper`).

    Raises:
        UserError: if a file is damaged.
    """
    table = shipped()
    rates = Rates({"device": "cuda", "accelerator": table.name, "table": table.digest})
    found = _read(root / rates.path, rates)
    if (known := _read(PREDICTED, Rates({}))).machine == rates.machine:
        found.models = {**known.models, **found.models}
        found.methods = {**known.methods, **found.methods}
    return found


def _read(path: Path, rates: Rates) -> Rates:
    try:
        found = read_json(path)
        rates.machine = found["machine"]
        rates.start_seconds = found["start_seconds"]
        rates.models = {key: ModelRate(**each) for key, each in found["models"].items()}
        rates.methods = {
            key: MethodRate(**{OLD_KEYS.get(name, name): value for name, value in each.items()})
            for key, each in found["methods"].items()
        }
        for key in rates.methods:
            _epochs(key)  # a key without epochs is damaged
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: damaged: {error}: delete it to measure again") from None
    return rates


def machine(device: str, threads: int, accelerator: str = "") -> dict[str, Any]:
    """A name that distinguishes machines of different speed."""
    facts: dict[str, Any] = {
        "device": device,
        "threads": threads,
        "processor": processor(),
        "cores": os.cpu_count(),
        "torch": version("torch"),
    }
    return {**facts, "accelerator": accelerator} if accelerator else facts
