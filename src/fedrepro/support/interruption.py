"""Handle signals that ask a process to end so that work stops where its state can be saved."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fedrepro.support.terminal import ASKED_TO_END, say

AT_ONCE = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGQUIT", signal.SIGTERM))
# Seconds in which signals count as one: `timeout` and many launchers send theirs to the process and
# again to its group; systemd sends SIGHUP after SIGTERM.
TOGETHER = 1.0


class StopRequest:
    """Whether a signal has arrived. A second one, later, ends the process at once.

    The others, such as SIGHUP or SLURM's SIGUSR1, are no demand: they change nothing after the
    first.

    Attributes:
        signal_number: of the first signal; None before one arrives.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._since = 0.0

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: note the first one; a later one of the user's ends the process."""
        now = time.monotonic()
        if self.signal_number is None:
            self.signal_number, self._since = number, now
            say(
                "fedrepro: stopping after this round (interrupt again to stop now and lose the "
                "rounds since the last checkpoint)"
            )
        elif number in AT_ONCE and now - self._since >= TOGETHER:
            signal.signal(number, signal.SIG_DFL)
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            signal.raise_signal(number)


@contextmanager
def asked_to_stop() -> Iterator[StopRequest]:
    """Record signals that arrive in the block; only a process's main thread receives any."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in ASKED_TO_END}
    taken = [number for number, handler in before.items() if _is_free(number, handler)]
    try:
        for number in taken:
            signal.signal(number, stop.take)
        yield stop
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _is_free(number: int, handler: object) -> bool:
    """Whether a signal may be taken: `nohup` ignores some, and a program may handle its own."""
    if number in (signal.SIGINT, signal.SIGTERM):
        return handler is not None and handler is not signal.SIG_IGN
    return handler is signal.SIG_DFL
