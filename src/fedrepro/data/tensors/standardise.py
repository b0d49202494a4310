"""Standardise features, and fill in missing ones, with training rows only."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.data.readers.arrays import divisor_of, fitted
from fedrepro.support.errors import refusal


def standardised(dataset: Dataset, partition: Partition) -> Dataset:
    """The data set without anything that it knows of rows that clients hold out.

    Means and deviations of a prepared table are those of all its training rows, before anyone held
    some out. They are replaced by those of the others.

    The statistics of a client's training rows also apply to its test and validation rows, in the
    columns that the data set names (``Dataset.client_standardised``). A column that is constant in
    a client's training rows is centred but not scaled. Rows that no client holds are unchanged.

    Raises:
        UserError: if the data set has a global test split, which belongs to no client, and clients
            standardise.
    """
    if knows_held_out(dataset, partition):
        dataset = _of_training_rows(dataset, partition)
    columns = np.array(dataset.client_standardised, dtype=np.int64)
    if not len(columns):
        return dataset
    if dataset.test is not None:
        repair = "use `standardise: true`, or no test set"
        why = f"a global test set cannot be standardised per client: {repair}"
        raise refusal(dataset.name, why, "standardise")
    x = np.array(dataset.train.x)
    for client, train in enumerate(partition.train):
        rows = x[np.ix_(train, columns)].astype(np.float64)
        mean, deviation = rows.mean(axis=0), divisor_of(rows)
        for _, held, _ in partition.parts:
            place = np.ix_(held[client], columns)
            x[place] = (x[place] - mean) / deviation
    return replace(dataset, train=replace(dataset.train, x=x))


def knows_held_out(dataset: Dataset, partition: Partition) -> bool:
    """Return True if rows that clients hold out are in the statistics of the prepared data."""
    fitted = dataset.standardised or dataset.train.missing is not None
    return fitted and len(partition.parts) > 1


def _of_training_rows(dataset: Dataset, partition: Partition) -> Dataset:
    """The data set with the statistics of training rows that no client holds out."""
    kept = np.ones(len(dataset.train), dtype=np.bool_)
    for name, rows, _ in partition.parts:
        if name != "train":
            kept[np.concatenate(rows)] = False
    mean, divisor = fitted(_with_gaps(dataset.train)[kept])

    def anew(split: Split) -> Split:
        values = _with_gaps(split)
        values = np.where(np.isfinite(values), values, mean)
        values = (values - mean) / divisor if dataset.standardised else values
        return replace(split, x=values.astype(split.x.dtype))

    test = None if dataset.test is None else anew(dataset.test)
    return replace(dataset, train=anew(dataset.train), test=test)


def _with_gaps(split: Split) -> NDArray[np.float64]:
    """Features with NaN where the table has no value."""
    x = split.x.astype(np.float64)
    if split.missing is not None:
        x[split.missing] = np.nan
    return x
