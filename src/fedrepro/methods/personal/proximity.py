"""The pull of one model towards another in FedProx, Ditto, pFedMe and SuPerFed."""

from collections.abc import Callable

from torch import Tensor

from fedrepro.engine.method import Context, Tree, differentiate, tree

UNSQUARED = "mu * sum of layer norms instead of mu/2 * |.|^2"


def proximity(ctx: Context, params: Tree, anchor: Tree, mu: float, squared: bool = True) -> Tensor:
    """mu/2 |theta - anchor|^2 over trainable parameters, a scalar tensor.

    If not ``squared``: mu times the sum over leaves of |theta - anchor|, as in the code that
    SuPerFed and AAggFF released (discrepancy 21).
    """
    away = tree.subtract(ctx.net.trainable(params), ctx.net.trainable(anchor))
    return mu / 2 * tree.square_norm(away) if squared else mu * tree.norms(away).sum()


def gradient_with_pull(
    ctx: Context,
    loss: Callable[[Tree], Tensor],
    params: Tree,
    anchor: Tree,
    mu: float,
    squared: bool = True,
) -> Tree:
    """The gradient of ``loss`` plus :func:`proximity` to ``anchor`` at ``params``.

    mu (theta - anchor) is added to the gradient of the loss. This gives the same bits as autograd,
    which would take longer for the square than for all of a small model.
    """
    if not squared:
        return differentiate(lambda at: loss(at) + proximity(ctx, at, anchor, mu, False), params)
    gradients = differentiate(loss, params)

    def added(leaf: Tensor, fixed: Tensor, gradient: Tensor) -> Tensor:
        # Added out of place: of stacked clients, only the gradient may have a client dimension.
        return (leaf.detach() - fixed).mul_(mu).add(gradient)

    every = (ctx.net.trainable(leaves) for leaves in (params, anchor, gradients))
    return {**gradients, **tree.apply(added, *every)}
