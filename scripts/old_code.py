"""The code that made a reference result: its commit, and whether today's gives the same bits.

Bits can only be compared on one machine. So the commit's code and today's both make the same short
run here (:mod:`short_runs`), and every number in the two folders is compared.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyarrow.parquet import read_table
from safetensors.numpy import load_file

from fedrepro.run.run_comparison import TABLES, numbers
from fedrepro.support import checkout
from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically

ROOT = Path(__file__).parents[1]
DOWNLOADS = Path("results/downloads")
KEPT = ROOT / ".replay.json"  # fingerprints that commits' code gives
FARTHEST = 60  # states of src/ before the commit that added a result
ROUNDS = 3


class Short(NamedTuple):
    """A run to be shortened."""

    setting: str
    method: str
    seed: int
    executor: str

    @property
    def folder(self) -> Path:
        return Path("results/runs", self.setting, self.method, f"seed{self.seed}")


def named_commit(manifest: dict[str, Any]) -> str:
    """The commit that a result's manifest names, if it is here and nothing was uncommitted."""
    found = (manifest.get("git") or {}).get("fedrepro") or {}
    commit = found.get("commit")
    return commit if not found.get("dirty") and checkout.is_commit(ROOT, commit) else ""


def find_commits(wanted: dict[str, Short]) -> dict[str, str]:
    """The newest commit with each fingerprint before a reference result with it was added.

    Args:
        wanted: a run that each fingerprint is of.

    Returns:
        Commits by fingerprint. Those that were not found are missing.
    """
    known: dict[str, dict[str, str | None]] = _kept()
    added: dict[str, list[str]] = {}
    for code in wanted:
        found = git("log", "--all", f"-S{code}", "--reverse", "--format=%H", "--", "reports")
        if found:
            added.setdefault(found.split()[0], []).append(code)
    commits: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for commit, codes in added.items():
            for before in _states(commit):
                left = [code for code in codes if code not in commits]
                if not left:
                    break
                seen = known.setdefault(before, {})
                unasked = [run for code in left if _name(run := wanted[code]) not in seen]
                if unasked:
                    with old_tree(before, Path(folder)) as tree:
                        given = _call(tree, Path(folder), unasked, 0)
                    seen |= dict(zip(map(_name, unasked), given, strict=True))
                    with write_atomically(KEPT) as temporary:
                        temporary.write_text(json.dumps(known), encoding="utf-8")
                commits |= {code: before for code in left if seen[_name(wanted[code])] == code}
    return commits


def _name(run: Short) -> str:
    return f"{run.setting} {run.method}"


def _kept() -> dict[str, dict[str, str | None]]:
    try:
        found: dict[str, dict[str, str | None]] = json.loads(KEPT.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def _states(commit: str) -> Iterator[str]:
    """A commit and those before it, each state of src/ and config/ once, the newest first."""
    seen: set[str] = set()
    for each in git("rev-list", commit).split():
        state = git("rev-parse", f"{each}:src", f"{each}:config")
        if state not in seen:
            seen.add(state)
            yield each
        if len(seen) == FARTHEST:
            return


@contextmanager
def old_tree(commit: str, folder: Path) -> Iterator[Path]:
    """A checkout of a commit in ``folder``, while it is needed."""
    tree = folder / commit[:12]
    git("worktree", "add", "--detach", "--quiet", str(tree), commit)
    try:
        yield tree
    finally:
        git("worktree", "remove", "--force", str(tree))


def play(tree: Path, runs: Iterable[Short], into: Path) -> list[str | None]:
    """Make short runs with the code and configuration of a checkout, in a folder ``into``.

    Returns:
        The fingerprint of each run's code; None for a run that the code fails on.

    Raises:
        UserError: if the code fails.
    """
    for file in (ROOT / DOWNLOADS).glob("*/*"):
        link = into / DOWNLOADS / file.parent.name / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(file)
    return _call(tree, into, list(runs), ROUNDS)


def _call(tree: Path, into: Path, runs: list[Short], rounds: int) -> list[str | None]:
    """Run scripts/short_runs.py with the code of a checkout."""
    for name in ("config", "reports"):
        link = into / name
        link.unlink(missing_ok=True)
        link.symlink_to(tree / name)
    request = into / "runs.json"
    request.write_text(json.dumps(runs), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        # Two commits' files with the same time and size would share their bytecode.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    script = ROOT / "scripts/short_runs.py"
    command = [sys.executable, "-P", str(script), str(request), str(rounds)]
    done = subprocess.run(
        command, cwd=into, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.splitlines() or ["no message"])[-1]
        raise UserError(f"the code of {tree.name} fails: {last}")
    found: list[str | None] = json.loads(done.stdout.splitlines()[-1])
    if rounds and None in found:
        print(done.stderr, file=sys.stderr, flush=True)
    return found


def difference(then: Path, now: Path) -> str:
    """The first number of a run's folder that differs from another's, in words; "" for none."""
    words: dict[str, float] = {}  # in the order of their rounds
    for file in sorted(then.glob("*.parquet")):
        if not (now / file.name).exists():
            return f"{file.name} is no longer written"
        old, new = (read_table(folder / file.name).to_pydict() for folder in (then, now))
        keys = TABLES[file.stem]
        lost = [name for name in old if len(new.get(name, ())) != len(old[name])]
        words |= {f"{file.stem}: {name} is no longer recorded as it was": 0 for name in lost}
        for number in numbers({name: old[name] for name in old if name not in lost}, new, keys):
            if number.differs:
                round = number.row[0] if keys[0] == "round" else ROUNDS
                numbers_of = f"{number.column} {number.after:.9g} instead of {number.before:.9g}"
                words[f"round {round:.0f}: {numbers_of}"] = round
    if words:
        return min(words, key=words.__getitem__)
    old, new = load_file(then / "model.safetensors"), load_file(now / "model.safetensors")
    if old.keys() != new.keys():
        return f"model.safetensors: tensors: {sorted(old.keys() ^ new.keys())}"
    changed = [name for name in old if not np.array_equal(old[name], new[name], equal_nan=True)]
    if not changed:
        return ""
    far = max(float(np.abs(old[name] - new[name]).max()) for name in changed)
    return f"round {ROUNDS}: {len(changed)} tensors of the model, by at most {far:.3g}"


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
