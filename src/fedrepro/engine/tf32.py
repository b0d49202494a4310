"""TF32: whether a GPU rounds the factors of float32 products to 11 bits.

PyTorch has one setting for all of a process. The engine allows TF32 for the steps of training that
ask for it (:meth:`fedrepro.engine.net.Net.of_steps`), and for nothing else: a round's mean of
models is a product, too. Nothing here affects a CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_allowed = False  # as :mod:`fedrepro.run.devices` leaves it


@contextmanager
def allowed(wanted: bool) -> Iterator[None]:
    """A context in which TF32 is allowed or forbidden; afterwards it is as before."""
    before = _allowed
    if wanted != before:
        impose(wanted)
    try:
        yield
    finally:
        if before != _allowed:
            impose(before)


def impose(allowed: bool) -> None:
    """Allow TF32 or forbid it, whatever anyone has set before.

    In both of PyTorch's ways, so that they agree. With the newer one alone, PyTorch's compiler
    fails; with the older one alone, ``torch.backends.fp32_precision = "tf32"`` would have
    convolutions use TF32 all the same.
    """
    global _allowed
    backends: Any = torch.backends
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed
    for operation in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        operation.fp32_precision = "tf32" if allowed else "ieee"
    _allowed = allowed
