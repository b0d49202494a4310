"""Finished runs, by their folder or by what a workbench calls them."""

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
    """A finished run, read from its folder when it is looked at.

    Attributes:
        folder: with manifest.json, rounds.parquet, clients.parquet, model.safetensors.
        manifest: what it says of itself: configuration, code, machine, hashes of its files.
        architecture: of a model that was given as an object; None: found by its name.
        own: where models of one's own are sought.
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
        """The trained shared model, in its testing mode.

        Raises:
            UserError: for a method that leaves something else, or a model that is not known here.
        """
        from fedrepro.models import registry
        from fedrepro.run.given import MODEL
        from fedrepro.run.store import load_tree

        tensors, facts = load_tree(self.folder / MODEL)
        if facts.get("part") != "" or facts["clients"] is not None:
            raise UserError(f"{self.folder}: {self.method} leaves no shared model")
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
    """A finished run: of a folder, or of a workbench's setting, a method and a seed.

    Args:
        what: a folder with a manifest.json, or the name of a setting such as "mine/skewed".
        root: the workbench; where its own run is missing, a committed reference result is taken.

    Raises:
        UserError: when there is none, or its files are not what its manifest says.
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
                f"{record.folder}: {record.why}: `fedrepro run {named.setting} {named.method} "
                f"--seed {named.seed}` makes it"
            )
        folder, manifest = Path(root) / record.folder, dict(record.manifest)
    wrong = next(changed_files(folder, manifest, ".parquet"), None)
    if wrong:
        raise UserError(f"{folder}: damaged: {wrong}")
    return Run(folder, manifest, plugins=plugins)


def _manifest(folder: Path) -> dict[str, Any]:
    import json

    path = folder / "manifest.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not the manifest of a finished run: {error}") from None
    return found
