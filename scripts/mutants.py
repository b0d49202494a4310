"""Mutation testing: change one thing in the package, see whether a test notices.

    python scripts/mutants.py --report docs/mutants.md   # as `make mutants`, in some 30 minutes
    python scripts/mutants.py --count 20 --rooms run report

A script of our own, because neither tool of the package index fits. mutmut 3 keeps all mutants of a
function beside it, behind a switch; but this package reads its own sources (a run is identified by
the syntax trees of its code) and has torch compile them, and mutmut changes no class or module
level code, of which configurations consist. cosmic-ray starts Python anew for every mutant, which
is 4 s of imports each, and has no sampling. Here a process that has imported all but the package
forks for every mutant; each fork works in a copy of the repository.
"""

import argparse
import ast
import contextlib
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/fedrepro")
REASONS = ROOT / "tests/mutants.yaml"  # of survivors, by how they are shown
NO_REASON = "**no reason known: a test is missing**"
SAID = "said.txt"  # by the last tests, in each copy
SEED = 1
# Imported once, before anything is forked: all that is slow, and nothing of the package.
WARM = (
    "torch", "torch._dynamo", "pandas", "pyarrow.parquet", "pydantic", "altair", "jinja2",
    "safetensors.torch", "scipy.stats", "sklearn.model_selection", "PIL.Image",
)  # fmt: skip
# What must notice a change in a room, the quickest first.
TESTS = {
    "engine": [
        "tests/whole/test_runs.py", "tests/unit/engine",
        "tests/golden/test_local_training_golden.py", "tests/property/test_identities.py",
        "tests/unit/models",
    ],
    "run": ["tests/whole/test_runs.py", "tests/unit/run", "tests/golden/test_superfed_golden.py"],
    "data": [
        "tests/whole/test_runs.py", "tests/golden/test_partition_golden.py", "tests/unit/data",
        "tests/golden/test_superfed_data_golden.py",
    ],
    "report": ["tests/unit/report", "tests/unit/analysis", "tests/whole/test_pages.py"],
    "config": [
        "tests/unit/config", "tests/whole/test_runs.py", "tests/unit/report/test_tables.py",
        "tests/unit/report/test_figures.py",
    ],
    "workflow": [
        "tests/unit/workflow", "tests/workflow/test_scales.py", "tests/workflow/test_graph.py",
        "tests/workflow/test_failures.py",
    ],
}  # fmt: skip
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: characters ``first`` to ``last`` of a file become ``now``.

    Attributes:
        line: where that is, as it stands there.
    """

    path: Path
    line: str
    first: int
    last: int
    was: str
    now: str

    @property
    def room(self) -> str:
        return self.path.relative_to(PACKAGE).parts[0]

    def mutated(self, text: str) -> str:
        return text[: self.first] + self.now + text[self.last :]

    def __str__(self) -> str:
        was, now = (" ".join(text.split()) for text in (self.was, self.now))
        return f"{self.path.relative_to(PACKAGE)}: `{self.line}`: `{was}` becomes `{now}`"


class Finder(ast.NodeVisitor):
    """All mutants of a file, but of annotations, decorators, docstrings and what is raised."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, (ROOT / path).read_text(encoding="utf-8")
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutant] = []

    def place(self, node: ast.AST) -> tuple[int, int]:
        """First and last character; ast counts the bytes of a line."""
        places = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        first, last = (
            self.starts[line - 1]
            + len(self.text[self.starts[line - 1] :].encode()[:column].decode())
            for line, column in places
        )
        return first, last

    def add(self, first: int, last: int, now: str) -> None:
        line = self.text.splitlines()[self.text.count("\n", 0, first)].strip()
        mutant = Mutant(self.path, line, first, last, self.text[first:last], now)
        with contextlib.suppress(SyntaxError):  # a keyword left out of the midst of a line
            ast.parse(mutant.mutated(self.text))
            self.found.append(mutant)

    def swap(self, left: ast.AST, right: ast.AST, operator: ast.AST) -> None:
        """Another operator between two operands."""
        if type(operator) in SWAPS:
            old, new = SWAPS[type(operator)]
            (_, first), (last, _) = self.place(left), self.place(right)
            between = self.text[first:last]
            if between.count(old) == 1:
                self.add(first, last, between.replace(old, new))

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, operands[1:], node.ops, strict=False):
            self.swap(left, right, operator)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, ast.BitOr):
            self.swap(node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.swap(left, right, node.op)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.swap(node.target, node.value, node.op)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(*self.place(node), str(not node.value))
        elif isinstance(node.value, int | float):
            self.add(*self.place(node), repr(node.value + 1))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.add(*self.place(test), "True")
        self.generic_visit(node)

    def negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp):  # those are swapped
            first, last = self.place(test)
            self.add(first, last, f"not ({self.text[first:last]})")

    def visit_Call(self, node: ast.Call) -> None:
        """Leave a keyword argument out."""
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in ("description", "encoding", "strict", "help"):
                first, last = self.place(keyword)
                after = self.text[last:]
                last += len(after) - len(after.lstrip(", \n")) if after[:1] == "," else 0
                self.add(first, last, "")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):  # a docstring is none
            self.add(*self.place(node), "pass")
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *(each for each in node.kw_defaults if each)):
            self.visit(default)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit(node.args)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_Raise(self, node: ast.Raise) -> None:
        pass


def find(rooms: Iterable[str]) -> dict[str, list[Mutant]]:
    """All mutants of each room, in an order that the seed shuffles."""
    mutants = {}
    for room in rooms:
        found: list[Mutant] = []
        for path in sorted((ROOT / PACKAGE / room).rglob("*.py")):
            finder = Finder(path.relative_to(ROOT))
            finder.visit(ast.parse(finder.text))
            found += finder.found
        random.Random(f"{SEED} {room}").shuffle(found)
        mutants[room] = found
    return mutants


# --- running ------------------------------------------------------------------------------------
def end_of_tests(copy: Path, room: str, limit: float) -> str:
    """Run a room's tests in a fork: "killed", "survived" or "endless" after ``limit`` seconds."""
    child = os.fork()
    if not child:
        os.setsid()  # what a test starts can then be ended with it
        os.chdir(copy)
        sys.path.insert(0, str(copy / "src"))
        os.environ["PYTHONPATH"] = str(copy / "src")
        said = os.open(copy / SAID, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for stream in range(3):
            os.dup2(said, stream)
        try:
            os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *TESTS[room]]))
        finally:
            os._exit(1)
    until = time.monotonic() + limit
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "killed" if status else "survived"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "endless"


class Worker:
    """What a process of the pool has: a copy of the repository of its own."""

    copy: ClassVar[Path]

    @classmethod
    def begin(cls, folder: str) -> None:
        cls.copy = Path(folder, str(os.getpid()))
        skip = (
            ".git",
            ".venv",
            ".tools",
            ".*_cache",
            "__pycache__",
            "results",
            "site",
            "reference",
        )
        shutil.copytree(ROOT, cls.copy, ignore=shutil.ignore_patterns(*skip), symlinks=True)

    @classmethod
    def unchanged(cls, room: str) -> float:
        """Seconds that a room's tests take when all is well."""
        began = time.monotonic()
        if end_of_tests(cls.copy, room, 1200) != "survived":
            said = (cls.copy / SAID).read_text(encoding="utf-8")
            raise RuntimeError(f"the tests of {room} fail without any change:\n{said}")
        return time.monotonic() - began

    @classmethod
    def judge(cls, task: tuple[Mutant, float]) -> str:
        mutant, limit = task
        file = cls.copy / mutant.path
        text = file.read_text(encoding="utf-8")
        file.write_text(mutant.mutated(text), encoding="utf-8")
        end = end_of_tests(cls.copy, mutant.room, limit)
        file.write_text(text, encoding="utf-8")
        return end


def judge(mutants: list[Mutant], jobs: int) -> list[tuple[Mutant, str]]:
    """What becomes of each mutant."""
    rooms = sorted({mutant.room for mutant in mutants})
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        multiprocessing.get_context("fork").Pool(jobs, Worker.begin, [folder]) as pool,
    ):
        limits = {
            room: 30 + 3 * seconds
            for room, seconds in zip(rooms, pool.map(Worker.unchanged, rooms, 1), strict=True)
        }
        ends = []
        tasks = [(mutant, limits[mutant.room]) for mutant in mutants]
        for mutant, end in zip(mutants, pool.imap(Worker.judge, tasks), strict=True):
            ends.append(end)
            print(f"{len(ends)}/{len(mutants)} {end:8} {mutant}", flush=True)
    return list(zip(mutants, ends, strict=True))


# --- the report ---------------------------------------------------------------------------------
def written(judged: list[tuple[Mutant, str]], every: dict[str, list[Mutant]]) -> str:
    """docs/mutants.md."""
    reasons = yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}
    survivors = [mutant for mutant, end in judged if end == "survived"]
    lost = Counter(mutant.room for mutant in survivors)
    tried = Counter(mutant.room for mutant, _ in judged)
    lines = [
        "# Seeded bugs",
        "",
        "Written by `make mutants`: single changes of the package, each run against the tests of",
        f"its room (`scripts/mutants.py`). A sample, drawn with seed {SEED}.",
        "",
        "| room | possible | tried | noticed | rate |",
        "|---|---|---|---|---|",
    ]
    rows = [(room, len(every[room]), tried[room], tried[room] - lost[room]) for room in tried]
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3))))
    lines += [f"| {a} | {b} | {c} | {d} | {d / c:.0%} |" for a, b, c, d in rows]
    lines += ["", "Not noticed:", ""]
    lines += [f"- {mutant}: {reasons.get(str(mutant), NO_REASON)}" for mutant in survivors]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="mutants of each room")
    parser.add_argument("--rooms", nargs="+", choices=TESTS, default=list(TESTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--report", type=Path, help="where to write what came out")
    given = parser.parse_args()
    every = find(given.rooms)
    for name in WARM:
        importlib.import_module(name)
    judged = judge([m for room in given.rooms for m in every[room][: given.count]], given.jobs)
    text = written(judged, every)
    print(text)
    if given.report:
        given.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
