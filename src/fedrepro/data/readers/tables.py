"""Users' tables as float32 features."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.data.catalogue.kinds import TabularCsv
from fedrepro.data.readers.content import Content, Progress, RawSamples, held_out
from fedrepro.support.errors import UserError, bad_value

MOST_VALUES = 1000  # distinct values of a text column


def read_tabular_csv(spec: TabularCsv, path: Path, _scratch: Path, _progress: Progress) -> Content:
    """Read the table at `path`; means and standard deviations are those of the training rows.

    Raises:
        UserError: if the file or a column is missing or has invalid values.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{path}: can't be read as CSV: {reason}") from None
    named = {"label": spec.label, "group": spec.group, "split": spec.split}
    for key, column in [*named.items(), *(("drop", column) for column in spec.drop)]:
        if column is not None and column not in table.columns:
            raise bad_value(path, key, column, "a column of the file", map(str, table.columns))
    if table.empty or table[spec.label].isna().any():
        raise UserError(f"{path}: label: {spec.label!r}: expected a value in every row")
    found = table[spec.label]
    if pd.api.types.is_float_dtype(found):
        wrong = found[~np.isfinite(found) | (found != np.floor(found))]
        if len(wrong):
            raise bad_value(
                path, f"label: {spec.label}", float(wrong.iloc[0]), "whole numbers or words"
            )
    elif not pd.api.types.is_bool_dtype(found) and not pd.api.types.is_numeric_dtype(found):
        found = found.astype(str)
    class_names, labels = np.unique(found.to_numpy(), return_inverse=True)
    group = None
    group_names: list[str] = []
    if spec.group is not None:
        if table[spec.group].isna().any():
            raise UserError(f"{path}: group: {spec.group!r}: expected a value in every row")
        names, group = np.unique(table[spec.group].astype(str).to_numpy(), return_inverse=True)
        group_names = names.tolist()
    aside = {spec.label, spec.group, spec.split, *spec.drop}
    features = table[[column for column in table.columns if column not in aside]]
    if features.columns.empty:
        raise UserError(f"{path}: no column is left as a feature")
    text = [c for c in features.columns if not pd.api.types.is_numeric_dtype(features[c])]
    for column in text:
        different = features[column].nunique()
        if different > MOST_VALUES:
            raise UserError(
                f"{path}: {column}: {different} different texts: expected at most {MOST_VALUES}, "
                "because each becomes a feature: add the column to `drop` if it is not a feature"
            )
    features = pd.get_dummies(features, columns=text, dtype=float)
    everything = RawSamples(features.to_numpy(np.float64), labels, group)
    if spec.standardise == "per_client" and (spec.split or spec.test_fraction):
        raise UserError(
            f"{path}: standardise: 'per_client': expected `test_fraction: 0` and no `split`: "
            "use the partition's `test_fraction`, with which clients hold out their own samples"
        )
    train, test = _split(spec, table, everything, path)
    known = np.isfinite(train.x)
    mean = np.where(known, train.x, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    filled = [_filled(part, mean) for part in (train, test) if part is not None]
    notes: dict[str, Any] = {
        "features": [str(c) for c in features.columns],
        "groups": group_names,
    }
    if spec.standardise == "per_client":
        notes["client_standardised"] = list(range(features.shape[1]))
    elif spec.standardise:
        deviation = filled[0].x.std(axis=0)
        deviation[deviation == 0] = 1  # a constant column becomes 0, not NaN
        filled = [RawSamples((part.x - mean) / deviation, part.y, part.group) for part in filled]
    return Content(
        train=filled[0],
        test=filled[1] if test is not None else None,
        class_names=[str(name) for name in class_names],
        notes=notes,
    )


def _split(
    spec: TabularCsv, table: pd.DataFrame, everything: RawSamples, path: Path
) -> tuple[RawSamples, RawSamples | None]:
    if spec.split is None:
        return held_out(everything, spec.test_fraction, path)
    split = table[spec.split].astype(str).to_numpy()
    unknown = sorted(set(split) - {"train", "test"})
    if unknown:
        raise bad_value(path, spec.split, unknown[0], "'train' or 'test'", ["train", "test"])
    if "train" not in split:
        raise UserError(f"{path}: {spec.split}: no row has 'train'")
    test = everything.take(split == "test") if "test" in split else None
    return everything.take(split == "train"), test


def _filled(samples: RawSamples, mean: np.ndarray) -> RawSamples:
    x = np.where(np.isfinite(samples.x), samples.x, mean)
    return RawSamples(x, samples.y, samples.group)
