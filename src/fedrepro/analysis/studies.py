"""Studies, computed for a paper without a run: ``results/studies/<paper>_<name>.json``.

Each is a module ``study_<name>`` of its paper's package, whose function ``study`` returns the
complete result, from its own seeds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrepro.support import papers
from fedrepro.support.errors import bad_argument


def studies() -> Mapping[str, Path]:
    """The result file of every study, without importing any."""
    files = papers.files_of("study")
    return {f"{file.parent.name}_{name}": file for name, file in files.items()}


def file_of(name: str) -> Path:
    """The module file of a study.

    Raises:
        UserError: when there is no such study, with the nearest name.
    """
    known = studies()
    if name not in known:
        raise bad_argument("study", name, "the name of a study", known)
    return known[name]


def make(name: str) -> dict[str, Any]:
    """Run a study. Returns JSON values.

    Raises:
        UserError: when there is no such study.
    """
    module = papers.import_file(file_of(name))
    content: dict[str, Any] = module.study()
    return content
