"""Texts as character ids, and samples that predict the next character, as in LEAF."""

import string

import numpy as np
from numpy.typing import NDArray

ALPHABET = string.printable  # 100 characters, as in SuPerFed's released code; its text says 80
_NONE = 255
_NUMBERS = np.full(128, _NONE, np.uint8)
_NUMBERS[[ord(each) for each in ALPHABET]] = np.arange(len(ALPHABET))


def numbers(text: str) -> NDArray[np.uint8]:
    """The index of each character in :data:`ALPHABET`.

    Raises:
        ValueError: for a character that is not in it.
    """
    codes = _NUMBERS[np.frombuffer(text.encode("ascii"), np.uint8)]
    if (codes == _NONE).any():
        unknown = text[int((codes == _NONE).argmax())]
        raise ValueError(f"{unknown!r} is none of the {len(ALPHABET)} characters")
    return codes


def windows(
    text: str, length: int, most: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All windows of `length` characters of a text [n, length], and the next characters [n].

    Args:
        most: the maximum number of windows, spread evenly over the text; None for all.
    """
    codes = numbers(text)
    starts = np.arange(max(len(codes) - length, 0))
    if most is not None and most < len(starts):
        starts = np.linspace(0, len(starts) - 1, most).astype(np.int64)
    return codes[starts[:, None] + np.arange(length)], codes[starts + length]
