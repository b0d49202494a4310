"""What the report may import, and how its templates are written."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from fedrepro.config.experiment import Computed, Figure
from fedrepro.provenance import fingerprint
from fedrepro.support import papers
from support.places import ROOT

REPORT = fingerprint.PACKAGE / "report"
# A formula of numpy, which a table of the paper is computed from; and what methods need, by name.
OPEN = {
    "engine/executor_facts.py",
    "methods/adaptive_weighting/responses.py",
    "methods/files.py",
}


def test_the_report_only_reads() -> None:
    """Nothing that computes is imported, or an edit of it would render all pages anew."""
    # The first imports methods only where nothing is written of them, the other compares data.
    facts = ("methods/facts", "run/standing")
    found = fingerprint.closure([*REPORT.rglob("*.py"), *papers.files_of_report()], facts)
    files = {path.relative_to(fingerprint.PACKAGE).as_posix() for path in found}
    assert "config/workbench.py" in files  # the closure is one
    rooms = ("engine/", "analysis/", "methods/", "workflow/", "cli/")
    shut = {name for name in files if name.startswith(rooms) and not name.endswith("__init__.py")}
    assert shut == OPEN
    for path in found:
        assert "torch" not in imported(path), path


def imported(path: Path) -> set[str]:
    """The packages that a file imports, wherever the statement stands but for a type checker."""
    found = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(found):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names = set()
    for node in ast.walk(found):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_every_kind_of_figure_has_its_module() -> None:
    """Named by the kind; and no module is without one, but what they share."""
    ours = {path.stem for path in (REPORT / "pages/figures").glob("*.py")}
    theirs = papers.files_of("figure").keys()
    assert not ours & theirs
    assert ours | theirs == kinds(Figure) | {"__init__", "base"}


def test_every_kind_of_table_without_runs_has_its_module() -> None:
    assert papers.files_of("table").keys() == kinds(Computed)


def kinds(choice: object) -> set[str]:
    models = get_args(get_args(choice)[0])
    return {kind for model in models for kind in get_args(model.model_fields["kind"].annotation)}


@pytest.mark.parametrize("path", sorted((ROOT / "reports/templates").rglob("*.*")))
def test_lines_of_templates_can_be_read(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    long = [number for number, line in enumerate(lines, start=1) if len(line) > 160]
    assert not long
