"""The entry point of ``fedrepro``: ask the warm server for a fork, else start normally.

Importing PyTorch takes seconds of CPU, longer than many commands of the workflow run. The Snakefile
therefore starts a server (:mod:`fedrepro.cli.warm_server`) that has imported everything. A command
sends it its arguments, environment, working directory, stdin, stdout and stderr; then it forwards
signals and waits. If that fails, the command starts normally.

Keep the imports of this module few: every command pays for them.
"""

import os
import signal
import socket
import sys
from types import FrameType
from zlib import crc32

VARIABLE = "FEDREPRO_WARM"  # environment variable with the folder of the socket


def main() -> int:
    """Run a command. Return its exit status, as :func:`fedrepro.cli.main.main` does."""
    folder = os.environ.get(VARIABLE)
    # Libraries read the number of threads on import, and the server imported them with one.
    if folder and os.environ.get("OMP_NUM_THREADS") == "1":
        server = _hand_over(folder)
        if server is not None:
            return _await(server)
    from fedrepro.cli import main as cli

    return cli.main()


def address(folder: str) -> str:
    """The socket's path. It differs between Python environments and copies of this package."""
    return f"{folder}/{crc32(f'{sys.prefix} {__file__}'.encode()):x}"


def _hand_over(folder: str) -> socket.socket | None:
    """The connection to the server, once it has started this command; None if it has not."""
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
    """Wait for the command and return its exit status.

    If a signal ended the command, the same signal ends this process. If this process is killed,
    the server kills the command.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        server.send(bytes([number]))

    passed_on = (signal.SIGINT, signal.SIGTERM)
    for number in passed_on:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    answer = server.recv(16)
    if not answer:
        print("fedrepro: the warm server ended; run the command again", file=sys.stderr)
        return 1
    status = os.waitstatus_to_exitcode(int(answer))
    if status < 0:
        if -status in passed_on:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status
