"""Users' tables as float32 features, and what becomes of each column, for `fedrepro check-data`."""

import csv
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedrepro.data.catalogue.entries import NUMBERS
from fedrepro.data.catalogue.kinds import TabularCsv
from fedrepro.data.readers.arrays import fitted
from fedrepro.data.readers.content import FIRST, LARGEST, Content, Source, Split, held_out, split_by
from fedrepro.data.readers.table_files import read_table, rows_of
from fedrepro.support.errors import (
    UserError,
    bad_value,
    brief,
    listed,
    refusal,
    refuse_unknown,
    unreadable,
)

MOST_VALUES = 1000  # distinct values of a text column
OTHER_SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}


def read_tabular_csv(spec: TabularCsv, source: Source) -> Content:
    """Read the table at `path`; means and standard deviations are those of the training rows.

    Raises:
        UserError: if the file or a column is missing or has invalid values.
    """
    path = source.path
    words = [*(() if spec.task in NUMBERS else spec.labels), spec.group, spec.split]
    named = [column for column in words if column is not None]
    table = table_of(path, named, [form for word in spec.missing for form in (word, f" {word}")])
    _refuse_unknown_columns(spec, table, path)
    aside = {*spec.labels, spec.group, spec.split, *spec.drop}
    features = table[[column for column in table.columns if column not in aside]]
    if features.columns.empty:
        raise refusal(path, "no column is left as a feature")
    for name in filter(NO_NAME.fullmatch, features.columns):
        wanted = "expected a name in the header, or that it is in `drop`, as a row number"
        raise refusal(path, f"{name}: a column without a name: {wanted}", name)
    predicted = [("label", label) for label in spec.labels]
    for key, column in (*predicted, ("group", spec.group)):
        if table.empty or (column is not None and table[column].isna().any()):
            where = "" if table.empty else f": none in {_place(spec, table, table[column].isna())}"
            raise bad_value(path, key, column, f"a value in every row{where}")
    for column in (*spec.labels, *_to_look_at(features)):
        _refuse_wrong_cell(spec, table, column, path)
    texts = features.select_dtypes(exclude=["number", "bool"]).columns
    for key, column in (*predicted, ("group", spec.group), *(("column", text) for text in texts)):
        if column is not None and not pd.api.types.is_numeric_dtype(table[column]):
            spelt = (word for word in table[column].unique() if isinstance(word, str))
            refuse_alike(spelt, f"{path}: {key}: {column}")
    class_names, labels = _targets(spec, table)
    group = None
    group_names: list[str] = []
    if spec.group is not None:
        names, group = np.unique(table[spec.group].to_numpy(), return_inverse=True)
        group_names = names.tolist()
    understood = facts_of_columns(spec, table)
    features = _with_indicators(features, path)
    everything = Split(features.to_numpy(np.float64), labels, group)
    if spec.standardise == "per_client" and (spec.split or spec.test_fraction):
        wanted = (
            "`test_fraction: 0` and no `split`: use the partition's `test_fraction`, with which "
            "clients hold out their own samples"
        )
        raise bad_value(path, "standardise", spec.standardise, wanted)
    if spec.split is None:
        train, test = held_out(everything, spec.test_fraction, path)
    else:
        cells = table[spec.split].where(table[spec.split].notna(), "").to_numpy()
        place = partial(_place_of, spec, table)
        train, test = split_by(everything, cells, path, spec.split, place)
    notes: dict[str, Any] = {
        "features": [str(name) for name in features.columns],
        "groups": group_names,
        **({"test_fraction": spec.test_fraction} if spec.split is None else {}),
    }
    return _scaled(spec, Content(train, class_names, test, notes, understood))


def _scaled(spec: TabularCsv, content: Content) -> Content:
    """The data without gaps, standardised where ``spec`` asks for it."""
    mean, deviation = fitted(content.train.x)
    filled = content.mapped(lambda part: _filled(part, mean))
    if spec.standardise == "per_client":
        every = list(range(len(mean)))
        return replace(filled, notes={**content.notes, "client_standardised": every})
    if not spec.standardise:
        return filled
    scaled = filled.mapped(lambda part: replace(part, x=(part.x - mean) / deviation))
    return replace(scaled, notes={**content.notes, "standardised": True})


def _targets(spec: TabularCsv, table: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """The names of classes and the class of each row, or of the columns of numbers to predict."""
    if spec.task not in NUMBERS:
        return classes_of(table[spec.labels[0]].to_numpy())
    numbers = table[[*spec.labels]].to_numpy(np.float64)
    several = len(spec.labels) > 1 or spec.task == "multi_label"
    return [*spec.labels], numbers if several else numbers[:, 0]


def _with_indicators(features: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The features; a column of words becomes a column of 0 and 1 for each word."""
    text = features.select_dtypes(exclude=["number", "bool"]).columns.tolist()
    for column in text:
        different = features[column].nunique()
        if different > MOST_VALUES:
            why = (
                f"{column}: {different} different texts: expected at most {MOST_VALUES}, "
                "because each becomes a feature: add the column to `drop` if it is not a feature"
            )
            raise refusal(path, why, column, different)
    return pd.get_dummies(features, columns=text, dtype=float)


def classes_of(cells: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The names of classes as the file writes them, and the class of each row.

    Numbers are in their order, words in that of their letters.
    """
    unique, labels = np.unique(cells, return_inverse=True)
    names: list[str] = unique.tolist()
    if pd.to_numeric(pd.Series(names), errors="coerce").isna().any():
        return names, labels
    order = sorted(range(len(names)), key=lambda at: (Decimal(names[at].strip()), names[at]))
    return [names[at] for at in order], np.argsort(order)[labels]


def header_of(path: Path) -> list[str]:
    """The names of the columns.

    Raises:
        UserError: if the file can't be read, two columns have one name, or columns are separated by
            something else than a comma.
    """
    # As a row: of a header, pandas would rename the second of two equal names.
    keys: dict[str, Any] = {"nrows": 1, "dtype": str, "keep_default_na": False}
    names: list[str] = read_table(path, header=None, **keys).iloc[0].tolist()
    if len(names) == 1 and (others := set(OTHER_SEPARATORS) & set(names[0])):
        separator = OTHER_SEPARATORS[max(others, key=names[0].count)]
        seems = f"the separator seems to be {separator}: save the table as CSV with ','"
        raise bad_value(path, "header", names[0], f"columns separated by ',': {seems}")
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        wanted = "expected a name of its own for each"
        why = f"header: {brief(name)} names {times} columns: {wanted}"
        raise refusal(path, why, "header", name)
    return names


def table_of(path: Path, words: Sequence[str], missing: Sequence[str]) -> pd.DataFrame:
    """The table; columns of `words` hold text as the file has it, missing where it has none.

    As numbers, clients 1.1 and 1.10 would be one, and so would 7 and 007; a class may be called
    "NA", "None" or "nan".

    Args:
        missing: words whose cells count as empty.
    """
    names = header_of(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            # Without `index_col`, further cells would become the rows' names and shift the others.
            # Without `low_memory`, a long column has one type, not one for each part of the file.
            table = read_table(path, index_col=False, low_memory=False, na_values=missing)
        except pd.errors.ParserWarning:
            raise _uneven(path, "rows are longer than the header", len(names)) from None
    named = [column for column in names if column in words]
    if named:
        keys: dict[str, Any] = {"usecols": named, "dtype": str, "keep_default_na": False}
        keys["na_values"] = missing
        text = read_table(path, index_col=False, **keys)
        for column in named:
            table[column] = text[column].where(text[column].str.strip() != "", None)
    if table.iloc[:, -1].isna().any():  # its name may be empty
        _refuse_short_rows(path, len(names))
    return table


def _refuse_short_rows(path: Path, width: int) -> None:
    """Refuse a row that ends early: pandas takes it for a row whose last cells are empty."""
    try:
        for number, row in enumerate(filter(None, rows_of(path))):
            if len(row) < width:
                raise _uneven(path, f"row {number} has {len(row)} cells", width)
    except (UnicodeDecodeError, csv.Error) as error:  # of a zip archive, say
        raise unreadable(path, f"unpack it: {error}", "CSV") from None


def _uneven(path: Path, rows: str, width: int) -> UserError:
    return refusal(path, f"{rows}: expected {width} cells in every row, as in the header")


def _refuse_unknown_columns(spec: TabularCsv, table: pd.DataFrame, path: Path) -> None:
    names = [str(name) for name in table.columns]
    wanted = f"a column of the file, which has {listed(names)}"
    single = {"group": spec.group, "split": spec.split}
    given = {"label": spec.labels, **{key: [name] for key, name in single.items() if name}}
    for key, asked in (*given.items(), ("drop", spec.drop)):
        refuse_unknown(path, key, asked, names, wanted)


def _to_look_at(features: pd.DataFrame) -> list[str]:
    """The columns of words, and those of numbers that have none, or one that can't be stored."""
    numbers = features.select_dtypes("number")
    values = numbers.to_numpy(np.float64)
    wrong = np.isnan(values).all(axis=0) | (np.abs(values) >= LARGEST).any(axis=0)
    fine = {*numbers.columns[~wrong]}
    return [column for column in features.columns if column not in fine]


def _refuse_wrong_cell(spec: TabularCsv, table: pd.DataFrame, column: str, path: Path) -> None:
    """Refuse numbers that can't be stored, fractions as labels, and single words among numbers.

    A word would turn its whole column into words, so that each number becomes a feature. So would
    a whole number of more than 64 bits.
    """
    cells = table[column]
    number = column in spec.labels and spec.task in NUMBERS
    whole = column in spec.labels and not number

    def refused(value: object, wrong: "pd.Series[bool]", expected: str) -> UserError:
        value = float(value) if isinstance(value, np.floating) else value
        key = f"label: {column}" if column in spec.labels else column
        cell = f"{brief(value)} in {_place(spec, table, wrong)}"
        return refusal(path, f"{key}: {cell}: expected {expected}", column, value)

    if cells.isna().all():
        repair = "expected a value in some row: add the column to `drop`"
        raise refusal(path, f"{column}: every cell is empty: {repair}", column)
    expected, repair = f"finite numbers up to {LARGEST:.2g}", ""
    if pd.api.types.is_bool_dtype(cells):
        return
    if number and not pd.api.types.is_numeric_dtype(cells):
        wrong = pd.to_numeric(cells, errors="coerce").isna()
        raise refused(cells[wrong].iloc[0], wrong, f"a number, as task is {spec.task!r}")
    if whole and (values := pd.to_numeric(cells, errors="coerce")).notna().all():
        cells, expected = values, "whole numbers or words"
        wrong = np.isinf(cells) | (cells != np.floor(cells))
    elif pd.api.types.is_numeric_dtype(cells):
        wrong = cells.abs() >= LARGEST
    else:
        text = cells.astype(str)
        points, none = (text.str.replace(",", to) for to in (".", ""))  # of decimals, of thousands
        decimal = pd.to_numeric(points.where(~text.str.contains(r"\."), none), "coerce").notna()
        numbers, known = int((decimal & cells.notna()).sum()), int(cells.notna().sum())
        if 2 * numbers <= known:
            return
        wrong = pd.to_numeric(text, errors="coerce").isna() & cells.notna()
        expected = f"a number such as 1.5, as {numbers} of its {known} values are numbers"
        word = cells[wrong].iloc[0] if wrong.any() else ""
        empty = "" if whole else f'set `missing: ["{word}"]` if it stands for no number, or '
        repair = f": {empty}put a letter before each number if they are codes"
        if not whole and not wrong.any():
            wrong = pd.to_numeric(text, errors="coerce").abs() >= 2**63
            expected = "whole numbers below 2**63"
            repair = ": write larger ones as 1e20, say, or add the column to `drop`"
    if wrong.any():
        value = cells[wrong].iloc[0]
        if isinstance(value, str) and "," in value and decimal[wrong].iloc[0]:
            repair = ": write decimals with a point, and thousands without a comma"
        raise refused(value, wrong, f"{expected}{repair}")


def refuse_alike(names: Iterable[str], where: str) -> None:
    """Refuse two names that look the same: one class, client or word would be two.

    They may differ in the kind of their spaces, in those at their ends, in letters without width,
    or in how Unicode writes an accent.
    """
    spelt: dict[str, str] = {}
    for name in map(str, names):  # numpy's repr says more than the name
        letters = (letter for letter in name if unicodedata.category(letter) != "Cf")
        seen = unicodedata.normalize("NFC", " ".join("".join(letters).split()))
        if (other := spelt.setdefault(seen, name)) != name:
            wanted = "expected names that look different: write both in one way"
            raise refusal(where, f"{other!a} and {name!a}: {wanted}", value=name)


def _place(spec: TabularCsv, table: pd.DataFrame, wrong: "pd.Series[bool]") -> str:
    """The first row with a fault, counted from 1 below the header, and its natural client."""
    return _place_of(spec, table, int(np.flatnonzero(wrong)[0]))


def _place_of(spec: TabularCsv, table: pd.DataFrame, row: int) -> str:
    client = None if spec.group is None else table[spec.group].iloc[row]
    return f"row {row + 1}" if pd.isna(client) else f"row {row + 1} ({spec.group} {client})"


def _filled(samples: Split, mean: np.ndarray) -> Split:
    """The samples with means for missing numbers, and where these are."""
    missing = ~np.isfinite(samples.x)
    x = np.where(missing, mean, samples.x)
    return replace(samples, x=x, missing=missing if missing.any() else None)


WIDTH = 80  # of a line with its name and the space after both, so that it is one on a terminal
LEAST = 30  # of what is said of a column with a long name
FEW = 20  # rows, of which ids can't be told from other numbers
CALLED_ID = re.compile(r"(.*[ _-])?(id|index|key|no|nr|uuid)", re.IGNORECASE)
NO_NAME = re.compile(r"Unnamed: \d+(\.\d+)?")  # pandas' own, for what it wrote as a row's number
# Numbers that nothing reads as such: 5%, $5, 5 kg, 1_000, and -5 with Unicode's minus.
SIGNED = re.compile(r"(?![+-]?[\d.]+$)[€$£¥]?\s?[+\-−]?\d[\d_.,]*(\s?[%‰€$£¥°]\w?|\s\w{1,4})?")
MISSING = {"?", "-", "--", ".", "*", "missing", "n.a.", "not available", "unknown"}


def facts_of_columns(spec: TabularCsv, table: pd.DataFrame) -> list[tuple[str, str]]:
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
    """Say of each column whether it grows from row to row, as far as it has values."""
    steps = np.diff(values, axis=0)
    return np.asarray(((steps > 0) | np.isnan(steps)).all(axis=0))


def _of_words(words: Sequence[str], rows: int) -> str:
    """Say what is doubtful about a column of words; "" if nothing is."""
    if len(words) == 1:
        return "constant: `drop` it"
    if missing := [word for word in words if word.strip().lower() in MISSING]:
        return f'no value? `missing: ["{missing[0].strip()}"]`'
    if sum(len(word.split()) for word in words[:FEW]) > 4 * len(words[:FEW]):
        return "texts? `kind: text` reads them"
    if _are_dates(words):
        return "dates? `drop` it, or write days as a number"
    if 2 * sum(SIGNED.fullmatch(word.strip()) is not None for word in words) > len(words):
        return "numbers? write them alone"
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
