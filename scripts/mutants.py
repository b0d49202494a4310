"""Mutation testing: seed one bug in the package at a time, and see whether a test notices.

    python scripts/mutants.py --report docs/mutants.md   # as `make mutants`
    python scripts/mutants.py --count 20 --rooms run report --seed 7

Each call draws another sample and says its seed. With that ``--seed``, a later call resumes:
results are kept in `.mutants.jsonl`, and it tries only mutants that are new, in a changed file, or
unnoticed so far.

This is our own script because no existing tool fits. mutmut 3 puts all mutants of a function next
to it, behind a switch; but this package reads its own sources (a run is identified by the syntax
trees of its code) and torch compiles them. mutmut also leaves class and module level code alone, of
which configurations consist. cosmic-ray starts Python for every mutant, with 4 s of imports each,
and can't sample. Neither knows what a stream, a round or a dependency is. Here a process that has
imported everything except the package forks for every file of tests; each fork works in a copy of
the repository. In the copy the bug is blessed: what notices it is a test, not the record of
fingerprints in `provenance/numerics.json`, which any change of code would alter.

`scripts/mutants_by_hand.py` tries a list of bugs that somebody wrote down.
"""

import argparse
import ast
import importlib
import json
import math
import multiprocessing
import os
import re
import resource
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from mutant_operators import Source, changes, dropped_lines

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/fedrepro")
RULES = Path("workflow/rules")
REASONS = ROOT / "tests/mutants.yaml"  # why survivors survive, by their description
KEPT = ROOT / ".mutants.jsonl"  # results so far
NO_REASON = "**no reason known: a test is missing**"
SAID = "said.txt"  # by the last tests, in each copy
NUMERICS = PACKAGE / "provenance/numerics.json"
OWN = "tests/unit/test_mutants.py"  # tests of this script, which read the sources that it changes
# Slow imports, done once before the first fork; nothing of the package.
WARM = (
    "torch", "torch._dynamo", "pandas", "pyarrow.parquet", "pydantic", "jinja2",
    "safetensors.torch", "scipy.stats", "sklearn.model_selection", "PIL.Image",
)  # fmt: skip
# Without tests that compile.
SLOW = "not rounds_of_many_lengths and not vectorised_and_sequential_runs_agree"
# The tests that must notice a change in a package, after those that name the changed file.
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
    "methods": [
        "tests/unit/methods", "tests/golden/test_trajectory_golden.py",
        "tests/property/test_every_method.py", "tests/property/test_identities.py",
    ],
    "models": ["tests/unit/models", "tests/property/test_models_side_by_side.py"],
    "analysis": ["tests/unit/analysis", "tests/golden/test_landscape_golden.py"],
    "measures": ["tests/unit/test_measures.py", "tests/whole/test_runs.py"],
    "report": ["tests/whole/test_pages.py", "tests/unit/report"],
    "config": [
        "tests/unit/config", "tests/whole/test_runs.py", "tests/unit/report/test_tables.py",
        "tests/unit/report/test_figures.py", "tests/unit/workflow/test_made_again.py",
    ],
    "workflow": [
        "tests/unit/workflow", "tests/workflow/test_scales.py", "tests/workflow/test_graph.py",
        "tests/workflow/test_failures.py", "tests/unit/config/test_searches.py",
    ],
    "cli": ["tests/unit/cli", "tests/whole/test_runs.py", "tests/workflow/test_command.py"],
    "api": ["tests/unit/test_api.py"],
}  # fmt: skip
# Packages whose files tests name by their last word, such as a method in a composition.
BY_WORD = ("methods", "models")
# Of the other packages; nothing is drawn from them.
FURTHER = {
    "cost": ["tests/unit/cost", "tests/unit/papers/test_cost.py"],
    "check": ["tests/property/test_every_method.py", "tests/unit/run/test_own_methods.py"],
    "papers": [
        "tests/unit/papers", "tests/unit/report/test_figures.py", "tests/whole/test_pages.py",
    ],
    "support": ["tests/unit/support", "tests/unit/config/test_files.py", "tests/unit/run"],
    "provenance": ["tests/unit/run", "tests/unit/workflow", "tests/unit/config"],
}  # fmt: skip
UNKNOWN = 400  # seconds of CPU time for a file of tests that has not run yet
MOST_NAMED = 8  # files of tests that name a changed file
BY_HAND = "## Bugs drawn by hand"  # begins the last section of the report
LEAST = 10  # mutants that make a rate


@dataclass(frozen=True)
class Mutant:
    """One change: characters ``first`` to ``last`` of a file become ``now``.

    Attributes:
        kind: the operator's name.
        line: the source line, as written.
        identity: a hash of the change and its whole file.
    """

    path: Path
    kind: str
    line: str
    first: int
    last: int
    was: str
    now: str
    identity: str

    @property
    def room(self) -> str:
        return room_of(self.path)

    @property
    def is_valid(self) -> bool:
        """Whether it is another program: a keyword may be missing in the middle of a line."""
        if self.path.suffix != ".py":
            return True
        text = (ROOT / self.path).read_text(encoding="utf-8")
        try:
            return ast.dump(ast.parse(self.mutated(text))) != ast.dump(ast.parse(text))
        except SyntaxError:
            return False

    def mutated(self, text: str) -> str:
        return text[: self.first] + self.now + text[self.last :]

    def __str__(self) -> str:
        was, now = (" ".join(text.split()) for text in (self.was, self.now))
        inside = self.path.is_relative_to(PACKAGE)
        path = self.path.relative_to(PACKAGE) if inside else self.path
        return f"{path}: `{self.line}`: `{was}` becomes `{now}`"


def room_of(path: Path) -> str:
    """The package of a file; "workflow" for rules."""
    inside = path.is_relative_to(PACKAGE)
    return path.relative_to(PACKAGE).parts[0] if inside else "workflow"


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix == ".py":
        found = changes(Source(text, drawing="drawing" in path.parts))
    else:
        found = (("dropped_line", change) for change in dropped_lines(text))
    for kind, ((first, last), now) in found:
        line = lines[text.count("\n", 0, first)].strip()
        identity = digest(f"{path} {text[:first]}{now}{text[last:]}")
        yield Mutant(path, kind, line, first, last, text[first:last], now, identity)


def find(rooms: Iterable[str], seed: int) -> dict[str, list[Mutant]]:
    """All mutants of each package, in a random order in which an edit moves no other mutant.

    Kinds take turns, so that a sample has each of them, however many of another there are.
    """
    mutants = {}
    for room in rooms:
        files = [*(ROOT / PACKAGE / room).rglob("*.py")]
        files += (ROOT / RULES).rglob("*.smk") if room == "workflow" else []
        by_kind: dict[str, list[tuple[str, Mutant]]] = defaultdict(list)
        for path in sorted(files):
            alike: Counter[str] = Counter()
            for mutant in mutants_of(path.relative_to(ROOT)):
                alike[str(mutant)] += 1
                place = digest(f"{seed} {mutant} {alike[str(mutant)]}")
                by_kind[mutant.kind].append((place, mutant))
        kinds = sorted(by_kind, key=lambda kind: digest(f"{seed} {room} {kind}"))
        drawn = [sorted(by_kind[kind], key=lambda pair: pair[0]) for kind in kinds]
        mutants[room] = [each[1] for turn in zip_longest(*drawn) for each in turn if each]
    return mutants


# --- the tests of a file ------------------------------------------------------------------------
@cache
def _texts(pattern: str) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))}


@cache
def tests_of(path: Path) -> list[str]:
    """The files of tests that must notice a change in a file: those that name it come first."""
    room = room_of(path)
    listed = [
        str(file.relative_to(ROOT))
        for each in TESTS.get(room) or FURTHER.get(room, [])
        for file in ([ROOT / each] if each.endswith(".py") else (ROOT / each).rglob("test_*.py"))
    ]
    if path.suffix != ".py":
        return listed
    package = ".".join(path.with_suffix("").parts[1:-1])
    imports = (
        rf"from {re.escape(package)} import [^\n]*\b{path.stem}\b|"
        rf"{re.escape(package)}\.{path.stem}\b"
    )
    words = "|".join(map(re.escape, sorted({path.stem, *_importers(path)})))
    named = rf"\b({words})\b" if room in BY_WORD else imports
    counted = {
        str(file.relative_to(ROOT)): (len(re.findall(imports, text)), len(re.findall(named, text)))
        for file, text in _texts("tests/[pguw]*/**/test_*.py").items()
        if "tests/workflow" not in file.as_posix()
    }
    first = sorted(
        (file for file, counts in counted.items() if any(counts) and file != OWN),
        key=lambda file: (path.stem not in Path(file).stem, *(-each for each in counted[file])),
    )
    return list(dict.fromkeys([*first[:MOST_NAMED], *listed]))


@cache
def all_tests() -> list[str]:
    """All files of tests that `make test` runs, but for those of this script."""
    other = {"slurm", "benchmarks", "support"}
    files = [file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    return [str(file) for file in files if not other & {*file.parts} and str(file) != OWN]


def _importers(path: Path) -> set[str]:
    """The files, by their last word, that import one of the same package."""
    module = ".".join(path.with_suffix("").parts[1:])
    parent, _, name = module.rpartition(".")
    imports = rf"from {re.escape(module)} import|from {re.escape(parent)} import [^\n]*\b{name}\b"
    texts = _texts(f"{PACKAGE / path.relative_to(PACKAGE).parts[0]}/**/*.py")
    return {file.stem for file, text in texts.items() if re.search(imports, text)}


# --- running ------------------------------------------------------------------------------------
def end_of_tests(copy: Path, tests: str, limit: int, some: str = SLOW) -> tuple[str, float]:
    """Run a file of tests in a fork until one fails; of its tests those that ``some`` selects.

    Returns "killed", "survived" or "endless" (more than ``limit`` seconds of CPU time, or twenty
    times that in wall time), and the seconds of CPU time that it took. Wall time alone would
    mistake a busy machine for a mutant that hangs.
    """
    child = os.fork()
    if not child:
        os.setsid()  # processes that a test starts can then be ended with it
        with suppress(OSError):  # Linux: each session has a share of its own
            Path("/proc/self/autogroup").write_text(str(os.nice(0)), encoding="ascii")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            if signal.getsignal(number) is signal.SIG_IGN:  # by nohup or a shell's `&`
                signal.signal(number, signal.SIG_DFL)
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
            failed = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-k", some, tests])
            os._exit(failed not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED))
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


def bless(copy: Path) -> str | None:
    """`numerics.json` in which all code of a copy counts as blessed; None if it can't start."""
    file, new = copy / NUMERICS, copy / "blessed.json"
    new.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        try:
            sys.path.insert(0, str(copy / "src"))
            sys.dont_write_bytecode, sys.pycache_prefix = False, str(copy / "bytecode")
            os.chdir(copy)
            numerics = importlib.import_module("fedrepro.provenance.numerics")
            known = json.loads(file.read_text(encoding="utf-8"))
            for part, code in numerics.today().items():
                known[part] = {"id": known.get(part, {}).get("id", code), "code": code}
            text = json.dumps(known, indent=1, sort_keys=True) + "\n"
            new.write_text(text, encoding="utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return new.read_text(encoding="utf-8") if new.exists() else None


class Worker:
    """Give a process of the pool its own copy of the repository."""

    copy: ClassVar[Path]
    tried: ClassVar[int] = 0
    blessed: ClassVar[str | None] = None
    last: ClassVar[tuple[str, ...]] = ()

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
    def _seconds(cls, tests: str, some: str) -> Path:
        """Where it stands what a file of tests takes, or what it says if it fails by itself."""
        return cls.copy.parent / f"{digest(tests + some)}.seconds"

    @classmethod
    def limit_of(cls, tests: str, some: str = SLOW) -> int:
        """Seconds of CPU time that a file of tests gets, from what it takes without a mutant.

        Raises:
            RuntimeError: if it fails without one.
        """
        known = cls._seconds(tests, some)
        if not known.exists():
            end, seconds = end_of_tests(cls.copy, tests, 1800, some)
            said = (cls.copy / SAID).read_text(encoding="utf-8", errors="replace")
            known.write_text(str(seconds) if end == "survived" else said, encoding="utf-8")
        seconds_or_said = known.read_text(encoding="utf-8")
        try:
            return 30 + 3 * math.ceil(float(seconds_or_said))
        except ValueError:
            raise RuntimeError(f"{tests} fails without any change:\n{seconds_or_said}") from None

    @classmethod
    @contextmanager
    def seeded(cls, mutants: Sequence[Mutant]) -> Iterator[None]:
        """While this lasts, the copy has these bugs."""
        paths = {mutant.path for mutant in mutants}
        if cls.last != (now := tuple(mutant.identity for mutant in mutants)):
            cls.last, cls.tried, cls.blessed = now, cls.tried + 1, None
        before = {
            path: (cls.copy / path).read_text(encoding="utf-8") for path in (*paths, NUMERICS)
        }
        written = {path: (cls.copy / path).stat().st_mtime for path in before}
        try:
            for path in paths:
                text = before[path]
                own = (mutant for mutant in mutants if mutant.path == path)
                for mutant in sorted(own, key=lambda each: -each.first):
                    text = mutant.mutated(text)
                (cls.copy / path).write_text(text, encoding="utf-8")
                # Python checks bytecode by its source's time in seconds and size, which mutants
                # may share.
                os.utime(cls.copy / path, (written[path] + cls.tried,) * 2)
            if cls.blessed is None and any(path.suffix == ".py" for path in paths):
                cls.blessed = bless(cls.copy)
            (cls.copy / NUMERICS).write_text(cls.blessed or before[NUMERICS], encoding="utf-8")
            yield
        finally:
            for path, text in before.items():
                (cls.copy / path).write_text(text, encoding="utf-8")
                os.utime(cls.copy / path, (written[path],) * 2)

    @classmethod
    def judge(cls, mutant: Mutant) -> tuple[str, str]:
        """How a mutant ended, and the file of tests that noticed it."""
        for tests in tests_of(mutant.path):
            if (end := cls.end_of([mutant], tests)) != "survived":
                return end, tests
        return "survived", ""

    @classmethod
    def end_of(cls, mutants: Sequence[Mutant], tests: str, some: str = SLOW) -> str:
        """How a file of tests ends with some mutants at a time.

        Raises:
            RuntimeError: if it fails without any.
        """
        known = cls._seconds(tests, some)
        limit = cls.limit_of(tests, some) if known.exists() else UNKNOWN
        with cls.seeded(mutants):
            end, seconds = end_of_tests(cls.copy, tests, limit, some)
        if end == "survived":
            # Most files pass: how long they take without a mutant is measured only where it counts.
            if not known.exists():
                known.write_text(str(seconds), encoding="utf-8")
        elif limit == UNKNOWN and (rightful := cls.limit_of(tests, some)) > limit:
            with cls.seeded(mutants):
                end, _ = end_of_tests(cls.copy, tests, rightful, some)
        return end


def kept(first: bool = False) -> dict[str, str]:
    """Results of earlier calls, by the mutants' identities: the last, or the ``first``."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    found = [json.loads(line) for line in lines]
    return {each["mutant"]: each["end"] for each in (reversed(found) if first else found)}


def judge(mutants: list[Mutant], jobs: int) -> None:
    """Try mutants; each result is saved at once."""
    fork = multiprocessing.get_context("fork")
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        # Not multiprocessing's pool: its processes may not start others, as tests do.
        ProcessPoolExecutor(jobs, fork, Worker.begin, (folder,)) as pool,
    ):
        ends = enumerate(pool.map(Worker.judge, mutants), 1)
        for mutant, (number, (end, by)) in zip(mutants, ends, strict=True):
            with KEPT.open("a", encoding="utf-8") as file:
                line = {"mutant": mutant.identity, "end": end, "by": by, "says": str(mutant)}
                file.write(json.dumps(line) + "\n")
            print(f"{number}/{len(mutants)} {end:8} {mutant.kind} {mutant} {by}", flush=True)


# --- the report ---------------------------------------------------------------------------------
def written(sample: list[Mutant], every: dict[str, list[Mutant]], seed: int) -> str:
    """docs/mutants.md."""
    reasons = yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}
    before, now = kept(first=True), kept()
    survivors = [mutant for mutant in sample if now[mutant.identity] == "survived"]
    lines = [
        "# Seeded bugs",
        "",
        "`make mutants` writes this page (`scripts/mutants.py`). It seeds one bug at a time, and",
        "runs the tests of the changed file and its package. Each call draws another sample; the",
        f"seed of this one is {seed}. Kinds of bugs take turns in it, so the rates are those of a",
        "sample in which all kinds are about equally frequent. Of fewer than "
        f"{LEAST} mutants there is",
        "no rate. Every survivor counts, whether or not it has a reason below. What is never",
        "drawn, because it changes nothing, are rules in `scripts/mutant_operators.py`.",
        "",
        "`make mutants HAND=1` tries a list of bugs drawn by hand (`tests/mutants_by_hand.yaml`)",
        "against the tests that name the changed file, then against all, and says which are not",
        "noticed.",
        "",
        "| package | possible | tried | noticed when first tried | noticed now | rate |",
        "|---|---|---|---|---|---|",
    ]
    rows = []
    for room in every:
        tried = [mutant.identity for mutant in sample if mutant.room == room]
        noticed = [sum(ends[each] != "survived" for each in tried) for ends in (before, now)]
        rows.append((room, len(every[room]), len(tried), *noticed))
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3, 4))))
    lines += [f"| {a} | {b} | {c} | {d} | {e} | {_rate(e, c)} |" for a, b, c, d, e in rows]
    lines += ["", "| kind of bug | tried | noticed now | rate |", "|---|---|---|---|"]
    for kind in sorted({mutant.kind for mutant in sample}):
        tried = [mutant.identity for mutant in sample if mutant.kind == kind]
        noticed_now = sum(now[each] != "survived" for each in tried)
        words = kind.replace("_", " ")
        lines.append(
            f"| {words} | {len(tried)} | {noticed_now} | {_rate(noticed_now, len(tried))} |"
        )
    lines += ["", "Not noticed:" if survivors else "Not noticed: none.", ""]
    lines += [f"- {mutant}: {reasons.get(str(mutant), NO_REASON)}" for mutant in survivors]
    return "\n".join([*lines, ""])


def _rate(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole >= LEAST else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=20, help="mutants per package")
    parser.add_argument("--rooms", nargs="+", choices=TESTS, default=list(TESTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="of the sample; default: a new one")
    parser.add_argument("--report", type=Path, help="where to write the report")
    given = parser.parse_args()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    print(f"seed {seed}: to resume, give --seed {seed}", flush=True)
    every = find(given.rooms, seed)
    for name in WARM:
        importlib.import_module(name)
    drawn = [
        list(islice((mutant for mutant in every[room] if mutant.is_valid), given.count))
        for room in given.rooms
    ]
    # Packages take turns, so that an interrupted call has tried some of each.
    sample = [mutant for turn in zip_longest(*drawn) for mutant in turn if mutant]
    ends = kept()
    new = [m for m in sample if ends.get(m.identity, "survived") == "survived"]
    if new:
        judge(new, given.jobs)
    text = written(sample, every, seed)
    print(text)
    if given.report:
        before = given.report.read_text(encoding="utf-8") if given.report.exists() else ""
        _, title, record = before.partition(BY_HAND)  # which is written by hand, too
        whole = f"{text}\n{title}{record}" if title else text
        given.report.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    main()
