"""Compare a landed run with the same run, made again on this machine."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fedrepro.run import manifest
from fedrepro.run.results import RunRecord

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
    there = made_by.get("hardware", {})
    if "accelerator" in there and not torch.cuda.is_available():
        return False
    here = manifest.hardware("cuda" if "accelerator" in there else "cpu")
    keys = ("machine", "processor", "vector_instructions", "accelerator")
    same = all(here.get(key) == there.get(key) for key in keys)
    there_torch = made_by.get("packages", {}).get("torch")
    return same and bool(there_torch == torch.__version__.partition("+")[0])


def compare(landed: RunRecord, made: RunRecord) -> Again:
    """Every number that was landed of a run, and that of the run made here."""
    if made.state != landed.state:
        return Again(f"{made.state} instead of {landed.state}", expected=False)
    pairs = [
        each
        for table, keys in TABLES.items()
        for each in _pairs(getattr(landed, table), getattr(made, table), keys)
    ]
    pairs += _measures(landed.quality, made.quality)
    differing = [each for each in pairs if not _equal(*each[1:])]
    if not differing:
        return Again(SAME, expected=True)
    shares = [abs(then - now) for name, then, now in differing if name in SCORES]
    others = sorted({name for name, *_ in differing})
    points = f"accuracy by at most {100 * max(shares, default=0.0):.2f} points"
    words = f"{len(differing)} of {len(pairs)} numbers differ ({', '.join(others[:3])}); {points}"
    there = landed.manifest.get("hardware", {})
    if is_of_this_kind(landed.manifest):
        return Again(f"{words}, on the same kind of machine", expected=False)
    kind = f"{there.get('processor', 'unknown')}, {there.get('vector_instructions', 'unknown')}"
    return Again(f"{words}; landed from another kind of machine ({kind})", expected=True)


def _pairs(before: Table, after: Table, keys: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """(column, landed value, value made here) in each landed row; NaN where there is none."""
    rows = {key: place for place, key in enumerate(_rows(after, keys))}
    for name in before.keys() - {*keys}:
        for key, then in zip(_rows(before, keys), before[name], strict=True):
            found = name in after and key in rows
            yield name, float(then), float(after[name][rows[key]]) if found else math.nan


def _measures(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, float, float]]:
    """The same for the measures of a synthetic set; one that was not computed is NaN."""
    made = after.get("numbers", {})
    for name, then in before.get("numbers", {}).items():
        yield f"quality {name}", _number(then), _number(made.get(name))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _rows(table: Table, keys: Sequence[str]) -> Iterable[tuple[float, ...]]:
    return zip(*(table.get(key, ()) for key in keys), strict=True)


def _equal(then: float, now: float) -> bool:
    return then == now or (math.isnan(then) and math.isnan(now))
