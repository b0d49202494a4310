"""Arithmetic of the oracles: exact gradients of losses that are written in numpy, and optimizers.

A loss is written once, as in its paper, with functions of complex numbers. Its gradient follows
without a chain rule that could share a mistake with the package: f'(x) = Im f(x + ih) / h, exact to
rounding for a tiny h, because nothing is subtracted (the complex step).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Model = dict[str, Array]
STEP = 1e-40


class Moved(np.lib.mixins.NDArrayOperatorsMixin):
    """An array under each of many small moves of a leaf at once, so that a loss runs once for all.

    To a loss it is one array: the leading axis of ``each``, over the moves, is hidden. The moves
    are imaginary and tiny, so the real part is the same under all.
    """

    def __init__(self, each: Array) -> None:
        self.each = each
        self.shape, self.ndim, self.size = each.shape[1:], each.ndim - 1, each[0].size

    @property
    def real(self) -> Array:
        return self.each[0].real

    @property
    def T(self) -> "Moved":  # noqa: N802
        return Moved(self.each.swapaxes(1, 2))

    def __len__(self) -> int:
        return int(self.shape[0])

    def reshape(self, *shape: int) -> "Moved":
        return Moved(self.each.reshape(len(self.each), *shape))

    def __getitem__(self, at: Any) -> "Moved":
        return Moved(self.each[(slice(None), *(at if isinstance(at, tuple) else (at,)))])

    def sum(self, axis: int | None = None, keepdims: bool = False) -> "Moved":
        return Moved(self.each.sum(self._axes(axis), keepdims=keepdims))

    def mean(self, axis: int | None = None, keepdims: bool = False) -> "Moved":
        return Moved(self.each.mean(self._axes(axis), keepdims=keepdims))

    def _axes(self, axis: int | None) -> tuple[int, ...]:
        return tuple(range(1, self.ndim + 1)) if axis is None else (axis % self.ndim + 1,)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any) -> "Moved":
        assert method == "__call__"
        return Moved(ufunc(*_aligned(inputs)))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> "Moved":
        if func is np.where:
            return Moved(np.where(*_aligned(args)))
        assert func in (np.concatenate, np.stack) and not kwargs
        parts, axis = args[0], args[1] if len(args) > 1 else 0
        moves = next(len(part.each) for part in parts if isinstance(part, Moved))
        whole = [
            part.each if isinstance(part, Moved) else np.broadcast_to(part, (moves, *part.shape))
            for part in parts
        ]
        return Moved(func(whole, axis + 1))


def _aligned(arrays: Sequence[Any]) -> list[Array]:
    """With axes of length 1 behind the hidden one, for numpy's broadcasting from the right."""
    most = max(getattr(each, "ndim", 0) for each in arrays)
    return [
        each.each.reshape(len(each.each), *(1,) * (most - each.ndim), *each.shape)
        if isinstance(each, Moved)
        else each
        for each in arrays
    ]


def gradient(loss: Callable[[Model], Any], model: Mapping[str, Array]) -> Model:
    """Of ``loss`` at ``model``, leaf by leaf; all entries of a leaf at once."""
    found = {}
    for name, leaf in model.items():
        moves = 1j * STEP * np.eye(leaf.size).reshape(leaf.size, *leaf.shape)
        moved = loss({**model, name: Moved(leaf + moves)})
        slopes = moved.each.imag / STEP if isinstance(moved, Moved) else np.zeros(leaf.size)
        found[name] = slopes.reshape(leaf.shape)
    return found


# --- functions of complex arrays that are analytic where they are used ----------------------------
def relu(z: Array) -> Array:
    return np.where(z.real > 0, z, 0)


def softplus(z: Array) -> Array:
    """log(1 + e^z)."""
    return relu(z) + np.log1p(np.exp(np.where(z.real > 0, -z, z)))


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def norm(z: Array) -> Any:
    """The Euclidean norm; 0, with gradient 0, at 0."""
    return np.sqrt((z**2).sum()) if z.real.any() else 0.0 * z.sum()


def log_softmax(z: Array) -> Array:
    z = z - z.real.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def softmax(z: Array) -> Array:
    return np.exp(log_softmax(z))


def cross_entropy(z: Array, y: Array) -> Any:
    return -log_softmax(z)[np.arange(len(y)), y].mean()


def divergence(labels: Array, z: Array) -> Any:
    """KL(labels || softmax(z)), the mean over samples."""
    return (labels * (np.log(labels) - log_softmax(z))).sum(-1).mean()


# --- models ---------------------------------------------------------------------------------------
def linear(model: Mapping[str, Array], name: str, x: Array) -> Array:
    return x @ model[f"{name}.weight"].T + model[f"{name}.bias"]


def features(model: Mapping[str, Array], x: Array) -> Array:
    """The body's output: a linear layer and tanh."""
    return np.tanh(linear(model, "body.0", x))


def logits(model: Mapping[str, Array], x: Array) -> Array:
    return linear(model, "head", features(model, x))


def under(prefix: str, model: Mapping[str, Array]) -> Model:
    """The leaves whose names begin with ``prefix.``, without it."""
    whole = f"{prefix}."
    return {name.removeprefix(whole): x for name, x in model.items() if name.startswith(whole)}


def named(prefix: str, model: Mapping[str, Array]) -> Model:
    return {f"{prefix}.{name}": leaf for name, leaf in model.items()}


def zeros(model: Mapping[str, Array]) -> Model:
    return {name: np.zeros(leaf.shape) for name, leaf in model.items()}


def plus(one: Mapping[str, Array], other: Mapping[str, Array], factor: float = 1.0) -> Model:
    """one + factor * other."""
    return {name: leaf + factor * other[name] for name, leaf in one.items()}


def square(model: Mapping[str, Array]) -> Any:
    """The squared norm of all leaves together."""
    return sum((leaf**2).sum() for leaf in model.values())


# --- optimizers -----------------------------------------------------------------------------------
class SGD:
    """With momentum and weight decay; ``velocity`` is its state."""

    def __init__(self, momentum: float = 0.0, decay: float = 0.0) -> None:
        self.momentum, self.decay, self.velocity = momentum, decay, {}

    def step(self, model: Model, slopes: Mapping[str, Array], rate: float) -> Model:
        moved = {}
        for name, slope in slopes.items():
            ahead = slope + self.decay * model[name]
            self.velocity[name] = self.momentum * self.velocity.get(name, 0) + ahead
            moved[name] = model[name] - rate * self.velocity[name]
        return {**model, **moved}

    @property
    def state(self) -> dict[str, Any]:
        return {"momentum": dict(self.velocity)}


class Adam:
    """Kingma and Ba, Algorithm 1; ``m``, ``v`` and the number of steps are its state."""

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999) -> None:
        self.beta1, self.beta2, self.steps = beta1, beta2, 0
        self.m: Model = {}
        self.v: Model = {}

    def step(self, model: Model, slopes: Mapping[str, Array], rate: float) -> Model:
        self.steps += 1
        moved = {}
        for name, slope in slopes.items():
            self.m[name] = self.beta1 * self.m.get(name, 0) + (1 - self.beta1) * slope
            self.v[name] = self.beta2 * self.v.get(name, 0) + (1 - self.beta2) * slope**2
            first = self.m[name] / (1 - self.beta1**self.steps)
            second = self.v[name] / (1 - self.beta2**self.steps)
            moved[name] = model[name] - rate * first / (np.sqrt(second) + 1e-8)
        return {**model, **moved}

    @property
    def state(self) -> dict[str, Any]:
        return {"m": dict(self.m), "v": dict(self.v), "steps": np.array(float(self.steps))}
