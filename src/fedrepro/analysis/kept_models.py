"""The models that a finished run kept, and its test samples."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.analysis.finished import Finished, open_run
from fedrepro.analysis.landscape import average_of, require_same_shape
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.methods.facts import late_wrapper_of
from fedrepro.run.store import load_tree
from fedrepro.support.errors import bad_value, damaged, refusal
from fedrepro.support.files import sha256_of
from fedrepro.support.rng import stream

KEPT = re.compile(r"round(\d+)-(?:client(\d+)|(global))\.safetensors")
MODEL = re.compile(r"(\d+)(?:\.(average|client\d+|\d+))?")
WORDS = (
    "a round such as 400 (its global model), 400.average (of its clients), 400.client17, 400.1 "
    "(the first of its clients), last, or a file that ends with .safetensors"
)


@dataclass(frozen=True)
class KeptModel:
    """A model and its name in a figure.

    Attributes:
        round: the round after which it was kept; 0 for any other model.
        client: its client; None for the server's model or a mean.
    """

    name: str
    params: Tree
    round: int = 0
    client: int | None = None


class KeptModels(Finished):
    """A finished run and its kept models."""

    @cached_property
    def clients(self) -> Mapping[int, tuple[int, ...]]:
        """Each round -> the clients whose models were kept after it, in order."""
        by_round: dict[int, list[int]] = {}
        for name in self.record.manifest["files"]:
            kept = KEPT.fullmatch(name)
            if kept and kept[2]:
                by_round.setdefault(int(kept[1]), []).append(int(kept[2]))
        return {number: tuple(sorted(by_round[number])) for number in sorted(by_round)}

    @property
    def wrapper(self) -> str:
        """The wrapper that replaces the server's models from some round on, or ""."""
        return late_wrapper_of(self.spec.composition, self.spec.plugins)

    def shares(self, clients: Sequence[int]) -> Tensor:
        """The clients' n_k over their sum, float64 [clients]."""
        sizes = torch.tensor([self.plan.client_sizes[client] for client in clients])
        return sizes.double() / sizes.sum()

    def require_kept(self) -> None:
        """Raises UserError, with how to keep models, if the run kept none."""
        if not self.clients:
            run = self.run
            why = (
                f"it kept no models: expected `save_models_at: {{ {run.method}: [ROUND, ...] }}` "
                f"in the setting {run.setting}, then {run.command}"
            )
            raise refusal(run.folder, why, "save_models_at", code="missing")

    def client(self, number: int, client: int) -> KeptModel:
        """A client's kept model after round ``number``."""
        params = self._load(f"round{number}-client{client}.safetensors")
        return KeptModel(f"client {client}", params, number, client)

    def model(self, word: str) -> KeptModel:
        """The model that a command-line argument names.

        Raises:
            UserError: for an unknown word, or a model that was not kept.
        """
        if word == "last":
            return KeptModel("last", self.shared_model)
        if word.endswith(".safetensors"):
            return self._from_file(Path(word))
        match = MODEL.fullmatch(word)
        if not match:
            raise bad_value("landscape", "model", word, WORDS, ["last"])
        self.require_kept()
        number, which = int(match[1]), match[2]
        if number not in self.clients:
            rounds = ", ".join(map(str, self.clients))
            raise bad_value("landscape", "model", word, f"a round that was kept: {rounds}")
        if which is None:
            if f"round{number}-global.safetensors" not in self.record.manifest["files"]:
                wanted = f"{number}.average or the like, as the run has no global model"
                raise bad_value("landscape", "model", word, wanted)
            name = f"{self.wrapper.upper() or 'global'}, round {number}"
            return KeptModel(name, self._load(f"round{number}-global.safetensors"), number)
        clients = self.clients[number]
        if which == "average":
            models = [self.client(number, client).params for client in clients]
            average = average_of(models, self.shares(clients))
            return KeptModel(f"average, round {number}", average, number)
        if which.startswith("client"):
            client = int(which.removeprefix("client"))
            if client not in clients:
                who = ", ".join(map(str, clients))
                wanted = f"one of round {number}'s clients: {who}"
                raise bad_value("landscape", "model", word, wanted)
            return self.client(number, client)
        if not 1 <= int(which) <= len(clients):
            most = len(clients)
            wanted = f"a number from 1 to {most}, as round {number} has {most} clients"
            raise bad_value("landscape", "model", word, wanted)
        return self.client(number, clients[int(which) - 1])

    def samples(self, most: int) -> tuple[Tensor, Tensor]:
        """At most ``samples`` test samples: inputs and targets.

        The choice depends on their number only, so all runs share it.
        """
        every = self.tested_on
        order = torch.randperm(len(every), generator=stream(0, "samples of an analysis"))
        return every.at(order[:most].to(every.y.device))

    def classes_of(self, client: int) -> NDArray[np.int64]:
        """The classes that a client trains on."""
        counts: NDArray[np.int64] = np.flatnonzero(self.partition.train_counts[client])
        return counts

    def _load(self, name: str) -> Tree:
        path = self.run.folder / name
        if sha256_of(self.record.root / path) != self.record.manifest["files"][name]:
            raise damaged(path, "it is not what its manifest says; run it again")
        return self._on_device(load_tree(self.record.root / path)[0])

    def _from_file(self, path: Path) -> KeptModel:
        if not (self.record.root / path).is_file():
            raise bad_value("landscape", "model", str(path), "an existing file")
        params = self._on_device(load_tree(self.record.root / path)[0])
        require_same_shape([self.shared_model, params])
        return KeptModel(str(path.parent.parent.name or path.stem), params)

    def _on_device(self, params: Tree) -> Tree:
        device = self.plan.federation.context.net.device
        return tree.apply(lambda leaf: leaf.to(device), params)


def open_kept(workbench: Workbench, run: RunKey) -> KeptModels:
    """The models of a finished run.

    Raises:
        UserError: if the run, its data or its partition is missing or has changed.
    """
    return KeptModels(**vars(open_run(workbench, run)))
