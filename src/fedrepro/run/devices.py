"""Prepare the machine for a run: freed memory stays, and a GPU keeps float32's precision."""

import ctypes
import os
import sys
import warnings

import torch

from fedrepro.engine import tf32
from fedrepro.support.errors import bad_value, refusal

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Keep freed blocks up to 1 GiB for reuse. Returns whether the allocator took the settings.

    glibc returns large blocks to the system at once and requests them again in the next step, which
    then page-faults. On two CPU cores that was a fifth of the time of training IMA's CNN.

    Does not affect results. Does nothing if the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return False
    wanted = ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26))
    taken = [mallopt(option, value) == 1 for option, value in wanted]
    return all(taken)


def prepare(device: str) -> None:
    """Make a GPU ready, for all that this process computes from now on; nothing for the CPU.

    By default PyTorch rounds the inputs of convolutions on a GPU to TF32 (11 bits of precision),
    and some sums are formed in whatever order threads arrive. Where PyTorch has no other way, as in
    the gradient of adaptive pooling, it warns. Runs with ``precision: tf32`` allow TF32 again, for
    the steps of their training.
    https://docs.pytorch.org/docs/stable/notes/randomness.html

    Raises:
        UserError: if there is no such GPU.
    """
    if not device.startswith("cuda"):
        return
    require(device)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    # PyTorch 2.9 warns of its older way to forbid TF32, which its compiler needs.
    warnings.filterwarnings("ignore", "Please use the new API settings to control TF32")
    tf32.impose(False)
    torch.backends.cudnn.benchmark = False  # else the faster algorithm of the moment
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # the compiler's advice
    torch.use_deterministic_algorithms(True, warn_only=True)
    # No code here reads memory before it has written it: filling new memory only costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def require(device: str) -> None:
    """Raises UserError unless this machine has that GPU."""
    number, there = int(device.partition(":")[2] or 0), torch.cuda.device_count()
    if not torch.cuda.is_available():
        raise refusal("device", f"{device!r}: CUDA is not available; use cpu", "device", device)
    if number >= there:
        why = f"{device!r}: expected cuda:0 to cuda:{there - 1}, which are here"
        raise refusal("device", why, "device", device)


def require_tf32(device: str) -> None:
    """Raises UserError unless that GPU has TF32: another would compute in float32 unasked."""
    if torch.cuda.get_device_capability(device) < (8, 0):
        wanted = f"an NVIDIA A100 or later, not {torch.cuda.get_device_name(device)}"
        raise bad_value(f"device {device}", "precision", "tf32", wanted)
