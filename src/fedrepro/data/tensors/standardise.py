"""Standardise features per client."""

from dataclasses import replace

import numpy as np

from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.support.errors import UserError


def standardised(dataset: Dataset, partition: Partition) -> Split:
    """The training split, with each client's rows standardised by its training rows.

    The statistics of a client's training rows also apply to its test and validation rows, in the
    columns that the data set names (``Dataset.client_standardised``). A column that is constant in
    a client's training rows is centred but not scaled. Rows that no client holds are unchanged.

    Raises:
        UserError: if the data set has a global test split, which belongs to no client.
    """
    columns = np.array(dataset.client_standardised, dtype=np.int64)
    if not len(columns):
        return dataset.train
    if dataset.test is not None:
        raise UserError(
            f"{dataset.name}: a global test set cannot be standardised per client: use "
            "`standardise: true`, or no test set"
        )
    x = np.array(dataset.train.x)
    for client, train in enumerate(partition.train):
        rows = x[np.ix_(train, columns)].astype(np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation[deviation < 1e-12 * (1 + np.abs(mean))] = 1
        for _, held, _ in partition.parts:
            place = np.ix_(held[client], columns)
            x[place] = (x[place] - mean) / deviation
    return replace(dataset.train, x=x)
