"""Checks of single arguments of commands."""

from pathlib import Path

from fedrepro.support.errors import bad_argument


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
