"""FedGO's toy example (its Figures 1 and 4, Appendix E.1): six aggregations of four clients.

Four Gaussians around the corners of a square and three classes, as the first and the third quadrant
have the same, and four clients, each with most of one Gaussian. There is one round: clients train a
classifier on their points, and a discriminator that tells these from the server's, which are
uniform. The server averages the models and, except in the first aggregation, distils the clients'
ensemble into the average with one of five weightings.

Where the paper is silent or contradicts itself (A13): the distillation set is all clients' points,
as in Appendix E.1; networks have 256 units per layer, as one epoch is too little to train 64; the
rest of a client's points are from the other Gaussians in equal parts. Discriminators end in FedGO's
additional sigmoid, so odds range from 1 to e.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.engine.initialise import initialise
from fedrepro.methods.distilling import weighting
from fedrepro.methods.distilling.losses import kl_divergence, pseudo_labels
from fedrepro.methods.generating.adversarial import discriminator_loss
from fedrepro.support.rng import stream

CENTRES = ((4.0, 4.0), (-4.0, 4.0), (-4.0, -4.0), (4.0, -4.0))
CLASS_OF = (0, 1, 0, 2)  # of each centre; in the paper red, blue, red, green
CLASSES = len(set(CLASS_OF))
SEEDS = (1, 2, 3, 4, 5)
CELLS = 60  # along each side of the drawn square

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Toy:
    """The example's settings.

    Attributes:
        points: per Gaussian; ``server_points`` are in a square of twice the ``reach``.
        variance: of a Gaussian along each axis.
        kept: percentage of a Gaussian's points at its own client.
        width: units per layer.
    """

    points: int = 300
    variance: float = 3.0
    kept: int = 90
    server_points: int = 300
    reach: float = 12.0
    width: int = 256
    batch: int = 64
    rate: float = 1e-3
    client_epochs: int = 2
    server_epochs: int = 2
    discriminator_rate: float = 5e-5
    discriminator_epochs: int = 1


@dataclass(frozen=True)
class Played:
    """The result of one seed.

    Attributes:
        servers: the server's model, by aggregation.
        weights: by weighting, [clients, n] at the clients' points.
        points, sources: of all clients, [n, 2] and [n]: from which Gaussian a point is.
        given: the server's points [n, 2], which have no class.
    """

    servers: Mapping[str, nn.Module]
    weights: Mapping[str, Tensor]
    points: Tensor
    sources: Tensor
    given: Tensor


def sample(toy: Toy, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points [n, 2] and from which Gaussian they are [n], one Gaussian after the other."""
    sources = torch.arange(len(CENTRES)).repeat_interleave(toy.points)
    around = toy.variance**0.5 * torch.randn(len(sources), 2, generator=rng)
    return torch.tensor(CENTRES)[sources] + around, sources


def classes_of(sources: Tensor) -> Tensor:
    """The classes [n] of Gaussians [n]."""
    return torch.tensor(CLASS_OF)[sources]


def holders(toy: Toy) -> Tensor:
    """The client [n] of each point of :func:`sample`."""
    clients = len(CENTRES)
    own = torch.arange(clients).repeat_interleave(toy.points)
    place = torch.arange(toy.points).repeat(clients)
    others = (own + 1 + place % (clients - 1)) % clients
    return torch.where(100 * place < toy.kept * toy.points, own, others)


def play(toy: Toy, seed: int) -> Played:
    """One round, with all randomness from ``seed``."""
    points, sources = sample(toy, stream(seed, "toy", "points"))
    classes = classes_of(sources)
    uniform = torch.rand(toy.server_points, 2, generator=stream(seed, "toy", "server"))
    given = toy.reach * (2 * uniform - 1)
    held = holders(toy)
    models, judges, sizes = [], [], []
    for client in range(len(CENTRES)):
        mine = held == client
        sizes.append(int(mine.sum()))
        models.append(_classifier(toy, seed, client, points[mine], classes[mine]))
        judges.append(_discriminator(toy, seed, client, points[mine], given))
    with torch.no_grad():
        logits = torch.stack([model(points) for model in models])
        judged = torch.stack([judge(points)[:, 0] for judge in judges])
    weights = {
        "uniform": weighting.uniform(logits),
        "variance": weighting.variance(logits),
        "entropy": weighting.entropy(logits),
        "domain-aware": weighting.domain_aware(judged),
        "odds": weighting.odds(judged, torch.tensor(sizes)),
    }
    average = _average(toy, seed, models, sizes)
    servers = {"parameters": average}
    for name, shares in weights.items():
        servers[name] = _distilled(toy, seed, average, points, pseudo_labels(logits, shares))
    return Played(servers, weights, points, sources, given)


def regions(model: nn.Module, toy: Toy) -> Tensor:
    """The predicted class [rows, columns] at every cell's centre, from the lower left corner."""
    middles = (torch.arange(CELLS) + 0.5) / CELLS * 2 * toy.reach - toy.reach
    y, x = torch.meshgrid(middles, middles, indexing="ij")
    with torch.no_grad():
        predicted: Tensor = model(torch.stack([x, y], -1).reshape(-1, 2)).argmax(-1)
    return predicted.reshape(CELLS, CELLS)


def nearest(toy: Toy) -> Tensor:
    """The class of the nearest centre, which is the paper's oracle, like :func:`regions`."""
    return regions(_Nearest(), toy)


def study() -> dict[str, Any]:
    """The figure's content: one seed's points and regions, and every seed's numbers.

    Returns:
        reach; points, each [x, y, class], the client that holds each, the server's points, each
        [x, y], and regions by aggregation, of the first seed; and by aggregation for every seed:
        accuracy on as many fresh points, and the share of the square assigned to the nearest
        centre. ``right`` is, by weighting, the share of the points at which the client with most
        of their Gaussian has the largest weight.
    """
    toy = Toy()
    played = [play(toy, seed) for seed in SEEDS]
    first, best = played[0], nearest(toy)
    return {
        "reach": toy.reach,
        "seeds": list(SEEDS),
        "points": [
            [round(x, 2), round(y, 2), each]
            for (x, y), each in zip(
                first.points.tolist(), classes_of(first.sources).tolist(), strict=True
            )
        ],
        "holders": holders(toy).tolist(),
        "server_points": [[round(x, 2), round(y, 2)] for x, y in first.given.tolist()],
        "regions": {name: regions(model, toy).tolist() for name, model in first.servers.items()},
        "accuracy": {
            name: [
                _accuracy(toy, seed, each.servers[name])
                for seed, each in zip(SEEDS, played, strict=True)
            ]
            for name in first.servers
        },
        "nearest": {
            name: [_share(regions(each.servers[name], toy) == best) for each in played]
            for name in first.servers
        },
        "right": {
            name: [_share(each.weights[name].argmax(0) == each.sources) for each in played]
            for name in first.weights
            if name != "uniform"
        },
    }


class _Nearest(nn.Module):
    """Scores of classes, highest for that of the nearest centre."""

    def forward(self, points: Tensor) -> Tensor:
        near = -torch.cdist(points, torch.tensor(CENTRES))
        own = functional.one_hot(torch.tensor(CLASS_OF)).bool()  # [centres, classes]
        return near[:, :, None].masked_fill(~own, -torch.inf).amax(1)


def _accuracy(toy: Toy, seed: int, model: nn.Module) -> float:
    points, sources = sample(toy, stream(seed, "toy", "fresh points"))
    with torch.no_grad():
        return _share(model(points).argmax(-1) == classes_of(sources))


def _share(hits: Tensor) -> float:
    return round(statistics.fmean(hits.flatten().tolist()), 4)


def _mlp(toy: Toy, outputs: int, rng: torch.Generator) -> nn.Sequential:
    """Three layers."""
    # Creating layers uses the global generator; ours draws their weights afterwards.
    with torch.random.fork_rng(devices=[]):
        first, second = nn.Linear(2, toy.width), nn.Linear(toy.width, toy.width)
        last = nn.Linear(toy.width, outputs)
        model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    with torch.no_grad():
        initialise(model, rng)
    return model


def _classifier(toy: Toy, seed: int, client: int, points: Tensor, classes: Tensor) -> nn.Module:
    """All clients' discriminators start from the same weights."""
    model = _mlp(toy, CLASSES, stream(seed, "toy", "classifier"))
    optimizer = torch.optim.Adam(model.parameters(), toy.rate)
    rng = stream(seed, "toy", "client", client)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(model(x), y)

    _train(toy, optimizer, loss, (points, classes), toy.client_epochs, rng)
    return model


def _discriminator(toy: Toy, seed: int, client: int, points: Tensor, given: Tensor) -> nn.Module:
    """Each mini-batch of the client's (real) points is paired with as many of the server's."""
    start = _mlp(toy, 1, stream(seed, "toy", "discriminator"))
    model = nn.Sequential(start, nn.Sigmoid())
    optimizer = torch.optim.RMSprop(model.parameters(), toy.discriminator_rate)
    rng = stream(seed, "toy", "discriminator", client)
    fakes = given[torch.randint(len(given), (len(points),), generator=rng)]

    def loss(real: Tensor, fake: Tensor) -> Tensor:
        return discriminator_loss(model(real)[:, 0], model(fake)[:, 0])

    _train(toy, optimizer, loss, (points, fakes), toy.discriminator_epochs, rng)
    return model


def _average(toy: Toy, seed: int, models: Sequence[nn.Module], sizes: Sequence[int]) -> nn.Module:
    average = _mlp(toy, CLASSES, stream(seed, "toy", "classifier"))
    states = [model.state_dict() for model in models]
    average.load_state_dict(
        {
            name: sum(size * state[name] for size, state in zip(sizes, states, strict=True))
            / sum(sizes)
            for name in states[0]
        }
    )
    return average


def _distilled(toy: Toy, seed: int, start: nn.Module, points: Tensor, labels: Tensor) -> nn.Module:
    model = _mlp(toy, CLASSES, stream(seed, "toy", "classifier"))
    model.load_state_dict(start.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), toy.rate)
    rng = stream(seed, "toy", "distillation")

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return kl_divergence(target, model(x))

    _train(toy, optimizer, loss, (points, labels), toy.server_epochs, rng)
    return model


def _train(
    toy: Toy,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    pairs: tuple[Tensor, Tensor],
    epochs: int,
    rng: torch.Generator,
) -> None:
    """Mini-batches in a new random order per epoch."""
    for _ in range(epochs):
        for rows in torch.randperm(len(pairs[0]), generator=rng).split(toy.batch):
            optimizer.zero_grad()
            loss(*(each[rows] for each in pairs)).backward()
            optimizer.step()
