"""Optimizers against their rules, in place and as functions, and whose state they go on with."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.optim import (
    Optimizer,
    adam,
    adaptive,
    forgetful,
    gradient_weight,
    sgd,
    shifted,
)
from fedrepro.support.rng import stream

RATES = (0.1, 0.03, 0.2, 0.05)
# Its rule: momentum, weight decay; for Adam beta1, beta2, weight decay and epsilon.
OPTIMIZERS: dict[str, tuple[Optimizer, tuple[float, ...]]] = {
    "sgd": (sgd(), (0, 0)),
    "decay": (sgd(0, 0.3), (0, 0.3)),
    "momentum": (sgd(0.8, 0.2), (0.8, 0.2)),
    "adam": (adam(), (0.9, 0.999, 0, 1e-8)),
    "adam_decay": (adam(0.5, 0.7, 0.3, 1e-2), (0.5, 0.7, 0.3, 1e-2)),
}


def drawn(seed: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Leaves of equal shapes, one of a single number, and one in another order of memory."""
    rng = stream(seed, "optimizers")
    shapes = {"a": (3, 3), "b": (3, 3), "one": (), "image": (2, 3, 2, 2)}
    made = {
        name: torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }
    made["image"] = made["image"].to(memory_format=torch.channels_last)
    return made


def by_hand(name: str, rule: tuple[float, ...]) -> Tensor:
    """A leaf after all steps: SGD as in PyTorch, Adam as in Kingma and Ba's Algorithm 1."""
    w = drawn(0)[name]
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for number, rate in enumerate(RATES):
        g = drawn(number + 1)[name]
        if len(rule) == 2:
            momentum, decay = rule
            m = momentum * m + g + decay * w
            w = w - rate * m
            continue
        beta1, beta2, decay, epsilon = rule
        g = g + decay * w
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        steps = number + 1
        w = w - rate * (m / (1 - beta1**steps)) / ((v / (1 - beta2**steps)) ** 0.5 + epsilon)
    return w


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("in_place", [False, True, None], ids=["pure", "in place", "in turn"])
def test_steps_are_those_of_the_rule(name: str, in_place: bool | None) -> None:
    """The state goes on where the other way, or another call, has left it."""
    optimizer, rule = OPTIMIZERS[name]
    assert optimizer.in_place is not None
    params = drawn(0)
    state = optimizer.init(params)
    for number, rate in enumerate(RATES):
        gradients = drawn(number + 1)
        here = number % 2 == 0 if in_place is None else in_place
        if here:
            move = optimizer.in_place(tree.leaves(params), tree.leaves(state))
            move(tree.leaves(gradients), rate)
        else:
            before = tree.copy(params)
            change, state = optimizer.update(gradients, state, params, rate)
            assert all(torch.equal(leaf, before[key]) for key, leaf in params.items())
            params = tree.add(params, change)
    for key, leaf in params.items():
        torch.testing.assert_close(leaf, by_hand(key, rule), rtol=1e-12, atol=1e-12)
    if "steps" in state:
        assert state["steps"].dtype == torch.float64 and float(state["steps"]) == len(RATES)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_a_method_reads_of_an_optimizer(momentum: float) -> None:
    for made in (sgd(momentum, 0.2), shifted(sgd(momentum, 0.2))):
        assert (made.momentum, made.weight_decay) == (momentum, 0.2)
    assert adam(weight_decay=0.2).weight_decay == 0.2
    assert shifted(sgd(momentum)) is not shifted(sgd(momentum, 0.5))


def test_a_shift_is_a_step_of_its_own_without_momentum_and_decay() -> None:
    plain, moved = sgd(0.9, 0.1), shifted(sgd(0.9, 0.1))
    params, shift = drawn(0), drawn(9)
    one, other = plain.init(params), {**moved.init(params), "shift": shift}
    for number, rate in enumerate(RATES):
        change, one = plain.update(drawn(number), one, params, rate)
        further, other = moved.update(drawn(number), other, params, rate)
        for name, leaf in further.items():
            torch.testing.assert_close(leaf, change[name] - rate * shift[name])


def test_a_forgetful_optimizer_begins_anew_at_each_step() -> None:
    made = forgetful(sgd(0.9, 0.1))
    state = made.init(drawn(0))
    for number in range(3):
        change, state = made.update(drawn(number), state, drawn(5), 0.1)
        first, _ = sgd(0.9, 0.1).update(drawn(number), sgd(0.9).init(drawn(0)), drawn(5), 0.1)
        assert state == {} and torch.equal(change["a"], first["a"])


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_weight_of_a_gradient_is_counted_step_by_step(momentum: float) -> None:
    """FedNova's a_i: what all gradients together have contributed after so many steps."""
    velocity, total, weights = 0.0, 0.0, []
    for _ in range(9):
        velocity = momentum * velocity + 1
        total += velocity
        weights.append(total)
    for steps, weight in enumerate(weights, 1):
        for given in (steps, torch.tensor(steps), torch.tensor(float(steps))):
            made = gradient_weight(given, momentum)
            assert made.dtype == torch.float64 and float(made) == pytest.approx(weight, rel=1e-12)


@pytest.mark.parametrize("initial", [None, 0.0, 0.3])
def test_where_an_accumulator_starts(initial: float | None) -> None:
    made = adaptive(lambda v, g: v, 0.9, 0.2, initial)
    state = made.init({"w": torch.zeros(2, 3)})
    wanted = 0.2**2 if initial is None else initial
    assert torch.equal(state["v"]["w"], torch.full((2, 3), wanted))
    assert not state["m"]["w"].any()


# --- trees ---------------------------------------------------------------------------------------
def test_leaves_come_in_the_order_of_another_tree() -> None:
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    what = {"z": {"b": one, "a": two}, "y": three, "x": {}}
    order = {"y": three, "z": {"a": two, "b": one}}
    assert [len(leaf) for leaf in tree.leaves(what)] == [1, 2, 3]
    assert [len(leaf) for leaf in tree.leaves_as(what, order)] == [3, 2, 1]
    more = {"new": torch.ones(5), **what, "deep": {"new": torch.ones(4)}}
    assert [len(leaf) for leaf in tree.leaves_as(more, order)] == [3, 2, 1, 5, 4]
    # The order of a level with other names says nothing of it, but does of those below.
    state = {"v": {"z": {"b": one, "a": two}, "y": three}, "m": {"y": three}}
    made = tree.ordered_as(state, order)
    assert [*made] == ["v", "m"] and [*made["v"]] == ["y", "z"] and [*made["v"]["z"]] == ["a", "b"]
    assert tree.ordered_as(one, order) is one


def test_trees_are_told_apart_by_shape_type_and_order_of_memory() -> None:
    made = torch.ones(2, 3)
    trees: list[Any] = [
        {"a": made}, {"b": made}, {"a": {"a": made}}, {"a": made.double()}, {"a": made.T.clone()},
        {"a": torch.ones(3, 2).T}, {"a": made, "b": made}, {}, made,
    ]  # fmt: skip
    for one, other in itertools.combinations(trees, 2):
        assert tree.signature(one) != tree.signature(other)
    assert tree.signature({"a": made}) == tree.signature({"a": torch.zeros(2, 3)})


def test_sums_sizes_and_norms_have_the_types_of_their_leaves() -> None:
    what = {
        "half": torch.tensor([[1.0], [3.0]], dtype=torch.float16),
        "double": torch.tensor([[1.0, -4.0], [2.0, 3.0]], dtype=torch.float64),
        "rows": torch.arange(4).reshape(2, 2).to(torch.int16),
    }
    assert tree.size_in_bytes(what) == 2 * 2 + 4 * 8 + 4 * 2 and tree.numel(what) == 10
    floats = {name: what[name] for name in ("half", "double")}
    third = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    summed = tree.weighted_sum(floats, third)
    assert summed["half"].dtype == torch.float16
    torch.testing.assert_close(summed["double"], third @ what["double"], rtol=1e-15, atol=0)
    lengths = tree.norms({"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([[2.0]])})
    assert lengths.tolist() == [5, 2]
    assert tree.subtract({"a": what["double"]}, {"a": what["double"] * 3})["a"][0, 0] == -2
    assert tree.copy({}) == tree.subtract({}, {}) == {} and tree.copy({"a": {}}) == {"a": {}}
    flipped = what["double"].T
    copied = tree.copy({"a": flipped})["a"]
    assert copied.is_contiguous() and torch.equal(copied, flipped)
    assert copied.data_ptr() != flipped.data_ptr()
    assert [name for name, _ in tree.named({"a": {"b.c": flipped}, "a/b": flipped})] == [
        "a/b.c",
        "a/b",
    ]
