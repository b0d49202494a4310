"""Exports of `fedrepro synth export`."""

from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import Synthetic
from fedrepro.data.readers.arrays import npz_arrays, unlike
from fedrepro.data.readers.content import Content, Progress, Split, held_out
from fedrepro.support.errors import unreadable
from fedrepro.support.files import read_json

IMAGES, DATASHEET = "images.npz", "datasheet.json"


def read_export(spec: Synthetic, path: Path, _scratch: Path, _progress: Progress) -> Content:
    """Images and labels, split by class into training and test samples.

    Raises:
        UserError: if a file is missing or damaged, or not an export.
    """
    x, y = npz_arrays(path / IMAGES, ("x", "y")).values()
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3):
        raise unlike(path / IMAGES, "x", x, "uint8 (samples, 1 or 3, height, width)")
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        raise unlike(path / IMAGES, "y", y, f"whole numbers {(len(x),)}")
    try:
        about = read_json(path / DATASHEET)
        names = [str(name) for name in about["class_names"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(path / DATASHEET, error, "a datasheet") from None
    train, test = held_out(Split(x, y), spec.test_fraction, path)
    return Content(train, names, test, {"test_fraction": spec.test_fraction})
