"""The binary versions of CIFAR-10 and CIFAR-100, which need no unpickling."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import Cifar10Binary, Cifar100Binary
from fedrepro.data.fetching.archives import opened_around
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.data.readers.images import resized
from fedrepro.support.errors import refusal
from fedrepro.support.files import read_text

SHAPE = (3, 32, 32)  # the red, the green and the blue plane


def read_cifar10(spec: Cifar10Binary, folder: Path, _scratch: Path, _progress: Progress) -> Content:
    """Five training files and a test file; a record is a label and an image.

    Raises:
        UserError: when a file is truncated.
    """
    *training, test = (file.name for _, file in spec.files)
    return Content(
        train=_samples(folder, folder, training, 1, spec.side),
        test=_samples(folder, folder, [test], 1, spec.side),
        class_names=list(spec.class_names),
    )


def read_cifar100(
    spec: Cifar100Binary, folder: Path, scratch: Path, _progress: Progress
) -> Content:
    """A training and a test file; a record is a coarse label, a fine one and an image.

    Raises:
        UserError: when a file is missing or truncated.
    """
    archive = folder / spec.archive.name
    files = ("train.bin", "test.bin", "fine_label_names.txt")
    root = opened_around(archive, scratch, *files)
    return Content(
        train=_samples(archive, root, ["train.bin"], 2, spec.side, spec.superclasses),
        test=_samples(archive, root, ["test.bin"], 2, spec.side, spec.superclasses),
        class_names=read_text(root / files[2]).split(),
    )


def _samples(
    source: Path,
    root: Path,
    names: Sequence[str],
    labels: int,
    side: int | None,
    grouped: bool = False,
) -> Split:
    """The images of some files; the class is the last of a record's `labels` bytes.

    Args:
        source: what an error names.
        grouped: use the first of these bytes as the group.
    """
    width = labels + int(np.prod(SHAPE))
    parts = []
    for name in names:
        content = np.fromfile(root / name, np.uint8)
        if content.size == 0 or content.size % width:
            raise refusal(source, f"{name} is truncated", name, code="damaged")
        parts.append(content.reshape(-1, width))
    rows = np.concatenate(parts)
    images = rows[:, labels:].reshape(-1, *SHAPE)
    images = images if side is None else resized(images, side)
    return Split(images, rows[:, labels - 1], rows[:, 0] if grouped else None)
