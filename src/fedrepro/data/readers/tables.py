"""A table of a user's own as float32 features."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.data.catalogue.kinds import TabularCsv
from fedrepro.data.readers.content import Content, Progress, Samples, held_out
from fedrepro.support.errors import UserError, bad_value


def read_tabular_csv(spec: TabularCsv, path: Path, _scratch: Path, _progress: Progress) -> Content:
    """The table at `path`; what is estimated (means, deviations) comes from the training rows.

    Raises:
        UserError: when the file or a column is missing, or the label has gaps or one value only.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: can't be read as CSV: {error}") from None
    named = {"label": spec.label, "group": spec.group, "split": spec.split}
    for key, column in [*named.items(), *(("drop", column) for column in spec.drop)]:
        if column is not None and column not in table.columns:
            raise bad_value(path, key, column, "a column of the file", map(str, table.columns))
    if table.empty or table[spec.label].isna().any():
        raise UserError(f"{path}: label: {spec.label!r}: expected a value in every row")
    class_names, labels = np.unique(table[spec.label].to_numpy(), return_inverse=True)
    group = None
    group_names: list[str] = []
    if spec.group is not None:
        names, group = np.unique(table[spec.group].astype(str).to_numpy(), return_inverse=True)
        group_names = names.tolist()
    aside = {spec.label, spec.group, spec.split, *spec.drop}
    features = table[[column for column in table.columns if column not in aside]]
    if features.columns.empty:
        raise UserError(f"{path}: no column is left as a feature")
    text = [c for c in features.columns if not pd.api.types.is_numeric_dtype(features[c])]
    features = pd.get_dummies(features, columns=text, dtype=float)
    everything = Samples(features.to_numpy(np.float64), labels, group)
    if spec.standardise == "per_client" and (spec.split or spec.test_fraction):
        raise UserError(
            f"{path}: standardise: 'per_client': expected `test_fraction: 0` and no `split`: "
            "clients hold out their own samples, by the `test_fraction` of a partition"
        )
    train, test = _split(spec, table, everything, path)
    mean = np.nan_to_num(np.nanmean(np.where(np.isinf(train.x), np.nan, train.x), axis=0))
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
        filled = [Samples((part.x - mean) / deviation, part.y, part.group) for part in filled]
    return Content(
        train=filled[0],
        test=filled[1] if test is not None else None,
        class_names=[str(name) for name in class_names],
        notes=notes,
    )


def _split(
    spec: TabularCsv, table: pd.DataFrame, everything: Samples, path: Path
) -> tuple[Samples, Samples | None]:
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


def _filled(samples: Samples, mean: np.ndarray) -> Samples:
    x = np.where(np.isfinite(samples.x), samples.x, mean)
    return Samples(x, samples.y, samples.group)
