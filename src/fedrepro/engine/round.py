"""One round of federated learning, independent of the method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar, overload

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.availability import Availability
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Executor, Training, sequential
from fedrepro.engine.method import METRICS, Method, name_of
from fedrepro.engine.net import TOO_FEW
from fedrepro.engine.steps import Samples, Steps, sent, shuffle, steps_per_epoch
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import refusal
from fedrepro.support.rng import number, stream

Item = TypeVar("Item", covariant=True)


class Clients(Protocol):
    """The training data of all clients."""

    @property
    def sizes(self) -> list[int]:
        """Training samples of every client."""

    @property
    def samples(self) -> Samples:
        """The samples of all clients, on the run's device."""

    def rows(self, client: int) -> Tensor:
        """The rows of one client's samples, int64 [n]."""


class ClientStates(Protocol):
    """Storage for client states between rounds."""

    def get(self, client: int) -> Tree | None:
        """A client's state, or None. Changes nothing, so that forked processes may call it."""

    def put(self, client: int, client_state: Tree) -> None:
        """Replace a client's state."""


@dataclass(frozen=True)
class Federation:
    """Everything about a run that stays the same from round to round.

    Attributes:
        context: the part of the context that does not change from round to round.
        clients: their training data.
        redraw: seed, rows -> inputs [n, ...] drawn anew for an epoch; None: the stored ones.
        sample_cohort: round -> its clients, in order; None: sample uniformly, by ``seed``.
        availability: which clients can be asked, and how much they get done; None: all, everything.
        attack: (context, updates) -> what arrives at the server; None: the updates.
    """

    method: Method
    context: Context
    clients: Clients
    execute: Executor = sequential
    redraw: Callable[[int, Tensor], Tensor] | None = None
    sample_cohort: Callable[[int], list[int]] | None = None
    availability: Availability | None = None
    attack: Callable[[Context, Tree], Tree] | None = None

    @cached_property
    def initial(self) -> Tree:
        """The parameters before the first round."""
        return self.context.net.init(stream(self.context.seed, "init"))


@dataclass
class Round:
    """The record of a round.

    Attributes:
        cohort: ids of the clients that took part.
        learning_rate: the clients' learning rate.
        updates: the clients' updates, leaves [cohort, ...].
        weights: their aggregation weights [cohort].
        bytes_down, bytes_up: bytes that all of them together receive and send.
        reported_by_clients: the method's metrics of its clients by name: leaves [cohort].
        reported_by_server: its metrics of the round by name: scalars.
    """

    cohort: list[int]
    learning_rate: float
    updates: Tree
    weights: Tensor
    bytes_down: int
    bytes_up: int
    reported_by_clients: Mapping[str, Tensor] = field(default_factory=dict)
    reported_by_server: Mapping[str, Tensor] = field(default_factory=dict)


def begin(federation: Federation) -> Tree:
    """The server's state before the first round."""
    return federation.method.init_server(federation.context, federation.initial)


def choose_cohort(federation: Federation, round: int) -> list[int]:
    """The clients whose updates arrive in this round, in order of their ids."""
    return arriving(federation, round, ask(federation, round))


def arriving(federation: Federation, round: int, asked: list[int]) -> list[int]:
    """Those clients of ``asked`` whose updates arrive."""
    return federation.availability.arriving(round, asked) if federation.availability else asked


def ask(federation: Federation, round: int) -> list[int]:
    """The clients that receive the model, in order of their ids: all of them, or a sample."""
    ctx, available = federation.context, federation.availability
    everyone, size, undrawn = ctx.clients, ctx.cohort_size, list[int]()
    if size == everyone:
        undrawn = list(range(everyone))
    elif federation.sample_cohort:
        undrawn = federation.sample_cohort(round)
    if undrawn and available is None:
        return undrawn
    order = torch.randperm(everyone, generator=stream(ctx.seed, "cohort", round)).tolist()
    if available is None:
        return sorted(order[:size])
    # Others take the place of those who sleep.
    drawn = dict.fromkeys((*undrawn, *order))
    return sorted(available.awake(round, [*drawn])[:size])


def context_of(federation: Federation, round: int, cohort: list[int]) -> Context:
    """The context of one round."""
    base = federation.context
    device = base.net.device
    sizes = [float(federation.clients.sizes[client]) for client in cohort]
    return replace(
        base,
        initial=federation.initial,
        round=round,
        lr=federation.method.learning_rate(base, round),
        cohort=torch.tensor(cohort, device=device),
        sizes=torch.tensor(sizes, device=device, dtype=torch.get_default_dtype()),
        total=float(sum(federation.clients.sizes)),
    )


def client_state_of(
    federation: Federation, ctx: Context, client_states: ClientStates, client: int
) -> Tree:
    """A client's state, initialised if it has none or an empty one."""
    known = client_states.get(client)
    if known:  # an empty one is made again: a method may begin to need it in a later round
        return known
    return federation.method.init_client(ctx, stream(ctx.seed, "own", client))


def steps_of(federation: Federation, ctx: Context, client: int) -> Steps:
    """A client's mini-batches in a round. One stream shuffles first, then draws for the steps."""
    rows = federation.clients.rows(client)
    rng = stream(ctx.seed, "shuffle", ctx.round, client)
    orders = shuffle(rows, ctx.epochs, rng)
    if federation.availability:
        done = federation.availability.steps_done(ctx.round, client) * ctx.batch_size
        orders = [order[:done] for order in orders]
    total = steps_per_epoch(len(orders[0]), ctx.batch_size) * ctx.epochs
    drawn = tree.apply(
        lambda leaf: sent(leaf, ctx.net.device), federation.method.sample_steps(ctx, rng, total)
    )
    flips: list[Tensor] = []
    if ctx.flips:
        coin = stream(ctx.seed, "flip", ctx.round, client)
        flips = [
            sent(torch.rand(len(order), generator=coin) < 0.5, rows.device) for order in orders
        ]
    redraws: list[Callable[[Tensor], Tensor]] = []
    if federation.redraw:
        seeds = [
            number(ctx.seed, "transform", ctx.round, client, epoch) for epoch in range(ctx.epochs)
        ]
        redraws = [partial(federation.redraw, seed) for seed in seeds]
    return Steps(
        federation.clients.samples,
        orders,
        ctx.batch_size,
        drawn,
        layers_seed=number(ctx.seed, "layers", ctx.round, client),
        flips=flips,
        redraws=redraws,
    )


def state_with_draws(
    federation: Federation, ctx: Context, client_states: ClientStates, client: int
) -> Tree:
    """A client's state, with what the client draws for the round."""
    drawn = stream(ctx.seed, "fresh", ctx.round, client)
    client_state = client_state_of(federation, ctx, client_states, client)
    return {**client_state, **federation.method.sample_round(ctx, drawn)}


@dataclass(frozen=True)
class OfCohort(Sequence[Item]):
    """Something of each client of a cohort, made on access.

    A client's draws can be as large as its data, and its new network is as large as the model: an
    executor that runs clients one after another keeps only one client's in memory.
    """

    cohort: list[int]
    make: Callable[[int], Item]  # of a client

    def __len__(self) -> int:
        return len(self.cohort)

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...

    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        if isinstance(place, slice):
            return replace(self, cohort=self.cohort[place])
        return self.make(self.cohort[place])


def play_round(
    federation: Federation, server: Tree, client_states: ClientStates, round: int
) -> tuple[Tree, Round]:
    """Play round ``round`` (from 0) and return the server's next state and the round's record.

    The clients' new states are put in ``client_states``.
    """
    method = federation.method
    asked = ask(federation, round)
    cohort = arriving(federation, round, asked)
    ctx = context_of(federation, round, cohort)
    message = method.broadcast(ctx, server)
    states = OfCohort(cohort, partial(state_with_draws, federation, ctx, client_states))
    steps = OfCohort(cohort, partial(steps_of, federation, ctx))
    updates, after = federation.execute(Training(method, ctx, message, states, steps))
    updates, reported_by_clients = without_metrics(updates)
    for client, client_state in zip(cohort, after, strict=True):
        client_states.put(client, client_state)
    if federation.attack:
        updates = federation.attack(ctx, updates)
    layers_seed = number(ctx.seed, "layers", round)
    with torch.no_grad(), ctx.drawing_from(layers_seed):
        try:
            weights, server = method.aggregation_weights(ctx, server, updates)
            server = method.server_update(ctx, server, updates, weights)
        except ValueError as error:
            if TOO_FEW not in str(error):
                raise
            where = f"method {name_of(method.layers()[-1])}"
            why = "a mini-batch of its server has one sample, which BatchNorm cannot normalise"
            raise refusal(where, f"{why}: choose another size of mini-batches") from error
    server, reported_by_server = without_metrics(server)
    return server, Round(
        cohort=cohort,
        learning_rate=float(ctx.lr),
        updates=updates,
        weights=weights,
        bytes_down=tree.size_in_bytes(message) * len(asked),
        bytes_up=method.update_bytes(ctx, updates),
        reported_by_clients=reported_by_clients,
        reported_by_server=reported_by_server,
    )


def without_metrics(what: Tree) -> tuple[Tree, Mapping[str, Tensor]]:
    """Split updates or a state from the metrics in them."""
    if METRICS not in what:
        return what, {}
    return {name: branch for name, branch in what.items() if name != METRICS}, what[METRICS]


def update_norms(updates: Tree) -> list[float]:
    """The norm of each client's ``delta``; NaN if the update has none."""
    leaves = tree.leaves(updates.get("delta", {}))
    if not leaves:
        return [float("nan")] * len(tree.leaves(updates)[0])
    squares = [tree.rows(leaf).square().sum(1) for leaf in leaves]
    norms: list[float] = torch.stack(squares).sum(0).sqrt().tolist()  # one device sync
    return norms
