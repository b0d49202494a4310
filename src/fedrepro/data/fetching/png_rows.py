"""Restore CIFAR-10's binary files from a package that stores the same pixels as PNG."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrepro.data.fetching.http import SourceError
from fedrepro.support.errors import writing
from fedrepro.support.files import read_json

PIXELS = 32 * 32
DAMAGE = (
    OSError, ValueError, TypeError, LookupError, OverflowError, Image.DecompressionBombError,
)  # fmt: skip


def write_binary(inside: Path, names: Iterable[str]) -> None:
    """Write data_batch_1.bin, ... next to data_batch_1.png, ...

    Row i of a PNG is image i, pixel by pixel. The labels of all training images are in
    train_lables.json (so spelt), in the order of the files; those of the test images in
    test_lables.json.

    The caller must verify the files: a package can contain anything.

    Raises:
        SourceError: if the package does not contain these files in this form.
        UserError: if a file cannot be written.
    """
    for name in names:
        try:
            records = _records(inside, name.removesuffix(".bin"))
        except DAMAGE as error:
            raise SourceError(f"the package has no CIFAR-10 as PNG: {error}") from error
        with writing(inside / name):
            records.tofile(inside / name)


def _records(inside: Path, stem: str) -> NDArray[np.uint8]:
    """Records [n, 3073]: a label, then the red, the green and the blue plane."""
    with Image.open(inside / f"{stem}.png") as image:
        planes = np.asarray(image.convert("RGB")).transpose(0, 2, 1).reshape(-1, 3 * PIXELS)
    split, batch = ("test", 1) if stem == "test_batch" else ("train", int(stem[-1]))
    labels = np.array(read_json(inside / f"{split}_lables.json"), np.uint8)
    own = labels[(batch - 1) * len(planes) : batch * len(planes)]
    return np.hstack([own[:, None], planes])
