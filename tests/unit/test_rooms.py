"""The folders of the package stand in one order, and nothing imports what comes after it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

from fedrepro.support import papers
from fedrepro.support.papers import Role
from support.places import ROOT

PACKAGE = ROOT / "src/fedrepro"

# From the bottom to the top. Rooms on one line know nothing of each other.
LAYERS = (
    {"support"},
    {"data", "models", "engine"},
    {"check"},
    {"methods", "measures"},
    {"config"},
    {"provenance"},
    {"run"},
    {"analysis", "cost"},
    {"report"},
    {"workflow"},
    {"cli", "api"},
    {"papers"},
)
# All that may lie beside the rooms.
FLAT = {"__init__.py", "__main__.py"}


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    files = sorted(PACKAGE.rglob("*.py"))
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in files)


@cache
def file_of(name: str) -> Path | None:
    base = PACKAGE.parent.joinpath(*name.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


@cache
def imported(tree: ast.Module, *, running: bool = False) -> frozenset[Path]:
    """The files of this package that a module imports, wherever the statement stands.

    Args:
        running: without what is for type checkers only.
    """
    return frozenset(
        found
        for node in statements(tree, running=running)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name)
        for alias in node.names
        if (found := file_of(f"{node.module}.{alias.name}") or file_of(str(node.module)))
    )


def statements(tree: ast.Module, *, running: bool) -> Iterator[ast.AST]:
    """The nodes at any depth that are no expressions, as these have no statements in them."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        inside: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if running and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            inside = node.orelse
        waiting += [each for each in inside if not isinstance(each, ast.expr)]


@cache
def rooms() -> dict[str, set[str]]:
    """Folder -> the other folders whose modules it imports, the version beside them aside."""
    found: dict[str, set[str]] = {}
    for path, tree in modules():
        here = path.parent.relative_to(PACKAGE).as_posix()
        there = {each.parent.relative_to(PACKAGE).as_posix() for each in imported(tree)}
        found.setdefault(here, set()).update(there - {here, "."})
    return found


def test_no_module_lies_beside_the_rooms() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == FLAT
    known = set.union(*LAYERS)
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == known


def test_no_import_leads_upwards() -> None:
    level = {room: number for number, layer in enumerate(LAYERS) for room in layer}
    for here, others in rooms().items():
        below = here.partition("/")[0]
        for other in (each.partition("/")[0] for each in others):
            if below not in (other, "."):
                assert level[other] < level[below], f"{here} imports {other}"


def test_no_folder_imports_itself_through_others() -> None:
    assert tuple(TopologicalSorter(rooms()).static_order())  # raises for a circle


def test_only_the_package_itself_asks_for_the_api() -> None:
    api = PACKAGE / "api"
    asking = {
        path for path, tree in modules() if any(api in each.parents for each in imported(tree))
    }
    assert {path for path in asking if path.parent != api} == {PACKAGE / "__init__.py"}


def test_no_file_imports_itself_through_others() -> None:
    """Wherever the statements stand; what is for type checkers only does not run."""
    found = {path: imported(tree, running=True) - {path} for path, tree in modules()}
    assert tuple(TopologicalSorter(found).static_order())  # raises for a circle


def test_papers_are_found_by_their_files_and_nothing_else_names_them() -> None:
    """One package knows nothing of another, and the rest knows of one place where it looks."""
    found = rooms()
    packages = {room for room in found if room.startswith("papers/")}
    for here in packages:
        assert not found[here] & packages, here
    naming = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in modules()
        for value in _constants(tree)
        if "fedrepro.papers" in str(value)
    }
    assert naming == {"support/papers.py"}


def test_of_two_papers_none_has_what_the_other_has() -> None:
    """They are found by role and name, whichever paper they are of."""
    files = [
        path for path in papers.FOLDER.glob("*/*_*.py") if path.stem.split("_")[0] in get_args(Role)
    ]
    assert len({path.stem for path in files}) == len(files) > 0
    assert sum(len(papers.files_of(role)) for role in get_args(Role)) == len(files)


# Methods, models and measures are a library for all, with the papers that they come from.
LIBRARY = {"papers", "methods", "models"}
# `fedrepro check` tries a method inside this wrapper.
NAMED = {("cli/check.py", "ima"), ("cli/check.py", "ima+")}


def test_the_core_names_no_paper_but_in_words_for_readers() -> None:
    """No name, key, file or method of a paper; help and descriptions may give examples."""
    packages = [path.parent.name for path in papers.FOLDER.glob("*/__init__.py")]
    names = "|".join([*packages, *papers.files_of("given"), *papers.files_of("cohorts")])
    pattern = re.compile(rf"(?<![a-z])({names})(?![a-z])", re.IGNORECASE)
    found = set()
    for path, tree in modules():
        if path.relative_to(PACKAGE).parts[0] not in LIBRARY:
            texts = {str(value) for value in _constants(tree) if " " not in str(value).strip()}
            file = path.relative_to(PACKAGE).as_posix()
            found |= {(file, text) for text in texts | _names(tree) if pattern.search(text)}
    assert found == NAMED
    for file in (ROOT / "workflow").glob("**/*"):
        if file.suffix in (".smk", "") and file.is_file() and "papers" not in file.parts:
            lines = file.read_text(encoding="utf-8").splitlines()
            assert not [line for line in lines if pattern.search(line.partition("#")[0])], file


def _names(tree: ast.Module) -> set[str]:
    return {
        text
        for node in ast.walk(tree)
        for key in ("id", "name", "attr", "arg", "module")
        if isinstance(text := getattr(node, key, None), str)
    }


def _constants(tree: ast.Module) -> Iterator[object]:
    """Without docstrings, which may refer to anything."""
    nodes = [*ast.walk(tree)]
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in texts:
            yield node.value


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, fedrepro; print(*(name for name in sys.modules if 'fedrepro' in name))"
    called = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert called.stdout.split() == ["fedrepro"]


def test_inits_say_what_a_room_is_for_and_do_nothing() -> None:
    for path, tree in modules():
        if path.name == "__init__.py" and path.parent != PACKAGE:
            assert ast.get_docstring(tree) and len(tree.body) == 1, path


# What `--help`, `import fedrepro` and `snakemake -n` need not load, and optional packages.
INNER_IMPORTS, VAGUE_WORDS = 60, 200


def test_few_imports_are_inside_functions() -> None:
    inner = {
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in modules()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(inner) <= INNER_IMPORTS, sorted(inner)


def test_variables_are_named_for_what_they_hold() -> None:
    """Lines with ``found`` or ``for each in``."""
    vague = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path, _ in modules()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bfound\b|\bfor each in\b", line)
    ]
    assert len(vague) <= VAGUE_WORDS, vague
