"""Theorem 1, Lemma 1 and Corollary 2 of IMA, on cases small enough to enumerate."""

import json
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrepro.analysis.landscape import average_of
from fedrepro.check.world import data, play
from fedrepro.data.partition.partition import Partition
from fedrepro.engine import tree
from fedrepro.engine.net import Net
from fedrepro.engine.round import client_state_of, context_of, steps_of
from fedrepro.engine.tree import Tree
from fedrepro.models import registry as models
from fedrepro.papers.ima.decomposition_of_runs import (
    _same_clients,
    covariances,
    decompose,
    distances,
    ensemble_gap,
    errors_by_number,
    linear_cka,
    mean_cka,
)
from fedrepro.support.rng import stream
from support.places import ROOT
from support.refusals import refused
from support.worlds import federation

INPUTS = torch.tensor([[-1.0], [0.5], [2.0]], dtype=torch.float64)
TARGETS = torch.tensor([[-1.0], [1.0], [3.0]], dtype=torch.float64)
SEEN = torch.tensor([[True, True, False], [False, True, True]])
WEIGHTS = torch.tensor([0.25, 0.75], dtype=torch.float64)
# What training can end with, all nine pairs as likely: each client's weight has three outcomes.
OUTCOMES = list(product([0.0, 0.5, 1.0], [1.0, 1.5, 4.0]))


def run(function: Any) -> tuple[Tensor, Tensor]:
    """Outputs [9, 2, 3, 1] and those of the averaged model [9, 3, 1] for f(w x)."""
    w = torch.tensor(OUTCOMES, dtype=torch.float64)
    mean = w @ WEIGHTS
    return function(w[:, :, None, None] * INPUTS), function(mean[:, None, None] * INPUTS)


@pytest.mark.parametrize("function", [lambda z: z, torch.tanh], ids=["linear", "tanh"])
def test_five_terms_are_those_of_an_enumeration(function: Any) -> None:
    """Every expectation written as a sum over the nine outcomes, in plain Python."""
    found = decompose(*run(function), TARGETS, WEIGHTS, SEEN)

    def f(w: float, x: float) -> float:
        return float(function(torch.tensor(w * x, dtype=torch.float64)))

    share = WEIGHTS.tolist()
    pairs = list(zip(INPUTS[:, 0].tolist(), TARGETS[:, 0].tolist(), strict=True))
    train = heterogeneous = variance = covariance = fma = wens = 0.0
    for number, (x, y) in enumerate(pairs):
        means = [sum(f(pair[k], x) for pair in OUTCOMES) / 9 for k in (0, 1)]
        biases = [share[k] * (means[k] - y) for k in (0, 1)]
        own = sum(b for k, b in enumerate(biases) if SEEN[k, number])
        other = sum(b for k, b in enumerate(biases) if not SEEN[k, number])
        train += own**2 + own * other
        heterogeneous += other**2 + own * other
        for pair in OUTCOMES:
            away = [share[k] * (f(pair[k], x) - means[k]) for k in (0, 1)]
            variance += (away[0] ** 2 + away[1] ** 2) / 9
            covariance += 2 * away[0] * away[1] / 9
            fma += (f(share[0] * pair[0] + share[1] * pair[1], x) - y) ** 2 / 9
            wens += (share[0] * f(pair[0], x) + share[1] * f(pair[1], x) - y) ** 2 / 9
    expected = [train, heterogeneous, variance, covariance, fma - wens]
    assert list(found) == pytest.approx([each / 3 for each in expected], abs=1e-12)
    assert found.total == pytest.approx(fma / 3, abs=1e-10)
    # Without the locality term it is the ensemble's loss; for a linear model the two are one.
    assert found.total - found.locality == pytest.approx(wens / 3, abs=1e-10)
    linear = function is not torch.tanh
    assert (abs(found.locality) < 1e-12) == linear


def test_on_own_data_only_there_is_no_heterogeneous_bias() -> None:
    everywhere = torch.ones_like(SEEN)
    found = decompose(*run(torch.tanh), TARGETS, WEIGHTS, everywhere)
    nowhere = decompose(*run(torch.tanh), TARGETS, WEIGHTS, ~everywhere)
    assert found.heterogeneous_bias == nowhere.train_bias == 0
    assert found.train_bias == pytest.approx(nowhere.heterogeneous_bias, abs=1e-15) and found[0] > 0


def test_equal_clients_have_a_covariance_as_large_as_their_variance() -> None:
    """Corollary 2: K clients that train alike on identical data."""
    one, _ = run(torch.tanh)
    clients = 4
    outputs = one[:, :1].expand(-1, clients, -1, -1)
    found = covariances(outputs)
    assert float(found[0, 0]) > 0
    torch.testing.assert_close(found, found[0, 0].expand(clients, clients), rtol=1e-14, atol=0)
    equal = torch.full((clients,), 1 / clients, dtype=torch.float64)
    terms = decompose(outputs, outputs[:, 0], TARGETS, equal, torch.ones(clients, 3).bool())
    # K times a variance of weight 1 / K^2, K (K - 1) covariances of the same.
    assert terms.covariance == pytest.approx((clients - 1) * terms.variance, rel=1e-12)
    assert terms.locality == pytest.approx(0, abs=1e-15)


def trained() -> tuple[Net, list[list[Tree]], Tensor, Tensor, Tensor]:
    """Models of three clients after two rounds with four seeds, their weights, inputs, labels."""
    clients = data()
    of = (1, 3, 5)
    repeats = []
    for seed in range(4):
        world = federation(seed=seed, cohort=6)
        server, owns, _ = play(world, until=2)
        ctx, method = context_of(world, 2, list(of)), world.method
        sent = method.broadcast(ctx, server)
        found = []
        for client in of:
            own = client_state_of(world, ctx, owns, client)
            report, _ = method.client_update(ctx, sent, own, steps_of(world, ctx, client))
            found.append(tree.subtract(sent["params"], report["delta"]))
        repeats.append(found)
    sizes = torch.tensor([clients.sizes[client] for client in of], dtype=torch.float64)
    x, y = (torch.cat(part) for part in zip(*clients.tensors, strict=True))
    return world.context.net, repeats, sizes / sizes.sum(), x, y


@pytest.fixture
def float64():  # type: ignore[no-untyped-def]
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
def test_trained_models() -> None:
    """Softmax against one-hot: the terms sum to the loss, and Lemma 1's slope is 2."""
    net, repeats, weights, x, y = trained()
    with torch.no_grad():
        logits = torch.stack([torch.stack([net(model, x) for model in each]) for each in repeats])
        averaged = torch.stack([net(average_of(each, weights), x) for each in repeats])
        seen = torch.ones(3, len(y)).bool()
        seen[0, ::2] = False
        one_hot = torch.eye(3)[y]
        found = decompose(logits.softmax(-1), averaged.softmax(-1), one_hot, weights, seen)
        loss = float((averaged.softmax(-1) - one_hot).square().mean())
        assert found.total == pytest.approx(loss, abs=1e-10)
        assert found.variance > 0 and found.train_bias > 0 and found.heterogeneous_bias > 0
        gap = ensemble_gap(lambda model: net(model, x).softmax(-1), repeats[0], weights)
    assert gap.distances[0] == pytest.approx(max(distances(repeats[0], weights)))
    assert gap.gaps == sorted(gap.gaps, reverse=True)
    assert gap.slope == pytest.approx(2, abs=0.15)
    # What the locality term is bounded by: the outputs differ by the gap.
    assert abs(found.locality) < 4 * gap.gaps[0]


def test_of_a_linear_model_ensemble_and_average_are_one() -> None:
    models = [{"w": torch.tensor([value], dtype=torch.float64)} for value in (1.0, 2.0, 5.0)]
    weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    gap = ensemble_gap(lambda model: INPUTS * model["w"], models, weights)
    assert max(gap.gaps) < 1e-15
    flat = ensemble_gap(lambda model: torch.ones(1), models, weights)
    assert math.isnan(flat.slope)


def test_errors_of_averages_by_hand() -> None:
    """Class 1 where w x > 0; all samples are of class 1, two x are positive and one is negative.

    A positive average errs once in three, a negative one twice. Weights of 1/2, 1/4, 1/4 make the
    average of the first two positive, which equal weights would not.
    """
    x = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)

    def predict(model: Tree) -> Tensor:
        return torch.stack([torch.zeros(3), model["w"] * x], dim=1)

    models = [{"w": torch.tensor([w], dtype=torch.float64)} for w in (1.0, -1.5, -1.0)]
    weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    found = errors_by_number(predict, models, weights, torch.ones(3, dtype=torch.long))
    assert found == pytest.approx([500 / 9, 400 / 9, 200 / 3])  # groups: + - -, + - +, -


def test_averages_of_equal_models_are_that_model() -> None:
    """However few, and whatever their weights: outputs that are right at w = 1 only."""

    def predict(model: Tree) -> Tensor:
        away = (model["w"] - 1).abs()
        return torch.stack([away, torch.full_like(away, 0.01)], dim=1)

    models = [{"w": torch.ones(1, dtype=torch.float64)}] * 3
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    right = torch.ones(1, dtype=torch.long)
    assert errors_by_number(predict, models, weights, right) == [0, 0, 0]


def test_distances_golden() -> None:
    golden = json.loads((ROOT / "tests/golden/ima_locality.json").read_text())
    clients = [{"w": torch.tensor(w, dtype=torch.float64)} for w in golden["client_weights"]]
    sizes = torch.tensor(golden["n_k"], dtype=torch.float64)
    weights = sizes / sizes.sum()
    assert average_of(clients, weights)["w"].tolist() == pytest.approx(golden["fma"], abs=1e-14)
    found = distances(clients, weights)
    assert found == pytest.approx(golden["delta_k"], abs=1e-14)
    assert max(found) == pytest.approx(golden["delta_max"], abs=1e-14)


def test_similarity_is_of_centred_features_whatever_their_place_turn_and_scale() -> None:
    """0 to 1: by hand of two columns, and its mean over all pairs."""
    random = torch.Generator().manual_seed(0)
    one, other = (torch.randn(9, 2, generator=random, dtype=torch.float64) for _ in range(2))
    moved = 3 * one @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64) + INPUTS[:2, 0]
    assert linear_cka(one, moved) == pytest.approx(1)
    x, y = (np.array([1.0, 2.0, 6.0]), np.array([2.0, 0.0, 1.0]))
    found = linear_cka(torch.tensor(x)[:, None] + 7, torch.tensor(y)[:, None] - 5)
    assert found == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    between = linear_cka(one, other)
    assert 0 < between < 0.9 and mean_cka([one, other]) == between
    assert mean_cka([one, other, moved]) == pytest.approx((2 * between + 1) / 3)
    with refused(file="CKA", key="models", value=1, names="two"):
        mean_cka([one])
    with refused(key="features", names=("9", "8")):
        linear_cka(one, other[:8])


def test_models_of_other_shapes_have_no_average() -> None:
    small, large = (
        Net(models.build("logistic", shape, 10)).init(stream(1, "init")) for shape in ((4,), (5,))
    )
    with refused(names=("shape", "head.weight", "10", "4")):
        average_of([small, large], WEIGHTS)


def test_the_same_clients_are_as_many_with_the_same_samples() -> None:
    def partition(*train: list[int]) -> Partition:
        counts = np.ones((len(train), 1), np.int64)
        return Partition([np.array(rows) for rows in train], None, counts, None, {}, "by-hand", 1)

    first = partition([0, 1], [2, 3])
    assert _same_clients(first, partition([0, 1], [2, 3]))
    for other in (
        partition([0, 1]),
        partition([0, 1], [2, 3], [4]),
        partition([0, 1], [2]),
        partition([0, 1], [2, 4]),
        partition([2, 3], [0, 1]),
    ):
        assert not _same_clients(first, other) and not _same_clients(other, first)
