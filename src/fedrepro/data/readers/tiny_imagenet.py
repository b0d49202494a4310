"""TinyImageNet: 200 classes of 64 x 64 images, in its official archive."""

from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import TinyImageNet
from fedrepro.data.fetching.archives import lacking, opened_around
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.data.readers.images import read_images
from fedrepro.support.errors import refuse_unknown
from fedrepro.support.files import read_text


def read_tiny_imagenet(
    spec: TinyImageNet, folder: Path, scratch: Path, progress: Progress
) -> Content:
    """The training images, and as test set the 10,000 validation images, whose labels are known.

    Raises:
        UserError: if the archive has another layout, or an image is damaged.
    """
    archive = folder / spec.archive.name
    root = opened_around(archive, scratch, "wnids.txt")
    names = sorted(read_text(root / "wnids.txt").split())
    numbers = {name: at for at, name in enumerate(names)}
    training = [
        (path, number)
        for name, number in numbers.items()
        for path in sorted((root / "train" / name / "images").glob("*.JPEG"))
    ]
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file() or not training:
        raise lacking(archive, "train or val/val_annotations.txt")
    testing = []
    for line in read_text(annotations).splitlines():
        image, name, *_ = [*line.split("\t"), ""]
        refuse_unknown(archive, "val_annotations.txt", [name], numbers, "a class of wnids.txt")
        testing.append((root / "val" / "images" / image, numbers[name]))
    paths, labels = zip(*training, *testing, strict=True)
    x = read_images(paths, archive, spec.side, progress)
    samples, tested = Split(x, np.array(labels, np.int64)), np.arange(len(x)) >= len(training)
    return Content(samples.take(~tested), names, samples.take(tested))
