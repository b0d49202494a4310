"""The sizes of data sets and of clients' shares, as far as known before a run."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro.config.partition_sizes import DataShares
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, open_dataset
from fedrepro.data.partition.partition import PLACE
from fedrepro.support import checksummed_json
from fedrepro.support.errors import damaged

WIDTHS = {"bytes": 1, "sound": 2, "features": 4, "words": 4}  # bytes of one number
NUMBERS = {"uint8": "bytes", "int16": "sound", "float32": "features", "int32": "words"}


@dataclass(frozen=True)
class Data:
    """The size of a data set. If it is not ``prepared``, the catalogue's numbers.

    Attributes:
        clients: natural clients, always from the catalogue; None if there are none or unknown.
    """

    train: int
    test: int
    shape: tuple[int, ...]
    numbers: str
    classes: int
    clients: int | None
    prepared: bool

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.shape) * WIDTHS[self.numbers] + 8  # and the label


def data_of(bench: Workbench, name: str) -> Data | None:
    """The size of a data set; None if it is not prepared and the catalogue does not state it.

    Raises:
        UserError: if it is damaged.
    """
    stated = bench.datasets[name].size
    if (bench.root / PREPARED / name / "meta.json").exists():
        dataset = open_dataset(name, bench.root / PREPARED)
        test, numbers = dataset.test, NUMBERS[dataset.train.x.dtype.name]
        sizes = len(dataset.train), len(test) if test else 0
        group = dataset.train.group
        counted = None if group is None else len(np.unique(group))
        clients = (stated.clients if stated else None) or counted
        return Data(*sizes, dataset.input_shape, numbers, dataset.classes, clients, True)
    if stated is None:
        return None
    sizes = stated.train, stated.test
    return Data(*sizes, stated.shape, stated.numbers, stated.classes, stated.clients, False)


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
