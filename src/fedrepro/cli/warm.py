"""The entry point of ``fedrepro``: ask the warm server for a fork, else start normally.

Importing PyTorch takes seconds of CPU, longer than many commands of the workflow run. The Snakefile
therefore starts a server (:mod:`fedrepro.cli.warm_server`) that has imported everything. A command
sends it its arguments, environment, working directory, stdin, stdout and stderr; then it forwards
signals and waits. Without a server, the command starts normally.

Keep the imports of this module few: every command pays for them.
"""

import os
import signal
import socket
import sys
from types import FrameType
from zlib import crc32

from fedrepro.support import terminal

VARIABLE = "FEDREPRO_WARM"  # environment variable with the name of the server
CREDENTIALS = 12  # bytes: process, user and group at the other end of a socket


def main() -> int:
    """Run a command. Return its exit status, as :func:`fedrepro.cli.main.main` does."""
    terminal.open_closed()
    name = os.environ.get(VARIABLE)
    # Libraries read the number of threads on import, and the server imported them with one.
    if name and os.environ.get("OMP_NUM_THREADS") == "1":
        begun = _hand_over(name)
        if begun is not None:
            return _await(*begun)
    try:
        from fedrepro.cli import main as cli

        return cli.main()
    except KeyboardInterrupt:  # while importing, which takes a second and more on a busy machine
        terminal.say("fedrepro: interrupted")
        return 128 + signal.SIGINT
    finally:
        terminal.let_go(sys.stdout, sys.stderr)


def address(name: str) -> str:
    """The address of a server: an abstract socket of Linux, which vanishes with the server.

    It differs between Python environments and copies of this package.
    """
    return f"\0fedrepro-{name}-{crc32(os.fsencode(f'{sys.prefix} {__file__}')):x}"


def is_of_this_user(connection: socket.socket) -> bool:
    """Return True if the other end is a process of this user: anybody can connect."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS)
    return int.from_bytes(peer[4:8], sys.byteorder) == os.geteuid()


def _hand_over(name: str) -> tuple[socket.socket, int] | None:
    """The server, once it has started this command, and the process; None if it has not.

    While the server imports, this waits, as an ordinary start would.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = sys.argv[1:]
    variables = (key + b"=" + value for key, value in os.environb.items())
    try:
        here = os.getcwdb()  # noqa: PTH109 - pathlib takes long to import
        fields = (here, b"%d" % len(arguments), *map(os.fsencode, arguments), *variables)
        server.connect(address(name))
        if is_of_this_user(server):
            socket.send_fds(server, [b"\0".join(fields)], [0, 1, 2])
            if process := server.recv(16):
                return server, int(process)
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
        try:  # noqa: SIM105 - contextlib takes long to import
            os.killpg(command, number)
        except ProcessLookupError:  # it has ended
            pass

    for number in terminal.ASKED_TO_END:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    ended = server.recv(16)
    if not ended:
        terminal.say("fedrepro: the warm server was killed; run the command again")
        return 1
    status = os.waitstatus_to_exitcode(int(ended))
    if status < 0:
        _explain(signal.Signals(-status))
        if -status in terminal.ASKED_TO_END:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _explain(number: signal.Signals) -> None:
    """Say, also in the command's log, which signal ended it, if that may be for lack of memory."""
    if number not in (signal.SIGKILL, signal.SIGABRT):
        return
    command, log = terminal.without_log(sys.argv[1:])
    ended = f"{command}: ended by {number.name}, as when memory runs out"
    line = f"fedrepro: {ended}: {terminal.MORE_MEMORY}"
    terminal.say(line)
    try:
        if log:
            with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123 - as above
                file.write(f"{line}\n")
    except OSError:
        pass
