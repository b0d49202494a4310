"""Whether two trees are equal, or nearly."""

import torch

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree


def assert_close(left: Tree, right: Tree, tolerance: float = 1e-9) -> None:
    ours, theirs = dict(tree.named(left)), dict(tree.named(right))
    assert ours.keys() == theirs.keys()
    for name, leaf in ours.items():
        torch.testing.assert_close(
            leaf, theirs[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )
