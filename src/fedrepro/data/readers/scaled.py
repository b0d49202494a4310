"""Resize images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def resized(images: NDArray[np.uint8], side: int) -> NDArray[Any]:
    """Resize uint8 images [n, c, height, width] to [n, c, side, side], c 1 or 3.

    The result is that of torchvision's Resize on Pillow images, whose bilinear filter antialiases.
    """
    result = np.empty((len(images), images.shape[1], side, side), np.uint8)
    for row, image in enumerate(images):
        whole = Image.fromarray(image.transpose(1, 2, 0) if len(image) > 1 else image[0])
        pixels = np.asarray(whole.resize((side, side), Image.Resampling.BILINEAR))
        result[row] = pixels.transpose(2, 0, 1) if len(image) > 1 else pixels
    return result
