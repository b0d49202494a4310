"""The losses of critics, generators and discriminators."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.methods.generating.synthetic import mean_over


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, places: Tensor
) -> Tensor:
    """The mean of (|gradient of the critic| - 1)^2 between samples, a scalar tensor.

    Equation 3 of WGAN-GP (Gulrajani et al., NeurIPS 2017), without its coefficient.

    Args:
        critic: [n, ...] -> [n, 1]; it may not mix samples, so no BatchNorm.
        real, fake: [n, ...].
        places: [n], uniform on [0, 1]: the position between ``real`` (0) and ``fake`` (1).
    """
    at = places.reshape(-1, *[1] * (real.dim() - 1))
    between = real + at * (fake - real)
    gradient = torch.func.grad(lambda x: critic(x).sum())(between)
    norms: Tensor = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
    return (norms - 1).square().mean()


def critic_loss(
    critic: Callable[[Tensor], Tensor],
    real: Tensor,
    fake: Tensor,
    places: Tensor,
    penalty: float = 10.0,
) -> Tensor:
    """The loss of WGAN-GP's critic: mean score of fakes, minus that of reals, plus the penalty."""
    apart = critic(fake).mean() - critic(real).mean()
    return apart + penalty * gradient_penalty(critic, real, fake, places)


def generator_loss(scores: Tensor) -> Tensor:
    """The loss of its generator: minus the critic's mean score of fakes, ``scores`` [n, 1]."""
    return -scores.mean()


def discriminator_loss(real: Tensor, fake: Tensor, counts: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of a discriminator's logits [n, 1] for reals and for fakes.

    The sum of both means. FedGO's Algorithm 3 prints the opposite sign (A4).

    Args:
        counts: [n], 1 for reals that count, 0 for padding; None: all count.
    """
    of_real = mean_over(functional.softplus(-real).flatten(), counts)
    return of_real + functional.softplus(fake).mean()
