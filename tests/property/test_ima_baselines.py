"""The methods that IMA's Table I adds: FedASAM, FedFA, FedGMA."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.check.world import CLASSES, SIZES, Memory, play
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, client_state_of, context_of, steps_of
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedasam import FedASAM
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedfa import FedFA, first_anchors
from fedrepro.methods.fedgma import FedGMA
from fedrepro.methods.ima import IMA
from fedrepro.models import registry as models
from support.closeness import assert_close
from support.refusals import Fault, refused
from support.worlds import federation

NEVER = 1.0  # calibrate after the last round


@pytest.mark.parametrize(
    "special",
    [
        FedASAM(rho=0.0),
        FedFA(pull=0.0, calibration=NEVER),
        FedGMA(threshold=0.0),
        FedGMA(threshold=0.0, hard=True),
    ],
    ids=lambda method: type(method).__name__,
)
def test_degenerate_case_is_fedavg_to_the_bit(special: Method) -> None:
    for ours, theirs in ((special, FedAvg()), (IMA(special), IMA(FedAvg()))):
        one, _, _ = play(federation(method=ours))
        other, _, _ = play(federation(method=theirs))
        assert_close(one["params"], other["params"], 0)


def test_they_differ_from_fedavg_otherwise() -> None:
    plain, _, _ = play(federation())
    for method in (FedASAM(), FedFA(calibration=NEVER), FedFA(pull=0.0), FedGMA()):
        server, _, _ = play(federation(method=method))
        with pytest.raises(AssertionError):
            assert_close(server["params"], plain["params"], 1e-6)


# --- FedASAM --------------------------------------------------------------------------------------
def test_ascent_is_the_worst_point_of_its_neighbourhood() -> None:
    """|eps / T| = rho, and no other point of that ellipsoid has a larger <g, eps>."""
    world = federation("fedasam")
    params = play(world, until=0)[0]["params"]
    method, ctx = FedASAM(rho=0.3, eta=0.1), context_of(world, 0, [3])
    batch = next(iter(steps_of(world, ctx, 3)))
    gradient = Method().gradient(ctx, {}, {}, params, batch)
    away = method.ascent(params, gradient)
    scales = {
        name: leaf.abs() + 0.1 if "weight" in name else torch.ones_like(leaf)
        for name, leaf in params.items()
    }
    units = {name: away[name] / scales[name] for name in away}
    assert float(tree.square_norm(units).sqrt()) == pytest.approx(0.3, rel=1e-12)
    gain = float(tree.dot(gradient, away))
    for seed in range(20):
        rng = torch.Generator().manual_seed(seed)
        other = tree.apply(lambda leaf, g=rng: torch.randn(leaf.shape, generator=g), units)
        other = tree.scale(other, 0.3 / float(tree.square_norm(other).sqrt()))
        assert float(tree.dot(gradient, tree.apply(torch.mul, other, scales))) < gain


# --- FedGMA ---------------------------------------------------------------------------------------
def updates(*deltas: list[float]) -> Tree:
    return {"delta": {"head.weight": torch.tensor(deltas)}}


def gma(method: FedGMA, *deltas: list[float]) -> Tensor:
    """Where the server goes from the origin, all clients counting the same."""
    ctx = replace(federation().context, sizes=torch.ones(len(deltas)))
    server = {"params": {"head.weight": torch.zeros(len(deltas[0]))}, "optimizer": {}}
    weights, server = method.aggregation_weights(ctx, server, updates(*deltas))
    moved: Tensor = method.server_update(ctx, server, updates(*deltas), weights)["params"][
        "head.weight"
    ]
    return moved


def test_mask_is_the_agreement_below_the_threshold() -> None:
    """Four clients: all agree, three against one (A = 1/2), two against two, one zero (A = 3/4)."""
    deltas = ([1.0, 1, 1, 0], [2.0, 1, 2, 1], [3.0, 1, -1, 1], [4.0, -1, -3, 1])
    mean = torch.tensor(deltas).mean(0)
    assert_close(gma(FedGMA(), *deltas), -mean * torch.tensor([1, 0.5, 0, 0.75]), 1e-15)
    assert_close(gma(FedGMA(threshold=0.75), *deltas), -mean * torch.tensor([1, 0.5, 0, 1.0]), 0)
    assert_close(gma(FedGMA(threshold=0.5), *deltas), -mean * torch.tensor([1, 1, 0, 1.0]), 0)


def test_hard_mask_zeroes_what_fewer_than_the_threshold_agree_on() -> None:
    """IMA's words (Appendix D): where the soft mask is below 1, the hard one is 0."""
    deltas = ([1.0, 1, 1, 0], [2.0, 1, 2, 1], [3.0, 1, -1, 1], [4.0, -1, -3, 1])
    mean = torch.tensor(deltas).mean(0)
    hard = partial(FedGMA, hard=True)
    assert_close(gma(hard(), *deltas), -mean * torch.tensor([1.0, 0, 0, 0]), 0)
    assert_close(gma(hard(threshold=0.75), *deltas), -mean * torch.tensor([1.0, 0, 0, 1]), 0)
    assert_close(gma(hard(threshold=0.0), *deltas), -mean, 0)  # FedAvg
    alone = gma(hard(threshold=1.0), deltas[1])  # one client agrees with itself
    assert_close(alone, -torch.tensor(deltas[1]), 0)


def test_released_mask_hardly_moves_the_average() -> None:
    """B5 by hand, for two clients that agree on the first of two numbers only."""
    released = FedGMA(masks_the_mean=False)
    one, other = torch.tensor([1.0, 1.0]), torch.tensor([3.0, -2.0])  # where the clients went
    agreed, rate = torch.tensor([1.0, 0.0]), 1e-4 / 2
    after_one = (one + other) / 2 - rate * one * agreed
    after_both = after_one - rate * (other - after_one) * agreed
    assert_close(gma(released, (-one).tolist(), (-other).tolist()), after_both, 1e-15)
    plain, _, _ = play(federation())
    masked, _, _ = play(federation("fedgma@released"))
    assert_close(plain["params"], masked["params"], 1e-3)
    with pytest.raises(AssertionError):
        assert_close(plain["params"], masked["params"], 1e-9)


def test_buffers_are_averaged_unmasked() -> None:
    net = Net(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    ctx = Context(net=net, sizes=torch.ones(2))
    zeros = tree.zeros(net.init(torch.Generator()))
    moves = [tree.apply(lambda leaf, by=by: torch.full_like(leaf, by), zeros) for by in (-1.0, 3.0)]
    server = {"params": zeros, "optimizer": {}}
    moved = FedGMA().server_update(
        ctx, server, {"delta": tree.stack(moves)}, torch.tensor([0.5, 0.5])
    )
    assert float(moved["params"]["1.running_mean"][0]) == -1  # the mean
    assert float(moved["params"]["0.weight"][0, 0]) == 0  # clients disagree


# --- FedFA ----------------------------------------------------------------------------------------
def reference(world: Federation, client: int, round: int, server: Tree) -> tuple[Tree, Tensor]:
    """A client's round of IMA's released FedFA, written down as its loop goes (mu as given)."""
    method, ctx = world.method, context_of(world, round, [client])
    assert isinstance(method, FedFA)
    module = world.context.net.module
    module.load_state_dict(server["params"])
    old = server["anchors"].clone()
    epoch_mean = old.clone()
    sgd = torch.optim.SGD(module.parameters(), lr=ctx.lr, momentum=0.9, weight_decay=1e-4)
    adam = torch.optim.Adam(module.head.parameters())
    batches = list(steps_of(world, ctx, client))
    labels = {int(y) for batch in batches for y in batch["y"]}
    per_epoch = len(batches) // ctx.epochs
    for epoch in range(ctx.epochs):
        sums = torch.zeros_like(old)
        for batch in batches[epoch * per_epoch : (epoch + 1) * per_epoch]:
            features = module.body(batch["x"])
            loss = functional.cross_entropy(module.head(features), batch["y"])
            if round > 0:
                for c in set(batch["y"].tolist()):
                    away = (features[batch["y"] == c] - old[c]).square().sum(1).mean()
                    loss = loss + method.pull / CLASSES * away
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            if round > 0 and round > method.calibration * world.context.rounds:
                adam.zero_grad()
                functional.cross_entropy(module.head(old), torch.arange(CLASSES)).backward()
                adam.step()
            for c in set(batch["y"].tolist()):
                sums[c] += features[batch["y"] == c].detach().mean(0)
        for c in labels:
            mean = sums[c] / per_epoch
            epoch_mean[c] = method.momentum * epoch_mean[c] + (1 - method.momentum) * mean
    return {name: leaf.detach().clone() for name, leaf in module.named_parameters()}, epoch_mean


@pytest.mark.parametrize("method", [FedFA(), FedFA(pull=1.0, momentum=0.5, calibration=0.0)])
def test_fedfa_follows_the_released_loop(method: FedFA) -> None:
    world = federation(method=method)
    for round in range(4):
        server, _, _ = play(world, until=round)
        for client in (0, 3):  # of one class, and of several
            ctx = context_of(world, round, [client])
            message, client_state = (
                method.broadcast(ctx, server),
                client_state_of(world, ctx, Memory(), client),
            )
            update, _ = method.client_update(
                ctx, message, client_state, steps_of(world, ctx, client)
            )
            params, anchors = reference(world, client, round, server)
            assert_close(tree.subtract(message["params"], update["delta"]), params, 1e-12)
            assert_close(update["anchors"], anchors, 1e-12)


def test_fedfa_anchors_are_averaged_by_samples() -> None:
    world = federation("fedfa", cohort=len(SIZES))
    server, _, _ = play(world, until=1)
    begin, _, _ = play(world, until=0)
    expected = torch.zeros_like(begin["anchors"])
    for client, size in enumerate(SIZES):
        expected += size / sum(SIZES) * reference(world, client, 0, begin)[1]
    assert_close(server["anchors"], expected, 1e-12)


def test_first_anchors() -> None:
    few = first_anchors(torch.zeros(3, 5))
    assert torch.equal(few @ few.T, torch.eye(3)) and few.shape == (3, 5)
    many = first_anchors(torch.zeros(7, 4))
    assert_close(many.norm(dim=1), torch.ones(7), 1e-6)
    assert len(many.unique(dim=0)) == 7
    assert torch.equal(many, first_anchors(torch.zeros(7, 4)))


def test_fedfa_needs_a_linear_head() -> None:
    net = Net(models.build("superfed_twocnn", (3, 28, 28), 10))
    with refused(file="fedfa", key="model", names=("linear", "layer")):
        FedFA().check(replace(federation().context, net=net))
    FedFA().check(federation().context)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: FedASAM(rho=-1), {"key": "rho", "value": -1, "names": "fedasam"}),
        (lambda: FedASAM(eta=-1), {"key": "eta", "value": -1, "names": "fedasam"}),
        (lambda: FedFA(pull=-1), {"key": "pull", "value": -1, "names": "fedfa"}),
        (lambda: FedFA(momentum=1.1), {"key": "momentum", "value": 1.1, "names": "fedfa"}),
        (lambda: FedFA(calibration=-1), {"key": "calibration", "value": -1, "names": "fedfa"}),
        (lambda: FedGMA(threshold=1.1), {"key": "threshold", "value": 1.1, "names": "fedgma"}),
    ],
)
def test_hyperparameters_out_of_range(make, fault: Fault) -> None:  # type: ignore[no-untyped-def]
    with refused(**fault):
        make()
