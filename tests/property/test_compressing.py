"""Compressed updates: degenerate cases, what is sent, and what is still owed."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.check.world import CLASSES, FEATURES, Memory, play
from fedrepro.engine import tree
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.round import Round, begin, play_round
from fedrepro.methods import registry
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.quantised import BUCKET, Quantised
from fedrepro.methods.top_k import TopK
from fedrepro.models.classifier import Classifier
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.refusals import Fault, refused
from support.worlds import federation

ENTRIES = 6 * 8 + 8 + 8 * 3 + 3


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedper", "fedavg+fedadam"])
def test_top_k_of_everything_is_the_inner_method_to_the_bit(name: str) -> None:
    ours, states, _ = play(federation(f"top_k+{name}", {"top_k": {"share": 1.0}}))
    theirs, _, _ = play(federation(name))
    assert_close(ours, theirs, 0)
    for state in states.known.values():
        assert not any(leaf.any() for leaf in tree.leaves(state["error"]))


def test_top_k_sends_the_largest_entries_over_all_layers() -> None:
    found = TopK(share=0.4).compressed(torch.tensor([1.0, -5.0, 0.5, 3.0, -2.0]), {})
    assert found.tolist() == [0.0, -5.0, 0.0, 3.0, 0.0]
    world = federation("top_k+fedavg", {"top_k": {"share": 0.1}}, cohort=6)
    _, played = play_round(world, begin(world), Memory(), 0)
    flat = torch.cat([leaf.flatten(1) for leaf in tree.leaves(played.updates["delta"])], 1)
    assert {*(flat != 0).sum(1).tolist()} == {math.ceil(0.1 * ENTRIES)}


@pytest.mark.parametrize("method", [TopK(share=0.1), Quantised(bits=3)], ids=str)
def test_what_is_sent_and_what_is_owed_add_up(method: Method) -> None:
    """C(delta + e) plus the new e is delta plus the old e."""
    world = federation(method=method, cohort=6)
    server, states = begin(world), Memory()
    for round in range(3):
        before = {client: state["error"] for client, state in states.known.items()}
        plain = federation(method=FedAvg(), cohort=6)
        _, made = play_round(plain, server, Memory(), round)
        server, played = play_round(world, server, states, round)
        for client in range(6):
            owed = tree.take(made.updates["delta"], client)
            if before:
                owed = tree.add(owed, before[client])
            sent = tree.take(played.updates["delta"], client)
            assert_close(tree.add(sent, states.known[client]["error"]), owed, 1e-12)


def test_quantised_numbers_are_levels_and_their_mean_is_right() -> None:
    method, draws = Quantised(bits=3, error_feedback=False), 4000
    vector = torch.randn(700, generator=stream(1, "x"), dtype=torch.float64)
    rng = stream(2, "y")
    drawn = (torch.rand(700, generator=rng) for _ in range(draws))
    found = torch.stack([method.compressed(vector, {"rounding": each}) for each in drawn])
    norms = torch.cat([vector[:BUCKET].norm().expand(BUCKET), vector[BUCKET:].norm().expand(188)])
    levels = found / norms * 3
    torch.testing.assert_close(levels, levels.round(), atol=1e-9, rtol=0)
    assert float(levels.abs().max()) <= 3
    error = (found.mean(0) - vector).abs() / (norms / 3)
    assert float(error.max()) < 3 / math.sqrt(draws)  # a level's deviation is at most a half


@pytest.mark.parametrize("entries", [1, 15, BUCKET, 2 * BUCKET])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_with_error_feedback_less_is_lost_than_given(bits: int, entries: int) -> None:
    """E |C(v) - v|^2 <= (1 - 1 / (1 + bound)) |v|^2, without which errors would grow."""
    method, rng = Quantised(bits=bits), stream(3, "z")
    vector = torch.randn(entries, generator=rng, dtype=torch.float64)
    lost, sum_of_all = [], torch.zeros(entries, dtype=torch.float64)
    for _ in range(300):
        sent = method.compressed(vector, {"rounding": torch.rand(entries, generator=rng)})
        lost.append((sent - vector).square().sum() / vector.square().sum())
        sum_of_all += sent
    dimension, levels = min(entries, BUCKET), 2 ** (bits - 1) - 1
    bound = min(dimension / levels**2, math.sqrt(dimension) / levels)  # Lemma 3.1
    assert float(torch.stack(lost).mean()) <= 1 - 1 / (1 + bound) + 0.01
    # The mean is the vector, shrunk by no more than that: 300 draws leave some percent of noise.
    along = float(sum_of_all @ vector) / 300 / float(vector.square().sum())
    assert along == pytest.approx(1 / (1 + bound), abs=0.05)


def test_many_bits_without_feedback_are_nearly_the_inner_method() -> None:
    values = {"quantised": {"bits": 16, "error_feedback": False}}
    ours, _, _ = play(federation("quantised+fedavg", values))
    theirs, _, _ = play(federation("fedavg"))
    assert_close(ours["params"], theirs["params"], 1e-3)


def test_of_zeros_zeros_are_sent() -> None:
    for method in (TopK(), Quantised()):
        assert method.compressed(torch.zeros(5), {"rounding": torch.zeros(5)}).tolist() == [0.0] * 5


@pytest.mark.parametrize(
    ("name", "values", "each"),
    [
        ("top_k", {"share": 0.1}, 9 * (8 + 4)),
        ("top_k", {"share": 1.0}, ENTRIES * (8 + 4)),
        ("quantised", {"bits": 8}, ENTRIES + 8),
        ("quantised", {"bits": 3}, math.ceil(ENTRIES * 3 / 8) + 8),
    ],
)
def test_bytes_are_those_that_would_be_sent(name: str, values: dict[str, Any], each: int) -> None:
    world = federation(f"{name}+fedavg", {name: values}, cohort=5)
    _, played = play_round(world, begin(world), Memory(), 0)
    assert played.bytes_up == 5 * each
    assert played.bytes_down == 5 * ENTRIES * 8
    part = world.method
    assert isinstance(part, TopK | Quantised)
    more = {
        "top_k": 120 * (4 + 4),
        "quantised": math.ceil(1200 * getattr(part, "bits", 0) / 8) + 12,
    }
    if values.get("share") != 1.0:  # of a longer vector of float32: three buckets
        assert part.bytes_of(1200, 4) == more[name]
    # What a wrapper around it adds is counted, too: a loss of 8 bytes.
    world = federation(f"aaggff_d+{name}+fedavg", {name: values}, cohort=5)
    _, played = play_round(world, begin(world), Memory(), 0)
    assert played.bytes_up == 5 * (each + 8)


def test_running_statistics_are_sent_as_they_are() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8))
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())

    def first(name: str) -> Round:
        world = federation(name, {"top_k": {"share": 0.1}}, cohort=5)
        world = replace(world, context=replace(world.context, net=net, batch_size=7))
        return play_round(world, begin(world), Memory(), 0)[1]

    ours, theirs = first("top_k+fedavg"), first("fedavg")
    for name in ("body.1.running_mean", "body.1.running_var"):
        torch.testing.assert_close(ours.updates["delta"][name], theirs.updates["delta"][name])
    entries = ENTRIES + 16  # with BatchNorm's weight and bias
    assert ours.bytes_up == 5 * (math.ceil(0.1 * entries) * 12 + 16 * 8)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("top_k+quantised+fedavg", {"key": "wrapper", "value": "top_k", "names": "compressed"}),
        (
            "quantised+scaffold",
            {"key": "wrapper", "value": "quantised", "names": ("`delta`", "server")},
        ),
        ("top_k+superfed_mm", {"key": "wrapper", "value": "top_k", "names": "clients"}),
        ("top_k+central", {"key": "wrapper", "value": "top_k", "names": "trains"}),
    ],
)
def test_what_can_t_be_compressed_is_refused(name: str, fault: Fault) -> None:
    with refused(**fault):
        registry.compose(name)


@pytest.mark.parametrize(
    ("part", "values"), [("top_k", {"share": 0.0}), ("quantised", {"bits": 1})]
)
def test_bad_hyperparameters_are_one_line(part: str, values: dict[str, Any]) -> None:
    with refused("value", file=f"method {part}", key=next(iter(values))):
        registry.compose(part, {part: values})
