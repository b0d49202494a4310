"""Restore CIFAR-10's binary files from a package that stores the same pixels as PNG."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from fedrepro.data.fetching.http import SourceError

TEST = "test_batch"
PIXELS = 32 * 32


def write_binary(inside: Path, names: Iterable[str]) -> None:
    """Write data_batch_1.bin, ... next to data_batch_1.png, ...

    Row i of a PNG is image i, pixel by pixel. The labels of all training images are in
    train_lables.json (so spelt), in the order of the files; those of the test images in
    test_lables.json. A binary record is a label, then the red, the green and the blue plane.

    The caller must verify the files: a package can contain anything.

    Raises:
        SourceError: if the package does not contain these files in this form.
    """
    try:
        labels = {
            split: np.array(json.loads((inside / f"{split}_lables.json").read_bytes()), np.uint8)
            for split in ("train", "test")
        }
        for name in names:
            stem = name.removesuffix(".bin")
            with Image.open(inside / f"{stem}.png") as image:
                planes = np.asarray(image.convert("RGB")).transpose(0, 2, 1)
            records = planes.reshape(-1, 3 * PIXELS)
            first = 0 if stem == TEST else (int(stem[-1]) - 1) * len(records)
            own = labels["test" if stem == TEST else "train"][first : first + len(records)]
            np.hstack([own[:, None], records]).tofile(inside / name)
    except (OSError, ValueError, OverflowError, Image.DecompressionBombError) as error:
        raise SourceError(f"the package has no CIFAR-10 as PNG: {error}") from error
