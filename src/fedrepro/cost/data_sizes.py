"""The sizes of data sets and of clients' shares, as far as known before a run."""

import math
from pathlib import Path
from typing import Literal

import numpy as np

from fedrepro.config.partition_sizes import DataShares
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.data.dataset import PREPARED, is_prepared, open_dataset
from fedrepro.data.partition.partition import PLACE
from fedrepro.support import checksummed_json
from fedrepro.support.errors import damaged

WIDTHS = {"bytes": 1, "sound": 2, "features": 4, "words": 4}  # bytes of one number
NUMBERS: dict[str, Literal["bytes", "sound", "features", "words"]] = {
    "uint8": "bytes",
    "int16": "sound",
    "float32": "features",
    "int32": "words",
    "int64": "words",
}


def sample_bytes(data: DataSize) -> int:
    """The bytes of a sample and its label."""
    return math.prod(data.shape) * WIDTHS[data.numbers] + 8


def data_of(bench: Workbench, name: str) -> DataSize | None:
    """The size of a data set, counted if it is prepared, else stated by the catalogue, if it is.

    The number of natural clients is the catalogue's, if it states one.

    Raises:
        UserError: if it is damaged.
    """
    stated = bench.datasets[name].size
    if not is_prepared(name, bench.root / PREPARED):
        return stated
    dataset = open_dataset(name, bench.root / PREPARED)
    group = dataset.train.group
    counted = None if group is None else len(np.unique(group))
    return DataSize.model_construct(
        train=len(dataset.train),
        test=len(dataset.test) if dataset.test else 0,
        shape=dataset.input_shape,
        classes=dataset.classes,
        numbers=NUMBERS[dataset.train.x.dtype.name],
        clients=(stated.clients if stated else None) or counted,
    )


def counted_shares(path: Path, batch_size: int) -> DataShares:
    """The shares in a partition's histogram (.json).

    Raises:
        UserError: if it is damaged.
    """
    try:
        about = checksummed_json.read(path, checksummed_json.place(path, PLACE))
        train = [round(math.fsum(client)) for client in about["train"]]
        test, kept = (
            round(math.fsum(map(math.fsum, about.get(part) or [])))
            for part in ("test", "validation")
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, f"{error}: {checksummed_json.AGAIN}") from None
    steps = sum(-(-size // batch_size) for size in train)
    return DataShares(len(train), sum(train), test, steps, True, kept)
