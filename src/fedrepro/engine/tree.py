"""Arithmetic on trees: nested dicts of tensors. Nothing here changes its arguments.

A tree holds whatever a method keeps: ``{"params": {"weight": tensor, ...}, "c": {...}}``. Functions
of two trees need the same shape. Leaves are visited in the order of their dicts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedrepro.engine import internals

# A dict of tensors and of trees. Only the method that stored a name knows which of the two it
# holds, so mypy checks that a tree is a dict and trusts the look-ups in it.
Tree = dict[str, Any]

# A tree or a single tensor: these functions return the kind that they are given.
Branch = TypeVar("Branch", Tree, Tensor)


def apply(function: Callable[..., Any], *trees: Branch) -> Branch:
    """Apply ``function`` to the corresponding leaves of one or more trees.

    Examples:
        >>> import torch
        >>> from fedrepro.engine import tree
        >>> model = {"body": {"w": torch.tensor([1.0, 2.0])}, "b": torch.tensor(3.0)}
        >>> tree.apply(torch.add, model, model)
        {'body': {'w': tensor([2., 4.])}, 'b': tensor(6.)}
    """
    first = trees[0]
    if isinstance(first, dict):
        return {key: apply(function, *(tree[key] for tree in trees)) for key in first}
    leaf: Branch = function(*trees)
    return leaf


def leaves(tree: Tree | Tensor) -> list[Tensor]:
    """The tensors of a tree."""
    if not isinstance(tree, dict):
        return [tree]
    tensors: list[Tensor] = []
    for branch in tree.values():
        # No call per leaf: every local step runs this several times.
        if isinstance(branch, dict):
            tensors += leaves(branch)
        else:
            tensors.append(branch)
    return tensors


def ordered_as(tree: Branch, order: Tree) -> Branch:
    """``tree`` with its dicts in the order of those in ``order`` that have the same names."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(order, dict) and tree.keys() == order.keys():
        return {key: ordered_as(tree[key], branch) for key, branch in order.items()}
    return {key: ordered_as(branch, order) for key, branch in tree.items()}


def leaves_as(tree: Tree | Tensor, order: Tree) -> list[Tensor]:
    """The leaves of ``tree`` that ``order`` names, in its order, followed by the others."""
    if not isinstance(tree, dict):
        return [tree]
    tensors: list[Tensor] = []
    for key, branch in order.items():
        if isinstance(branch, dict):
            tensors += leaves_as(tree[key], branch)
        else:
            tensors.append(tree[key])
    others = (leaf for key, branch in tree.items() if key not in order for leaf in leaves(branch))
    return [*tensors, *others]


def named(tree: Tree | Tensor, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Pairs of path (keys joined by ``/``) and tensor.

    Examples:
        >>> import torch
        >>> from fedrepro.engine import tree
        >>> list(tree.named({"body": {"w": torch.tensor([1.0, 2.0])}, "b": torch.tensor(3.0)}))
        [('body/w', tensor([1., 2.])), ('b', tensor(3.))]
    """
    if isinstance(tree, dict):
        for key, branch in tree.items():
            yield from named(branch, f"{prefix}/{key}" if prefix else key)
    else:
        yield prefix, tree


def rebuild(tree: Branch, values: Iterator[Tensor]) -> Branch:
    """A tree shaped like ``tree``, with leaves taken from ``values`` in order."""
    if not isinstance(tree, dict):
        return next(values)
    return {
        key: rebuild(branch, values) if isinstance(branch, dict) else next(values)
        for key, branch in tree.items()
    }


def zeros(tree: Branch) -> Branch:
    return apply(torch.zeros_like, tree)


def copy(tree: Branch) -> Branch:
    """New contiguous tensors with the same values, detached from any graph."""
    if on_gpu(tree):
        fresh = apply(
            lambda leaf: torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device), tree
        )
        fill(leaves(fresh), leaves(tree))
        return fresh
    return apply(lambda leaf: leaf.detach().clone(memory_format=torch.contiguous_format), tree)


def contiguous(tree: Branch) -> Branch:
    """The same tensors made contiguous; copies only those that are not."""
    return apply(torch.Tensor.contiguous, tree)


def signature(tree: Tree | Tensor) -> object:
    """Names, shapes, types and strides, to compare two trees by."""
    if isinstance(tree, dict):
        return tuple([(key, signature(branch)) for key, branch in tree.items()])
    return tree.shape, tree.dtype, tree.stride()


def fill(there: list[Tensor], values: list[Tensor]) -> None:
    """Copy tensors to the memory of others; on a GPU, all of one type in one launch."""
    with torch.no_grad():
        if not there or not there[0].is_cuda:
            for leaf, value in zip(there, values, strict=True):
                leaf.copy_(value)
            return
        copy_, kinds = internals.each("copy_"), [leaf.dtype for leaf in there]
        if kinds.count(kinds[0]) == len(kinds):
            copy_(there, values)
            return
        for kind in dict.fromkeys(kinds):
            places = [place for place, dtype in enumerate(kinds) if dtype == kind]
            copy_([there[place] for place in places], [values[place] for place in places])


def on_gpu(tree: Tree | Tensor) -> bool:
    """Return True if its leaves are on a GPU, where a launch for each would be the slowest part."""
    while isinstance(tree, dict):
        if not tree:
            return False
        tree = next(iter(tree.values()))
    return tree.is_cuda and not torch.compiler.is_compiling() and not internals.is_mapped()


def add(left: Branch, right: Branch) -> Branch:
    return apply(torch.add, left, right)


def subtract(left: Branch, right: Branch) -> Branch:
    if isinstance(left, dict) and isinstance(right, dict) and on_gpu(left):
        return rebuild(left, iter(internals.each("sub")(leaves(left), leaves_as(right, left))))
    return apply(torch.sub, left, right)


def scale(tree: Branch, factor: float | Tensor) -> Branch:
    return apply(lambda leaf: _typed(leaf * factor, leaf), tree)


def mix(left: Branch, right: Branch, weight: float | Tensor) -> Branch:
    """Interpolate linearly: ``left`` at weight 0, ``right`` at weight 1.

    Examples:
        >>> import torch
        >>> from fedrepro.engine import tree
        >>> tree.mix({"w": torch.tensor([0.0, 4.0])}, {"w": torch.tensor([4.0, 0.0])}, 0.25)
        {'w': tensor([1., 3.])}
    """
    return apply(lambda a, b: _typed(a + weight * (b - a), a), left, right)


def _typed(value: Tensor, leaf: Tensor) -> Tensor:
    """A value in the type of its leaf: one without axes takes that of a factor in float64."""
    return value if leaf.ndim or not leaf.is_floating_point() else value.to(leaf.dtype)


def where(mask: Tensor, left: Branch, right: Branch) -> Branch:
    """``left`` where ``mask`` (a scalar tensor) holds, else ``right``."""
    return apply(lambda a, b: torch.where(mask, a, b), left, right)


def dot(left: Tree | Tensor, right: Tree | Tensor) -> Tensor:
    """The inner product over all leaves, a scalar tensor."""
    products = [(a * b).sum() for a, b in zip(leaves(left), leaves(right), strict=True)]
    return torch.stack(products).sum()


def square_norm(tree: Tree | Tensor) -> Tensor:
    return dot(tree, tree)


def stack(trees: Sequence[Branch]) -> Branch:
    """One tree whose leaves have a new leading axis, an entry per tree."""
    return apply(lambda *leaf: torch.stack(leaf), *trees)


def take(tree: Branch, index: int) -> Branch:
    """Entry ``index`` of every leaf's leading axis."""
    return apply(lambda leaf: leaf[index], tree)


def weighted_sum(tree: Branch, weights: Tensor) -> Branch:
    """The sum over every leaf's leading (client) axis, weighted by ``weights`` [clients].

    Examples:
        Two clients' models, of which the second weighs three times as much:

        >>> import torch
        >>> from fedrepro.engine import tree
        >>> models = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([5.0, 6.0])}]
        >>> tree.weighted_sum(tree.stack(models), torch.tensor([0.25, 0.75]))
        {'w': tensor([4., 5.])}
    """
    return apply(lambda leaf: torch.tensordot(weights.to(leaf.dtype), leaf, dims=1), tree)


def rows(leaf: Tensor) -> Tensor:
    """A leaf [cohort, ...], such as of scalars, as [cohort, numbers of a client]."""
    return leaf.reshape(len(leaf), -1)


def numel(tree: Tree | Tensor) -> int:
    """The number of scalars in a tree."""
    return sum(leaf.numel() for leaf in leaves(tree))


def size_in_bytes(tree: Tree | Tensor) -> int:
    """The size of a tree's tensors when sent uncompressed, in bytes."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def all_finite(tree: Tree | Tensor) -> bool:
    """Return True if all floating-point numbers of a tree are finite; wait once for each device."""
    flags: dict[torch.device, list[Tensor]] = {}
    for leaf in leaves(tree):
        if leaf.is_floating_point():
            flags.setdefault(leaf.device, []).append(leaf.isfinite().all())
    return all(bool(torch.stack(of_device).all()) for of_device in flags.values())


def norms(tree: Tree | Tensor) -> Tensor:
    """The Euclidean norm of every leaf [leaves]."""
    return torch.stack([torch.linalg.vector_norm(leaf) for leaf in leaves(tree)])
