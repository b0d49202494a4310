"""Judge generated samples: compare them with real ones, and train classifiers on either.

Samples are [n, ...], features [n, d]; every distance is Euclidean, over all entries of a sample.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.check.own_models import own_net
from fedrepro.config.settings import Evaluator
from fedrepro.data.tensors.samples import TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.metrics import auroc
from fedrepro.engine.net import Net
from fedrepro.engine.optim import adam
from fedrepro.models import registry as models
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.rng import number, stream

NEIGHBOURS = 3  # Kynkäänniemi et al.
CHUNK = 2**27  # sample differences in memory at a time

ENOUGH = 0.01  # the mean loss of an epoch at which training has converged
PATIENCE = 50  # epochs in which it must fall by a hundredth,
LEARNED = 0.9  # once it is below this share of the loss of whoever knows the labels' shares alone
BATCH = 500  # batch size in testing


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


@dataclass(frozen=True)
class Trained:
    """A classifier and how its training ended.

    Attributes:
        loss: the mean over the last epoch.
        converged: whether training converged before the last allowed epoch.
    """

    module: nn.Module
    epochs: int
    loss: float
    converged: bool


def train(
    samples: TensorSamples,
    classes: int,
    evaluator: Evaluator,
    seed: int,
    epochs: int,
    folders: Folders = NONE,
) -> Trained:
    """Train ``evaluator``'s model on all of ``samples`` by Adam, for ``epochs`` or to convergence.

    It has converged when the loss is at most :data:`ENOUGH`, or has not fallen by a hundredth in
    :data:`PATIENCE` epochs, which count only once something is learned (:data:`LEARNED`): images
    that are much alike keep it near chance for longer. Weights, orders and dropout follow from
    ``seed``.
    """
    device = samples.y.device
    shape = tuple(samples(0, 1)[0].shape[1:])

    def build() -> nn.Module:
        return models.build(evaluator.model, shape, classes, folders=folders).to(device)

    if models.find(evaluator.model, folders).own:
        some, _ = samples(0, min(2, len(samples)))
        net = own_net(evaluator.model, build, stream(seed, "judge", "weights"), some, classes)
    else:
        net = Net(build())
    net.init(stream(seed, "judge", "weights"))
    params = [leaf for leaf in net.module.parameters() if leaf.requires_grad]
    # The same memory, outside the graph.
    moved = [leaf.detach() for leaf in params]
    optimizer = adam()
    assert optimizer.in_place is not None
    state = tree.leaves(optimizer.init({str(place): leaf for place, leaf in enumerate(moved)}))
    move = optimizer.in_place(moved, state)

    def step(x: Tensor, y: Tensor) -> float:
        loss = functional.cross_entropy(net.module(x), y)
        move(list(torch.autograd.grad(loss, params)), evaluator.lr)
        return float(loss.detach())

    shuffling = stream(seed, "judge", "orders")
    learned = LEARNED * _entropy(samples.y)
    losses: list[float] = []
    with net.drawing_from(number(seed, "judge", "layers")):
        while len(losses) < epochs and not _converged(losses, learned):
            order = torch.randperm(len(samples), generator=shuffling).to(device)
            losses.append(_epoch(step, samples, order.split(evaluator.batch_size)))
    net.module.eval()
    return Trained(net.module, len(losses), losses[-1], _converged(losses, learned))


def _epoch(
    step: Callable[[Tensor, Tensor], float], samples: TensorSamples, batches: Sequence[Tensor]
) -> float:
    """Train for one epoch on mini-batches, given as row indices. Returns the mean loss."""
    total = 0.0  # not by sum(), which rounds in another way since Python 3.12
    for rows in batches:
        total += step(*samples.at(rows)) * len(rows)
    return total / sum(map(len, batches))


def _entropy(labels: Tensor) -> float:
    """The cross-entropy of guesses by the labels' shares, in nats."""
    shares = labels.bincount().double() / len(labels)
    return float(torch.special.entr(shares).sum())


def _converged(losses: list[float], learned: float) -> bool:
    if not losses:
        return False
    before, late = losses[:-PATIENCE], losses[-PATIENCE:]
    if losses[-1] <= ENOUGH:
        return True
    return bool(before) and min(before) < learned and min(late) > 0.99 * min(before)


def accuracy(module: nn.Module, samples: TensorSamples) -> float:
    """The share of correct predictions; NaN without samples."""
    hits = [(module(x).argmax(1) == y).double() for x, y in _batches(module, samples)]
    return float(torch.cat(hits).mean()) if hits else float("nan")


def features(module: nn.Module, samples: TensorSamples) -> Tensor:
    """The features [n, features] of samples in the classifier's body."""
    body = module.get_submodule("body")
    return torch.cat([body(x).flatten(1) for x, _ in _batches(module, samples)])


def _batches(module: nn.Module, samples: TensorSamples) -> Iterator[tuple[Tensor, Tensor]]:
    module.eval()
    with torch.no_grad():
        for first in range(0, len(samples), BATCH):
            yield samples(first, min(first + BATCH, len(samples)))
