"""Try bugs that somebody wrote down, one at a time, and see whether a test notices each.

    python scripts/mutants_by_hand.py --check     # the list alone; nothing is run
    python scripts/mutants_by_hand.py             # as `make mutants HAND=1`; resumes
    python scripts/mutants_by_hand.py --only 3 17
    python scripts/mutants_by_hand.py --list tests/mutants_by_hand_2.yaml

The list is `tests/mutants_by_hand.yaml`, whose head says how an entry looks. Those who draw it have
written none of the tests, and it is complete before the first test runs: results in
`.mutants_by_hand.jsonl` name the list that they are of by its SHA-256.

The few files of tests that name most of the changed file come first, then all that `make test`
runs. For these, all bugs that are left are seeded together, and a file of tests that fails is tried
with each half of them, down to single bugs. A bug is tried again if its file has changed, or if it
was not noticed and tests have changed since.
Files of tests that fail without any bug are left out and named.
"""

import argparse
import ast
import importlib
import json
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from mutants import (
    MOST_NAMED,
    PACKAGE,
    ROOT,
    RULES,
    WARM,
    Mutant,
    Worker,
    all_tests,
    digest,
    tests_of,
)

LIST = ROOT / "tests/mutants_by_hand.yaml"
KEPT = ROOT / ".mutants_by_hand.jsonl"
SURVIVED, LEFT = "survived", "left"  # LEFT: by the first look; the others are still to come
KEYS = {"file", "old", "new", "kind", "why", "equivalent"}
# Kinds of bug that tests once missed, in words.
KINDS = {
    "staleness": "what is current or stale, outside Snakemake",
    "deep models": "BatchNorm, more than ten layers, names that begin with others",
    "direction": "less is better, a match that is judged, a divergence of old code",
    "default": "a default or a default formula",
    "share": "a share that becomes a number",
    "unequal clients": "where a weight is read",
    "standardised": "rows held out where clients standardise",
    "dtype": "the right shape with another type of number",
    "one missing": "one record of several",
    "replay": "a replay of another result, or of old code",
    "parent": "a parent run of another class",
    "fraction": "percent and fractions in verdicts",
    "process group": "signals to all processes",
    "columns": "packed runs whose methods have other columns",
    "part": "a part of a model loaded as a model",
    "other": "anything else",
}


@dataclass(frozen=True)
class Entry:
    """A bug of the list; ``equivalent`` says why it changes nothing, or ""."""

    number: int
    mutant: Mutant
    why: str
    equivalent: str

    @property
    def bug(self) -> str:
        """A hash of the change alone, which stays when the rest of its file changes."""
        return digest(f"{self.mutant.path} {self.mutant.was} {self.mutant.now}")


def read(path: Path) -> list[Entry]:
    """All bugs of a list.

    Raises:
        SystemExit: with a line for each mistake.
    """
    listed = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    found: list[Entry] = []
    faults: list[str] = []
    for number, raw in enumerate(listed, 1):
        try:
            found.append(_entry(number, raw))
        except ValueError as error:
            faults.append(f"{path.name}: {number}: {error}")
    same = Counter(each.mutant.identity for each in found)
    faults += [
        f"{path.name}: {each.number}: it is there twice"
        for each in found
        if same[each.mutant.identity] > 1
    ]
    if faults:
        raise SystemExit("\n".join(faults))
    return found


def _entry(number: int, raw: Any) -> Entry:
    if not isinstance(raw, dict) or not {*raw} <= KEYS or not KEYS - {"equivalent"} <= {*raw}:
        raise ValueError(f"expected {', '.join(sorted(KEYS - {'equivalent'}))}, and no other key")
    path = Path(raw["file"])
    if not (path.is_relative_to(PACKAGE) or path.is_relative_to(RULES)):
        raise ValueError(f"file: {path}: expected a file of {PACKAGE} or {RULES}")
    if not (ROOT / path).is_file():
        raise ValueError(f"file: {path}: there is no such file")
    if raw["kind"] not in KINDS:
        raise ValueError(f"kind: {raw['kind']}: expected one of {', '.join(KINDS)}")
    text, old, new = (ROOT / path).read_text(encoding="utf-8"), str(raw["old"]), str(raw["new"])
    if text.count(old) != 1:
        raise ValueError(f"old: it is there {text.count(old)} times: expected once")
    first = text.index(old)
    line = text.splitlines()[text.count("\n", 0, first)].strip()
    identity = digest(f"{path} {text[:first]}{new}{text[first + len(old) :]}")
    mutant = Mutant(path, raw["kind"], line, first, first + len(old), old, new, identity)
    if path.suffix == ".py" and (why := not_one_expression(text, mutant.mutated(text))):
        raise ValueError(f"new: {why}")
    return Entry(number, mutant, str(raw["why"]), str(raw.get("equivalent", "")))


def not_one_expression(before: str, after: str) -> str:
    """Why a file is not another by one changed expression, in words; or ""."""
    try:
        trees = ast.parse(before), ast.parse(after)
    except SyntaxError as error:
        return f"it is no Python: {error.msg}, line {error.lineno}"
    changed = _changed(*trees)
    if changed is None:
        return "it is the same program"
    if isinstance(changed, ast.mod) or (isinstance(changed, ast.stmt) and hasattr(changed, "body")):
        return f"it changes more than one expression, in a {type(changed).__name__}"
    return ""


def _changed(one: ast.AST, other: ast.AST) -> ast.AST | None:
    """The smallest part of a syntax tree that holds all differences; None without any."""
    if ast.dump(one) == ast.dump(other):
        return None
    if type(one) is not type(other):
        return one
    pairs: list[tuple[ast.AST, ast.AST]] = []
    for (_, left), (_, right) in zip(ast.iter_fields(one), ast.iter_fields(other), strict=True):
        lists = [each if isinstance(each, list) else [each] for each in (left, right)]
        if len(lists[0]) != len(lists[1]):
            return one
        for a, b in zip(*lists, strict=True):
            if not isinstance(a, ast.AST) or not isinstance(b, ast.AST):
                if a != b:
                    return one
            elif ast.dump(a) != ast.dump(b):
                pairs.append((a, b))
    return _changed(*pairs[0]) if len(pairs) == 1 else one


# --- how the list is spread -----------------------------------------------------------------------
def code_lines(room: str) -> int:
    """Lines of code of a package, without comments and docstrings, in one layout."""
    lines = 0
    for path in (ROOT / PACKAGE / room).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and _is_docstring(body[0]):
                body[0] = ast.Pass()
        lines += len(ast.unparse(tree).splitlines())
    return lines


def _is_docstring(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return (
        isinstance(node, ast.Expr)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    )


def spread(entries: Sequence[Entry]) -> str:
    """How many bugs each package has, and would have by its lines of code; and each kind."""
    rooms = sorted(
        path.name for path in (ROOT / PACKAGE).iterdir() if (path / "__init__.py").is_file()
    )
    lines = {room: code_lines(room) for room in rooms}
    total, there = sum(lines.values()), Counter(each.mutant.room for each in entries)
    text = ["| package | lines | bugs | by lines |", "|---|---|---|---|"]
    for room in rooms:
        share = len(entries) * lines[room] / total
        text.append(f"| {room} | {lines[room]} | {there[room]} | {share:.1f} |")
    kinds = Counter(each.mutant.kind for each in entries)
    known = sum(number for kind, number in kinds.items() if kind != "other")
    text += ["", f"{len(entries)} bugs, {known} of them of kinds that tests once missed:"]
    text += [f"- {kind} ({words}): {kinds[kind]}" for kind, words in KINDS.items()]
    return "\n".join(text)


# --- trying ---------------------------------------------------------------------------------------
def first_look(entry: Entry) -> tuple[str, str, list[str]]:
    """How a bug ended, the file of tests that noticed it, and files that say nothing.

    Only the likeliest files of tests are tried.
    """
    silent = []
    for tests in tests_of(entry.mutant.path)[:MOST_NAMED]:
        try:
            end = Worker.end_of([entry.mutant], tests)
        except RuntimeError:
            silent.append(tests)
            continue
        if end != SURVIVED:
            return end, tests, silent
    return SURVIVED, "", silent


def noticed_by(tests: str, entries: Sequence[Entry]) -> dict[int, str] | None:
    """How those bugs ended that a file of tests notices, by their numbers; None: it says nothing.

    All are seeded at once. Most files notice none of them, which one run then shows; else each half
    is tried, down to single bugs.
    """
    try:
        # All of a file's tests, also those that compile, which a first look leaves out.
        end = Worker.end_of([each.mutant for each in entries], tests, "")
    except RuntimeError:
        return None
    if end == SURVIVED:
        return {}
    if len(entries) == 1:
        return {entries[0].number: end}
    middle = len(entries) // 2
    halves = [noticed_by(tests, part) or {} for part in (entries[:middle], entries[middle:])]
    return halves[0] | halves[1]


def tests_digest() -> str:
    """What tells whether a test has changed."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    return digest("".join(f"{path} {path.read_text(encoding='utf-8')}" for path in files))


def results() -> list[dict[str, Any]]:
    """All results, oldest first."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return [json.loads(line) for line in lines]


def try_all(entries: Sequence[Entry], jobs: int, list_digest: str) -> None:
    """Try bugs; each result is saved at once.

    Those that the likeliest tests do not notice are tried together with all tests.
    """
    for name in WARM:
        importlib.import_module(name)
    fork, tests = multiprocessing.get_context("fork"), tests_digest()

    def save(entry: Entry, end: str, by: str, silent: Iterable[str]) -> None:
        line = {
            "list": list_digest, "number": entry.number, "bug": entry.bug,
            "mutant": entry.mutant.identity, "end": end, "by": by,
            "silent": sorted({*silent}), "tests": tests,
        }  # fmt: skip
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        noticed = f"noticed by {by}" if end not in (SURVIVED, LEFT) else end
        print(f"{entry.number}: {entry.mutant}: {noticed}", flush=True)

    known = {each["mutant"]: each for each in results() if each["tests"] == tests}
    looked = {
        each.number: [*known[each.mutant.identity]["silent"]]
        for each in entries
        if known.get(each.mutant.identity, {}).get("end") == LEFT
    }
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ProcessPoolExecutor(jobs, fork, Worker.begin, (folder,)) as pool,
    ):
        new = [each for each in entries if each.number not in looked]
        for entry, (end, by, silent) in zip(new, pool.map(first_look, new), strict=True):
            save(entry, LEFT if end == SURVIVED else end, by, silent)
            if end == SURVIVED:
                looked[entry.number] = silent
        left = [each for each in entries if each.number in looked]
        waiting, asked = likely_first(left), dict[Any, str]()
        while (waiting and left) or asked:
            while waiting and left and len(asked) < jobs:
                file = waiting.pop(0)
                asked[pool.submit(noticed_by, file, left)] = file
            for done in wait(asked, return_when=FIRST_COMPLETED).done:
                file, noticed = asked.pop(done), done.result()
                print(f"{file}: {len(left)} left, {len(waiting)} files to go", flush=True)
                for entry in left:
                    if noticed is None:
                        looked[entry.number].append(file)
                    elif entry.number in noticed:
                        save(entry, noticed[entry.number], file, looked[entry.number])
                left = [each for each in left if each.number not in (noticed or {})]
        for entry in left:
            save(entry, SURVIVED, "", looked[entry.number])


def likely_first(entries: Sequence[Entry]) -> list[str]:
    """All files of tests, those first that name most of the changed files."""
    names = [each.mutant.path.stem for each in entries]
    counts = {
        tests: sum(name in (ROOT / tests).read_text(encoding="utf-8") for name in names)
        for tests in all_tests()
    }
    return sorted(counts, key=lambda tests: -counts[tests])


def report(entries: Sequence[Entry], list_digest: str) -> str:
    """What became of the list, so far."""
    first: dict[str, str] = {}
    last: dict[str, dict[str, Any]] = {}
    for each in (each for each in results() if each["end"] != LEFT):
        first.setdefault(each["bug"], each["end"])
        last[each["bug"]] = each
    counted = [each for each in entries if not each.equivalent]
    tried = [each for each in counted if each.bug in last]
    missed = [each for each in tried if last[each.bug]["end"] == SURVIVED]
    at_first = sum(first[each.bug] == SURVIVED for each in tried)
    lines = [
        f"List {list_digest[:12]}: {len(counted)} bugs, {len(tried)} tried, {at_first} unnoticed "
        f"when first tried, {len(missed)} now"
        + (f" ({len(missed) / len(tried):.0%})." if tried else "."),
        "",
        "| kind | tried | noticed now |",
        "|---|---|---|",
    ]
    for kind in KINDS:
        own = [each for each in tried if each.mutant.kind == kind]
        noticed = sum(each not in missed for each in own)
        lines += [f"| {kind} | {len(own)} | {noticed} |"] if own else []
    lines += ["", "Not noticed:" if missed else "Not noticed: none.", ""]
    lines += [f"- {each.number}. {each.mutant}: {each.why}" for each in missed]
    same = [each for each in entries if each.equivalent]
    lines += ["", "Equivalent, not counted:", ""] if same else []
    lines += [f"- {each.number}. {each.mutant}: {each.equivalent}" for each in same]
    silent = sorted({name for each in tried for name in last[each.bug]["silent"]})
    if silent:
        lines += ["", f"Left out, as they fail without any bug: {', '.join(silent)}"]
    return "\n".join([*lines, ""])


def due(entries: Iterable[Entry]) -> list[Entry]:
    """Those without a result in this file's code; and those unnoticed, if tests changed since."""
    known = {each["mutant"]: each for each in results()}
    tests = tests_digest()

    def is_due(entry: Entry) -> bool:
        if (last := known.get(entry.mutant.identity)) is None:
            return True
        return last["end"] == LEFT or bool(last["end"] == SURVIVED and last["tests"] != tests)

    return [each for each in entries if not each.equivalent and is_due(each)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", type=Path, default=LIST, help="the YAML file with the bugs")
    parser.add_argument("--check", action="store_true", help="check and count the list, and stop")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of bugs in the list")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--report", type=Path, help="where to write what became of them")
    given = parser.parse_args()
    entries = read(given.list)
    if given.check:
        print(spread(entries))
        return
    list_digest = digest(given.list.read_text(encoding="utf-8"))
    chosen = [each for each in entries if given.only is None or each.number in given.only]
    if wanted := due(chosen):
        try_all(wanted, given.jobs, list_digest)
    text = report(entries, list_digest)
    print(text)
    if given.report:
        given.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
