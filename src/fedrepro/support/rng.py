"""Random generators addressed by name, so that numbers do not depend on the order of calls."""

import hashlib

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
