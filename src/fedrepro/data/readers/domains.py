"""Data sets of several domains: their clients have feature skew."""

from pathlib import Path

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import DigitFive, Pacs
from fedrepro.data.fetching.archives import lacking, opened
from fedrepro.data.readers.arrays import unlike
from fedrepro.data.readers.content import Content, Progress, Split, joined
from fedrepro.data.readers.images import IMAGE_SUFFIXES, read_images, resized
from fedrepro.data.readers.pickled_arrays import read_arrays
from fedrepro.support.errors import bad_value, refusal

DIGITS = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")
SIDE = 28
PACS = ("photo", "art_painting", "cartoon", "sketch")
SHORTER, CROPPED = 256, 224


def _around(path: Path, scratch: Path, domains: tuple[str, ...]) -> Path:
    """The folder with one subfolder for each domain, in a folder or an archive."""
    root = opened(path, scratch)
    first = sorted(folder for folder in root.rglob(domains[0]) if folder.is_dir())
    root = first[0].parent if first else root
    for domain in domains:
        if not (root / domain).is_dir():
            why = f"{domain} is missing: expected folders {', '.join(domains)}"
            raise refusal(path, why, domain, code="missing")
    return root


def read_digit_five(spec: DigitFive, path: Path, scratch: Path, progress: Progress) -> Content:
    """Images [n, 3, 28, 28] of the five domains, one after another; each domain is a group.

    A file is a pickled pair of images and labels, which is read without unpickling it. Grey images
    get three equal channels; images are resized to 28 x 28 as by torchvision.

    Raises:
        UserError: if a domain or file is missing, or a file contains anything else.
    """
    root = _around(path, scratch, DIGITS)
    parts: dict[str, list[Split]] = {"train": [], "test": []}
    for number, domain in enumerate(DIGITS):
        training = [f"partitions/train_part{part}.pkl" for part in range(spec.parts)]
        for split, names in (("train", training), ("test", ["test.pkl"])):
            for name in names:
                file = root / domain / name
                if not file.is_file():
                    raise lacking(path, f"{domain}/{name}")
                x, y = _digits(file)
                parts[split].append(Split(x, y, np.full(len(y), number)))
        progress((number + 1) / len(DIGITS))
    train, test = (joined(parts[split]) for split in ("train", "test"))
    return Content(train, [str(digit) for digit in range(10)], test, {"groups": list(DIGITS)})


def _digits(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    arrays = read_arrays(file)
    if len(arrays) != 2 or arrays[0].dtype != np.uint8 or len(arrays[0]) != arrays[1].size:
        raise refusal(file, "expected images as bytes, and as many labels", code="damaged")
    images, labels = arrays[0], arrays[1].reshape(-1).astype(np.int64)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise unlike(file, "images", images, "grey or coloured ones")
    planes = np.repeat(images, 3, axis=3) if images.shape[3] == 1 else images
    planes = planes.transpose(0, 3, 1, 2)
    return (planes if planes.shape[2:] == (SIDE, SIDE) else resized(planes, SIDE)), labels


def read_pacs(spec: Pacs, path: Path, scratch: Path, progress: Progress) -> Content:
    """Images [n, 3, 224, 224]: resized to a shorter side of 256, then centre-cropped.

    A tenth of every domain, rounded down, is test data, chosen as in IMA's code: the legacy
    generator with seed 1 shuffles the domains one after another, and the first tenth is taken.

    Raises:
        UserError: if a domain is missing, domains have different classes, or an image is damaged.
    """
    root = _around(path, scratch, PACS)
    names = _folders(root / PACS[0])
    files, groups, labels, testing = [], [], [], []
    random = RandomState(1)
    for group, domain in enumerate(PACS):
        own = _folders(root / domain)
        if own != names:
            raise bad_value(path, f"{domain}: classes", own, f"{names} as in {PACS[0]}")
        images = [
            (image, number)
            for number, name in enumerate(names)
            for image in sorted((root / domain / name).rglob("*"))
            if image.suffix.lower() in IMAGE_SUFFIXES and image.is_file()
        ]
        order = np.arange(len(images))
        random.shuffle(order)
        cut = len(images) // 10
        files += [images[row][0] for row in order]
        labels += [images[row][1] for row in order]
        groups += [group] * len(images)
        testing += [place < cut for place in range(len(images))]
    x = read_images(files, path, CROPPED, progress, SHORTER)
    samples = Split(x, np.array(labels, np.int64), np.array(groups, np.int64))
    test = np.array(testing)
    return Content(samples.take(~test), names, samples.take(test), {"groups": list(PACS)})


def _folders(root: Path) -> list[str]:
    return sorted(folder.name for folder in root.iterdir() if folder.is_dir())
