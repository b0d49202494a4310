"""Images in another size."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def resized(images: NDArray[np.uint8], side: int) -> NDArray[Any]:
    """Images uint8 [n, c, height, width] as [n, c, side, side], as torchvision's Resize makes them.

    It takes an image as Pillow's, whose bilinear filter averages over what it leaves out; c is 3 or
    1.
    """
    result = np.empty((len(images), images.shape[1], side, side), np.uint8)
    for row, image in enumerate(images):
        whole = Image.fromarray(image.transpose(1, 2, 0) if len(image) > 1 else image[0])
        pixels = np.asarray(whole.resize((side, side), Image.Resampling.BILINEAR))
        result[row] = pixels.transpose(2, 0, 1) if len(image) > 1 else pixels
    return result
