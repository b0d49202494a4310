r"""IMA, iterative moving averaging (Zhou et al., IEEE TMC 2024, Algorithm 1). Wraps any method.

$$ \bar w_t = \frac{1}{P} \sum_{j=0}^{P-1} w_{t-j}, \quad \eta_t = \eta_{t_s} (1 - \text{decay})^{t
- t_s} \quad \text{for } t \ge t_s $$

Symbols: $w_t$: the inner method's model after round $t$; $P$: ``window``; $t_s$: the first round
that averages.

The server keeps the last P global models, from round 0 on. From round t_s = start * R on, the mean
of those P replaces the global model: it is broadcast and evaluated. The window holds the models as
the method made them, not their means (discrepancy B1). While it holds fewer than P, as in the first
rounds with start 0, the mean is taken over those. From t_s on the learning rate also decays faster:
lr(t) = lr(t_s) * (1 - decay)^(t - t_s), the paper's exponential decay (EXD), replaces the setting's
own decay (discrepancy B20). Rounds count from 0, as in the code; Algorithm 1 counts from 1 (B1):
``start`` = (t_s - 1) / R.

With an adaptive server optimizer, the released code averages the mean client models of the last P
rounds before the adaptive step, and sets m and v to zero in round t_s only (B4): ``ima@released``.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.fidelity import BelowOne, Positive, PositiveWhole, Share, one_of, whole
from fedrepro.engine.method import Context, Method, Tree, Wrapper, deviation, require_server_model
from fedrepro.engine.optim import Optimizer, Rate
from fedrepro.engine.steps import Steps, some_epochs
from fedrepro.support.errors import UserError, bad_value

SCHEMES = ("exponential", "constant", "cyclic", "epoch", "none")


def full_window(params: Tree, length: int) -> Tree:
    """``length`` copies of ``params``, leaves [length, ...]."""
    return tree.apply(lambda leaf: leaf.expand(length, *leaf.shape).clone(), params)


def slide(window: Tree, newest: Tree) -> Tree:
    """Drop the oldest entry and append ``newest``."""
    return tree.apply(lambda past, new: torch.cat([past[1:], new[None]]), window, newest)


def mean_of(window: Tree, entries: int) -> Tree:
    """The mean of the newest ``entries``."""
    return tree.apply(lambda past: past[-entries:].mean(0), window)


@dataclass(frozen=True)
class IMA(Wrapper):
    """IMA (Zhou et al., IEEE TMC 2024, Algorithm 1)."""

    window: PositiveWhole = 5  # P: how many of the last global models are averaged
    start: Share = 0.75  # t_s as a share of all rounds
    scheme: Annotated[str, one_of(*SCHEMES)] = "exponential"  # constant, cyclic, epoch or none
    decay: BelowOne = 0.03  # exponential: of the learning rate per round
    period: Annotated[int, whole(2)] = 20  # cyclic, epoch: rounds
    least: Positive = 5e-5  # constant, cyclic: the lowest learning rate
    before_server_optimizer: bool = deviation(
        False,
        released=True,
        item="B4",
        why="the window holds client averages, before the server optimizer's step",
    )
    smooth_epochs: bool = deviation(
        True, released=False, item="B2", why="scheme epoch: the learning rate jumps up at t_s"
    )
    saw_tooth: bool = deviation(
        True, released=False, item="B3", why="scheme cyclic: it starts at lr(t_s) and overshoots"
    )

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        if inner.centralized:
            return "it trains one model in one place: there are no global models to average"
        if any(layer.needs_mean for layer in inner.layers()):
            return "its clients' corrections add up to 0 only around the mean of their last models"
        while isinstance(inner, Wrapper):
            if isinstance(inner, cls):
                return "it already is a moving average"
            inner = inner.inner
        return None

    def first(self, ctx: Context) -> int:
        """t_s = int(start * R), the first round after which the mean replaces the global model.

        Rounded down, like the released code's int(.75 R).
        """
        return self.first_of(ctx.rounds)

    def first_of(self, rounds: int) -> int:
        """t_s for this number of rounds."""
        return int(self.start * rounds + 1e-9)

    def shared_prefix(self, rounds: int) -> tuple[Method, int]:
        """The inner method, until the window begins to fill: P - 1 rounds before t_s."""
        return self.inner, max(self.first_of(rounds) - self.window + 1, 0)

    def from_parent(self, ctx: Context, server: Tree) -> Tree:
        if self.before_server_optimizer:
            # Until t_s, because the inner method defines which part of the model is averaged.
            begun = self.inner.init_server(self.with_window(ctx), server["params"])["optimizer"]
            return {**server, "optimizer": {**begun, "inner": server["optimizer"]}}
        return {**server, "ima": full_window(server["params"], self.window)}

    def averages(self, ctx: Context) -> bool:
        return ctx.round >= self.first(ctx)

    def entries(self, ctx: Context) -> int:
        return min(self.window, ctx.round + 1)

    def learning_rate(self, ctx: Context, round: int) -> float:
        first = self.first(ctx)
        since = round - first
        if since < 0 or self.scheme == "none":
            return self.inner.learning_rate(ctx, round)
        if self.scheme == "exponential":
            return self.inner.learning_rate(ctx, first) * (1 - self.decay) ** since
        if self.scheme == "constant":
            return self.least
        if self.scheme == "cyclic":
            return self.cyclic(ctx, since)
        jumps = not self.smooth_epochs and self.layers()[-1].decay_restarts
        return self.inner.learning_rate(ctx, since if jumps else round)

    def cyclic(self, ctx: Context, since: int) -> float:
        place = since % self.period
        if self.saw_tooth:
            most = self.inner.learning_rate(ctx, 0)
            return most - (most - self.least) * place / (self.period - 1)
        most = self.inner.learning_rate(ctx, self.first(ctx))
        way = (most - self.least) * place / (self.period / 2)
        return self.least + way if place >= self.period / 2 else most - way

    def epochs(self, ctx: Context) -> int:
        """Local epochs of this round."""
        if self.scheme != "epoch" or not self.averages(ctx):
            return ctx.epochs
        # FedFA's released code drops the first epoch at t_s, the others after a period (B2).
        early = not self.smooth_epochs and not self.layers()[-1].decay_restarts
        return max(ctx.epochs - (ctx.round - self.first(ctx)) // self.period - early, 1)

    def check(self, ctx: Context) -> None:
        self.inner.check(ctx)
        fewest = self.epochs(replace(ctx, round=ctx.rounds - 1))
        if fewest == ctx.epochs:
            return
        try:
            self.inner.check(replace(ctx, epochs=fewest))
        except UserError as error:
            wanted = f"one that keeps more epochs than the last rounds' {fewest}: {error}"
            raise bad_value("method ima", "scheme", self.scheme, wanted) from error

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        message = self.inner.broadcast(ctx, server)
        if self.epochs(ctx) == ctx.epochs:
            return message
        # Sends no bytes: its length is the number of epochs, so that no round is recompiled.
        return {**message, "epochs": torch.empty(self.epochs(ctx), 0)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        if "epochs" not in message:
            return self.inner.client_update(ctx, message, client_state, steps)
        fewer = len(message["epochs"])
        steps = some_epochs(steps, ctx.epochs, 0, fewer)
        return self.inner.client_update(replace(ctx, epochs=fewer), message, client_state, steps)

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        if self.before_server_optimizer:
            return self.inner.init_server(self.with_window(ctx), params)
        server = self.inner.init_server(ctx, params)
        require_server_model(self, server, "IMA averages")
        return self.from_parent(ctx, server)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        if self.before_server_optimizer:
            return self.inner.server_update(self.with_window(ctx), server, updates, weights)
        moved = self.inner.server_update(ctx, server, updates, weights)
        window = slide(server["ima"], moved["params"])
        params = mean_of(window, self.entries(ctx)) if self.averages(ctx) else moved["params"]
        return {**moved, "ima": window, "params": params}

    def with_window(self, ctx: Context) -> Context:
        """``ctx`` with a server optimizer that follows the window's mean (B4)."""
        inner = ctx.server_optimizer

        def init(params: Tree) -> Tree:
            return {"inner": inner.init(params), "window": full_window(params, self.window)}

        def update(delta: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
            window = slide(state["window"], tree.subtract(params, delta))
            if not self.averages(ctx):
                change, after = inner.update(delta, state["inner"], params, rate)
                return change, {"inner": after, "window": window}
            delta = tree.subtract(params, mean_of(window, self.entries(ctx)))
            if ctx.round > self.first(ctx):
                change, after = inner.update(delta, state["inner"], params, rate)
                return change, {"inner": after, "window": window}
            # Zero for this one round; afterwards the earlier state is restored.
            change, _ = inner.update(delta, tree.zeros(state["inner"]), params, rate)
            return change, {"inner": state["inner"], "window": window}

        return replace(ctx, server_optimizer=Optimizer(init, update))
