"""The losses of critics, generators and discriminators."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedrepro.methods.generating.adversarial import (
    critic_loss,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
)
from fedrepro.support.rng import stream


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=stream(4, "generating", *shape), dtype=torch.float64)


class Critic(nn.Module):
    """A smooth one, so that finite differences are exact enough."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 2, 2, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)
        ).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


REAL, FAKE = drawn(3, 1, 4, 4), drawn(3, 1, 4, 4) + 1
PLACES = torch.tensor([0.2, 0.7, 1.0], dtype=torch.float64)


def test_penalty_of_a_linear_critic() -> None:
    """Its gradient is its weight, wherever one looks: (|w| - 1)^2."""
    weight = drawn(16)

    def critic(x: Tensor) -> Tensor:
        return (x.flatten(1) * weight).sum(1, keepdim=True)

    expected = float((weight.norm() - 1) ** 2)
    assert float(gradient_penalty(critic, REAL, FAKE, PLACES)) == pytest.approx(expected)


def test_penalty_is_taken_between_a_real_and_a_fake() -> None:
    def critic(x: Tensor) -> Tensor:
        return x.flatten(1).square().sum(1, keepdim=True) / 2  # its gradient is x itself

    between = REAL + PLACES.reshape(-1, 1, 1, 1) * (FAKE - REAL)
    expected = (between.flatten(1).norm(dim=1) - 1).square().mean()
    torch.testing.assert_close(gradient_penalty(critic, REAL, FAKE, PLACES), expected)


def test_penalty_against_finite_differences() -> None:
    """Both its value, from differences of scores, and its gradient in the critic's weights."""
    critic, step = Critic(), 1e-5
    params = {name: drawn(*leaf.shape) for name, leaf in critic.named_parameters()}

    def penalty(params: dict[str, Tensor]) -> Tensor:
        return gradient_penalty(lambda x: functional_call(critic, params, (x,)), REAL, FAKE, PLACES)

    between = REAL + PLACES.reshape(-1, 1, 1, 1) * (FAKE - REAL)
    slopes = torch.zeros(3, 16, dtype=torch.float64)
    with torch.no_grad():
        for place in range(16):
            move = torch.zeros(16, dtype=torch.float64)
            move[place] = step
            ends = [
                functional_call(critic, params, (between + sign * move.reshape(1, 4, 4),))
                for sign in (1, -1)
            ]
            slopes[:, place] = (ends[0] - ends[1])[:, 0] / (2 * step)
        expected = (slopes.norm(dim=1) - 1).square().mean()
        torch.testing.assert_close(penalty(params), expected, rtol=1e-8, atol=1e-8)

    free = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    gradients = torch.autograd.grad(penalty(free), list(free.values()), allow_unused=True)
    checked = 0
    for (name, leaf), gradient in zip(params.items(), gradients, strict=True):
        for place in range(0, leaf.numel(), 3):
            move = torch.zeros(leaf.numel(), dtype=torch.float64)
            move[place] = step
            with torch.no_grad():
                ends = [
                    penalty({**params, name: leaf + sign * move.reshape(leaf.shape)})
                    for sign in (1, -1)
                ]
            slope = float((ends[0] - ends[1]) / (2 * step))
            ours = 0.0 if gradient is None else float(gradient.flatten()[place])
            assert ours == pytest.approx(slope, rel=1e-5, abs=1e-8), name
            checked += 1
    assert checked > 5 and gradients[-1] is None  # the last bias moves no gradient


def test_critic_and_generator_pull_in_opposite_directions() -> None:
    critic = Critic()
    scores = critic(REAL), critic(FAKE)
    penalty = gradient_penalty(critic, REAL, FAKE, PLACES)
    ours = critic_loss(critic, REAL, FAKE, PLACES)
    torch.testing.assert_close(ours, scores[1].mean() - scores[0].mean() + 10 * penalty)
    torch.testing.assert_close(generator_loss(scores[1]), -scores[1].mean())
    without = critic_loss(critic, REAL, FAKE, PLACES, penalty=0.0)
    torch.testing.assert_close(without, scores[1].mean() - scores[0].mean())


def test_discriminators_learn_to_tell_reals_from_fakes() -> None:
    """Not the sign that Algorithm 3 prints (A4)."""
    right, wrong = torch.tensor([[3.0]]), torch.tensor([[-3.0]])
    assert float(discriminator_loss(right, wrong)) < float(discriminator_loss(wrong, right))
    real, fake = drawn(4, 1), drawn(4, 1)
    expected = -real.sigmoid().log().mean() - (1 - fake.sigmoid()).log().mean()
    torch.testing.assert_close(discriminator_loss(real, fake), expected)
