"""Weightings, pseudo-labels and losses of distillation, and FedGO's two theorems."""

import pytest
import torch
from torch import Tensor

from fedrepro.methods.distilling import weighting
from fedrepro.methods.distilling.losses import (
    ensemble,
    kl_divergence,
    pseudo_labels,
    towards_history,
)
from fedrepro.support.rng import stream

TEACHERS, SAMPLES, CLASSES = 4, 6, 5


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=stream(3, "distilling"), dtype=torch.float64)


LOGITS, JUDGED = drawn(TEACHERS, SAMPLES, CLASSES), drawn(TEACHERS, SAMPLES)
SIZES = torch.tensor([10.0, 20.0, 5.0, 65.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("weights", "scores"),
    [
        (weighting.uniform(LOGITS), torch.ones(TEACHERS, SAMPLES, dtype=torch.float64)),
        (weighting.variance(LOGITS), LOGITS.var(-1)),
        (
            weighting.entropy(LOGITS, 2.0),
            (-torch.distributions.Categorical(logits=LOGITS).entropy() / 2).exp(),
        ),
        (weighting.domain_aware(JUDGED), 1 / (1 + (-JUDGED).exp())),
        (
            weighting.odds(JUDGED, SIZES),
            SIZES[:, None] * JUDGED.sigmoid() / (1 - JUDGED.sigmoid()),
        ),
    ],
    ids=["uniform", "variance", "entropy", "domain_aware", "odds"],
)
def test_weights_are_shares_of_their_scores(weights: Tensor, scores: Tensor) -> None:
    torch.testing.assert_close(weights, scores / scores.sum(0))
    torch.testing.assert_close(weights.sum(0), torch.ones(SAMPLES, dtype=torch.float64))


def test_teachers_that_are_sure_of_nothing_count_alike() -> None:
    flat = torch.zeros(TEACHERS, SAMPLES, CLASSES)
    for weights in (weighting.variance(flat), weighting.entropy(flat)):
        torch.testing.assert_close(weights, weighting.uniform(flat))


def test_equal_discriminators_leave_the_numbers_of_samples() -> None:
    """FedGO is then FedDF with weights n_k; with equal n_k, too, it is FedDF."""
    judged = JUDGED[:1].expand(TEACHERS, -1)
    weights = weighting.odds(judged, SIZES)
    torch.testing.assert_close(weights, (SIZES / 100)[:, None].expand(-1, SAMPLES))
    alike = weighting.odds(judged, torch.ones(TEACHERS))
    torch.testing.assert_close(alike, weighting.uniform(LOGITS))


def test_double_sigmoid_bounds_the_odds() -> None:
    """D = sigmoid(sigmoid(z)): no teacher counts e times another that has as many samples."""
    z = torch.tensor([[-50.0], [50.0]], dtype=torch.float64)
    weights = weighting.odds(z.sigmoid(), torch.ones(2))
    assert float(weights[1] / weights[0]) == pytest.approx(torch.e, rel=1e-12)


def test_odds_of_certain_discriminators_do_not_overflow() -> None:
    weights = weighting.odds(torch.tensor([[2e4], [1e4]]), torch.ones(2))
    assert weights.flatten().tolist() == [1, 0]


def test_logits_are_mixed_not_probabilities() -> None:
    weights = weighting.entropy(LOGITS)
    mixed = sum(weights[k, :, None] * LOGITS[k] for k in range(TEACHERS))
    torch.testing.assert_close(ensemble(LOGITS, weights), mixed)
    labels = pseudo_labels(LOGITS, weights)
    torch.testing.assert_close(labels, mixed.softmax(-1))
    assert not torch.allclose(labels, (weights[..., None] * LOGITS.softmax(-1)).sum(0))


def test_divergence_is_least_at_the_labels() -> None:
    labels = pseudo_labels(LOGITS, weighting.uniform(LOGITS), 2.0)
    own = ensemble(LOGITS, weighting.uniform(LOGITS))
    assert float(kl_divergence(labels, own, 2.0)) == pytest.approx(0, abs=1e-12)
    expected = (labels * (labels.log() - (LOGITS[0] / 2).log_softmax(-1))).sum(-1).mean()
    torch.testing.assert_close(kl_divergence(labels, LOGITS[0], 2.0), expected)


def test_history_term() -> None:
    """gamma / 2 T^2 KL, and no gradient to the server's past models."""
    past, own = LOGITS[0].clone().requires_grad_(), LOGITS[1].clone().requires_grad_()
    term = towards_history(past, own, gamma=0.2, temperature=3.0)
    labels = (past.detach() / 3).softmax(-1)
    torch.testing.assert_close(term, 0.9 * kl_divergence(labels, own, 3.0))
    term.backward()
    assert past.grad is None and own.grad is not None and float(own.grad.abs().max()) > 0
    assert float(towards_history(past.detach(), own.detach(), gamma=0.0)) == 0


# --- theorems 3.4 and 3.6 on a mixture in the plane ---------------------------------------------


def grid() -> Tensor:
    line = torch.linspace(-12, 12, 61, dtype=torch.float64)
    return torch.cartesian_prod(line, line)


CENTRES = torch.tensor([[4, 4], [-4, 4], [-4, -4], [4, -4]], dtype=torch.float64)


def density(x: Tensor, centre: Tensor, variance: float = 3.0) -> Tensor:
    """Of an isotropic normal distribution on the points [n] of the grid, where it sums to 1."""
    p = (-(x - centre).square().sum(-1) / (2 * variance)).exp()
    return p / p.sum()


def label_probability(x: Tensor) -> Tensor:
    """P(y = 1 | x): opposite quadrants share a class, which no linear model can tell."""
    return (x.prod(-1) / 8).sigmoid()


def cross_entropy(logit: Tensor, p: Tensor, x: Tensor) -> Tensor:
    """The expected loss over the density ``p`` [n], a scalar tensor."""
    y = label_probability(x)
    each = torch.nn.functional.softplus(logit) - y * logit
    return (p * each).sum()


def best_linear(p: Tensor, x: Tensor) -> Tensor:
    """Logits [n] of the linear model with the least loss over ``p``, by Newton's method."""
    inputs = torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x], 1)
    theta = torch.zeros(3, dtype=x.dtype)
    for _ in range(60):
        guess = (inputs @ theta).sigmoid()
        gradient = inputs.T @ (p * (guess - label_probability(x)))
        hessian = (inputs * (p * guess * (1 - guess))[:, None]).T @ inputs
        theta = theta - torch.linalg.solve(hessian + 1e-12 * torch.eye(3, dtype=x.dtype), gradient)
    assert float(gradient.abs().max()) < 1e-9
    return inputs @ theta


def test_theorem_3_6_in_the_plane() -> None:
    """Weights are n_k p_k / sum, for every generator that covers the plane."""
    x = grid()
    clients = torch.stack([density(x, centre) for centre in CENTRES])
    expected = SIZES[:, None] * clients
    expected = expected / expected.sum(0)
    for spread in (20.0, 60.0):
        generator = density(x, torch.zeros(2, dtype=x.dtype), spread)
        optimal = clients / (clients + generator)
        seen = (optimal > 1e-12).all(0) & (optimal < 1 - 1e-9).all(0)
        assert int(seen.sum()) > 1000
        weights = weighting.odds(torch.logit(optimal[:, seen]), SIZES)
        torch.testing.assert_close(weights, expected[:, seen], rtol=0, atol=1e-6)


def test_theorem_3_4() -> None:
    """With those weights the ensemble loses less than the best single model, whoever trains it."""
    x = grid()
    clients = torch.stack([density(x, centre) for centre in CENTRES])
    shares = SIZES / SIZES.sum()
    everyone = (shares[:, None] * clients).sum(0)
    logits = torch.stack([best_linear(p, x) for p in clients])
    # One logit z stands for the two logits (0, z).
    both = torch.stack([torch.zeros_like(logits), logits], -1)

    def loss(weights: Tensor) -> float:
        mixed = ensemble(both, weights)
        return float(cross_entropy(mixed[:, 1] - mixed[:, 0], everyone, x))

    generator = density(x, torch.zeros(2, dtype=x.dtype), 60.0)
    ours = loss(weighting.odds((clients / generator).log(), SIZES))
    singles = [float(cross_entropy(each, everyone, x)) for each in logits]
    central = float(cross_entropy(best_linear(everyone, x), everyone, x))
    # The theorem's bound: what the clients lose at home.
    at_home = sum(
        float(share * cross_entropy(each, p, x))
        for share, each, p in zip(shares, logits, clients, strict=True)
    )
    assert ours <= at_home < central < min(singles)
    assert ours < loss(weighting.uniform(both))
