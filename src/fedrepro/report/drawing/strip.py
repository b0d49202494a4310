"""An animated strip: the same images over rounds."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from fedrepro.report.drawing import sheet

SECONDS = 4.5  # in total: longer animations need a control to stop them (WCAG 2.2.2)


def animated(frames: Sequence[NDArray[Any]], columns: int, *, description: str) -> str:
    """Play sheets of images once; the last one stays.

    Print, and readers who prefer reduced motion, get the last one only.

    Args:
        frames: each [n, channels, height, width], as for :func:`fedrepro.report.drawing.sheet.png`.
        description: the text for screen readers.
    """
    still = sheet.png(frames[-1], columns)
    moving = _animation([sheet.png(frame, columns) for frame in frames])
    with Image.open(io.BytesIO(still)) as picture:
        width, height = picture.size
    return (
        f'<picture><source media="print, (prefers-reduced-motion: reduce)" srcset="{_data(still)}">'
        f'<img class="sheet" width="{width}" height="{height}" '
        f'alt="{escape(description, quote=True)}" src="{_data(moving)}"></picture>'
    )


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


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
