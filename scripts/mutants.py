"""Mutation testing: change one thing in the package and see whether a test notices.

    python scripts/mutants.py --report docs/mutants.md   # as `make mutants`, in some 30 minutes
    python scripts/mutants.py --count 20 --rooms run report

Results are kept in `.mutants.jsonl`: a later call resumes, and tries only mutants that are new, in
a changed file, or unnoticed so far. Delete it to start again.

This is our own script because no existing tool fits. mutmut 3 puts all mutants of a function next
to it, behind a switch; but this package reads its own sources (a run is identified by the syntax
trees of its code) and torch compiles them. mutmut also leaves class and module level code alone, of
which configurations consist. cosmic-ray starts Python for every mutant, with 4 s of imports each,
and can't sample. Here a process that has imported everything except the package forks for every
mutant; each fork works in a copy of the repository.
"""

import argparse
import ast
import contextlib
import importlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/fedrepro")
REASONS = ROOT / "tests/mutants.yaml"  # why survivors survive, by their description
KEPT = ROOT / ".mutants.jsonl"  # results so far
NO_REASON = "**no reason known: a test is missing**"
SAID = "said.txt"  # by the last tests, in each copy
SEED = 1
# Slow imports, done once before the first fork; nothing of the package.
WARM = (
    "torch", "torch._dynamo", "pandas", "pyarrow.parquet", "pydantic", "jinja2",
    "safetensors.torch", "scipy.stats", "sklearn.model_selection", "PIL.Image",
)  # fmt: skip
# The tests that must notice a change in a package, fastest first, without those that compile.
SLOW = "not rounds_of_many_lengths and not vectorised_and_sequential_runs_agree"
TESTS = {
    "engine": [
        "tests/whole/test_runs.py", "tests/unit/engine",
        "tests/golden/test_local_training_golden.py", "tests/property/test_identities.py",
        "tests/unit/models", "tests/property/test_layers_that_draw.py",
        "tests/property/test_pretraining.py",
    ],
    "run": [
        "tests/whole/test_runs.py", "tests/unit/engine/test_metrics.py", "tests/unit/run",
        "tests/golden/test_superfed_golden.py",
    ],
    "data": [
        "tests/whole/test_runs.py", "tests/golden/test_partition_golden.py", "tests/unit/data",
        "tests/golden/test_superfed_data_golden.py",
    ],
    "report": ["tests/whole/test_pages.py", "tests/unit/report"],
    "config": [
        "tests/unit/config", "tests/whole/test_runs.py", "tests/unit/report/test_tables.py",
        "tests/unit/report/test_figures.py",
    ],
    "workflow": [
        "tests/unit/workflow", "tests/workflow/test_scales.py", "tests/workflow/test_graph.py",
        "tests/workflow/test_failures.py", "tests/unit/config/test_searches.py",
    ],
}  # fmt: skip
# In drawings, only what can be wrong is mutated, not the look.
DRAWING = PACKAGE / "report/drawing"
LOOKS = {
    "align", "axis", "background", "color", "domainColor", "dx", "filled", "font", "fontSize",
    "grid", "gridColor", "gridOpacity", "height", "labelAngle", "labelColor", "labelFontSize",
    "labelPadding", "legend", "minExtent", "nice", "opacity", "padding", "shape", "size",
    "tickColor", "tickCount", "tickSize", "ticks", "titleColor", "titleFontSize",
    "titleFontWeight", "titlePadding", "width",
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
        line: the source line, as written.
        identity: a hash of the change and its whole file.
    """

    path: Path
    line: str
    first: int
    last: int
    was: str
    now: str
    identity: str

    @property
    def room(self) -> str:
        return self.path.relative_to(PACKAGE).parts[0]

    def mutated(self, text: str) -> str:
        return replaced(text, self.first, self.last, self.now)

    def __str__(self) -> str:
        was, now = (" ".join(text.split()) for text in (self.was, self.now))
        return f"{self.path.relative_to(PACKAGE)}: `{self.line}`: `{was}` becomes `{now}`"


def replaced(text: str, first: int, last: int, now: str) -> str:
    return text[:first] + now + text[last:]


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class Finder(ast.NodeVisitor):
    """All mutants of a file, except in annotations, decorators, docstrings and raised errors."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, (ROOT / path).read_text(encoding="utf-8")
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutant] = []

    def place(self, node: ast.AST) -> tuple[int, int]:
        """First and last character of a node, for which ast counts bytes."""
        places = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        first, last = (
            self.starts[line - 1]
            + len(self.text[self.starts[line - 1] :].encode()[:column].decode())
            for line, column in places
        )
        return first, last

    def add(self, first: int, last: int, now: str) -> None:
        line = self.text.splitlines()[self.text.count("\n", 0, first)].strip()
        mutated = replaced(self.text, first, last, now)
        identity = digest(f"{self.path} {mutated}")
        mutant = Mutant(self.path, line, first, last, self.text[first:last], now, identity)
        with contextlib.suppress(SyntaxError):  # a keyword removed in the middle of a line
            ast.parse(mutated)
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
        if not isinstance(test, ast.Compare | ast.BoolOp):  # these are swapped instead
            first, last = self.place(test)
            self.add(first, last, f"not ({self.text[first:last]})")

    def visit_Call(self, node: ast.Call) -> None:
        """Leave a keyword argument out."""
        if self.path.is_relative_to(DRAWING):
            node.keywords = [each for each in node.keywords if each.arg not in LOOKS]
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in ("description", "encoding", "strict", "help"):
                first, last = self.place(keyword)
                after = self.text[last:]
                last += len(after) - len(after.lstrip(", \n")) if after[:1] == "," else 0
                self.add(first, last, "")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):  # skip docstrings
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
    """All mutants of each package, in a random order in which an edit moves no other mutant."""
    mutants = {}
    for room in rooms:
        drawn: list[tuple[str, Mutant]] = []
        for path in sorted((ROOT / PACKAGE / room).rglob("*.py")):
            finder = Finder(path.relative_to(ROOT))
            finder.visit(ast.parse(finder.text))
            alike: Counter[str] = Counter()
            for mutant in finder.found:
                alike[str(mutant)] += 1
                drawn.append((digest(f"{SEED} {mutant} {alike[str(mutant)]}"), mutant))
        mutants[room] = [mutant for _, mutant in sorted(drawn, key=lambda pair: pair[0])]
    return mutants


# --- running ------------------------------------------------------------------------------------
def end_of_tests(copy: Path, room: str, limit: int) -> tuple[str, float]:
    """Run a package's tests in a fork, file by file, until one fails.

    Returns "killed", "survived" or "endless" (more than ``limit`` seconds of CPU time, or twenty
    times that in wall time), and the seconds of CPU time that it took. Wall time alone would
    mistake a busy machine for a mutant that hangs.
    """
    child = os.fork()
    if not child:
        os.setsid()  # processes that a test starts can then be ended with it
        os.chdir(copy)
        sys.path.insert(0, str(copy / "src"))
        os.environ["PYTHONPATH"] = str(copy / "src")
        # Keep the copy's bytecode: most files are the same for every mutant.
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(copy / "bytecode")
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        said = os.open(copy / SAID, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for stream in range(3):
            os.dup2(said, stream)
        try:
            for tests in TESTS[room]:
                if pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-k", SLOW, tests]):
                    os._exit(1)
            os._exit(0)
        finally:
            os._exit(1)
    until = time.monotonic() + 20 * limit
    while time.monotonic() < until:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            endless = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
            end = "endless" if endless else "killed" if status else "survived"
            return end, used.ru_utime + used.ru_stime
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "endless", math.inf


class Worker:
    """Give a process of the pool its own copy of the repository."""

    copy: ClassVar[Path]
    tried: ClassVar[int] = 0

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
        )
        shutil.copytree(ROOT, cls.copy, ignore=shutil.ignore_patterns(*skip), symlinks=True)

    @classmethod
    def unchanged(cls, room: str) -> float:
        """Seconds of CPU time that a package's tests take without mutants."""
        end, seconds = end_of_tests(cls.copy, room, 3600)
        if end != "survived":
            said = (cls.copy / SAID).read_text(encoding="utf-8")
            raise RuntimeError(f"the tests of {room} fail without any change:\n{said}")
        return seconds

    @classmethod
    def judge(cls, task: tuple[Mutant, int]) -> str:
        mutant, limit = task
        file = cls.copy / mutant.path
        text, written = file.read_text(encoding="utf-8"), file.stat().st_mtime
        file.write_text(mutant.mutated(text), encoding="utf-8")
        # Python checks bytecode by its source's time in seconds and size, which mutants may share.
        cls.tried += 1
        os.utime(file, (written + cls.tried,) * 2)
        end, _ = end_of_tests(cls.copy, mutant.room, limit)
        file.write_text(text, encoding="utf-8")
        os.utime(file, (written,) * 2)
        return end


def kept(first: bool = False) -> dict[str, str]:
    """Results of earlier calls, by the mutants' identities: the last, or the ``first``."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    found = [json.loads(line) for line in lines]
    return {each["mutant"]: each["end"] for each in (reversed(found) if first else found)}


def judge(mutants: list[Mutant], jobs: int) -> None:
    """Try mutants; each result is saved at once."""
    rooms = sorted({mutant.room for mutant in mutants})
    fork = multiprocessing.get_context("fork")
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        # Not multiprocessing's pool: its processes may not start others, as tests do.
        ProcessPoolExecutor(jobs, fork, Worker.begin, (folder,)) as pool,
    ):
        limits = {
            room: 30 + 3 * math.ceil(seconds)
            for room, seconds in zip(rooms, pool.map(Worker.unchanged, rooms), strict=True)
        }
        tasks = [(mutant, limits[mutant.room]) for mutant in mutants]
        ends = enumerate(pool.map(Worker.judge, tasks), 1)
        for mutant, (number, end) in zip(mutants, ends, strict=True):
            with KEPT.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"mutant": mutant.identity, "end": end}) + "\n")
            print(f"{number}/{len(mutants)} {end:8} {mutant}", flush=True)


# --- the report ---------------------------------------------------------------------------------
def written(judged: list[tuple[Mutant, str]], every: dict[str, list[Mutant]]) -> str:
    """docs/mutants.md."""
    reasons = yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}
    survivors = [mutant for mutant, end in judged if end == "survived"]
    lost = Counter(mutant.room for mutant in survivors)
    tried = Counter(mutant.room for mutant, _ in judged)
    before = kept(first=True)
    missed = Counter(m.room for m, _ in judged if before[m.identity] == "survived")
    lines = [
        "# Seeded bugs",
        "",
        "`make mutants` writes this page (`scripts/mutants.py`). It changes one thing in a package",
        "at a time and runs that package's tests. The changes are a sample, drawn with seed",
        f"{SEED}. A change that a test noticed is tried again only after its file has changed; one",
        "that no test noticed is tried in every call. The look of drawings (colours, sizes, ticks)",
        "is left out, because tests do not define it.",
        "",
        "| package | possible | tried | noticed when first tried | noticed now | rate |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        (room, len(every[room]), tried[room], tried[room] - missed[room], tried[room] - lost[room])
        for room in tried
    ]
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3, 4))))
    lines += [f"| {a} | {b} | {c} | {d} | {e} | {e / c:.0%} |" for a, b, c, d, e in rows]
    lines += ["", "Not noticed:" if survivors else "Not noticed: none.", ""]
    lines += [f"- {mutant}: {reasons.get(str(mutant), NO_REASON)}" for mutant in survivors]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=25, help="mutants per package")
    parser.add_argument("--rooms", nargs="+", choices=TESTS, default=list(TESTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--report", type=Path, help="where to write the report")
    given = parser.parse_args()
    every = find(given.rooms)
    for name in WARM:
        importlib.import_module(name)
    sample = [mutant for room in given.rooms for mutant in every[room][: given.count]]
    ends = kept()
    new = [m for m in sample if ends.get(m.identity, "survived") == "survived"]
    if new:
        judge(new, given.jobs)
    ends = kept()
    found = [m for room in given.rooms for m in every[room] if m.identity in ends]
    text = written([(mutant, ends[mutant.identity]) for mutant in found], every)
    print(text)
    if given.report:
        given.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
