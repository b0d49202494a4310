"""A sheet of images: many small ones in rows, as one picture embedded in a page.

A picture has few colours (15 shades of grey, or 63 colours, which is enough to recognise the
images) and transparent gaps, so that it is small and fits a light or dark page.
"""

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GAP = 2  # pixels between images
SHADES, COLOURS = 15, 63  # besides the transparent one


def draw(images: NDArray[np.uint8], columns: int, *, description: str) -> str:
    """A sheet as an ``img`` element with embedded data.

    ``description`` is the text for screen readers; the rest is as in :func:`png`.
    """
    width, height = _size(images.shape, columns)
    data = base64.b64encode(png(images, columns)).decode("ascii")
    return (
        f'<img class="sheet" width="{width}" height="{height}" '
        f'alt="{escape(description, quote=True)}" src="data:image/png;base64,{data}">'
    )


def png(images: NDArray[np.uint8], columns: int) -> bytes:
    """A sheet as a PNG file; equal images give equal bytes.

    Args:
        images: [n, channels, height, width] with one channel (grey) or three (red, green, blue),
            placed row by row; the last row may be incomplete.
        columns: images per row.

    Raises:
        ValueError: for another shape.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(f"images of shape {images.shape}")
    width, height = _size(images.shape, columns)
    canvas = np.zeros((height, width, images.shape[1]))
    free = np.ones((height, width), dtype=bool)
    for place, image in enumerate(images / 255):
        row, column = divmod(place, columns)
        top, left = row * (image.shape[1] + GAP), column * (image.shape[2] + GAP)
        spot = slice(top, top + image.shape[1]), slice(left, left + image.shape[2])
        canvas[spot], free[spot] = image.transpose(1, 2, 0), False
    picture = (_grey if images.shape[1] == 1 else _coloured)(canvas)
    clear = int(np.asarray(picture).max()) + 1
    palette = (picture.getpalette() or [])[: 3 * clear]
    picture.putpalette([*palette, 0, 0, 0])
    picture.paste(clear, mask=Image.fromarray(free.astype(np.uint8) * 255))
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True, transparency=clear)
    return file.getvalue()


def _grey(canvas: NDArray[np.float64]) -> Image.Image:
    """The image with a palette of greys."""
    picture = Image.fromarray((canvas[..., 0] * (SHADES - 1)).round().astype(np.uint8), "P")
    shades = np.linspace(0, 255, SHADES).round().astype(int)
    picture.putpalette(shades.repeat(3).tolist())
    return picture


def _coloured(canvas: NDArray[np.float64]) -> Image.Image:
    """The image with the palette that fits its colours best."""
    return Image.fromarray((canvas * 255).round().astype(np.uint8), "RGB").quantize(COLOURS)


def _size(shape: Sequence[int], columns: int) -> tuple[int, int]:
    """Width and height of a sheet, in pixels."""
    rows = -(-shape[0] // columns)
    return (
        min(columns, shape[0]) * (shape[3] + GAP) - GAP,
        rows * (shape[2] + GAP) - GAP,
    )
