"""The pull of one model towards another, as FedProx, Ditto, pFedMe and SuPerFed have it."""

from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.tree import Tree

UNSQUARED = "mu * sum of layer norms instead of mu/2 * |.|^2"


def proximity(ctx: Context, theta: Tree, anchor: Tree, mu: float, squared: bool = True) -> Tensor:
    """mu/2 |theta - anchor|^2 over trainable parameters, a scalar tensor.

    Not ``squared``: mu times the sum over leaves of |theta - anchor|, as in the code that SuPerFed
    and AAggFF released (discrepancy 21).
    """
    away = tree.subtract(ctx.net.trainable(theta), ctx.net.trainable(anchor))
    return mu / 2 * tree.square_norm(away) if squared else mu * tree.norms(away).sum()
