"""What a federated method is: pure hooks, whose defaults are FedAvg.

No hook may change ``self``, its arguments or global randomness. What must survive a round is
returned, in ``server`` (one tree) or ``client_state`` (one tree per client). So that resuming,
running clients side by side and composing methods need no help from a method's author.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedrepro.engine import tree
from fedrepro.engine.context import Context, LoadedArtifact
from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import Faithful
from fedrepro.engine.fidelity import deviation as deviation
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree

LOSS = "loss_before"  # in a report: the loss that a method decides on mixing coefficients from
# In a report, or the state that a server's hook returns: numbers for the record, by a measure's
# name. They are taken out before anything is made of the rest, and are not sent.
METRICS = "metrics"


SAMPLES = "samples"


@dataclass(frozen=True)
class Artifact:
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

    centralized: ClassVar[bool] = False  # one client holds all data
    full_participation: ClassVar[bool] = False  # needs every client in every round
    sets_weights: ClassVar[bool] = False  # no wrapper may set its mixing coefficients: they are it
    interpolates: ClassVar[bool] = False  # clients use mixtures of two models: see `interpolate`
    distills: ClassVar[bool] = False  # a round's clients are an ensemble: see `ensemble`
    # names in `ctx.artifacts`; written out, as they are parsed
    requires: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()  # names that are there where the setting gives them
    classifies: ClassVar[bool] = True  # else there is nothing to evaluate on test samples
    own_classifier: ClassVar[bool] = False  # clients keep one each, though none is shared
    # by `apply_server_optimizer`; else no server optimizer has anything to follow
    uses_server_optimizer: ClassVar[bool] = True
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
    def shared_prefix(self, rounds: int) -> "tuple[Method, int]":
        """A method, and for how many of a run's first ``rounds`` rounds this one is it to the bit.

        A run of this one can go on from a run of that one after any number of rounds up to there.
        """
        return self, 0

    def from_parent(self, ctx: Context, server: Tree) -> Tree:
        """This method's server state, made of that of the method that it begins as."""
        return server

    # --- state ------------------------------------------------------------------------------
    def init_server(self, ctx: Context, params: Tree) -> Tree:
        """The server's state before the first round."""
        trainable = ctx.net.trainable(params)
        return {"params": params, "optimizer": ctx.server_optimizer.init(trainable)}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        """One client's state when it is met for the first time."""
        return {}

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        """What a client draws once in every round, beside its state and under names of its own.

        It is in the ``client_state`` that :meth:`client_update` gets, which leaves it out of what
        it returns.
        """
        return {}

    # --- server to client -------------------------------------------------------------------
    def learning_rate(self, ctx: Context, round: int) -> float:
        """The clients' learning rate in ``round``."""
        return ctx.schedule(round)

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        """What every client of the cohort receives."""
        return {"params": server["params"]}

    # --- client -----------------------------------------------------------------------------
    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        """All of a client's randomness in a round but the shuffling: leaves [steps, ...].

        Step s finds its entry in its mini-batch, under the same name.
        """
        return {}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        """The local objective on one mini-batch, a scalar tensor."""
        return ctx.task.loss(ctx.net(params, batch["x"]), batch)

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """The direction that a local step descends, over the trainable leaves of ``params``."""
        return differentiate(
            lambda params: self.loss(ctx, message, client_state, params, batch), params
        )

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        """A client's round. Returns what it reports and its state; both are new tensors.

        Under :data:`METRICS` it may report scalars for the record (docs/measures.md).
        """
        params, _ = descend(ctx, self.gradient, message, client_state, message["params"], steps)
        return {"delta": tree.subtract(message["params"], params)}, client_state

    # --- server -----------------------------------------------------------------------------
    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        """Mixing coefficients of the cohort [cohort] and the server's state."""
        return ctx.sizes / ctx.sizes.sum(), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        """The server's state after the round; the leaves of ``updates`` are [cohort, ...].

        Under :data:`METRICS` it may have scalars for the record, which no later round gets.
        """
        return self.apply_server_optimizer(
            ctx, server, tree.weighted_sum(updates["delta"], weights)
        )

    def apply_server_optimizer(self, ctx: Context, server: Tree, delta: Tree) -> Tree:
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

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        """The model with which the client at ``place`` of the cohort ended the round.

        ``server`` is the state that the round began with. One at a time: all of them may not fit
        in memory.
        """
        message = self.broadcast(ctx, server)["params"]
        return tree.subtract(message, tree.take(updates["delta"], place))

    # --- use --------------------------------------------------------------------------------
    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        """The parameters that are evaluated, for one client or (``client_state`` empty) for all.

        ``client_state`` is also empty for a client that has never taken part.
        """
        params: Tree = server["params"]
        return params

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        """What the run is for: kept when it is over, and given to runs that need it."""
        return Artifact(self.eval_model(ctx, server, {}))

    def metrics(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        """What else is recorded of an evaluated round, under the same names in every round."""
        return {}

    def images(self, ctx: Context, server: Tree) -> Tensor | None:
        """What an evaluated round has to show, [n, channels, height, width] as model inputs."""
        return None

    def interpolate(self, ctx: Context, server: Tree, client_state: Tree, weight: float) -> Tree:
        """A client's model at ``weight`` between the shared one (0) and its own (1).

        Asked for only where a method :attr:`interpolates`; ``client_state`` is empty as in
        :meth:`eval_model`.
        """
        raise NotImplementedError

    def ensemble(
        self, ctx: Context, server: Tree, updates: Tree, weights: Tensor, given: LoadedArtifact
    ) -> Tensor:
        """What the round's clients together make of samples: outputs of the model, [n, outputs].

        Asked for only where a method :attr:`distills`, once the round is over; ``server`` is the
        state that it began with.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Wrapper(Method):
    """A plug-in: behaves as ``inner`` except for the hooks that it overrides.

    It may not override ``loss`` or ``gradient``: ``inner.client_update`` would never call them.

    Raises:
        TypeError: when a class that overrides them is defined.
    """

    inner: Method = Method()

    def __init_subclass__(cls) -> None:
        forbidden = {"loss", "gradient"} & vars(cls).keys()
        if forbidden:
            raise TypeError(
                f"{cls.__name__} is a Wrapper and may not override {' or '.join(forbidden)}, which "
                "inner.client_update would never call: override client_update, or make it a Method"
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

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return self.inner.init_server(ctx, params)

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return self.inner.init_client(ctx, rng)

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        return self.inner.sample_round(ctx, rng)

    def learning_rate(self, ctx: Context, round: int) -> float:
        return self.inner.learning_rate(ctx, round)

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return self.inner.broadcast(ctx, server)

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return self.inner.sample_steps(ctx, rng, steps)

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        return self.inner.loss(ctx, message, client_state, params, batch)

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        return self.inner.gradient(ctx, message, client_state, params, batch)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        return self.inner.client_update(ctx, message, client_state, steps)

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return self.inner.aggregation_weights(ctx, server, updates)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        return self.inner.server_update(ctx, server, updates, weights)

    def apply_server_optimizer(self, ctx: Context, server: Tree, delta: Tree) -> Tree:
        return self.inner.apply_server_optimizer(ctx, server, delta)

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        return self.inner.client_model(ctx, server, updates, place)

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        return self.inner.eval_model(ctx, server, client_state)

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return self.inner.artifact(ctx, server)

    def metrics(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        return self.inner.metrics(ctx, server)

    def images(self, ctx: Context, server: Tree) -> Tensor | None:
        return self.inner.images(ctx, server)

    def interpolate(self, ctx: Context, server: Tree, client_state: Tree, weight: float) -> Tree:
        return self.inner.interpolate(ctx, server, client_state, weight)

    def ensemble(
        self, ctx: Context, server: Tree, updates: Tree, weights: Tensor, given: LoadedArtifact
    ) -> Tensor:
        return self.inner.ensemble(ctx, server, updates, weights, given)
