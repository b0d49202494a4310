"""Data sets of several domains, whose clients have feature skew: Digit-Five, PACS, and a surrogate.

Digits in styles, a surrogate for Digit-Five, need only files that every machine has.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import DigitFive, DigitStyles, Pacs
from fedrepro.data.fetching.archives import lacking, opened
from fedrepro.data.partition.assigning import stratified_choice
from fedrepro.data.readers.arrays import unlike
from fedrepro.data.readers.content import Content, Source, Split, held_out, joined
from fedrepro.data.readers.images import IMAGE_SUFFIXES, pixel_rows, read_images, resized
from fedrepro.data.readers.pickled_arrays import read_arrays
from fedrepro.support.errors import bad_value, refusal
from fedrepro.support.files import visible

DIGITS = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")
SIDE = 28
PACS = ("photo", "art_painting", "cartoon", "sketch")
SHORTER, CROPPED = 256, 224


def _around(source: Source, domains: tuple[str, ...]) -> Path:
    """The folder with one subfolder for each domain, in a folder or an archive."""
    root = opened(source.path, source.scratch)
    first = (folder for folder in visible(root, f"**/{domains[0]}") if folder.is_dir())
    root = next((folder.parent for folder in first), root)
    for domain in domains:
        if not (root / domain).is_dir():
            why = f"{domain} is missing: expected folders {', '.join(domains)}"
            raise refusal(source.path, why, domain, code="missing")
    return root


def read_digit_five(spec: DigitFive, source: Source) -> Content:
    """Images [n, 3, 28, 28] of the five domains, one after another; each domain is a group.

    A file is a pickled pair of images and labels, which is read without unpickling it. Grey images
    get three equal channels; images are resized to 28 x 28 as by torchvision.

    Raises:
        UserError: if a domain or file is missing, or a file contains anything else.
    """
    root = _around(source, DIGITS)
    parts: dict[str, list[Split]] = {"train": [], "test": []}
    for number, domain in source.counted(DIGITS):
        training = [f"partitions/train_part{part}.pkl" for part in range(spec.parts)]
        for split, names in (("train", training), ("test", ["test.pkl"])):
            for name in names:
                file = root / domain / name
                if not file.is_file():
                    raise lacking(source.path, f"{domain}/{name}")
                x, y = _digits(file)
                parts[split].append(Split(x, y, np.full(len(y), number)))
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


def read_pacs(spec: Pacs, source: Source) -> Content:
    """Images [n, 3, 224, 224]: resized to a shorter side of 256, then centre-cropped.

    A tenth of every domain, rounded down, is test data, chosen as in IMA's code: the legacy
    generator with seed 1 shuffles the domains one after another, and the first tenth is taken.

    Raises:
        UserError: if a domain is missing, domains have different classes, or an image is damaged.
    """
    root = _around(source, PACS)
    names = _folders(root / PACS[0])
    files, groups, labels, testing = [], [], [], []
    random = RandomState(1)
    for group, domain in enumerate(PACS):
        own = _folders(root / domain)
        if own != names:
            raise bad_value(source.path, f"{domain}: classes", own, f"{names} as in {PACS[0]}")
        images = [
            (image, number)
            for number, name in enumerate(names)
            for image in visible(root / domain / name, "**/*")
            if image.suffix.lower() in IMAGE_SUFFIXES and image.is_file()
        ]
        order = np.arange(len(images))
        random.shuffle(order)
        cut = len(images) // 10
        files += [images[row][0] for row in order]
        labels += [images[row][1] for row in order]
        groups += [group] * len(images)
        testing += [place < cut for place in range(len(images))]
    x = read_images(source, files, source.path, CROPPED, SHORTER)
    samples = Split(x, np.array(labels, np.int64), np.array(groups, np.int64))
    test = np.array(testing)
    return Content(samples.take(~test), names, samples.take(test), {"groups": list(PACS)})


def _folders(root: Path) -> list[str]:
    return [folder.name for folder in visible(root, "*") if folder.is_dir()]


Pixels = NDArray[np.uint8]
MNIST_SIDE, OPTICAL_SIDE, OPTICAL_MOST = 28, 8, 16


def _on_noise(images: Pixels) -> Pixels:
    """Half the image and half a background in which every pixel is drawn uniformly (seed 0)."""
    noise = RandomState(0).randint(0, 128, images.shape)
    return (images // 2 + noise).astype(np.uint8)


STYLES: dict[str, Callable[[Pixels], Pixels]] = {
    "as they are": lambda images: images,
    "inverted": lambda images: 255 - images,
    "turned": lambda images: np.rot90(images, axes=(2, 3)),
    "on noise": _on_noise,
}
OPTICAL = "optical"


def read_digit_styles(spec: DigitStyles, source: Source) -> Content:
    """Images [n, 1, 28, 28] of the domains, one after another; each domain is a group.

    Each style has its own quarter of MNIST's images, drawn by class (seed 0), so that no image is
    in two domains.

    Raises:
        UserError: if a file is damaged, or has optical digits beyond their 17 shades.
    """
    path = source.path / spec.files.optical.name
    optical = pixel_rows(path, OPTICAL_SIDE, OPTICAL_SIDE)
    most = int(optical.x.max(initial=0))
    if most > OPTICAL_MOST:
        raise refusal(path, f"pixels up to {most}: expected 0 to {OPTICAL_MOST}", "pixels", most)
    left = pixel_rows(source.path / spec.files.mnist.name, MNIST_SIDE, MNIST_SIDE)
    random, wanted = RandomState(0), len(left.y) // len(STYLES)
    domains: list[Split] = []
    for number, style in enumerate(STYLES.values(), start=1):
        last = number == len(STYLES)
        own = np.ones(len(left.y), bool) if last else stratified_choice(left.y, wanted, random)
        domains.append(Split(style(left.x[own]), left.y[own]))
        left = left.take(~own)
    shades = np.round(optical.x * (255 / OPTICAL_MOST)).astype(np.uint8)
    domains.append(Split(resized(shades, MNIST_SIDE), optical.y))

    parts: tuple[list[Split], ...] = ([], [])
    for group, domain in enumerate(domains):
        chosen_of = held_out(domain, spec.test_fraction, source.path)
        for split, chosen in zip(parts, chosen_of, strict=True):
            if chosen is not None:
                split.append(Split(chosen.x, chosen.y, np.full(len(chosen.y), group)))
    train, test = parts
    names = [str(digit) for digit in range(10)]
    notes = {"groups": [*STYLES, OPTICAL], "test_fraction": spec.test_fraction}
    return Content(joined(train), names, joined(test) if test else None, notes)
