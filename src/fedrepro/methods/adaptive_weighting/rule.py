"""Methods whose server decides on mixing coefficients from the losses that clients report.

Every client reports the mean loss of the model that it received on its own training samples, taken
before it trains and in evaluation mode. The coefficients that follow from it are used in the same
round (discrepancies 6 and 7). A rule is written on numpy arrays, so that it can be replayed on a
log of losses without training anything (:mod:`fedrepro.papers.aaggff.replay`).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import LOSS, Method, deviation, name_of
from fedrepro.engine.steps import Steps, some_epochs
from fedrepro.engine.tree import Tree
from fedrepro.methods.adaptive_weighting.responses import DISTRIBUTIONS, Array
from fedrepro.methods.adaptive_weighting.server_rate import GROWING, growing
from fedrepro.support.errors import UserError, bad_value

MEMORY = "decision"  # where the server's state keeps the rule's memory


@dataclass(frozen=True)
class Observed:
    """What the server sees in a round.

    Attributes:
        round: from 0.
        clients: how many there are, K.
        cohort: ids of those that took part, rising, int64 [m].
        losses: theirs before training, finite and at least 0, float64 [m].
        sizes: their numbers of training samples, float64 [m].
    """

    round: int
    clients: int
    cohort: NDArray[np.int64]
    losses: Array
    sizes: Array


@dataclass(frozen=True)
class Decision:
    """What a rule makes of it.

    Attributes:
        weights: mixing coefficients of the cohort [m], sum 1.
        memory: the rule's state after the round.
        response: what the losses became [m], for rules that transform them.
        gradient, elsewhere: of the decision loss: the cohort's entries [m], and everyone else's.
    """

    weights: Array
    memory: dict[str, Array]
    response: Array | None = None
    gradient: Array | None = None
    elsewhere: float = 0.0


def loss_before_training(ctx: Context, params: Tree, steps: Steps | Tree) -> Tensor:
    """The mean loss of ``params`` over a client's samples, a float64 scalar tensor."""
    epoch = some_epochs(steps, ctx.epochs, 0, 1)
    with torch.no_grad():
        if isinstance(epoch, Steps):
            bound = ctx.net.bind(params)
            sums = [
                ctx.task.losses(ctx.net.predict(bound, batch["x"]), batch["y"], "none").sum(
                    dtype=torch.float64
                )
                for batch in epoch
            ]
            return torch.stack(sums).sum() / len(epoch.orders[0])
        # Side by side there is neither dropout nor BatchNorm (vmap has no rule for them), so
        # evaluation mode is no other.
        x, y, real = (epoch[name].flatten(0, 1) for name in ("x", "y", "real"))
        each = ctx.task.losses(ctx.net(params, x), y, "none") * real
        mean: Tensor = each.sum(dtype=torch.float64) / real.sum(dtype=torch.float64)
        return mean


@dataclass(frozen=True)
class Decider(Method):
    """A method, or (before ``Wrapper`` among the bases) a plug-in, that decides from losses.

    A round in which some client's loss is not finite teaches the rule nothing; its coefficients
    are FedAvg's.
    """

    sets_weights: ClassVar[bool] = True

    constant_server_lr: bool = deviation(True, released=False, item="13", why=GROWING)

    def memory(self, clients: int) -> dict[str, Array]:
        """The rule's state before the first round."""
        return {}

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        """The coefficients of a round; changes none of its arguments."""
        raise NotImplementedError

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        server = super().init_server(ctx, params)
        if "params" not in server:
            raise UserError(
                f"method {name_of(self)}: expected a method whose server has a model: it decides "
                "from the losses of that"
            )
        return {**server, MEMORY: _tensors(self.memory(ctx.clients), ctx)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        # A model of which only a part travels is completed by what the client keeps.
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
    """Why a rule may not set the mixing coefficients of ``inner``, or None if it may."""
    if inner.centralized:
        return "it trains one model in one place: there is nothing to mix"
    if any(layer.sets_weights for layer in inner.layers()):
        return "its mixing coefficients are its own"
    return None


def check_response(where: str, cdf: str, lower: float, upper: float | None) -> None:
    """Refuse a distribution function or a range of responses that make no sense.

    Raises:
        UserError: one line naming the hyperparameter.
    """
    if cdf not in DISTRIBUTIONS:
        raise bad_value(where, "cdf", cdf, f"one of {', '.join(DISTRIBUTIONS)}", DISTRIBUTIONS)
    if not 0 <= lower < np.inf:
        raise bad_value(where, "lower", lower, "a number of at least 0")
    if upper is not None and not (isinstance(upper, int | float) and lower < upper < np.inf):
        raise bad_value(where, "upper", upper, f"a number above lower, which is {lower}")


def proportional(values: Array, weights: Array | None = None) -> Array:
    """``values`` [m] times ``weights`` [m], divided by their sum."""
    scaled = values if weights is None else values * weights
    return np.asarray(scaled / scaled.sum())
