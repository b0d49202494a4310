"""Announce the disk space of models that a run keeps, before it starts."""

import shutil
from pathlib import Path

from fedrepro.config.partition_sizes import cohort_size
from fedrepro.config.run_spec import RunSpec
from fedrepro.data.dataset import Dataset
from fedrepro.models import registry as models
from fedrepro.run.assembly import method_of
from fedrepro.support.errors import refusal


def space_for_models(spec: RunSpec, dataset: Dataset, clients: int, folder: Path) -> str:
    """The size of the models that ``save_models_at`` asks for, in words; "" for none.

    Of each round they are those of its clients and the server's.

    Raises:
        UserError: if there is not enough space on the disk of ``folder``.
    """
    rounds = set(spec.setting.save_models_at.get(spec.method, ()))
    if not rounds:
        return ""
    method, _ = method_of(spec)
    outputs = method.outputs or dataset.outputs
    model = models.outline(spec.setting.model, dataset.shapes, outputs, spec.plugins)
    leaves = [*model.parameters(), *model.buffers()]
    size = sum(leaf.numel() * leaf.element_size() for leaf in leaves if leaf.is_floating_point())
    kept = len(rounds) * (cohort_size(spec.setting, clients) + 1)
    free = shutil.disk_usage(folder).free
    words = (
        f"keeps {kept} models of {size / 1e6:.1f} MB, of {len(rounds)} rounds: "
        f"{kept * size / 1e6:,.0f} MB, with {free / 1e6:,.0f} MB free"
    )
    if kept * size > free:
        why = f"{words}: free disk space, or list fewer rounds in `save_models_at`"
        raise refusal(spec.key.words, why, "save_models_at", sorted(rounds))
    return words
