"""Distribute work over processes that are forked for one round and end with it.

A forked process inherits the memory of this one, so nothing has to be sent to it and data are held
once. It writes its results to shared memory (:class:`Stacked`). It lives for one round, so there is
no state to synchronise and nothing to clean up after a crash.
"""

import json
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from zlib import crc32

import torch

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.terminal import ASKED_TO_END

ALIGNED = 64  # bytes, as in torch's own allocator
PLACE = 4  # bytes per entry of the queue
LONGEST = 2**16  # bytes of a process's error
MOST = 1000  # characters of each field of a refusal: in JSON at most 12 bytes each
# How a process ended by agreement. Else its state is 0, or 1 + the number that it works on.
LEFT, REFUSED, FAILED = -1, -2, -3


def can_distribute() -> bool:
    """Return True if this machine can distribute work over processes; Linux can."""
    return hasattr(os, "fork") and hasattr(os, "memfd_create")


class Stacked:
    """Trees of one shape, one per place, stored as one tree with leaves [places, ...].

    The first tree determines the shape. The memory is shared with processes forked later. It is not
    in /dev/shm, which is small in many containers.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self.tree: Any = None
        self._file = os.memfd_create("fedrepro")
        self._inode = os.fstat(self._file).st_ino
        # By place: the layout of its tree; 0 while there is none.
        self._layouts = memoryview(mmap.mmap(-1, 8 * max(1, places))).cast("q")

    def put(self, place: int, what: Tree | torch.Tensor) -> None:
        """Copy a tree to its place."""
        if self.tree is None:
            self.tree = self._mapped(what)
        for stacked, leaf in zip(tree.leaves(self.tree), tree.leaves(what), strict=True):
            stacked[place] = leaf
        self._layouts[place] = _layout(what)

    def refuse_gaps(self, name_of: Callable[[int], str]) -> None:
        """Raises UserError unless every place has a tree, and all are laid out alike."""
        wanted = _layout(tree.apply(lambda leaf: leaf[0], self.tree))
        for place in range(self.places):
            if self._layouts[place] != wanted:
                how = "has another shape than others" if self._layouts[place] else "is missing"
                raise refusal(name_of(place), f"its result {how}")

    def __enter__(self) -> "Stacked":
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; the mapped memory stays as long as its tensors."""
        os.close(self._file)

    def _mapped(self, like: Any) -> Any:
        # Each process may see its own tree as the first: all must lay out the memory alike.
        if os.fstat(self._file).st_ino != self._inode:
            raise OSError("a hook has closed the file of the results")
        sizes = [leaf.numel() * leaf.element_size() * self.places for leaf in tree.leaves(like)]
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-size // ALIGNED) * ALIGNED)
        total = max(1, starts[-1])
        os.ftruncate(self._file, total)
        memory, first = mmap.mmap(self._file, total), iter(starts)

        def place(leaf: torch.Tensor) -> torch.Tensor:
            start, shape = next(first), (self.places, *leaf.shape)
            if not leaf.numel():
                return leaf.new_empty(shape)
            count = leaf.numel() * self.places
            flat = torch.frombuffer(memory, dtype=leaf.dtype, count=count, offset=start)
            return flat.view(shape)

        return tree.apply(place, like)


def _layout(what: Tree | torch.Tensor) -> int:
    """A number, not 0, for the names, types and shapes of a tree's leaves, in their order."""
    described = [(name, leaf.dtype, tuple(leaf.shape)) for name, leaf in tree.named(what)]
    return 1 + crc32(repr(described).encode())


def distribute(
    work: Callable[[int], None],
    order: Sequence[int],
    workers: int,
    name_of: Callable[[int], str] = "number {}".format,
) -> None:
    """Call ``work`` with every number of ``order``, in this process and ``workers - 1`` others.

    This process takes the first number; each process that finishes takes the next. ``work`` writes
    its results to shared memory.

    Args:
        name_of: what a number stands for, in errors.

    Raises:
        UserError: raised by ``work`` in another process, or if one ended before its work was done.
        RuntimeError: for any other exception there, with its traceback.
    """
    queue = os.memfd_create("queue")
    # All processes share one file offset, so that each number is taken once.
    os.write(queue, b"".join(number.to_bytes(PLACE, "little") for number in order[1:]))
    os.lseek(queue, 0, os.SEEK_SET)
    count = min(workers, len(order)) - 1
    reports = _Reports(count)
    children: dict[int, int] = {}  # by process: its place in `told`
    here = os.getpid()
    for stream in (sys.stdout, sys.stderr):  # else the processes print what waits there, too
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    try:
        for place in range(count):
            # Until the process ignores them.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_END)
            try:
                child = os.fork()
                if child == 0:
                    _work_and_leave(work, queue, reports, place, name_of, here, mask)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            children[child] = place
        work(order[0])
        while taken := os.read(queue, PLACE):
            work(int.from_bytes(taken, "little"))
        while children:
            child, place = children.popitem()
            reports.refuse_early_end(place, _end_of(child), name_of)
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _end_of(child)
        os.close(queue)


def _end_of(child: int) -> int | None:
    """Wait for a process. Its exit status, negative for a signal's; None if it is not known."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # SIGCHLD is ignored, or a hook has waited for it
        return None


class _Reports:
    """Reports of processes to the one that forked them, in shared memory: hooks may close files."""

    def __init__(self, count: int) -> None:
        self._state = memoryview(mmap.mmap(-1, 8 * max(1, count))).cast("q")
        self._text = mmap.mmap(-1, LONGEST * max(1, count))

    def working(self, place: int, number: int) -> None:
        self._state[place] = 1 + number

    def left(self, place: int, state: int = LEFT, text: str = "") -> None:
        """Record an agreed end."""
        content = text.encode(errors="replace")
        if len(content) > LONGEST:  # its start says where, its end what
            content = content[: LONGEST // 2] + content[-LONGEST // 2 :]
        self._text[LONGEST * place : LONGEST * place + len(content)] = content
        self._state[place] = state

    def refuse_early_end(
        self, place: int, status: int | None, name_of: Callable[[int], str]
    ) -> None:
        """Raise what a process raised, and for any other end than after all work."""
        state = self._state[place]
        if state == LEFT:
            return
        text = self._text[LONGEST * place : LONGEST * (place + 1)].rstrip(b"\0")
        if state in (REFUSED, FAILED):
            said = text.decode(errors="replace")
            raise UserError(**json.loads(said)) if state == REFUSED else RuntimeError(said)
        where = name_of(state - 1) if state else "a worker"
        if status is not None and status < 0:
            why = (
                f"its process was killed ({signal.Signals(-status).name}), perhaps by lack of "
                "memory: run the same command again to resume from the last checkpoint; fewer "
                "`threads` in config.yaml need less memory"
            )
            raise refusal(where, why, code="")
        why = (
            f"its process ended with status {status}: the method, the model or a library ended it, "
            "as os._exit does"
        )
        raise refusal(where, why, code="")


def _told(error: UserError, where: str) -> str:
    """A refusal as JSON: all but its value, which may be of any kind; cut, it could not be read."""
    fields = {name: getattr(error, name) for name in ("code", "file", "key", "expected")}
    said = {"message": f"{where}{error}", **fields}
    return json.dumps({name: str(text)[:MOST] for name, text in said.items()})


def _work_and_leave(
    work: Callable[[int], None],
    queue: int,
    reports: _Reports,
    place: int,
    name_of: Callable[[int], str],
    parent: int,
    mask: set[int | signal.Signals],
) -> NoReturn:
    """The body of a forked process; it never returns to its parent's code."""
    number = None
    try:
        for signum in ASKED_TO_END:
            signal.signal(signum, signal.SIG_IGN)  # the parent gets the signal too, and decides
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with plugins.blamed():
            while os.getppid() == parent and (taken := os.read(queue, PLACE)):
                number = int.from_bytes(taken, "little")
                reports.working(place, number)
                work(number)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        reports.left(place)
    except BaseException as error:
        with suppress(OSError):
            os.lseek(queue, 0, os.SEEK_END)  # the other processes can stop
        where = "" if number is None else f"{name_of(number)}: "
        match error:
            case plugins.PluginError():
                reports.left(place, REFUSED, _told(error, where))
            case UserError():
                reports.left(place, REFUSED, _told(error, ""))
            case _:
                reports.left(place, FAILED, f"{where}{''.join(traceback.format_exception(error))}")
    finally:
        os._exit(0)
