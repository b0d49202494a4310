"""Work distributed over processes: forked for one round, gone after it.

A forked process has everything that this one has in memory, so that nothing is sent to it, and data
are there once. What it makes it leaves in memory that both share (:class:`Stacked`). It lives for
one round only, so that there is no state to keep in step, and nothing to clean up after a crash.
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

ALIGNED = 64  # bytes, as torch's own memory
PLACE = 4  # bytes of a place in the queue


def can_distribute() -> bool:
    """Whether this machine has what dealing takes; Linux has."""
    return hasattr(os, "fork") and hasattr(os, "memfd_create")


class Stacked:
    """Trees of one form, one for each place, as one tree with leaves [places, ...].

    The form is that of the first tree that comes; its memory is shared with the processes that are
    forked later. No memory of /dev/shm is used, which is small in many containers.
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
        """Let go of the file; what is mapped stays as long as its tensors."""
        os.close(self._file)

    def _mapped(self, like: Any) -> Any:
        # Every process that comes first, in its own eyes, lays the same memory out alike.
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

    This process does the first; then whoever is done takes the next. ``work`` leaves what it makes
    in memory that is shared.

    Raises:
        UserError: that ``work`` raised in another process, or where one was killed.
        RuntimeError: anything else that it raised there, with its traceback.
    """
    queue, failures = os.memfd_create("queue"), os.memfd_create("failures")
    # All processes read at one offset, so that each number is taken once.
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
                    f"a worker process was killed ({name}), perhaps for want of memory: the same "
                    "command goes on from the last checkpoint; `threads` in config.yaml is how "
                    "many work"
                )
        _raise_first(failures)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(queue)
        os.close(failures)


def _take(work: Callable[[int], None], queue: int, parent: int | None = None) -> None:
    """Do what is in the queue, as long as the process that wants it lives."""
    while (parent is None or os.getppid() == parent) and (taken := os.read(queue, PLACE)):
        work(int.from_bytes(taken, "little"))


def _work_and_leave(
    work: Callable[[int], None], queue: int, failures: int, parent: int
) -> NoReturn:
    """What a forked process does; it never returns into what its parent was doing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # its parent is told, too, and decides
    try:
        _take(work, queue, parent)
    except BaseException as error:
        os.lseek(queue, 0, os.SEEK_END)  # no one need go on
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
