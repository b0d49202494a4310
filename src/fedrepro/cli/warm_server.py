"""A process that has imported everything and forks for each command (:mod:`fedrepro.cli.warm`).

It has one thread, computes nothing and holds no lock, so a fork behaves like a new process. It
imports when the first command arrives, and says so meanwhile, to every command. It ends with the
Snakemake call that started it, so the next call sees changed code.
"""

import atexit
import gc
import importlib
import io
import os
import pkgutil
import re
import select
import selectors
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

import fedrepro
from fedrepro.cli.warm import VARIABLE, WAIT, address
from fedrepro.support.errors import UserError
from fedrepro.support.terminal import let_go

LARGEST_REQUEST = 2**22  # bytes: twice what Linux lets arguments and environment be
# Modules that commands import lazily.
NEEDED = ("pyarrow.parquet", "rich.progress", "rich.table", "scipy.stats")
# One thread in each library, as for the commands, and no background thread in pyarrow's allocator.
ALONE = {
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")},
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
ENDED = 0  # replaces a command's process id when it has ended
# The folder of a socket, among temporary files, and the socket's name in it.
PREFIX = "fedrepro-warm-"
FOLDER, SOCKET = re.compile(rf"{PREFIX}[0-9a-f]{{12}}"), re.compile("[0-9a-f]{1,8}")
BEAT = 1.0  # seconds between two signs that the server is importing
MOST_FILES = 250  # that one message on a socket carries; Linux allows 253


def open_warm_start() -> None:
    """Start the server, so that commands which this process starts are forked; Linux only.

    The server removes its folder and ends when this process ends, for whatever reason: it then
    sees the end of a pipe that is never closed here.
    """
    if sys.platform != "linux":  # macOS libraries do not survive a fork
        return
    try:
        folders = Path(tempfile.gettempdir())
    except OSError:  # there is no folder that can be written to
        return
    _remove_left_over(folders)
    folder = str(folders / f"{PREFIX}{os.urandom(6).hex()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            Path(folder).mkdir(0o700)
            listener.bind(address(folder))
        except OSError:  # a full disk, or a path too long for a socket
            with suppress(OSError):
                Path(folder).rmdir()
            return
        listener.listen()
        until_the_end, _ = os.pipe()
        subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, folder, str(listener.fileno())],
            stdin=until_the_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # the commands forward Ctrl-C
            env={**os.environ, **ALONE},
        )
        os.close(until_the_end)
    os.environ[VARIABLE] = folder


def _remove_left_over(folders: Path) -> None:
    """Remove the folders of this user's servers that were killed: nobody listens at their sockets.

    A socket of another kind is not connected, but tells by its refusal whether one listens.
    """
    for folder in folders.glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = folder.lstat()
            private = stat.S_ISDIR(about.st_mode) and stat.S_IMODE(about.st_mode) == 0o700
            if not FOLDER.fullmatch(folder.name) or not private or about.st_uid != os.getuid():
                continue
            for place in folder.iterdir():
                if SOCKET.fullmatch(place.name) and stat.S_ISSOCK(place.lstat().st_mode):
                    _unlink_dead(place)
            folder.rmdir()  # fails if anything is left


def _unlink_dead(place: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(place))
        except ConnectionRefusedError:
            place.unlink()


def main() -> int:
    """Serve; in each fork, run one command instead. Return the exit status."""
    folder, listener = sys.argv[1:]
    # If Linux schedules by session first, niceness counts only within this new one.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.nice(0)), encoding="utf-8")
    arguments = _serve(socket.socket(fileno=int(listener)))
    if arguments is None:
        with suppress(OSError):
            Path(address(folder)).unlink(missing_ok=True)
            Path(folder).rmdir()
        return 0
    from fedrepro.cli import main as cli

    try:
        status = cli.main(arguments)
        atexit._run_exitfuncs()
    finally:
        let_go(sys.stdout, sys.stderr)
    os._exit(status)  # a normal interpreter exit takes longer than many commands


def _import_everything() -> None:
    for module in pkgutil.walk_packages(fedrepro.__path__, "fedrepro."):
        if module.name != "fedrepro.__main__":
            importlib.import_module(module.name)
    for name in ("fedrepro.cli.main", *NEEDED):
        importlib.import_module(name)
    # What commands parse, too: templates, experiment files, printed numbers, the code of all runs.
    here = Path.cwd()
    importlib.import_module("fedrepro.report.pages.templates").compile_all(here)
    importlib.import_module("fedrepro.config.loading").parse_all(here)
    with suppress(UserError):  # reported when a page needs them
        importlib.import_module("fedrepro.report.papers.published").load(here)
    importlib.import_module("fedrepro.provenance.numerics").of_core()
    gc.freeze()  # else a fork's first collection would copy all this memory


def _serve(listener: socket.socket) -> list[str] | None:
    """Fork until stdin and the last command end. Return None; in a fork, its arguments."""
    os.close(os.pidfd_open(os.getpid()))  # an old Linux fails here, before anything has started
    selector = selectors.DefaultSelector()
    for source in (sys.stdin, listener):
        selector.register(source, selectors.EVENT_READ)
    if all(key.fileobj is listener for key, _ in selector.select()):
        waiting = _answered_meanwhile(listener, _import_everything)
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            return None  # a fork would lack the other threads, which may hold locks
        for connection in waiting:
            selector.register(connection, selectors.EVENT_READ)
    while selector.get_map():
        key = selector.select()[0][0]
        match key.fileobj, key.data:
            case [sys.stdin, _]:
                selector.unregister(sys.stdin)
                selector.unregister(listener)
                listener.close()
            case [socket.socket() as source, _] if source is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            case [int() as ended, (connection, command)]:
                _report_end(selector, ended, connection, command)
            case [socket.socket() as connection, None]:
                arguments = _fork(selector, connection)
                if arguments is not None:
                    return arguments
            case [socket.socket() as connection, command]:
                _hang_up(selector, connection, command)
    return None


def _answered_meanwhile(listener: socket.socket, work: Callable[[], None]) -> list[socket.socket]:
    """Do some work while a process tells every client that its command will begin.

    It is a process, because an import may hold Python's lock for minutes on a busy machine.

    Returns:
        The connections of the clients that wait.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    usher = os.fork()
    if usher == 0:
        ours.close()
        try:
            _answer(listener, theirs)
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        work()
        ours.send(WAIT)
        files: list[int] = []
        while got := socket.recv_fds(ours, len(WAIT), MOST_FILES):
            if not got[0]:
                break
            files += got[1]
    os.waitpid(usher, 0)
    return [socket.socket(fileno=file) for file in files]


def _answer(listener: socket.socket, server: socket.socket) -> None:
    """Answer clients until the server ends, or asks for their connections."""
    waiting: list[socket.socket] = []
    while server not in (ready := select.select([listener, server], [], [], BEAT)[0]):
        if listener in ready:
            waiting.append(listener.accept()[0])
        for connection in waiting:
            with suppress(OSError):  # it has gone, which the server sees
                connection.send(WAIT, socket.MSG_DONTWAIT)
    if server.recv(len(WAIT)):
        for first in range(0, len(waiting), MOST_FILES):
            some = [each.fileno() for each in waiting[first : first + MOST_FILES]]
            socket.send_fds(server, [WAIT], some)


def _fork(selector: selectors.BaseSelector, connection: socket.socket) -> list[str] | None:
    """Start the command that a client asks for. Return None; in the fork, its arguments."""
    request, files, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
    from fedrepro.provenance.numerics import changed_since_the_start

    # Without an answer, the client starts normally and imports the changed files.
    if not request or _has_gone(connection) or changed_since_the_start():
        for file in files:
            os.close(file)
        selector.unregister(connection)
        connection.close()
        return None
    command = os.fork()
    if command == 0:
        for key in selector.get_map().values():
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        selector.close()
        return _become(request, files)
    os.setpgid(command, command)  # so that signals also reach the compilers that it calls
    for file in files:
        os.close(file)
    with suppress(OSError):
        connection.send(b"%d" % command)
    selector.modify(connection, selectors.EVENT_READ, command)
    selector.register(os.pidfd_open(command), selectors.EVENT_READ, (connection, command))
    return None


def _become(request: bytes, files: Iterable[int]) -> list[str]:
    """Take over the client's files, folder and environment. Return its arguments."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    stdout = cast(io.TextIOWrapper, sys.stdout)
    stdout.reconfigure(line_buffering=stdout.isatty())
    folder, count, *rest = request.split(b"\0")
    os.chdir(folder)
    os.environb.clear()
    for variable in rest[int(count) :]:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    return [os.fsdecode(argument) for argument in rest[: int(count)]]


def _has_gone(connection: socket.socket) -> bool:
    """Whether a client was killed, or no longer waits for its command to begin."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def _hang_up(selector: selectors.BaseSelector, connection: socket.socket, command: int) -> None:
    """Kill the command of a client that has gone."""
    if command != ENDED:
        with suppress(ProcessLookupError):
            os.killpg(command, signal.SIGKILL)
    selector.unregister(connection)
    connection.close()


def _report_end(
    selector: selectors.BaseSelector, ended: int, connection: socket.socket, command: int
) -> None:
    """Tell a client how its command ended; the client then closes the connection."""
    selector.unregister(ended)
    os.close(ended)
    _, status = os.waitpid(command, 0)
    if connection.fileno() >= 0:
        with suppress(OSError):
            connection.send(b"%d" % status)
        selector.modify(connection, selectors.EVENT_READ, ENDED)


if __name__ == "__main__":
    raise SystemExit(main())
