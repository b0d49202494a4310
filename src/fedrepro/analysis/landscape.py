"""How loss and accuracy change around a model, over two directions among all models.

Which directions is up to the question. Around one model (SuPerFed, thesis Figure 2.4) they are
random and filter-normalised, after Li et al. (NeurIPS 2018): neither the thesis nor its released
code says which it drew, and without the normalisation a landscape's width only shows how large the
weights are. Through three models they span the :func:`plane` of Garipov et al. (NeurIPS 2018): that
is IMA's Figure 1, which is to come.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError

# How a run's landscape is sampled.
DIRECTIONS = "two random directions, filter-normalised"
POINTS, REACH = 21, 1.0  # along each direction, from -REACH to REACH

Directions = tuple[Tree, Tree]
# The parameters -> loss and accuracy there
Scorer = Callable[[Tree], tuple[float, float]]
# [y][x]; None where the number is not finite
Surface = list[list[float | None]]


def random_directions(centre: Tree, rngs: tuple[torch.Generator, torch.Generator]) -> Directions:
    """Two Gaussian directions, each filter as long as the filter of ``centre`` that it moves.

    A filter is what makes one output of a layer: a row of a matrix, a convolution's kernels for one
    channel. Biases, BatchNorm's parameters and statistics stay where they are.
    """
    first, second = rngs
    return (
        tree.apply(lambda leaf: _like_filters(leaf, first), centre),
        tree.apply(lambda leaf: _like_filters(leaf, second), centre),
    )


def _like_filters(leaf: Tensor, rng: torch.Generator) -> Tensor:
    if leaf.dim() < 2:
        return torch.zeros_like(leaf)
    drawn = torch.randn(leaf.shape, generator=rng, dtype=leaf.dtype).to(leaf.device)
    return drawn * (_filter_norms(leaf) / _filter_norms(drawn))


def _filter_norms(leaf: Tensor) -> Tensor:
    """[filters, 1, ...]."""
    norms: Tensor = torch.linalg.vector_norm(leaf, dim=tuple(range(1, leaf.dim())), keepdim=True)
    return norms


def plane(first: Tree, second: Tree, third: Tree, unit: bool = True) -> Directions:
    """Two orthogonal directions of the plane through three models, seen from ``first``.

    Args:
        unit: of length 1; else divided by their squared lengths, as IMA's text has it, which are no
            unit vectors and stretch the figure (discrepancy B15).

    Raises:
        UserError: if the three lie on a line.
    """
    one = tree.subtract(second, first)
    other = tree.subtract(third, first)
    squared = float(tree.square_norm(one))
    across = tree.subtract(other, tree.scale(one, float(tree.dot(one, other)) / (squared or 1.0)))
    rest = float(tree.square_norm(across))
    if rest <= 1e-12 * float(tree.square_norm(other)) or not squared:
        raise UserError("landscape: three models on a line: expected three that span a plane")
    by = math.sqrt if unit else float
    return tree.scale(one, 1 / by(squared)), tree.scale(across, 1 / by(rest))


def coordinates(model: Tree, centre: Tree, directions: Directions) -> tuple[float, float]:
    """Where ``model`` stands over two orthogonal directions from ``centre``: its projection."""
    away = tree.subtract(model, centre)
    x, y = (float(tree.dot(away, each) / tree.square_norm(each)) for each in directions)
    return x, y


def point(centre: Tree, directions: Directions, x: float, y: float) -> Tree:
    """The model at (x, y): ``centre`` + x times the first direction + y times the second."""
    return tree.apply(lambda leaf, one, other: leaf + x * one + y * other, centre, *directions)


def surfaces(
    score: Scorer,
    centre: Tree,
    directions: Directions,
    xs: Sequence[float],
    ys: Sequence[float],
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Surface, Surface]:
    """Loss and accuracy at every (x, y), in rows of equal y.

    Args:
        progress: told the share of points that are done.
    """
    losses: Surface = []
    accuracies: Surface = []
    for number, y in enumerate(ys):
        row = [score(point(centre, directions, x, y)) for x in xs]
        losses.append([_finite(loss) for loss, _ in row])
        accuracies.append([_finite(accuracy) for _, accuracy in row])
        progress((number + 1) / len(ys))
    return losses, accuracies


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
