"""Errors for invalid input: one line, no traceback."""

import math
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from fedrepro.support.printing import printable
from fedrepro.support.terminal import say

Defined = TypeVar("Defined")
COMMAND_LINE = "the command line"  # the file of an error of an argument
LONGEST = 120  # characters of a value in a message
MOST_LISTED = 12  # names in a message
LONGEST_LINE = 900  # characters of a message


class UserError(Exception):
    """Invalid input. The command prints the message and exits with status 2.

    The message is one printable line, even if it quotes a library's longer message, a server's
    answer or a whole input. Code that reacts to an error reads the attributes, never the line.

    Attributes:
        code: the kind of fault: "value", "missing", "unknown_key", "damaged", "unreadable",
            "unwritable", "invalid_yaml" or "locked"; "" for a fault of no such kind.
        file: the file, command or object at fault.
        key: the key or argument, with those above it: ``settings.own.model``.
        value: its value as given; None where none is.
        expected: what was expected.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        file: object = "",
        key: str = "",
        value: object = None,
        expected: str = "",
    ) -> None:
        self.code, self.file, self.key = code, str(file), key
        self.value, self.expected = value, expected
        line = printable(" ".join(filter(None, map(str.strip, message.splitlines()))))
        super().__init__(line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}...")


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Print a UserError on stderr and exit with status 2: Snakemake would print a traceback."""
    try:
        yield
    except UserError as error:
        say(f"fedrepro: {error}")
        raise SystemExit(2) from None


def load_valid(load: Callable[[Path], Defined], files: Mapping[str, Path]) -> dict[str, Defined]:
    """What ``load`` finds in each file; a broken one is left out, which a line on stderr says.

    For lists: who needs a single file loads that one, and gets its error.
    """
    loaded = {}
    for name, file in files.items():
        try:
            loaded[name] = load(file)
        except UserError as error:
            say(f"fedrepro: left out: {error}")
    return loaded


class Interrupted(KeyboardInterrupt):
    """Work that a signal ended early, after saving its state.

    Attributes:
        status: exit status of the command, as in shells: 128 + the signal's number.
    """

    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)  # a process that unpickles it passes this alone, then the status
        self.status = 128 + signal_number


def text_of(error: BaseException) -> str:
    """An exception's class and text, also if its own code for the text fails."""
    name = type(error).__name__
    try:
        return f"{name}: {error}".removesuffix(": ")
    except Exception as failed:
        return f"{name} (its text fails with {type(failed).__name__})"


def brief(value: object) -> str:
    """The repr of a value, shortened to ``LONGEST`` characters; of numpy's as of Python's."""
    kind = "" if getattr(value, "shape", True) else str(getattr(value, "dtype", ""))
    if kind.startswith(("<U", "bool", "int", "uint", "float64")):  # others differ from Python's
        value = getattr(value, "item", lambda: value)()
    try:
        text = repr(value)
    except ValueError:  # an int with more digits than Python prints
        text = f"a {type(value).__name__} of very many digits"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def listed(names: Sequence[str]) -> str:
    """The names, or the first of many and how many more there are."""
    more = len(names) - MOST_LISTED
    shown = ", ".join(names[:MOST_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown


def nearest(value: object, choices: Iterable[str], most: int = 1) -> str:
    """``; did you mean 'x'?`` with the ``most`` others that resemble ``value`` best, or ""."""
    text = value if isinstance(value, str) else brief(value)
    if len(text) > LONGEST:  # not a typo, and slow to compare
        return ""
    others = [name for name in choices if not (isinstance(value, str) and name == value)]
    close = [f"'{name}'" for name in get_close_matches(text, others, n=most, cutoff=0.5)]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def bad_value(
    where: object, key: str, value: object, expected: str, choices: Iterable[str] = ()
) -> UserError:
    """The error for a wrong value: file or command, key, value, and what was expected."""
    return UserError(
        f"{where}: {key}: {brief(value)}: expected {expected}{nearest(value, choices)}",
        code="value",
        file=where,
        key=key,
        value=value,
        expected=expected,
    )


def bad_argument(key: str, value: object, expected: str, choices: Iterable[str] = ()) -> UserError:
    """The error for a wrong value of an argument or option of a command."""
    return bad_value(COMMAND_LINE, key, value, expected, choices)


def refusal(
    where: object, why: str, key: str = "", value: object = None, code: str = "value"
) -> UserError:
    """The error for a fault in words of its own: file or command, and why it is refused."""
    return UserError(f"{where}: {why}", code=code, file=where, key=key, value=value)


def refuse_unknown(
    where: object, key: str, values: Iterable[object], known: Iterable[str], expected: str = ""
) -> None:
    """Raise an error for the first value that is not among the known ones.

    Raises:
        UserError: as :func:`bad_value`; by default, one of the known ones is expected.
    """
    choices = list(map(str, known))
    for value in values:
        if value not in choices:
            raise bad_value(where, key, value, expected or f"one of {listed(choices)}", choices)


def missing_value(where: object, key: str, expected: str) -> UserError:
    """The error for a key that is not given."""
    line = f"{where}: {key}: missing: expected {expected}"
    return UserError(line, code="missing", file=where, key=key, expected=expected)


# Plug-ins of version 0.3 call these four. The annotation of a hyperparameter says the same, with a
# :class:`fedrepro.engine.fidelity.Limit`.
def at_least(method: object, least: float, *keys: str) -> None:
    """Raise UserError unless hyperparameters are finite numbers of at least ``least``, or None."""
    for key in keys:
        value = getattr(method, key)
        if value is not None and not least <= value < math.inf:
            raise _bad_hyperparameter(method, key, f"a finite number of at least {least:g}")


def above(method: object, least: float, *keys: str) -> None:
    """Raise UserError unless hyperparameters are finite numbers above ``least``."""
    for key in keys:
        if not least < getattr(method, key) < math.inf:
            raise _bad_hyperparameter(method, key, f"a finite number above {least:g}")


def decay(method: object, key: str) -> None:
    """Raise UserError unless a hyperparameter is from 0 and below 1."""
    if not 0 <= getattr(method, key) < 1:
        raise _bad_hyperparameter(method, key, "a number from 0 and below 1")


def whole_or_none(method: str, key: str, value: float | None) -> None:
    """Raise UserError unless a hyperparameter is None or a whole number of at least 1."""
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise bad_value(f"method {method}", key, value, "a whole number of at least 1, or null")


def _bad_hyperparameter(method: object, key: str, expected: str) -> UserError:
    name = type(method).__module__.rpartition(".")[2]
    return bad_value(f"method {name}", key, getattr(method, key), expected)


def nobody(where: object, key: str, share: float, clients: int) -> UserError:
    """The error for a share that, rounded down to whole clients, is none of them."""
    least = math.ceil(1e4 / clients) / 1e4
    more = f", or at least {least:g}" if least < 0.5 else ""
    wanted = f"0{more}: of {clients} clients, {share:g} rounds down to none"
    return bad_value(where, key, share, wanted)


def unreadable(path: object, why: object, kind: str = "") -> UserError:
    """The error for a file that cannot be read, or not as what it should be."""
    as_kind = f" as {kind}" if kind else ""
    return refusal(path, f"can't be read{as_kind}: {why}", code="unreadable")


def reason_of(error: BaseException) -> str:
    """An exception's own words: the system's of a file, or else the first line of its text."""
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    return getattr(error, "strerror", None) or str(said).strip().partition("\n")[0]


@contextmanager
def reading(path: object, *errors: type[Exception], kind: str = "") -> Iterator[None]:
    """Turn these errors in this block into :func:`unreadable`."""
    try:
        yield
    except errors as error:
        raise unreadable(path, reason_of(error), kind) from error


def damaged(path: object, why: object) -> UserError:
    """The error for a file of ours that does not hold what was written."""
    return refusal(path, f"damaged: {why}", code="damaged")


def cannot_write(path: object, error: OSError) -> UserError:
    """The error for a file that cannot be written (disk full, read-only, quota).

    Raises:
        TimeoutError: this one, if it has no number: then it is not the system's, but a time limit
            of the caller.
    """
    if isinstance(error, TimeoutError) and error.errno is None:
        raise error
    return refusal(path, f"could not be written: {error.strerror or error}", code="unwritable")


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn the system's errors in this block into :func:`cannot_write`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error
