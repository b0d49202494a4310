"""Load finished runs, by folder or by setting, method and seed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
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
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    architecture: "Architecture | None" = field(default=None, repr=False)
    plugins: Folders = field(default=NONE, repr=False)

    @property
    def method(self) -> str:
        return str(self.manifest["run"]["method"])

    @property
    def seed(self) -> int:
        return int(self.manifest["run"]["seed"])

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """A row for each evaluated round: round, test_accuracy (a fraction), test_loss, ..."""
        return _table(self.folder / "rounds.parquet")

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """A row for each evaluated round and client: round, client, train_samples, ..."""
        return _table(self.folder / "clients.parquet")

    @cached_property
    def model(self) -> "nn.Module":
        """The trained shared model, in evaluation mode.

        Raises:
            UserError: if the method has no shared model, or the model's name is unknown.
        """
        from fedrepro.models import registry
        from fedrepro.run.given import MODEL
        from fedrepro.run.store import load_tree

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


def _table(path: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_parquet(path)


def load(
    what: str | Path, method: str | None = None, seed: int | None = None, root: str | Path = "."
) -> Run:
    """Load a finished run, by its folder or by a workbench's setting, method and seed.

    Args:
        what: a folder with a manifest.json, or the name of a setting such as "mine/skewed".
        method: a composition; None if ``what`` is a folder.
        seed: None for 1.
        root: the workbench's folder. If it lacks the run, a committed reference result is used.

    Raises:
        UserError: if the run does not exist, or its files do not match its manifest.
    """
    from fedrepro.run.results import changed_files, read_run

    plugins = NONE
    if method is None:
        folder = Path(what)
        manifest = _manifest(folder)
    else:
        from fedrepro.config.loading import load as load_workbench
        from fedrepro.config.targets import RunKey as Named

        bench = load_workbench(Path(root))
        plugins = bench.plugins
        named = Named(bench.setting(str(what)).name, method, 1 if seed is None else seed)
        found = [read_run(Path(root), named, reference) for reference in (False, True)]
        record = next((each for each in found if each.manifest), found[0])
        if not record.manifest:
            raise UserError(
                f"{record.folder}: {record.why}: run `fedrepro run {named.setting} {named.method} "
                f"--seed {named.seed}`"
            )
        folder, manifest = Path(root) / record.folder, dict(record.manifest)
    wrong = next(changed_files(folder, manifest, ".parquet"), None)
    if wrong:
        raise UserError(f"{folder}: damaged: {wrong}")
    return Run(folder, manifest, plugins=plugins)


def _manifest(folder: Path) -> dict[str, Any]:
    import json

    from fedrepro.run.results import fault_of

    path = folder / "manifest.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not the manifest of a finished run: {error}") from None
    if fault := fault_of(found, {}):
        raise UserError(f"{folder}/{fault}")
    return found
