"""Weights learned elsewhere as tensors. Reading them runs nothing that a file says."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from safetensors.torch import load as from_safetensors
from torch import Tensor, nn

from fedrepro.models.registry import LearnedWeights
from fedrepro.support.errors import UserError

_untrained = ContextVar("untrained", default=False)


@contextmanager
def untrained() -> Iterator[None]:
    """Meanwhile models keep the weights they are built with: how fast they are needs no others."""
    token = _untrained.set(True)
    try:
        yield
    finally:
        _untrained.reset(token)


def load_into(module: nn.Module, name: str, weights: LearnedWeights | None, prefix: str) -> None:
    """Give ``module``, of the model ``name``, the weights whose names begin with ``prefix``.

    Raises:
        UserError: when there are none, or the file does not hold these weights.
    """
    if _untrained.get():
        return
    if weights is None:
        raise UserError(f"config/datasets.yaml: weights.{name}: missing: expected an entry")
    try:
        tensors = _tensors(weights)
        own = {
            key.removeprefix(prefix): tensor
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
        module.load_state_dict(own)
    # Not only its own kinds: a damaged zip, a class that it refuses to make, a tensor too many.
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{weights.file}: not the weights of {name}: {first_line}") from None


def _tensors(weights: LearnedWeights) -> dict[str, Tensor]:
    if weights.file.endswith(".safetensors"):
        return from_safetensors(weights.content)
    # torchvision publishes no other form. `weights_only` makes tensors and plain containers, and
    # refuses every other object that a pickle asks for.
    load = torch.load  # noqa: TID251
    file = io.BytesIO(weights.content)
    found: dict[str, Tensor] = load(file, map_location="cpu", weights_only=True)
    return found
