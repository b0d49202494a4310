"""What is run, and how: config.yaml, and the settings of experiment files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedrepro.config.metrics import named
from fedrepro.config.values import (
    Composition,
    Device,
    Executor,
    Fraction,
    Hyperparameters,
    Momentum,
    Name,
    NonNegativeReal,
    NonNegativeWhole,
    PositiveReal,
    PositiveWhole,
    Scale,
    Seed,
    SettingName,
    Threads,
)
from fedrepro.data.partition.schemes import PartitionSpec, Share
from fedrepro.measures import registry
from fedrepro.support import papers
from fedrepro.support.errors import bad_value, nearest
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.typed_yaml import Typed, expected, plain_or
from fedrepro.support.typed_yaml import later as later

RELEASED = "@released"


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


class PluginFolders(Typed):
    """Folders of your own files, relative to the workbench's root; a file's name is what it has."""

    methods: Path | None = Field(default=None, description="A dataclass of hooks in each file.")
    models: Path | None = Field(default=None, description="A function of its name in each file.")
    partitions: Path | None = Field(
        default=None, description="A partition scheme, a class, in each file."
    )
    measures: Path | None = Field(default=None, description="A measure, a class, in each file.")

    def under(self, root: Path) -> Folders:
        """They, seen from anywhere.

        Raises:
            UserError: for one that is not there.
        """
        named = {kind: folder for kind, folder in self if folder is not None}
        for kind, folder in named.items():
            if not (root / folder).is_dir():
                raise bad_value("config/config.yaml", f"plugins.{kind}", str(folder), "a folder")
        return Folders(
            root.absolute(), **{kind: (root / each).absolute() for kind, each in named.items()}
        )


PartitionName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,-]*$", max_length=80),
    expected("a cluster's partition, or several with ',' between them"),
]


class Resources(Typed):
    """What a run asks a cluster for. Where a run runs makes it no other run."""

    partition: PartitionName | None = None
    gpu: NonNegativeWhole | None = Field(
        default=None, description="GPUs, where the device is cuda. Default: 1."
    )
    mem_mb: PositiveWhole | None = Field(
        default=None, description="Memory of the first try; each further one has twice as much."
    )
    runtime: PositiveWhole | None = Field(
        default=None, description="Minutes of the first try; each further one has twice as many."
    )
    cpus: PositiveWhole | None = Field(
        default=None, description="CPUs. Default: the threads of a run."
    )

    def over(self, other: "Resources") -> "Resources":
        """These, and what they leave open as another has it."""
        return other.model_copy(update=self.model_dump(exclude_none=True))


class Config(Typed):
    """config/config.yaml."""

    scale: Scale = "demo"
    seeds: Seeds = Seeds()
    device: Device = "cpu"
    threads: Threads = Field(default=1, description="CPU threads of one run.")
    executor: Executor = "auto"
    checkpoint_every: PositiveWhole = Field(default=10, description="Rounds between checkpoints.")
    track: Literal["tensorboard", "mlflow"] | None = Field(
        default=None, description="What is told of a run while it is under way; not part of it."
    )
    data: DataSources = DataSources()
    plugins: PluginFolders = PluginFolders()
    resources: Resources = Field(
        default=Resources(),
        description="What runs ask a cluster for where their setting does not say.",
    )


class Overrides(Typed):
    """What one call may set otherwise than config.yaml."""

    scale: Scale | None = None
    device: Device | None = None
    executor: Executor | None = None


BETAS = (0.9, 0.999)


class OptimizerSpec(Typed):
    """The clients' optimizer."""

    lr: PositiveReal
    momentum: Momentum = 0.0
    weight_decay: NonNegativeReal = 0.0
    name: Literal["sgd", "adam"] = later("sgd")
    betas: tuple[Momentum, Momentum] = later(BETAS, "Adam's.")

    @model_validator(mode="after")
    def _its_own_keys(self) -> Self:
        if self.name == "adam" and self.momentum:
            raise ValueError("`betas` with adam, not `momentum`")
        if self.name == "sgd" and self.betas != BETAS:
            raise ValueError("`betas` with adam only")
        return self


class StepDecay(Typed):
    """A learning rate that stays the same for some rounds and is then multiplied."""

    factor: Fraction
    every: PositiveWhole = Field(description="Rounds with the same learning rate.")


Decay = Annotated[
    Annotated[Fraction, Tag("plain")] | Annotated[StepDecay, Tag("StepDecay")], plain_or(StepDecay)
]


OwnMeasure = Annotated[str, named("client", "round", among=registry.is_own)[0]]


class Evaluate(Typed):
    """When the model is evaluated, and on whose data."""

    every: PositiveWhole = Field(default=1, description="Rounds between evaluations.")
    clients: bool = Field(default=False, description="Also on each client's own test split.")
    groups: bool = later(
        False, "The data set's groups, such as domains, by themselves: their mean counts."
    )
    per_class: PositiveWhole | None = later(
        None, "At most so many test samples of a class in each of them, the first ones."
    )
    measures: list[OwnMeasure] = later([], "Your own measures that are recorded, by name.")

    @model_validator(mode="after")
    def _as_they_go_together(self, info: ValidationInfo) -> Self:
        if self.per_class and not self.groups:
            raise ValueError("`per_class` with `groups` only")
        if len(set(self.measures)) < len(self.measures):
            raise ValueError("each of `measures` once")
        for name in () if self.clients else self.measures:
            measure = registry.the(name, "client", "round", folders=info.context or NONE)
            if measure.per == "client" and measure.from_outputs:
                raise ValueError(f"`clients: true` with {name}, which is of their test samples")
        return self


class Noise(Typed):
    """Labels that are wrong on purpose: the next class, or any other one."""

    kind: Literal["pair", "symmetric"]
    rate: Share = Field(description="The probability that a label is wrong.")
    everywhere: bool = Field(
        default=False, description="Also on clients' own test samples, as SuPerFed's code does."
    )


class ArtifactFromRun(Typed):
    """What another run left."""

    setting: SettingName = Field(description="A setting of this file.")
    method: Composition
    seed: Seed | None = Field(default=None, description="Default: the seed of the run itself.")


class ArtifactFromFile(Typed):
    """A model.safetensors that a run left, here or elsewhere, or that was made as one."""

    file: Path
    sha256: (
        Annotated[
            str,
            Field(pattern="^[0-9a-f]{64}$"),
            expected("the SHA-256 of the file, 64 digits of 0-9 and a-f"),
        ]
        | None
    ) = Field(default=None, description="Nothing is read before it stands here.")


class ArtifactFromData(Typed):
    """Training samples of another data set, without labels."""

    dataset: Name
    share: Fraction = Field(
        default=1.0, description="Of each class, as a partition's `server` takes it."
    )


def _tag_of_given(value: object) -> str:
    if isinstance(value, ArtifactFromFile) or (isinstance(value, Mapping) and "file" in value):
        return "ArtifactFromFile"
    if isinstance(value, ArtifactFromData) or (isinstance(value, Mapping) and "dataset" in value):
        return "ArtifactFromData"
    return "ArtifactFromRun" if isinstance(value, Mapping | ArtifactFromRun) else "plain"


ArtifactSource = Annotated[
    Annotated[Literal["server"], Tag("plain")]
    | Annotated[ArtifactFromRun, Tag("ArtifactFromRun")]
    | Annotated[ArtifactFromFile, Tag("ArtifactFromFile")]
    | Annotated[ArtifactFromData, Tag("ArtifactFromData")],
    Discriminator(_tag_of_given),
]


class Cohorts(Typed):
    """Cohorts as a released code draws them, whatever the run's seed.

    ``numpy_legacy`` is SuPerFed's: numpy.random.choice once a round, of a generator that is seeded
    once. A stream is a file of its paper's package (:mod:`fedrepro.support.papers`).
    """

    stream: str = Field(json_schema_extra={"enum": [*papers.files_of("cohorts")]})
    seed: Seed

    @field_validator("stream")
    @classmethod
    def _known(cls, name: str) -> str:
        known = papers.files_of("cohorts")
        if name not in known:
            raise ValueError(f"one of {', '.join(known)}{nearest(name, known)}")
        return name


class Judge(Typed):
    """How a synthetic set that a run made is judged, once it is over; no part of the run."""

    model: Name = Field(description="The classifier that is trained on it, and one on real data.")
    epochs: PositiveWhole = Field(default=500, description="At most, to convergence.")
    real_epochs: PositiveWhole = Field(default=5, description="Of the classifier on real data.")
    batch_size: PositiveWhole = 64
    lr: PositiveReal = Field(default=0.001, description="Of Adam.")
    fid: bool = Field(
        default=False,
        description="Also the Fréchet inception distance, where Inception's weights are there.",
    )


DecayFrom = Annotated[Literal[0, 1], expected("0 or 1")]


class ReleasedOverrides(Typed):
    """Keys of a setting that the released code has otherwise; those not given stay."""

    partition: PartitionSpec | None = None
    rounds: PositiveWhole | None = None
    optimizer: OptimizerSpec | None = None
    lr_decay: Decay | None = None
    decay_from: DecayFrom | None = None
    cohorts: Cohorts | None = None
    noise: Noise | None = None
    methods: dict[str, Hyperparameters] | None = None


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
    decay_from: DecayFrom = later(
        0, "The decay's power in the first round: 1 where a code counts rounds from 1."
    )
    cohorts: Cohorts | None = later(None, "Instead of cohorts that the run's seed decides.")
    evaluate: Evaluate = Evaluate()
    noise: Noise | None = later(None)
    scaling: Literal["unit", "symmetric"] | None = later(
        None,
        "Images in [0, 1] or [-1, 1], instead of with the data set's mean and deviation.",
    )
    augment: Literal["flip"] | None = later(
        None, "Clients see each image mirrored half of the times."
    )
    precision: Literal["float32", "bfloat16"] = later(
        "float32",
        "Of the network's products in clients' training. In bfloat16, 8 bits, the numbers differ: "
        "they are marked.",
    )
    given: dict[Name, ArtifactSource] = later(
        {}, "What methods need: the server's part of the data, what a run left, a file, or data."
    )
    byzantine: NonNegativeWhole = later(
        0, "How many clients give discriminators that say 1 of everything; the seed draws them."
    )
    keep: dict[Composition, list[PositiveWhole]] = later(
        {}, "By method, the rounds after which every client's model and the server's are kept."
    )
    judge: Judge | None = Field(
        default=None,
        exclude=True,
        description="How a synthetic set that a run leaves is judged; not part of the run.",
    )
    resources: Resources = Field(
        default=Resources(),
        exclude=True,
        description="What its runs ask a cluster for; not part of the run.",
    )
    note: str = Field(
        default="",
        exclude=True,
        description="What its numbers can't show, beside them; not part of the run.",
    )
    methods: dict[str, Hyperparameters] = Field(
        default={}, description="Hyperparameters that differ in this setting, by part name."
    )
    released: dict[str, ReleasedOverrides] = Field(
        default={},
        exclude=True,
        description="What the released code has otherwise, by the number of the discrepancy; "
        "<name>@released asks for the setting so.",
    )
    _name: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _each_key_once(self) -> Self:
        keys = [key for part in self.released.values() for key in part.model_fields_set]
        if len(set(keys)) < len(keys):
            raise ValueError("a key under `released` once only")
        return self

    @property
    def name(self) -> str:
        """``<system>/<setting>``, with ``@released`` where it is read so."""
        return self._name

    @property
    def keys_of_papers(self) -> tuple[str, ...]:
        """Those of its keys that change what a run is given, as a paper's package says."""
        return tuple(key for key in papers.files_of("given") if getattr(self, key))

    def as_released(self) -> "Setting":
        """The setting with what the released code has otherwise."""
        parts = self.released.values()
        keys = {key: getattr(part, key) for part in parts for key in part.model_fields_set}
        reading = self.model_copy(update={**keys, "released": {}})
        reading._name = self._name + RELEASED
        return reading

    def validated(self, name: str, share: float, variants: dict[str, Hyperparameters]) -> "Setting":
        """The setting in which clients keep a share of their training samples for validation.

        Args:
            name: of the reading, without its system.
            variants: what is searched there, beside the setting's own methods.
        """
        partition = self.partition.model_copy(update={"validation": share})
        methods = {**self.methods, **variants}
        reading = self.model_copy(update={"partition": partition, "methods": methods})
        reading._name = f"{self._name.partition('/')[0]}/{name}"
        return reading

    def partition_path(self, seed: int) -> Path:
        """Where the shares of the clients are, the same file for all methods."""
        folder = Path("results/partitions") / self.dataset / self.partition.name
        return folder / f"seed{seed}.npz"
