"""Weights learned elsewhere as tensors. Reading them runs nothing that a file says."""

import io

import torch
from safetensors.torch import load as from_safetensors
from torch import Tensor, nn

from fedrepro.data.catalogue.catalogue import CATALOGUE, load_catalogue
from fedrepro.data.fetching.weights import read_weights
from fedrepro.support.errors import UserError


def load_into(module: nn.Module, name: str, prefix: str) -> str:
    """Give ``module`` the weights called ``name`` whose names begin with ``prefix``.

    Returns:
        The SHA-256 of the file.

    Raises:
        UserError: when the file can't be had, or does not hold these weights.
    """
    known = load_catalogue().weights
    if name not in known:
        raise UserError(f"{CATALOGUE}: weights.{name}: missing: expected an entry")
    spec = known[name]
    content, digest = read_weights(name, spec)
    try:
        tensors = _tensors(content, spec.name)
        own = {
            key.removeprefix(prefix): tensor
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
        module.load_state_dict(own)
    # Not only its own kinds: a damaged zip, a class that it refuses to make, a tensor too many.
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{spec.name}: not the weights of {name}: {first_line}") from None
    return digest


def _tensors(content: bytes, name: str) -> dict[str, Tensor]:
    if name.endswith(".safetensors"):
        return from_safetensors(content)
    # torchvision publishes no other form. `weights_only` makes tensors and plain containers, and
    # refuses every other object that a pickle asks for.
    load = torch.load  # noqa: TID251
    found: dict[str, Tensor] = load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return found
