"""What a second signal does, which are taken, and what becomes of what cannot be printed."""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from fedrepro.support import interruption, terminal
from fedrepro.support.interruption import StopRequest, asked_to_stop

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
OTHERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


@pytest.fixture(autouse=True)
def same_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*ENDS, *OTHERS)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("second", [*ENDS, *OTHERS])
@pytest.mark.parametrize("apart", [0.0, 0.99, 1.0, 60.0])
def test_a_later_demand_ends_at_once_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first: signal.Signals,
    second: signal.Signals,
    apart: float,
) -> None:
    """Within a second, signals count as one; the others than these three are no demand."""
    done: list[object] = []
    now = [100.0]
    monkeypatch.setattr(interruption.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(signal, "signal", lambda *given: done.append(given))
    monkeypatch.setattr(signal, "raise_signal", done.append)
    stop = StopRequest()
    assert stop.signal_number is None
    stop.take(first, None)
    now[0] += apart
    ended = False
    try:
        stop.take(second, None)
    except KeyboardInterrupt:
        ended = True
    monkeypatch.undo()
    at_once = second in ENDS and apart >= 1
    default = [(second, signal.SIG_DFL)] if at_once else []
    assert ended == (at_once and second == signal.SIGINT)
    assert done == default + ([second] if at_once and not ended else [])
    assert stop.signal_number == first
    assert capsys.readouterr().err.count("\n") == 1  # that it stops after this round, once


def own(number: int, frame: object) -> None:
    pass


@pytest.mark.parametrize(
    ("number", "handler", "taken"),
    [
        (signal.SIGINT, signal.default_int_handler, True),
        (signal.SIGINT, own, True),
        (signal.SIGINT, signal.SIG_IGN, False),  # a background job of a shell
        (signal.SIGTERM, signal.SIG_DFL, True),
        (signal.SIGTERM, own, True),
        (signal.SIGTERM, signal.SIG_IGN, False),
        (signal.SIGHUP, signal.SIG_DFL, True),
        (signal.SIGHUP, signal.SIG_IGN, False),  # nohup
        (signal.SIGHUP, own, False),
        (signal.SIGUSR1, signal.SIG_DFL, True),
        (signal.SIGUSR1, own, False),
        (signal.SIGQUIT, signal.SIG_DFL, True),
        (signal.SIGQUIT, own, False),
    ],
)
def test_a_signal_is_taken_unless_somebody_has_said_otherwise(
    number: signal.Signals, handler: object, taken: bool
) -> None:
    signal.signal(number, handler)
    with asked_to_stop() as stop:
        assert (signal.getsignal(number) == stop.take) == taken
        if taken:
            signal.raise_signal(number)
        assert stop.signal_number == (number if taken else None)
    assert signal.getsignal(number) == handler


def test_handlers_come_back_after_an_error_and_threads_change_none() -> None:
    before = {number: signal.getsignal(number) for number in (*ENDS, *OTHERS)}
    with pytest.raises(ZeroDivisionError), asked_to_stop():
        raise ZeroDivisionError
    found: list[object] = []

    def inside() -> None:
        with asked_to_stop() as stop:
            found.append((stop.signal_number, {n: signal.getsignal(n) for n in before}))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [(None, before)]
    assert {number: signal.getsignal(number) for number in before} == before


class Failing(io.StringIO):
    """A stream whose n-th call fails."""

    def __init__(self, error: Exception, at: int) -> None:
        super().__init__()
        self.fault, self.left = error, at

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.fault

    def write(self, text: str) -> int:
        self._count()
        return super().write(text)

    def flush(self) -> None:
        self._count()


@pytest.mark.parametrize(
    ("error", "delivered"),
    [
        (BrokenPipeError(32, "gone"), True),  # its reader has seen enough
        (OSError(28, "full"), False),
        (ValueError("closed"), False),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2, 9])
def test_what_cannot_be_printed_is_remembered_and_not_raised(
    error: Exception, delivered: bool, at: int
) -> None:
    stream = terminal.Unfailing(Failing(error, at))
    assert [stream.write(text) for text in ("ab", "c")] == [2, 1]
    failed = at < 3  # two writes, and the flush that asks whether all was written
    assert stream.delivered() == (delivered or not failed)
    assert stream.error is (error if failed else None)
    assert stream.stream.getvalue() == "abc"[: {0: 0, 1: 2}.get(at, 3)]


def test_the_first_of_several_errors_counts() -> None:
    stream = terminal.Unfailing(Failing(OSError(28, "full"), 0))
    stream.write("a")
    stream.stream.fault = BrokenPipeError(32, "gone")
    stream.write("b")
    stream.flush()
    assert not stream.delivered()


@pytest.mark.parametrize("stream", [None, Failing(OSError(28, "full"), 0), io.StringIO()])
def test_a_line_on_stderr_is_said_or_lost(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", out)
    terminal.say("a line")
    assert out.getvalue() == ""
    if type(stream) is io.StringIO:
        assert stream.getvalue() == "a line\n"


def test_a_line_on_stderr_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    stream = io.TextIOWrapper(io.BufferedWriter(shown), encoding="utf-8")  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stderr", stream)
    terminal.say("a line")
    assert shown.getvalue() == b"a line\n"


@pytest.mark.parametrize("closed", [{0}, {1}, {2}, {0, 1, 2}, set()])
def test_no_file_takes_the_place_of_a_closed_stream(closed: set[int]) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for number, name in enumerate(("stdin", "stdout", "stderr")):
                setattr(sys, name, None if number in closed else "open")
                if number in closed:
                    os.close(number)
            terminal.open_closed()
            streams = (sys.stdin, sys.stdout, sys.stderr)
            for number, stream in enumerate(streams):
                assert (stream == "open") == (number not in closed)
                assert os.get_inheritable(number)
                if number in closed:
                    assert stream.readable() == (number == 0) != stream.writable()
                    del stream
            assert os.open(os.devnull, os.O_RDONLY) > 2
            setattr(sys, "stdin", None), setattr(sys, "stdout", None), setattr(sys, "stderr", None)
            del streams
            for number in closed:
                os.fstat(number)  # also when nothing holds the stream any more
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_nobody_takes_is_dropped_and_what_somebody_takes_is_written() -> None:
    for taken in (True, False):
        reader, writer = os.pipe()
        stream = os.fdopen(writer, "w", encoding="utf-8")
        stream.write("a line")
        if not taken:
            os.close(reader)
        terminal.let_go(stream)
        if taken:
            assert os.read(reader, 100) == b"a line"
            os.close(reader)
        else:
            stream.write("more")
        stream.close()  # without an error
    terminal.let_go(stream)  # nor of one that is closed
