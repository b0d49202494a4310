"""The imports and the syntax digest of code files, cached by the files' bytes.

Parsing all code behind pages and methods takes a second, at every start of Snakemake.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.plugins import content_of, parse

# The cache, in the working directory.
REMEMBERED = Path(".snakemake/fedrepro-code")


class Syntax(NamedTuple):
    """The relevant facts about a code file.

    Attributes:
        names: that its import statements, at any depth, may load: how many folders up the search
            starts (0: from the top), and the dotted name from there.
        digest: the hash of its syntax tree without docstrings and error texts.
    """

    names: tuple[tuple[int, str], ...]
    digest: str


@cache
def syntax_of(path: Path) -> Syntax:
    """The facts about a file.

    Raises:
        UserError: if it is not valid Python.
    """
    code = content_of(path)
    known, key = _remembered(), _hash(code)
    if key not in known:
        try:
            known[key] = read_syntax(code, path)
        except (SyntaxError, ValueError):
            parse(path)  # says in one line what is wrong
            raise
        _new.add(key)
    _used.add(key)
    return known[key]


def read_syntax(code: bytes, path: Path) -> Syntax:
    """The facts about some code, without using the cache."""
    module = ast.parse(code, filename=str(path))
    names = tuple(dict.fromkeys(_imported(module)))
    return Syntax(names, _hash(_written(_NoText().visit(module)).encode()))


# Fields of a syntax tree that do not affect behaviour or do not exist in every Python version.
UNSAID = ("ctx", "kind", "type_comment")


def _written(node: object) -> str:
    """A syntax tree as text, the same in every version of Python (`ast.dump` is not)."""
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty texts between an f-string's parts
        node = ast.JoinedStr([part for part in node.values if not _is_empty(part)])
    fields = ((name, getattr(node, name, None)) for name in node._fields if name not in UNSAID)
    said = (f"{name}={_written(value)}" for name, value in fields if value not in (None, []))
    return f"{type(node).__name__}({','.join(said)})"


def _is_empty(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value == ""


def remember(root: Path = Path()) -> None:
    """Save the cache for the next process in ``root``; a failure to write is ignored.

    Entries that this process did not use are dropped, because their code is gone.
    """
    if not _new:
        return
    used = {key: _remembered()[key] for key in sorted(_used)}
    with suppress(UserError):
        checksummed_json.write(root / REMEMBERED, {"files": used}, _reader())
    _new.clear()


_new: set[str] = set()
_used: set[str] = set()


@cache
def _remembered() -> dict[str, Syntax]:
    """Cached facts by file hash; empty if the cache is missing, damaged or of another version."""
    try:
        files = checksummed_json.read(REMEMBERED, _reader())["files"]
    except (FileNotFoundError, UserError):
        return {}
    return {
        key: Syntax(tuple((level, name) for level, name in names), digest)
        for key, (names, digest) in files.items()
    }


@cache
def _reader() -> str:
    """Cache version: Python and this file, which both affect what is read from a syntax tree."""
    return f"{sys.version} {_hash(Path(__file__).read_bytes())}"


def _hash(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()


def _imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = f"{node.module}." if node.module else ""
            yield node.level, node.module or ""
            yield from ((node.level, f"{above}{alias.name}") for alias in node.names)


class _NoText(ast.NodeTransformer):
    """Drops docstrings and the arguments of raised errors."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        return ast.Raise(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, None)
