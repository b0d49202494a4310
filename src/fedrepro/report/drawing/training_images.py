"""Training images to show beside generated ones."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.dataset import PREPARED, is_prepared, open_dataset
from fedrepro.run.results import RunRecord


def training_images(
    root: Path, record: RunRecord, classes: int, wide: int
) -> NDArray[np.uint8] | None:
    """The first training images of each class, [classes * wide, channels, height, width].

    None if the data set is not prepared here, holds no images, or too few of a class.
    """
    name = str(record.manifest.get("run", {}).get("dataset"))
    if not is_prepared(name, root / PREPARED):
        return None
    train = open_dataset(name, root / PREPARED).train
    if train.x.ndim != 4 or train.x.dtype != np.uint8 or train.y.ndim != 1:
        return None
    places = [np.flatnonzero(train.y == label)[:wide] for label in range(classes)]
    if any(len(each) < wide for each in places):
        return None
    return np.asarray(train.x[np.concatenate(places)])
