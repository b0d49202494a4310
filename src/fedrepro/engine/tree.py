"""Arithmetic on trees: nested dicts of tensors. Nothing here changes its arguments.

A tree holds whatever a method keeps: ``{"params": {"weight": tensor, ...}, "c": {...}}``. Functions
of two trees need the same shape. Leaves are visited in the order of their dicts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# A Tensor, or a dict[str, Tree]. With that type, mypy would need a check at some 600 places, half
# of them look-ups of a name that the method itself has stored.
Tree = Any


def apply(function: Callable[..., Any], *trees: Tree) -> Tree:
    """Apply ``function`` to the corresponding leaves of one or more trees."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: apply(function, *(tree[key] for tree in trees)) for key in first}
    return function(*trees)


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree."""
    if not isinstance(tree, dict):
        return [tree]
    found: list[Tensor] = []
    for branch in tree.values():
        # No call per leaf: every local step runs this several times.
        if isinstance(branch, dict):
            found += leaves(branch)
        else:
            found.append(branch)
    return found


def ordered_as(tree: Tree, order: Tree) -> Tree:
    """``tree`` with its dicts in the order of those in ``order`` that have the same names."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(order, dict) and tree.keys() == order.keys():
        return {key: ordered_as(tree[key], branch) for key, branch in order.items()}
    return {key: ordered_as(branch, order) for key, branch in tree.items()}


def leaves_as(tree: Tree, order: Tree) -> list[Tensor]:
    """The leaves of ``tree`` that ``order`` names, in its order, followed by the others."""
    if not isinstance(tree, dict):
        return [tree]
    found: list[Tensor] = []
    for key, branch in order.items():
        if isinstance(branch, dict):
            found += leaves_as(tree[key], branch)
        else:
            found.append(tree[key])
    others = (leaf for key, branch in tree.items() if key not in order for leaf in leaves(branch))
    return [*found, *others]


def named(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Pairs of path (keys joined by ``/``) and tensor."""
    if isinstance(tree, dict):
        for key, branch in tree.items():
            yield from named(branch, f"{prefix}/{key}" if prefix else key)
    else:
        yield prefix, tree


def rebuild(tree: Tree, values: Iterator[Tensor]) -> Tree:
    """A tree shaped like ``tree``, with leaves taken from ``values`` in order."""
    if not isinstance(tree, dict):
        return next(values)
    return {
        key: rebuild(branch, values) if isinstance(branch, dict) else next(values)
        for key, branch in tree.items()
    }


def zeros(tree: Tree) -> Tree:
    return apply(torch.zeros_like, tree)


def copy(tree: Tree) -> Tree:
    """New contiguous tensors with the same values, detached from any graph."""
    return apply(lambda leaf: leaf.detach().clone(memory_format=torch.contiguous_format), tree)


def contiguous(tree: Tree) -> Tree:
    """The same tensors made contiguous; copies only those that are not."""
    return apply(torch.Tensor.contiguous, tree)


def add(left: Tree, right: Tree) -> Tree:
    return apply(torch.add, left, right)


def subtract(left: Tree, right: Tree) -> Tree:
    return apply(torch.sub, left, right)


def scale(tree: Tree, factor: float | Tensor) -> Tree:
    return apply(lambda leaf: leaf * factor, tree)


def mix(left: Tree, right: Tree, weight: float | Tensor) -> Tree:
    """Interpolate linearly: ``left`` at weight 0, ``right`` at weight 1."""
    return apply(lambda a, b: a + weight * (b - a), left, right)


def where(mask: Tensor, left: Tree, right: Tree) -> Tree:
    """``left`` where ``mask`` (a scalar tensor) holds, else ``right``."""
    return apply(lambda a, b: torch.where(mask, a, b), left, right)


def dot(left: Tree, right: Tree) -> Tensor:
    """The inner product over all leaves, a scalar tensor."""
    products = [(a * b).sum() for a, b in zip(leaves(left), leaves(right), strict=True)]
    return torch.stack(products).sum()


def square_norm(tree: Tree) -> Tensor:
    return dot(tree, tree)


def stack(trees: Sequence[Tree]) -> Tree:
    """One tree whose leaves have a new leading axis, an entry per tree."""
    return apply(lambda *leaf: torch.stack(leaf), *trees)


def take(tree: Tree, index: int) -> Tree:
    """Entry ``index`` of every leaf's leading axis."""
    return apply(lambda leaf: leaf[index], tree)


def weighted_sum(tree: Tree, weights: Tensor) -> Tree:
    """The sum over every leaf's leading (client) axis, weighted by ``weights`` [clients]."""
    return apply(lambda leaf: torch.tensordot(weights.to(leaf.dtype), leaf, dims=1), tree)


def numel(tree: Tree) -> int:
    """The number of scalars in a tree."""
    return sum(leaf.numel() for leaf in leaves(tree))


def size_in_bytes(tree: Tree) -> int:
    """The size of a tree's tensors when sent uncompressed, in bytes."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def norms(tree: Tree) -> Tensor:
    """The Euclidean norm of every leaf [leaves]."""
    return torch.stack([torch.linalg.vector_norm(leaf) for leaf in leaves(tree)])
