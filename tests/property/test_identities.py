"""Degenerate cases (a method that becomes another) and closed forms."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedrepro.check.world import FEATURES, SIZES, Data, play
from fedrepro.engine import tree
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import gradient_weight, sgd
from fedrepro.engine.round import context_of, steps_of
from fedrepro.methods.central import Central
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fednova import FedNova
from fedrepro.methods.fedprox import FedProx
from fedrepro.methods.ima import IMA
from fedrepro.methods.scaffold import Scaffold
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import UserError
from support.closeness import assert_close
from support.worlds import federation


@pytest.mark.parametrize(
    ("special", "general"),
    [
        (FedProx(mu=0.0), FedAvg()),
        (FedProx(mu=0.0, squared=False), FedAvg()),
        (Scaffold(corrects=False), FedAvg()),
        (IMA(FedAvg(), window=1, decay=0.01), FedAvg()),
        (IMA(Scaffold(), start=1.0), Scaffold()),
        (IMA(FedNova(), window=1, decay=0.01), FedNova()),
    ],
    ids=str,
)
def test_degenerate_case(special: Method, general: Method) -> None:
    ours, _, _ = play(federation(method=special))
    theirs, _, _ = play(federation(method=general))
    assert_close(ours["params"], theirs["params"])


def test_first_round_of_scaffold_is_fedavg() -> None:
    """All variates start at zero."""
    ours, _, _ = play(federation("scaffold"), until=1)
    theirs, _, _ = play(federation("fedavg"), until=1)
    assert_close(ours["params"], theirs["params"], 0)


@pytest.mark.parametrize("equal", [False, True])
def test_scaffold_server_variate_is_the_mean_over_all_clients(equal: bool) -> None:
    """Those that have not taken part count with a variate of zero."""
    method = Scaffold(equal_weights=equal)
    server, client_states, _ = play(
        federation(method=method, momentum=0.0, weight_decay=0.0), until=4
    )
    total = tree.zeros(server["c"])
    for client, client_state in client_states.known.items():
        share = 1 / len(SIZES) if equal else SIZES[client] / sum(SIZES)
        total = tree.add(total, tree.scale(client_state["c"], share))
    assert_close(server["c"], total)


@dataclass(frozen=True)
class OnUnequalQuadratics(Scaffold):
    """Client i has y_i / 2 |theta - x_i|^2, with x_i and y_i the same in all of its samples."""

    def loss(self, ctx, message, client_state, params, batch):  # type: ignore[no-untyped-def]
        away = tree.apply(lambda leaf: leaf - batch["x"][0, 0], params)
        return tree.square_norm(away) * batch["y"][0] / 2


@pytest.mark.parametrize(("equal", "momentum"), [(False, 0.0), (True, 0.0), (False, 0.5)])
def test_scaffold_comes_to_rest_at_the_minimum_of_the_objective_that_its_weights_say(
    equal: bool, momentum: float
) -> None:
    """Unequal clients, five of six in a round: sum n_i y_i (w - x_i) = 0, or without n_i."""
    method = OnUnequalQuadratics(equal_weights=equal)
    world = federation(method=method, momentum=momentum, weight_decay=0.0, lr=0.05)
    context = replace(world.context, schedule=lambda round: 0.05)
    centres, heights = torch.tensor([1.0, -2, 4, 0, 3, -1]), torch.tensor([1, 3, 2, 5, 1, 4])
    tensors = [
        (torch.full((size, FEATURES), float(centre)), height.repeat(size))
        for size, centre, height in zip(SIZES, centres, heights, strict=True)
    ]
    clients = Data(tensors)
    server, _, _ = play(replace(world, clients=clients, context=context), until=150)
    shares = (torch.ones(6) if equal else torch.tensor(SIZES)) * heights
    minimum = (shares * centres).sum() / shares.sum()
    wanted = tree.apply(lambda leaf: torch.full_like(leaf, float(minimum)), server["params"])
    assert_close(server["params"], wanted, 1e-6)


def test_scaffold_after_momentum_is_scaffold_where_there_is_none() -> None:
    for momentum, same in ((0.0, True), (0.9, False)):
        one, _, _ = play(federation(method=Scaffold(), momentum=momentum), until=3)
        other, _, _ = play(federation(method=Scaffold(after_momentum=True), momentum=momentum), 3)
        if same:
            assert_close(one, other)
        else:
            with pytest.raises(AssertionError):
                assert_close(one["params"], other["params"], 1e-4)


@pytest.mark.parametrize("twice", [False, True])
def test_scaffold_after_momentum_by_hand(twice: bool) -> None:
    """Momentum carries gradients alone; the variate is the path over k times the rate.

    The rate of the correction is lr(t)^2 / lr(0) if it decays ``twice``, as in IMA's code.
    """
    method = Scaffold(after_momentum=True, decays_twice=twice)
    world = federation(method=method, weight_decay=0.0)
    server, client_states, _ = play(world, until=2)
    client = next(iter(client_states.known))
    ctx, client_state = context_of(world, 2, [client]), client_states.known[client]
    message, steps = world.method.broadcast(ctx, server), steps_of(world, ctx, client)
    update, after = world.method.client_update(ctx, message, client_state, steps)
    params, velocity = message["params"], tree.zeros(message["params"])
    shift = tree.subtract(message["c"], client_state["c"])
    shift = tree.scale(shift, 0.99**2 if twice else 1.0)
    for batch in steps:
        raw = Method().gradient(ctx, message, {}, params, batch)
        velocity = tree.apply(lambda v, g: 0.9 * v + g, velocity, raw)
        params = tree.apply(lambda w, v, s: w - ctx.lr * (v + s), params, velocity, shift)
    delta = tree.subtract(message["params"], params)
    assert_close(update["delta"], delta)
    path = tree.scale(delta, 1 / (len(steps) * ctx.lr))
    assert_close(
        after["c"], tree.apply(lambda c_i, c, p: c_i - c + p, client_state["c"], message["c"], path)
    )


def test_scaffold_with_momentum_keeps_variates_as_long_as_gradients() -> None:
    """On a constant gradient g the path is a_i * lr * g, whatever the momentum."""

    @dataclass(frozen=True)
    class Constant(Scaffold):
        def loss(self, ctx, message, client_state, params, batch):  # type: ignore[no-untyped-def]
            return torch.stack([leaf.sum() for leaf in tree.leaves(params)]).sum()

    world = federation(method=Constant(), momentum=0.9, weight_decay=0.0)
    _, client_states, _ = play(world, until=1)
    for client_state in client_states.known.values():
        assert_close(client_state["c"], tree.apply(torch.ones_like, client_state["c"]))


def test_scaffold_own_variate_is_the_mean_raw_gradient_of_the_path() -> None:
    """Option II telescopes for plain SGD."""
    world = federation("scaffold", momentum=0.0, weight_decay=0.0)
    server, client_states, _ = play(world, until=2)
    client = next(iter(client_states.known))
    ctx = context_of(world, 2, [client])
    method, client_state, message = (
        world.method,
        client_states.known[client],
        world.method.broadcast(ctx, server),
    )
    steps = steps_of(world, ctx, client)
    _, after = method.client_update(ctx, message, client_state, steps)
    params, total, count = message["params"], tree.zeros(message["params"]), 0
    for batch in steps:
        raw = Method().gradient(ctx, message, {}, params, batch)
        total, count = tree.add(total, raw), count + 1
        corrected = tree.subtract(tree.add(raw, message["c"]), client_state["c"])
        params = tree.subtract(params, tree.scale(corrected, ctx.lr))
    assert_close(after["c"], tree.scale(total, 1 / count))


def test_fednova_with_equal_steps_is_fedavg() -> None:
    """When every client takes as many steps, the normalisation cancels."""
    world = federation(method=FedNova(), cohort=2)
    same = federation(method=FedAvg(), cohort=2)
    # Clients 1 and 5 have 13 and 16 samples: two mini-batches of 8 each.
    equal = [world.clients.tensors[1], world.clients.tensors[5]]
    clients = Data(equal)
    context = replace(world.context, clients=2)
    ours, _, _ = play(replace(world, clients=clients, context=context), until=3)
    theirs, _, _ = play(replace(same, clients=clients, context=context), until=3)
    assert_close(ours["params"], theirs["params"])


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_fednova_weight_is_the_one_norm_of_the_momentum_recursion(momentum: float) -> None:
    for steps in (1, 2, 7, 40):
        velocity, total = 0.0, 0.0
        for _ in range(steps):
            velocity = momentum * velocity + 1
            total += velocity
        assert float(gradient_weight(steps, momentum)) == pytest.approx(total, rel=1e-12)


def test_fednova_averages_running_statistics() -> None:
    """Buffers take part with p_i, whose sum is 1, though clients differ in their steps."""
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8))
    net = Net(Classifier(body, nn.Linear(8, 3)).double())
    moved = {}
    for method in (FedNova(), FedAvg()):
        world = federation(method=method)
        # Mini-batches of 7: no client has a last one of a single sample.
        world = replace(world, context=replace(world.context, net=net, batch_size=7))
        moved[type(method)] = play(world, until=1)[0]["params"]
    for name in ("body.1.running_mean", "body.1.running_var"):
        assert_close(moved[FedNova][name], moved[FedAvg][name])
    with pytest.raises(AssertionError):
        assert_close(moved[FedNova]["body.1.weight"], moved[FedAvg]["body.1.weight"], 1e-6)


@pytest.mark.parametrize(("rounds", "first"), [(400, 300), (5, 3), (6, 4), (7, 5), (100, 75)])
def test_ima_starts_at_the_whole_part_of_its_share(rounds: int, first: int) -> None:
    ctx = replace(federation().context, rounds=rounds)
    assert IMA(FedAvg()).first(ctx) == first == int(0.75 * rounds)
    # 0.29 * 100 is 28.999999999999996 in floating point.
    assert IMA(FedAvg(), start=0.29).first(replace(ctx, rounds=100)) == 29


def test_ima_averages_the_last_models_and_sends_the_mean() -> None:
    """Algorithm 1: the window holds the method's own models, not their means (B1)."""
    world = federation(method=IMA(FedAvg(), window=3, start=0.5, decay=0.0))
    server, models = None, []
    state = play(world, until=0)
    for round in range(1, 7):
        state = play(world, until=round, state=state)
        server = state[0]
        models.append(tree.take(server["ima"], -1))
        if round > 3:
            expected = tree.scale(tree.add(tree.add(*models[-3:-1]), models[-1]), 1 / 3)
            assert_close(server["params"], expected)
            assert_close(world.method.broadcast(world.context, server)["params"], expected)
        else:
            assert_close(server["params"], models[-1], 0)


def test_ima_learning_rate() -> None:
    """0.01 * 0.99^t, and from t_s = 225 of 300 on 0.01 * 0.99^225 * 0.97^(t - 225)."""
    method = IMA(FedAvg())
    ctx = replace(federation().context, rounds=300, schedule=lambda round: 0.01 * 0.99**round)
    assert method.learning_rate(ctx, 224) == pytest.approx(0.01 * 0.99**224)
    assert method.learning_rate(ctx, 225) == pytest.approx(0.01 * 0.99**225)
    assert method.learning_rate(ctx, 299) == pytest.approx(0.01 * 0.99**225 * 0.97**74)


def test_ima_released_reading_departs_only_with_a_server_optimizer() -> None:
    """B4: without an adaptive step, the mean of the clients' averages is the mean of the models."""
    paper, _, _ = play(federation("ima+fedavg"))
    released, _, _ = play(federation("ima@released+fedavg"))
    assert_close(paper["params"], released["params"])
    paper, _, _ = play(federation("ima+fedadam"))
    released, _, _ = play(federation("ima@released+fedadam"))
    with pytest.raises(AssertionError):
        assert_close(paper["params"], released["params"], 1e-6)


def test_central_is_ordinary_training() -> None:
    """The optimizer's momentum is carried from round to round."""
    world = federation("central")
    server, _, _ = play(world, until=2)
    ctx = context_of(world, 0, [0])
    x, y = world.clients.tensors[0]
    params = play(world, until=0)[0]["params"]
    module = world.context.net.module
    module.load_state_dict(params)
    for round in range(2):
        ctx = context_of(world, round, [0])
        if round == 0:
            reference = torch.optim.SGD(
                module.parameters(), lr=ctx.lr, momentum=0.9, weight_decay=1e-4
            )
        reference.param_groups[0]["lr"] = ctx.lr
        for batch in steps_of(world, ctx, 0):
            reference.zero_grad()
            torch.nn.functional.cross_entropy(module(batch["x"]), batch["y"]).backward()
            reference.step()
    assert_close(server["params"], dict(module.named_parameters()), 1e-12)
    assert Central.centralized and len(y) == sum(SIZES) == len(x)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_local_training_is_torch_sgd(momentum: float, weight_decay: float) -> None:
    world = federation(momentum=momentum, weight_decay=weight_decay)
    ctx = context_of(world, 0, [3])
    params = play(world, until=0)[0]["params"]
    steps = steps_of(world, ctx, 3)
    ours, _ = descend(ctx, Method().gradient, {"params": params}, {}, params, steps)
    module = world.context.net.module
    module.load_state_dict(params)
    reference = torch.optim.SGD(
        module.parameters(), lr=ctx.lr, momentum=momentum, weight_decay=weight_decay
    )
    for batch in steps:
        reference.zero_grad()
        torch.nn.functional.cross_entropy(module(batch["x"]), batch["y"]).backward()
        reference.step()
    assert_close(ours, dict(module.named_parameters()), 1e-12)


def test_in_place_optimizer_reads_gradients_of_any_layout() -> None:
    optimizer = sgd(0.9, 1e-2)
    params, velocity = [torch.arange(6.0).reshape(2, 3)], [torch.zeros(2, 3)]
    gradient = torch.arange(6.0).reshape(3, 2).t()
    assert optimizer.in_place is not None
    expected, _ = optimizer.update(
        {"w": gradient}, {"momentum": {"w": velocity[0].clone()}}, {"w": params[0].clone()}, 0.1
    )
    before = params[0].clone()
    optimizer.in_place(params, velocity)([gradient], 0.1)
    torch.testing.assert_close(params[0], before + expected["w"])


def test_in_place_and_pure_optimizer_agree() -> None:
    world = federation("fedprox")
    pure = replace(
        world, context=replace(world.context, optimizer=sgd(0.9, 1e-4)._replace(in_place=None))
    )
    assert_close(play(world)[0], play(pure)[0], 1e-12)


def test_ima_is_its_inner_method_to_the_bit_before_it_starts() -> None:
    """Rounds 0 to t_s - 1: the same sampling, rates, training and averages."""
    ours, _, _ = play(federation("ima+fedprox+fedyogi"), until=4)  # t_s is 0.75 * 6, rounded
    theirs, _, _ = play(federation("fedprox+fedyogi"), until=4)
    assert_close(ours["params"], theirs["params"], 0)
    assert_close(ours["optimizer"], theirs["optimizer"], 0)


def test_scaffold_has_no_rate_of_its_own_before_momentum() -> None:
    with pytest.raises(
        UserError, match="decays_twice: True: expected False without after_momentum"
    ):
        Scaffold(decays_twice=True)
