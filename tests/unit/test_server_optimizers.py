"""Algorithm 2 of Reddi et al. (ICLR 2021), one step at a time."""

import pytest
import torch

from fedrepro.server_optimizers import FedAdagrad, FedAdam, FedAvgM, FedYogi, ServerOptimizer
from fedrepro.tree import Tree


def follow(optimizer: ServerOptimizer, gradients: list[float], start: float = 1.0) -> list[float]:
    """A single parameter under given pseudo-gradients (minus the clients' mean movement)."""
    built = optimizer.build()
    params: Tree = {"w": torch.tensor([start], dtype=torch.float64)}
    state, path = built.init(params), []
    for gradient in gradients:
        given = {"w": torch.tensor([gradient], dtype=torch.float64)}
        change, state = built.update(given, state, params, optimizer.lr)
        params = {"w": params["w"] + change["w"]}
        path.append(float(params["w"]))
    return path


def by_hand(second, gradients: list[float], lr: float, beta1: float, tau: float, v: float):  # type: ignore[no-untyped-def]
    w, m, path = 1.0, 0.0, []
    for g in gradients:
        m = beta1 * m + (1 - beta1) * g
        v = second(v, g)
        w -= lr * m / (v**0.5 + tau)
        path.append(w)
    return path


GRADIENTS = [0.3, -0.2, 0.05, 0.4]


def sign(value: float) -> float:
    return (value > 0) - (value < 0)


@pytest.mark.parametrize(
    ("optimizer", "second", "beta1"),
    [
        (FedAdagrad(lr=0.1), lambda v, g: v + g * g, 0.0),
        (FedAdam(lr=0.1), lambda v, g: 0.99 * v + 0.01 * g * g, 0.9),
        (FedYogi(lr=0.1), lambda v, g: v - 0.01 * g * g * sign(v - g * g), 0.9),
    ],
    ids=["adagrad", "adam", "yogi"],
)
@pytest.mark.parametrize("initial", [None, 0.0])
def test_adaptive(optimizer, second, beta1: float, initial: float | None) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    chosen = replace(optimizer, initial_accumulator=initial)
    expected = by_hand(second, GRADIENTS, 0.1, beta1, 1e-3, 1e-6 if initial is None else initial)
    assert follow(chosen, GRADIENTS) == pytest.approx(expected, rel=1e-12)


def test_momentum() -> None:
    assert follow(FedAvgM(lr=0.5, momentum=0.8), [1.0, 1.0]) == pytest.approx([0.5, 0.5 - 0.9])


def test_plain_averaging_moves_by_the_mean() -> None:
    assert follow(ServerOptimizer(), [0.25]) == [0.75]
