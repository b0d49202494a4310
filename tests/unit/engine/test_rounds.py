"""A round's facts: who is asked, what hooks are told, what is drawn anew and what is recorded."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedrepro.check.world import SIZES, Memory, in_float64
from fedrepro.engine import tree
from fedrepro.engine.availability import Availability
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Training, sequential
from fedrepro.engine.method import METRICS, Method
from fedrepro.engine.round import (
    OfCohort,
    ask,
    begin,
    client_state_of,
    context_of,
    play_round,
    state_with_draws,
    steps_of,
    update_norms,
)
from support.worlds import federation


class Counts(Method):
    """Clients count their rounds, from a number of their own."""

    def learning_rate(self, ctx: Context, round: int) -> float:
        return ctx.schedule(round) / 2

    def init_client(self, ctx: Context, rng: torch.Generator) -> tree.Tree:
        return {"rounds": torch.rand(1, generator=rng, dtype=torch.float64)}

    def sample_round(self, ctx: Context, rng: torch.Generator) -> tree.Tree:
        return {"drawn": torch.rand(1, generator=rng)}

    def client_update(self, ctx: Context, message: Any, client_state: Any, steps: Any) -> Any:
        update, _ = super().client_update(ctx, message, {}, steps)
        numbers = {"first": client_state["rounds"][0], "drawn": client_state["drawn"][0]}
        return {**update, METRICS: numbers}, {"rounds": client_state["rounds"] + 1}

    def server_update(self, ctx: Context, server: Any, updates: Any, weights: Tensor) -> Any:
        assert METRICS not in updates
        after = super().server_update(ctx, server, updates, weights)
        return {**after, METRICS: {"largest": weights.max()}}


def test_two_rounds_are_recorded_as_they_were_played() -> None:
    world = federation(method=Counts(), cohort=4)
    server, states, seen = begin(world), Memory(), []
    for round in range(3):
        server, played = play_round(world, server, states, round)
        seen.append(played)
        sizes = torch.tensor([SIZES[client] for client in played.cohort], dtype=torch.float64)
        torch.testing.assert_close(played.weights.double(), sizes / sizes.sum())
        assert played.learning_rate == pytest.approx(0.1 * 0.99**round / 2)
        size = tree.size_in_bytes(server["params"])
        assert played.bytes_down == played.bytes_up == 4 * size
        assert METRICS not in server and METRICS not in played.updates
        assert float(played.reported_by_server["largest"]) == float(played.weights.max())
        assert played.reported_by_clients["first"].shape == (4,)
    drawn = torch.cat([played.reported_by_clients["drawn"] for played in seen])
    assert len({*drawn.tolist()}) == 12
    counts: dict[int, list[float]] = {}
    for played in seen:
        for client, number in zip(
            played.cohort, played.reported_by_clients["first"].tolist(), strict=True
        ):
            counts.setdefault(client, []).append(number)
    first = {client: numbers[0] for client, numbers in counts.items()}
    assert len({*first.values()}) == len(first)
    for client, numbers in counts.items():
        expected = [first[client] + number for number in range(len(numbers))]
        assert numbers == pytest.approx(expected)
        assert states.known[client].keys() == {"rounds"}
        assert float(states.known[client]["rounds"]) == pytest.approx(first[client] + len(numbers))


def test_hooks_are_told_the_facts_of_their_round() -> None:
    world = federation(cohort=4, rounds=9)
    world = replace(world, context=replace(world.context, flips=True))
    ctx = context_of(world, 3, [5, 1])
    assert ctx.cohort.tolist() == [5, 1] and ctx.sizes.tolist() == [SIZES[5], SIZES[1]]
    assert (ctx.total, ctx.round, ctx.cohort_size, ctx.batch_size) == (sum(SIZES), 3, 4, 8)
    assert (ctx.clients, ctx.rounds, ctx.epochs, ctx.flips, ctx.seed) == (6, 9, 2, True, 3)
    assert ctx.lr == pytest.approx(0.1 * 0.99**3) and ctx.initial is world.initial
    assert ctx.sizes.dtype == torch.float32
    with in_float64():
        assert context_of(world, 3, [5, 1]).sizes.dtype == torch.float64
    numbers = {
        (round, purpose): float(torch.rand(1, generator=replace(ctx, round=round).stream(purpose)))
        for round in (0, 1)
        for purpose in ("noise", "order")
    }
    assert len({*numbers.values()}) == 4
    again = torch.rand(1, generator=replace(ctx, round=1).stream("noise"))
    assert float(again) == numbers[1, "noise"]


def test_a_server_s_first_state_follows_from_the_seed() -> None:
    """Its weights and what it draws itself; the next round draws other numbers."""

    class Draws(Method):
        def init_server(self, ctx: Context, params: Any) -> tree.Tree:
            noise = torch.rand(2, generator=ctx.stream("noise"))
            return {**super().init_server(ctx, params), "noise": noise}

    worlds = [federation(method=Draws(), seed=seed) for seed in (3, 3, 4)]
    one, again, other = map(begin, worlds)
    for name, leaf in one["params"].items():
        assert torch.equal(leaf, again["params"][name])
        assert not torch.equal(leaf, other["params"][name])
    assert torch.equal(one["noise"], again["noise"])
    assert not torch.equal(one["noise"], other["noise"])


def test_a_part_of_a_cohort_has_the_same_steps_and_states() -> None:
    world = federation(method=Counts(), cohort=4)
    cohort = [4, 0, 2, 5]
    ctx = context_of(world, 1, cohort)
    known = Memory({2: {"rounds": torch.tensor([7.0])}})
    steps = OfCohort(cohort, partial(steps_of, world, ctx))
    states = OfCohort(cohort, partial(state_with_draws, world, ctx, known))
    for whole in (steps, states):
        part: Any = whole[1:3]  # type: ignore[index]
        assert isinstance(part, Sequence) and len(part) == 2 and len(whole) == 4
    for place in (0, 1):
        one, other = steps[1:3][place], steps[1 + place]
        assert all(torch.equal(a, b) for a, b in zip(one.orders, other.orders, strict=True))
        assert {*one.orders[0].tolist()} == {*world.clients.rows(cohort[1 + place]).tolist()}
        assert torch.equal(states[1:3][place]["drawn"], states[1 + place]["drawn"])
    assert float(states[2]["rounds"]) == 7  # type: ignore[call-overload]


def test_an_empty_state_is_none() -> None:
    """What a store holds of a client before it has a state."""
    world = federation(method=Counts())
    ctx = context_of(world, 0, [2])
    for memory in (Memory(), Memory({2: {}})):
        assert client_state_of(world, ctx, memory, 2).keys() == {"rounds"}


@pytest.mark.parametrize("partial", [0.0, 0.999])
def test_steps_of_each_epoch_and_round(partial: float) -> None:
    """The same samples in new orders, mirrored and drawn anew; a straggler's epochs are shorter."""
    made = federation(cohort=4)
    available = Availability(3, tuple(-(-size // 8) for size in SIZES), partial=partial)
    asked: list[int] = []

    def anew(seed: int, rows: Tensor) -> Tensor:
        asked.append(seed)
        return made.clients.samples.at(rows)[0]

    flipping = replace(made.context, flips=True)
    world = replace(made, context=flipping, availability=available, redraw=anew)
    seeds, layers, lengths = [], [], []
    for round, client in ((0, 3), (0, 0), (1, 3)):
        steps = steps_of(world, context_of(world, round, [client]), client)
        done = min(SIZES[client], 8 * available.steps_done(round, client))
        assert [len(order) for order in steps.orders] == [done, done]
        assert [len(mask) for mask in steps.flips] == [done, done]
        assert not torch.equal(*steps.orders) and len(steps) == 2 * math.ceil(done / 8)
        for order, redraw in zip(steps.orders, steps.redraws, strict=True):
            assert len({*order.tolist()}) == done
            redraw(order)
        layers.append(steps.layers_seed)
        lengths.append(done)
        seeds += asked[-2:]
    assert len({*seeds}) == 6 and len({*layers}) == 3
    assert partial == 0 or lengths[0] != lengths[2]


@pytest.mark.parametrize("size", [1, 3, 5, 6])
def test_who_is_asked(size: int) -> None:
    world = federation(cohort=size)
    cohorts = [ask(world, round) for round in range(30)]
    assert all(cohort == sorted({*cohort}) and len(cohort) == size for cohort in cohorts)
    assert {client for cohort in cohorts for client in cohort} == {*range(6)}
    assert len({*map(tuple, cohorts)}) > 1 or size == 6
    given = replace(world, sample_cohort=lambda round: [5, round % 5])
    assert ask(given, 7) == ([5, 2] if size < 6 else [*range(6)])


def test_norms_are_of_all_of_a_client_s_update() -> None:
    delta = {"a": torch.tensor([[3.0], [0.0]]), "b": {"c": torch.tensor([[[4.0, 0]], [[1, -1]]])}}
    assert update_norms({"delta": delta, "else": torch.ones(2, 9)}) == pytest.approx([5, 2**0.5])
    nothing = update_norms({"else": torch.ones(3, 2)})
    assert len(nothing) == 3 and all(map(math.isnan, nothing))


def test_an_attack_sees_what_clients_sent_and_all_else_what_it_made_of_it() -> None:
    """And an executor gets the cohort in its order."""
    orders: list[list[int]] = []

    def watched(training: Training) -> Any:
        orders.append(training.ctx.cohort.tolist())
        return sequential(training)

    def doubled(ctx: Context, updates: tree.Tree) -> tree.Tree:
        assert METRICS not in updates
        return {"delta": tree.scale(updates["delta"], 2.0)}

    world = federation(method=Counts(), cohort=3, execute=watched)
    server, plain = play_round(world, begin(world), Memory(), 0)
    moved, seen = play_round(replace(world, attack=doubled), begin(world), Memory(), 0)
    assert orders == [plain.cohort] * 2
    for name, leaf in seen.updates["delta"].items():
        assert torch.equal(leaf, 2 * plain.updates["delta"][name])
        first = world.initial[name]
        torch.testing.assert_close(
            moved["params"][name] - first, 2 * (server["params"][name] - first)
        )
    assert seen.reported_by_clients.keys() == plain.reported_by_clients.keys() == {"first", "drawn"}
