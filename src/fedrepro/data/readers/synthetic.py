"""Exports of `fedrepro synth export`."""

from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import Synthetic
from fedrepro.data.readers.arrays import read_npz
from fedrepro.data.readers.content import Content, Progress, RawSamples, held_out
from fedrepro.support.errors import UserError, unreadable
from fedrepro.support.files import read_json

IMAGES, DATASHEET = "images.npz", "datasheet.json"


def read_export(spec: Synthetic, path: Path, _scratch: Path, _progress: Progress) -> Content:
    """Images and labels, split by class into training and test samples.

    Raises:
        UserError: if a file is missing or damaged, or not an export.
    """
    x, y = read_npz(path / IMAGES, ("x", "y"))
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3):
        expected = "uint8 (samples, 1 or 3, height, width)"
        raise UserError(f"{path / IMAGES}: x: {x.dtype} {x.shape}: expected {expected}")
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        expected = f"whole numbers {(len(x),)}"
        raise UserError(f"{path / IMAGES}: y: {y.dtype} {y.shape}: expected {expected}")
    try:
        about = read_json(path / DATASHEET)
        names = [str(name) for name in about["class_names"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(path / DATASHEET, error, "a datasheet") from None
    train, test = held_out(RawSamples(x, y), spec.test_fraction, path)
    return Content(train, names, test, {"test_fraction": spec.test_fraction})
