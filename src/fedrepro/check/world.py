"""A small federation in float64 that makes the properties of a method visible."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrepro.data.tensors.samples import ClientData, Scaling, TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.context import Context, Inputs, LoadedArtifact
from fedrepro.engine.executors import Executor, sequential
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import Optimizer, sgd
from fedrepro.engine.round import Federation, begin, play_round
from fedrepro.engine.tree import Tree
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import bad_value
from fedrepro.support.rng import stream

FEATURES, CLASSES, ROUNDS = 6, 3, 6
SIZES = (20, 13, 7, 31, 9, 16)


@contextmanager
def in_float64() -> Iterator[None]:
    """A context in which tensors are float64 by default and torch has one thread, as for forks."""
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_num_threads(threads)


class Data(ClientData):
    """Clients of unequal sizes, some with one class only.

    Args:
        tensors: inputs and targets of each client.
    """

    def __init__(self, tensors: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.tensors = tensors
        x, y = (torch.cat(parts) for parts in zip(*tensors, strict=True))
        ends = np.cumsum([len(own) for _, own in tensors])
        rows = np.split(np.arange(len(y)), ends[:-1])
        super().__init__(TensorSamples(x, y, Scaling(None, None)), rows)


@dataclass
class Memory:
    """Client states in a dict."""

    known: dict[int, Tree] = field(default_factory=dict)

    def get(self, client: int) -> Tree | None:
        return self.known.get(client)

    def put(self, client: int, own: Tree) -> None:
        self.known[client] = own


State = tuple[Tree, Memory, int]  # the server's and the clients' states, after that many rounds


def small_net() -> Net:
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh())
    return Net(Classifier(body, nn.Linear(8, CLASSES)).double())


def data() -> Data:
    rng = stream(7, "world")
    centres = 2 * torch.randn(CLASSES, FEATURES, generator=rng, dtype=torch.float64)
    clients = []
    for number, size in enumerate(SIZES):
        mixed = torch.randint(0, CLASSES, (size,), generator=rng)
        y = mixed if number % 2 else torch.full((size,), number % CLASSES)
        noise = torch.randn(size, FEATURES, generator=rng, dtype=torch.float64)
        clients.append((centres[y] + noise, y))
    return Data(clients)


def given(needs: Sequence[str], clients: int) -> dict[str, LoadedArtifact]:
    """Small artifacts that stand in for those that methods require.

    Raises:
        UserError: for an artifact without a small version.
    """
    rng = stream(8, "given")
    critic = Net(nn.Sequential(nn.Linear(FEATURES, 1), nn.Sigmoid()).double())
    maker = Net(nn.Sequential(nn.Linear(2, FEATURES), nn.Tanh()).double())
    x, _ = data().samples.at(torch.arange(0, sum(SIZES), 4))
    noise = torch.randn(x.shape, generator=rng, dtype=torch.float64)
    made = {
        "unlabelled": LoadedArtifact({"x": x + 0.1 * noise}),
        "discriminators": LoadedArtifact(
            tree.stack([critic.init(rng) for _ in range(clients)]), critic
        ),
        "generator": LoadedArtifact(maker.init(rng), maker, {"latent": 2}),
    }
    for need in needs:
        if need not in made:
            raise bad_value("fedrepro check", "needs", need, f"one of {', '.join(made)}", made)
    return {need: made[need] for need in needs}


def quick(hyperparameters: Iterable[str]) -> dict[str, object]:
    """Values for those hyperparameters whose defaults would take too long here."""
    return {"server_epochs": 2} if "server_epochs" in hyperparameters else {}


def federation(
    method: Method,
    server_optimizer: Optimizer | None = None,
    server_lr: float = 1.0,
    *,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    lr: float = 0.1,
    cohort: int = 5,
    rounds: int = ROUNDS,
    execute: Executor = sequential,
    seed: int = 3,
) -> Federation:
    clients = data()
    if method.centralized:
        clients = Data([(clients.samples.x, clients.samples.y)])
    everyone = len(clients.sizes)
    whole = any(layer.full_participation for layer in method.layers())
    context = Context(
        net=small_net(),
        clients=everyone,
        rounds=rounds,
        epochs=2,
        batch_size=8,
        cohort_size=everyone if whole else min(cohort, everyone),
        optimizer=sgd(momentum, weight_decay),
        server_optimizer=server_optimizer or sgd(),
        schedule=lambda round: lr * 0.99**round,
        server_lr=server_lr,
        nets={name: Net(net.double()) for name, net in method.nets((FEATURES,), CLASSES).items()},
        inputs=Inputs(shape=(FEATURES,), classes=CLASSES),
        artifacts=given([need for layer in method.layers() for need in layer.requires], everyone),
        seed=seed,
    )
    return Federation(method=method, context=context, clients=clients, execute=execute)


def in_context(world: Federation, **changes: Any) -> Federation:
    """The federation with other values in its context."""
    return replace(world, context=replace(world.context, **changes))


def play(world: Federation, until: int | None = None, state: State | None = None) -> State:
    """The state after playing rounds from ``state`` (or the start) to ``until`` (or the end)."""
    server, known, done = state or (begin(world), Memory(), 0)
    client_states = Memory(dict(known.known))
    until = world.context.rounds if until is None else until
    for round in range(done, until):
        server, _ = play_round(world, server, client_states, round)
    return server, client_states, until


def follows_a_server_optimizer(world: Federation) -> bool:
    """Whether the server optimizer affects the first round, compared with one that never moves."""
    still = Optimizer(init=lambda params: {}, update=_stay)
    without = replace(world, context=replace(world.context, server_optimizer=still))
    moved, stayed = ({**play(each, until=1)[0], "optimizer": {}} for each in (world, without))
    pairs = zip(tree.leaves(moved), tree.leaves(stayed), strict=True)
    return any(not torch.equal(one, other) for one, other in pairs)


def _stay(delta: Tree, state: Tree, params: Tree, rate: float | Tensor) -> tuple[Tree, Tree]:
    return tree.zeros(params), state
