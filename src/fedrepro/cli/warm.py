"""The command ``fedrepro``: a fork of a process that has imported everything, or an ordinary start.

Importing PyTorch and all the rest takes seconds of CPU, longer than many a command of the workflow
works. So the Snakefile opens a warm start (:mod:`fedrepro.cli.warm_server`), to which a job's
command hands its arguments, environment, working directory, stdin, stdout and stderr; then it
passes signals on and waits. Whatever stands in the way of that leads to an ordinary start.

A command stays cheap until then only as long as nothing more is imported up here.
"""

import os
import signal
import socket
import sys
from types import FrameType
from zlib import crc32

VARIABLE = "FEDREPRO_WARM"  # the environment variable: the folder of the socket


def main() -> int:
    """Carry a command out. Returns the exit status, as :func:`fedrepro.cli.main.main` does."""
    folder = os.environ.get(VARIABLE)
    # Libraries read the number of threads when they are imported, and there it was one.
    if folder and os.environ.get("OMP_NUM_THREADS") == "1":
        server = _hand_over(folder)
        if server is not None:
            return _await(server)
    from fedrepro.cli import main as cli

    return cli.main()


def address(folder: str) -> str:
    """The socket. One that serves another Python, or another copy of this package, is not found."""
    return f"{folder}/{crc32(f'{sys.prefix} {__file__}'.encode()):x}"


def _hand_over(folder: str) -> socket.socket | None:
    """The connection to the server, which has begun with this command; None if it has not."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = sys.argv[1:]
    variables = (name + b"=" + value for name, value in os.environb.items())
    try:
        here = os.getcwdb()  # noqa: PTH109 - pathlib takes long to import
        fields = (here, b"%d" % len(arguments), *map(os.fsencode, arguments), *variables)
        server.connect(address(folder))
        socket.send_fds(server, [b"\0".join(fields)], [0, 1, 2])
        if server.recv(1):
            return server
    except OSError:  # no server, such as on another node; or too large an environment
        pass
    server.close()
    return None


def _await(server: socket.socket) -> int:
    """The exit status of the command; where a signal ended it, the same signal ends this process.

    The command is killed when this process is.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        server.send(bytes([number]))

    passed_on = (signal.SIGINT, signal.SIGTERM)
    for number in passed_on:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    answer = server.recv(16)
    if not answer:
        print("fedrepro: the process that the command was forked from is gone", file=sys.stderr)
        return 1
    status = os.waitstatus_to_exitcode(int(answer))
    if status < 0:
        if -status in passed_on:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status
