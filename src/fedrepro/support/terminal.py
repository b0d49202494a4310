"""Output and signals that do not decide what a command is worth, and what it says without memory.

The reader of a command's output may go away, be closed from the start or have a full disk. Every
command imports this module first, so it imports little.
"""

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

# How a person, a closing terminal or a cluster asks a process to end.
ASKED_TO_END = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
)


def say(line: str) -> None:
    """Print a line on stderr at once. It is lost if stderr cannot be written."""
    if sys.stderr is None:  # for which `print` takes stdout
        return
    try:  # noqa: SIM105 - contextlib takes long to import
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError, RuntimeError):  # the last: in a signal handler amid a line
        pass


class Unfailing:
    """A text stream that remembers its first error instead of raising it."""

    def __init__(self, stream: "IO[str]") -> None:
        self.stream = stream
        self.error: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        try:
            self.stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            self.error = self.error or error
        return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except (OSError, ValueError) as error:
            self.error = self.error or error

    def delivered(self) -> bool:
        """Whether all was written, or the reader has seen enough and gone."""
        self.flush()
        return self.error is None or isinstance(self.error, BrokenPipeError)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def open_closed() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr.

    Else a file that is opened later gets its number, and what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
            stream = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def let_go(*streams: "IO[str]") -> None:
    """Write what is still to be printed; drop it if nobody takes it.

    Python would fail on it at exit, and change the exit status.
    """
    for stream in streams:
        try:
            stream.flush()
        except (OSError, ValueError):
            try:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
            except (OSError, ValueError):
                pass


MORE_MEMORY = (
    "give it more (`resources: {mem_mb: ...}` of its setting), or let fewer runs or clients work "
    "at once (`--cores`, `threads` in config.yaml)"
)


def without_log(words: "Sequence[str]") -> tuple[str, str | None]:
    """A command line without ``--log FILE``, and FILE."""
    kept = list(words)
    at = kept.index("--log") if "--log" in kept[:-1] else len(kept)
    log = kept[at + 1] if at < len(kept) else None
    return " ".join(kept[:at] + kept[at + 2 :]), log
