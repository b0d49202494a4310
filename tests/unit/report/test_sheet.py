"""Sheets of images as PNG."""

import base64
import io
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedrepro.report.drawing import sheet


def pixels(png: bytes) -> NDArray[Any]:
    """[height, width, 4] with an alpha channel."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


def test_images_stand_row_by_row_with_gaps_that_are_clear() -> None:
    levels = np.linspace(0, 255, 5).astype(np.uint8)  # black to white
    images = np.broadcast_to(levels[:, None, None, None], (5, 1, 3, 4))
    found = pixels(sheet.png(images, 2))
    assert found.shape == (3 * 3 + 2 * sheet.GAP, 2 * 4 + sheet.GAP, 4)
    corners = [found[row * 5, column * 6] for row in range(3) for column in range(2)]
    shades = np.array([0, 0.25, 0.5, 0.75, 1])[:, None] * np.full(3, 255)
    assert np.abs(np.array(corners)[:5, :3] - shades).max() <= 255 / (sheet.SHADES - 1) / 2 + 0.5
    assert [corner[3] for corner in corners] == [255] * 5 + [0]  # the sixth place is empty
    assert not found[3:5, :, 3].any() and not found[:, 4:6, 3].any()


def test_colours_are_kept() -> None:
    images = np.zeros((3, 3, 2, 2), dtype=np.uint8)
    images[range(3), range(3)] = 255
    found = pixels(sheet.png(images, 3))
    assert [tuple(found[0, column]) for column in (0, 4, 8)] == [
        (255, 0, 0, 255),
        (0, 255, 0, 255),
        (0, 0, 255, 255),
    ]
    assert not found[:, 2:4, 3].any()


def test_a_sheet_weighs_little_and_is_the_same_each_time() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 1, 28, 28), dtype=np.uint8)
    first = sheet.png(noise, 8)
    assert first == sheet.png(noise, 8)
    assert len(first) < 32_000  # of noise, half a byte a pixel


def test_in_a_page_it_says_what_it_shows() -> None:
    text = sheet.draw(np.zeros((2, 1, 3, 3), np.uint8), 2, description='Digits of "round" 8')
    assert 'alt="Digits of &quot;round&quot; 8"' in text and 'width="8" height="3"' in text
    found = re.search(r"base64,([^\"]+)", text)
    assert found and pixels(base64.b64decode(found[1])).shape == (3, 8, 4)


@pytest.mark.parametrize("shape", [(0, 1, 2, 2), (4, 2, 2, 2), (1, 2, 2)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(shape))):
        sheet.png(np.zeros(shape, np.uint8), 2)
