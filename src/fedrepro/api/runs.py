"""Load finished runs, by folder or by setting, method and seed."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.support.errors import UserError
from fedrepro.support.plugins import NONE, Folders

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

Architecture = Callable[[tuple[int, ...], int], "nn.Module"]


@dataclass(frozen=True)
class Run:
    """A finished run; its files are read on access.

    Attributes:
        folder: contains manifest.json, rounds.parquet, clients.parquet, model.safetensors.
        manifest: configuration, code, machine, and hashes of its files.
        architecture: builds the model, if it was passed as an object; None to find it by name.
        plugins: the folders of plug-ins, for models found by name.
        landed: the tables of a landed result of scale compact, by file: its folder has those of all
            runs of the setting. None for another run.
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    architecture: "Architecture | None" = field(default=None, repr=False)
    plugins: Folders = field(default=NONE, repr=False)
    landed: Mapping[str, Mapping[str, Sequence[Any]]] | None = field(default=None, repr=False)

    @property
    def setting(self) -> str:
        return str(self.manifest["run"]["setting"])

    @property
    def method(self) -> str:
        return str(self.manifest["run"]["method"])

    @property
    def seed(self) -> int:
        return int(self.manifest["run"]["seed"])

    @property
    def diverged_at(self) -> int | None:
        """The round in which the loss was no longer finite, and the run ended; None if it was."""
        found = self.manifest.get("diverged_at")
        return None if found is None else int(found)

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """A row for each evaluated round: round, test_accuracy (a fraction), test_loss, ..."""
        return self._table("rounds.parquet")

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """A row for each evaluated round and client: round, client, train_samples, ..."""
        return self._table("clients.parquet")

    def _table(self, name: str) -> "pd.DataFrame":
        import pandas as pd

        if self.landed is not None:
            return pd.DataFrame(self.landed.get(name, {}))
        return pd.read_parquet(self.folder / name)

    @cached_property
    def model(self) -> "nn.Module":
        """The trained shared model, in evaluation mode.

        Raises:
            UserError: if the method has no shared model, the model's name is unknown, or its file
                has changed; and for a landed result, which keeps none.
        """
        from fedrepro.models import registry
        from fedrepro.run.given import MODEL
        from fedrepro.run.results import changed_files
        from fedrepro.run.store import load_tree

        if self.landed is not None:
            raise UserError(f"{self.folder}: models of landed results are not kept")
        if wrong := next(changed_files(self.folder, self.manifest, MODEL), None):
            raise UserError(f"{self.folder}: damaged: {wrong}")
        tensors, facts = load_tree(self.folder / MODEL)
        if facts.get("part") != "" or facts["clients"] is not None:
            raise UserError(f"{self.folder}: {self.method} has no shared model")
        shape, outputs = tuple(facts["input_shape"]), int(facts["outputs"])
        build = self.architecture
        if build:
            module = build(shape, outputs)
        else:
            module = registry.build(facts["model"], shape, outputs, folders=self.plugins)
        module.load_state_dict(tensors, strict=False)
        return module.eval()

    def _repr_html_(self) -> str:  # Jupyter calls this
        """Method, setting, seed and final accuracy, below a small learning curve."""
        from fedrepro.api import comparing

        about = f"<b>{escape(self.method)}</b>, {escape(self.setting)}, seed {self.seed}"
        if self.diverged_at is not None:
            about += f", diverged in round {self.diverged_at}"
        try:
            svg, end = comparing.sketch(self)
        except (UserError, OSError):  # no accuracy, or the files are gone
            return f"<p>{about}</p>"
        return f"<figure>{svg}<figcaption>{about}: {escape(end)}</figcaption></figure>"


def load(
    what: str | Path, method: str | None = None, seed: int | None = None, root: str | Path = "."
) -> Run:
    """Load a finished run, by its folder or by a workbench's setting, method and seed.

    Args:
        what: a folder with a manifest.json, or the name of a setting such as "mine/skewed".
        method: a composition; None if ``what`` is a folder.
        seed: None for 1.
        root: the workbench's folder. If it lacks the run, a committed reference result is used, or
            the landed one of scale compact.

    Raises:
        UserError: if the run does not exist or is another one, or if its files have changed.

    Warns:
        UserWarning: if the run is not of today's configuration or code.
    """
    from fedrepro.run.replayed import not_of_today
    from fedrepro.run.results import find_run, read_any

    plugins, other = NONE, ""
    if method is None:
        folder = Path(what)
        record = read_any(Path(), folder)
        if not record.manifest:
            raise UserError(f"{folder}: not the folder of a finished run: {record.why}")
    else:
        from fedrepro.config.loading import load as load_workbench
        from fedrepro.config.targets import RunKey as Named

        bench = load_workbench(Path(root))
        plugins = bench.plugins
        named = Named(bench.setting(str(what)).name, method, 1 if seed is None else int(seed))
        record = find_run(Path(root), named)
        if not record.manifest:
            raise UserError(
                f"{record.folder}: {record.why}: run `fedrepro run {named.setting} {named.method} "
                f"--seed {named.seed}`"
            )
        folder = Path(root) / record.folder
        if record.state != "damaged":
            today = bench.run_spec(named.setting, named.method, named.seed)
            other = not_of_today(record, today)
    if record.state == "damaged":
        raise UserError(f"{folder}: {record.why}")
    if other:
        warnings.warn(f"{folder}: {other}", stacklevel=2)
    landed = record.packed.tables if record.packed else None
    return Run(folder, dict(record.manifest), plugins=plugins, landed=landed)
