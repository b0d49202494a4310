"""The bugs that scripts/mutants.py seeds: one function for each kind, over a file's syntax tree.

An operator takes a node and the file, and yields changes: a place (first and last character) and
the text that it gets. What is left out is equivalent by a rule, and the rules are these:

- annotations, decorators, docstrings, imports, assertions, and what a raised error says;
- the order of arguments of a symmetric function, and of values to the right of ``in``;
- keyword arguments in :data:`SAID`, and in drawings those in :data:`LOOKS`: words and looks.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

Change = tuple[tuple[int, int], str]
Operator = Callable[[ast.AST, "Source"], Iterator[Change]]

# Keyword arguments that say something, or that another linter or platform asks for.
SAID = {"description", "encoding", "strict", "help", "metavar"}
LOOKS = {
    "align", "axis", "background", "color", "domainColor", "dx", "filled", "font", "fontSize",
    "grid", "gridColor", "gridOpacity", "height", "labelAngle", "labelColor", "labelFontSize",
    "labelPadding", "legend", "minExtent", "nice", "opacity", "padding", "shape", "size",
    "tickColor", "tickCount", "tickSize", "ticks", "titleColor", "titleFontSize",
    "titleFontWeight", "titlePadding", "width",
}  # fmt: skip
SYMMETRIC = {
    "max", "min", "maximum", "minimum", "gcd", "isclose", "allclose", "equal", "mse_loss",
    "isinstance", "issubclass", "hasattr", "getattr",
}  # fmt: skip
OPERATORS: list[Operator] = []
COMPARISONS: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")), ast.LtE: ("<=", ("<", ">=")), ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")), ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)), ast.NotIn: ("not in", ("in",)), ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
}  # fmt: skip
ARITHMETIC: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)), ast.Sub: ("-", ("+",)), ast.Mult: ("*", ("/",)),
    ast.Div: ("/", ("*",)), ast.FloorDiv: ("//", ("*",)), ast.Mod: ("%", ("*",)),
    ast.Pow: ("**", ("*",)),
}  # fmt: skip
CONNECTIVES: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.And: ("and", ("or",)), ast.Or: ("or", ("and",)),
}  # fmt: skip
REDUCTIONS = {
    "mean": "sum", "sum": "mean", "max": "min", "min": "max", "argmax": "argmin",
    "argmin": "argmax", "any": "all", "all": "any", "fmean": "fsum", "median": "mean",
}  # fmt: skip
BUILT_IN = {"max", "min", "any", "all"}  # of these, functions and not only methods
ROUND = re.compile(r"(^|_)(round|rounds|epoch|epochs|step|steps|number)$")
VALUES = ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp


class Source:
    """A file's text, and where a node is in it."""

    def __init__(self, text: str, drawing: bool = False) -> None:
        self.text, self.drawing = text, drawing
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        # Displays in which order says nothing.
        self.unordered = {
            id(each)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Compare)
            for each in node.comparators
        }

    def place(self, node: ast.AST) -> tuple[int, int]:
        """First and last character of a node, for which ast counts bytes."""
        places = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        first, last = (
            self.starts[line - 1]
            + len(self.text[self.starts[line - 1] :].encode()[:column].decode())
            for line, column in places
        )
        return first, last

    def of(self, node: ast.AST) -> str:
        first, last = self.place(node)
        return self.text[first:last]

    def between(
        self,
        left: ast.AST,
        right: ast.AST,
        operator: ast.AST,
        others: dict[type[ast.AST], tuple[str, tuple[str, ...]]],
    ) -> Iterator[Change]:
        """Other operators between two operands."""
        if type(operator) not in others:
            return
        old, news = others[type(operator)]
        (_, first), (last, _) = self.place(left), self.place(right)
        if self.text[first:last].count(old) == 1:
            for new in news:
                yield (first, last), self.text[first:last].replace(old, new)

    def without(self, nodes: Sequence[ast.AST], number: int) -> Change:
        """One of several nodes that commas separate left out."""
        if number + 1 < len(nodes):
            (first, _), (last, _) = self.place(nodes[number]), self.place(nodes[number + 1])
            return (first, last), ""
        (_, first), (_, last) = self.place(nodes[number - 1]), self.place(nodes[number])
        return (first, last), ""

    def swapped(self, one: ast.AST, other: ast.AST) -> Change:
        (first, after), (before, last) = self.place(one), self.place(other)
        return (first, last), self.of(other) + self.text[after:before] + self.of(one)


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one that say what the program does."""
    for child in _children(node):
        yield child
        yield from nodes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return
        case ast.Expr(value=ast.Constant()):  # a docstring
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.JoinedStr() if sys.version_info < (3, 12):  # which has no places inside
            return
        case ast.Assign(targets=[ast.Name(id=name)]) if re.match("[A-Z][a-z]", name):  # a type
            return
        case ast.AnnAssign():
            yield from [node.value] if node.value else []
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.args
            yield from node.body
        case ast.arguments():
            yield from [*node.defaults, *(each for each in node.kw_defaults if each)]
        case ast.ClassDef():
            yield from node.body
        case _:
            yield from ast.iter_child_nodes(node)


def changes(source: Source) -> Iterator[tuple[str, Change]]:
    """Every change of a file, with its operator's name."""
    for node in nodes(source.tree):
        for operator in OPERATORS:
            for place, now in operator(node, source):
                if source.text[slice(*place)] != now:
                    yield operator.__name__, (place, now)


def operator(function: Operator) -> Operator:
    OPERATORS.append(function)
    return function


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_text(node: ast.AST) -> bool:
    words = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return words or isinstance(node, ast.JoinedStr)


# --- tokens -------------------------------------------------------------------------------------
@operator
def other_comparison(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for (left, right), between in zip(pairwise(operands), node.ops, strict=True):
            yield from source.between(left, right, between, COMPARISONS)


@operator
def other_arithmetic(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.BinOp):
        yield from source.between(node.left, node.right, node.op, ARITHMETIC)
    if isinstance(node, ast.AugAssign):
        yield from source.between(node.target, node.value, node.op, ARITHMETIC)


@operator
def other_connective(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        for left, right in pairwise(node.values):
            yield from source.between(left, right, node.op, CONNECTIVES)


@operator
def other_constant(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield source.place(node), str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield source.place(node), repr(node.value + 1)


@operator
def negated_condition(node: ast.AST, source: Source) -> Iterator[Change]:
    """Comparisons have operators of their own."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Compare | ast.BoolOp):
                yield source.place(test), f"not ({source.of(test)})"


@operator
def dropped_keyword(node: ast.AST, source: Source) -> Iterator[Change]:
    unsaid = SAID | LOOKS if source.drawing else SAID
    if isinstance(node, ast.Call):
        given = [*node.args, *node.keywords]
        for number, keyword in enumerate(given):
            if isinstance(keyword, ast.keyword) and keyword.arg and keyword.arg not in unsaid:
                whole = len(given) == 1
                yield (source.place(keyword), "") if whole else source.without(given, number)


@operator
def dropped_call(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield source.place(node), "pass"


# --- meaning ------------------------------------------------------------------------------------
@operator
def swapped_arguments(node: ast.AST, source: Source) -> Iterator[Change]:
    """Also two keywords' values, and two elements of a list or tuple."""
    values: list[list[ast.expr]] = []
    if isinstance(node, ast.Call) and _called(node) not in SYMMETRIC:
        values = [node.args, [each.value for each in node.keywords if each.arg not in SAID]]
    elif isinstance(node, ast.List | ast.Tuple) and id(node) not in source.unordered:
        values = [node.elts] if isinstance(node.ctx, ast.Load) else []
    for group in values:
        for one, other in pairwise(group):
            if isinstance(one, VALUES) and isinstance(other, VALUES):
                yield source.swapped(one, other)


@operator
def dropped_operand(node: ast.AST, source: Source) -> Iterator[Change]:
    """A weight, a factor or a term less."""
    if isinstance(node, ast.BinOp) and not (_is_text(node.left) or _is_text(node.right)):
        if isinstance(node.op, ast.Mult | ast.Div | ast.Add | ast.Sub):
            yield source.place(node), f"({source.of(node.left)})"
        if isinstance(node.op, ast.Mult):
            yield source.place(node), f"({source.of(node.right)})"


@operator
def wrong_stream(node: ast.AST, source: Source) -> Iterator[Change]:
    """Another purpose's random numbers, or the same for all rounds or clients."""
    if isinstance(node, ast.Call) and _called(node) in ("stream", "numpy_stream"):
        for purpose in filter(_is_text, node.args):
            other = "cohort" if "shuffle" in source.of(purpose) else "shuffle"
            yield source.place(purpose), f'"{other}"'
        for number, given in enumerate(node.args):
            if number and not _is_text(given):
                yield source.without(node.args, number)


@operator
def other_state(node: ast.AST, source: Source) -> Iterator[Change]:
    """What was changed or copied, as it was; or what was kept, made anew."""
    match node:
        case ast.Call(func=ast.Attribute(value=kept, attr="clone" | "copy" | "detach"), args=[]):
            yield source.place(node), source.of(kept)
        case ast.Call(func=ast.Name(id="replace" | "deepcopy" | "copy"), args=[kept, *_]):
            yield source.place(node), source.of(kept)
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, new]):
            yield source.place(node), source.of(new)
        case ast.BinOp(left=kept, op=ast.BitOr(), right=ast.Dict()):
            yield source.place(node), source.of(kept)
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield source.place(node), "pass"
        case ast.AugAssign():
            yield source.place(node), "pass"


@operator
def one_branch(node: ast.AST, source: Source) -> Iterator[Change]:
    """Always one side of a choice, such as to start anew or to go on."""
    if isinstance(node, ast.IfExp):
        yield source.place(node), f"({source.of(node.body)})"
        yield source.place(node), f"({source.of(node.orelse)})"


@operator
def dropped_condition(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        for number in range(len(node.values)):
            yield source.without(node.values, number)
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield source.place(test), "True"


@operator
def other_axis(node: ast.AST, source: Source) -> Iterator[Change]:
    """A mean over the other axis, or a sum for a mean."""
    if not isinstance(node, ast.Call):
        return
    name = _called(node)
    if name in REDUCTIONS and (isinstance(node.func, ast.Attribute) or name in BUILT_IN):
        _, last = source.place(node.func)
        yield (last - len(name), last), REDUCTIONS[name]
        axes = node.args[:1] if isinstance(node.func, ast.Attribute) else []
    else:
        axes = []
    named = [each.value for each in node.keywords if each.arg in ("dim", "axis")]
    for axis in (*axes, *named):
        if isinstance(axis, ast.Constant | ast.UnaryOp) and source.of(axis) in ("0", "1", "-1"):
            yield source.place(axis), "1" if source.of(axis) == "0" else "0"


@operator
def off_by_one(node: ast.AST, source: Source) -> Iterator[Change]:
    """One round, epoch or step too many; a slice that begins or ends one later."""
    found: list[ast.expr] = []
    match node:
        case ast.Call():
            found = [*node.args, *(each.value for each in node.keywords)]
        case ast.Compare():
            found = [node.left, *node.comparators]
        case ast.Slice():
            for bound in filter(None, (node.lower, node.upper)):
                yield source.place(bound), f"({source.of(bound)}) + 1"
    for each in found:
        name = each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "")
        if ROUND.search(name):
            yield source.place(each), f"({source.of(each)} + 1)"


@operator
def dropped_element(node: ast.AST, source: Source) -> Iterator[Change]:
    """A dependency, a column or a key less."""
    if isinstance(node, ast.Dict) and len(node.keys) > 1:
        for number, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            before = node.values[number - 1] if number else None
            start = source.place(before)[1] if before else source.place(key or value)[0]
            end = source.place(value)[1]
            if before is None:  # with the comma behind it
                end += len(source.text[end:]) - len(source.text[end:].lstrip(", \n"))
            if key is not None or before is not None:
                yield (start, end), ""
    match node:
        case ast.Set() | ast.List(ctx=ast.Load()):
            whole = len(node.elts) > 1
        case ast.Tuple(ctx=ast.Load()):  # others are unpacked, and fail at once
            whole = len(node.elts) > 1 and any(isinstance(e, ast.Starred) for e in node.elts)
        case _:
            return
    for number in range(len(node.elts) if whole else 0):
        yield source.without(node.elts, number)


@operator
def dropped_check(node: ast.AST, source: Source) -> Iterator[Change]:
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
        yield source.place(node.test), "False"


@operator
def other_direction(node: ast.AST, source: Source) -> Iterator[Change]:
    """Less is better where more was, or a sign less."""
    match node:
        case ast.Attribute(attr="higher_is_better", ctx=ast.Load()):
            yield source.place(node), f"(not {source.of(node)})"
        case ast.UnaryOp(op=ast.USub(), operand=value) if not isinstance(value, ast.Constant):
            yield source.place(node), source.of(value)
        case ast.UnaryOp(op=ast.Not(), operand=value):
            yield source.place(node), source.of(value)


def dropped_lines(text: str) -> Iterator[Change]:
    """Of a file of rules: an input or a parameter less."""
    start, section = 0, ""
    for line in text.splitlines(keepends=True):
        if re.fullmatch(r" {4}\w+:.*\n", line):
            section = line.strip()
        if section in ("input:", "params:") and re.fullmatch(r" {8}[^#\s].*,\n", line):
            yield (start, start + len(line)), ""
        start += len(line)
