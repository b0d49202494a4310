"""Load runs, by folder or by setting, method and seed."""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.config.loading import load as load_workbench
from fedrepro.config.targets import RunKey
from fedrepro.provenance.identity import in_words
from fedrepro.run.results import find_run, partial_of, read_any, read_run
from fedrepro.run.standing import of_another
from fedrepro.support.errors import UserError, bad_value, damaged, reading, refusal
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.typed_yaml import Seed, Typed, validate

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

Architecture = Callable[[Any, int], "nn.Module"]  # (shape of a sample, outputs) -> a model


@dataclass(frozen=True)
class Run:
    """A finished run, whose files are read on access, or an unfinished one.

    Each access of a table gives a copy. The model is one object: to train several from it, copy it.

    Attributes:
        folder: contains manifest.json, rounds.parquet, clients.parquet, model.safetensors; of an
            unfinished run, its checkpoints.
        manifest: configuration, code, machine, and hashes of its files; of an unfinished run, only
            ``run`` with its setting, method and seed, and ``rounds_done``.
        architecture: builds the model, if it was passed as an object; None to find it by name.
        plugins: the folders of plug-ins, for models found by name.
        tables: rounds and clients by file, of an unfinished run, or of a landed result of scale
            compact, whose folder has those of all runs of its setting; None to read the files.
        finished: whether it has ended; otherwise its last round is not the last.

    Examples:
        With the ``clients`` of :func:`fedrepro.train`'s example:

        >>> import fedrepro as fr
        >>> run = fr.train("fedavg", "logistic", clients, rounds=4, test=(x, y))
        >>> run.method, run.seed, run.rounds["round"].tolist()
        ('fedavg', 1, [1, 2, 3, 4])
        >>> run.model(torch.eye(3)).shape
        torch.Size([3, 3])
    """

    folder: Path
    manifest: dict[str, Any]
    architecture: "Architecture | None" = None
    plugins: Folders = NONE
    tables: Mapping[str, Mapping[str, Sequence[Any]]] | None = None
    finished: bool = True

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
        round = self.manifest.get("diverged_at")
        return None if round is None else int(round)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process gets, and a copy: a temporary folder is of one object.

        Its files may be gone, so tables come along. What the program gave as objects does not:
        they may be of no module, or of one that the other process lacks.
        """
        read = {name: self._table(name) for name in ("rounds.parquet", "clients.parquet")}
        kept = {name: part for name, part in vars(self).items() if name != "model"}
        kept |= {"_read": read, "higher_is_better": self.higher_is_better}
        if any(kind == "methods" for kind, *_ in self.plugins.objects):
            kept["kept_by_clients"] = self.kept_by_clients
        return kept | {"architecture": None, "plugins": replace(self.plugins, objects=())}

    @property
    def rounds(self) -> "pd.DataFrame":
        """A row for each evaluated round: round, test_accuracy (a fraction), test_loss, ...

        With ``test``, accuracy, loss, AUROC and errors of numbers in ``test_`` columns are of the
        shared model on it. Without it or without a shared model, and of all other scores, they are
        over all samples that clients hold out, each scored by its client's model; ``client_``
        columns are the plain means over clients. docs/measures.md lists all columns.
        """
        return self._table("rounds.parquet")

    @property
    def clients(self) -> "pd.DataFrame":
        """A row for each evaluated round and client: round, client, train_samples, ...

        A client's scores are those of its own model, where the method gives it one. These models
        are not kept after the run.
        """
        return self._table("clients.parquet")

    @cached_property
    def higher_is_better(self) -> dict[str, bool]:
        """By name of a measure that the program gave: True where more of it is better."""
        given = self.plugins.objects
        return {name: each.higher_is_better for kind, name, each in given if kind == "measures"}

    @cached_property
    def kept_by_clients(self) -> str:
        """How much of the model each client keeps: "all", "part" or ""."""
        from fedrepro.api.stored_model import kept_by_clients  # which imports PyTorch

        return kept_by_clients(self.manifest, self.plugins)

    @cached_property
    def _read(self) -> "dict[str, pd.DataFrame]":
        """The tables that were read, by file: they stay, whatever becomes of the files."""
        return {}

    def _table(self, name: str) -> "pd.DataFrame":
        """A copy of a table, as its user may change it."""
        import pandas as pd

        if self.tables is not None:
            return pd.DataFrame(self.tables.get(name, {}))
        if name not in self._read:
            self._read[name] = pd.read_parquet(BytesIO(self._content(name)))
        return self._read[name].copy()

    def _content(self, name: str) -> bytes:
        """A file's bytes, if they are still those of this result.

        Raises:
            UserError: if the file is missing or another one: a later run may have replaced it.
        """
        with reading(self.folder / name, OSError):
            content = (self.folder / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.manifest["files"].get(name):
            why = "differs from the hash in its manifest, or another run has replaced this one"
            raise damaged(self.folder, f"{name} {why}: load it again")
        return content

    @cached_property
    def model(self) -> "nn.Module":
        """The trained shared model, in evaluation mode: the same object at each access.

        What training cannot change is not in the file: the model is built as it was. Inputs must be
        as in training: bytes divided by 255 and, where ``manifest["data"]`` states a mean and std,
        standardised by them. A part that each client keeps has its initial values, with a warning.

        Raises:
            UserError: if clients share no model, the model's name is unknown, or its file
                has changed; for an unfinished run; and for a landed result, which keeps none.
        """
        if not self.finished:
            raise refusal(self.folder, "unfinished: it has no model yet", code="missing")
        if self.tables is not None:
            raise refusal(self.folder, "models of landed results are not kept", code="missing")
        from fedrepro.api.stored_model import MODEL, read_model  # which import PyTorch

        self._content(MODEL)
        return read_model(self)

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        if self.diverged_at is not None:
            state += f", diverged in round {self.diverged_at}"
        return f"<Run: {self.setting} {self.method} seed {self.seed}{state}, in {self.folder}>"

    def _repr_html_(self) -> str:  # Jupyter calls this
        """Method, setting, seed and final accuracy, below a small learning curve."""
        from fedrepro.api import charts  # which imports what pages need

        about = f"<b>{escape(self.method)}</b>, {escape(self.setting)}, seed {self.seed}"
        if self.diverged_at is not None:
            about += f", diverged in round {self.diverged_at}"
        if not self.finished:
            about += ", unfinished"
        try:
            svg, end = charts.sketch(self)
        except (UserError, OSError):  # no accuracy, or the files are gone
            return f"<p>{about}</p>"
        return f"<figure>{svg}<figcaption>{about}: {escape(end)}</figcaption></figure>"


def place_of(
    path: str | Path,
    where: str = "fedrepro.train",
    key: str = "folder",
    expected: str = "the path of a folder that is the run's own, or None",
    named: bool = True,
) -> Path:
    """A path in full: the program may go to another folder, and ~ is the user's.

    Args:
        named: whether it must have a name, which the root of all folders has not.

    Raises:
        UserError: for what is no path, which names ``where``, ``key`` and what was ``expected``.
    """
    if isinstance(path, str | PathLike) and path != "":
        # Of bytes, a NUL, an unknown user, and a working folder that was removed.
        with suppress(TypeError, ValueError, RuntimeError, FileNotFoundError):
            full = Path(path).expanduser().absolute()
            if (full.name or not named) and b"\0" not in os.fsencode(full) and str(full).encode():
                return full
    raise bad_value(where, key, path, expected)


class _Named(Typed):
    """The names of a run of a setting."""

    method: str
    seed: Seed


def _as_int(seed: Any) -> Any:
    """Return an int for a whole number of another type, such as a float of a table's row."""
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(seed, bool | str) and int(seed) == seed:
            return int(seed)
    return seed


def load(
    what: str | Path, method: str | None = None, seed: int | None = None, root: str | Path = "."
) -> Run:
    """Load a run, by its folder or by a workbench's setting, method and seed.

    Of a run that is under way or broke off, it gives the rounds up to the last checkpoint.

    Args:
        what: a finished run's folder, or the name of a setting such as "mine/skewed".
        method: a composition; None if ``what`` is a folder.
        seed: None for 1; beside a folder, its own or None.
        root: the workbench's folder. If it lacks the run, a committed reference result is used, or
            the landed one of scale compact.

    Raises:
        UserError: if the run does not exist or is another one, or if its files have changed.

    Warns:
        UserWarning: if the run is unfinished, if a reference result stands in for one that has
            saved no round yet, or if it is not of today's configuration or code.

    Examples:
        With the ``clients`` of :func:`fedrepro.train`'s example:

        >>> import fedrepro as fr
        >>> run = fr.train("fedavg", "logistic", clients, rounds=2, test=(x, y), folder="kept")
        >>> again = fr.load("kept")
        >>> again.rounds.equals(run.rounds)
        True
    """
    plugins, differences = NONE, ""
    if method is None:
        expected = "the folder of a finished run, or the name of a setting and then a method"
        folder = place_of(what, "fedrepro.load", "what", expected)
        record = read_any(Path(), folder)
        if not record.manifest:
            begun = partial_of(folder).exists()
            why = "unfinished: load it by setting, method and seed" if begun else record.why
            raise refusal(folder, f"not the folder of a finished run: {why}")
        if _as_int(seed) not in (None, its := record.manifest["run"]["seed"]):
            raise bad_value("fedrepro.load", "seed", seed, f"none, or {its}, the folder's")
    else:
        root = place_of(root, "fedrepro.load", "root", "a folder", named=False)
        bench = load_workbench(root)
        plugins = bench.plugins
        number = 1 if seed is None else _as_int(seed)
        asked = validate(_Named, {"method": method, "seed": number}, "fedrepro.load")
        named = RunKey(bench.setting(str(what)).name, asked.method, asked.seed)
        here, record = read_run(root, named), find_run(root, named)
        partial = partial_of(root / named.folder)
        so_far = None
        if not here.manifest and here.state != "damaged" and partial.exists():
            from fedrepro.run import checkpoint  # which imports PyTorch

            so_far = checkpoint.so_far(partial)
        if so_far:
            if made_with := so_far.identity_keys:
                differences = in_words(of_another(bench, replace(here, manifest=made_with)))
            wanted = (
                made_with["run"]["rounds"] if made_with else bench.spec_of(named).setting.rounds
            )
            why = "; ".join(filter(None, (here.why, differences)))
            rounds = f"{so_far.done} of {wanted} rounds"
            warnings.warn(f"{partial}: unfinished, {rounds} so far: {why}", stacklevel=2)
            about = {"run": asdict(named), "rounds_done": so_far.done}
            tables = {"rounds.parquet": so_far.rounds, "clients.parquet": so_far.clients}
            return Run(partial, about, plugins=plugins, tables=tables, finished=False)
        if not record.manifest:
            from fedrepro.run.assembly import method_of  # which imports PyTorch

            method_of(bench.spec_of(named))  # refuses a name that no command could run either
            code = "damaged" if record.state == "damaged" else "missing"
            raise refusal(record.folder, f"{record.why}: run `{named.command}`", code=code)
        folder = root / record.folder
        if record.state != "damaged":
            differences = in_words(of_another(bench, record))
            if record.reference and here.state != "not run":
                stands_in = f"a reference result, because the run of this machine is {here.why}"
                differences = "; ".join(filter(None, (stands_in, differences)))
    if record.state == "damaged":
        raise refusal(folder, record.why, code="damaged")
    if differences:
        warnings.warn(f"{folder}: {differences}", stacklevel=2)
    landed = record.landed.tables if record.landed else None
    return Run(folder, dict(record.manifest), plugins=plugins, tables=landed)
