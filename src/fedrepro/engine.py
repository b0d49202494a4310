"""One round of federated learning. Knows nothing about any particular method."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fedrepro import tree
from fedrepro.executors import Executor, sequential
from fedrepro.method import Context, Method
from fedrepro.rng import stream
from fedrepro.steps import Steps, shuffle, steps_per_epoch
from fedrepro.tree import Tree


class Clients(Protocol):
    """The training data of all clients."""

    @property
    def sizes(self) -> list[int]:
        """Training samples of every client."""

    def load(self, client: int) -> tuple[Tensor, Tensor]:
        """Inputs [n, ...] and targets [n] of one client, on the run's device."""


class Owns(Protocol):
    """Where clients' states are kept between rounds."""

    def get(self, client: int) -> Tree | None: ...

    def put(self, client: int, own: Tree) -> None: ...


@dataclass(frozen=True)
class Federation:
    """Everything about a run that stays the same from round to round.

    Attributes:
        cohort: clients per round.
        epochs, batch_size: of local training.
        seed: of all randomness.
        device: where tensors live, e.g. "cpu".
    """

    method: Method
    context: Context
    clients: Clients
    cohort: int
    epochs: int
    batch_size: int
    seed: int
    execute: Executor = sequential
    device: str = "cpu"


@dataclass
class Round:
    """What a round leaves for the record.

    Attributes:
        cohort: ids of the clients that took part.
        learning_rate: theirs.
        update_norms: Euclidean norm of each one's movement, or NaN if it reports none.
        bytes_down, bytes_up: what all of them together receive and send.
    """

    cohort: list[int]
    learning_rate: float
    update_norms: list[float]
    bytes_down: int
    bytes_up: int


def begin(federation: Federation) -> Tree:
    """The server's state before the first round."""
    method, ctx = federation.method, federation.context
    params = ctx.net.init(stream(federation.seed, "init"))
    return method.init(ctx, params)


def choose_cohort(federation: Federation, round: int) -> list[int]:
    """This round's clients: uniformly, without replacement, in the order of their ids."""
    rng = stream(federation.seed, "cohort", round)
    everyone = torch.randperm(federation.context.clients, generator=rng)
    return sorted(everyone[: federation.cohort].tolist())


def context_of(federation: Federation, round: int, cohort: list[int]) -> Context:
    """The context of one round."""
    base = federation.context
    sizes = [float(federation.clients.sizes[client]) for client in cohort]
    return replace(
        base,
        round=round,
        lr=federation.method.learning_rate(base, round),
        cohort=torch.tensor(cohort, device=federation.device),
        sizes=torch.tensor(sizes, device=federation.device, dtype=torch.get_default_dtype()),
    )


def own_of(federation: Federation, ctx: Context, owns: Owns, client: int) -> Tree:
    """A client's state, made now if the client is met for the first time."""
    known = owns.get(client)
    if known is not None:
        return known
    return federation.method.own(ctx, stream(federation.seed, "own", client))


def steps_of(federation: Federation, ctx: Context, client: int) -> Steps:
    """A client's mini-batches of the round."""
    x, y = federation.clients.load(client)
    orders = shuffle(
        len(y), federation.epochs, stream(federation.seed, "shuffle", ctx.round, client)
    )
    total = steps_per_epoch(len(y), federation.batch_size) * federation.epochs
    rng = stream(federation.seed, "draw", ctx.round, client)
    drawn = tree.apply(
        lambda leaf: leaf.to(federation.device), federation.method.draw(ctx, rng, total)
    )
    return Steps(
        x, y, [order.to(federation.device) for order in orders], federation.batch_size, drawn
    )


def play_round(federation: Federation, server: Tree, owns: Owns, round: int) -> tuple[Tree, Round]:
    """Play round ``round`` (from 0). Returns the server's next state; clients' go to ``owns``."""
    method = federation.method
    cohort = choose_cohort(federation, round)
    ctx = context_of(federation, round, cohort)
    sent = method.send(ctx, server)
    before = [own_of(federation, ctx, owns, client) for client in cohort]
    steps = [steps_of(federation, ctx, client) for client in cohort]
    reports, after = federation.execute(method, ctx, sent, before, steps)
    for client, own in zip(cohort, after, strict=True):
        owns.put(client, own)
    with torch.no_grad():
        weights, server = method.weigh(ctx, server, reports)
        server = method.step(ctx, server, reports, weights)
    return server, Round(
        cohort=cohort,
        learning_rate=float(ctx.lr),
        update_norms=_update_norms(reports),
        bytes_down=tree.size_in_bytes(sent) * len(cohort),
        bytes_up=tree.size_in_bytes(reports),
    )


def _update_norms(reports: Tree) -> list[float]:
    """The norm of every client's ``delta``; all at once, so that a device is asked once."""
    leaves = tree.leaves(reports)
    clients = len(leaves[0])
    if "delta" not in reports:
        return [float("nan")] * clients
    squares = [leaf.reshape(clients, -1).square().sum(1) for leaf in tree.leaves(reports["delta"])]
    norms: list[float] = torch.stack(squares).sum(0).sqrt().tolist()
    return norms
