"""Models of config/config.yaml."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fedrepro.config.values import Device, ExecutorName, NonNegativeWhole, Scale, Threads
from fedrepro.engine.executor_facts import FACTS
from fedrepro.support.errors import bad_value
from fedrepro.support.plugins import Folders
from fedrepro.support.typed_yaml import PositiveWhole, Seed, Typed, like


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
    """Where to find data.

    Attributes:
        archives: a folder of archives, searched before the network.
    """

    archives: Path | None = None


class PluginFolders(Typed):
    """Folders of plug-ins, relative to the workbench's root. A plug-in is named after its file.

    Attributes:
        methods: one dataclass with hooks per file.
        models: one function per file, named as the file.
        partitions: partition schemes: one class per file.
        measures: one class per file.
        losses: one function per file, named as the file.
        data: data sets: one function per file, named as the file.
    """

    methods: Path | None = None
    models: Path | None = None
    partitions: Path | None = None
    measures: Path | None = None
    losses: Path | None = None
    data: Path | None = None

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
    *like(
        r"^[A-Za-z0-9][A-Za-z0-9_.,-]*$", "a cluster's partition, or several, separated by ','", 80
    ),
]


class Resources(Typed):
    """What a run requests from a cluster. Not part of the run's identity.

    Attributes:
        partition: the cluster's partition. Default: the cluster's own.
        gpu: GPUs if the device is cuda. Default: 1.
        mem_mb: memory of the first attempt; each retry doubles it.
        runtime: minutes of the first attempt; each retry doubles them.
        cpus: CPUs. Default: the threads of a run.
    """

    partition: PartitionName | None = None
    gpu: NonNegativeWhole | None = None
    mem_mb: PositiveWhole | None = None
    runtime: PositiveWhole | None = None
    cpus: PositiveWhole | None = None

    def over(self, other: "Resources") -> "Resources":
        """These resources, with ``other``'s values where these are None."""
        return other.model_copy(update=self.model_dump(exclude_none=True))


class Config(Typed):
    """config/config.yaml.

    Attributes:
        scale: which settings and seeds run: demo (minutes), compact (a weekend), paper (as
            published).
        seeds: the seeds of each scale, unless an experiment has its own.
        device: where runs compute: cpu, cuda (a free GPU), or cuda:1.
        runs_per_gpu: runs that compute on a GPU at the same time; more pays for small models only.
        threads: CPU threads of one run.
        checkpoint_every: rounds between checkpoints.
        track: tracker that receives a run's metrics; not part of the run.
        average_across: whether tables average runs of different architectures (x86_64, aarch64) or
            minor versions of PyTorch.
        data: where data lie on this machine.
        plugins: folders of your own methods, models and so on.
        resources: what runs request from a cluster, unless their setting says otherwise.
    """

    scale: Scale = "demo"
    seeds: Seeds = Seeds()
    device: Device = "cpu"
    runs_per_gpu: PositiveWhole = 1
    threads: Threads = 1
    executor: ExecutorName = Field(
        default="auto",
        description="How a round's clients are computed: "
        f"{', '.join(f'{facts.words} ({name})' for name, facts in FACTS.items())}. "
        "auto chooses by model, method and data.",
    )
    checkpoint_every: PositiveWhole = 10
    track: Literal["tensorboard", "mlflow"] | None = None
    average_across: bool = False
    data: DataSources = DataSources()
    plugins: PluginFolders = PluginFolders()
    resources: Resources = Resources()


class Overrides(Typed):
    """Values of config.yaml that a command can override.

    Attributes:
        scale: demo, compact or paper.
        device: cpu, cuda or cuda:<number>.
        executor: how a round's clients are computed.
    """

    scale: Scale | None = None
    device: Device | None = None
    executor: ExecutorName | None = None
