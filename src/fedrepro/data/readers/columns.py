"""What becomes of each column of a table, for `fedrepro check-data`."""

import re
import warnings
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import TabularCsv
from fedrepro.data.readers.content import FIRST

WIDTH = 80  # of a line with its name and the space after both, so that it is one on a terminal
LEAST = 30  # of what is said of a column with a long name
FEW = 20  # rows, of which ids can't be told from other numbers
CALLED_ID = re.compile(r"(.*[ _-])?(id|index|key|no|nr|uuid)|unnamed: \d+", re.IGNORECASE)
MISSING = {"?", "-", "--", ".", "*", "missing", "n.a.", "not available", "unknown"}


def facts(spec: TabularCsv, table: pd.DataFrame) -> list[tuple[str, str]]:
    """Each column and what becomes of it, which of them to look at, and the first rows."""
    uses = {spec.group: "natural clients", spec.split: "train or test"}
    label = "a number to predict" if spec.task == "regression" else "label"
    uses |= dict.fromkeys(spec.labels, label)
    uses |= dict.fromkeys(spec.drop, "dropped")
    features = table[[name for name in table.columns if name not in uses]]
    spans = _numbers(features.select_dtypes(["number", "bool"]))
    width = max(LEAST, WIDTH - 4 - max(len(f"column {name}") for name in table.columns))
    said, doubtful = [], []
    for name, missing in table.isna().sum().items():
        doubt, words = "", list[str]()
        if name in uses:
            kind, becomes = uses[name], ""
            doubt = of_classes(table[name].dropna().unique()) if kind == "label" else ""
        elif name in spans:
            (kind, doubt), becomes = spans[name], ", then the mean"
        else:
            words = sorted(map(str, table[name].dropna().unique()))
            kind = f"{len(words)} words, a feature for each" if words[1:] else "1 word, a feature"
            doubt, becomes = _of_words(words, len(table)), ", then 0"
        line = f"{kind}; {missing} missing{becomes}" if missing else kind
        doubtful += [str(name)] if doubt else []
        line = "; ".join(filter(None, (doubt, line))) + (f": {', '.join(words[:50])}" * bool(words))
        said.append((f"column {name}", line if len(line) <= width else f"{line[: width - 3]}..."))
    return [*said, ("look at", _in_lines(doubtful)), *_first_rows(table)]


def _numbers(numbers: pd.DataFrame) -> dict[Any, tuple[str, str]]:
    """The span of each column of numbers, and what is doubtful about it; "" if nothing is."""
    if numbers.empty:
        return {}
    values = numbers.to_numpy(np.float64)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    known = (~np.isnan(values)).sum(axis=0)
    whole = ((values == np.floor(values)) | np.isnan(values)).all(axis=0)
    different = _grows(np.sort(values, axis=0))
    in_order = _grows(values) | (high - low < 2 * known)
    ids = (known > FEW) & whole & different
    said = {}
    for at, name in enumerate(numbers.columns):
        is_id = ids[at] and (in_order[at] or CALLED_ID.fullmatch(str(name)))
        doubt = "an id? `drop` it" if is_id else "constant: `drop` it" * bool(low[at] == high[at])
        said[name] = f"numbers, {low[at]:g} to {high[at]:g}", doubt
    return said


def _grows(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each column grows from row to row, as far as it has values."""
    steps = np.diff(values, axis=0)
    return np.asarray(((steps > 0) | np.isnan(steps)).all(axis=0))


def _of_words(words: Sequence[str], rows: int) -> str:
    """What is doubtful about a column of words; "" if nothing is."""
    if len(words) == 1:
        return "constant: `drop` it"
    if missing := [word for word in words if word.strip().lower() in MISSING]:
        return f'no value? `missing: ["{missing[0].strip()}"]`'
    if sum(len(word.split()) for word in words[:FEW]) > 4 * len(words[:FEW]):
        return "texts? `kind: text` reads them"
    if _are_dates(words):
        return "dates? `drop` it, or write days as a number"
    return "an id? `drop` it" if 2 * len(words) > rows > FIRST else ""


def of_classes(names: Iterable[Any]) -> str:
    """Two classes that are one number or truth value, as 1 and 1.0, or ""."""
    known: dict[Decimal, str] = {}
    for name in map(str, names):
        try:
            value = Decimal({"true": "1", "false": "0"}.get(name.strip().lower(), name.strip()))
        except InvalidOperation:
            continue
        if value.is_finite() and known.setdefault(value, name) != name:
            return f"{known[value]} and {name}: one class? they are two"
    return ""


def _are_dates(words: Sequence[str]) -> bool:
    few = pd.Series(words[:FEW])
    if not few.str.contains(r"\d[-/. :]+\w", regex=True).all():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats that pandas guesses
        return bool(pd.to_datetime(few, errors="coerce", format="mixed", utc=True).notna().all())


def _in_lines(names: Sequence[str]) -> str:
    return f"{len(names)} columns: {', '.join(names)}" if names[1:] else "".join(names)


def _first_rows(table: pd.DataFrame) -> list[tuple[str, str]]:
    rows = table.head(FIRST).astype(object).to_numpy()
    cells = [", ".join("" if pd.isna(cell) else str(cell) for cell in row) for row in rows]
    return [(f"row {number}", text) for number, text in enumerate(cells, 1)]
