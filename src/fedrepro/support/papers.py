"""Code that only one paper needs: one package in ``papers`` for each, found by its file names.

``papers/fedgo/figure_regions.py`` draws figures of the kind ``regions``. There is no list of these
files, and code outside of ``papers`` imports them only through this module. By role, they contain:

- ``kinds.py``: models of figures and computed tables in experiment files, each with a ``kind``;
- ``keys.py``: ``Keys``, a model of further keys of settings, marked by :class:`Needs`;
- ``figure_<kind>.py``: ``draw``, like the modules of ``report/pages/figures``;
- ``table_<kind>.py``: ``compute``, see :mod:`fedrepro.report.cells.computed`;
- ``study_<name>.py``: ``study``, which computes results that need no run;
- ``cohorts_<stream>.py``: ``sampler`` of a run's cohorts (key ``cohorts`` of a setting);
- ``given_<key>.py``: ``changed``, which modifies a run's inputs as that key of a setting says;
- ``commands.yaml``: commands, like the one of ``cli``.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

from fedrepro.support.packaged import ORIGIN

FOLDER = Path(__file__).parents[1] / "papers"
RULES = ORIGIN / "workflow/rules"
Role = Literal["figure", "table", "study", "cohorts", "given"]


class Needs(NamedTuple):
    """Marks a key of settings that only methods with an input of this name can use."""

    artifact: str


@cache
def files_of(role: Role) -> dict[str, Path]:
    """The files of a role, by name, without importing any."""
    files = sorted(FOLDER.glob(f"*/{role}_*.py"))
    return {file.stem.removeprefix(f"{role}_"): file for file in files}


def load(role: Role, name: str) -> ModuleType:
    """The module of a role and name."""
    return import_file(files_of(role)[name])


def load_kinds() -> None:
    """Import the papers' models of experiment files, so that :func:`any_of` finds them."""
    for file in _kinds():
        import_file(file)


def command_files() -> list[Path]:
    """The files that describe commands of papers."""
    return sorted(FOLDER.glob("*/commands.yaml"))


def keys_of_settings() -> tuple[type[Any], ...]:
    """The papers' models of further keys of settings."""
    return tuple(import_file(file).Keys for file in sorted(FOLDER.glob("*/keys.py")))


def files_of_report() -> list[Path]:
    """The files that render pages."""
    return [*_kinds(), *files_of("figure").values(), *files_of("table").values()]


def rule_files() -> list[str]:
    """The files with workflow rules, those that only one paper needs included; not common.smk."""
    files = sorted([*RULES.glob("*.smk"), *RULES.glob("papers/*.smk")])
    return [str(file) for file in files if file.stem != "common"]


def _kinds() -> list[Path]:
    return sorted(FOLDER.glob("*/kinds.py"))


def import_file(file: Path) -> ModuleType:
    """The module in a file of ``papers``."""
    return import_module(f"fedrepro.papers.{file.parent.name}.{file.stem}")
