"""Digits of five domains: a surrogate for Digit-Five that every machine has."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import DigitStyles
from fedrepro.data.partition.assigning import stratified_choice
from fedrepro.data.readers.content import Content, Progress, Split, held_out, joined
from fedrepro.data.readers.images import pixel_rows, resized
from fedrepro.support.errors import refusal

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


def read_digit_styles(
    spec: DigitStyles, folder: Path, _scratch: Path, _progress: Progress
) -> Content:
    """Images [n, 1, 28, 28] of the domains, one after another; each domain is a group.

    Each style has its own quarter of MNIST's images, drawn by class (seed 0), so that no image is
    in two domains.

    Raises:
        UserError: if a file is damaged, or has optical digits beyond their 17 shades.
    """
    path = folder / spec.files.optical.name
    optical = pixel_rows(path, OPTICAL_SIDE, OPTICAL_SIDE)
    most = int(optical.x.max(initial=0))
    if most > OPTICAL_MOST:
        raise refusal(path, f"pixels up to {most}: expected 0 to {OPTICAL_MOST}", "pixels", most)
    left = pixel_rows(folder / spec.files.mnist.name, MNIST_SIDE, MNIST_SIDE)
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
        for split, chosen in zip(parts, held_out(domain, spec.test_fraction, folder), strict=True):
            if chosen is not None:
                split.append(Split(chosen.x, chosen.y, np.full(len(chosen.y), group)))
    train, test = parts
    names = [str(digit) for digit in range(10)]
    notes = {"groups": [*STYLES, OPTICAL], "test_fraction": spec.test_fraction}
    return Content(joined(train), names, joined(test) if test else None, notes)
