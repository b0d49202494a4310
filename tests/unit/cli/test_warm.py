"""The warm start: a command that is forked is like one that is started."""

import json
import os
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fedrepro.cli import warm as warm_module
from fedrepro.cli import warm_server
from fedrepro.cli.warm import VARIABLE
from support.project import ROOT, Project

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no warm start elsewhere")

OWNER = """\
import os, sys
from fedrepro.cli.warm_server import open_warm_start
open_warm_start()
print(os.environ["FEDREPRO_WARM"], flush=True)
sys.stdin.read()
"""
RUN = ("run", "ima/tiny", "fedavg", "--seed", "1")
METHOD = '''\
"""Only in a folder of mine."""

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True)
class Mine(Method):
    """Only in a folder of mine."""
'''
FOLDER = "results/runs/ima/tiny/fedavg/seed1"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != VARIABLE},
    "PYTHONPATH": str(ROOT / "src"),
    "OMP_NUM_THREADS": "1",
}


def eventually(happens: Callable[[], object], seconds: float = 300.0) -> None:
    limit = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.02)


@contextmanager
def owner(first: str = "pass") -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process in Snakemake's place, and the folder of its warm start."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import os; {first}\n{OWNER}"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module", autouse=True)
def interruptible() -> Iterator[None]:
    """In the background of a shell Ctrl-C is ignored, and by all processes begun from there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def warm() -> Iterator[str]:
    with owner() as (_, folder):
        yield folder


def call(
    *arguments: str, warm: str | None, cwd: Path = ROOT, **variables: str
) -> "subprocess.Popen[str]":
    """Start a command; Python tells what it imports, which shows who carries the command out."""
    variables |= {VARIABLE: warm} if warm else {}
    return subprocess.Popen(
        [sys.executable, "-m", "fedrepro", *arguments],
        cwd=cwd,
        env={**ENVIRONMENT, "PYTHONPROFILEIMPORTTIME": "1", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: "subprocess.Popen[str]", forked: bool = True) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command that must or must not have been forked."""
    out, err = process.communicate(timeout=300)
    lines = err.splitlines()
    imports = [line for line in lines if line.startswith("import time:")]
    assert imports
    assert any(line.endswith(" fedrepro.cli.main") for line in imports) != forked
    said = "\n".join(line for line in lines if not line.startswith("import time:"))
    return process.returncode, out, said


def servers(folder: str) -> list[int]:
    """The server of a folder and its forks, oldest first; numbers of processes start over."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if folder.encode() in line:
                began = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
                found.append((int(began), int(entry.name)))
    return [process for _, process in sorted(found)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One whose runs take some seconds."""
    project = Project.make(tmp_path / "project")
    project.edit(project.experiment, "rounds: 2\n", "rounds: 200\n")
    return project


def under_way(project: Project, warm: str) -> "subprocess.Popen[str]":
    """A run that has left a checkpoint."""
    process = call(*RUN, warm=warm, cwd=project.root)
    until_checkpoint(project, process)
    return process


def until_checkpoint(project: Project, process: "subprocess.Popen[str]") -> None:
    """Wait for a run's first checkpoint; a run that has ended will not leave one."""
    pattern = f"{FOLDER}.partial/*/checkpoint.safetensors"
    eventually(lambda: process.poll() is not None or any(project.root.glob(pattern)))
    assert process.poll() is None, outcome(process)


def test_the_client_imports_next_to_nothing() -> None:
    code = "import sys, fedrepro.cli.warm; print(*sys.modules)"
    told = subprocess.check_output([sys.executable, "-c", code], env=ENVIRONMENT, text=True)
    modules = set(told.split())
    assert {name for name in modules if name.startswith("fedrepro")} == {
        "fedrepro",
        "fedrepro.cli",
        "fedrepro.cli.memory",
        "fedrepro.cli.warm",
        "fedrepro.support",
        "fedrepro.support.terminal",
    }
    slow = {"argparse", "numpy", "pathlib", "subprocess", "tempfile", "torch"}
    assert not slow & modules


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("nonsense",),
        ("run", "ima/nonsense", "fedavg", "--seed", "1"),
        ("methods", ""),
    ],
)
def test_status_and_output_are_those_of_an_ordinary_start(
    warm: str, arguments: tuple[str, ...]
) -> None:
    ordinary, forked = call(*arguments, warm=None), call(*arguments, warm=warm)
    assert outcome(forked) == outcome(ordinary, forked=False)


def test_a_run_leaves_the_same_bytes_and_counts_its_own_time(warm: str, tmp_path: Path) -> None:
    ordinary, forked = (Project.make(tmp_path / name) for name in ("ordinary", "forked"))
    started = time.monotonic()
    one = call("--log", "run.log", *RUN, warm=warm, cwd=forked.root)
    status, out, said = outcome(one)
    seconds = time.monotonic() - started
    two = call("--log", "run.log", *RUN, warm=None, cwd=ordinary.root)
    assert (status, out) == outcome(two, forked=False)[:2] == (0, "")
    assert "done, in" in said
    assert said == (forked.root / "run.log").read_text(encoding="utf-8").strip()
    for name in ("manifest.json", "rounds.parquet", "clients.parquet", "model.safetensors"):
        same = (root / FOLDER / name for root in (ordinary.root, forked.root))
        assert next(same).read_bytes() == next(same).read_bytes(), name
    timing = json.loads((forked.root / FOLDER / "timing.json").read_text(encoding="utf-8"))
    assert 0 < timing["cpu_seconds"] < seconds


def test_the_environment_is_that_of_the_command(warm: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD, encoding="utf-8")
    found = outcome(call("methods", warm=warm, FEDREPRO_METHODS=str(tmp_path)))
    missed = outcome(call("methods", warm=warm))
    assert (found[0], missed[0]) == (0, 0)
    assert "Only in a folder of mine" in found[1]
    assert "Only in a folder of mine" not in missed[1]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_reaches_the_command(
    warm: str, project: Project, number: signal.Signals, status: int
) -> None:
    project.edit(project.experiment, "rounds: 200\n", "rounds: 100000\n")  # it never ends
    process = under_way(project, warm)
    process.send_signal(number)
    code, _, said = outcome(process)
    assert code == status
    assert "which is saved: run the same command again" in said
    eventually(lambda: len(servers(warm)) == 1)


GROUP = """
import os, signal, socket, subprocess, threading
from fedrepro.cli import warm
command = subprocess.Popen(
    ["sh", "-c", "sleep 600 & echo $!; wait"],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
)
helper = int(command.stdout.readline())
client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
threading.Thread(target=lambda: (command.wait(), server.send(b"0"))).start()
warm._await(client, command.pid)
print(helper)
"""


def test_a_signal_reaches_the_processes_that_a_command_has_started() -> None:
    """As Ctrl-C does in a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", GROUP], capture_output=True, text=True, check=True, timeout=60
    )
    helper = Path("/proc", done.stdout.strip())
    try:
        eventually(lambda: not helper.exists() or ") Z " in (helper / "stat").read_text(), 5)
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(helper.name), signal.SIGKILL)


def test_a_command_is_killed_after_its_client_and_goes_on_when_called_again(
    warm: str, project: Project
) -> None:
    with under_way(project, warm) as process:
        assert len(servers(warm)) == 2
        process.kill()
    eventually(lambda: len(servers(warm)) == 1)
    assert not (project.root / FOLDER).exists()
    assert outcome(call(*RUN, warm=warm, cwd=project.root))[0] == 0
    timing = json.loads((project.root / FOLDER / "timing.json").read_text(encoding="utf-8"))
    assert timing["resumed"] == 1


def test_the_server_stays_until_its_owner_and_the_last_command_have_ended(
    tmp_path: Path, project: Project
) -> None:
    with owner() as (process, folder):
        first = call(*RUN, warm=folder, cwd=project.root)
        other = call("run", "ima/tiny", "fedprox", "--seed", "1", warm=folder, cwd=project.root)
        eventually(lambda: len(servers(folder)) == 3)  # both at once, by one server
        process.kill()
        assert outcome(first)[0] == outcome(other)[0] == 0
        eventually(lambda: not servers(folder))
        assert not Path(folder).exists()
        assert outcome(call("--version", warm=folder), forked=False)[0] == 0


def test_another_number_of_threads_is_an_ordinary_start(warm: str) -> None:
    assert outcome(call("--version", warm=warm, OMP_NUM_THREADS="2"), forked=False)[0] == 0


def test_a_server_that_fails_leaves_an_ordinary_start() -> None:
    with owner() as (_, folder):
        eventually(lambda: len(servers(folder)) == 1)
        eventually(lambda: servers(folder))
        (server,) = servers(folder)
        os.kill(server, signal.SIGSTOP)
        waiting = call("--version", warm=folder)
        time.sleep(0.3)  # so that it is likely to be connected; not connected, it must do as well
        os.kill(server, signal.SIGKILL)
        assert outcome(waiting, forked=False)[0] == 0
        assert outcome(call("--version", warm=folder), forked=False)[0] == 0
        shutil.rmtree(folder, ignore_errors=True)  # the next server removes what a dead one left


def test_it_is_as_nice_as_its_owner_in_a_session_of_its_own() -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not schedule by session")
    before = os.nice(0)
    with owner("os.nice(7)") as (_, folder):
        eventually(lambda: servers(folder))
        (server,) = servers(folder)
        group = Path(f"/proc/{server}/autogroup")
        eventually(lambda: group.read_text(encoding="utf-8").endswith(f"nice {before + 7}\n"))
        assert os.getsid(server) == server
        os.kill(server, signal.SIGKILL)  # else it goes on importing for seconds
        shutil.rmtree(folder, ignore_errors=True)


def test_only_its_user_may_use_it(warm: str) -> None:
    assert stat.S_IMODE(Path(warm).stat().st_mode) == 0o700


@contextmanager
def stand_in(folder: Path, answers: Callable[[socket.socket], None]) -> Iterator[None]:
    """A server that does what is asked for with its only client."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(warm_module.address(str(folder)))
        listener.listen()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                answers(client)
                while client.recv(2**20):  # until the client has gone
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(warm_module, "BEGINNING", 0.2)
    monkeypatch.setattr(warm_module, "ENDING", 0.2)
    monkeypatch.setattr(sys, "argv", ["fedrepro", "--version"])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"", "no warm start: its server is silent for 0.2 s"), (b"\x1b[31mrubbish", "")],
)
def test_a_server_that_is_mute_or_talks_rubbish_leaves_an_ordinary_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: bytes, said: str
) -> None:
    """And no other command waits for a mute one."""

    def answers(client: socket.socket) -> None:
        if answer:
            client.send(answer)

    with stand_in(tmp_path, answers):
        assert warm_module._hand_over(str(tmp_path)) is None
    assert capsys.readouterr().err.strip() == (f"fedrepro: {said}" if said else "")
    assert bool(list(tmp_path.iterdir())) != bool(said)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("report", "said"),
    [
        (b"", "ended or is silent"),
        (b"\x1b[31mrubbish", "answered b'\\x1b[31mrubbish'"),
        (b"127", "answered b'127'"),  # the status of a process that is stopped
    ],
)
def test_a_server_that_is_mute_or_talks_rubbish_in_the_end_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], report: bytes, said: str
) -> None:
    with subprocess.Popen(["true"]) as command:

        def answers(client: socket.socket) -> None:
            client.send(b"%d" % command.pid)
            if report:
                client.send(report)

        with stand_in(tmp_path, answers):
            begun = warm_module._hand_over(str(tmp_path))
            assert begun
            with begun[0]:
                assert warm_module._await(*begun) == 1
    line = f"fedrepro: the warm server {said}; run the command again\n"
    assert capsys.readouterr().err == line


def test_a_command_whose_client_has_given_up_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has started normally by then."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("begun"))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with selectors.DefaultSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        socket.send_fds(theirs, [b"/\x000"], [0, 1, 2])
        theirs.close()
        assert warm_server._fork(selector, ours) is None
        assert not selector.get_map()


def bound(place: Path, kind: socket.SocketKind = socket.SOCK_SEQPACKET) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(place))
    listener.listen(0)
    return listener


def test_what_is_left(tmp_path: Path) -> None:
    """What a living one has, and what is none of theirs, stays: whatever it is called."""
    names = {
        "dead": f"{warm_server.PREFIX}00000000000d",
        "empty": f"{warm_server.PREFIX}00000000000e",
        "alive": f"{warm_server.PREFIX}00000000000a",
        "another's": f"{warm_server.PREFIX}0000000000aa",
        "open to all": f"{warm_server.PREFIX}0000000000a0",
        "with a note": f"{warm_server.PREFIX}0000000000b0",
        "with another socket": f"{warm_server.PREFIX}0000000000c0",
        "of an older version": "fedrepro-x8d_1k2a",
        "trained": "fedrepro-mine",
    }
    folders = {name: tmp_path / each for name, each in names.items()}
    listeners = {}
    for name, folder in folders.items():
        folder.mkdir(0o755 if name == "open to all" else 0o700)
        place = folder / ("mine" if name == "with another socket" else "1a2b")
        if name != "empty":
            listeners[name] = bound(place)
    (folders["with a note"] / "note").write_text("mine")
    if os.getuid() == 0:
        os.chown(folders["another's"], 12345, 12345)
    for name, listener in listeners.items():
        if name != "alive":
            listener.close()
    warm_server._remove_left_over(tmp_path)
    gone = {"dead", "empty"} | ({"another's"} if os.getuid() else set())
    assert {name for name, folder in folders.items() if not folder.exists()} == gone
    assert (folders["with a note"] / "note").read_text() == "mine"
    listeners["alive"].setblocking(False)
    with pytest.raises(BlockingIOError):  # the probe did not wake it
        listeners["alive"].accept()
    listeners["alive"].close()


def test_a_socket_whose_queue_is_full_makes_nobody_wait(tmp_path: Path) -> None:
    folder = tmp_path / f"{warm_server.PREFIX}0123456789ab"
    folder.mkdir(0o700)
    clients: list[socket.socket] = []
    with bound(folder / "1a2b", socket.SOCK_STREAM):
        with suppress(BlockingIOError):
            while len(clients) < 100:
                clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                clients[-1].setblocking(False)
                clients[-1].connect(str(folder / "1a2b"))
        assert len(clients) < 100
        began = time.monotonic()
        thread = threading.Thread(target=warm_server._remove_left_over, args=(tmp_path,))
        thread.daemon = True  # else a fault would make the tests wait for ever
        thread.start()
        thread.join(timeout=20)
        assert time.monotonic() - began < 15
        assert (folder / "1a2b").exists()
    for client in clients:
        client.close()


BUSY = """
import ctypes, socket, sys
from fedrepro.cli import warm_server
from fedrepro.cli.warm import WAIT
warm_server.BEAT = 0.1
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("socket")
listener.listen()
clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
for client in clients[:2]:
    client.connect("socket")
clients[0].send(b"request")
clients[1].close()
# A long import, which lets no other thread of Python run.
connections = warm_server._answered_meanwhile(listener, lambda: ctypes.PyDLL(None).usleep(800_000))
answers = 0
clients[0].setblocking(False)
try:
    while clients[0].recv(16) == WAIT:
        answers += 1
except BlockingIOError:
    pass
print(answers, len(connections), connections[0].recv(16).decode())
"""


def test_it_answers_while_it_imports(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUSY]
    told = subprocess.check_output(command, env=ENVIRONMENT, cwd=tmp_path, text=True).split()
    assert int(told[0]) >= 4
    assert told[1:] == ["2", "request"]


@pytest.mark.usefixtures("short")
def test_a_command_waits_as_long_as_the_server_answers(tmp_path: Path) -> None:
    """For longer than a mute one would be waited for."""

    def answers(client: socket.socket) -> None:
        for _ in range(8):
            client.send(warm_module.WAIT)
            time.sleep(warm_module.BEGINNING / 3)
        client.send(b"%d" % os.getpid())

    with stand_in(tmp_path, answers):
        begun = warm_module._hand_over(str(tmp_path))
        assert begun
        with begun[0]:
            assert begun[1] == os.getpid()


def test_a_killed_command_is_a_line_in_its_log(warm: str, project: Project) -> None:
    project.edit(project.experiment, "rounds: 200\n", "rounds: 100000\n")
    process = call("--log", "run.log", *RUN, warm=warm, cwd=project.root)
    until_checkpoint(project, process)
    os.kill(servers(warm)[-1], signal.SIGKILL)
    status, _, said = outcome(process)
    assert status == -signal.SIGKILL
    line = (project.root / "run.log").read_text(encoding="utf-8").splitlines()[-1]
    assert line in said
    assert line.startswith(f"fedrepro: {' '.join(RUN)}: ended by SIGKILL, as when memory runs out")
