"""Every draw of a client is its own: clients with equal samples still draw differently."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from fedrepro.check.world import Data, Memory, data
from fedrepro.engine import tree
from fedrepro.engine.round import Federation, choose_cohort, context_of, state_with_draws, steps_of
from support.image_worlds import energies
from support.worlds import federation

CLIENTS, ROUNDS = 3, 3


def twins(world: Federation) -> Federation:
    """Clients with the same samples, which mirror images."""
    assert isinstance(world.clients, Data)
    largest = max(world.clients.tensors, key=lambda pair: len(pair[1]))
    context = replace(world.context, clients=CLIENTS)
    return replace(
        world,
        clients=Data([largest] * CLIENTS),
        context=replace(context, cohort_size=CLIENTS, flips=True),
    )


def bits(*leaves: Tensor) -> Hashable:
    return tuple(number for leaf in leaves for number in leaf.flatten().tolist())


def order(world: Federation, t: int, client: int) -> Hashable:
    ctx = context_of(world, t, [client])
    first = int(world.clients.rows(client)[0])
    return bits(*(each - first for each in steps_of(world, ctx, client).orders))


def order_of_epochs(world: Federation, t: int, client: int) -> Hashable:
    """Of the last epoch, which is not that of the first."""
    ctx = context_of(world, t, [client])
    orders = steps_of(world, ctx, client).orders
    assert not torch.equal(orders[0], orders[-1])
    return bits(orders[-1] - world.clients.rows(client)[0])


def flips(world: Federation, t: int, client: int) -> Hashable:
    masks = steps_of(world, context_of(world, t, [client]), client).flips
    assert not torch.equal(masks[0], masks[-1])
    return bits(*masks)


def layers(world: Federation, t: int, client: int) -> Hashable:
    return steps_of(world, context_of(world, t, [client]), client).layers_seed


def drawn(world: Federation, t: int, client: int) -> Hashable:
    return bits(*tree.leaves(steps_of(world, context_of(world, t, [client]), client).drawn))


def fresh(world: Federation, t: int, client: int) -> Hashable:
    """What a method draws once per round."""
    state = state_with_draws(world, context_of(world, t, [client]), Memory(), client)
    return bits(*tree.leaves(state["start"]))


def own(world: Federation, t: int, client: int) -> Hashable:
    """A client's own first weights, whenever it takes part for the first time."""
    state = state_with_draws(world, context_of(world, t, [client]), Memory(), client)
    return bits(*tree.leaves(state["params"]))


@pytest.mark.parametrize("draw", [order, order_of_epochs, flips, layers, drawn, fresh])
def test_draws_of_two_clients_or_two_rounds_differ(
    draw: Callable[[Federation, int, int], Hashable],
) -> None:
    world = twins(energies(rounds=ROUNDS))
    every = [draw(world, t, client) for t, client in product(range(ROUNDS), range(CLIENTS))]
    assert len(set(every)) == ROUNDS * CLIENTS


def test_first_states_differ_between_clients_only() -> None:
    world = twins(energies(rounds=ROUNDS))
    every = {own(world, t, client) for t, client in product(range(ROUNDS), range(CLIENTS))}
    assert len(every) == CLIENTS


def test_cohorts_and_the_server_s_draws_differ_between_rounds() -> None:
    world = federation(cohort=3)
    assert len(data().sizes) == 6
    assert len({tuple(choose_cohort(world, t)) for t in range(6)}) > 3
    contexts = [context_of(world, t, [0]) for t in range(ROUNDS)]
    firsts = [
        float(torch.rand((), generator=ctx.stream(purpose)))
        for ctx, purpose in product(contexts, ("one", "other"))
    ]
    assert len(set(firsts)) == 2 * ROUNDS
