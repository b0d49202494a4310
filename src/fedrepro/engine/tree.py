"""Arithmetic on trees: nested dicts of tensors. Nothing here changes its arguments.

A tree holds whatever a method keeps: ``{"params": {"weight": tensor, ...}, "c": {...}}``. Binary
functions need trees of the same shape. Leaves are visited in the order of their dicts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# A Tensor, or a dict[str, Tree]. A type checker that is told so asks at some 600 places which it
# is, half of them look-ups by a name that the method itself has put there.
Tree = Any


def apply(function: Callable[..., Any], *trees: Tree) -> Tree:
    """``function`` of the corresponding leaves of one or more trees."""
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
        # Not one call per leaf: every local step asks several times.
        if isinstance(branch, dict):
            found += leaves(branch)
        else:
            found.append(branch)
    return found


def ordered_as(tree: Tree, order: Tree) -> Tree:
    """``tree`` whose dicts of ``order``'s names have them in its order, at whatever depth."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(order, dict) and tree.keys() == order.keys():
        return {key: ordered_as(tree[key], branch) for key, branch in order.items()}
    return {key: ordered_as(branch, order) for key, branch in tree.items()}


def leaves_as(tree: Tree, order: Tree) -> list[Tensor]:
    """The leaves of ``tree`` that ``order`` names, in its order, and then all others."""
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
    """A tree of the shape of ``tree`` whose leaves are taken from ``values`` in order."""
    if not isinstance(tree, dict):
        return next(values)
    return {
        key: rebuild(branch, values) if isinstance(branch, dict) else next(values)
        for key, branch in tree.items()
    }


def zeros(tree: Tree) -> Tree:
    return apply(torch.zeros_like, tree)


def copy(tree: Tree) -> Tree:
    """New tensors with the same values, cut off from any graph, in memory as they are in a file."""
    return apply(lambda leaf: leaf.detach().clone(memory_format=torch.contiguous_format), tree)


def contiguous(tree: Tree) -> Tree:
    """The same tensors in memory as they are in a file, copied where they are not."""
    return apply(torch.Tensor.contiguous, tree)


def add(left: Tree, right: Tree) -> Tree:
    return apply(torch.add, left, right)


def subtract(left: Tree, right: Tree) -> Tree:
    return apply(torch.sub, left, right)


def scale(tree: Tree, factor: float | Tensor) -> Tree:
    return apply(lambda leaf: leaf * factor, tree)


def mix(left: Tree, right: Tree, weight: float | Tensor) -> Tree:
    """``left`` at weight 0, ``right`` at weight 1, the line between them elsewhere."""
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
    """One tree whose leaves have a new leading axis."""
    return apply(lambda *leaf: torch.stack(leaf), *trees)


def take(tree: Tree, index: int) -> Tree:
    """One entry of every leaf's leading axis."""
    return apply(lambda leaf: leaf[index], tree)


def weighted_sum(tree: Tree, weights: Tensor) -> Tree:
    """The sum over the leading (client) axis of every leaf, weighted by ``weights`` [clients]."""
    return apply(lambda leaf: torch.tensordot(weights.to(leaf.dtype), leaf, dims=1), tree)


def numel(tree: Tree) -> int:
    """How many numbers a tree holds."""
    return sum(leaf.numel() for leaf in leaves(tree))


def size_in_bytes(tree: Tree) -> int:
    """What the tensors of a tree occupy when sent over a wire, uncompressed."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def norms(tree: Tree) -> Tensor:
    """The Euclidean norm of every leaf [leaves]."""
    return torch.stack([torch.linalg.vector_norm(leaf) for leaf in leaves(tree)])
