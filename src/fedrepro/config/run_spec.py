"""One run, setting x method x seed, with everything resolved."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Union

from fedrepro.config.settings import Setting
from fedrepro.config.values import Executor, Hyperparameters
from fedrepro.data.catalogue.weights import Weights
from fedrepro.support.plugins import NONE, Folders


@dataclass(frozen=True)
class Execution:
    """How a run is executed, which makes it no other run: its bits may differ, not its meaning.

    Attributes:
        device: "cpu", "cuda" or "cuda:<number>".
        threads: CPU threads.
        checkpoint_every: rounds between checkpoints.
    """

    executor: Executor = "auto"
    device: str = "cpu"
    threads: int = 1
    checkpoint_every: int = 10


@dataclass(frozen=True)
class ResolvedFile:
    """A file that a run is given, relative to the working directory; None: not known yet."""

    file: Path
    sha256: str | None


@dataclass(frozen=True)
class ResolvedData:
    """Samples of another data set that a run is given: a share of each class."""

    dataset: str
    share: float


# What a run can be given.
ResolvedSource = Union[Literal["server"], ResolvedFile, ResolvedData, "RunSpec"]


@dataclass(frozen=True)
class RunSpec:
    """What is trained on what, and how.

    Attributes:
        method: the name that the run is filed under.
        composition: ``method`` with variants replaced by the parts that they use.
        hyperparameters: of each part, by the part's name without ``@released``.
        given: where what the method needs comes from, by the names in its ``needs``.
        weights: name and entry of those, learned elsewhere, that the model starts from, if any.
        own: where methods and models of one's own are sought: their code counts, not the place.
    """

    setting: Setting
    method: str
    composition: str
    hyperparameters: Mapping[str, Hyperparameters]
    seed: int
    execution: Execution = Execution()
    weights: tuple[str, Weights] | None = None
    given: Mapping[str, ResolvedSource] = field(default_factory=dict)
    plugins: Folders = NONE

    @cached_property
    def digest(self) -> str:
        """The hash of :meth:`description`."""
        text = json.dumps(self.description(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def description(self) -> dict[str, Any]:
        """What the run is, as plain JSON: what its manifest holds and its identity is made of.

        How it is executed is no part of it, nor is a :func:`fedrepro.config.settings.later` key
        at its default, so that runs from before there was such a key stay the same. Of what its
        setting gives and keeps, it has what concerns its method. Weights are named by their
        SHA-256; where a model starts from none, there is no such key.
        """
        given = {name: _described(source) for name, source in self.given.items()}
        keep = self.setting.keep.get(self.method)
        weights = {"weights": self.weights[1].sha256} if self.weights else {}
        return {
            "setting": self.setting.name,
            "method": self.method,
            "composition": self.composition,
            "hyperparameters": {part: {**values} for part, values in self.hyperparameters.items()},
            "seed": self.seed,
            **self.setting.model_dump(mode="json", exclude={"extends", "methods", "given", "keep"}),
            **({"given": given} if given else {}),
            **({"keep": sorted(keep)} if keep else {}),
            **weights,
        }


def _described(source: ResolvedSource) -> str:
    match source:
        case RunSpec():
            return f"run {source.digest}"
        case ResolvedFile():
            return f"file {source.sha256}"
        case ResolvedData():
            return f"data {source.dataset} share {source.share:g}"
    return source
