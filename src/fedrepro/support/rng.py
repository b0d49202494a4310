"""Random generators addressed by name, so that numbers do not depend on the order of calls."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def number(seed: int, *path: str | int) -> int:
    """The seed of the generator for one purpose, from 0 to 2**63 - 1."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def stream(seed: int, *path: str | int) -> torch.Generator:
    """The generator for one purpose, e.g. ``stream(seed, "shuffle", round, client)``."""
    return torch.Generator().manual_seed(number(seed, *path))


def numpy_stream(seed: int, *path: str | int) -> np.random.Generator:
    """Like :func:`stream`, for numpy."""
    return np.random.default_rng(number(seed, *path))


@contextmanager
def seeded(
    seed: int, device: torch.device | None = None, everything: bool = True
) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python, and restore their states afterwards.

    Args:
        device: whose generator is seeded too, if it is a GPU.
        everything: whether numpy's and Python's are, which takes ten times as long as torch's.
    """
    gpu = device if device and device.type == "cuda" else None
    with torch.random.fork_rng([gpu] if gpu else []):
        torch.default_generator.manual_seed(seed)
        if gpu:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        if not everything:
            yield
            return
        of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(of_numpy)  # noqa: NPY002
            random.setstate(of_python)


@contextmanager
def drawing_on(rng: torch.Generator, device: torch.device | None = None) -> Iterator[None]:
    """Let code that draws from global generators draw from ``rng``, a generator of the CPU.

    torch's global generator continues ``rng``, and ``rng`` continues it afterwards; numpy's and
    Python's are seeded by it. All are restored.
    """
    state = rng.get_state()
    with seeded(rng.initial_seed(), device):
        torch.default_generator.set_state(state)
        yield
        rng.set_state(torch.default_generator.get_state())
