"""The resolved specification of one run: setting, method and seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Union

from fedrepro.config.settings import ArtifactFromData, ArtifactFromFile, Setting
from fedrepro.config.targets import RunKey
from fedrepro.config.values import ExecutorName, Hyperparameters
from fedrepro.data.catalogue.catalogue import Weights
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.support import checksummed_json
from fedrepro.support.plugins import NONE, Folders


@dataclass(frozen=True)
class Execution:
    """How a run is executed.

    Only the class of arithmetic that follows from it (:mod:`fedrepro.provenance.arithmetic`) is
    part of a run's identity.

    Attributes:
        device: "cpu", "cuda" or "cuda:<number>".
        threads: CPU threads.
        checkpoint_every: rounds between checkpoints.
    """

    executor: ExecutorName = "auto"
    device: str = "cpu"
    threads: int = 1
    checkpoint_every: int = 10


# The sources of a run's inputs.
ResolvedSource = Union[Literal["server"], ArtifactFromFile, ArtifactFromData, "RunSpec"]


@dataclass(frozen=True)
class RunSpec:
    """The complete specification of a run.

    Attributes:
        method: the method's name in the run's path.
        composition: the parts of ``method``, joined by "+": a variant, which is an entry of
            ``methods:`` with other hyperparameters, is replaced by the parts that it is made of.
        hyperparameters: of each part, by the part's name without ``@released``.
        inputs: the sources of the method's inputs, by the names in its ``requires``.
        weights: name and catalogue entry of the pretrained weights of the model, if any.
        plugins: the folders of plug-ins. Their code identifies the run, not their paths.
        data_size: the size of its data set, as the catalogue states it.
    """

    setting: Setting
    method: str
    composition: str
    hyperparameters: Mapping[str, Hyperparameters]
    seed: int
    execution: Execution = Execution()
    weights: tuple[str, Weights] | None = None
    inputs: Mapping[str, ResolvedSource] = field(default_factory=dict)
    plugins: Folders = NONE
    data_size: DataSize | None = None

    @property
    def key(self) -> RunKey:
        return RunKey(self.setting.name, self.method, self.seed)

    @property
    def inputs_that_saw_held_out(self) -> list[str]:
        """The inputs trained on samples that the run's clients hold out for validation or testing.

        An input that clients trained has not seen them if its run has the same partition.
        """
        return [need for need, source in self.inputs.items() if self._saw(source)]

    def _saw(self, source: "ResolvedSource") -> bool:
        if not isinstance(source, RunSpec):
            return False
        if any(map(self._saw, source.inputs.values())):
            return True
        if source.setting.partition.scheme == "at_server":
            return False
        its_partition = source.setting.partition_path(source.seed)
        return its_partition != self.setting.partition_path(self.seed)

    @cached_property
    def digest(self) -> str:
        """The hash of :meth:`description`."""
        return checksummed_json.digest_of(self.description())

    def description(self) -> dict[str, Any]:
        """The run's configuration as plain JSON: a part of its identity, and in its manifest.

        It leaves out how the run is executed, and :func:`fedrepro.support.typed_yaml.later` keys at
        their defaults, so that adding such a key does not invalidate older runs. Of its setting's
        ``inputs`` and ``save_models_at``, it has the entries of its method, under the names that
        these keys had first, ``given`` and ``keep``. Weights appear as their SHA-256, if any.
        """
        inputs = {name: _described(source) for name, source in self.inputs.items()}
        saved = self.setting.save_models_at.get(self.method)
        separate = {"extends", "methods", "inputs", "save_models_at"}
        weights = {"weights": self.weights[1].sha256} if self.weights else {}
        return {
            "setting": self.setting.name,
            "method": self.method,
            "composition": self.composition,
            "hyperparameters": {part: {**values} for part, values in self.hyperparameters.items()},
            "seed": self.seed,
            **self.setting.model_dump(mode="json", exclude=separate),
            **({"given": inputs} if inputs else {}),
            **({"keep": sorted(saved)} if saved else {}),
            **weights,
        }


def _described(source: ResolvedSource) -> str:
    match source:
        case RunSpec():
            return f"run {source.digest}"
        case ArtifactFromFile():
            return f"file {source.sha256}"
        case ArtifactFromData():
            return f"data {source.dataset} share {source.share!r}".removesuffix(".0")
    return source
