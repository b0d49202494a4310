"""What a federated method is: pure hooks, whose defaults are FedAvg.

No hook may change ``self``, its arguments or global randomness. What must survive a round is
returned, in ``server`` (one tree) or ``own`` (one tree per client). So that resuming, running
clients side by side and composing methods need no help from a method's author.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import Faithful
from fedrepro.engine.fidelity import divergence as divergence
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree

LOSS = "loss_before"  # in a report: the loss that a method decides on mixing coefficients from


def name_of(method: "Method") -> str:
    """What a method is called: as its file."""
    return type(method).__module__.rpartition(".")[2]


@dataclass(frozen=True)
class Method(Faithful):
    """FedAvg (McMahan et al., AISTATS 2017, Algorithm 1): average models, weighted by samples."""

    pooled: ClassVar[bool] = False  # one client holds all data
    full_participation: ClassVar[bool] = False  # needs every client in every round
    weighs: ClassVar[bool] = False  # no wrapper may set its mixing coefficients: they are it
    mixes: ClassVar[bool] = False  # clients use mixtures of two models: see `mixture`

    def layers(self) -> "list[Method]":
        """This method and, for a wrapper, all that it wraps, from the outside in."""
        return [self]

    def check(self, ctx: Context) -> None:
        """Refuse a federation that this method can't serve.

        Raises:
            UserError: one line that says why.
        """

    # --- state ------------------------------------------------------------------------------
    def init(self, ctx: Context, params: Tree) -> Tree:
        """The server's state before the first round."""
        trainable = ctx.net.trainable(params)
        return {"params": params, "optimizer": ctx.server_optimizer.init(trainable)}

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        """One client's state when it is met for the first time."""
        return {}

    # --- server to client -------------------------------------------------------------------
    def learning_rate(self, ctx: Context, round: int) -> float:
        """The clients' learning rate in ``round``."""
        return ctx.schedule(round)

    def send(self, ctx: Context, server: Tree) -> Tree:
        """What every client of the cohort receives."""
        return {"params": server["params"]}

    # --- client -----------------------------------------------------------------------------
    def draw(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        """All of a client's randomness in a round but the shuffling: leaves [steps, ...].

        Step s finds its entry in its mini-batch, under the same name.
        """
        return {}

    def loss(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tensor:
        """The local objective on one mini-batch, a scalar tensor."""
        return ctx.task.loss(ctx.net(theta, batch["x"]), batch)

    def gradient(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tree:
        """The direction that a local step descends, over the trainable leaves of ``theta``."""
        return differentiate(lambda theta: self.loss(ctx, sent, own, theta, batch), theta)

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        """A client's round. Returns what it reports and its state; both are new tensors."""
        theta, _ = descend(ctx, self.gradient, sent, own, sent["params"], steps)
        return {"delta": tree.subtract(sent["params"], theta)}, own

    # --- server -----------------------------------------------------------------------------
    def weigh(self, ctx: Context, server: Tree, reports: Tree) -> tuple[Tensor, Tree]:
        """Mixing coefficients of the cohort [cohort] and the server's state."""
        return ctx.sizes / ctx.sizes.sum(), server

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        """The server's state after the round; the leaves of ``reports`` are [cohort, ...]."""
        return self.move(ctx, server, tree.weighted_sum(reports["delta"], weights))

    def move(self, ctx: Context, server: Tree, delta: Tree) -> Tree:
        """Let the server optimizer follow ``delta``; buffers just move by it."""
        params, net = server["params"], ctx.net
        change, state = ctx.server_optimizer.update(
            net.trainable(delta), server["optimizer"], net.trainable(params), ctx.server_lr
        )
        moved = {
            name: leaf + change[name] if name in change else leaf - delta[name]
            for name, leaf in params.items()
        }
        return {**server, "params": moved, "optimizer": state}

    # --- use --------------------------------------------------------------------------------
    def model(self, ctx: Context, server: Tree, own: Tree) -> Tree:
        """The parameters that are evaluated, for one client or (``own`` empty) for all.

        ``own`` is also empty for a client that has never taken part.
        """
        return server["params"]

    def mixture(self, ctx: Context, server: Tree, own: Tree, weight: float) -> Tree:
        """A client's model at ``weight`` between the shared one (0) and its own (1).

        Asked for only where a method :attr:`mixes`; ``own`` is empty as in :meth:`model`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Wrapper(Method):
    """A plug-in: behaves as ``inner`` except for the hooks that it overrides.

    It may not override ``loss`` or ``gradient``: ``inner.local`` would never call them.

    Raises:
        TypeError: when a class that overrides them is defined.
    """

    inner: Method = Method()

    def __init_subclass__(cls) -> None:
        forbidden = {"loss", "gradient"} & vars(cls).keys()
        if forbidden:
            raise TypeError(
                f"{cls.__name__} is a Wrapper and may not override {' or '.join(forbidden)}, which "
                "inner.local would never call: override local, or make it a Method"
            )

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        """Why ``inner`` can't be wrapped, or None if it can."""
        return None

    def layers(self) -> list[Method]:
        return [self, *self.inner.layers()]

    def check(self, ctx: Context) -> None:
        self.inner.check(ctx)

    def init(self, ctx: Context, params: Tree) -> Tree:
        return self.inner.init(ctx, params)

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        return self.inner.own(ctx, rng)

    def learning_rate(self, ctx: Context, round: int) -> float:
        return self.inner.learning_rate(ctx, round)

    def send(self, ctx: Context, server: Tree) -> Tree:
        return self.inner.send(ctx, server)

    def draw(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return self.inner.draw(ctx, rng, steps)

    def loss(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tensor:
        return self.inner.loss(ctx, sent, own, theta, batch)

    def gradient(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tree:
        return self.inner.gradient(ctx, sent, own, theta, batch)

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        return self.inner.local(ctx, sent, own, steps)

    def weigh(self, ctx: Context, server: Tree, reports: Tree) -> tuple[Tensor, Tree]:
        return self.inner.weigh(ctx, server, reports)

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        return self.inner.step(ctx, server, reports, weights)

    def move(self, ctx: Context, server: Tree, delta: Tree) -> Tree:
        return self.inner.move(ctx, server, delta)

    def model(self, ctx: Context, server: Tree, own: Tree) -> Tree:
        return self.inner.model(ctx, server, own)

    def mixture(self, ctx: Context, server: Tree, own: Tree, weight: float) -> Tree:
        return self.inner.mixture(ctx, server, own, weight)
