"""Availability: who is asked, whose updates arrive, and how many steps each client gets done."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrepro.check.world import SIZES, Memory, play
from fedrepro.engine import tree
from fedrepro.engine.availability import Availability
from fedrepro.engine.executors import Executor, Parallel, eager, unrolled
from fedrepro.engine.round import Federation, ask, begin, choose_cohort, play_round
from fedrepro.engine.steps import steps_per_epoch
from support.closeness import assert_close
from support.worlds import federation

STEPS = tuple(steps_per_epoch(size, 8) for size in SIZES)  # 3, 2, 1, 4, 2, 2


def many(clients: int = 1000, **keys: Any) -> Availability:
    return Availability(1, (4,) * clients, **keys)


def world(name: str = "fedavg", execute: Executor | None = None, **keys: Any) -> Federation:
    made = federation(name, cohort=5, **({"execute": execute} if execute else {}))
    return replace(made, availability=Availability(made.context.seed, STEPS, **keys))


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto"])
def test_where_everyone_is_available_every_bit_stays(name: str) -> None:
    assert_close(play(world(name))[0], play(federation(name, cohort=5))[0], 0)


def test_clients_drop_out_with_their_probability() -> None:
    shares = torch.stack([many(dropout=0.3).shares(round) for round in range(20)])
    assert abs(float((shares == 0).double().mean()) - 0.3) < 0.02
    assert {*shares.flatten().tolist()} == {0.0, 1.0}
    assert len({tuple(each.tolist()) for each in shares}) == 20  # drawn anew in each round


def test_partial_work_is_uniform_over_numbers_of_steps() -> None:
    slow = many(partial=0.6)
    done = torch.tensor([slow.steps_done(0, client) for client in range(1000)])
    counts = torch.bincount(done, minlength=5) / 1000
    assert counts[0] == 0
    torch.testing.assert_close(
        counts[1:], torch.tensor([0.15, 0.15, 0.15, 0.55]), atol=0.03, rtol=0
    )


def test_a_deadline_by_hand() -> None:
    """Equal speeds: the mean of 3, 2, 1, 4, 2, 2 steps is 7/3, in time 1."""
    late = Availability(1, STEPS, deadline=0.9)
    torch.testing.assert_close(late.times(), torch.tensor(STEPS).double() * 3 / 7)
    assert late.arriving(0, range(6)) == [1, 2, 4, 5]
    cut = replace(late, late="partial")
    assert cut.arriving(0, range(6)) == [*range(6)]
    assert [cut.steps_done(0, client) for client in range(6)] == [3, 2, 1, 3, 2, 2]  # 2.1 each


def test_speeds_are_log_normal_and_the_client_s_own() -> None:
    found = many(deadline=1.0, spread=0.5).times()
    assert abs(float(found.log().std()) - 0.5) < 0.05 and abs(float(found.log().mean())) < 0.05


def test_half_of_all_clients_are_awake_each_for_half_of_a_day() -> None:
    diurnal = many(period=10)
    awake = torch.zeros(10, 1000)
    for round in range(10):
        awake[round, diurnal.awake(round, range(1000))] = 1
    assert {*awake.sum(0).tolist()} == {5.0}
    assert bool(((awake.mean(1) - 0.5).abs() < 0.06).all())
    assert diurnal.awake(3, range(1000)) == diurnal.awake(13, range(1000))
    changes = (awake != awake.roll(1, 0)).sum(0)
    assert {*changes.tolist()} == {2}  # one stretch


def test_cohorts_are_drawn_from_those_who_are_awake() -> None:
    diurnal = world(period=4)
    for round in range(8):
        awake = {*diurnal.availability.awake(round, range(6))}  # type: ignore[union-attr]
        cohort = choose_cohort(diurnal, round)
        assert {*cohort} <= awake and len(cohort) == min(5, len(awake))
        assert cohort == sorted(cohort)


@pytest.mark.parametrize("period", [2, 5, None])
def test_a_released_stream_s_sleepers_are_replaced_by_others_who_are_awake(
    period: int | None,
) -> None:
    """Those of the stream who are awake come first; without a period they are all."""
    streamed = [[3, 0, 5], [1, 2, 4], [5, 4, 3], [0, 1, 2]]
    made = world(period=period)
    three = replace(made.context, cohort_size=3)
    made = replace(made, context=three, sample_cohort=lambda round: streamed[round])
    assert made.availability
    for round, drawn in enumerate(streamed):
        awake, asked = made.availability.awake(round, range(6)), ask(made, round)
        assert len(asked) == min(3, len(awake)) and {*asked} <= {*awake}
        assert {*drawn} & {*awake} <= {*asked}
        assert period or asked == sorted(drawn)


def test_a_round_waits_for_one_client_if_all_drop_out() -> None:
    server, states, _ = play(world(dropout=1 - 1e-12), until=3)
    assert len(states.known) in (1, 2, 3)
    assert not torch.equal(server["params"]["head.weight"], federation().initial["head.weight"])


def test_who_drops_out_received_the_model_and_sends_nothing() -> None:
    dropping = world(dropout=0.5)
    server = begin(dropping)
    for round in range(4):
        _, played = play_round(dropping, server, Memory(), round)
        size = tree.size_in_bytes(server["params"])
        assert played.bytes_down == 5 * size
        assert played.bytes_up == len(played.cohort) * size
        assert played.weights.shape == (len(played.cohort),)
        torch.testing.assert_close(played.weights.sum(), torch.tensor(1.0))


def test_fewer_steps_are_taken_as_if_the_client_had_fewer_mini_batches() -> None:
    """FedNova's weights are the numbers of steps, without momentum."""
    made = world("fednova", partial=0.999)
    made = replace(
        made, context=replace(made.context, optimizer=federation(momentum=0.0).context.optimizer)
    )
    _, played = play_round(made, begin(made), Memory(), 0)
    assert made.availability
    wanted = [2.0 * made.availability.steps_done(0, client) for client in played.cohort]
    assert played.updates["weight"].tolist() == wanted
    assert wanted != [2.0 * STEPS[client] for client in played.cohort]


KEYS: dict[str, Any] = {
    "dropout": 0.2, "partial": 0.5, "deadline": 1.2, "spread": 0.5,
    "late": "partial", "period": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fednova", "ditto", "superfed_mm"])
def test_executors_agree(name: str) -> None:
    one = play(world(name, **KEYS))[0]
    assert_close(one, play(world(name, Parallel(2), **KEYS))[0], 0)
    for execute in (eager, unrolled):
        assert_close(one, play(world(name, execute, **KEYS))[0], 1e-9)


def test_a_run_that_goes_on_is_the_same() -> None:
    half = play(world("scaffold", **KEYS), until=3)
    assert_close(
        play(world("scaffold", **KEYS), state=half)[0], play(world("scaffold", **KEYS))[0], 0
    )
