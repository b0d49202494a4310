"""A process that has imported everything and forks for each command (:mod:`fedrepro.cli.warm`).

It has one thread, computes nothing and holds no lock, so a fork behaves like a new process. It
imports when the first command arrives. It ends with the Snakemake call that started it, so the next
call sees changed code. Between it and each command is a keeper, which waits for the command's end
and for that of its client.

Snakemake's plug-ins for executors could not do without it: a process with threads, as Snakemake is,
cannot fork safely; an executor is not told the command of a job, only how to call Snakemake for it;
and a workflow that uses ours as a module chooses its executor itself.
"""

import atexit
import gc
import importlib
import io
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import fedrepro
from fedrepro.cli.warm import VARIABLE, address, is_of_this_user
from fedrepro.provenance.numerics import changed_since_the_start
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


def open_warm_start() -> None:
    """Start the server, so that commands which this process starts are forked; Linux only.

    The server ends when this process ends, for whatever reason: it then sees the end of a pipe that
    is never closed here.
    """
    if sys.platform != "linux":  # macOS libraries do not survive a fork
        return
    name = os.urandom(6).hex()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address(name))
        listener.listen()
        until_the_end, _ = os.pipe()
        subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, name, str(listener.fileno())],
            stdin=until_the_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # the commands forward Ctrl-C
            env={**os.environ, **ALONE},
        )
        os.close(until_the_end)
    os.environ[VARIABLE] = name


def main() -> int:
    """Serve; in each fork, run one command instead. Return the exit status."""
    listener = socket.socket(fileno=int(sys.argv[-1]))
    # If Linux schedules by session first, niceness counts only within this new one.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.nice(0)), encoding="utf-8")
    arguments = _serve(listener)
    if arguments is None:
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
    importlib.import_module("fedrepro.report.drawing.markup").macros()
    importlib.import_module("fedrepro.config.loading").parse_all(here)
    with suppress(UserError):  # reported when a page needs them
        importlib.import_module("fedrepro.report.papers.published").load(here)
    importlib.import_module("fedrepro.provenance.numerics").of_core()
    gc.freeze()  # else a fork's first collection would copy all this memory


def _serve(listener: socket.socket) -> list[str] | None:
    """Fork for each client until stdin ends. Return None; in a command, its arguments."""
    os.close(os.pidfd_open(os.getpid()))  # an old Linux fails here, before anything has started
    sources: list[Any] = [sys.stdin, listener]
    if sys.stdin in select.select(sources, [], [])[0]:
        return None
    _import_everything()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return None  # a fork would lack the other threads, which may hold locks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while sys.stdin not in select.select(sources, [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            arguments = _keep(connection)
            if arguments is None:
                os._exit(0)
            return arguments
        connection.close()
    return None


def _keep(connection: socket.socket) -> list[str] | None:
    """Start the command that a client asks for, and tell the client how it ends.

    Return None after that; in the command, its arguments.
    """
    if not is_of_this_user(connection):
        return None
    request, files, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
    # Without an answer, the client starts normally and imports the changed files.
    if not request or _has_gone(connection) or changed_since_the_start():
        return None
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        connection.close()
        return _become(request, files)
    os.setpgid(command, command)  # so that signals also reach the compilers that it calls
    for file in files:
        os.close(file)
    with suppress(OSError):
        connection.send(b"%d" % command)
    ended = os.pidfd_open(command)
    if ended not in select.select([connection.fileno(), ended], [], [])[0]:  # the client has gone
        with suppress(ProcessLookupError):
            os.killpg(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    with suppress(OSError):
        connection.send(b"%d" % status)
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
    """Return True if a client was killed, so that nobody waits for its command."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


if __name__ == "__main__":
    raise SystemExit(main())
