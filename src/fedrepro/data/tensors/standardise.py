"""Features that each client standardises by itself, which depends on who holds what."""

from dataclasses import replace

import numpy as np

from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.support.errors import UserError


def standardised(dataset: Dataset, partition: Partition) -> Split:
    """The training split with the mean and deviation of each client's training rows taken out.

    All parts of a client, test and validation too, are moved by its training rows alone, in columns
    that the data set names (``Dataset.client_standardised``). A column that is constant in a
    client's training rows keeps its scale. Rows that no client holds stay as they are.

    Raises:
        UserError: when the data set also has a test split of its own, which belongs to no client.
    """
    columns = np.array(dataset.client_standardised, dtype=np.int64)
    if not len(columns):
        return dataset.train
    if dataset.test is not None:
        raise UserError(f"{dataset.name}: a test set for all can't be standardised by clients")
    x = np.array(dataset.train.x)
    for client, train in enumerate(partition.train):
        rows = x[np.ix_(train, columns)].astype(np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation[deviation < 1e-12 * (1 + np.abs(mean))] = 1
        for _, held, _ in partition.parts:
            place = np.ix_(held[client], columns)
            x[place] = (x[place] - mean) / deviation
    return replace(dataset.train, x=x)
