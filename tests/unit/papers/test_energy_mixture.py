"""What FedEvg's server samples from exact energies, and the bias of its assumption."""

import json

import pytest
import torch

from fedrepro.analysis import studies
from fedrepro.papers.fedevg import study_assumption
from fedrepro.papers.fedevg.study_assumption import (
    Normals,
    energy_distance,
    p_value,
    sampled,
    shares_of,
)

MEANS = torch.tensor([[-3.0, 0.0], [3.0, 1.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.6, 0.4], dtype=torch.float64)


def normals(*deviations: float) -> Normals:
    return Normals(WEIGHTS, MEANS, torch.tensor(deviations, dtype=torch.float64))


EQUAL, UNEQUAL = normals(1.3, 1.3), normals(0.8, 1.6)


def chains(which: Normals) -> torch.Tensor:
    return sampled(which, samples=400, steps=2_000, length=0.02, seed=1)


def test_equal_constants_give_the_mixture() -> None:
    """The two-sample test finds no difference, and each client has its share."""
    found = chains(EQUAL)
    torch.testing.assert_close(EQUAL.followed, WEIGHTS)
    assert p_value(found, EQUAL.draw(400, WEIGHTS, seed=2), permutations=99, seed=3) > 0.05
    assert float(shares_of(EQUAL, found)[0]) == pytest.approx(0.6, abs=4 * 0.0245)


def test_unequal_constants_bias_it_towards_wide_clients() -> None:
    """Shares go with w_k s_k^2, 0.27 to 0.73, and not with w_k."""
    found, expected = chains(UNEQUAL), UNEQUAL.followed
    assert expected.tolist() == pytest.approx([0.6 / 2.2, 1.6 / 2.2])
    wanted = UNEQUAL.draw(400, WEIGHTS, seed=2)
    assert p_value(found, wanted, permutations=99, seed=3) == 0.01
    assert p_value(found, UNEQUAL.draw(400, expected, seed=2), permutations=99, seed=3) > 0.05


def test_gradients_are_those_of_energies_which_are_those_of_the_density() -> None:
    """Of each client its own: log-densities of normals but for what no client knows."""
    x = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x.requires_grad_(True)
    energies, gradients = UNEQUAL.energies(x), UNEQUAL.gradients(x)
    for client, (mean, deviation) in enumerate(zip(MEANS, UNEQUAL.deviations, strict=True)):
        normal = torch.distributions.Normal(mean, deviation)
        own = -normal.log_prob(x).sum(1)
        assert (energies[client] - own).std() < 1e-9
        (found,) = torch.autograd.grad(energies[client].sum(), x, retain_graph=True)
        torch.testing.assert_close(gradients[client], found)
    for client, (mean, deviation) in enumerate(zip(MEANS, UNEQUAL.deviations, strict=True)):
        drawn = UNEQUAL.draw(4000, torch.eye(2, dtype=torch.float64)[client], seed=1)
        torch.testing.assert_close(drawn.mean(0), mean, rtol=0, atol=0.1)
        torch.testing.assert_close(drawn.std(0), deviation.expand(2), rtol=0.05, atol=0)


def test_permutations_that_are_as_far_apart_count_against_a_difference() -> None:
    """As all do of two samples of one point; of two points far apart few are."""
    one = torch.zeros(3, 2)
    assert p_value(one, one, permutations=9, seed=1) == 1.0
    assert p_value(one, one + 1, permutations=199, seed=1) == pytest.approx(0.1, abs=0.06)


def test_the_distance_of_equal_samples_is_about_zero_and_grows() -> None:
    one, other = (EQUAL.draw(400, WEIGHTS, seed=seed) for seed in (4, 5))
    assert abs(energy_distance(one, other)) < 0.05 < energy_distance(one, other + 1)


def test_the_study_has_both_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose chains are tested above; here what is made of them, after few steps."""
    for name, few in (("ITEMS", 20), ("STEPS", 5), ("PERMUTATIONS", 9)):
        monkeypatch.setattr(study_assumption, name, few)
    found = json.loads(json.dumps(studies.make("fedevg_assumption")))
    assert list(found["cases"]) == ["equal", "unequal"]
    for name, case in found["cases"].items():
        assert len(case["sampled"]) == len(case["p"]) == len(found["seeds"])
        assert all(sum(shares) == pytest.approx(1) for shares in case["sampled"])
        assert (case["followed"] == pytest.approx(case["weights"])) == (name == "equal")
        which = normals(*case["deviations"])  # of each seed, what its own chains gave
        for seed, shares, p in zip(found["seeds"], case["sampled"], case["p"], strict=True):
            ends = sampled(which, 20, 5, study_assumption.LENGTH, seed)
            assert shares == shares_of(which, ends).tolist()
            assert p == p_value(ends, which.draw(20, WEIGHTS, seed), 9, 1)
    assert found["cases"]["unequal"]["deviations"] == [0.8, 1.6]
    assert sampled(EQUAL, 2000, 0, 0.02, 1).std() == pytest.approx(4, rel=0.05)  # wide at first
