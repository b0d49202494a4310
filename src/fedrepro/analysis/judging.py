"""Classifiers that evaluate synthetic sets, trained on such a set or on real samples."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.check.own_models import own_net
from fedrepro.config.settings import Evaluator
from fedrepro.data.tensors.samples import TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.net import Net
from fedrepro.engine.optim import adam
from fedrepro.models import registry as models
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.rng import number, stream

ENOUGH = 0.01  # the mean loss of an epoch at which training has converged
PATIENCE = 50  # epochs in which it must fall by a hundredth
BATCH = 500  # batch size in testing


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
    :data:`PATIENCE` epochs. Weights, orders and dropout follow from ``seed``.
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
    losses: list[float] = []
    with net.drawing_from(number(seed, "judge", "layers")):
        while len(losses) < epochs and not _converged(losses):
            order = torch.randperm(len(samples), generator=shuffling).to(device)
            losses.append(_epoch(step, samples, order.split(evaluator.batch_size)))
    net.module.eval()
    return Trained(net.module, len(losses), losses[-1], _converged(losses))


def _epoch(
    step: Callable[[Tensor, Tensor], float], samples: TensorSamples, batches: Sequence[Tensor]
) -> float:
    """Train for one epoch on mini-batches, given as row indices. Returns the mean loss."""
    total = 0.0  # not by sum(), which rounds in another way since Python 3.12
    for rows in batches:
        total += step(*samples.at(rows)) * len(rows)
    return total / sum(map(len, batches))


def _converged(losses: list[float]) -> bool:
    if not losses:
        return False
    before, late = losses[:-PATIENCE], losses[-PATIENCE:]
    return losses[-1] <= ENOUGH or (bool(before) and min(late) > 0.99 * min(before))


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
