"""Folders that one process at a time works on, also where several machines share them.

The lock is a hidden file beside the folder. It is held in two ways. The kernel's lock (``flock``)
ends with its process, however that ends, but some network file systems keep it to one machine, or
know none. So the file also says who holds it, and its holder changes it every few seconds; whoever
finds another machine's name in it watches whether it goes on changing. No clock is read for that:
clocks of machines differ, and jump.

filelock's ``SoftFileLease`` (4.2) watches for silence in the same way, but does less than is needed
here. It takes no kernel lock, so a process that was killed in another container of this machine is
in the way until it has been silent. A process that stood still learns of its loss from its own
heartbeat, and only when two in a row find another's file: up to two beats in which it writes where
another has begun, whereas :meth:`Held.check` looks when it is asked. And nobody can ask whether a
folder is locked without taking its lock. What would be left around it is most of this file.
"""

import errno
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedrepro.support.errors import UserError, cannot_write
from fedrepro.support.files import make_folder

BEAT = 5.0  # seconds between two signs of life
SILENCE = 4 * BEAT  # after which a holder on another machine is taken for dead
# `is_locked` holds a lock for a moment: a process that does not wait must not stumble over that.
LOOKS = 4
BETWEEN_LOOKS = 0.05  # seconds
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # a file system without links
BOOT = Path("/proc/sys/kernel/random/boot_id")


def lock_of(folder: Path) -> Path:
    """The file that a process locks for as long as it works on a folder."""
    return folder.with_name(f".{folder.name}.lock")


@dataclass(frozen=True)
class Owner:
    """Who holds a lock.

    Attributes:
        machine: one since it was started; names alone are not unique.
    """

    host: str
    pid: int
    machine: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@cache
def _machine() -> str:
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _me() -> Owner:
    return Owner(socket.gethostname(), os.getpid(), _machine())


def owner_of(folder: Path) -> Owner | None:
    """Who holds the lock of a folder, or held it when it was killed; None: nobody says."""
    try:
        host, pid, machine = lock_of(folder).read_text(encoding="utf-8").split("\t")[:3]
        return Owner(host, int(pid), machine)
    except (OSError, ValueError):
        return None


def is_locked(folder: Path) -> bool:
    """Whether a process works on a folder right now, as far as this can be seen at once."""
    try:
        with lock_of(folder).open("rb") as file:
            changed = os.fstat(file.fileno()).st_mtime
            free = _flock(file.fileno(), wait=False, kind=fcntl.LOCK_SH)
    except OSError:  # nobody has
        return False
    owner = owner_of(folder)
    if free is not None and _is_of_this_machine(owner):
        return not free
    return free is False or abs(time.time() - changed) < SILENCE


class Held:
    """A lock that this process holds; a thread gives signs of life.

    Args:
        descriptor: of the lock's file, open for writing.
    """

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._me = _me()
        _sign(descriptor, self._me)
        # Ends with the process: a daemon, which nothing waits for.
        threading.Thread(target=self._beat, name="lock", daemon=True).start()

    def check(self) -> None:
        """Raise UserError where another process has taken the lock over.

        A process that stood still for longer than ``SILENCE``, with its machine or its network,
        must not go on writing where another has begun.
        """
        if not _is_the(lock_of(self.folder), self._descriptor):
            raise UserError(
                f"{self.folder}: this process stood still, and {owner_of(self.folder)} has taken "
                "its work over"
            )

    def release(self) -> None:
        self._over.set()
        # Under the lock: whoever waits for this file sees that it is gone, and makes its own.
        if _is_the(lock_of(self.folder), self._descriptor):
            lock_of(self.folder).unlink(missing_ok=True)
        with self._writing:
            os.close(self._descriptor)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            # The number of a closed file may be another's by now.
            with self._writing, suppress(OSError):  # a full disk
                if not self._over.is_set():
                    _sign(self._descriptor, self._me)


def _sign(descriptor: int, me: Owner) -> None:
    """Write who this is, in another text each time, as times of files may be coarse."""
    text = f"{me.host}\t{me.pid}\t{me.machine}\t{time.monotonic_ns():020d}\n"
    os.pwrite(descriptor, text.encode(), 0)


@contextmanager
def only_one(folder: Path, busy: str | None = None) -> Iterator[Held]:
    """Hold the lock of `folder`.

    What a killed process left is in nobody's way: on its own machine at once, on another when it
    has been silent for ``SILENCE``.

    Args:
        busy: what is said when another process holds it; None: wait until it does not.

    Raises:
        UserError: when the disk refuses, or with `busy` and the holder.
    """
    held = _lock(folder, busy)
    try:
        yield held
    finally:
        held.release()


def _lock(folder: Path, busy: str | None) -> Held:
    path, refused = lock_of(folder), 0
    while True:
        try:
            make_folder(folder.parent)
            descriptor, new = _open(path)
        except OSError as error:
            raise cannot_write(folder, error) from error
        held = None
        try:
            free = True if new else _flock(descriptor, wait=busy is None)
            if free is False:
                refused += 1
            # Else its holder has removed it meanwhile: another process may lock a new one.
            elif _is_the(path, descriptor):
                # Of this machine's processes nobody has it, if the kernel says so.
                if new or (free and _is_of_this_machine(owner_of(folder))):
                    held = Held(folder, descriptor)
                    return held
                if _is_silent(path, descriptor):
                    path.unlink(missing_ok=True)  # whoever makes the next one holds it
                elif _is_the(path, descriptor):
                    refused = LOOKS
        except OSError as error:
            raise cannot_write(folder, error) from error
        finally:
            if held is None:
                os.close(descriptor)
        if busy is not None and refused >= LOOKS:
            owner = owner_of(folder)
            raise UserError(f"{folder}: {busy}{f' ({owner})' if owner else ''}")
        time.sleep(BETWEEN_LOOKS if refused else 0)


def _open(path: Path) -> tuple[int, bool]:
    """The lock's file, and whether this process has made it, which one process only can.

    A new one appears locked and signed.
    """
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR), False
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        made = False
        try:
            _flock(descriptor, wait=False)
            _sign(descriptor, _me())
            os.link(temporary, path)
            made = True
            return descriptor, True
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            os.rename(temporary, path)  # of two such files one stays
            made = True
            return descriptor, True
        finally:
            if not made:
                os.close(descriptor)
            temporary.unlink(missing_ok=True)


def _flock(descriptor: int, wait: bool, kind: int = fcntl.LOCK_EX) -> bool | None:
    """Whether the kernel gives the lock; None on a file system without locks."""
    try:
        fcntl.flock(descriptor, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_of_this_machine(owner: Owner | None) -> bool:
    """Also without an owner: what an older version left, which knew the kernel's lock only."""
    return owner is None or owner.machine == _machine()


def _is_silent(path: Path, descriptor: int) -> bool:
    """Watch an open lock file: whether it stays as it is for ``SILENCE``."""
    before, end = os.pread(descriptor, 1000, 0), time.monotonic() + SILENCE
    while time.monotonic() < end:
        time.sleep(SILENCE / 20)
        if not _is_the(path, descriptor) or os.pread(descriptor, 1000, 0) != before:
            return False
    return True


def _is_the(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one that `path` leads to now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
