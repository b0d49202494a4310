"""Arithmetic of the oracles: exact gradients of losses that are written in numpy, and optimizers.

A loss is written once, as in its paper, with functions of complex numbers. Its gradient follows
without a chain rule that could share a mistake with the package: f'(x) = Im f(x + ih) / h, exact to
rounding for a tiny h, because nothing is subtracted (the complex step).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Model = dict[str, Array]
STEP = 1e-40


def gradient(loss: Callable[[Model], Any], model: Mapping[str, Array]) -> Model:
    """Of ``loss`` at ``model``, leaf by leaf."""
    found = {}
    for name, leaf in model.items():
        slopes = np.zeros(leaf.shape)
        for at in np.ndindex(leaf.shape):
            moved = leaf.astype(complex)
            moved[at] += 1j * STEP
            slopes[at] = loss({**model, name: moved}).imag / STEP
        found[name] = slopes
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
