"""Optimizers as pure functions, for clients and server alike.

Not ``torch.optim``: creating its first object imports a compiler (3.7 s and 157 MB), and a new
object per client is what makes other simulators slow.
"""

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.engine import internals, tree
from fedrepro.engine.tree import Tree

Rate = float | Tensor
Moved = tuple[Tree, Tree]  # a name, as PyTorch's compiler can't make this type within a client


class Optimizer(NamedTuple):
    """An optimizer.

    Attributes:
        init: parameters -> state.
        update: (gradient, state, parameters, learning rate) -> (change of the parameters, state).
        in_place: the same arithmetic in place, for a client that runs alone: (parameters outside
            any graph, leaves of the state) -> (gradients, learning rate) -> nothing. None if only
            ``update`` exists.
        momentum: its momentum, which FedNova needs.
        weight_decay: a step adds this times the parameters to their gradient. Methods that exempt
            some parameters subtract it again.
    """

    init: Callable[[Tree], Tree]
    update: Callable[[Tree, Tree, Tree, Rate], tuple[Tree, Tree]]
    in_place: (
        Callable[[list[Tensor], list[Tensor]], Callable[[list[Tensor], float], None]] | None
    ) = None
    momentum: float = 0.0
    weight_decay: float = 0.0


def sgd(momentum: float = 0.0, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent with the arithmetic of ``torch.optim.SGD``, without dampening."""

    def init(params: Tree) -> Tree:
        return {"momentum": tree.zeros(params)} if momentum else {}

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        if weight_decay:
            gradient = tree.apply(lambda g, p: g + weight_decay * p, gradient, params)
        if momentum:
            gradient = tree.apply(lambda m, g: momentum * m + g, state["momentum"], gradient)
            state = {"momentum": gradient}
        return tree.scale(gradient, -rate), state

    def in_place(
        params: list[Tensor], velocity: list[Tensor]
    ) -> Callable[[list[Tensor], float], None]:
        # The call below ignores strides: gradients must have the memory layout of their parameters.
        formats = [
            torch.contiguous_format if param.is_contiguous() else torch.channels_last
            for param in params
        ]

        def step(gradients: list[Tensor], rate: float) -> None:
            internals.move_by_sgd(
                params,
                [
                    gradient.contiguous(memory_format=form)
                    for gradient, form in zip(gradients, formats, strict=True)
                ],
                velocity,
                rate=rate,
                momentum=momentum,
                weight_decay=weight_decay,
            )

        return step

    return Optimizer(init, update, in_place, momentum, weight_decay)


def _kept(make: Callable[[Optimizer], Optimizer]) -> Callable[[Optimizer], Optimizer]:
    """``make`` with its results kept: a compiled step is recompiled for every new object."""
    kept = lru_cache(make)

    @wraps(make)
    def made(optimizer: Optimizer) -> Optimizer:
        # The compiler warns of a cache within what it traces, and traces through it.
        return make(optimizer) if torch.compiler.is_compiling() else kept(optimizer)

    return made


@_kept
def shifted(optimizer: Optimizer) -> Optimizer:
    """``optimizer`` with an additional step along ``state["shift"]`` after each of its steps.

    The additional step uses the same learning rate, but neither momentum nor weight decay.
    """

    def init(params: Tree) -> Tree:
        return {"inner": optimizer.init(params), "shift": tree.zeros(params)}

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> Moved:
        change, inner = optimizer.update(gradient, state["inner"], params, rate)
        moved = tree.apply(lambda a, shift: a - rate * shift, change, state["shift"])
        return moved, {"inner": inner, "shift": state["shift"]}

    return Optimizer(init, update, None, optimizer.momentum, optimizer.weight_decay)


@_kept
def summing(optimizer: Optimizer) -> Optimizer:
    """``optimizer`` with ``state["sum"]``, the sum of the gradients that it was given."""

    def init(params: Tree) -> Tree:
        return {"sum": tree.zeros(params), "inner": optimizer.init(params)}

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> Moved:
        change, inner = optimizer.update(gradient, state["inner"], params, rate)
        return change, {"sum": tree.add(state["sum"], gradient), "inner": inner}

    return Optimizer(init, update, None, optimizer.momentum, optimizer.weight_decay)


def adam(
    beta1: float = 0.9, beta2: float = 0.999, weight_decay: float = 0.0, epsilon: float = 1e-8
) -> Optimizer:
    """Adam (Kingma and Ba, ICLR 2015, Algorithm 1) with the arithmetic of ``torch.optim.Adam``.

    https://arxiv.org/abs/1412.6980. The state counts steps in a float64 scalar, because
    ``beta**steps`` in float32 is only accurate for few steps.
    """

    def init(params: Tree) -> Tree:
        device = tree.leaves(params)[0].device
        steps = torch.zeros((), dtype=torch.float64, device=device)
        return {"m": tree.zeros(params), "v": tree.zeros(params), "steps": steps}

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        if weight_decay:
            gradient = tree.apply(lambda g, p: g + weight_decay * p, gradient, params)
        m = tree.apply(lambda m, g: m + (1 - beta1) * (g - m), state["m"], gradient)
        v = tree.apply(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["v"], gradient)
        steps = state["steps"] + 1
        first, second = 1 - beta1**steps, (1 - beta2**steps).sqrt()

        def change(m: Tensor, v: Tensor) -> Tensor:
            length = v.sqrt() / second.to(v.dtype) + epsilon
            step: Tensor = -rate * m / first.to(m.dtype) / length
            return step

        return tree.apply(change, m, v), {"m": m, "v": v, "steps": steps}

    def in_place(
        params: list[Tensor], state: list[Tensor]
    ) -> Callable[[list[Tensor], float], None]:
        count = len(params)
        m, v, steps = state[:count], state[count : 2 * count], state[-1]
        taken = float(steps)
        add, add_, mul_, lerp_ = map(internals.each, ("add", "add_", "mul_", "lerp_"))
        sqrt, div_, addcmul_, addcdiv_ = map(
            internals.each, ("sqrt", "div_", "addcmul_", "addcdiv_")
        )

        def step(gradients: list[Tensor], rate: float) -> None:
            nonlocal taken
            taken += 1
            steps.fill_(taken)
            if weight_decay:
                gradients = list(add(gradients, params, alpha=weight_decay))
            lerp_(m, gradients, 1 - beta1)
            mul_(v, beta2)
            addcmul_(v, gradients, gradients, value=1 - beta2)
            lengths = list(sqrt(v))
            div_(lengths, math.sqrt(1 - beta2**taken))
            add_(lengths, epsilon)
            addcdiv_(params, m, lengths, value=-rate / (1 - beta1**taken))

        return step

    return Optimizer(init, update, in_place, weight_decay=weight_decay)


def gradient_weight(steps: Tensor | float, momentum: float) -> Tensor:
    """FedNova's a_i (eq. 7) after ``steps`` local steps, a float64 scalar.

    This is the 1-norm of the weights that SGD with momentum gives to its gradients. Without
    momentum it equals ``steps``.
    """
    tau = torch.as_tensor(steps, dtype=torch.float64)
    return (tau - momentum * (1 - momentum**tau) / (1 - momentum)) / (1 - momentum)


def adaptive(
    second_moment: Callable[[Tensor, Tensor], Tensor],
    beta1: float,
    tau: float,
    initial_accumulator: float | None = None,
) -> Optimizer:
    """Algorithm 2 of Reddi et al., ICLR 2021 (https://arxiv.org/abs/2003.00295).

    Without bias correction. ``v`` starts at ``tau**2``, the smallest value that the algorithm
    allows, or at ``initial_accumulator``.

    Args:
        second_moment: (``v``, gradient) -> the next ``v``.
    """
    start = tau**2 if initial_accumulator is None else initial_accumulator

    def init(params: Tree) -> Tree:
        return {
            "m": tree.zeros(params),
            "v": tree.apply(lambda leaf: torch.full_like(leaf, start), params),
        }

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        m = tree.mix(gradient, state["m"], beta1)
        v = tree.apply(second_moment, state["v"], gradient)
        return tree.apply(lambda a, b: -rate * a / (b.sqrt() + tau), m, v), {"m": m, "v": v}

    return Optimizer(init, update)


def forgetful(optimizer: Optimizer) -> Optimizer:
    """``optimizer`` restarted at every step; it keeps no state."""

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        change, _ = optimizer.update(gradient, optimizer.init(params), params, rate)
        return change, {}

    return Optimizer(lambda params: {}, update)
