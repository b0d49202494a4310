"""From names to files: what a composition is made of, without importing any of it.

A method is found by its file: ``methods/fedprox.py`` holds the method called fedprox. A folder of
your own is searched too (:mod:`fedrepro.support.own`).
"""

import ast
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from fedrepro.support import own
from fedrepro.support.errors import UserError, bad_value

METHODS = Path(__file__).parent
SERVER_OPTIMIZERS = METHODS / "server"
SHARED = {SERVER_OPTIMIZERS / "base.py", SERVER_OPTIMIZERS / "adaptive.py"}


def part_files() -> dict[str, Path]:
    """Name -> file of everything that a composition can name, without importing any."""
    return {**_packaged(), **own.files_of("methods")}


@cache
def _packaged() -> dict[str, Path]:
    return {
        file.stem: file
        for folder in (METHODS, SERVER_OPTIMIZERS)
        for file in sorted(folder.glob("*.py"))
        if not file.stem.startswith("_") and file not in SHARED
    }


def split(composition: str) -> list[tuple[str, bool]]:
    """The parts of a composition: (name, whether ``@released``).

    Raises:
        UserError: for an empty part or a fidelity other than paper or released.
    """
    parts = []
    for text in composition.split("+"):
        name, at, fidelity = text.partition("@")
        if not name:
            raise bad_value(
                "method", "name", composition, "names joined by '+', such as ima+fedprox"
            )
        if at and fidelity not in ("paper", "released"):
            raise bad_value(
                "method", composition, fidelity, "'paper' or 'released' after '@'",
                ("paper", "released"),
            )  # fmt: skip
        parts.append((name, fidelity == "released"))
    return parts


def module_files(composition: str) -> list[Path]:
    """The source files that define a composition's parts."""
    files = part_files()
    return [files[name] for name, _ in split(composition) if name in files]


def needs_of(composition: str) -> tuple[str, ...]:
    """What its parts need to be given, by name: their ``needs``, without importing any."""
    return _said_of(composition, "needs", own.folder_of("methods"))


def takes_of(composition: str) -> tuple[str, ...]:
    """What its parts make use of where it is given: their ``takes``, without importing any."""
    return _said_of(composition, "takes", own.folder_of("methods"))


@lru_cache
def _said_of(composition: str, key: str, folder: Path | None) -> tuple[str, ...]:
    # Asked for at every run of every page; to list the files takes a millisecond.
    found = (name for file in module_files(composition) for name in _said_in(file, key))
    return tuple(dict.fromkeys(found))


@lru_cache
def _said_in(file: Path, key: str) -> tuple[str, ...]:
    """The names under ``key`` of the part in ``file``, read from its syntax tree."""
    classes = [node for node in own.parse(file).body if isinstance(node, ast.ClassDef)]
    return next(filter(None, (_said_by_class(file, each, key) for each in classes)), ())


def _said_by_class(file: Path, cls: ast.ClassDef, key: str) -> tuple[str, ...] | None:
    """The names that a class says, or inherits."""
    found = _assigned(file, cls).get(key)
    if found is None:
        return None
    where, node = found
    assert node.value is not None  # as only those with a value are found
    try:
        return tuple(map(str, ast.literal_eval(node.value)))
    except (ValueError, TypeError):
        raise UserError(
            f"{where}:{node.lineno}: {key}: expected a tuple of names, written out"
        ) from None


Assignment = ast.Assign | ast.AnnAssign


def _assigned(file: Path, cls: ast.ClassDef) -> dict[str, tuple[Path, Assignment]]:
    """By name, what a class assigns a value to; else its bases in this package's methods."""
    found: dict[str, tuple[Path, Assignment]] = {}
    for base in reversed(cls.bases):
        place = _class_called(file, base.id) if isinstance(base, ast.Name) else None
        found |= _assigned(*place) if place else {}
    for node in cls.body:
        if isinstance(node, Assignment) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id: (file, node) for each in targets if isinstance(each, ast.Name)}
    return found


UNKNOWN = object()


def defaults_of(part: str, released: bool = False) -> dict[str, Any]:
    """Hyperparameters that have a default; :data:`UNKNOWN` where none is written out as a value.

    Args:
        released: those of ``part@released``, as :func:`fedrepro.engine.fidelity.divergence` says.
    """
    return {
        name: _value_of(node.value, released)
        for file in module_files(part)
        for cls in own.parse(file).body
        if isinstance(cls, ast.ClassDef)
        for name, (_, node) in _assigned(file, cls).items()
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith("Class")
    }


def _value_of(node: ast.expr | None, released: bool) -> Any:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "divergence":
        given = dict(zip(("default", "released"), node.args, strict=False))
        given |= {str(each.arg): each.value for each in node.keywords}
        node = given.get("released" if released else "default")
    try:
        return ast.literal_eval(node) if node else UNKNOWN
    except ValueError:
        return UNKNOWN


def _class_called(file: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """Where a class is defined: in ``file``, or in what it imports from this package's methods."""
    for node in own.parse(file).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return file, node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedrepro.methods."):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    parts = str(node.module).split(".")[2:]
                    return _class_called(METHODS.joinpath(*parts).with_suffix(".py"), alias.name)
    return None


def departures_of(composition: str) -> tuple[str, ...]:
    """The numbers of the discrepancies that its parts can follow, without importing any."""
    return _departures_of(composition, own.folder_of("methods"))


@lru_cache
def _departures_of(composition: str, folder: Path | None) -> tuple[str, ...]:
    found = (
        number
        for file in module_files(composition)
        for cls in own.parse(file).body
        if isinstance(cls, ast.ClassDef)
        for _, node in _assigned(file, cls).values()
        if (number := _item_of(node.value))
    )
    return tuple(dict.fromkeys(found))


def _item_of(value: ast.expr | None) -> str:
    """``item`` of a field that ``divergence`` makes; "" of any other."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "divergence":
        return ""
    named = {each.arg: each.value for each in value.keywords}
    item = named.get("item") or value.args[2]
    return str(item.value) if isinstance(item, ast.Constant) else ""


def begins_as_inner(part: str) -> bool:
    """Whether a part is a wrapper that says how long it is what it wraps."""
    return _begins_as_inner(part, own.folder_of("methods"))


@lru_cache
def _begins_as_inner(part: str, folder: Path | None) -> bool:
    return any(
        isinstance(hook, ast.FunctionDef) and hook.name == "begins_as"
        for file in module_files(part)
        for cls in own.parse(file).body
        if isinstance(cls, ast.ClassDef) and any(ast.unparse(b) == "Wrapper" for b in cls.bases)
        for hook in cls.body
    )
