"""Attacks: what arrives at the server, and that nothing else changes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrepro.check.world import Memory, play
from fedrepro.engine import tree
from fedrepro.engine.attacks import Attack, attackers
from fedrepro.engine.executors import Executor, Parallel, eager, sequential, unrolled
from fedrepro.engine.round import Round, begin, play_round
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation

CLIENTS = frozenset({1, 4})


def first_round(attack: Attack | None, name: str = "fedavg") -> Round:
    world = replace(federation(name, cohort=6), attack=attack)
    return play_round(world, begin(world), Memory(), 0)[1]


def test_attackers_are_a_share_of_all_clients_and_follow_from_the_seed() -> None:
    assert attackers(1, 10, 0.25) == attackers(1, 10, 0.25)
    assert len(attackers(1, 10, 0.25)) == 2 and attackers(1, 10, 0.0) == frozenset()
    assert len({attackers(seed, 10, 0.2) for seed in range(20)}) > 10
    assert attackers(1, 10, 0.3) == attackers(1, 10, 0.2) | attackers(1, 10, 0.3)
    assert len(attackers(1, 10, 0.3)) == 3  # 0.3 * 10 is 2.9999999999999996


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("sign_flip", lambda own, honest: -2.0 * own),
        ("inner_product", lambda own, honest: -2.0 * honest.mean(0)),
    ],
)
def test_what_arrives_by_hand(
    kind: str, sent: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    before, after = (
        first_round(attack).updates["delta"] for attack in (None, Attack(kind, 2.0, CLIENTS))
    )
    for name, leaf in after.items():
        for client in range(6):
            own, honest = before[name][client], before[name][[0, 2, 3, 5]]
            wanted = sent(own, honest) if client in CLIENTS else own
            torch.testing.assert_close(leaf[client], wanted)


def test_gaussian_has_its_standard_deviation_and_differs_by_round_and_client() -> None:
    ctx_of = federation(cohort=6)
    world = replace(ctx_of, attack=Attack("gaussian", 3.0, CLIENTS))
    server, states = begin(world), Memory()
    drawn = []
    for round in range(4):
        _, played = play_round(world, server, states, round)
        deltas = torch.cat([leaf.flatten(1) for leaf in tree.leaves(played.updates["delta"])], 1)
        drawn.extend(deltas[sorted(CLIENTS)])
    values = torch.stack(drawn)
    assert abs(float(values.std()) / 3 - 1) < 0.1 and abs(float(values.mean())) < 0.3
    assert len(values.unique()) == values.numel()


def test_without_honest_clients_the_mean_is_of_all() -> None:
    attack = Attack("inner_product", 1.0, frozenset(range(6)))
    before, after = (first_round(each).updates["delta"] for each in (None, attack))
    for name, leaf in after.items():
        torch.testing.assert_close(leaf, (-before[name].mean(0)).expand_as(leaf))


@pytest.mark.parametrize("kind", ["sign_flip", "gaussian", "inner_product"])
@pytest.mark.parametrize(
    ("execute", "tolerance"),
    [(Parallel(2), 0), (eager, 1e-9), (unrolled, 1e-9)],
    ids=["parallel", "eager", "unrolled"],
)
def test_every_executor_sees_the_same_attack(
    kind: str, execute: Executor, tolerance: float
) -> None:
    attack = Attack(kind, 1.0, CLIENTS)
    of = partial(federation, "median+fedavg", cohort=5)
    one, other = (
        play(replace(of(execute=each), attack=attack), until=3)[0] for each in (sequential, execute)
    )
    assert_close(one["params"], other["params"], tolerance)


def test_without_attackers_every_bit_stays() -> None:
    attack = Attack("sign_flip", 1.0, frozenset())
    one, other = (
        play(replace(federation("scaffold"), attack=each), until=3)[0] for each in (None, attack)
    )
    assert_close(one, other, 0)


def test_a_method_that_sends_no_delta_is_refused_in_one_line() -> None:
    with refused(key="attack", file="setting", value="sign_flip"):
        first_round(Attack("sign_flip", 1.0, CLIENTS), "fednova")
