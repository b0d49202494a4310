"""Algorithm 2 of Reddi et al. (ICLR 2021), one step at a time."""

import math

import pytest
import torch

from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.methods.server.base import ServerOptimizer
from fedrepro.methods.server.fedadagrad import FedAdagrad
from fedrepro.methods.server.fedadam import FedAdam
from fedrepro.methods.server.fedavgm import FedAvgM
from fedrepro.methods.server.fedyogi import FedYogi
from support.refusals import refused


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


# Worked out by hand for beta1 = 0.9, beta2 = 0.99, tau = 0.001, lr = 0.1 from w = 1, g = 0.3, then
# g = -0.2: m = 0.1 g (g for Adagrad), v from tau squared = 1e-6, and none of it is kept.
#   Adam     v = 0.99 (0.99e-6 + 0.01 g^2) + 0.01 g^2 = 0.9801e-6 + 0.0199 g^2
#   Adagrad  v = 1e-6 + 2 g^2
#   Yogi     g > 0, Delta < 0: v0 > Delta takes 0.01 g^2 away, the step adds it again: v = tau^2;
#            g < 0, Delta > v0: both add 0.01 g^2
@pytest.mark.parametrize(
    ("optimizer", "first", "second"),
    [
        (FedAdam(lr=0.1), (0.03, 0.0017919801), (-0.02, 0.0007969801)),
        (FedAdagrad(lr=0.1), (0.3, 0.180001), (-0.2, 0.080001)),
        (FedYogi(lr=0.1), (0.03, 0.000001), (-0.02, 0.000801)),
    ],
    ids=["adam", "adagrad", "yogi"],
)
def test_as_released(  # type: ignore[no-untyped-def]
    optimizer, first: tuple[float, float], second: tuple[float, float]
) -> None:
    expected, w = [], 1.0
    for m, v in (first, second):
        w -= 0.1 * m / (math.sqrt(v) + 1e-3)
        expected.append(w)
    assert follow(optimizer.as_released(), [0.3, -0.2]) == pytest.approx(expected, rel=1e-12)


def test_the_released_yogi_runs_away_where_clients_move_down() -> None:
    """5 times the movement, against a fifth of the learning rate's size elsewhere."""
    values = {"lr": 0.01, "beta2": 0.999, "tau": 1e-4}  # those of AAggFF's Table 7
    _, made = registry.compose("fedavg+fedyogi@released", {"fedyogi": values})
    assert follow(made, [0.3]) == pytest.approx([1 - 5 * 0.3])
    assert follow(made, [-0.3]) == pytest.approx([1 + 0.01 * 0.03 / (0.3 * 0.002**0.5)], rel=0.02)


def test_only_parts_with_divergences_have_a_released_form() -> None:
    with refused(key="fidelity", value="fedavgm@released"):
        registry.compose("fedavg+fedavgm@released")


def test_momentum() -> None:
    assert follow(FedAvgM(lr=0.5, momentum=0.8), [1.0, 1.0]) == pytest.approx([0.5, 0.5 - 0.9])


def test_plain_averaging_moves_by_the_mean() -> None:
    assert follow(ServerOptimizer(), [0.25]) == [0.75]
