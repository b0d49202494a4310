"""Models of config/config.yaml."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Field,
    field_validator,
)

from fedrepro.config.values import (
    Device,
    Executor,
    NonNegativeWhole,
    PositiveWhole,
    Scale,
    Seed,
    Threads,
)
from fedrepro.engine.executor_facts import FACTS
from fedrepro.support.errors import bad_value
from fedrepro.support.plugins import Folders
from fedrepro.support.typed_yaml import Typed, expected
from fedrepro.support.typed_yaml import later as later


class Seeds(Typed):
    """The seeds of each scale.

    Attributes:
        demo: seeds of runs on small stand-ins of the settings.
        compact: seeds of the small settings that test claims; paired over all methods.
        paper: seeds of runs with the papers' settings.
    """

    demo: tuple[Seed, ...] = Field(default=(1,), min_length=1)
    compact: tuple[Seed, ...] = Field(default=(1, 2, 3, 4, 5), min_length=1)
    paper: tuple[Seed, ...] = Field(default=(1, 2, 3), min_length=1)

    @field_validator("demo", "compact", "paper")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("distinct seeds")
        return seeds


class DataSources(Typed):
    """Where to find data."""

    archives: Path | None = Field(
        default=None, description="A folder of archives, searched before the network."
    )


class PluginFolders(Typed):
    """Folders of plug-ins, relative to the workbench's root. A plug-in is named after its file."""

    methods: Path | None = Field(
        default=None, description="Methods: one dataclass with hooks per file."
    )
    models: Path | None = Field(
        default=None, description="Models: one function per file, named as the file."
    )
    partitions: Path | None = Field(
        default=None, description="Partition schemes: one class per file."
    )
    measures: Path | None = Field(default=None, description="Measures: one class per file.")
    losses: Path | None = Field(
        default=None, description="Losses: one function per file, named as the file."
    )
    data: Path | None = Field(
        default=None, description="Data sets: one function per file, named as the file."
    )

    def under(self, root: Path) -> Folders:
        """The folders as absolute paths.

        Raises:
            UserError: if a folder does not exist.
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
    expected("a cluster's partition, or several, separated by ','"),
]


class Resources(Typed):
    """What a run requests from a cluster. Not part of the run's identity."""

    partition: PartitionName | None = Field(
        default=None, description="The cluster's partition. Default: the cluster's own."
    )
    gpu: NonNegativeWhole | None = Field(
        default=None, description="GPUs if the device is cuda. Default: 1."
    )
    mem_mb: PositiveWhole | None = Field(
        default=None, description="Memory of the first attempt; each retry doubles it."
    )
    runtime: PositiveWhole | None = Field(
        default=None, description="Minutes of the first attempt; each retry doubles them."
    )
    cpus: PositiveWhole | None = Field(
        default=None, description="CPUs. Default: the threads of a run."
    )

    def over(self, other: "Resources") -> "Resources":
        """These resources, with ``other``'s values where these are None."""
        return other.model_copy(update=self.model_dump(exclude_none=True))


class Config(Typed):
    """config/config.yaml."""

    scale: Scale = Field(
        default="demo",
        description="Which settings and seeds run: demo (minutes), compact (a night), paper (as "
        "published).",
    )
    seeds: Seeds = Field(
        default=Seeds(), description="The seeds of each scale, unless an experiment has its own."
    )
    device: Device = Field(
        default="cpu", description="Where runs compute: cpu, cuda (a free GPU), or cuda:1."
    )
    runs_per_gpu: PositiveWhole = Field(
        default=1,
        description="Runs that compute on a GPU at the same time; more pays for small models only.",
    )
    threads: Threads = Field(default=1, description="CPU threads of one run.")
    executor: Executor = Field(
        default="auto",
        description="How a round's clients are computed: "
        f"{', '.join(f'{facts.words} ({name})' for name, facts in FACTS.items())}. "
        "auto chooses by model, method and data.",
    )
    checkpoint_every: PositiveWhole = Field(default=10, description="Rounds between checkpoints.")
    track: Literal["tensorboard", "mlflow"] | None = Field(
        default=None, description="Tracker that receives a run's metrics; not part of the run."
    )
    average_across: bool = Field(
        default=False,
        description="Whether tables average runs of different architectures (x86_64, aarch64) or "
        "minor versions of PyTorch.",
    )
    data: DataSources = Field(default=DataSources(), description="Where data lie on this machine.")
    plugins: PluginFolders = Field(
        default=PluginFolders(), description="Folders of your own methods, models and so on."
    )
    resources: Resources = Field(
        default=Resources(),
        description="What runs request from a cluster, unless their setting says otherwise.",
    )


class Overrides(Typed):
    """Values of config.yaml that a command can override.

    Attributes:
        scale: demo, compact or paper.
        device: cpu, cuda or cuda:<number>.
        executor: how a round's clients are computed.
    """

    scale: Scale | None = None
    device: Device | None = None
    executor: Executor | None = None
