"""Read pre-trained weights as tensors, without executing anything in a file."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from safetensors.torch import load as from_safetensors
from torch import Tensor, nn

from fedrepro.models.registry import LearnedWeights
from fedrepro.support.errors import missing_value, refusal

_untrained = ContextVar("untrained", default=False)


@contextmanager
def untrained() -> Iterator[None]:
    """A context in which models keep their initial weights, for speed measurements."""
    token = _untrained.set(True)
    try:
        yield
    finally:
        _untrained.reset(token)


def load_into(module: nn.Module, name: str, weights: LearnedWeights | None, prefix: str) -> None:
    """Load the weights of the model ``name`` that begin with ``prefix`` into ``module``.

    Raises:
        UserError: if there are none, or the file does not contain these weights.
    """
    if _untrained.get():
        return
    if weights is None:
        raise missing_value("config/datasets.yaml", f"weights.{name}", "an entry")
    try:
        tensors = _tensors(weights)
        own = {
            key.removeprefix(prefix): tensor
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
        module.load_state_dict(own)
    # Any exception: a damaged zip, a class that it refuses to create, a surplus tensor.
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        why = f"not the weights of {name}: {first_line}"
        raise refusal(weights.file, why, code="damaged") from None


def _tensors(weights: LearnedWeights) -> dict[str, Tensor]:
    if weights.file.endswith(".safetensors"):
        return from_safetensors(weights.content)
    # torchvision publishes no other format. `weights_only` creates tensors and plain containers and
    # refuses every other object in a pickle.
    load = torch.load  # noqa: TID251
    file = io.BytesIO(weights.content)
    tensors: dict[str, Tensor] = load(file, map_location="cpu", weights_only=True)
    return tensors
