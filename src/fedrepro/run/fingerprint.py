"""What defines a run's or a report's result, as hashes.

Code is fingerprinted as it is parsed, not as it is written: comments, formatting and docstrings
change nothing. A run's code is what ``fedrepro.run.runner`` imports, directly or not, from this
package, its model's module and its methods' files. Nothing is imported in order to find that out.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro.config.settings import EXECUTION
from fedrepro.methods import _registry as registry
from fedrepro.models import _registry as models

PACKAGE = Path(__file__).parents[1]
# Top-level names without a meaning of their own. The entry of a table that a run uses is
# fingerprinted with it, so that a further model does not re-run the others.
IGNORED = ("__version__", "MODELS")


def meaning(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's description without what only says how it is executed."""
    return {key: value for key, value in run_config.items() if key not in EXECUTION}


def of_config(run_config: Mapping[str, Any]) -> str:
    """The hash of a run's :func:`meaning`."""
    return of_text(json.dumps(meaning(run_config), sort_keys=True))


def of_code(run_config: Mapping[str, Any]) -> str:
    """The fingerprint of the code that a run executes."""
    return _of_code(run_config["composition"], run_config["model"])


@cache
def _of_code(composition: str, model: str) -> str:
    starts = [module_path("fedrepro.run.runner"), models.module_file(model)]
    digest = of_closure((*starts, *registry.module_files(composition)))
    return of_text(f"{digest} {models.find(model)!r}")


def of_module(name: str) -> str:
    """The fingerprint of a module of this package and of all that it imports from it."""
    return of_closure((module_path(name),))


def of_closure(starts: tuple[Path, ...]) -> str:
    """The fingerprint of some files and of all that they import from this package."""
    lines = sorted(f"{_shown(path)} {_digest(path)}" for path in closure(starts))
    return of_text("\n".join(lines))


def of_files(paths: Iterable[Path]) -> str:
    """The hash of the bytes of files, and of all files in folders, with their names."""
    files = sorted(
        file
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.is_file()
    )
    lines = (f"{file.as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files)
    return of_text("\n".join(lines))


def of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def closure(starts: Iterable[Path]) -> set[Path]:
    """Files, and all that they import from this package, directly or not."""
    found: set[Path] = set()
    waiting = list(starts)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_imported(path))
    return found


def module_path(name: str) -> Path:
    """The file of a module of this package.

    Raises:
        ModuleNotFoundError: if there is none.
    """
    path = _find(name)
    if path is None:
        raise ModuleNotFoundError(name)
    return path


def _find(name: str) -> Path | None:
    first, *rest = name.split(".")
    if first != PACKAGE.name:
        return None
    base = PACKAGE.joinpath(*rest)
    candidates = (base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


def _shown(path: Path) -> str:
    """A name that is the same on every machine."""
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """The files of this package that a file's import statements, wherever they stand, run."""
    found = set()
    for name in _imported_names(path):
        steps = name.split(".")
        for end in range(1, len(steps) + 1):  # a package's __init__ runs before its modules
            file = _find(".".join(steps[:end]))
            if file is not None:
                found.add(file)
    return tuple(sorted(found))


def _imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level and path.is_relative_to(PACKAGE):
                above = (PACKAGE.name, *path.relative_to(PACKAGE).parts)[: -node.level]
                source = ".".join([*above, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


@cache
def _digest(path: Path) -> str:
    """The hash of a file's syntax tree without docstrings and :data:`IGNORED` names."""
    body = _parse(path).body
    kept = [node for node in body if not any(name in IGNORED for name in _assigned(node))]
    return of_text(ast.dump(_NoText().visit(ast.Module(kept, []))))


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


class _NoText(ast.NodeTransformer):
    """Drops strings that stand as statements: docstrings, of which none does anything."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
