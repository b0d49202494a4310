"""Checks of single arguments of commands."""

import re
from argparse import ArgumentTypeError
from pathlib import Path

from fedrepro.support.errors import bad_argument


def whole_number(text: str) -> int:
    """A number as an option gives it; ``int`` takes 1_0, and digits of other scripts.

    Raises:
        ArgumentTypeError: for another text.
    """
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ArgumentTypeError(f"{text!r}: expected a whole number")
    return int(text)


def require_at_least(key: str, value: int, least: int) -> None:
    """Raise UserError if an argument is less than ``least``."""
    if value < least:
        raise bad_argument(key, value, f"a whole number of at least {least}")


def refuse_existing(key: str, folder: Path) -> None:
    """Raise UserError if there is something where a command makes a folder."""
    if folder.exists():
        raise bad_argument(key, str(folder), "a folder that does not exist yet")


def require_seed(key: str, seed: int) -> None:
    """Raise UserError unless ``seed`` is in [0, 2**32)."""
    if not 0 <= seed < 2**32:
        raise bad_argument(key, seed, "a whole number from 0 to 4294967295")
