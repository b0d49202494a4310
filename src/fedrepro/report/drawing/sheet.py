"""Sheets of images: many small ones in rows, as one picture embedded in a page, or as a strip.

A picture has few colours (15 shades of grey, or 63 colours, which is enough to recognise the
images) and transparent gaps, so that it is small and fits a light or dark page. A strip shows the
same images over rounds. Training images stand beside generated ones.
"""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrepro.data.dataset import PREPARED, is_prepared, open_dataset
from fedrepro.run.results import RunRecord

GAP = 2  # pixels between images
SHADES, COLOURS = 15, 63  # besides the transparent one

SECONDS = 4.5  # in total: longer animations need a control to stop them (WCAG 2.2.2)


def training_images(
    root: Path, record: RunRecord, classes: int, wide: int
) -> NDArray[np.uint8] | None:
    """The first training images of each class, [classes * wide, channels, height, width].

    None if the data set is not prepared here, holds no images, or too few of a class.
    """
    name = str(record.manifest.get("run", {}).get("dataset"))
    if not is_prepared(name, root / PREPARED):
        return None
    train = open_dataset(name, root / PREPARED).train
    if train.x.ndim != 4 or train.x.dtype != np.uint8 or train.y.ndim != 1:
        return None
    places = [np.flatnonzero(train.y == label)[:wide] for label in range(classes)]
    if any(len(each) < wide for each in places):
        return None
    return np.asarray(train.x[np.concatenate(places)])


def draw(images: NDArray[np.uint8], columns: int, *, description: str) -> str:
    """A sheet as an ``img`` element with embedded data.

    ``description`` is the text for screen readers; the rest is as in :func:`png`.
    """
    return _img(_size(images.shape, columns), description, png(images, columns))


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


def animated(frames: Sequence[NDArray[Any]], columns: int, *, description: str) -> str:
    """Play sheets of images once; the last one stays.

    Print, and readers who prefer reduced motion, get the last one only.

    Args:
        frames: each [n, channels, height, width], as for :func:`png`.
        description: the text for screen readers.
    """
    still = png(frames[-1], columns)
    moving = _animation([png(frame, columns) for frame in frames])
    img = _img(_size(frames[-1].shape, columns), description, moving)
    media = "print, (prefers-reduced-motion: reduce)"
    return f'<picture><source media="{media}" srcset="{_data(still)}">{img}</picture>'


def _animation(pictures: Sequence[bytes]) -> bytes:
    """An animated PNG that plays once."""
    frames = [Image.open(io.BytesIO(picture)).convert("RGBA") for picture in pictures]
    file = io.BytesIO()
    frames[0].save(
        file,
        format="PNG",
        save_all=True,
        append_images=frames[1:],
        duration=round(1000 * SECONDS / len(frames)),
        loop=1,
        disposal=1,  # frames have transparent gaps
        optimize=True,
    )
    return file.getvalue()


def _img(size: tuple[int, int], description: str, png: bytes) -> str:
    return (
        f'<img class="sheet" width="{size[0]}" height="{size[1]}" '
        f'alt="{escape(description, quote=True)}" src="{_data(png)}">'
    )


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
