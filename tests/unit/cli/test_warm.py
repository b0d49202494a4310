"""The warm start: a command that is forked is like one that is started."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedrepro
from fedrepro.cli import warm as warm_module
from fedrepro.cli import warm_server
from fedrepro.cli.warm import VARIABLE
from fedrepro.support.terminal import ASKED_TO_END
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
    """A process in Snakemake's place, and the name of its warm start."""
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


def servers(name: str) -> list[int]:
    """A server, and for each command a keeper and the command; numbers of processes start over."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if name.encode() in line:
                began = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
                found.append((int(began), int(entry.name)))
    return [process for _, process in sorted(found)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One whose runs take some seconds."""
    project = Project.make(tmp_path / "project")
    project.edit(project.experiment, "rounds: 2\n", "rounds: 200\n")
    return project


def without_end(project: Project) -> None:
    project.edit(project.experiment, "rounds: 200\n", "rounds: 100000\n")
    with (project.root / "config/config.yaml").open("a", encoding="utf-8") as file:
        file.write("executor: sequential\n")  # `auto` would compile so many rounds


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
        "fedrepro.support.terminal",
        "fedrepro.cli.warm",
        "fedrepro.support",
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
    without_end(project)
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
    assert_ended(int(done.stdout))


def assert_ended(helper: int) -> None:
    about = Path(f"/proc/{helper}/stat")
    try:
        eventually(lambda: not about.exists() or ") Z " in about.read_text(), 5)
    finally:
        with suppress(ProcessLookupError):
            os.kill(helper, signal.SIGKILL)


KEPT = """
import os, socket, subprocess, time
from fedrepro.cli import warm_server
client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
socket.send_fds(client, [b"/\\x000"], [0, 1, 2])
if os.fork() == 0:
    client.close()
    if warm_server._keep(server) is None:
        os._exit(0)
    while os.getpgrp() != os.getpid():
        time.sleep(0.01)
    helper = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
    print(helper.pid, flush=True)
time.sleep(60)
"""


def test_what_a_command_has_started_is_killed_with_it_after_its_client() -> None:
    """Such as a compiler, which would go on writing."""
    with subprocess.Popen(
        [sys.executable, "-c", KEPT], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as client:
        assert client.stdout is not None
        helper = int(client.stdout.readline())
        client.kill()
    assert_ended(helper)


def test_a_command_is_killed_after_its_client_and_goes_on_when_called_again(
    warm: str, project: Project
) -> None:
    with under_way(project, warm) as process:
        assert len(servers(warm)) == 3
        process.kill()
    eventually(lambda: len(servers(warm)) == 1)
    assert not (project.root / FOLDER).exists()
    assert outcome(call(*RUN, warm=warm, cwd=project.root))[0] == 0
    timing = json.loads((project.root / FOLDER / "timing.json").read_text(encoding="utf-8"))
    assert timing["resumed"] == 1


def test_commands_outlive_the_owner_and_the_server_does_not(project: Project) -> None:
    with owner() as (process, name):
        first = call(*RUN, warm=name, cwd=project.root)
        other = call("run", "ima/tiny", "fedprox", "--seed", "1", warm=name, cwd=project.root)
        eventually(lambda: len(servers(name)) == 5)  # both at once, by one server
        process.kill()
        assert outcome(first)[0] == outcome(other)[0] == 0
        eventually(lambda: not servers(name))
        assert outcome(call("--version", warm=name), forked=False)[0] == 0


def test_another_number_of_threads_is_an_ordinary_start(warm: str) -> None:
    assert outcome(call("--version", warm=warm, OMP_NUM_THREADS="2"), forked=False)[0] == 0


def test_a_server_that_fails_leaves_an_ordinary_start() -> None:
    with owner() as (_, name):
        eventually(lambda: servers(name))
        (server,) = servers(name)
        os.kill(server, signal.SIGSTOP)
        waiting = call("--version", warm=name)
        time.sleep(0.3)  # so that it is likely to be connected; not connected, it must do as well
        os.kill(server, signal.SIGKILL)
        assert outcome(waiting, forked=False)[0] == 0
        assert outcome(call("--version", warm=name), forked=False)[0] == 0


def test_it_is_as_nice_as_its_owner_in_a_session_of_its_own() -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not schedule by session")
    before = os.nice(0)
    with owner("os.nice(7)") as (_, name):
        eventually(lambda: servers(name))
        (server,) = servers(name)
        group = Path(f"/proc/{server}/autogroup")
        eventually(lambda: group.read_text(encoding="utf-8").endswith(f"nice {before + 7}\n"))
        assert os.getsid(server) == server
        os.kill(server, signal.SIGKILL)  # else it goes on importing for seconds


STRANGER = """
import os, socket, sys
from fedrepro.cli.warm import address
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
place = address(sys.argv[1])
os.setuid(12345)
server.connect(place)
try:
    socket.send_fds(server, [b"/\\x001\\x00--version"], [0, 1, 2])
    print(server.recv(16))
except ConnectionError:
    print(b"")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="another user is needed")
def test_only_its_user_may_use_it(warm: str) -> None:
    code = [sys.executable, "-c", STRANGER, warm]
    assert subprocess.check_output(code, env=ENVIRONMENT, text=True, timeout=300) == "b''\n"


@pytest.mark.skipif(os.getuid() != 0, reason="another user is needed")
def test_a_server_of_another_user_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(warm_module.address("another"))
        listener.listen()
        assert warm_module._hand_over("another") is None
        client, _ = listener.accept()
        with client:
            assert not client.recv(16)


def test_a_keeper_that_is_killed_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in ASKED_TO_END}
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.close()
    with client:
        assert warm_module._await(client, os.getpid()) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("ignored", [None, signal.SIGHUP])
def test_each_signal_goes_to_the_command_s_group_but_for_ignored_ones(
    monkeypatch: pytest.MonkeyPatch, ignored: int | None
) -> None:
    """As under nohup: the command must not end when the terminal closes."""
    before = {number: signal.getsignal(number) for number in ASKED_TO_END}
    passed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: passed.append((group, number)))
    if ignored is not None:
        signal.signal(ignored, signal.SIG_IGN)

    def ended(size: int) -> bytes:
        for number in ASKED_TO_END:
            signal.raise_signal(number)
        return b"%d" % (3 << 8)

    try:
        server: Any = SimpleNamespace(recv=ended)
        assert warm_module._await(server, 4711) == 3
        assert ignored is None or signal.getsignal(ignored) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert passed == [(4711, number) for number in ASKED_TO_END if number != ignored]
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= {*ASKED_TO_END}


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, True), (signal.SIGABRT, True), (signal.SIGTERM, False),
     (signal.SIGSEGV, False)],
)  # fmt: skip
def test_what_may_be_lack_of_memory_is_said_and_logged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    said: bool,
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["fedrepro", "--log", str(log), "run", "x"])
    warm_module._explain(number)
    line = capsys.readouterr().err
    assert line.startswith(f"fedrepro: run x: ended by {number.name}") == bool(line) == said
    assert log.read_text(encoding="utf-8") == f"before\n{line}"


def test_a_server_is_that_of_a_name_and_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {warm_module.address("a"), warm_module.address("b")}
    monkeypatch.setattr(sys, "prefix", "/another")
    found.add(warm_module.address("a"))
    monkeypatch.setattr(warm_module, "__file__", "/another/copy/warm.py")
    found.add(warm_module.address("a"))
    monkeypatch.setattr(sys, "prefix", os.fsdecode(b"/lat\xe9in"))  # a name that is not UTF-8
    found.add(warm_module.address("a"))
    assert len(found) == 5 and all(each.startswith("\0") for each in found)


def test_a_command_whose_client_has_given_up_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("begun"))
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(client, [b"/\x000"], [0, 1, 2])
    client.close()
    with server:
        assert warm_server._keep(server) is None


@pytest.mark.parametrize("name", ["main.py", "new.py"])
def test_after_an_edit_of_the_code_nothing_is_begun_from_before(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nor after a new file."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("begun"))
    now = fedrepro.CODE_FILES
    edited = next((path for path in now if path.endswith(f"/cli/{name}")), name)
    monkeypatch.setattr(fedrepro, "code_files", lambda: {**now, edited: (0, 0)})
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with client, server:
        socket.send_fds(client, [b"/\x000"], [0, 1, 2])
        assert warm_server._keep(server) is None


def test_a_killed_command_is_a_line_in_its_log(warm: str, project: Project) -> None:
    without_end(project)
    process = call("--log", "run.log", *RUN, warm=warm, cwd=project.root)
    until_checkpoint(project, process)
    os.kill(servers(warm)[-1], signal.SIGKILL)
    status, _, said = outcome(process)
    assert status == -signal.SIGKILL
    line = (project.root / "run.log").read_text(encoding="utf-8").splitlines()[-1]
    assert line in said
    assert line.startswith(f"fedrepro: {' '.join(RUN)}: ended by SIGKILL, as when memory runs out")


def test_an_interrupt_before_the_command_has_begun_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As while it is imported, which takes seconds on a busy machine."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("fedrepro.cli.main.main", interrupted)
    assert warm_module.main() == 130
    assert len(capsys.readouterr().err.splitlines()) == 1
