"""A device that is not there: it computes on the CPU, and refuses what a GPU would refuse.

Tensors "elsewhere" say that they lie on PyTorch's device ``lazy``. What they hold is an ordinary
tensor, so that all numbers are real. Refused are a tensor of the CPU beside one elsewhere (but for
a single number, indices, and copies from one to the other), and a generator of the CPU for a tensor
elsewhere. Autograd, vmap and everything above run as always.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("lazy:0")
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
# Indices may be the CPU's: PyTorch takes them along.
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}


class Elsewhere(Tensor):
    """A tensor that says that it lies elsewhere; ``held`` is what it holds."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        made = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=ELSEWHERE,
        )
        made.held = held
        return made  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _carry_out(function, args, kwargs or {})


class Device(TorchDispatchMode):
    """While this lasts, the device is there."""

    def __enter__(self) -> "Device":
        # Else torch.tensor(..., device=...) would make its tensor beside all modes.
        self._before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(self._before)
        super().__exit__(*error)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _carry_out(function, args, kwargs or {})


def _carry_out(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    there = [leaf for leaf in given if isinstance(leaf, Elsewhere)]
    wanted = kwargs.get("device")
    wanted = torch.device(wanted) if wanted is not None else None
    if function in COPIES:
        goes = args[0] if function is aten.copy_.default else None
        onto = (
            isinstance(goes, Elsewhere)
            if goes is not None
            else (wanted == ELSEWHERE if wanted is not None else bool(there))
        )
    else:
        _refuse_mixtures(function, given, args)
        onto = bool(there) or wanted == ELSEWHERE
        if onto and kwargs.get("generator") is not None:
            raise RuntimeError(f"{function}: a generator of the CPU for a tensor elsewhere")
    known = {id(leaf.held): leaf for leaf in there}
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    held_args, held_kwargs = tree_map(
        lambda leaf: leaf.held if isinstance(leaf, Elsewhere) else leaf, (args, kwargs)
    )
    found = function(*held_args, **held_kwargs)
    if not onto:
        return found
    return tree_map(
        lambda leaf: (
            known.get(id(leaf))
            if id(leaf) in known
            else Elsewhere(leaf)
            if isinstance(leaf, Tensor)
            else leaf
        ),
        found,
    )


def _refuse_mixtures(function: Any, given: list[Tensor], args: Any) -> None:
    here = [leaf for leaf in given if not isinstance(leaf, Elsewhere) and leaf.dim()]
    if function in INDEXED and isinstance(args[0], Elsewhere):
        return
    if here and len(here) < len([leaf for leaf in given if leaf.dim()]):
        raise RuntimeError(f"{function}: a tensor of the CPU beside one elsewhere")


def sent(tensor: Tensor) -> Tensor:
    """A tensor, elsewhere."""
    return tensor if isinstance(tensor, Elsewhere) else Elsewhere(tensor.detach())


def fetched(tensor: Tensor) -> Tensor:
    return tensor.held if isinstance(tensor, Elsewhere) else tensor


def moved(module: nn.Module) -> nn.Module:
    """A module whose tensors lie elsewhere."""
    for layer in module.modules():
        for name, parameter in layer._parameters.items():
            if parameter is not None:
                layer._parameters[name] = nn.Parameter(
                    sent(parameter), requires_grad=parameter.requires_grad
                )
        for name, buffer in layer._buffers.items():
            if buffer is not None:
                layer._buffers[name] = sent(buffer)
    return module


def tensors_here(leaves: Iterator[Tensor] | list[Tensor]) -> list[Tensor]:
    """Those that do not lie elsewhere."""
    return [leaf for leaf in leaves if not isinstance(leaf, Elsewhere)]
