"""The time and memory of one decision: AAggFF-D up to a million clients, AAggFF-S up to 200.

`make bench` runs this. D is linear in the number of clients: a million of them, 100 sampled, in
under 50 ms on one core and under 100 MB. Synthetic losses; only those of participants are kept.
"""

import statistics
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.test_engine import conditions, record
from fedrepro.methods.adaptive_weighting.rule import Decider, Observed
from fedrepro.papers.aaggff.replay import play, rule_of

RESULTS = Path("results/bench/aggregation.json")
SAMPLED, ROUNDS = 100, 15


def synthetic(clients: int, sampled: int, rounds: int) -> Iterator[Observed]:
    """Losses that shrink over rounds and differ from client to client."""
    rng = np.random.default_rng(1)
    for round in range(rounds):
        # Drawn with replacement and made distinct: choosing without is linear in all clients.
        cohort = np.unique(rng.integers(0, clients, sampled)) if sampled < clients else None
        cohort = np.arange(clients) if cohort is None else cohort
        hardness = 0.5 + (cohort * 2654435761 % 1000) / 1000
        losses = hardness * rng.exponential(size=len(cohort)) / np.sqrt(round + 1)
        yield Observed(round, clients, cohort, losses, np.ones(len(cohort)))


def seconds_per_decision(rule: Decider, clients: int, sampled: int) -> float:
    memory, spent = rule.memory(clients), []
    for seen in synthetic(clients, sampled, ROUNDS):
        start = time.process_time()
        memory = rule.decide(memory, seen).memory
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def bytes_per_decision(rule: Decider, clients: int, sampled: int) -> int:
    """The greatest memory that one decision takes beyond what it starts from, and both states."""
    first, second = synthetic(clients, sampled, 2)
    tracemalloc.start()
    memory = rule.decide(rule.memory(clients), first).memory
    tracemalloc.reset_peak()
    rule.decide(memory, second)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def measure(name: str, clients: int, sampled: int) -> tuple[float, int]:
    rule = rule_of(name)
    bytes_per_decision(rule, 10, 5 if sampled < clients else 10)  # imports what is needed
    seconds = seconds_per_decision(rule, clients, sampled)
    size = bytes_per_decision(rule, clients, sampled)
    entry = {
        "workload": f"{name}-{clients}",
        "executor": name,
        "clients": clients,
        "sampled": sampled,
        "seconds": seconds,
        "bytes": size,
        **conditions(),
    }
    record(RESULTS, entry)
    return seconds, size


@pytest.mark.parametrize("clients", [1_000, 10_000, 100_000, 1_000_000])
def test_aaggff_d(clients: int) -> None:
    seconds, size = measure("aaggff_d", clients, SAMPLED)
    assert seconds < 0.05 and size < 100e6


@pytest.mark.parametrize("clients", [4, 11, 50, 100, 200])
def test_aaggff_s(clients: int) -> None:
    measure("aaggff_s", clients, clients)


def test_three_thousand_rounds_of_a_million_and_a_half_clients() -> None:
    clients, rounds = 1_500_000, 3_000
    start = time.process_time()
    for played in play(rule_of("aaggff_d"), clients, synthetic(clients, SAMPLED, rounds)):
        last = played.decision
    seconds = time.process_time() - start
    assert abs(last.memory["decision"].sum() - 1) < 1e-9 and seconds < 300
    entry = {"workload": "replay-1500000x3000", "executor": "aaggff_d", "seconds": seconds}
    record(RESULTS, entry | conditions())
