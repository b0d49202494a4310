"""Find the files of a composition by name, without importing them.

A method's file has its name: ``methods/fedprox.py`` defines fedprox. Plug-in folders are searched
as well (:mod:`fedrepro.support.plugins`).
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value, nearest
from fedrepro.support.names import Composition

METHODS = Path(__file__).parent
SERVER_OPTIMIZERS = METHODS / "server"
NO_PARTS = {
    *(METHODS / f"{name}.py" for name in ("facts", "files", "registry")),
    *(SERVER_OPTIMIZERS / f"{name}.py" for name in ("adaptive", "base")),
}


def part_files(folders: plugins.Folders = plugins.NONE) -> dict[str, Path]:
    """Name -> file of every part that a composition can name, without importing any."""
    return {**_packaged(), **folders.files("methods", _packaged())}


@cache
def _packaged() -> dict[str, Path]:
    return {
        file.stem: file
        for folder in (METHODS, SERVER_OPTIMIZERS)
        for file in sorted(folder.glob("*.py"))
        if not file.stem.startswith("_") and file not in NO_PARTS
    }


def unknown_part(
    where: object,
    key: str,
    name: str,
    folders: plugins.Folders,
    fields_of: Callable[[str], Iterable[str]],
) -> UserError:
    """The error for a name that no part has.

    It says the nearest names, or for a part's name with a value, such as ``fedprox_nu0.5``, the
    part's hyperparameters, which ``fields_of`` gives.
    """
    known = part_files(folders)
    owners = (owner for owner in known if name.startswith(f"{owner}_"))
    part = max(owners, key=len, default="")
    valued = re.match(r"_(\w+?)(minus)?(\d|true|false|null)", name.removeprefix(part))
    own = sorted(fields_of(part)) if part and valued else []
    if not valued or not own:
        wanted = f"a name that `fedrepro methods` lists{nearest(name, known, most=3)}"
    else:
        wanted = f"{part} with values of its hyperparameters, each once in this order: "
        wanted += ", ".join(own) + ("" if valued[1] in own else nearest(valued[1], own))
    return bad_value(where, key, name, wanted)


def module_files(composition: str, folders: plugins.Folders = plugins.NONE) -> list[Path]:
    """The source files that define a composition's parts."""
    files = part_files(folders)
    return [files[name] for name in Composition.parse(composition).names if name in files]
