"""What is run, and how: config.yaml, and the settings of experiment files."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, Tag, field_validator

from fedrepro.config.values import (
    Device,
    Executor,
    Fraction,
    Hyperparameters,
    Momentum,
    Name,
    NonNegativeReal,
    PositiveReal,
    PositiveWhole,
    Scale,
    Seed,
    Threads,
)
from fedrepro.data.partition.schemes import PartitionSpec, Share
from fedrepro.support.typed_yaml import Typed, plain_or


def later(default: Any, description: str | None = None) -> Any:
    """A key of a setting, or of one of its parts, that came after the first results were kept.

    At its default it is left out of a run's description (and of every dump), so that runs from
    before there was such a key stay the same. Every key that is added to a setting is made by this:
    ``noise: Noise | None = later(None)``.
    """
    return Field(
        default=default, description=description, exclude_if=lambda value: bool(value == default)
    )


class Seeds(Typed):
    """Which seeds each scale runs."""

    demo: tuple[Seed, ...] = Field(default=(1,), min_length=1)
    paper: tuple[Seed, ...] = Field(default=(1, 2, 3), min_length=1)

    @field_validator("demo", "paper")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds that differ from each other")
        return seeds


class DataSources(Typed):
    """Where data are looked for."""

    archives: Path | None = Field(
        default=None, description="A folder of archives that is looked in before the network."
    )


class Config(Typed):
    """config/config.yaml."""

    scale: Scale = "demo"
    seeds: Seeds = Seeds()
    device: Device = "cpu"
    threads: Threads = Field(default=1, description="CPU threads of one run.")
    executor: Executor = "auto"
    checkpoint_every: PositiveWhole = Field(default=10, description="Rounds between checkpoints.")
    data: DataSources = DataSources()


class Overrides(Typed):
    """What one call may set otherwise than config.yaml."""

    scale: Scale | None = None
    device: Device | None = None
    executor: Executor | None = None


class OptimizerSpec(Typed):
    """The clients' SGD."""

    lr: PositiveReal
    momentum: Momentum = 0.0
    weight_decay: NonNegativeReal = 0.0


class StepDecay(Typed):
    """A learning rate that stays the same for some rounds and is then multiplied."""

    factor: Fraction
    every: PositiveWhole = Field(description="Rounds with the same learning rate.")


Decay = Annotated[
    Annotated[Fraction, Tag("plain")] | Annotated[StepDecay, Tag("StepDecay")], plain_or(StepDecay)
]


class Evaluate(Typed):
    """When the model is evaluated, and on whose data."""

    every: PositiveWhole = Field(default=1, description="Rounds between evaluations.")
    clients: bool = Field(default=False, description="Also on each client's own test split.")


class Noise(Typed):
    """Labels that are wrong on purpose: the next class, or any other one."""

    kind: Literal["pair", "symmetric"]
    rate: Share = Field(description="The probability that a label is wrong.")
    everywhere: bool = Field(
        default=False, description="Also on clients' own test samples, as SuPerFed's code does."
    )


class Setting(Typed):
    """Data set + partition + model + optimisation + rounds."""

    extends: str | None = Field(
        default=None, description="A setting of this file that gives all keys that are missing."
    )
    dataset: Name
    partition: PartitionSpec
    model: Name
    rounds: PositiveWhole
    participation: Fraction = Field(description="The fraction of clients in a round's cohort.")
    epochs: PositiveWhole = Field(description="Passes of a client over its data in one round.")
    batch_size: PositiveWhole
    optimizer: OptimizerSpec
    lr_decay: Decay = Field(
        default=1.0, description="Factor on the learning rate per round, or every so many rounds."
    )
    evaluate: Evaluate = Evaluate()
    noise: Noise | None = later(None)
    methods: dict[str, Hyperparameters] = Field(
        default={}, description="Hyperparameters that differ in this setting, by part name."
    )
    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """``<system>/<setting>``."""
        return self._name

    def partition_path(self, seed: int) -> Path:
        """Where the shares of the clients are, the same file for all methods."""
        folder = Path("results/partitions") / self.dataset / self.partition.name
        return folder / f"seed{seed}.npz"
