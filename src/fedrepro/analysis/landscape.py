"""Loss and accuracy around a model, along two directions in parameter space.

The directions depend on the question. Around one model (SuPerFed, thesis Figure 2.4) they are
random and filter-normalised, after Li et al. (NeurIPS 2018); without normalisation a landscape's
width only reflects the size of the weights. The thesis follows Garipov et al. (NeurIPS 2018) there,
whose planes go through three models, and does not say which (discrepancy 55). Through three models
directions span their :func:`plane`, as in IMA's Figure 1; two models define the :func:`line` of
Goodfellow et al. (ICLR 2015).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from fedrepro.engine import tree
from fedrepro.engine.evaluate import OwnMean
from fedrepro.engine.net import Net
from fedrepro.engine.task import Task
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import refusal

# How to sample a run's landscape.
DIRECTIONS = "two random directions, filter-normalised"
POINTS, REACH = 21, 1.0  # along each direction, from -REACH to REACH

Directions = tuple[Tree, Tree]
# parameters -> loss and accuracy
Scorer = Callable[[Tree], tuple[float, float]]
# along a line; None for a number that is not finite
Row = list[float | None]
BATCH = 200  # batch size: a small network's activations then stay in the cache


def random_directions(centre: Tree, rngs: tuple[torch.Generator, torch.Generator]) -> Directions:
    """Two Gaussian directions, each filter scaled to the norm of the same filter of ``centre``.

    A filter produces one output of a layer: a row of a matrix, a convolution's kernels for one
    channel. Directions are zero for biases and for BatchNorm's parameters and statistics.
    """
    one, other = (tree.apply(partial(_like_filters, rng=rng), centre) for rng in rngs)
    return one, other


def _like_filters(leaf: Tensor, rng: torch.Generator) -> Tensor:
    if leaf.dim() < 2:
        return torch.zeros_like(leaf)
    drawn = torch.randn(leaf.shape, generator=rng, dtype=leaf.dtype).to(leaf.device)
    return drawn * (_filter_norms(leaf) / _filter_norms(drawn))


def _filter_norms(leaf: Tensor) -> Tensor:
    """[filters, 1, ...]."""
    norms: Tensor = torch.linalg.vector_norm(leaf, dim=tuple(range(1, leaf.dim())), keepdim=True)
    return norms


def require_same_shape(models: Sequence[Tree]) -> None:
    """Raises UserError unless all models have the same names and shapes."""
    first = {name: tuple(leaf.shape) for name, leaf in tree.named(models[0])}
    for model in models[1:]:
        other = {name: tuple(leaf.shape) for name, leaf in tree.named(model)}
        for name in sorted(first.keys() | other.keys()):
            one, two = first.get(name, "missing"), other.get(name, "missing")
            if one != two:
                why = f"{name} is {one} in one and {two} in another"
                wanted = "expected models of one architecture"
                raise refusal("models of different shape", f"{why}: {wanted}", name)


def average_of(models: Sequence[Tree], weights: Tensor) -> Tree:
    """The model whose parameters are the weighted mean of the models' (FMA); ``weights`` sum to 1.

    Raises:
        UserError: if the models' shapes differ.
    """
    require_same_shape(models)
    return tree.weighted_sum(tree.stack(models), weights)


def plane(first: Tree, second: Tree, third: Tree, *, unit: bool = True) -> Directions:
    """Two orthogonal directions of the plane through three models, from ``first``.

    Args:
        unit: whether to normalise to length 1; else they are divided by their squared lengths, as
            in IMA's text, which gives no unit vectors and stretches the figure (discrepancy B15).

    Raises:
        UserError: if the three are collinear.
    """
    one = tree.subtract(second, first)
    other = tree.subtract(third, first)
    squared = float(tree.square_norm(one))
    across = tree.subtract(other, tree.scale(one, float(tree.dot(one, other)) / (squared or 1.0)))
    rest = float(tree.square_norm(across))
    if rest <= 1e-12 * float(tree.square_norm(other)) or not squared:
        raise refusal("landscape", "three models on a line: expected three that span a plane")
    by = math.sqrt if unit else float
    return tree.scale(one, 1 / by(squared)), tree.scale(across, 1 / by(rest))


def coordinates(model: Tree, centre: Tree, directions: Directions) -> tuple[float, float]:
    """The coordinates of ``model``'s projection on two orthogonal directions from ``centre``."""
    away = tree.subtract(model, centre)
    x, y = (float(tree.dot(away, each) / tree.square_norm(each)) for each in directions)
    return x, y


def point(centre: Tree, directions: Directions, x: float, y: float) -> Tree:
    """The model at (x, y): ``centre`` + x times the first direction + y times the second."""
    return tree.apply(lambda leaf, one, other: leaf + x * one + y * other, centre, *directions)


def axes(
    places: Sequence[tuple[float, float]], points: int = 41, margin: float = 0.3
) -> tuple[list[float], list[float]]:
    """Coordinates x and y of a grid around ``places``, evenly spaced.

    Args:
        margin: how far the grid extends beyond them, as a share of their larger extent.
    """
    corners = torch.tensor(places, dtype=torch.float64)
    low, high = corners.amin(0), corners.amax(0)
    beyond = margin * float((high - low).max())
    x, y = (
        torch.linspace(float(low[axis]) - beyond, float(high[axis]) + beyond, points).tolist()
        for axis in (0, 1)
    )
    return x, y


class _Pool(nn.Module):
    """Max-pooling of 2 x 2 by the maximum of strided views, with the same results.

    PyTorch's also finds the index of each maximum, which takes as long as a small convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
        x = torch.maximum(x[..., 0:height:2, :], x[..., 1:height:2, :])
        return torch.maximum(x[..., 0:width:2], x[..., 1:width:2])


def _pools_quickly(net: Net) -> Net:
    """A copy of the net for evaluation only, with the same parameter names.

    ReLU is moved after pooling, where it has a quarter of the numbers: the two commute.
    """
    copied = deepcopy(net.module)
    for parent in list(copied.modules()):
        before = ""
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.MaxPool2d) and _is_plain(child):
                setattr(parent, name, _Pool())
                relu = getattr(parent, before, None)
                if isinstance(parent, nn.Sequential) and isinstance(relu, nn.ReLU):
                    setattr(parent, before, _Pool())
                    setattr(parent, name, nn.ReLU())
            before = name
    copied.eval()
    return Net(copied)


def _is_plain(pool: nn.MaxPool2d) -> bool:
    sizes = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    same = [each if isinstance(each, int) else None for each in sizes]
    return same == [2, 2, 0, 1] and not pool.ceil_mode and not pool.return_indices


def scorer(net: Net, task: Task, x: Tensor, y: Tensor, bfloat16: bool = False) -> Scorer:
    """Mean loss and accuracy on fixed inputs ``x`` [n, ...] and targets ``y`` [n].

    For many models on the same samples: converting images to channels-last once and pooling without
    indices make small convolutional networks two to three times as fast on a CPU.

    Args:
        bfloat16: convolve and multiply with 8 bits of precision, about 2.5 times faster still on a
            CPU with AMX; losses change by some thousandths, which is invisible in figures.
    """
    inputs = x.to(torch.bfloat16) if bfloat16 and x.is_floating_point() else x
    inputs = inputs.to(memory_format=torch.channels_last) if x.dim() == 4 else inputs
    batches = list(zip(inputs.split(BATCH), y.split(BATCH), strict=True))
    predictions = float(task.predictions(y).sum())
    quick = _pools_quickly(net)

    @torch.no_grad()
    def score(params: Tree) -> tuple[float, float]:
        bound = quick.bind(params)
        loss, hits, own = 0.0, 0.0, OwnMean(task) if task.of_mean else None
        for x, y in batches:
            with torch.autocast(x.device.type, torch.bfloat16, enabled=bfloat16):
                outputs = quick(bound, x)
            outputs = outputs.to(torch.get_default_dtype())
            if own:
                own.add(outputs, y)
            else:
                loss += float(task.losses(outputs, y, "none").sum(dtype=torch.float64))
            hits += float(task.hits(outputs, y).sum(dtype=torch.float64))
        loss = own.mean() if own else loss / len(inputs)
        return loss, hits / predictions if predictions else math.nan

    return score


def line(score: Scorer, first: Tree, second: Tree, betas: Sequence[float]) -> tuple[Row, Row]:
    """Loss and accuracy of beta * first + (1 - beta) * second, for every beta.

    Raises:
        UserError: if the models' shapes differ.
    """
    require_same_shape([first, second])
    row = [score(tree.mix(second, first, beta)) for beta in betas]
    return [finite(loss) for loss, _ in row], [finite(accuracy) for _, accuracy in row]


def rows(
    score: Scorer, centre: Tree, directions: Directions, xs: Sequence[float], ys: Sequence[float]
) -> Iterator[tuple[Row, Row]]:
    """Loss and accuracy at every x, for one y after another.

    Rows are independent: a caller that saved finished ones can continue with the other ys.
    """
    for y in ys:
        row = [score(point(centre, directions, x, y)) for x in xs]
        yield [finite(loss) for loss, _ in row], [finite(accuracy) for _, accuracy in row]


def finite(value: float | None) -> float | None:
    """A number as JSON has it: None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None
