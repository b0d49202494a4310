"""What a federated method is: pure hooks, whose defaults are FedAvg.

No hook may change ``self``, its arguments or global randomness. What must survive a round is
returned, in ``server`` (one tree) or ``own`` (one tree per client). So that resuming, running
clients side by side and composing methods need no help from a method's author.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedrepro.engine import tree
from fedrepro.engine.context import Context, Given
from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import Faithful
from fedrepro.engine.fidelity import divergence as divergence
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree

LOSS = "loss_before"  # in a report: the loss that a method decides on mixing coefficients from
# In a report, or the state that a server's hook returns: numbers for the record, by a measure's
# name. They are taken out before anything is made of the rest, and are not sent.
METRICS = "metrics"


SAMPLES = "samples"


@dataclass(frozen=True)
class Product:
    """What a run is for, and leaves for others.

    Attributes:
        tensors: parameters, or samples ``{"x": [n, ...]}`` in the range of the model's inputs.
        part: which submodule of the setting's model they parametrise: "" for all of it,
            :data:`SAMPLES` for none.
        each_client: whether leaves are [clients, ...], so that they serve the same partition only.
        about: what else a method that is given them has to know, as JSON can hold it.
    """

    tensors: Tree
    part: str = ""
    each_client: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


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
    teaches: ClassVar[bool] = False  # a round's clients are an ensemble: see `ensemble`
    needs: ClassVar[tuple[str, ...]] = ()  # names in `ctx.given`; written out, as they are parsed
    takes: ClassVar[tuple[str, ...]] = ()  # names that are there where the setting gives them
    classifies: ClassVar[bool] = True  # else there is nothing to evaluate on test samples
    own_classifier: ClassVar[bool] = False  # clients keep one each, though none is shared
    moves: ClassVar[bool] = True  # by `move`; else no server optimizer has anything to follow
    decay_restarts: ClassVar[bool] = True  # where a wrapper's released code starts it anew
    outputs: ClassVar[int | None] = None  # of the model; None: as the task has it

    def layers(self) -> "list[Method]":
        """This method and, for a wrapper, all that it wraps, from the outside in."""
        return [self]

    def check(self, ctx: Context) -> None:
        """Refuse a federation that this method can't serve.

        Raises:
            UserError: one line that says why.
        """

    def nets(self, input_shape: tuple[int, ...], outputs: int) -> Mapping[str, nn.Module]:
        """Networks beside the model, in ``ctx.nets``, whose weights are not yet drawn.

        Args:
            input_shape: of one sample.
            outputs: of the model.
        """
        return {}

    # --- what another method's run can begin ------------------------------------------------
    def begins_as(self, rounds: int) -> "tuple[Method, int]":
        """A method, and for how many of a run's first ``rounds`` rounds this one is it to the bit.

        A run of this one can go on from a run of that one after any number of rounds up to there.
        """
        return self, 0

    def taken_over(self, ctx: Context, server: Tree) -> Tree:
        """This method's server state, made of that of the method that it begins as."""
        return server

    # --- state ------------------------------------------------------------------------------
    def init(self, ctx: Context, params: Tree) -> Tree:
        """The server's state before the first round."""
        trainable = ctx.net.trainable(params)
        return {"params": params, "optimizer": ctx.server_optimizer.init(trainable)}

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        """One client's state when it is met for the first time."""
        return {}

    def fresh(self, ctx: Context, rng: torch.Generator) -> Tree:
        """What a client draws once in every round, beside ``own`` and under names of its own.

        It is in the ``own`` that :meth:`local` gets, which leaves it out of what it returns.
        """
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
        """A client's round. Returns what it reports and its state; both are new tensors.

        Under :data:`METRICS` it may report scalars for the record (docs/measures.md).
        """
        theta, _ = descend(ctx, self.gradient, sent, own, sent["params"], steps)
        return {"delta": tree.subtract(sent["params"], theta)}, own

    # --- server -----------------------------------------------------------------------------
    def weigh(self, ctx: Context, server: Tree, reports: Tree) -> tuple[Tensor, Tree]:
        """Mixing coefficients of the cohort [cohort] and the server's state."""
        return ctx.sizes / ctx.sizes.sum(), server

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        """The server's state after the round; the leaves of ``reports`` are [cohort, ...].

        Under :data:`METRICS` it may have scalars for the record, which no later round gets.
        """
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

    def ended(self, ctx: Context, server: Tree, reports: Tree, place: int) -> Tree:
        """The model with which the client at ``place`` of the cohort ended the round.

        ``server`` is the state that the round began with. One at a time: all of them may not fit
        in memory.
        """
        sent = self.send(ctx, server)["params"]
        return tree.subtract(sent, tree.take(reports["delta"], place))

    # --- use --------------------------------------------------------------------------------
    def model(self, ctx: Context, server: Tree, own: Tree) -> Tree:
        """The parameters that are evaluated, for one client or (``own`` empty) for all.

        ``own`` is also empty for a client that has never taken part.
        """
        return server["params"]

    def product(self, ctx: Context, server: Tree) -> Product:
        """What the run is for: kept when it is over, and given to runs that need it."""
        return Product(self.model(ctx, server, {}))

    def numbers(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        """What else is recorded of an evaluated round, under the same names in every round."""
        return {}

    def images(self, ctx: Context, server: Tree) -> Tensor | None:
        """What an evaluated round has to show, [n, channels, height, width] as model inputs."""
        return None

    def mixture(self, ctx: Context, server: Tree, own: Tree, weight: float) -> Tree:
        """A client's model at ``weight`` between the shared one (0) and its own (1).

        Asked for only where a method :attr:`mixes`; ``own`` is empty as in :meth:`model`.
        """
        raise NotImplementedError

    def ensemble(
        self, ctx: Context, server: Tree, reports: Tree, weights: Tensor, given: Given
    ) -> Tensor:
        """What the round's clients together make of samples: outputs of the model, [n, outputs].

        Asked for only where a method :attr:`teaches`, once the round is over; ``server`` is the
        state that it began with.
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

    def nets(self, input_shape: tuple[int, ...], outputs: int) -> Mapping[str, nn.Module]:
        return self.inner.nets(input_shape, outputs)

    def init(self, ctx: Context, params: Tree) -> Tree:
        return self.inner.init(ctx, params)

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        return self.inner.own(ctx, rng)

    def fresh(self, ctx: Context, rng: torch.Generator) -> Tree:
        return self.inner.fresh(ctx, rng)

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

    def ended(self, ctx: Context, server: Tree, reports: Tree, place: int) -> Tree:
        return self.inner.ended(ctx, server, reports, place)

    def model(self, ctx: Context, server: Tree, own: Tree) -> Tree:
        return self.inner.model(ctx, server, own)

    def product(self, ctx: Context, server: Tree) -> Product:
        return self.inner.product(ctx, server)

    def numbers(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        return self.inner.numbers(ctx, server)

    def images(self, ctx: Context, server: Tree) -> Tensor | None:
        return self.inner.images(ctx, server)

    def mixture(self, ctx: Context, server: Tree, own: Tree, weight: float) -> Tree:
        return self.inner.mixture(ctx, server, own, weight)

    def ensemble(
        self, ctx: Context, server: Tree, reports: Tree, weights: Tensor, given: Given
    ) -> Tensor:
        return self.inner.ensemble(ctx, server, reports, weights, given)
