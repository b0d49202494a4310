"""Small archives in the official layouts of IMA's data sets, and entries for them."""

import io
import pickle  # noqa: TID251 - the files that are read are pickles
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrepro.data.readers.domains import DIGITS, PACS

SHAPES = {  # as in FedBN's files
    "MNIST": (28, 28),
    "SVHN": (32, 32, 3),
    "USPS": (16, 16),
    "SynthDigits": (32, 32, 3),
    "MNIST_M": (28, 28, 3),
}
PER_FILE = 4


def digits(domain: str, part: int) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Images and labels of one file; USPS's labels are a column, as of some files of FedBN."""
    random = np.random.RandomState(10 * DIGITS.index(domain) + part)
    images = random.randint(0, 256, (PER_FILE, *SHAPES[domain])).astype(np.uint8)
    labels = random.randint(0, 10, PER_FILE)
    return images, labels[:, None] if domain == "USPS" else labels


def digit_five(protocol: int = 4) -> dict[str, bytes]:
    """Two training parts (0 and 1) and a test file (part 2) for each domain."""
    names = {0: "partitions/train_part0.pkl", 1: "partitions/train_part1.pkl", 2: "test.pkl"}
    return {
        f"digit_dataset/{domain}/{name}": pickle.dumps(digits(domain, part), protocol)
        for domain in DIGITS
        for part, name in names.items()
    }


def picture(width: int, height: int, seed: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pacs() -> dict[str, bytes]:
    """Ten images of each of two classes in each domain, wider than high or the other way."""
    return {
        f"PACS/{domain}/{name}/pic_{number:03}.png": picture(
            30 + 2 * number, 25 + 10 * kind, 100 * group + 10 * kind + number
        )
        for group, domain in enumerate(PACS)
        for kind, name in enumerate(("dog", "elephant"))
        for number in range(10)
    }
