"""Announce the disk space of models that a run keeps, before it starts."""

import shutil
from pathlib import Path
from typing import NamedTuple

import torch

from fedrepro.config.run_spec import RunSpec
from fedrepro.data.dataset import Dataset
from fedrepro.models import registry as models
from fedrepro.run.assembly import compose
from fedrepro.support.errors import UserError


class Kept(NamedTuple):
    """How many models are kept, after how many rounds, and the size of one in bytes."""

    models: int
    rounds: int
    each: int

    def refused_beyond(self, folder: Path) -> str:
        """A line about their size and the space on the disk of ``folder``.

        Raises:
            UserError: if there is not enough space.
        """
        free = shutil.disk_usage(folder).free
        total = self.models * self.each
        words = (
            f"keeps {self.models} models of {self.each / 1e6:.1f} MB, of {self.rounds} rounds: "
            f"{total / 1e6:,.0f} MB, with {free / 1e6:,.0f} MB free"
        )
        if total > free:
            raise UserError(f"{words}: free disk space, or list fewer rounds in `keep`")
        return words


def disk_of_kept(spec: RunSpec, dataset: Dataset, clients: int) -> Kept:
    """What ``keep`` in the run's setting amounts to: a round's clients, and the server's model."""
    rounds = set(spec.setting.keep.get(spec.method, ()))
    if not rounds:
        return Kept(0, 0, 0)
    method, _ = compose(spec)
    outputs = method.outputs or dataset.outputs
    with torch.device("meta"):  # shapes only
        model = models.build(spec.setting.model, dataset.shapes, outputs, folders=spec.plugins)
    leaves = [*model.parameters(), *model.buffers()]
    each = sum(leaf.numel() * leaf.element_size() for leaf in leaves if leaf.is_floating_point())
    cohort = max(1, int(spec.setting.participation * clients + 1e-9))
    return Kept(len(rounds) * (cohort + 1), len(rounds), each)
