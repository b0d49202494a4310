"""Compare a landed run with the same run, made again on this machine."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fedrepro.run import manifest
from fedrepro.run.results import RunRecord

SAME = "same bits"
SHARE = "accuracy"  # names of shares from 0 to 1 contain it
Table = Mapping[str, Sequence[float]]


class Again(NamedTuple):
    """The outcome of making a landed run again.

    Attributes:
        words: "same bits", or what differs and by how much.
        expected: whether it may differ so: not on the kind of machine that made it.
    """

    words: str
    expected: bool


def is_of_this_kind(made_by: Mapping[str, Any]) -> bool:
    """Whether the machine and PyTorch of a manifest give the same bits as those here."""
    here, there = manifest.hardware("cpu"), made_by.get("hardware", {})
    keys = ("machine", "processor", "vector_instructions")
    same = all(here[key] == there.get(key) for key in keys)
    there_torch = made_by.get("packages", {}).get("torch")
    return same and bool(there_torch == torch.__version__.partition("+")[0])


def compare(landed: RunRecord, made: RunRecord) -> Again:
    """Every number that was landed of a run, and that of the run made here."""
    if made.state != landed.state:
        return Again(f"{made.state} instead of {landed.state}", expected=False)
    pairs = [
        (name, then, now)
        for before, after in ((landed.rounds, made.rounds), (landed.clients, made.clients))
        for name, then, now in _pairs(before, after)
    ]
    differing = [each for each in pairs if not _equal(*each[1:])]
    if not differing:
        return Again(SAME, expected=True)
    shares = [abs(then - now) for name, then, now in differing if name == f"test_{SHARE}"]
    others = sorted({name for name, *_ in differing})
    points = f"test accuracy by at most {100 * max(shares, default=0.0):.2f} points"
    words = f"{len(differing)} of {len(pairs)} numbers differ ({', '.join(others[:3])}); {points}"
    there = landed.manifest.get("hardware", {})
    if is_of_this_kind(landed.manifest):
        return Again(f"{words}, on the same kind of machine", expected=False)
    kind = f"{there.get('processor', 'unknown')}, {there.get('vector_instructions', 'unknown')}"
    return Again(f"{words}; landed from another kind of machine ({kind})", expected=True)


def _pairs(before: Table, after: Table) -> Iterator[tuple[str, float, float]]:
    """(column, landed value, value made here) in each landed row; NaN where there is none."""
    keys = [name for name in ("round", "client") if name in before]
    rows = {key: place for place, key in enumerate(_rows(after, keys))}
    for name in before.keys() - {*keys}:
        for key, then in zip(_rows(before, keys), before[name], strict=True):
            found = name in after and key in rows
            yield name, float(then), float(after[name][rows[key]]) if found else math.nan


def _rows(table: Table, keys: Sequence[str]) -> Iterable[tuple[float, ...]]:
    return zip(*(table.get(key, ()) for key in keys), strict=True)


def _equal(then: float, now: float) -> bool:
    return then == now or (math.isnan(then) and math.isnan(now))
