"""Find measures by name: the package's, and plug-ins by their file's name."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from fedrepro.measures import built_in
from fedrepro.measures.base import Measure, Per
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value, refusal, text_of
from fedrepro.support.old_names import warn_of_old_name

CLIENTS, ROUNDS, SETS = built_in.CLIENTS, built_in.ROUNDS, built_in.SETS
BUILT_IN = {*CLIENTS, *ROUNDS, *SETS}
# Columns of clients.parquet and rounds.parquet that are not measures.
NOT_SCORES = {
    "round", "client", "train_samples", "test_samples", "participations", "update_norm",
    "learning_rate", "bytes_down", "bytes_up", "samples",
}  # fmt: skip
TAKEN = {*NOT_SCORES, *CLIENTS, *ROUNDS, "accuracy_std"}
PARTS = ("client_", "test_", "validation_")  # prefixes of further columns


def packaged(*per: Per) -> dict[str, Measure]:
    """The package's measures of clients or rounds, by name."""
    return {**(CLIENTS if "client" in per else {}), **(ROUNDS if "round" in per else {})}


def known(*per: Per, folders: plugins.Folders = plugins.NONE) -> dict[str, Measure]:
    """The same, including plug-ins.

    Raises:
        UserError: for the first plug-in file without a measure.
    """
    files = map(_load, folders.files("measures", BUILT_IN).values())
    given = (
        _checked(each, name, name) for kind, name, each in folders.objects if kind == "measures"
    )
    mine = (*files, *given)
    return {**packaged(*per), **{measure.name: measure for measure in mine if measure.per in per}}


def find(name: str, *per: Per, folders: plugins.Folders = plugins.NONE) -> Measure | None:
    """The measure of this name, if there is one of these kinds.

    Raises:
        UserError: if its file defines no measure.
    """
    if given := folders.given("measures", name):
        return _checked(given, name, name) if given.per in per else None
    file = folders.files("measures", BUILT_IN).get(name)
    ours = packaged(*per).get(name)
    if ours or not file:
        return ours
    mine = _load(file)
    return mine if mine.per in per else None


def the(name: str, *per: Per, folders: plugins.Folders = plugins.NONE) -> Measure:
    """The same, for a name that a file uses; raises UserError if there is none."""
    measure = find(name, *per, folders=folders)
    if measure is None:
        raise bad_value(
            "measure", "name", name, "the name of a measure", known(*per, folders=folders)
        )
    return measure


def is_own(measure: Measure) -> bool:
    """Whether a measure is a plug-in."""
    return not isinstance(measure, built_in.OfClient | built_in.OfRound | built_in.OfSet)


def files_of(named: Iterable[str], folders: plugins.Folders) -> Iterator[Path]:
    """The files of the plug-in measures among these names."""
    mine = folders.files("measures")
    return (mine[name] for name in named if name in mine)


@lru_cache
def _load(file: Path) -> Measure:
    """The measure that a plug-in file defines.

    Raises:
        UserError: unless the file defines exactly one, with all declarations.
    """
    classes = plugins.classes_in(plugins.import_file("measures", file), Measure)
    if len(classes) != 1:
        raise refusal(file, f"expected one class that extends Measure, found {len(classes)}")
    return _checked(classes[0], file.stem, file)


def _checked(cls: type[Measure], name: str, file: object) -> Measure:
    """The measure of a class.

    Raises:
        UserError: for a taken name, or a declaration that is missing or wrong.
    """
    cls.name = name
    if cls.name in TAKEN or cls.name.startswith(PARTS):
        raise refusal(file, f"rename it: the package already has a column {name}", value=name)
    if hasattr(cls, "rising") and not hasattr(cls, "higher_is_better"):
        warn_of_old_name(f"{file}: rising", "rising", "'higher_is_better' now")
        cls.higher_is_better = cls.rising
    kinds: dict[str, tuple[type, str, tuple[Any, ...]]] = {
        "words": (str, "its name in captions", ()),
        "unit": (str, "the unit of printed values, or ''", ()),
        "higher_is_better": (bool, "True where more is better, else False", ()),
        "per": (str, "one of client, round, run", get_args(Per)),
    }
    for key, (kind, expected, choices) in kinds.items():
        value = getattr(cls, key, None)
        if not isinstance(value, kind) or (choices and value not in choices):
            raise bad_value(file, key, value, expected, choices)
    if (cls.per == "run") != (cls.of_run is not Measure.of_run):
        raise refusal(file, "of_run: define it in a measure per run, and only there", "of_run")
    if cls.per == "run" and cls.of_outputs is not Measure.of_outputs:
        raise refusal(file, "of_outputs: a measure per run must not define it", "of_outputs")
    plugins.refuse_uncalled(cls, Measure, "of_")
    try:
        with plugins.no_exit():
            return cls()
    except UserError:
        raise
    except Exception as error:  # of the user's code
        why = f"__init__: {text_of(error)}"
        raise refusal(f"measure {name}", why, "__init__") from error
