"""A folder has one writer, on this machine and on others."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from fedrepro.support import locks
from fedrepro.support.errors import UserError
from fedrepro.support.locks import exclusive_lock, is_locked, lock_of, owner_of
from support.refusals import refused

# Takes the lock, adds one to a number in a file by reading and writing, again and again.
COUNTER = """
import sys
from pathlib import Path
from fedrepro.support.locks import exclusive_lock
folder = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with exclusive_lock(folder):
        number = int(folder.read_text())
        folder.write_text(str(number + 1))
"""
HOLDER = """
import sys
from pathlib import Path
from fedrepro.support.locks import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), busy="busy"):
    print("holds", flush=True)
    sys.stdin.readline()
"""


def start(program: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *map(str, arguments)]
    paths = os.pathsep.join([str(Path(locks.__file__).parents[2])])
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_of_two_processes_one_is_inside(tmp_path: Path) -> None:
    """Though each removes the lock file when it leaves, while the other waits for it."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [start(COUNTER, counter, 300) for _ in range(2)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert counter.read_text() == "600"
    assert list(tmp_path.iterdir()) == [counter]


def test_a_process_that_does_not_wait_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with start(HOLDER, folder) as process:
        assert process.stdout and process.stdout.readline() == "holds\n"
        assert is_locked(folder)
        with (
            pytest.raises(UserError, match=r"x: busy \(process \d+ on .+\)$"),
            exclusive_lock(folder, busy="busy"),
        ):
            pass
        process.kill()
    assert lock_of(folder).exists()  # what a killed process leaves is in nobody's way
    with exclusive_lock(folder, busy="busy"):
        assert is_locked(folder)
    assert not is_locked(folder)


def test_who_opened_a_lock_before_it_was_removed_does_not_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A opens, B holds and removes, C makes a new one and holds it: then A must not be inside."""
    folder = tmp_path / "x"
    lock_of(folder).touch()
    real, seen = fcntl.flock, 0

    def late(file: object, operation: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:  # between A's open and A's lock
            lock_of(folder).unlink()
            lock_of(folder).touch()
        real(file, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", late)
    with exclusive_lock(folder):
        assert seen == 2
        with lock_of(folder).open("rb") as now, pytest.raises(BlockingIOError):
            real(now, fcntl.LOCK_SH | fcntl.LOCK_NB)


@pytest.mark.parametrize("busy", [None, "busy"])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: str | None
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with exclusive_lock(tmp_path / "x", busy):
        (tmp_path / "y").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["y"]
    assert not is_locked(tmp_path / "x")


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        refused("unwritable", file="file/x"),
        exclusive_lock(tmp_path / "file" / "x"),
    ):
        pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life every 20 ms."""
    monkeypatch.setattr(locks, "BEAT", 0.02)
    monkeypatch.setattr(locks, "SILENCE", 0.4)


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process signs as one there, where the kernel knows nothing of here."""
    there = replace(locks._me(), host="there", machine="another")
    monkeypatch.setattr(locks, "_me", lambda: there)
    monkeypatch.setattr(locks, "_machine", lambda: "another")
    monkeypatch.setattr(locks, "_flock", lambda *_, **__: True)


@pytest.mark.usefixtures("quick")
def test_a_live_holder_on_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "x"
    with exclusive_lock(folder) as held:
        here = f"process {os.getpid()} on {locks._me().host}"
        with monkeypatch.context() as patch:
            on_another_machine(patch)
            assert is_locked(folder)
            with pytest.raises(UserError) as caught, exclusive_lock(folder, busy="busy"):
                pass
        assert str(caught.value) == f"{folder}: busy ({here})"
        held.check()
    assert not lock_of(folder).exists()


@pytest.mark.usefixtures("quick")
def test_a_silent_holder_on_another_machine_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clocks say; and it does not go on when it wakes up."""
    folder = tmp_path / "x"
    with exclusive_lock(folder) as held:
        os.utime(lock_of(folder), (time.time() + 86400,) * 2)
        with held._writing, monkeypatch.context() as patch:  # its signs of life stop
            on_another_machine(patch)
            assert not is_locked(folder)
            with exclusive_lock(folder, busy="busy"):
                owner = owner_of(folder)
                assert owner and owner.host == "there"
                with refused("locked", file="x", names=("there", f"{os.getpid()}")):
                    held.check()
        assert not lock_of(folder).exists()


@pytest.mark.usefixtures("quick")
def test_who_wakes_up_leaves_its_successor_s_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "x"
    with ExitStack() as successor:
        with exclusive_lock(folder) as held, held._writing, monkeypatch.context() as patch:
            on_another_machine(patch)
            after = successor.enter_context(exclusive_lock(folder, busy="busy"))
        assert lock_of(folder).exists()
        after.check()
    assert not lock_of(folder).exists()


@pytest.mark.usefixtures("quick")
def test_a_holder_goes_on_giving_signs_of_life(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "x"):
        seen = set()
        for _ in range(10):
            seen.add(lock_of(tmp_path / "x").read_text(encoding="utf-8"))
            time.sleep(0.02)
    assert len(seen) > 2


@pytest.mark.parametrize("number", locks.NO_LINKS)
def test_a_file_system_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no links")

    monkeypatch.setattr(os, "link", refuse)
    folder = tmp_path / "x"
    with exclusive_lock(folder):
        assert is_locked(folder)
        with pytest.raises(UserError, match="busy"), exclusive_lock(folder, busy="busy"):
            pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("busy", [None, "busy"])
@pytest.mark.parametrize("target", ["nowhere", "file"])
def test_a_link_in_a_locks_place_is_one_line(tmp_path: Path, target: str, busy: str | None) -> None:
    """A dangling one can be neither opened nor made."""
    (tmp_path / "file").touch()
    lock_of(tmp_path / "x").symlink_to(tmp_path / target)
    with refused("value", file=".x.lock"), exclusive_lock(tmp_path / "x", busy):
        pass
    assert not is_locked(tmp_path / "x")


def test_who_waits_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "UNTOLD", 0.1)
    folder = tmp_path / "x"
    with start(HOLDER, folder) as process:
        assert process.stdout and process.stdout.readline() == "holds\n"
        ends = threading.Timer(0.4, process.kill)
        ends.start()
        with exclusive_lock(folder):
            pass
    said = capsys.readouterr().err
    assert f" {process.pid} on " in said and said.endswith(f" {folder}\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [UserError("damaged"), FileNotFoundError("gone")])
def test_an_error_after_a_takeover_is_the_takeover(tmp_path: Path, error: Exception) -> None:
    folder = tmp_path / "x"
    with pytest.raises(type(error)), exclusive_lock(folder):
        raise error

    def loses() -> None:
        with exclusive_lock(folder):
            lock_of(folder).unlink()
            raise error

    with refused("locked", file="x"):
        loses()


def test_a_file_that_is_no_lock_is_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock_of(folder).write_text("my notes\n", encoding="utf-8")
    with refused("value", file=".run.lock"), exclusive_lock(folder):
        pass
    assert lock_of(folder).read_text(encoding="utf-8") == "my notes\n"
    for left in ("", "\0" * 40, "host\t17\tmachine\t1\n"):  # by older versions and power cuts
        lock_of(folder).write_text(left, encoding="utf-8")
        if not left.startswith("host"):
            with exclusive_lock(folder):
                pass
            assert not lock_of(folder).exists()


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_a_lock_obeys_the_umask(tmp_path: Path, mask: int) -> None:
    """A group's workbench has 002: its members take over each other's locks."""
    before = os.umask(mask)
    try:
        with exclusive_lock(tmp_path / "x"):
            mode = lock_of(tmp_path / "x").stat().st_mode
    finally:
        os.umask(before)
    assert stat.S_IMODE(mode) == 0o666 & ~mask


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be two users")
def test_a_killed_colleagues_lock_is_taken_over(tmp_path: Path) -> None:
    """Both in one group, in a folder of that group."""
    os.chown(tmp_path, 1001, 5000)
    tmp_path.chmod(0o2770)
    for parent in tmp_path.parents:  # pytest's are its own user's
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    for user, leave in ((1001, True), (1002, False)):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.umask(0o002)
                os.setgroups([5000])
                os.setgid(5000)
                os.setuid(user)
                with exclusive_lock(tmp_path / "x", busy="busy"):
                    if leave:
                        os._exit(0)  # as if killed
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
