"""Check that changed code gives the same numbers, and record it in provenance/numerics.json.

Runs the golden micro-runs (:mod:`micro_runs`) on this machine with the last blessed code, from a
checkout of its commit, and with the working tree. A changed part keeps its numerics id if its
micro-runs keep every bit; otherwise it gets a new id, and CHANGELOG.md must say so. A new
micro-run is played with both codes. A renamed part keeps its id if ``numerics.RENAMED`` has both
names. Run this after a change and before computing anything. It takes a minute or two and commits
nothing.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from old_code import ROOT, git

from fedrepro.provenance import numerics
from fedrepro.provenance.identity import Identity, in_words
from fedrepro.provenance.identity import differences as differences_between
from fedrepro.support.errors import UserError, exit_on_user_error
from fedrepro.support.files import write_atomically

MICRO_RUNS = ROOT / "scripts/micro_runs.py"
KEPT = ROOT / ".bless"  # the blessed code's results on this machine, by commit
MARK = "**numbers**"
Played = dict[str, dict[str, Any]]


def main() -> int:
    arguments = _parser().parse_args()
    with exit_on_user_error():
        return bless(arguments.check)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, but write nothing")
    return parser


def bless(check: bool) -> int:
    """Compare and write. Returns the exit status: 1 if bits changed and CHANGELOG is silent."""
    now, known = numerics.today(), numerics.blessed()
    known = {numerics.RENAMED.get(part, part): entry for part, entry in known.items()}
    changed = {part for part, code in now.items() if known.get(part, {}).get("code") != code}
    gone = known.keys() - now.keys()
    if not changed and not gone and known == numerics.blessed():
        print("nothing to do: all code is blessed")
        return 0
    print(f"{len(changed)} of {len(now)} parts have changed, {len(gone)} are gone")
    old = {part: entry["id"] for part, entry in known.items()}
    again = changed & old.keys()
    differing = _differing(again, _blessed_commit()) if again else {}
    ids = {}
    for part, code in now.items():
        same = part in old and part not in differing
        ids[part] = {"id": old[part] if same else code, "code": code}
    for part in sorted(changed - old.keys()):
        print(f"{part}: new")
    for part, why in sorted(differing.items()):
        print(f"{part}: other numbers: {why}")
    if differing and not _said_in_changelog():
        print(f"CHANGELOG.md: expected a new line with {MARK} that says what changed; not blessed")
        return 1
    if check:
        return 1 if differing else 0
    with write_atomically(numerics.FILE) as temporary:
        temporary.write_text(json.dumps(ids, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(
        f"blessed: {len(again) - len(differing)} parts keep their numbers, {len(differing)} do not"
    )
    return 0


def _differing(parts: set[str], commit: str) -> dict[str, str]:
    """Those of ``parts`` whose numbers differ or were not compared, each with the reason."""
    wanted = sorted(parts) if numerics.CORE not in parts else []
    before, after = with_new_names(_play_commit(commit)), _play(ROOT, wanted)
    new = after.keys() - before.keys()
    unequal = {
        name for name, each in after.items() if "data" in each and _unequal(name, before, after)
    }
    if again := sorted(new | unequal):
        before |= _play_commit(commit, again)
    reasons = differences(parts, before, after)
    return {part: why + _files(commit) for part, why in reasons.items()}


def differences(parts: set[str], before: Played, after: Played) -> dict[str, str]:
    """Maps each part whose numbers differ, or could not be compared, to the reason.

    No comparison is a micro-run that only ``after`` has, because the blessed code can't play it,
    and one whose data have another identity, which keeps its results apart from older ones. Both
    are left out and named on stdout.
    """
    compared = {}
    for name, each in sorted(after.items()):
        if name not in before:
            print(f"{name}: not compared: the blessed code can't play it")
        elif why := _of_other_data(before[name], each):
            print(f"{name}: not compared: {why}")
        else:
            compared[name] = each
    reasons = {}
    for part in sorted(parts):
        named = [name for name, each in compared.items() if each["parts"][0] == part]
        names = named or [name for name, each in compared.items() if part in each["parts"]]
        differing = [why for name in names if (why := _difference(name, before, compared))]
        if not names:
            reasons[part] = "no micro-run plays it with both codes"
        elif differing:
            reasons[part] = "; ".join(differing[:3])
    return reasons


def with_new_names(before: Played) -> Played:
    """The blessed code's micro-runs under the names that renamed parts have now."""
    for old, new in numerics.RENAMED.items():
        kind, _, former = old.partition(" ")
        word = re.compile(rf"(?<![\w.-]){re.escape(former or kind)}(?![\w.-])")
        present = new.partition(" ")[2] or new
        before = {
            word.sub(present, name) if old in each["parts"] else name: {
                **each, "parts": [new if part == old else part for part in each["parts"]],
            }
            for name, each in before.items()
        }  # fmt: skip
    return before


def _unequal(name: str, before: Played, after: Played) -> bool:
    return name in before and bool(_difference(name, before, after))


def _of_other_data(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Why two runs would not be taken for each other, by the identity of their data; or ""."""
    if "data" not in before or "data" not in after:
        return ""
    then, now = (Identity(data=each["data"]) for each in (before, after))
    return in_words(differences_between(then, now))


def _difference(name: str, before: Played, after: Played) -> str:
    """Where a micro-run first differs, or ""."""
    one, other = before[name]["rounds"], after[name]["rounds"]
    if len(one) == len(other) and all(map(_same_numbers, one, other)):
        return ""
    places = enumerate(zip(one, other, strict=False))
    differing = (at for at, both in places if not _same_numbers(*both))
    first = next(differing, min(len(one), len(other)))
    where = "its files at the end" if first == len(other) - 1 else f"round {first + 1}"
    return f"{name} differs from {where} on"


def _same_numbers(before: Any, after: Any) -> bool:
    """True if all numbers of a round are the same; a table may have columns that are new.

    What else than a run is played has one hash, without parts.
    """
    both = [each if isinstance(each, list) else [each] for each in (before, after)]
    if both[0][0] == both[1][0]:
        return True
    if min(map(len, both)) == 1:
        return False
    (_, state, *tables), (_, new_state, *new_tables) = both
    pairs = zip(tables, new_tables, strict=False)
    return (
        state == new_state
        and len(tables) == len(new_tables)
        and not any(Counter(columns) - Counter(more) for columns, more in pairs)
    )


def _files(commit: str) -> str:
    """The code files that changed since a commit, in brackets."""
    listed = git("diff", "--name-only", commit, "--", "src/fedrepro").split()
    names = ", ".join(Path(file).name for file in listed[:8])
    return f" (changed: {names}{' ...' * (len(listed) > 8)})"


def _blessed_commit() -> str:
    """The last commit that wrote the file of ids, which describe its code."""
    place = f":(glob)src/fedrepro/*/{numerics.FILE.name}"  # it was elsewhere
    commit = git("log", "-1", "--format=%H", "--", place).strip()
    if not commit:
        raise UserError(
            f"{numerics.FILE}: expected it in a commit: it is what changed code is compared with"
        )
    return commit


def _play_commit(commit: str, new: Sequence[str] = ()) -> Played:
    """Plays micro-runs with a commit's code on this machine; what was played before is kept.

    Args:
        new: names of micro-runs that the commit's own list lacks, played from today's list; one
            that its code can't play is missing from the result. Without names: its own list.
    """
    listed = f"{' '.join(new)} {MICRO_RUNS.read_text(encoding='utf-8')}" if new else ""
    suffix = f"-{hashlib.sha256(listed.encode()).hexdigest()[:16]}" if new else ""
    kept = KEPT / f"{commit}{suffix}.json"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            git("worktree", "add", "--detach", "--quiet", f"{folder}/tree", commit)
            try:
                played = _play(Path(folder, "tree"), [], new)
            finally:
                git("worktree", "remove", "--force", f"{folder}/tree")
        KEPT.mkdir(exist_ok=True)
        kept.write_text(json.dumps(played), encoding="utf-8")
    result: Played = json.loads(kept.read_text(encoding="utf-8"))
    return result


def _play(tree: Path, parts: list[str], new: Sequence[str] = ()) -> Played:
    """The results of a checkout's micro-runs with its code, or of ``new`` ones of today's list."""
    whose = "the working tree" if tree == ROOT else "the blessed code"
    print(f"running {f'{len(new)} new' if new else 'the'} micro-runs of {whose}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "played.json")
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        script = MICRO_RUNS if new else tree / "scripts/micro_runs.py"
        command = [sys.executable, str(script), str(out), *parts]
        command += ["--only", *new] if new else []
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if new and done.returncode:  # today's list does not even start with the blessed code
            return {}
        if done.returncode:
            last = "\n".join(done.stderr.splitlines()[-12:])
            raise UserError(f"scripts/micro_runs.py of {tree}: failed:\n{last}")
        result: Played = json.loads(out.read_text(encoding="utf-8"))
        return result


def _said_in_changelog() -> bool:
    """Whether there is a line about changed numbers that the blessed code's has not.

    It is unreleased, or of the newest release, which may have been cut since.
    """
    before = git("show", f"{_blessed_commit()}:CHANGELOG.md").splitlines()
    now = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = "\n".join(now.split("\n## ")[1:3])
    return any(MARK in line and line not in before for line in newest.splitlines())


if __name__ == "__main__":
    raise SystemExit(main())
