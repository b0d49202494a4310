"""A federated method as a set of pure hooks. The defaults are FedAvg.

No hook may change ``self``, its arguments or global randomness. Whatever must survive a round is
returned: in ``server`` (one tree) or in ``client_state`` (one tree per client). This is what makes
checkpoints, clients that run side by side and composed methods work without code in the method.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import isfunction
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

# All that most methods need is here, so that their files import it from one place.
from fedrepro.engine import tree as tree
from fedrepro.engine.context import Context as Context
from fedrepro.engine.context import LoadedArtifact as LoadedArtifact
from fedrepro.engine.descent import descend as descend
from fedrepro.engine.fidelity import Faithful
from fedrepro.engine.fidelity import deviation as deviation
from fedrepro.engine.fidelity import name_of as name_of
from fedrepro.engine.net import Net as Net
from fedrepro.engine.net import differentiate as differentiate
from fedrepro.engine.steps import Steps as Steps
from fedrepro.engine.steps import some_epochs as some_epochs
from fedrepro.engine.tree import Tree as Tree
from fedrepro.support.errors import UserError, bad_value, refusal

LOSS = "loss_before"  # in an update: the loss that adaptive weighting computes its weights from
# In an update, or in the state that a server hook returns: numbers to record, by measure name. The
# engine removes them before it uses the rest, and does not count them as communication.
METRICS = "metrics"


SAMPLES = "samples"


@dataclass(frozen=True)
class Artifact:
    """The product of a run that other runs can use.

    Attributes:
        tensors: parameters, or samples ``{"x": [n, ...]}`` in the range of the model's inputs.
        part: the submodule of the setting's model that the tensors parametrise: "" for the whole
            model, :data:`SAMPLES` for samples.
        each_client: whether leaves are [clients, ...], and so only fit runs on the same partition.
        about: whatever else a method needs to use the tensors, as JSON values.
    """

    tensors: Tree
    part: str = ""
    each_client: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


class GaussianMechanism(NamedTuple):
    """A sum over the cohort with normal noise, from which privacy is accounted.

    Attributes:
        clip: the largest norm of an update.
        noise_multiplier: standard deviation of the noise, in units of ``clip``.
    """

    clip: float
    noise_multiplier: float


def require_classification(method: Faithful, ctx: Context, why: str) -> None:
    """Raises UserError, which says ``why``, unless the task is to classify samples."""
    if ctx.task.name != "classification":
        expected = f"'classification', because {why}"
        raise bad_value(f"method {name_of(method)}", "task", ctx.task.name, expected)


def require_rates(method: Faithful, ctx: Context) -> None:
    """Raises UserError if the learning rate is 0 in a round, by which the method would divide."""
    for round in range(ctx.rounds):
        if not ctx.schedule(round):
            wanted = f"no rate of 0 (round {round + 1}): the method divides by it"
            raise bad_value(f"method {name_of(method)}", "lr_schedule", 0.0, wanted)


def require_server_model(method: Faithful, server: Tree, why: str) -> None:
    """Raises UserError, which says ``why``, unless a method's server has a model."""
    if "params" not in server:
        expected = f"expected a method with a model on the server, which {why}"
        raise refusal(f"method {name_of(method)}", expected)


def sends_no_models(method: Faithful) -> UserError:
    """The error for clients' models that are to be kept, if clients send none."""
    why = "save_models_at: expected no rounds, because clients send no models"
    return refusal(f"method {name_of(method)}", why, "save_models_at")


@dataclass(frozen=True)
class Method(Faithful):
    """FedAvg: average the clients' models, weighted by their numbers of samples.

    McMahan et al., AISTATS 2017, Algorithm 1 (https://arxiv.org/abs/1602.05629).
    """

    centralized: ClassVar[bool] = False  # one client holds all data
    full_participation: ClassVar[bool] = False  # needs all clients in every round
    why_all: ClassVar[str] = "it needs all clients in every round"  # for whom fewer are refused
    sets_weights: ClassVar[bool] = False  # it is defined by its weights: no wrapper may set them
    needs_mean: ClassVar[bool] = False  # clients' states only fit the exact mean of their models
    clips: ClassVar[bool] = False  # it shortens each client's update
    interpolates: ClassVar[bool] = False  # clients interpolate two models: see `interpolate`
    distills: ClassVar[bool] = False  # a round's clients form an ensemble: see `ensemble`
    # Names in `ctx.artifacts`. Write them as a literal: they are read from the syntax tree.
    requires: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()  # names in `ctx.artifacts` that may be missing
    classifies: ClassVar[bool] = True  # if False, nothing is evaluated on test samples
    own_classifier: ClassVar[bool] = False  # each client keeps a classifier, but none is shared
    # Whether it calls `apply_server_optimizer`; if not, no server optimizer can be added.
    uses_server_optimizer: ClassVar[bool] = True
    decay_restarts: ClassVar[bool] = True  # where a wrapper's released code restarts the decay
    outputs: ClassVar[int | None] = None  # of the model; None: as the task requires

    @property
    def scores_first_states(self) -> bool:
        """True if a client that has not trained is scored with its state from `init_client`."""
        return False

    @property
    def mechanism(self) -> "GaussianMechanism | None":
        """The noise by which its rounds are private; None without any."""
        return None

    def layers(self) -> "list[Method]":
        """This method and, for a wrapper, everything it wraps, outermost first."""
        return [self]

    def check(self, ctx: Context) -> None:
        """Refuse a federation that this method does not support.

        Raises:
            UserError: with one line that gives the reason.
        """

    def nets(self, input_shape: tuple[int, ...], outputs: int) -> Mapping[str, nn.Module]:
        """Networks beside the model; ``ctx.nets`` holds them. The engine draws their weights.

        Args:
            input_shape: shape of one sample.
            outputs: number of outputs of the model.
        """
        return {}

    # --- rounds shared with another method's run ---------------------------------------------
    def shared_prefix(self, rounds: int) -> "tuple[Method, int]":
        """A method whose first rounds are bit-identical to this one's, and how many of them.

        A run of this method can continue a run of that one from any round up to that number.

        Args:
            rounds: how many rounds the run has; the number returned is no larger.
        """
        return self, 0

    def from_parent(self, ctx: Context, server: Tree) -> Tree:
        """This method's server state, made from the state of the parent run's method."""
        return server

    # --- state ------------------------------------------------------------------------------
    def init_server(self, ctx: Context, params: Tree) -> Tree:
        """The server's state before the first round."""
        trainable = ctx.net.trainable(params)
        return {"params": params, "optimizer": ctx.server_optimizer.init(trainable)}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        """A client's state when it first takes part; asked for again while it is empty."""
        return {}

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        """A client's random draws once per round, under names that its state does not use.

        The engine adds it to the ``client_state`` that :meth:`client_update` gets. The state that
        ``client_update`` returns must not contain it.
        """
        return {}

    # --- server to client -------------------------------------------------------------------
    def learning_rate(self, ctx: Context, round: int) -> float:
        """The clients' learning rate in ``round``."""
        return ctx.schedule(round)

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        """The message that every client of the cohort receives."""
        return {"params": server["params"]}

    # --- client -----------------------------------------------------------------------------
    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        """A client's randomness for the local steps of a round: leaves [steps, ...].

        The mini-batch of step s contains entry s of each leaf, under the same name.
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
        """The direction that a local step descends: over the trainable leaves of ``params``."""
        return differentiate(
            lambda params: self.loss(ctx, message, client_state, params, batch), params
        )

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        """A client's round. Returns its update and its new state, both as new tensors.

        The update may contain scalars to record, under :data:`METRICS` (docs/measures.md).
        """
        params, _ = descend(ctx, self.gradient, message, client_state, message["params"], steps)
        return {"delta": tree.subtract(message["params"], params)}, client_state

    # --- server -----------------------------------------------------------------------------
    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        """The weight of each client of the cohort, [cohort], and the server's state."""
        return ctx.sizes / ctx.sizes.sum(), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        """The server's state after the round. The leaves of ``updates`` are [cohort, ...].

        The state may contain scalars to record, under :data:`METRICS`; the next round does not get
        them.
        """
        return self.apply_server_optimizer(
            ctx, server, tree.weighted_sum(updates["delta"], weights)
        )

    def apply_server_optimizer(self, ctx: Context, server: Tree, delta: Tree) -> Tree:
        """Let the server optimizer follow ``delta``. Buffers move by ``delta`` itself."""
        params, net = server["params"], ctx.net
        change, state = ctx.server_optimizer.update(
            net.trainable(delta), server["optimizer"], net.trainable(params), ctx.server_lr
        )
        moved = {
            name: leaf + change[name] if name in change else leaf - delta[name]
            for name, leaf in params.items()
        }
        return {**server, "params": moved, "optimizer": state}

    def update_bytes(self, ctx: Context, updates: Tree) -> int:
        """The bytes that the cohort sends as ``updates``, whose leaves are [cohort, ...]."""
        return tree.size_in_bytes(updates)

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        """The model of the client at ``place`` of the cohort at the end of its local training.

        Called for one client at a time, because all models may not fit in memory.

        Args:
            server: the state at the start of the round.
        """
        message = self.broadcast(ctx, server)["params"]
        return tree.subtract(message, tree.take(updates["delta"], place))

    # --- use --------------------------------------------------------------------------------
    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        """The parameters to evaluate: for one client, or for all if ``client_state`` is empty.

        ``client_state`` is also empty for a client that has never taken part.
        """
        params: Tree = server["params"]
        return params

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        """The run's product, saved at its end for runs that require it."""
        return Artifact(self.eval_model(ctx, server, {}))

    def metrics(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        """Further numbers to record in evaluated rounds, under the same names in every round."""
        return {}

    def images(self, ctx: Context, server: Tree) -> Tensor | None:
        """Images to save in evaluated rounds: [n, channels, height, width], as model inputs."""
        return None

    def interpolate(self, ctx: Context, server: Tree, client_state: Tree, weight: float) -> Tree:
        """A client's model at ``weight`` between the shared one (0) and its own (1).

        Called only for methods that set :attr:`interpolates`. ``client_state`` is empty as in
        :meth:`eval_model`; otherwise its entry ``local`` is the client's own model.
        """
        shared: Tree = server["params"]
        return tree.mix(shared, client_state["local"], weight) if client_state else shared

    def ensemble(
        self, ctx: Context, server: Tree, updates: Tree, weights: Tensor, given: LoadedArtifact
    ) -> Tensor:
        """The outputs of the round's clients as an ensemble on samples, [n, outputs].

        Called after the round, only for methods that set :attr:`distills`.

        Args:
            server: the state at the start of the round.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Wrapper(Method):
    """A method around another: behaves as ``inner`` except for the hooks that it overrides.

    It may not override ``loss`` or ``gradient``: ``inner.client_update`` would never call them.

    Raises:
        TypeError: when a class that overrides one of the two is defined.
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


def _of_inner(name: str) -> Callable[..., Any]:
    """A wrapper's hook that passes on to the same hook of the method in it."""

    @wraps(getattr(Method, name))
    def hook(self: Wrapper, *arguments: Any, **named: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **named)

    return hook


# `layers` adds the wrapper itself. How another method's run begins says nothing of a wrapped one.
_NOT_PASSED_ON = ("layers", "shared_prefix", "from_parent")
for _name, _hook in [*vars(Method).items()]:
    if isfunction(_hook) and not _name.startswith("_") and _name not in _NOT_PASSED_ON:
        setattr(Wrapper, _name, _of_inner(_name))
