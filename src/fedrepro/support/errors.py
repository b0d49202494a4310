"""What a person is told when an input is wrong: one line, no traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """An input that we can name the fault of. The command prints it and exits with status 2."""


def nearest(value: object, choices: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the choice most like ``value``, or nothing."""
    close = get_close_matches(str(value), list(choices), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def bad_value(
    where: object, key: str, value: object, expected: str, choices: Iterable[str] = ()
) -> UserError:
    """The line for a wrong value: the file or command, the key, the value, what was expected."""
    return UserError(f"{where}: {key}: {value!r}: expected {expected}{nearest(value, choices)}")


def at_least(method: str, key: str, value: float, least: float) -> None:
    """Raises UserError unless a hyperparameter is a finite number of at least ``least``."""
    if not least <= value < float("inf"):
        raise bad_value(f"method {method}", key, value, f"a finite number of at least {least:g}")


def cannot_write(path: object, error: OSError) -> UserError:
    """The line for a disk that refuses (full, read-only, quota)."""
    return UserError(f"{path}: could not be written: {error.strerror or error}")
