"""The entry point of ``fedrepro``: ask the warm server for a fork, else start normally.

Importing PyTorch takes seconds of CPU, longer than many commands of the workflow run. The Snakefile
therefore starts a server (:mod:`fedrepro.cli.warm_server`) that has imported everything. A command
sends it its arguments, environment, working directory, stdin, stdout and stderr; then it forwards
signals and waits. If that fails or the server is silent, the command starts normally.

Keep the imports of this module few: every command pays for them.
"""

import os
import select
import signal
import socket
import sys
from types import FrameType
from zlib import crc32

from fedrepro.cli.memory import MORE_MEMORY, without_log
from fedrepro.support.terminal import ASKED_TO_END, let_go, open_closed, say

VARIABLE = "FEDREPRO_WARM"  # environment variable with the folder of the socket
# Seconds for the server to answer, by beginning a command or, while it imports, by WAIT; and for it
# to report the end of one.
BEGINNING, ENDING = 60.0, 10.0
WAIT = b"."


def main() -> int:
    """Run a command. Return its exit status, as :func:`fedrepro.cli.main.main` does."""
    open_closed()
    folder = os.environ.get(VARIABLE)
    # Libraries read the number of threads on import, and the server imported them with one.
    if folder and os.environ.get("OMP_NUM_THREADS") == "1":
        begun = _hand_over(folder)
        if begun is not None:
            return _await(*begun)
    from fedrepro.cli import main as cli

    try:
        return cli.main()
    finally:
        let_go(sys.stdout, sys.stderr)


def address(folder: str) -> str:
    """The socket's path. It differs between Python environments and copies of this package."""
    return f"{folder}/{crc32(f'{sys.prefix} {__file__}'.encode()):x}"


def _hand_over(folder: str) -> tuple[socket.socket, int] | None:
    """The server, once it has started this command, and the process; None if it has not."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.settimeout(BEGINNING)
    arguments = sys.argv[1:]
    variables = (name + b"=" + value for name, value in os.environb.items())
    try:
        here = os.getcwdb()  # noqa: PTH109 - pathlib takes long to import
        fields = (here, b"%d" % len(arguments), *map(os.fsencode, arguments), *variables)
        server.connect(address(folder))
        socket.send_fds(server, [b"\0".join(fields)], [0, 1, 2])
        while (answer := server.recv(16)) == WAIT:
            pass
        if answer.isdigit():
            server.settimeout(None)
            return server, int(answer)
    except TimeoutError:
        say(f"fedrepro: no warm start: its server is silent for {BEGINNING:g} s")
        try:  # noqa: SIM105 - contextlib takes long to import
            os.unlink(address(folder))  # noqa: PTH108 - so that no other command waits for it
        except OSError:
            pass
    except OSError:  # no server, such as on another node; or too large an environment
        pass
    server.close()  # the server then starts nothing, or kills what it has started
    return None


def _await(server: socket.socket, command: int) -> int:
    """Wait for the command's process and return its exit status.

    If a signal ended the command, the same signal ends this process. If this process is killed,
    the server kills the command.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        try:  # noqa: SIM105 - as above
            os.killpg(command, number)
        except ProcessLookupError:  # it has ended
            pass

    for number in ASKED_TO_END:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    answer = _end_of(server, command)
    try:
        status = os.waitstatus_to_exitcode(int(answer))
    except (ValueError, OverflowError):
        said = f"answered {answer[:16]!r}" if answer else "ended or is silent"
        say(f"fedrepro: the warm server {said}; run the command again")
        return 1
    if status < 0:
        _explain(signal.Signals(-status))
        if -status in ASKED_TO_END:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _end_of(server: socket.socket, command: int) -> bytes:
    """What the server reports of the command's end; empty if it has ended or says nothing."""
    answer = ended = server.fileno()
    try:  # noqa: SIM105 - as above
        ended = os.pidfd_open(command)
    except OSError:  # it has ended, and the server has seen it
        pass
    if answer not in select.select([answer, ended], [], [])[0]:
        select.select([answer], [], [], ENDING)
    server.setblocking(False)
    try:
        return server.recv(16)
    except OSError:
        return b""


def _explain(number: signal.Signals) -> None:
    """Say, also in the command's log, which signal ended it, if that may be for lack of memory."""
    if number not in (signal.SIGKILL, signal.SIGABRT):
        return
    command, log = without_log(sys.argv[1:])
    line = f"fedrepro: {command}: ended by {number.name}, as when memory runs out: {MORE_MEMORY}"
    say(line)
    try:
        if log:
            with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
                file.write(f"{line}\n")
    except OSError:
        pass
