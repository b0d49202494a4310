"""Which test functions compare prose: sentences of messages, logs, docs or pages.

A test compares prose if it compares with three words in a row, or with two pieces of two words
or more, that its module does not itself give to the code under test. Texts behind names, loops,
`parametrize` and helpers that compare what they are given count as well. Not prose: what is
between backticks, and command lines.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from support.places import ROOT

TESTS = ROOT / "tests"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Values = dict[str, list[ast.expr]]  # the expressions that a name may stand for
Compared = dict[str, set[str | int]]  # arguments that a function compares: names and positions

WORD = r"(?:[a-z]+(?:['-][a-z]+)*[,;:.]?)"
ROW = re.compile(rf"(?<![\w/.=<-])(?:[A-Z][a-z]* )?{WORD}(?: {WORD})+(?![\w/=(-])")
REGEX = ((r"\\([^\w\s])", r"\1"), (r"(?<!\\)\\[dws][+*]?|\.[*+]\??|\[[^\]]*\][+*]?", " 0 "))
NO_PROSE = re.compile(r"`[^`]*`|\b(?:fedrepro|snakemake|git|make|import|from) [^:;]*")
# Methods of a string, and functions of `re`, that compare their first argument.
SEARCHES = {"startswith", "endswith", "count", "index", "find", "partition", "rpartition"}
SEARCHES |= {"split", "rsplit", "removeprefix", "removesuffix", "rindex", "rfind"}
SEARCHES |= {"search", "match", "fullmatch", "findall", "finditer"}
# Functions whose result is made of the words of their arguments.
PASSES = {"format", "split", "strip", "join", "replace", "lower", "upper", "splitlines", "escape"}
PASSES |= {"capitalize", "encode", "sorted", "set", "list", "tuple", "zip", "items", "compile"}
QUIET = {*PASSES, "all", "any", "len", "parametrize", "param", "raises", "warns", "enumerate"}


def prose_of_tests(folder: Path = TESTS) -> dict[str, list[str]]:
    """The prose that each test function (``file::name``) compares with."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))}
    helpers: dict[str, Compared] = {"conftest": {}}
    for path, tree in trees.items():
        if not path.name.startswith("test_"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = "conftest" if path.name == "conftest.py" else ".".join(parts)
            compared = Module(tree, _imported(tree, helpers)).compared_arguments
            helpers[name] = helpers.get(name, {}) | compared
    return {
        f"{path.relative_to(folder)}::{name}": texts
        for path, tree in trees.items()
        if path.name.startswith("test_")
        for name, texts in Module(tree, _imported(tree, helpers)).prose().items()
    }


def _imported(tree: ast.Module, helpers: dict[str, Compared]) -> Compared:
    """The helpers, by module, that a module imports by name or as a module, and all of conftest."""
    imported = dict(helpers["conftest"])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                imported |= helpers.get(f"{node.module}.{alias.name}", {})
                if alias.name in (of_module := helpers.get(node.module, {})):
                    imported[alias.asname or alias.name] = of_module[alias.name]
    return imported


class Module:
    """A module of tests.

    Attributes:
        compared_arguments: by function, its arguments that it compares.
    """

    def __init__(self, tree: ast.Module, helpers: Compared) -> None:
        self.functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
        outside = [node for node in tree.body if not isinstance(node, Function | ast.ClassDef)]
        self.values = _assigned(outside)
        self.compared_arguments = dict(helpers)
        for _ in range(2):  # helpers that call helpers
            self.compared_arguments |= {
                function.name: arguments
                for function in self.functions
                if not function.name.startswith("test_")
                and (arguments := self._arguments_compared(function))
            }
        self.given = "\n".join(
            text for function in self.functions for text in self._given(function)
        )

    def prose(self) -> dict[str, list[str]]:
        """The prose that each test function compares with, by function."""
        tests = [node for node in self.functions if node.name.startswith("test_")]
        return {test.name: self._prose_of(test) for test in tests}

    def _prose_of(self, test: Function) -> list[str]:
        values = self._values_in(test)
        texts = {
            text: [row for row in _rows(text) if row not in self.given]
            for expression in self._compared(test)
            for text in _texts(expression, values)
        }
        pieces = {text: rows for text, rows in texts.items() if rows}
        rows = [row for rows in pieces.values() for row in rows]
        return [*pieces] if len(rows) > 1 or any(row.count(" ") > 1 for row in rows) else []

    def _values_in(self, function: Function) -> Values:
        values = dict(self.values)
        for mark in function.decorator_list:
            values |= _parametrized(mark)
        return values | _assigned(function.body)

    def _compared(self, function: Function) -> Iterator[ast.expr]:
        for node in _nodes(function):
            if isinstance(node, ast.Compare):
                if any(isinstance(o, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for o in node.ops):
                    yield from (node.left, *node.comparators)
            elif isinstance(node, ast.Call):
                yield from self._arguments_of(node, compared=True)

    def _arguments_of(self, call: ast.Call, compared: bool) -> Iterator[ast.expr]:
        name = _name(call.func)
        keys = self.compared_arguments.get(name, set())
        keys = keys | {"match"} | ({0} if name in SEARCHES else set())
        arguments: list[tuple[str | int | None, ast.expr]] = [*enumerate(call.args)]
        arguments += [(keyword.arg, keyword.value) for keyword in call.keywords]
        yield from (value for key, value in arguments if (key in keys) == compared)

    def _arguments_compared(self, function: Function) -> set[str | int]:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        others = [a.arg for a in function.args.kwonlyargs]
        values = _assigned(function.body)
        reached = {name for part in self._compared(function) for name in _names(part, values)}
        reached -= {  # what a helper replaces in a text is an input
            name
            for call in _nodes(function)
            if isinstance(call, ast.Call) and _name(call.func) == "replace"
            for argument in call.args
            for name in _names(argument, {})
        }
        places = {place for place, name in enumerate(names) if name in reached}
        return {*reached & {*names, *others}, *places}

    def _given(self, function: Function) -> Iterator[str]:
        values = self._values_in(function)
        for call in _nodes(function):
            if isinstance(call, ast.Call) and _name(call.func) not in QUIET:
                for argument in self._arguments_of(call, compared=False):
                    yield from _texts(argument, values)


def _rows(text: str) -> list[str]:
    """The rows of two words or more in a text or a regular expression."""
    for pattern, replacement in REGEX:
        text = re.sub(pattern, replacement, text)
    return ROW.findall(NO_PROSE.sub("0", text))


@cache
def _nodes(node: ast.AST) -> list[ast.AST]:
    return [*ast.walk(node)]


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _assigned(body: Iterable[ast.stmt]) -> Values:
    """What names stand for: by assignments, loops and comprehensions."""
    values: Values = {}
    for statement in body:
        for node in _nodes(statement):
            match node:
                case ast.Assign(targets=[target], value=value):
                    pass
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    pass
                case ast.NamedExpr(target=target, value=value):
                    pass
                case (
                    ast.For(target=target, iter=value)
                    | ast.comprehension(target=target, iter=value)
                ):
                    pass
                case _:
                    continue
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    values.setdefault(name.id, []).append(value)
    return values


def _parametrized(mark: ast.expr) -> Values:
    """What the names of a `parametrize` stand for."""
    match mark:
        case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, rows, *_]):
            names = ast.literal_eval(names)
        case _:
            return {}
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else [*names]
    if len(names) == 1 or not isinstance(rows, ast.List | ast.Tuple):
        return {name: [rows] for name in names}
    values: Values = {name: [] for name in names}
    for row in rows.elts:
        cells = row.args if isinstance(row, ast.Call) else getattr(row, "elts", [])
        for name, cell in zip(names, cells, strict=False):
            values[name].append(cell)
    return values


def _texts(node: ast.expr, values: Values, above: frozenset[str] = frozenset()) -> list[str]:
    """The texts that an expression may be, or be a list of."""

    def of(*nodes: ast.expr) -> list[str]:
        return [text for node in nodes for text in _texts(node, values, above)]

    match node:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.Constant(value=bytes() as text):
            return [text.decode("utf-8", "replace")]
        case ast.JoinedStr(values=parts):
            return ["".join(p.value if isinstance(p, ast.Constant) else "0" for p in parts)]
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            lefts, rights = of(left) or ["0"], of(right) or ["0"]
            return [f"{one}{other}" for one in lefts[:50] for other in rights[:50]]
        case ast.BinOp(left=left):
            return of(left)
        case ast.Tuple(elts=nodes) | ast.List(elts=nodes) | ast.Set(elts=nodes):
            return of(*nodes)
        case ast.BoolOp(values=nodes):
            return of(*nodes)
        case ast.Dict(keys=keys, values=nodes):
            return of(*filter(None, keys), *nodes)
        case ast.IfExp(body=body, orelse=other):
            return of(body, other)
        case ast.Starred(value=value) | ast.Subscript(value=value) | ast.NamedExpr(value=value):
            return of(value)
        case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
            return of(elt)
        case ast.Call(func=function, args=arguments) if _name(function) in PASSES:
            base = [function.value] if isinstance(function, ast.Attribute) else []
            return of(*base, *arguments)
        case ast.Name(id=name) if name in values and name not in above:
            return [t for v in values[name] for t in _texts(v, values, above | {name})]
    return []


def _names(node: ast.expr, values: Values) -> set[str]:
    """The names that an expression's words may come from."""
    names: set[str] = set()
    parts: list[ast.expr] = [node]
    while parts:
        for part in ast.walk(parts.pop()):
            if isinstance(part, ast.Name) and part.id not in names:
                names.add(part.id)
                parts += values.get(part.id, ())
    return names
