"""Keep other threads, forks and torch's settings from changing a run of :func:`fedrepro.train`."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch

from fedrepro.support.errors import refusal

# One run after the other: each seeds the generators that all threads of a process share. A callback
# may train, too.
_TURN = threading.RLock()


def _free_turn() -> None:
    """Let a forked process train, whose parent may have been training in another thread."""
    global _TURN
    if _TURN.acquire(blocking=False):
        _TURN.release()
    else:
        _TURN = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_turn)


def temporary_folder(where: str) -> str:
    """Make a temporary folder.

    Raises:
        UserError: if there is no place for one: what TMPDIR names was removed, is full, read-only.
    """
    try:
        return tempfile.mkdtemp(prefix="fedrepro-")
    except OSError as error:
        why = f"no temporary folder for the run ({error}): give `folder`, or set TMPDIR"
        raise refusal(where, why, "folder", code="unwritable") from None


def remove_own(temporary: str, process: int) -> None:
    """Remove a temporary folder in the process that made it, not in one that was forked."""
    if os.getpid() == process:
        shutil.rmtree(temporary, ignore_errors=True)  # another may have removed it


@contextmanager
def in_turn() -> Iterator[None]:
    """A context that no other thread is in."""
    with _TURN:
        yield


@contextmanager
def torch_as_usual() -> Iterator[None]:
    """A context with gradients and the CPU as default device, whatever the caller has set.

    Numbers that are too small become 0 in numpy as well, and are no errors.
    """
    usual = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    with usual, torch.inference_mode(False), torch.enable_grad():
        # Not always: a default device that is set slows down every call of torch.
        elsewhere = torch.get_default_device().type != "cpu"
        with torch.device("cpu") if elsewhere else nullcontext():
            yield


@contextmanager
def threads_kept() -> Iterator[None]:
    """Restore torch's number of threads afterwards."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
