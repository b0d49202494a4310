"""Distribute work over processes that are forked for one round and end with it.

A forked process inherits the memory of this one, so nothing has to be sent to it and data are held
once. It writes its results to shared memory (:class:`Stacked`). It lives for one round, so there is
no state to synchronise and nothing to clean up after a crash.
"""

import json
import mmap
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError

ALIGNED = 64  # bytes, as in torch's own allocator
PLACE = 4  # bytes per entry of the queue


def can_distribute() -> bool:
    """Whether this machine can distribute work over processes; Linux can."""
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

    def put(self, place: int, what: Tree | torch.Tensor) -> None:
        """Copy a tree to its place."""
        if self.tree is None:
            self.tree = self._mapped(what)
        for stacked, leaf in zip(tree.leaves(self.tree), tree.leaves(what), strict=True):
            stacked[place] = leaf

    def __enter__(self) -> "Stacked":
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; the mapped memory stays as long as its tensors."""
        os.close(self._file)

    def _mapped(self, like: Any) -> Any:
        # Each process may see its own tree as the first: all must lay out the memory alike.
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


def distribute(work: Callable[[int], None], order: Sequence[int], workers: int) -> None:
    """Call ``work`` with every number of ``order``, in this process and ``workers - 1`` others.

    This process takes the first number; each process that finishes takes the next. ``work`` writes
    its results to shared memory.

    Raises:
        UserError: raised by ``work`` in another process, or if a process was killed.
        RuntimeError: for any other exception there, with its traceback.
    """
    queue, failures = os.memfd_create("queue"), os.memfd_create("failures")
    # All processes share one file offset, so that each number is taken once.
    os.write(queue, b"".join(number.to_bytes(PLACE, "little") for number in order[1:]))
    os.lseek(queue, 0, os.SEEK_SET)
    children: list[int] = []
    here = os.getpid()
    try:
        for _ in range(min(workers, len(order)) - 1):
            child = os.fork()
            if child == 0:
                _work_and_leave(work, queue, failures, here)
            children.append(child)
        work(order[0])
        _take(work, queue)
        while children:
            _, status = os.waitpid(children[-1], 0)
            children.pop()
            if os.WIFSIGNALED(status):
                name = signal.Signals(os.WTERMSIG(status)).name
                raise UserError(
                    f"a worker process was killed ({name}), perhaps by lack of memory: run the "
                    "same command again to resume from the last checkpoint; fewer `threads` in "
                    "config.yaml need less memory"
                )
        _raise_first(failures)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(queue)
        os.close(failures)


def _take(work: Callable[[int], None], queue: int, parent: int | None = None) -> None:
    """Work through the queue while the parent process is alive."""
    while (parent is None or os.getppid() == parent) and (taken := os.read(queue, PLACE)):
        work(int.from_bytes(taken, "little"))


def _work_and_leave(
    work: Callable[[int], None], queue: int, failures: int, parent: int
) -> NoReturn:
    """The body of a forked process; it never returns to its parent's code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent gets the signal too, and decides
    try:
        _take(work, queue, parent)
    except BaseException as error:
        os.lseek(queue, 0, os.SEEK_END)  # the other processes can stop
        known = isinstance(error, UserError)
        text = str(error) if known else traceback.format_exc()
        os.write(failures, (json.dumps({"known": known, "text": text}) + "\n").encode())
    finally:
        os._exit(0)


def _raise_first(failures: int) -> None:
    os.lseek(failures, 0, os.SEEK_SET)
    with os.fdopen(os.dup(failures), encoding="utf-8") as file:
        line = file.readline()
    if line:
        found = json.loads(line)
        raise UserError(found["text"]) if found["known"] else RuntimeError(found["text"])
