"""MedMNIST's npz files (Yang et al., Scientific Data 10, 2023)."""

from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import MedMnist
from fedrepro.data.readers.arrays import npz_arrays, unlike
from fedrepro.data.readers.content import Content, Progress, Split


def read_medmnist(spec: MedMnist, folder: Path, _scratch: Path, _progress: Progress) -> Content:
    """Training and test images: in the file, uint8 [n, side, side] (grey) or [n, side, side, 3].

    Raises:
        UserError: if the file is damaged or contains pickles, or its arrays have other shapes.
    """
    path = folder / spec.file.name

    def split(name: str) -> Split:
        x, y = npz_arrays(path, (f"{name}_images", f"{name}_labels")).values()
        shape = (len(x), spec.side, spec.side)
        if x.dtype != np.uint8 or x.shape not in (shape, (*shape, 3)):
            raise unlike(path, f"{name}_images", x, f"uint8 {shape} or {(*shape, 3)}")
        if y.shape != (len(x), 1) or not np.issubdtype(y.dtype, np.integer):
            raise unlike(path, f"{name}_labels", y, f"whole numbers {(len(x), 1)}")
        images = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
        return Split(np.ascontiguousarray(images), y[:, 0])

    return Content(split("train"), list(spec.class_names), split("test"))
