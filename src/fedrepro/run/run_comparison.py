"""Compare two runs: their manifests, their code's history and every number of their records."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fedrepro.provenance import fingerprint
from fedrepro.provenance.identity import changed_values, flatten, printable, shown
from fedrepro.run.results import RunRecord
from fedrepro.support import checkout
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.printing import counted

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


SAME = "same bits"
SCORES = ("test_accuracy", "quality accuracy")  # shares from 0 to 1, of a model for all
Table = Mapping[str, Sequence[float]]
# The tables of a run, with the columns that name a row.
TABLES = {
    "rounds": ("round",),
    "clients": ("round", "client"),
    "decisions": ("round", "client"),
    "mixtures": ("client", "weight"),
}


class Number(NamedTuple):
    """A recorded number and the one of the same row and column in another record.

    Attributes:
        row: the values of the columns that name the row, such as the round.
        after: NaN if the other record does not have it.
    """

    column: str
    row: tuple[float, ...]
    before: float
    after: float

    @property
    def differs(self) -> bool:
        return self.before != self.after and not (
            math.isnan(self.before) and math.isnan(self.after)
        )


def numbers(before: Table, after: Table, keys: Sequence[str]) -> Iterator[Number]:
    """Every number of a table, with the one in the row of another table that ``keys`` name.

    Without keys, both have one row.
    """
    rows = {row: place for place, row in enumerate(_rows(after, keys))}
    for column in (name for name in before if name not in keys):
        for row, value in zip(_rows(before, keys), before[column], strict=True):
            there = column in after and row in rows
            counterpart = after[column][rows[row]] if there else math.nan
            yield Number(column, row, float(value), float(counterpart))


def _rows(table: Table, keys: Sequence[str]) -> Iterable[tuple[float, ...]]:
    return zip(*(table.get(key, ()) for key in keys), strict=True) if keys else [()]


class Outcome(NamedTuple):
    """The outcome of making a landed run again.

    Attributes:
        words: "same bits", or what differs and by how much.
        expected: whether it may differ so: not on the kind of machine that made it.
    """

    words: str
    expected: bool


def compare_landed(landed: RunRecord, made: RunRecord, *, same_kind: bool) -> Outcome:
    """Compare every number that was landed of a run with that of the run made here.

    Args:
        same_kind: whether it was landed from a machine like this one (manifest.is_of_this_kind).
    """
    if made.state != landed.state:
        return Outcome(f"{made.state} instead of {landed.state}", expected=False)
    compared = [
        number
        for table, keys in TABLES.items()
        for number in numbers(getattr(landed, table), getattr(made, table), keys)
    ]
    compared += numbers(_measures(landed.quality), _measures(made.quality), ())
    differing = [number for number in compared if number.differs]
    if not differing:
        return Outcome(SAME, expected=True)
    shares = [abs(gap.before - gap.after) for gap in differing if gap.column in SCORES]
    columns = sorted({number.column for number in differing})
    points = f"accuracy by at most {100 * max(shares, default=0.0):.2f} points"
    counts = f"{len(differing)} of {len(compared)} numbers differ ({', '.join(columns[:3])})"
    if same_kind:
        return Outcome(f"{counts}; {points}, on the same kind of machine", expected=False)
    there = landed.manifest.get("hardware", {})
    kind = f"{there.get('processor', 'unknown')}, {there.get('vector_instructions', 'unknown')}"
    words = f"{counts}; {points}; landed from another kind of machine ({kind})"
    return Outcome(words, expected=True)


def _measures(quality: Mapping[str, Any]) -> dict[str, list[float]]:
    """The measures of a synthetic set as a table of one row; one that was not computed is NaN."""
    return {
        f"quality {name}": [math.nan if value is None else value]
        for name, value in quality.get("numbers", {}).items()
    }


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
    lines_of = {"code": _of_code(before, after)}
    for title, keys in SECTIONS.items():
        both = [key for key in keys if key in before.manifest and key in after.manifest]
        if both:
            lines_of[title] = _of_values(_section(before, both), _section(after, both))
        elif any(key in side.manifest for key in keys for side in (before, after)):
            known = any(key in before.manifest for key in keys)
            lines_of[title] = [f"not recorded by {(before, after)[known].name}"]
    return {title: lines for title, lines in lines_of.items() if lines}


def of_rounds(before: Side, after: Side) -> list[str]:
    """A line about the first round that differs and its first column, or that none differs."""
    sides = (before, after)
    without = [side.name for side in sides if not side.rounds.get("round")]
    if without:
        return [f"no rounds are recorded by {name}" for name in without]
    columns = [name for name in before.rounds if name in after.rounds]
    lone_columns = [
        f"only {side.name} has the column {shown(name)}"
        for side in sides
        for name in side.rounds
        if name not in columns
    ]
    rounds = [{*side.rounds["round"]} for side in sides]
    shared = {name: before.rounds[name] for name in columns}
    differing = [
        number
        for number in numbers(shared, after.rounds, ("round",))
        if number.differs and number.row[0] in rounds[1]
    ]
    first = min((number.row[0] for number in differing), default=math.inf)
    lone = min(rounds[0] ^ rounds[1], default=math.inf)
    if lone < first:
        side = sides[lone in rounds[1]]
        return [*lone_columns, f"up to round {lone:g} all is equal; only {side.name} has it"]
    if not differing:
        return [*lone_columns, f"all {len(rounds[0])} recorded rounds are equal"]
    number, *others = (number for number in differing if number.row[0] == first)
    more = f", and {counted(len(others), 'more column')}" if others else ""
    where = f"round {first:g} is the first that differs: {shown(number.column)}"
    return [*lone_columns, f"{where}: {number.before!r} -> {number.after!r}{more}"]


def _section(side: Side, keys: Sequence[str]) -> dict[str, Any]:
    """Dotted keys and values; the key of a section with a single key is left out."""
    values = {key: side.manifest[key] for key in keys if key in side.manifest}
    if len(keys) == 1 and isinstance(values[keys[0]], Mapping):
        values = values[keys[0]]
    return dict(flatten(values))


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
    if not all(checkout.is_commit(folder, commit) for commit in needed):
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
    git = side.manifest.get("git")
    return git if isinstance(git, Mapping) else {}


def _commit(state: object) -> str | None:
    commit = state.get("commit") if isinstance(state, Mapping) else None
    return commit if isinstance(commit, str) else None


def titled(sections: Mapping[str, Iterable[str]]) -> list[str]:
    """Titles, each followed by its lines, indented."""
    return [
        line
        for title, lines in sections.items()
        for line in (title, *(f"  {line}" for line in lines))
    ]
