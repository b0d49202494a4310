"""Handle Ctrl-C and SIGTERM so that work stops where its state can be saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal has arrived. A second one ends the process at once.

    Attributes:
        signal_number: of the first signal; None before one arrives.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler of both signals."""
        if self.signal_number is not None:
            signal.signal(number, signal.SIG_DFL)
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            signal.raise_signal(number)
        self.signal_number = number
        print(
            "fedrepro: stopping after this round (interrupt again to stop now and lose the rounds "
            "since the last checkpoint)",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def asked_to_stop() -> Iterator[StopRequest]:
    """Record signals that arrive in the block; only a process's main thread receives any."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # `nohup` ignores signals
                signal.signal(number, stop.take)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
