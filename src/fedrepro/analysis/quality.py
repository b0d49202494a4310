"""How good generated samples are compared with real ones: functions of the two sets only.

Samples are [n, ...], features [n, d]; every distance is Euclidean, over all entries of a sample.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.engine.metrics import auroc

NEIGHBOURS = 3  # Kynkäänniemi et al.
CHUNK = 2**27  # sample differences in memory at a time


def frechet(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The Fréchet distance of two feature sets, assumed normal (Heusel et al., NIPS 2017).

    |m1 - m2|^2 + Tr(S1 + S2 - 2 (S1 S2)^(1/2)). The last trace is the sum of the singular values of
    X1 X2' for centred features X / sqrt(n - 1), which is exact even with fewer samples than
    features, unlike a matrix square root of S1 S2. NaN for fewer than two samples.
    """
    if min(len(one), len(other)) < 2:
        return math.nan
    means = one.mean(0) - other.mean(0)
    first, second = map(_triangle, (one, other))
    spreads = float(np.square(first).sum() + np.square(second).sum())
    shared = float(np.linalg.norm(first @ second.T, "nuc"))
    return max(0.0, float(means @ means) + spreads - 2 * shared)


def _triangle(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """R of the centred features, [min(n, d), d]: R'R is their covariance."""
    centred = (features - features.mean(0)) / math.sqrt(len(features) - 1)
    return np.linalg.qr(centred)[1]


def precision_and_recall(
    made: Tensor, real: Tensor, neighbours: int = NEIGHBOURS
) -> tuple[float, float]:
    """Improved precision and recall (Kynkäänniemi et al., NeurIPS 2019), of features [n, d].

    Precision is the share of generated samples that are no farther from some real sample than that
    sample's third nearest real neighbour; recall is the same with the roles of the two sets
    swapped. NaN for sets too small to have such neighbours.
    """
    return _inside(made, real, neighbours), _inside(real, made, neighbours)


def _inside(samples: Tensor, around: Tensor, neighbours: int) -> float:
    if len(around) <= neighbours or not len(samples):
        return math.nan
    # A sample is its own nearest neighbour.
    # Not kthvalue, which PyTorch calls not repeatable on a GPU.
    radii = distances(around, around).topk(neighbours + 1, largest=False).values[:, -1]
    return float((distances(samples, around) <= radii).any(1).double().mean())


def diversity(samples: Tensor, labels: Tensor) -> dict[int, float]:
    """Class -> mean distance of two different samples, for classes with at least two."""
    means = {}
    for label in labels.unique().tolist():
        own = samples[labels == label].flatten(1)
        if len(own) > 1:
            means[int(label)] = float(torch.pdist(own.double()).mean())
    return means


def nearest(samples: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample's distance to its nearest neighbour in ``among``, and its index, [n]."""
    closest = distances(samples, among).min(1)
    return closest.values, closest.indices


def membership(made: Tensor, members: Tensor, others: Tensor) -> float:
    """The area under the ROC curve of the simplest membership attack, by nearest distance.

    Members are the samples behind the set; 0.5 means that the attack is no better than guessing
    (Chen et al., GAN-Leaks, CCS 2020, whose full black-box attack it is).
    """
    scores = torch.cat([-nearest(each, made)[0] for each in (members, others)])
    targets = torch.cat([torch.ones(len(members)), torch.zeros(len(others))]).long()
    return auroc(scores.double().cpu().numpy(), targets.numpy())


def distances(one: Tensor, other: Tensor) -> Tensor:
    """Distances between all samples of two sets, [n, m].

    From differences, not from norms and products, which would give copies a distance above 0.
    """
    one, other = one.flatten(1), other.flatten(1)
    step = max(1, CHUNK // max(1, len(other) * one.shape[1]))
    parts = [
        torch.cdist(part, other, compute_mode="donot_use_mm_for_euclid_dist")
        for part in one.split(step)
    ]
    return torch.cat(parts) if parts else one.new_zeros(0, len(other))
