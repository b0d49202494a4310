"""Which measures there are: the package's, and one's own, which are found by their file's name."""

import inspect
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from fedrepro.measures import built_in
from fedrepro.measures.base import Measure, Per
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value


def _under(base: type[Measure]) -> dict[str, Measure]:
    return {cls.name: cls() for cls in base.__subclasses__() for cls in (cls, *cls.__subclasses__())
            if "name" in vars(cls)}  # fmt: skip


CLIENTS = _under(built_in.OfClient)
ROUNDS = _under(built_in.OfRound)
SETS = _under(built_in.OfSet)
# Columns that clients.parquet and rounds.parquet have beside measures.
TAKEN = {
    "round", "client", "train_samples", "test_samples", "participations", "update_norm",
    "learning_rate", "bytes_down", "bytes_up", *CLIENTS, *ROUNDS,
}  # fmt: skip
PARTS = ("client_", "test_", "validation_")  # what names of further columns begin with


def packaged(*per: Per) -> dict[str, Measure]:
    """The package's measures of clients or rounds, by name."""
    return {**(CLIENTS if "client" in per else {}), **(ROUNDS if "round" in per else {})}


def known(*per: Per, folders: plugins.Folders = plugins.NONE) -> dict[str, Measure]:
    """The same, and those of one's own.

    Raises:
        UserError: for the first file that holds none.
    """
    mine = map(_load, folders.files("measures").values())
    return {**packaged(*per), **{each.name: each for each in mine if each.per in per}}


def find(name: str, *per: Per, folders: plugins.Folders = plugins.NONE) -> Measure | None:
    """The measure called so, if there is one of these kinds.

    Raises:
        UserError: when its file holds none.
    """
    ours = packaged(*per).get(name)
    file = folders.files("measures").get(name)
    if ours or not file:
        return ours
    mine = _load(file)
    return mine if mine.per in per else None


def the(name: str, *per: Per, folders: plugins.Folders = plugins.NONE) -> Measure:
    """The same, of a name that a file was checked for."""
    found = find(name, *per, folders=folders)
    if found is None:
        raise bad_value("measure", "name", name, "one that there is", known(*per, folders=folders))
    return found


def is_own(measure: Measure) -> bool:
    """Whether a measure is of one's own."""
    return not isinstance(measure, built_in.OfClient | built_in.OfRound | built_in.OfSet)


def files_of(named: Iterable[str], folders: plugins.Folders) -> Iterator[Path]:
    """The files of those of one's own that are named."""
    mine = folders.files("measures")
    return (mine[name] for name in named if name in mine)


@lru_cache
def _load(file: Path) -> Measure:
    """The measure in a file of one's own.

    Raises:
        UserError: unless there is exactly one, which says all that it must.
    """
    module = plugins.import_file("measures", file)
    found = [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Measure) and cls.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise UserError(f"{file}: expected one class that extends Measure, found {len(found)}")
    (cls,) = found
    cls.name = file.stem
    if cls.name in TAKEN or cls.name.startswith(PARTS):
        raise UserError(f"{file}: expected another name: the package has a column {cls.name}")
    kinds: dict[str, tuple[type, str, tuple[Any, ...]]] = {
        "words": (str, "its name in captions", ()),
        "unit": (str, "the unit of printed values, or ''", ()),
        "rising": (bool, "True where more is better, else False", ()),
        "per": (str, "one of client, round, run", get_args(Per)),
    }
    for key, (kind, expected, choices) in kinds.items():
        value = getattr(cls, key, None)
        if not isinstance(value, kind) or (choices and value not in choices):
            raise bad_value(file, key, value, expected, choices)
    if (cls.per == "run") != (cls.of_run is not Measure.of_run):
        raise UserError(f"{file}: of_run: expected in a measure per run, and in no other")
    if cls.per == "run" and cls().from_outputs:
        raise UserError(f"{file}: of_outputs: expected in no measure per run")
    return cls()
