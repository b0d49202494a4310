"""What serves one paper only: a package of ``papers`` for each, found by the names of its files.

``papers/fedgo/figure_regions.py`` is a figure, of the kind ``regions``. Nothing lists these files,
and nothing outside of ``papers`` imports one but through this module. What each role's files have:

- ``kinds.py``: classes of experiment files, each with a ``kind``: figures and computed tables;
- ``figure_<kind>.py``: ``draw``, as the modules of ``report/pages/figures``;
- ``table_<kind>.py``: ``compute``, as :mod:`fedrepro.report.cells.computed` asks for it;
- ``study_<name>.py``: ``study``, which makes what is computed without a run;
- ``cohorts_<stream>.py``: ``sampler`` of a run's cohorts (key ``cohorts`` of a setting);
- ``given_<key>.py``: ``changed``, what that key of a setting makes of what a run is given;
- ``command_<name>.py``: ``register``, as the modules of ``cli``.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal

FOLDER = Path(__file__).parents[1] / "papers"
Role = Literal["figure", "table", "study", "cohorts", "given", "command"]


@cache
def files_of(role: Role) -> dict[str, Path]:
    """Name -> file of all that has a role, without importing any."""
    files = sorted(FOLDER.glob(f"*/{role}_*.py"))
    return {file.stem.removeprefix(f"{role}_"): file for file in files}


def load(role: Role, name: str) -> ModuleType:
    """The module that has a role under a name."""
    return import_file(files_of(role)[name])


def load_kinds() -> None:
    """Import the classes of experiment files that papers have: from then on they exist."""
    for file in _kinds():
        import_file(file)


def files_of_report() -> list[Path]:
    """The files that pages are made with."""
    return [*_kinds(), *files_of("figure").values(), *files_of("table").values()]


def _kinds() -> list[Path]:
    return sorted(FOLDER.glob("*/kinds.py"))


def import_file(file: Path) -> ModuleType:
    """The module in a file of ``papers``."""
    return import_module(f"fedrepro.papers.{file.parent.name}.{file.stem}")
