"""Compare two runs: their manifests, their code's history and their records."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fedrepro.provenance import fingerprint
from fedrepro.provenance.identity import changed_values, flatten, printable, shown
from fedrepro.support import checkout
from fedrepro.support.plugins import NONE, Folders

# Keys of a manifest under each title.
SECTIONS = {
    "configuration": ("run",),
    "execution": ("arithmetic", "executor", "device", "threads", "dtype"),
    "packages": ("packages",),
    "hardware": ("hardware",),
    "data": ("data",),
    "numerics": ("numerics",),
}
PATCH = 40  # lines of a file's diff


class Side(NamedTuple):
    """One of the two runs that are compared.

    Attributes:
        name: its name in sentences.
        manifest: parsed JSON, of any form if the file is damaged; a missing key is compared with
            "absent".
        rounds: column -> values, as in rounds.parquet.
        today: whether it describes the files as they are now, not a finished run.
        folders: the plug-in folders.
    """

    name: str
    manifest: Mapping[str, Any]
    rounds: Mapping[str, Sequence[float]] = MappingProxyType({})
    today: bool = False
    folders: Folders = NONE


def of_manifests(before: Side, after: Side) -> dict[str, list[str]]:
    """The differences by title, one line each; titles without a difference are left out.

    If one of the two manifests lacks what a title is about, as older ones may, and the other has
    it, the line says so.
    """
    found = {"code": _of_code(before, after)}
    for title, keys in SECTIONS.items():
        both = [key for key in keys if key in before.manifest and key in after.manifest]
        if both:
            found[title] = _of_values(_section(before, both), _section(after, both))
        elif any(key in side.manifest for key in keys for side in (before, after)):
            known = any(key in before.manifest for key in keys)
            found[title] = [f"not recorded by {(before, after)[known].name}"]
    return {title: lines for title, lines in found.items() if lines}


def of_rounds(before: Side, after: Side) -> list[str]:
    """A line about the first round that differs and its first column, or that none differs."""
    sides = (before, after)
    without = [side.name for side in sides if not side.rounds.get("round")]
    if without:
        return [f"no rounds are recorded by {name}" for name in without]
    columns = [name for name in before.rounds if name in after.rounds]
    alone = [
        f"only {side.name} has the column {shown(name)}"
        for side in sides
        for name in side.rounds
        if name not in columns
    ]
    rows = [_rows(side.rounds, columns) for side in sides]
    for number in sorted(rows[0].keys() | rows[1].keys()):
        for side, theirs in zip(sides, reversed(rows), strict=True):
            if number not in theirs:
                return [*alone, f"up to round {number:g} all is equal; only {side.name} has it"]
        pairs = zip(columns, rows[0][number], rows[1][number], strict=True)
        differing = [each for each in pairs if not _equal(*each[1:])]
        if differing:
            (name, old, new), more = differing[0], len(differing) - 1
            also = f", and {more} more column{'s' if more > 1 else ''}" if more else ""
            first = f"round {number:g} is the first that differs: {shown(name)}"
            return [*alone, f"{first}: {old!r} -> {new!r}{also}"]
    return [*alone, f"all {len(rows[0])} recorded rounds are equal"]


def _rows(
    rounds: Mapping[str, Sequence[float]], columns: Sequence[str]
) -> dict[float, tuple[float, ...]]:
    rows = zip(*(rounds[name] for name in columns), strict=False)
    return dict(zip(rounds["round"], rows, strict=False))


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _section(side: Side, keys: Sequence[str]) -> dict[str, Any]:
    """Dotted keys and values; the key of a section with a single key is left out."""
    found = {key: side.manifest[key] for key in keys if key in side.manifest}
    if len(keys) == 1 and isinstance(found[keys[0]], Mapping):
        found = found[keys[0]]
    return dict(flatten(found))


def _of_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [f"{key}: {then} -> {now}" for key, then, now in changed_values(old, new)]


def _of_code(before: Side, after: Side) -> list[str]:
    """Files, with their diffs if git knows both commits."""
    fingerprints = [side.manifest.get("code") for side in (before, after)]
    files = [side.manifest.get("code_files") for side in (before, after)]
    states = [dict(flatten(_git_of(side))) for side in (before, after)]
    commits = _of_values(*states) if all(states) else []
    old, new = files
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if fingerprints[0] == fingerprints[1]:
            return []
        lacking = [
            side.name
            for side, each in zip((before, after), files, strict=True)
            if not isinstance(each, Mapping)
        ]
        line = f"another fingerprint: {shown(fingerprints[0])} -> {shown(fingerprints[1])}"
        return [f"{line}; its files are not recorded by {' and '.join(lacking)}", *commits]
    lines = [f"removed: {shown(name)}" for name in old if name not in new]
    lines += [f"added: {shown(name)}" for name in new if name not in old]
    for name in old:
        if name in new and old[name] != new[name]:
            lines += [f"changed: {shown(name)}", *_patch(before, after, str(name))]
    if not lines and fingerprints[0] != fingerprints[1]:
        lines.append("no file, but what models/registry.py says of the model")
    # Commits change without any change to code that counts.
    return [*commits, *lines] if lines else []


def _patch(before: Side, after: Side, name: str) -> Iterator[str]:
    """The diff of a file that changed, indented; nothing if git cannot tell."""
    place = fingerprint.file_of_code(name, after.folders)
    if place is None:
        return
    folder, file = place
    of_package = folder == fingerprint.PACKAGE
    part = folder.name if of_package else name.removesuffix(f"/{file}")
    old, new = (_commit(_git_of(side).get(part)) for side in (before, after))
    needed = (old,) if after.today else (old, new)
    if not all(checkout.is_commit(folder, each) for each in needed):
        return
    until = None if after.today else new  # read today's files from the working tree
    lines = checkout.difference(folder, str(old), until, file)
    if not lines:
        yield "  no commit has the change"
    yield from (f"  {printable(line)}" for line in lines[:PATCH])
    if lines[PATCH:]:
        command = " ".join(filter(None, ("git diff", old, until, "--", file)))
        yield f"  and {len(lines) - PATCH} more lines: {command}"


def _git_of(side: Side) -> Mapping[str, Any]:
    found = side.manifest.get("git")
    return found if isinstance(found, Mapping) else {}


def _commit(state: object) -> str | None:
    commit = state.get("commit") if isinstance(state, Mapping) else None
    return commit if isinstance(commit, str) else None


def titled(found: Mapping[str, Iterable[str]]) -> list[str]:
    """Titles, each followed by its lines, indented."""
    return [
        line for title, lines in found.items() for line in (title, *(f"  {each}" for each in lines))
    ]
