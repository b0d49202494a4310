"""Mini-batches of unequal clients: alone and side by side, mirrored and drawn anew."""

from functools import partial

import pytest
import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.descent import scan
from fedrepro.engine.steps import (
    Steps,
    count,
    enough_epochs,
    epochs_of,
    samples_of,
    shuffle,
    side_by_side,
    some_epochs,
)
from fedrepro.support.rng import stream
from support.refusals import refused

SIZES, BATCH, EPOCHS = (3, 7, 1, 6), 3, 3
STEPS = [-(-size // BATCH) for size in SIZES]


class Images:
    """Images of 1 x 2 x 3 pixels, all of which differ, and their rows as targets."""

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        pixels = torch.arange(6, dtype=torch.float64).reshape(1, 2, 3) / 10
        return rows[..., None, None, None] + pixels, rows


def again(seed: int, rows: Tensor) -> Tensor:
    """Inputs drawn anew: those of another epoch are others."""
    return 100 * seed + Images().at(rows)[0]


def client(place: int, flips: bool, redraws: bool) -> Steps:
    rng, first = stream(1, "steps", place), sum(SIZES[:place])
    orders = shuffle(torch.arange(first, first + SIZES[place]), EPOCHS, rng)
    masks = [torch.rand(SIZES[place], generator=rng) < 0.5 for _ in range(EPOCHS)]
    seeds = [10 * place + epoch + 1 for epoch in range(EPOCHS)]
    total = STEPS[place] * EPOCHS
    return Steps(
        Images(),
        orders,
        BATCH,
        {"draw": {"n": torch.arange(total) + 1000 * place}},
        flips=masks if flips else [],
        redraws=[partial(again, seed) for seed in seeds] if redraws else [],
    )


def by_hand(steps: Steps, first: int, last: int) -> list[tuple[list[int], list[Tensor], int]]:
    """Targets, inputs and draw of the steps of some epochs, sample by sample."""
    found = []
    for epoch in range(first, last):
        order = steps.orders[epoch].tolist()
        images = []
        for place, row in enumerate(order):
            x = steps.redraws[epoch](torch.tensor(row)) if steps.redraws else None
            x = Images().at(torch.tensor(row))[0] if x is None else x
            mirrored = bool(steps.flips) and bool(steps.flips[epoch][place])
            images.append(x[..., [2, 1, 0]] if mirrored else x)
        for begin in range(0, len(order), BATCH):
            draw = int(steps.drawn["draw"]["n"][epoch * -(-len(order) // BATCH) + begin // BATCH])
            found.append((order[begin : begin + BATCH], images[begin : begin + BATCH], draw))
    return found


@pytest.mark.parametrize("redraws", [False, True], ids=["stored", "redrawn"])
@pytest.mark.parametrize("flips", [False, True], ids=["as they are", "mirrored"])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (0, 1), (1, 3), (2, 3)])
def test_steps_are_those_by_hand(flips: bool, redraws: bool, first: int, last: int) -> None:
    """Whichever client is the longest; what pads another changes no number of it."""
    cohort = [client(place, flips, redraws) for place in range(len(SIZES))]
    whole = side_by_side(cohort)
    assert whole["real"].dtype == torch.float64 and whole["x"].dtype == torch.float64
    assert whole["real"].shape == (len(SIZES), EPOCHS * max(STEPS), BATCH)
    for place, steps in enumerate(cohort):
        wanted = by_hand(steps, first, last)
        alone = some_epochs(steps, EPOCHS, first, last)
        beside = some_epochs(tree.take(whole, place), EPOCHS, first, last)
        assert isinstance(alone, Steps) and isinstance(beside, dict)
        assert len(alone) == int(count(beside)) == count(alone) == len(wanted)
        live = [at for at in range(len(beside["real"])) if beside["real"][at].any()]
        for at, batch, (targets, images, draw) in zip(live, alone, wanted, strict=True):
            real = beside["real"][at].bool()
            assert real.sum() == len(targets)
            for step, mask in ((batch, slice(None)), (tree.take(beside, at), real)):
                assert step["y"][mask].tolist() == targets
                assert torch.equal(step["x"][mask], torch.stack(images))
                assert int(step["draw"]["n"]) == draw
        if (first, last) == (1, 3):  # a part of a part
            inner = some_epochs(alone, 2, 1, 2)
            assert isinstance(inner, Steps)
            draws = [int(step["draw"]["n"]) for step in inner]
            assert draws == [draw for _, _, draw in by_hand(steps, 2, 3)]


@pytest.mark.parametrize("redraws", [False, True], ids=["stored", "redrawn"])
def test_all_samples_of_a_client_each_once(redraws: bool) -> None:
    cohort = [client(place, False, redraws) for place in range(len(SIZES))]
    whole = side_by_side(cohort)
    for place, steps in enumerate(cohort):
        for form in (steps, tree.take(whole, place)):
            x, y, real = samples_of(form, EPOCHS)
            there = real.bool()
            assert y[there].tolist() == steps.orders[0].tolist()
            images = torch.cat([torch.stack(images) for _, images, _ in by_hand(steps, 0, 1)])
            assert torch.equal(x[there], images)


def test_a_chain_of_steps_is_carried_on_over_real_ones_alone() -> None:
    """In order, also over a last mini-batch of one sample; what it begins with stays as it is."""

    def step(carry: tree.Tree, batch: tree.Tree) -> tree.Tree:
        return {"value": 0.5 * carry["value"] + batch["x"][0, 0, 0, 0], "steps": carry["steps"] + 1}

    cohort = [client(place, False, False) for place in range(len(SIZES))]
    whole = side_by_side(cohort)
    begun = {"value": torch.tensor(4.0, dtype=torch.float64), "steps": torch.tensor(0)}
    for place, steps in enumerate(cohort):
        value = 4.0
        for batch in steps:
            value = 0.5 * value + float(batch["x"][0, 0, 0, 0])
        for form in (steps, tree.take(whole, place)):
            found = scan(step, begun, form)
            assert (float(found["value"]), int(found["steps"])) == (value, len(steps))
    assert (float(begun["value"]), int(begun["steps"])) == (4, 0)


def test_whole_numbers_are_marked_in_the_default_type() -> None:
    """Words have no type of their own for a mark; parameters have the default one."""

    class Words:
        def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
            return rows.int(), rows

    made = side_by_side([Steps(Words(), [torch.arange(3)], 2, {})])
    assert made["x"].dtype == torch.int32 and made["real"].dtype == torch.float32
    assert made["real"].tolist() == [[[1, 1], [1, 0]]]


def test_epochs_that_a_hyperparameter_asks_for() -> None:
    assert [epochs_of("m", "k", None, epochs) for epochs in (1, 4, 5, 20)] == [1, 4, 5, 5]
    assert epochs_of("m", "k", 7, 7) == 7 and epochs_of("m", "k", 2, 20) == 2
    enough_epochs("m", "k", 4, 4)
    with refused(key="k", value=8, names="7"):
        epochs_of("m", "k", 8, 7)
