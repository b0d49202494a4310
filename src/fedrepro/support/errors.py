"""What a person is told when an input is wrong: one line, no traceback."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

LONGEST = 120  # characters of a value that is shown
LONGEST_LINE = 900  # characters of all that is said


class UserError(Exception):
    """An input that we can name the fault of. The command prints it and exits with status 2.

    It is one line, also where it quotes a library that writes several, or all that it has read.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(filter(None, map(str.strip, message.splitlines())))
        super().__init__(line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}...")


@contextmanager
def one_line() -> Iterator[None]:
    """End with status 2 after one line on stderr, where Snakemake would print a traceback."""
    try:
        yield
    except UserError as error:
        print(f"fedrepro: {error}", file=sys.stderr)
        raise SystemExit(2) from None


class Interrupted(KeyboardInterrupt):
    """Work that ended early because a signal asked it to, with what was kept.

    Attributes:
        status: of the command, as shells count it: 128 and the signal's number.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.status = 128 + signal_number


def brief(value: object) -> str:
    """A value as Python writes it, cut where that would fill the screen."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        text = f"a {type(value).__name__} of very many digits"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def nearest(value: object, choices: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the choice most like ``value``, or nothing."""
    text = value if isinstance(value, str) else brief(value)
    if len(text) > LONGEST:  # no slip of the finger, and slow to compare
        return ""
    close = get_close_matches(text, list(choices), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def bad_value(
    where: object, key: str, value: object, expected: str, choices: Iterable[str] = ()
) -> UserError:
    """The line for a wrong value: the file or command, the key, the value, what was expected."""
    return UserError(
        f"{where}: {key}: {brief(value)}: expected {expected}{nearest(value, choices)}"
    )


def at_least(method: str, key: str, value: float, least: float) -> None:
    """Raises UserError unless a hyperparameter is a finite number of at least ``least``."""
    if not least <= value < float("inf"):
        raise bad_value(f"method {method}", key, value, f"a finite number of at least {least:g}")


def cannot_write(path: object, error: OSError) -> UserError:
    """The line for a disk that refuses (full, read-only, quota)."""
    return UserError(f"{path}: could not be written: {error.strerror or error}")
