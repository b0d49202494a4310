"""One run, setting x method x seed, with everything resolved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrepro.config.settings import Setting
from fedrepro.config.values import Executor, Hyperparameters
from fedrepro.data.catalogue.weights import Weights


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
class RunSpec:
    """What is trained on what, and how.

    Attributes:
        method: the name that the run is filed under.
        composition: ``method`` with variants replaced by the parts that they use.
        hyperparameters: of each part, by the part's name without ``@released``.
        weights: name and entry of those, learned elsewhere, that the model starts from, if any.
    """

    setting: Setting
    method: str
    composition: str
    hyperparameters: Mapping[str, Hyperparameters]
    seed: int
    execution: Execution = Execution()
    weights: tuple[str, Weights] | None = None

    def description(self) -> dict[str, Any]:
        """What the run is, as plain JSON: what its manifest holds and its identity is made of.

        How it is executed is no part of it, nor is a :func:`fedrepro.config.settings.later` key
        at its default, so that runs from before there was such a key stay the same. Weights are
        named by their SHA-256; where a model starts from none, there is no such key.
        """
        weights = {"weights": self.weights[1].sha256} if self.weights else {}
        return {
            "setting": self.setting.name,
            "method": self.method,
            "composition": self.composition,
            "hyperparameters": {part: {**values} for part, values in self.hyperparameters.items()},
            "seed": self.seed,
            **self.setting.model_dump(mode="json", exclude={"extends", "methods"}),
            **weights,
        }
