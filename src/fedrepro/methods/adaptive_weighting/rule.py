"""Base of methods with adaptive weighting: the server sets aggregation weights from losses.

Every client sends the mean loss of the received model on its own training samples, computed before
training and in evaluation mode. The weights computed from these losses apply to the same round
(discrepancies 6 and 7). A rule works on numpy arrays, so that it can be replayed on a log of losses
without training anything (:mod:`fedrepro.papers.aaggff.replay`).
"""

from dataclasses import dataclass
from math import isnan
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.evaluate import OwnMean
from fedrepro.engine.method import LOSS, Context, Method, Tree, deviation, require_server_model
from fedrepro.engine.steps import Steps, some_epochs
from fedrepro.methods.adaptive_weighting.responses import DISTRIBUTIONS, Array
from fedrepro.methods.adaptive_weighting.server_rate import GROWING, growing
from fedrepro.support.errors import bad_value, refuse_unknown

MEMORY = "decision"  # the entry of the server's state with the rule's memory


@dataclass(frozen=True)
class Observed:
    """The server's observations in a round.

    Attributes:
        round: from 0.
        clients: number of clients, K.
        cohort: ids of those that took part, ascending, int64 [m].
        losses: their losses before training, finite and at least 0, float64 [m].
        sizes: their numbers of training samples, float64 [m].
    """

    round: int
    clients: int
    cohort: NDArray[np.int64]
    losses: Array
    sizes: Array


@dataclass(frozen=True)
class Decision:
    """The result of a rule.

    Attributes:
        weights: aggregation weights of the cohort [m], sum 1.
        memory: the rule's state after the round.
        response: the transformed losses [m], for rules that transform them.
        gradient, elsewhere: of the decision loss: the cohort's entries [m], and the value of all
            other entries.
    """

    weights: Array
    memory: dict[str, Array]
    response: Array | None = None
    gradient: Array | None = None
    elsewhere: float = 0.0


def loss_before_training(ctx: Context, params: Tree, steps: Steps | Tree) -> Tensor:
    """The mean loss of ``params`` over a client's samples, a float64 scalar tensor.

    It is the objective that the client then trains on: with class weights, a weighted mean. A loss
    that is only known as a mean is taken of all samples at once, and is 0 where no target counts.
    """
    epoch = some_epochs(steps, ctx.epochs, 0, 1)
    with torch.no_grad():
        if isinstance(epoch, Steps):
            bound = ctx.net.bind(params)
            predicted = ((ctx.net.predict(bound, batch["x"]), batch) for batch in epoch)
            if ctx.task.of_mean:
                own = OwnMean(ctx.task)
                for outputs, batch in predicted:
                    own.add(outputs, batch["y"])
                mean = own.mean()
                return ctx.sizes.new_tensor(0.0 if isnan(mean) else mean, dtype=torch.float64)
            parts = [ctx.task.loss_parts(outputs, batch) for outputs, batch in predicted]
        else:
            # Side by side there is no dropout or BatchNorm (vmap does not support them), so
            # evaluation mode makes no difference.
            batch = {name: epoch[name].flatten(0, 1) for name in ("x", "y", "real")}
            parts = [ctx.task.loss_parts(ctx.net(params, batch["x"]), batch)]
        sums = [(losses * shares).sum(dtype=torch.float64) for losses, shares in parts]
        total = [shares.sum(dtype=torch.float64) for _, shares in parts]
        return torch.stack(sums).sum() / torch.stack(total).sum()


NEEDS_LOSSES = (
    "it decides on the losses of all clients in every round; aaggff_d learns from a sample of "
    "clients"
)


@dataclass(frozen=True)
class Decider(Method):
    """A method or, with ``Wrapper`` as a further base, a wrapper that sets weights from losses.

    A round in which a client's loss is not finite does not change the rule's memory; its weights
    are FedAvg's.
    """

    sets_weights: ClassVar[bool] = True

    constant_server_lr: bool = deviation(True, released=False, item="13", why=GROWING)

    def memory(self, clients: int) -> dict[str, Array]:
        """The rule's state before the first round."""
        return {}

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        """The weights of a round; changes none of its arguments."""
        raise NotImplementedError

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        server = super().init_server(ctx, params)
        require_server_model(self, server, "clients compute their losses with")
        return {**server, MEMORY: _tensors(self.memory(ctx.clients), ctx)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        # If only a part of the model is communicated, the client's part completes it.
        received = {**message["params"], **client_state.get("kept", {})}
        before = loss_before_training(ctx, received, steps)
        update, client_state = super().client_update(ctx, message, client_state, steps)
        return {**update, LOSS: before}, client_state

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        losses = _array(updates[LOSS])
        if not np.isfinite(losses).all():
            return ctx.sizes / ctx.sizes.sum(), server
        cohort = ctx.cohort.cpu().numpy()
        seen = Observed(ctx.round, ctx.clients, cohort, losses, _array(ctx.sizes))
        decision = self.decide(tree.apply(_array, server[MEMORY]), seen)
        weights = torch.from_numpy(decision.weights).to(ctx.sizes)
        return weights, {**server, MEMORY: _tensors(decision.memory, ctx)}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        ctx = ctx if self.constant_server_lr else growing(ctx)
        return super().server_update(ctx, server, updates, weights)


def _array(leaf: Tensor) -> Array:
    return leaf.detach().cpu().numpy().astype(np.float64, copy=False)


def _tensors(memory: dict[str, Array], ctx: Context) -> Tree:
    return {name: torch.from_numpy(value).to(ctx.sizes.device) for name, value in memory.items()}


def refused(inner: Method) -> str | None:
    """Why a rule may not set the aggregation weights of ``inner``, or None if it may."""
    if inner.centralized:
        return "it trains one model in one place: there is nothing to mix"
    if any(layer.sets_weights for layer in inner.layers()):
        return "its mixing coefficients are its own"
    return None


def check_response(where: str, cdf: str, lower: float, upper: float | None) -> None:
    """Refuse an unknown distribution function or an invalid range of responses.

    Raises:
        UserError: one line that names the hyperparameter.
    """
    refuse_unknown(where, "cdf", [cdf], DISTRIBUTIONS)
    if not 0 <= lower < np.inf:
        raise bad_value(where, "lower", lower, "a number of at least 0")
    if upper is not None and not (isinstance(upper, int | float) and lower < upper < np.inf):
        raise bad_value(where, "upper", upper, f"a number above lower, which is {lower}")


def proportional(values: Array, weights: Array | None = None) -> Array:
    """``values`` [m] times ``weights`` [m], divided by their sum."""
    scaled = values if weights is None else values * weights
    return np.asarray(scaled / scaled.sum())
