"""Facts about methods' classes, for code that need not import them.

Importing a method imports PyTorch, which takes two seconds. The process that composes a workbench's
methods after a change (:mod:`fedrepro.workflow.checks`) therefore writes down the facts that are
needed, as does one that finds no valid record. A process that has imported PyTorch anyway asks the
classes.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fedrepro.methods.files import METHODS, part_files
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, load_valid
from fedrepro.support.files import read_json, write_atomically
from fedrepro.support.names import Composition

WRITTEN = Path(".snakemake/fedrepro-methods")  # in the workbench
# The packages that methods may import, which can therefore define these facts.
ROOMS = tuple(METHODS.parent / room for room in ("support", "data", "models", "engine", "methods"))

UNKNOWN = object()


class Facts(NamedTuple):
    """What a part's class declares.

    Attributes:
        requires: names of the artifacts that it must be given.
        optional: names of the artifacts that it uses if given.
        fields: its hyperparameters.
        defaults: those of them that YAML can express.
        released: likewise, for ``part@released``.
        departures: the numbers of the discrepancies that it can follow.
        shares_prefix_with_inner: whether it is a wrapper that starts as the wrapped method.
        steps: the kind of its local steps: "plain" as FedAvg's, the method's "own", of "two
            models", "pooled" if one client has all data; "" for a part that takes none.
        own_models: whether each client has a model of its own beside the shared one.
        own_classifier: whether each client has one, and none is shared.
    """

    requires: tuple[str, ...]
    optional: tuple[str, ...]
    fields: tuple[str, ...]
    defaults: dict[str, Any]
    released: dict[str, Any]
    departures: tuple[str, ...]
    shares_prefix_with_inner: bool
    steps: str
    own_models: bool
    own_classifier: bool


def facts_of(composition: str, folders: plugins.Folders = plugins.NONE) -> Facts:
    """What the classes of its parts declare together; unknown parts are skipped."""
    return _facts_of(composition, folders, folders.of("methods"))


def late_wrapper_of(composition: str, folders: plugins.Folders = plugins.NONE) -> str:
    """The first part that is a wrapper whose first rounds are the wrapped method's, or ""."""
    names = Composition.parse(composition).names
    return next((name for name in names if facts_of(name, folders).shares_prefix_with_inner), "")


def defaults_of(
    part: str, folders: plugins.Folders = plugins.NONE, released: bool = False
) -> dict[str, Any]:
    """A part's hyperparameters; :data:`UNKNOWN` for a default that YAML cannot express.

    Args:
        released: those of ``part@released``, as :func:`fedrepro.engine.fidelity.deviation` says.
    """
    facts = facts_of(part, folders)
    known = facts.released if released else facts.defaults
    return {name: known.get(name, UNKNOWN) for name in facts.fields}


def are_written(folders: plugins.Folders) -> bool:
    """Whether the workbench has an up-to-date record of the classes."""
    return _read(folders, folders.of("methods")) is not None


def write(folders: plugins.Folders) -> None:
    """Write down the facts of all parts' classes."""
    assert folders.root is not None
    facts = {name: each._asdict() for name, each in load_valid(_ask, part_files(folders)).items()}
    with write_atomically(folders.root / WRITTEN) as temporary:
        text = json.dumps({"of": _code(folders.of("methods")), "facts": facts})
        temporary.write_text(text + "\n", encoding="utf-8")


@cache  # every run of every page asks
def _facts_of(composition: str, folders: plugins.Folders, methods: Path | None) -> Facts:
    asked = "torch" in sys.modules or folders.root is None
    known = None if asked else _written(folders, methods)
    names = Composition.parse(composition).names
    if known is None:
        # Importing PyTorch once is enough. Plug-ins that nobody asked for are not imported.
        if not asked and methods is None:
            with suppress(UserError):  # such as a full disk
                write(folders)
        files = part_files(folders)
        sources = [*map(files.get, names), *(folders.given("methods", name) for name in names)]
        parts = [_ask(source) for source in sources if source is not None]
    else:
        parts = [known[name] for name in names if name in known]
    return Facts(
        _joined(part.requires for part in parts),
        _joined(part.optional for part in parts),
        _joined(part.fields for part in parts),
        {name: value for part in parts for name, value in part.defaults.items()},
        {name: value for part in parts for name, value in part.released.items()},
        _joined(part.departures for part in parts),
        any(part.shares_prefix_with_inner for part in parts),
        next((part.steps for part in parts if part.steps), "plain"),
        any(part.own_models for part in parts),
        any(part.own_classifier for part in parts),
    )


def _joined(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _ask(source: Path | type[Any]) -> Facts:
    """The facts of a part's file or class."""
    from fedrepro.methods.registry import declared_by

    return Facts(**declared_by(source))


@cache
def _written(folders: plugins.Folders, methods: Path | None) -> dict[str, Facts] | None:
    return _read(folders, methods)


def _read(folders: plugins.Folders, methods: Path | None) -> dict[str, Facts] | None:
    """Facts by part; None if there is no record, or a damaged or outdated one."""
    code = _code(methods)  # before any of it is imported
    try:
        record = read_json((folders.root or Path()) / WRITTEN)
        facts = {name: _as_written(each) for name, each in record["facts"].items()}
        return facts if record["of"] == code else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _as_written(facts: dict[str, Any]) -> Facts:
    plain: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
    }
    return Facts(**plain)


@cache
def _code(methods: Path | None) -> str:
    """The hash of all files from which a class can get its facts."""
    digest = hashlib.sha256()
    for room in (*ROOMS, *([methods] if methods else [])):
        for file in sorted(room.rglob("*.py")):
            digest.update(f"{file.relative_to(room)} ".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
