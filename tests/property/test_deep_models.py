"""Models of more than ten layers with BatchNorm, under every method, wrapper and attack.

Leaves are told apart by names, of which some begin with others: ``body.norm.1.weight`` and
``body.norm.10.weight``. A model whose names have nothing in common is the same model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, Memory, in_context, play
from fedrepro.engine import tree
from fedrepro.engine.attacks import Attack
from fedrepro.engine.context import Context
from fedrepro.engine.method import LOSS
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, Round, begin, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.methods.personal.partly_shared import PartlyShared
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import UserError
from support.closeness import assert_close
from support.worlds import federation

LAYERS, WIDTH = 12, 6
NUMBERS = [str(number) for number in range(LAYERS)]
# No name begins with another, nor does any with "body" or "head".
LETTERS = ["k", "r", "b", "x", "e", "q", "t", "a", "z", "m", "p", "c"]
# None has one sample left over in a client of the world, which BatchNorm refuses.
BATCH = 7
TRAINED = {name: part for name, part in registry.parts().items() if part.kind == "method"}
WRAPPERS = {name: part for name, part in registry.parts().items() if part.kind == "wrapper"}
SERVERS = [name for name, part in registry.parts().items() if part.kind.startswith("server")]
PARTLY = [name for name, part in TRAINED.items() if issubclass(part.cls, PartlyShared)]
VALUES: dict[str, dict[str, object]] = {
    "fedrep": {"body_epochs": 1}, "ditto": {"personal_epochs": 1}, "pfedme": {"inner_steps": 1},
    "ima": {"start": 0.0, "window": 2, "scheme": "none"}, "superfed_mm": {"start": 0.0},
    "superfed_lm": {"start": 0.0},
    # Of three clients, one.
    "krum": {"share": 0.34}, "multi_krum": {"share": 0.34}, "trimmed_mean": {"share": 0.34},
}  # fmt: skip


class Deep(nn.Module):
    """Twelve linear layers; every other one is followed by BatchNorm, the rest by LayerNorm."""

    def __init__(self, names: Sequence[str], running: bool) -> None:
        super().__init__()
        inputs = [FEATURES, *[WIDTH] * (LAYERS - 1)]
        self.linear = nn.ModuleDict(
            {name: nn.Linear(size, WIDTH) for name, size in zip(names, inputs, strict=True)}
        )
        self.norm = nn.ModuleDict(
            {
                name: nn.BatchNorm1d(WIDTH) if running and number % 2 else nn.LayerNorm(WIDTH)
                for number, name in enumerate(names)
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        for linear, norm in zip(self.linear.values(), self.norm.values(), strict=True):
            x = torch.tanh(norm(linear(x)))
        return x


def deep_net(names: Sequence[str] = NUMBERS, running: bool = True, width: int = WIDTH) -> Net:
    return Net(Classifier(Deep(names, running), nn.Linear(width, CLASSES)).double())


def deep(name: str, names: Sequence[str] = NUMBERS, running: bool = True) -> Federation:
    """The world with a deep model; with BatchNorm where the method allows it."""
    # Scaffnew trains without momentum, pFedMe's inner steps without weight decay, too.
    plain: dict[str, Any] = {"momentum": 0.9}
    if name in ("scaffnew", "pfedme"):
        plain = {"momentum": 0.0} | ({"weight_decay": 0.0} if name == "pfedme" else {})
    world = federation(name, VALUES, cohort=3, rounds=2, **plain)
    context = replace(world.context, net=deep_net(names, running), epochs=1)
    world = replace(world, context=replace(context, batch_size=BATCH))
    try:
        world.method.check(context_of(world, 0, [0]))
    except UserError:
        if not running:
            raise
        return deep(name, names, running=False)
    return world


def compositions() -> list[str]:
    """Every method, and every wrapper around FedAvg and around FedBN or FedPer."""
    found = [*TRAINED, *(f"fedavg+{name}" for name in SERVERS)]
    for name, part in WRAPPERS.items():
        inner = [each for each in ("fedavg", "fedbn", "fedper")
                 if part.cls.refuses(TRAINED[each].cls()) is None]  # fmt: skip
        found += [f"{name}+{each}" for each in inner[:2]]
    return [*found, "ima@released+fedavg+fedadam"]


@pytest.mark.parametrize("name", compositions())
def test_names_that_begin_with_others_change_no_bit(name: str) -> None:
    numbered, lettered = (play(deep(name, names)) for names in (NUMBERS, LETTERS))
    for one, other in zip(numbered[:2], lettered[:2], strict=True):
        ours, theirs = (each.known if isinstance(each, Memory) else each for each in (one, other))
        pairs = list(zip(tree.named(ours), tree.named(theirs), strict=True))
        assert pairs or isinstance(one, Memory)
        for (path, leaf), (_, its) in pairs:
            assert leaf.dtype == its.dtype and torch.equal(leaf, its), path


# --- running statistics are moved by what clients send, and by nothing else ----------------------
def buffers(world: Federation, params: Tree) -> Tree:
    trained = world.context.net.trainable(params)
    return {name: leaf for name, leaf in params.items() if name not in trained}


@cache
def of_fedavg() -> tuple[Federation, Tree, Round]:
    """The first round of FedAvg: the world, the server's first state and what clients sent."""
    world = deep("fedavg")
    before = begin(world)
    return world, before, play_round(world, before, Memory(), 0)[1]


def first_round(name: str) -> tuple[Federation, Tree, Round]:
    world = deep(name)
    after, seen = play_round(world, begin(world), Memory(), 0)
    return world, after, seen


# Whose first local training is FedAvg's, and whose server then follows the weighted mean.
AVERAGED = [
    "fedavg", *(f"fedavg+{name}" for name in SERVERS), "scaffold", "fedgma", "top_k+fedavg",
    "quantised+fedavg", "ima+fedavg", "ima@released+fedavg", "ima@released+fedavg+fedadam",
]  # fmt: skip


@pytest.mark.parametrize("name", [*AVERAGED, "aaggff_d+fedavg"])
def test_running_statistics_move_by_the_clients_weighted_mean(name: str) -> None:
    """With every server optimizer, compressor and moving average; by samples unless it decides."""
    plain, before, sent = of_fedavg()
    world, after, seen = first_round(name)
    sizes = [plain.clients.sizes[client] for client in sent.cohort]
    assert len(set(sizes)) == len(sizes)  # else any weights would do
    weights = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    if "aaggff" in name:
        assert not torch.allclose(seen.weights, weights)
        weights = seen.weights
    torch.testing.assert_close(seen.weights, weights)
    moved = buffers(world, after["params"])
    assert len(moved) == LAYERS  # a mean and a variance of each of six layers
    for path, leaf in moved.items():
        mean = torch.tensordot(weights, sent.updates["delta"][path], 1)
        torch.testing.assert_close(leaf, before["params"][path] - mean)
        assert not torch.equal(leaf, before["params"][path])


def test_a_moving_average_covers_running_statistics() -> None:
    """Of a window of two after two rounds, the mean of FedAvg's two models: every leaf of them."""
    first, second = (play(deep("fedavg"), until=until)[0]["params"] for until in (1, 2))
    averaged = play(deep("ima+fedavg"), until=2)[0]["params"]
    assert_close(averaged, tree.mix(first, second, 0.5))


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "krum", "multi_krum"])
def test_robust_rules_hold_for_running_statistics(name: str) -> None:
    """Of three clients: the middle one, or that whose parameters are closest to another's."""
    _, before, sent = of_fedavg()
    world, after, _ = first_round(f"{name}+fedavg")
    delta = sent.updates["delta"]
    trained = world.context.net.trainable(delta).values()
    flat = torch.cat([leaf.flatten(1) for leaf in trained], 1)
    apart = (flat[:, None] - flat[None]).norm(dim=2).fill_diagonal_(torch.inf)
    closest = int(apart.min(1).values.argmin())
    for path, leaf in buffers(world, after["params"]).items():
        rows = delta[path]
        wanted = {
            "median": rows.sum(0) - rows.max(0).values - rows.min(0).values,
            "trimmed_mean": rows.median(0).values,  # without one at each end
            "krum": rows[closest],
            "multi_krum": rows[closest],
        }[name]
        torch.testing.assert_close(leaf, before["params"][path] - wanted)


@pytest.mark.parametrize("name", ["krum", "multi_krum"])
def test_krum_selects_by_parameters_alone(name: str) -> None:
    """Running statistics have other units: however far apart, they don't change the choice."""
    _, _, chosen = first_round(f"{name}+fedavg")
    best = int(chosen.weights.argmax())
    world = deep(f"{name}+fedavg")

    def moved(ctx: Context, updates: Tree) -> Tree:
        statistics = buffers(world, updates["delta"])
        far = {path: leaf.index_fill(0, ctx.cohort.new_tensor([best]), 1e6)
               for path, leaf in statistics.items()}  # fmt: skip
        return {"delta": {**updates["delta"], **far}}

    _, seen = play_round(replace(world, attack=moved), begin(world), Memory(), 0)
    assert torch.equal(seen.weights, chosen.weights)


@pytest.mark.parametrize("kind", ["sign_flip", "gaussian", "inner_product"])
def test_an_attack_leaves_running_statistics_as_they_are(kind: str) -> None:
    """And replaces every parameter's update, those of BatchNorm included."""
    plain, _, sent = of_fedavg()
    attack = Attack(kind, 3.0, frozenset({sent.cohort[1]}))
    world = replace(deep("fedavg"), attack=attack)
    seen = play_round(world, begin(world), Memory(), 0)[1]
    statistics = buffers(plain, sent.updates["delta"])
    for path, leaf in seen.updates["delta"].items():
        honest = sent.updates["delta"][path]
        assert torch.equal(leaf[[0, 2]], honest[[0, 2]]), path
        assert torch.equal(leaf[1], honest[1]) == (path in statistics), path
        if kind == "sign_flip" and path not in statistics:
            torch.testing.assert_close(leaf[1], -3 * honest[1])


# --- models of which clients keep a part ---------------------------------------------------------
def kept_by_hand(name: str, net: Net) -> set[str]:
    """By the modules themselves, not by how their leaves are called."""
    leaves = {**dict(net.module.named_parameters()), **dict(net.module.named_buffers())}
    layers = {
        "fedbn": [each for each in net.module.modules() if isinstance(each, nn.BatchNorm1d)],
        "lg_fedavg": [net.module.get_submodule("body")],
    }.get(name, [net.module.get_submodule("head")])
    theirs = {id(leaf) for layer in layers for leaf in (*layer.parameters(), *layer.buffers())}
    floats = {path: leaf for path, leaf in leaves.items() if leaf.is_floating_point()}
    return {path for path, leaf in floats.items() if id(leaf) in theirs}


class WithHead(nn.Module):
    """A deep body with a layer that is called head."""

    def __init__(self, running: bool) -> None:
        super().__init__()
        self.deep = Deep(NUMBERS, running)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.head(self.deep(x)))


def with_heads(name: str) -> Federation:
    """Deep, but the head also has BatchNorm, and the body a layer called head."""
    world = deep(name)
    running = bool(buffers(world, world.initial))
    norm = nn.BatchNorm1d if running else nn.LayerNorm
    head = nn.Sequential(nn.Linear(WIDTH, WIDTH), norm(WIDTH), nn.Linear(WIDTH, CLASSES))
    net = Net(Classifier(WithHead(running), head).double())
    return replace(world, context=replace(world.context, net=net))


@pytest.mark.parametrize("make", [deep, with_heads])
@pytest.mark.parametrize("name", PARTLY)
def test_a_client_keeps_its_part_and_shares_the_rest(
    name: str, make: Callable[[str], Federation]
) -> None:
    world = make(name)
    kept = kept_by_hand(name, world.context.net)
    assert 0 < len(kept) < len(world.initial)
    server, states, _ = play(world)
    trained = world.context.net.trainable(world.initial)
    for path, leaf in server["params"].items():
        if path in kept or path in trained:
            assert torch.equal(leaf, world.initial[path]) == (path in kept), path
    assert states.known
    for own in states.known.values():
        assert set(own["kept"]) == kept
        model = world.method.eval_model(context_of(world, 1, [0]), server, own)
        assert list(model) == list(world.initial)
        for path, leaf in model.items():
            mine = path in kept
            assert torch.equal(leaf, own["kept"][path] if mine else server["params"][path]), path
            assert not mine or not torch.equal(leaf, world.initial[path]), path


@pytest.mark.parametrize("inner", ["fedavg", *PARTLY])
def test_losses_before_training_are_those_of_the_clients_own_models(inner: str) -> None:
    """AAggFF weighs by the received model, completed by what the client keeps, in testing mode."""
    world = deep(f"aaggff_d+{inner}")
    server, states, _ = play(world, until=1)
    ctx = context_of(world, 1, [0])
    models = {
        client: world.method.eval_model(ctx, server, own) for client, own in states.known.items()
    }
    _, seen = play_round(in_context(world, cohort_size=6), server, states, 1)
    assert len(models) == 3 and seen.cohort == [*range(6)]
    for client, loss in zip(seen.cohort, seen.updates[LOSS].tolist(), strict=True):
        x, y = world.clients.samples.at(world.clients.rows(client))
        params = models.get(client, server["params"])
        wanted = (
            ctx.task.losses(ctx.net.predict(ctx.net.bind(params), x), y, "none").mean().detach()
        )
        assert loss == pytest.approx(float(wanted), rel=1e-9)


# Whose clients send a model that the server averages and leaves as it is.
MEANS = [
    name
    for name, part in TRAINED.items()
    if name not in ("central", "local", *PARTLY) and not part.cls.distills
]


@pytest.mark.parametrize("name", [*MEANS, "aaggff_d+fedavg", "aaggff_d+scaffold"])
def test_running_statistics_are_the_clients_mean_by_the_rounds_weights(name: str) -> None:
    """Whatever a server does to parameters; the weights are those that the round records."""
    world = deep(name)
    before = begin(world)
    if not buffers(world, world.initial) or "params" not in before:
        pytest.skip("no shared model with running statistics")
    after, seen = play_round(world, before, Memory(), 0)
    ctx, shares = context_of(world, 0, seen.cohort), seen.weights / seen.weights.sum()
    ends = [
        world.method.client_model(ctx, before, seen.updates, place)
        for place in range(len(seen.cohort))
    ]
    for path, leaf in buffers(world, after["params"]).items():
        wanted = sum(share * end[path] for share, end in zip(shares, ends, strict=True))
        torch.testing.assert_close(leaf, wanted)


@pytest.mark.parametrize("name", ["moon", "feduv", "fedtgp", "dafkd", "fedrep"])
def test_features_may_be_images_and_the_head_may_be_deep(name: str) -> None:
    """Whether the body or the head flattens them, and however long the head is after that."""
    found = []
    for inside in (True, False):
        convolution = (nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, (1, 2)), nn.Tanh())
        dense = (nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, CLASSES))
        body = nn.Sequential(*convolution, *([nn.Flatten()] if inside else []))
        head = nn.Sequential(*([] if inside else [nn.Flatten()]), *dense)
        world = federation(name, VALUES, cohort=3, rounds=2)
        net = Net(Classifier(body, head).double())
        server, _, _ = play(replace(world, context=replace(world.context, net=net)))
        found.append(torch.cat([leaf.flatten() for leaf in tree.leaves(server)]))
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
