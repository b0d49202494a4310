"""What a GPU needs to be told so that a run there has float32's precision and repeatable bits."""

import os
import warnings

import torch

from fedrepro.support.errors import UserError


def prepare(device: str) -> None:
    """Make a GPU ready; nothing for the CPU.

    By default PyTorch rounds the inputs of convolutions on a GPU to TF32 (10 bits of precision),
    and some sums are formed in whatever order threads arrive. Where PyTorch has no other way, as in
    a plug-in's bilinear upsampling, it warns.
    https://docs.pytorch.org/docs/stable/notes/randomness.html

    Raises:
        UserError: without CUDA.
    """
    if not device.startswith("cuda"):
        return
    if not torch.cuda.is_available():
        raise UserError(f"device: {device!r}: CUDA is not available; use cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # the compiler's advice
    torch.use_deterministic_algorithms(True, warn_only=True)
    # What a run reads of new memory it has written before: filling it costs time only.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
