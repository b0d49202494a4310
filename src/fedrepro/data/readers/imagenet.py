"""Downsampled ImageNet of Chrabaszcz et al. (arXiv:1707.08819), in the official npz version.

The other official version is pickled, and this project unpickles nothing.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import DownsampledImageNet
from fedrepro.data.fetching.archives import unpack
from fedrepro.data.readers.arrays import npz_arrays, unlike
from fedrepro.data.readers.content import Content, Progress, Split, joined
from fedrepro.support.errors import bad_value, refusal, refuse_unknown
from fedrepro.support.files import read_text

BATCHES = [f"train_data_batch_{number}.npz" for number in range(1, 11)]
VALIDATION, CLASSES = "val_data.npz", "map_clsloc.txt"


def read_downsampled_imagenet(
    spec: DownsampledImageNet, folder: Path, scratch: Path, progress: Progress
) -> Content:
    """The training images, and as test set the validation images, whose labels are known.

    Batches are read one at a time, keeping only the entry's classes. Classes are numbered in the
    order of their WordNet ids, as in a folder of images.

    Raises:
        UserError: if a file is missing, damaged, pickled or of another image size, or a class is
            unknown.
    """
    for archive in sorted(folder.rglob("*.zip")):
        unpack(archive, scratch / archive.stem)
    known = _classes(_found(CLASSES, folder, scratch))
    names = sorted(spec.classes or known)
    refuse_unknown(CLASSES, "classes", names, known, "a class that it lists")
    numbers = np.full(max(known.values()) + 1, -1, np.int64)
    numbers[[known[name] for name in names]] = np.arange(len(names))
    parts = []
    for done, batch in enumerate((*BATCHES, VALIDATION), 1):
        parts.append(_batch(_found(batch, folder, scratch), spec.side, numbers))
        progress(done / (len(BATCHES) + 1))
    return Content(joined(parts[:-1]), names, parts[-1])


def _found(name: str, *folders: Path) -> Path:
    for folder in folders:
        for path in sorted(folder.rglob(name)):
            return path
    why = f"{name} is missing, there and in its zip archives"
    raise refusal(folders[0], why, name, code="missing")


def _classes(path: Path) -> dict[str, int]:
    """WordNet ids and their numbers, from lines like `n02119789 1 kit_fox`."""
    classes = {}
    for line in read_text(path).splitlines():
        name, number, *_ = [*line.split(), "", ""]
        if not number.isascii() or not number.isdigit():
            raise bad_value(path, "line", line, "one like 'n02119789 1 kit_fox'")
        classes[name] = int(number)
    if not classes:
        raise refusal(path, "it has no lines", code="damaged")
    return classes


def _batch(path: Path, side: int, numbers: NDArray[np.int64]) -> Split:
    """A file's images of the classes whose entry in `numbers` is not -1."""
    labels, pixels = npz_arrays(path, ("labels", "data")).values()
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3 * side * side):
        wanted = f"uint8 {(len(labels), 3 * side * side)}, {side} x {side} pixels"
        raise unlike(path, "data", pixels, wanted)
    if len(labels) and not 0 < labels.min() <= labels.max() < len(numbers):
        raise refusal(path, f"a label is not in {CLASSES}", "labels")
    wanted = numbers[labels]
    kept = wanted >= 0
    return Split(pixels[kept].reshape(-1, 3, side, side), wanted[kept])
