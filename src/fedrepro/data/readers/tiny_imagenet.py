"""TinyImageNet: 200 classes of 64 x 64 images, in its official archive."""

from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import TinyImageNet
from fedrepro.data.fetching.archives import unpack_around
from fedrepro.data.readers.content import Content, Progress, RawSamples
from fedrepro.data.readers.images import decode
from fedrepro.support.errors import UserError, bad_value


def read_tiny_imagenet(
    spec: TinyImageNet, folder: Path, scratch: Path, progress: Progress
) -> Content:
    """The training images, and as test set the 10,000 validation images, whose labels are known.

    Raises:
        UserError: if the archive has another layout, or an image is damaged.
    """
    archive = folder / spec.archive.name
    root = unpack_around(archive, scratch / "unpacked", "wnids.txt")
    names = sorted((root / "wnids.txt").read_text(encoding="utf-8").split())
    numbers = {name: at for at, name in enumerate(names)}
    training = [
        (path, number)
        for name, number in numbers.items()
        for path in sorted((root / "train" / name / "images").glob("*.JPEG"))
    ]
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file() or not training:
        raise UserError(f"{archive}: train or val/val_annotations.txt is missing")
    testing = []
    for line in annotations.read_text(encoding="utf-8").splitlines():
        image, name, *_ = [*line.split("\t"), ""]
        if name not in numbers:
            raise bad_value(archive, "val_annotations.txt", name, "a class of wnids.txt", names)
        testing.append((root / "val" / "images" / image, numbers[name]))
    total, done = len(training) + len(testing), 0
    splits = []
    for pairs in (training, testing):
        x = np.empty((len(pairs), 3, spec.side, spec.side), np.uint8)
        for row, (path, _) in enumerate(pairs):
            if not path.is_file():
                raise UserError(f"{archive}: {path.name} is missing")
            x[row] = decode(path.read_bytes(), f"{archive}: {path.name}", 3, (spec.side, spec.side))
            done += 1
            progress(done / total)
        splits.append(RawSamples(x, np.array([number for _, number in pairs], np.int64)))
    return Content(splits[0], splits[1], names, {})
