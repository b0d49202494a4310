"""PyTorch internals that are faster than the public API.

Internals may disappear or change without notice, so `pyproject.toml` only allows tested versions of
PyTorch. Tests compare each with its public counterpart.
"""

import inspect
import shutil
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def backward(loss: Tensor, wanted: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad(loss, wanted, allow_unused=True)`` without checking arguments.

    The checks take 35 us per step, as long as the arithmetic of a small model.

    Args:
        loss: a scalar.
        wanted: leaves of its graph, which is freed.

    Returns:
        The gradient of each leaf, None where ``loss`` does not depend on it.
    """
    engine = torch.autograd.Variable._execution_engine
    gradients: tuple[Tensor | None, ...] = engine.run_backward(
        (loss,),
        (_one(loss.dtype, loss.device),),
        False,  # do not keep the graph
        False,  # do not build a graph of the gradient
        wanted,
        True,  # allow leaves that the loss does not depend on
        accumulate_grad=False,
    )
    return gradients


@lru_cache
def _one(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones((), dtype=dtype, device=device)


def is_mapped() -> bool:
    """Return True if the caller runs inside a transformation of torch.func."""
    return (torch._C._functorch.maybe_current_level() or 0) > 0


def each(operation: str) -> Callable[..., list[Tensor]]:
    """A tensor method for lists of tensors in one call, such as ``each("add_")(ones, others)``.

    The lists must have equal length; all other arguments apply to every tensor.
    """
    together: Callable[..., list[Tensor]] = getattr(torch, f"_foreach_{operation}")
    return together


def move_by_sgd(
    params: list[Tensor],
    gradients: list[Tensor],
    velocity: list[Tensor],
    *,
    rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """A step of stochastic gradient descent in place, in one pass over memory.

    The public counterpart takes up to four passes and, with momentum, rounds the last bits
    differently.

    Args:
        gradients: each with the strides of its parameter.
        velocity: updated with the parameters; empty without ``momentum``.
    """
    torch._fused_sgd_(
        params,
        gradients,
        velocity,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def is_of_compiler(error: Exception) -> bool:
    """Return True if PyTorch's compiler failed: at a model, a program that it calls, its result."""
    known = sys.modules.get("torch._dynamo.exc")  # imported when something is compiled
    return known is not None and isinstance(error, known.TorchDynamoException)


def finds_cpp_compiler() -> bool:
    """Return True if PyTorch's compiler finds the C++ compiler that it calls: $CXX, else g++."""
    from torch._inductor import cpp_builder

    try:
        return bool(cpp_builder.get_cpp_compiler())
    except Exception:  # of several kinds, such as for a file that cannot be executed
        return False


def folder_of_compiled() -> str:
    """Where PyTorch's compiler keeps what it compiles.

    Raises:
        OSError: if it cannot be made.
    """
    from torch._inductor.runtime import cache_dir_utils

    return str(cache_dir_utils.cache_dir())


def compiled(function: Callable[P, R], limit: int) -> Callable[P, R]:
    """``function`` compiled to one kernel per kind of arguments, at most ``limit`` at a time.

    Beyond the limit PyTorch would fall back to something slow and different, or fail: kernels are
    dropped then, and those still needed are made again.
    """
    options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        options["recompile_limit"] = limit
    else:  # versions without that argument have one limit for everything compiled
        config = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, limit)
    # Nothing is timed: PyTorch would take what was faster, on a GPU padded products unasked, others
    # where the environment asks for tuning.
    tuning = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
    options["options"] = dict.fromkeys(
        ("shape_padding", "coordinate_descent_tuning", *tuning), False
    )
    if shutil.which("openssl") is None:  # PyTorch calls it for precompiled headers, unasked
        options["options"]["cpp_cache_precompile_headers"] = False
    kernels = torch.compile(function, **options)

    def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return kernels(*arguments, **named)
        except Exception as error:
            known = sys.modules.get("torch._dynamo.exc")
            if known is None or not isinstance(error, known.FailOnRecompileLimitHit):
                raise
        torch.compiler.reset()
        return kernels(*arguments, **named)

    return called
