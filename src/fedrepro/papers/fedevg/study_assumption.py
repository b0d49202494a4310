"""What FedEvg's server samples when clients' energies are exact: tests its assumption.

Each client's density is a normal one in two dimensions, with the energy
E_k = |x - m_k|^2 / (2 s_k^2) and the normalising constant Z_k = 2 pi s_k^2, which no client knows.
The server follows eq. (4.13), so its chain's density is proportional to the sum of w_k exp(-E_k):
client k has the share w_k Z_k of it, and its own w_k only where all Z_k are equal, which the thesis
assumes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrepro.methods.generating.synthetic import langevin, mixture_gradient
from fedrepro.support.rng import stream


@dataclass(frozen=True)
class Normals:
    """Clients' densities.

    Attributes:
        weights: w_k, sum 1 [clients].
        means: [clients, 2].
        deviations: s_k [clients].
    """

    weights: Tensor
    means: Tensor
    deviations: Tensor

    @property
    def followed(self) -> Tensor:
        """The clients' shares of what the server samples, w_k Z_k over their sum [clients]."""
        shares = self.weights * self.deviations.square()
        return shares / shares.sum()

    def draw(self, samples: int, shares: Tensor, seed: int) -> Tensor:
        """Exact samples of the mixture with clients' ``shares`` [samples, 2]."""
        rng = stream(seed, "normals")
        which = torch.multinomial(shares, samples, replacement=True, generator=rng)
        noise = torch.randn(samples, 2, generator=rng, dtype=self.means.dtype)
        return self.means[which] + self.deviations[which, None] * noise

    def energies(self, x: Tensor) -> Tensor:
        """Every client's energy at ``x`` [n, 2]: [clients, n]."""
        squares = (x - self.means[:, None]).square().sum(-1)
        return squares / (2 * self.deviations[:, None].square())

    def gradients(self, x: Tensor) -> Tensor:
        """The gradients of these energies, [clients, n, 2]."""
        return (x - self.means[:, None]) / self.deviations[:, None, None].square()


def sampled(normals: Normals, samples: int, steps: int, length: float, seed: int) -> Tensor:
    """The end points of the server's Langevin chains, [samples, 2].

    They start from a wide normal density; with noise of scale sqrt(2 length), chains of short steps
    converge to the mixture's density.
    """
    rng = stream(seed, "chains")
    x = 4 * torch.randn(samples, 2, generator=rng, dtype=normals.means.dtype)
    for _ in range(steps):
        factors = torch.exp(-normals.energies(x))
        gradient = mixture_gradient(normals.weights, factors, normals.gradients(x))
        noise = torch.randn(x.shape, generator=rng, dtype=x.dtype)
        x = langevin(x, gradient, noise, length, (2 * length) ** 0.5)
    return x


def shares_of(normals: Normals, x: Tensor) -> Tensor:
    """The shares [clients] of ``x`` [n, 2] that are nearest to each client's mean."""
    nearest = torch.cdist(x, normals.means).argmin(1)
    return torch.bincount(nearest, minlength=len(normals.weights)).to(x.dtype) / len(x)


def energy_distance(one: Tensor, other: Tensor) -> float:
    """Szekely and Rizzo's statistic of two samples [n, d] and [m, d]; 0 for equal densities.

    2 E|X - Y| - E|X - X'| - E|Y - Y'|, expectations without pairs of an item with itself.
    """

    def within(x: Tensor) -> Tensor:
        return torch.pdist(x).mean()

    return float(2 * torch.cdist(one, other).mean() - within(one) - within(other))


def p_value(one: Tensor, other: Tensor, permutations: int, seed: int) -> float:
    """The p value of the two-sample permutation test with :func:`energy_distance`.

    The share of random divisions of all items, including the given one, with at least this
    distance.
    """
    rng = stream(seed, "permutations")
    distance, everything = energy_distance(one, other), torch.cat([one, other])
    larger = 0
    for _ in range(permutations):
        order = torch.randperm(len(everything), generator=rng)
        mixed = everything[order]
        larger += energy_distance(mixed[: len(one)], mixed[len(one) :]) >= distance
    return (1 + larger) / (1 + permutations)


SEEDS = (1, 2, 3)
ITEMS, STEPS, LENGTH, PERMUTATIONS = 400, 2_000, 0.02, 99


def study() -> dict[str, Any]:
    """Two clients with weights .6 and .4, with equal and with unequal constants, as JSON.

    By case: ``weights`` [clients], ``followed`` (the shares that follow from the constants),
    ``sampled`` [seeds, clients], and ``p``: by seed, the p value of the test that the items have
    the mixture's density.
    """
    means = torch.tensor([[-3.0, 0.0], [3.0, 1.0]], dtype=torch.float64)
    weights = torch.tensor([0.6, 0.4], dtype=torch.float64)
    content: dict[str, Any] = {"seeds": list(SEEDS), "items": ITEMS, "cases": {}}
    for name, deviations in (("equal", (1.3, 1.3)), ("unequal", (0.8, 1.6))):
        normals = Normals(weights, means, torch.tensor(deviations, dtype=torch.float64))
        ends = [sampled(normals, ITEMS, STEPS, LENGTH, seed) for seed in SEEDS]
        exact = [normals.draw(ITEMS, weights, seed) for seed in SEEDS]
        content["cases"][name] = {
            "deviations": list(deviations),
            "weights": weights.tolist(),
            "followed": normals.followed.tolist(),
            "sampled": [shares_of(normals, x).tolist() for x in ends],
            "p": [p_value(*pair, PERMUTATIONS, 1) for pair in zip(ends, exact, strict=True)],
        }
    return content
