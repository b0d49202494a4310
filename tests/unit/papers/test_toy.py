"""FedGO's toy example."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from fedrepro.analysis import studies
from fedrepro.papers.fedgo import study_toy as toy
from fedrepro.papers.fedgo.study_toy import CELLS, Toy
from fedrepro.support.errors import UserError

SMALL = Toy(points=60, server_points=60, width=16)


def test_each_client_has_most_of_a_gaussian_and_some_of_the_others() -> None:
    held, sources = toy.holders(Toy()), torch.arange(4).repeat_interleave(300)
    counts = [[int(((held == k) & (sources == g)).sum()) for g in range(4)] for k in range(4)]
    assert counts == [[270 if k == c else 10 for c in range(4)] for k in range(4)]


def test_the_best_regions_are_the_quadrants_of_three_classes() -> None:
    """As Appendix E.1 has it: the first and the third quadrant are of one class."""
    grid, half = toy.nearest(Toy()), CELLS // 2
    upper, lower = slice(half, None), slice(None, half)
    quadrants = [(upper, upper), (upper, lower), (lower, lower), (lower, upper)]  # rows, columns
    found = [grid[rows, columns].unique().tolist() for rows, columns in quadrants]
    assert all(len(classes) == 1 for classes in found)
    first, second, third, fourth = (classes[0] for classes in found)
    assert first == third and (first, second, fourth) == (0, 1, 2)
    column = toy.nearest(Toy())[0].tolist()  # the lowest row, from left to right
    assert column == [0] * half + [2] * half


def test_models_know_the_classes_of_the_points() -> None:
    played = toy.play(SMALL, 1)
    assert len(toy.classes_of(played.sources).unique()) == 3
    assert {model(played.points).shape for model in played.servers.values()} == {(240, 3)}


def test_a_seed_says_all() -> None:
    """And nothing is drawn from the global generator."""
    before = torch.get_rng_state()
    first, again, other = (toy.play(SMALL, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, model in first.servers.items():
        same, different = again.servers[name].state_dict(), other.servers[name].state_dict()
        assert all(torch.equal(leaf, same[key]) for key, leaf in model.state_dict().items()), name
        assert not any(
            torch.equal(leaf, different[key]) for key, leaf in model.state_dict().items()
        )


LARGE_STEPS = Toy(
    points=60, server_points=40, width=16, batch=16, rate=0.02, client_epochs=3,
    discriminator_rate=5e-3, discriminator_epochs=2, kept=80,
)  # fmt: skip
# By aggregation: the mean probabilities of the first two classes, and the deviation of all logits.
SERVERS = {
    "parameters": (0.482073, 0.237393, 2.273323),
    "uniform": (0.494093, 0.233282, 2.462923),
    "variance": (0.501664, 0.248147, 3.942608),
    "entropy": (0.50061, 0.237192, 3.086777),
    "domain-aware": (0.483633, 0.242754, 2.784827),
    "odds": (0.505293, 0.230797, 3.190854),
}
# By weighting: the mean weights of the first two clients, and the deviation of all.
WEIGHTS = {
    "uniform": (0.25, 0.25, 0.0),
    "variance": (0.270861, 0.301527, 0.258737),
    "entropy": (0.262516, 0.259165, 0.072633),
    "domain-aware": (0.244059, 0.254582, 0.033565),
    "odds": (0.234665, 0.26521, 0.089449),
}


def test_a_seed_has_these_numbers() -> None:
    """With unlike numbers of epochs, and steps large enough for each draw to show."""
    played = toy.play(LARGE_STEPS, 1)
    with torch.no_grad():
        for name, model in played.servers.items():
            logits = model(played.points)
            found = [*logits.softmax(1).mean(0)[:2].tolist(), float(logits.std())]
            assert found == pytest.approx(SERVERS[name], rel=2e-3), name
    for name, weights in played.weights.items():
        found = [*weights.mean(1)[:2].tolist(), float(weights.std())]
        assert found == pytest.approx(WEIGHTS[name], rel=2e-3, abs=1e-5), name
    assert played.servers.keys() == SERVERS.keys() and played.weights.keys() == WEIGHTS.keys()
    assert float(played.points.std()) == pytest.approx(4.357178, rel=1e-4)
    assert played.given.abs().max() <= 12 and played.given.min() < -10 < 10 < played.given.max()


def test_weights_sum_to_one_and_differ_where_they_should() -> None:
    played = toy.play(SMALL, 1)
    for name, weights in played.weights.items():
        assert torch.allclose(weights.sum(0), torch.ones(240)), name
    odds = played.weights["odds"]
    assert (odds / odds.min(0).values).max() < torch.e  # equal sizes: odds go from 1 to e


def test_without_server_epochs_all_servers_are_the_average() -> None:
    played = toy.play(replace(SMALL, server_epochs=0), 1)
    average = played.servers["parameters"].state_dict()
    for model in played.servers.values():
        assert all(torch.equal(leaf, average[key]) for key, leaf in model.state_dict().items())


def test_accuracy_is_of_points_that_nobody_trained_on() -> None:
    seen: list[torch.Tensor] = []

    def model(points: torch.Tensor) -> torch.Tensor:
        seen.append(points)
        return torch.zeros(len(points), 3)

    # Two of the four Gaussians are of the first class.
    assert toy._accuracy(SMALL, 1, cast(Any, model)) == 0.5
    assert not (seen[0][:, None] == toy.play(SMALL, 1).points).all(-1).any()


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As A13 has it: with 256 units the right client weighs most at nearly every point."""
    monkeypatch.setattr(toy, "SEEDS", (1, 2))
    found = json.loads(json.dumps(studies.make("fedgo_toy")))
    assert list(found["regions"]) == [
        "parameters", "uniform", "variance", "entropy", "domain-aware", "odds",
    ]  # fmt: skip
    assert len(found["points"]) == len(found["holders"]) == 1200
    for client in range(4):  # 270 of its own Gaussian, and 10 of each of the others
        held = [
            each
            for (*_, each), owner in zip(found["points"], found["holders"], strict=True)
            if owner == client
        ]
        assert len(held) == 300 and held.count(toy.CLASS_OF[client]) in (270, 280)
    assert len(found["server_points"]) == 300
    assert max(abs(value) for point in found["server_points"] for value in point) <= 12
    for name, grid in found["regions"].items():
        assert [len(row) for row in grid] == [CELLS] * CELLS
        assert len(found["accuracy"][name]) == len(found["nearest"][name]) == 2
        assert min(found["accuracy"][name]) > 0.95
    assert 0.95 < min(found["right"]["odds"]) <= max(found["right"]["odds"]) < 0.99
    assert "uniform" not in found["right"]


def test_a_study_that_is_none() -> None:
    with pytest.raises(UserError, match=r"study: 'fedgo_toi'.*fedgo_toy"):
        studies.make("fedgo_toi")
