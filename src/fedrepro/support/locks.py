"""Locks on folders, also across machines that share a file system.

The lock is a hidden file next to the folder, with two mechanisms. The kernel's lock (``flock``)
ends with its process in any case, but some network file systems limit it to one machine or do not
support it. Therefore the file also names its holder, who rewrites it every few seconds; a process
that finds another machine's name watches whether the file keeps changing. This compares no clocks,
because machines' clocks differ and jump.

filelock's ``SoftFileLease`` (4.2) also uses a heartbeat, but lacks three things. It takes no kernel
lock, so a process killed in another container of this machine blocks others until its heartbeat
times out. A stalled process notices that it lost its lock only after two of its own heartbeats, and
may write in the meantime; :meth:`Held.check` looks at once. And it cannot tell whether a folder is
locked without taking the lock. Adding these would leave most of this file in place.
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

from fedrepro.support.errors import UserError, cannot_write, refusal, writing
from fedrepro.support.files import make_folder, new_token
from fedrepro.support.terminal import say

BEAT = 5.0  # seconds between two signs of life
SILENCE = 4 * BEAT  # after which a holder on another machine is considered dead
# `is_locked` holds the lock for a moment, so a process that does not wait tries several times.
LOOKS = 4
BETWEEN_LOOKS = 0.05  # seconds
UNTOLD = 1.0  # seconds that a process waits without a word
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # a file system without links
BOOT = Path("/proc/sys/kernel/random/boot_id")


def lock_of(folder: Path) -> Path:
    """The lock file of a folder."""
    return folder.with_name(f".{folder.name}.lock")


@dataclass(frozen=True)
class Owner:
    """Who holds a lock.

    Attributes:
        machine: the machine's boot id, because host names are not unique.
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
    """Who holds a folder's lock, or held it when killed; None if unknown."""
    try:
        host, pid, machine = lock_of(folder).read_text(encoding="utf-8").split("\t")[:3]
        return Owner(host, int(pid), machine)
    except (OSError, ValueError):
        return None


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder's lock, as far as one look can tell."""
    try:
        with lock_of(folder).open("rb") as file:
            changed = os.fstat(file.fileno()).st_mtime
            free = _flock(file.fileno(), fcntl.LOCK_SH)
    except OSError:  # no lock file
        return False
    owner = owner_of(folder)
    if free is not None and _is_of_this_machine(owner):
        return not free
    return free is False or abs(time.time() - changed) < SILENCE


class Held:
    """A lock that this process holds; a thread writes its heartbeat.

    Args:
        descriptor: of the lock's file, open for writing.

    Attributes:
        token: names this holding of the lock, in folders that no other holder may write to.
    """

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self.token = new_token()
        self._descriptor = descriptor
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._me = _me()
        _sign(descriptor, self._me)
        # A daemon thread ends with the process.
        threading.Thread(target=self._beat, name="lock", daemon=True).start()

    def check(self) -> None:
        """Raise UserError if another process has taken over the lock.

        A process that stalled for longer than ``SILENCE``, with its machine or its network, must
        not write to a folder that another process now works on.
        """
        if not _is_the(lock_of(self.folder), self._descriptor):
            owner = owner_of(self.folder)
            why = f"lost the lock to {owner} while stalled; let that process finish"
            raise refusal(self.folder, why, code="locked")

    def release(self) -> None:
        self._over.set()
        # While holding the lock: a process that waits for this file then makes a new one.
        if _is_the(lock_of(self.folder), self._descriptor):
            lock_of(self.folder).unlink(missing_ok=True)
        with self._writing:
            os.close(self._descriptor)

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            # The descriptor of a closed file may have been reused.
            with self._writing, suppress(OSError):  # a full disk
                if not self._over.is_set():
                    _sign(self._descriptor, self._me)


def _sign(descriptor: int, me: Owner) -> None:
    """Write the owner, with different text each time because file times may be coarse."""
    text = f"{me.host}\t{me.pid}\t{me.machine}\t{time.monotonic_ns():020d}\n"
    os.pwrite(descriptor, text.encode(), 0)


@contextmanager
def exclusive_lock(folder: Path, busy: str | None = None) -> Iterator[Held]:
    """Hold the lock of `folder`.

    A killed process's lock is released: on its own machine at once, on others when it has been
    silent for ``SILENCE``.

    Args:
        busy: the error message if another process holds the lock; None to wait for it, and to say
            so in a line on stderr.

    Raises:
        UserError: if the lock file cannot be written, with `busy` and the holder, or for an error
            in the block after another process has taken over the lock.
    """
    held = _lock(folder, busy)
    try:
        yield held
    except (UserError, OSError):
        held.check()  # what is missing may be what the new holder has moved
        raise
    finally:
        held.release()


def _lock(folder: Path, busy: str | None) -> Held:
    path, refused = lock_of(folder), 0
    untold = None if busy else time.monotonic() + UNTOLD
    while True:
        with writing(folder):
            make_folder(folder.parent)
            descriptor, new = _open(path)
        held = None
        try:
            free = True if new else _flock(descriptor)
            if free is False:
                refused += 1
            # Else its holder has removed it: another process may lock a new one.
            elif _is_the(path, descriptor):
                # If the kernel grants it, no process of this machine holds it.
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
            why = f"{busy}{f' ({owner})' if owner else ''}"
            raise refusal(folder, why, code="locked")
        if untold is not None and time.monotonic() > untold:
            owner, untold = owner_of(folder), None
            words = f"waiting for {owner or 'another process'}, which is working on {folder}"
            say(words)
        time.sleep(min(refused * BETWEEN_LOOKS / LOOKS, BETWEEN_LOOKS * LOOKS))


def _open(path: Path) -> tuple[int, bool]:
    """The lock file's descriptor, and whether this process created it, which only one can do.

    A new file appears with its lock and owner already in place.
    """
    while True:
        if path.is_symlink():  # which may lead nowhere: it would be neither opened nor made
            raise refusal(path, "expected a lock, which is a plain file: remove the link")
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDWR)
            if not _is_ours(descriptor):
                os.close(descriptor)
                raise refusal(path, "expected a lock of fedrepro: move this file away")
            return descriptor, False
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        made = False
        try:
            _flock(descriptor)
            _sign(descriptor, _me())
            os.link(temporary, path)
            made = True
            return descriptor, True
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            os.rename(temporary, path)  # if two processes do this, one file stays
            made = True
            return descriptor, True
        finally:
            if not made:
                os.close(descriptor)
            temporary.unlink(missing_ok=True)


def _is_ours(descriptor: int) -> bool:
    """Whether a file names a lock's owner, or is empty, as an older version or a power cut left."""
    first = os.pread(descriptor, 1000, 0).strip(b"\0").partition(b"\n")[0]
    return not first or (first.count(b"\t") >= 2 and first.split(b"\t")[1].isdigit())


def _flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool | None:
    """Whether the kernel grants the lock; None on a file system without locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_of_this_machine(owner: Owner | None) -> bool:
    """True without an owner, too: older versions used only the kernel's lock."""
    return owner is None or owner.machine == _machine()


def _is_silent(path: Path, descriptor: int) -> bool:
    """Watch an open lock file: whether it stays unchanged for ``SILENCE``."""
    before, end = os.pread(descriptor, 1000, 0), time.monotonic() + SILENCE
    while time.monotonic() < end:
        time.sleep(SILENCE / 20)
        if not _is_the(path, descriptor) or os.pread(descriptor, 1000, 0) != before:
            return False
    return True


def _is_the(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one at `path` now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
