"""IMA's phase from t_s on: decay schemes, windows that are not full, degenerate cases, and why."""

from dataclasses import replace

import pytest
import torch

from fedrepro.check.world import play
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import eager
from fedrepro.engine.method import Method
from fedrepro.engine.round import context_of, steps_of
from fedrepro.engine.steps import count
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedfa import FedFA
from fedrepro.methods.fedrep import FedRep
from fedrepro.methods.ima import IMA, SCHEMES
from fedrepro.methods.scaffold import Scaffold
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.refusals import Fault, refused
from support.worlds import federation

FIRST = 300  # t_s of CIFAR-10 in Table VII


def cifar(round: int = 0) -> Context:
    """Table VII: 400 rounds of 5 epochs, 0.01 * 0.99^t."""
    schedule = lambda round: 0.01 * 0.99**round  # noqa: E731
    return Context(federation().context.net, rounds=400, epochs=5, schedule=schedule, round=round)


def rate(method: IMA, round: int) -> float:
    return method.learning_rate(cifar(), round)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("released", [False, True])
def test_no_scheme_acts_before_t_s(scheme: str, released: bool) -> None:
    method = IMA(FedAvg(), scheme=scheme)
    method = method.as_released() if released else method
    assert rate(method, FIRST - 1) == 0.01 * 0.99 ** (FIRST - 1)
    assert method.epochs(cifar(FIRST - 1)) == 5


def test_schemes() -> None:
    at_start = 0.01 * 0.99**FIRST
    assert rate(IMA(FedAvg()), FIRST + 7) == pytest.approx(at_start * 0.97**7)
    assert rate(IMA(FedAvg(), scheme="constant"), FIRST + 7) == 5e-5
    assert rate(IMA(FedAvg(), scheme="none"), FIRST + 7) == 0.01 * 0.99 ** (FIRST + 7)
    cyclic = IMA(FedAvg(), scheme="cyclic")
    # B3: the text's 0.01 to 0.00005, and every 20 rounds again.
    assert [rate(cyclic, FIRST + t) for t in (0, 19, 20, 39, 40)] == pytest.approx(
        [0.01, 5e-5, 0.01, 5e-5, 0.01]
    )
    steps = [rate(cyclic, FIRST + t) - rate(cyclic, FIRST + t + 1) for t in range(19)]
    assert steps == pytest.approx([(0.01 - 5e-5) / 19] * 19)
    epoch = IMA(FedAvg(), scheme="epoch")
    assert rate(epoch, FIRST + 7) == 0.01 * 0.99 ** (FIRST + 7)
    at = (0, 19, 20, 40, 60, 80, 99)
    assert [epoch.epochs(cifar(FIRST + t)) for t in at] == [5, 5, 4, 3, 2, 1, 1]
    others = [IMA(FedAvg(), scheme=scheme) for scheme in SCHEMES if scheme != "epoch"]
    assert all(method.epochs(cifar(FIRST + 40)) == 5 for method in others)


def test_released_schemes() -> None:
    at_start = 0.01 * 0.99**FIRST
    cyclic = IMA(FedAvg(), scheme="cyclic").as_released()
    down, up = rate(cyclic, FIRST + 9), rate(cyclic, FIRST + 19)
    assert rate(cyclic, FIRST) == pytest.approx(at_start)
    assert down == pytest.approx(at_start - 0.9 * (at_start - 5e-5))
    assert up == pytest.approx(5e-5 + 1.9 * (at_start - 5e-5))  # B3: the overshoot
    epoch = IMA(FedAvg(), scheme="epoch").as_released()
    assert rate(epoch, FIRST) == 0.01 and rate(epoch, FIRST + 7) == 0.01 * 0.99**7  # B2: the jump
    fedfa = IMA(FedFA(), scheme="epoch").as_released()
    assert rate(fedfa, FIRST + 7) == 0.01 * 0.99 ** (FIRST + 7)
    at = (-1, 0, 19, 20, 60, 99)
    assert [epoch.epochs(cifar(FIRST + t)) for t in at] == [5, 5, 5, 4, 2, 1]
    assert [fedfa.epochs(cifar(FIRST + t)) for t in at] == [5, 4, 4, 3, 1, 1]  # FedFA's code
    for scheme in ("exponential", "constant", "none"):
        method = IMA(FedAvg(), scheme=scheme)
        assert rate(method, 350) == rate(method.as_released(), 350)


@pytest.mark.parametrize("inner", [FedAvg(), FedFA(), FedRep(), Scaffold()], ids=str)
def test_fewer_epochs(inner: Method) -> None:
    """A round of one epoch is what the inner method does with the first epoch's batches."""
    world = federation(method=IMA(inner, scheme="epoch", period=2, start=0.0))
    server, client_states, _ = play(world, until=3)
    if not isinstance(inner, FedRep):  # which needs an epoch for each of its two parts
        ctx = context_of(world, 3, [3])
        method, client_state = (
            world.method,
            client_states.get(3) or world.method.init_client(ctx, stream(3, "own", 3)),
        )
        steps, message = steps_of(world, ctx, 3), world.method.broadcast(ctx, server)
        assert tree.size_in_bytes(message) == tree.size_in_bytes(inner.broadcast(ctx, server))
        update, _ = method.client_update(ctx, message, client_state, steps)
        short = replace(steps, orders=steps.orders[:1])
        assert count(short) * 2 == count(steps)
        alone, _ = inner.client_update(
            replace(ctx, epochs=1), inner.broadcast(ctx, server), client_state, short
        )
        assert_close(update, alone, 0)
    ours, _, _ = play(world)
    stacked, _, _ = play(replace(world, execute=eager))
    assert_close(ours, stacked)


@pytest.mark.parametrize("inner", [FedAvg(), FedFA(), Scaffold()], ids=str)
def test_degenerate_cases_to_the_bit(inner: Method) -> None:
    """P = 1 is the inner method, and with t_s > R IMA never acts."""
    theirs, _, _ = play(federation(method=inner))
    window, _, _ = play(federation(method=IMA(inner, window=1, scheme="none")))
    late, _, _ = play(federation(method=IMA(inner, start=1.0)))
    assert_close(window["params"], theirs["params"], 0)
    assert_close(late["params"], theirs["params"], 0)


def test_a_window_that_is_not_full_has_the_mean_of_what_there_is() -> None:
    world = federation(method=IMA(FedAvg(), window=10, start=0.0))
    models = []
    state = play(world, until=0)
    for round in range(1, 5):
        state = play(world, until=round, state=state)
        models.append(tree.take(state[0]["ima"], -1))
        mean = tree.apply(lambda leaf: leaf.mean(0), tree.stack(models))
        assert_close(state[0]["params"], mean, 1e-15)
    assert not torch.equal(mean["head.bias"], models[-1]["head.bias"])


def noisy(method: Method, rounds: int, seed: int) -> tuple[Tree, Tree]:
    """The server after ``rounds`` of noisy steps down |w|^2 / 2 in 20 dimensions, and its optimum.

    Clients move a third of the way to the optimum, off it by noise as large as the model.
    """
    rng = stream(seed, "quadratic")
    optimum = {"head.weight": torch.randn(20, generator=rng)}
    ctx = Context(federation().context.net, rounds=rounds, sizes=torch.ones(1))
    server = method.init_server(ctx, {"head.weight": 5 * torch.randn(20, generator=rng)})
    for round in range(rounds):
        here = tree.subtract(method.broadcast(ctx, server)["params"], optimum)
        noise = {"head.weight": torch.randn(20, generator=rng)}
        update = {"delta": tree.add(tree.scale(here, 1 / 3), noise)}
        now = replace(ctx, round=round)
        server = method.server_update(now, server, tree.stack([update]), torch.ones(1))
    return server, optimum


def test_the_mean_of_noisy_iterates_is_nearer_to_the_optimum_than_the_last() -> None:
    """In at least 95 % of seeds, of IMA's own last iterate and of its inner method's."""
    seeds, nearer = 200, [0, 0]
    for seed in range(seeds):
        ima, optimum = noisy(IMA(FedAvg(), window=5), 40, seed)
        plain, _ = noisy(FedAvg(), 40, seed)

        def distance(params: Tree, optimum: Tree = optimum) -> float:
            return float(tree.square_norm(tree.subtract(params, optimum)))

        client_state = distance(ima["params"])
        nearer[0] += client_state < distance(tree.take(ima["ima"], -1))
        nearer[1] += client_state < distance(plain["params"])
    assert min(nearer) >= 0.95 * seeds


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"scheme": "cyclical"}, {"key": "scheme", "value": "cyclical", "names": "'cyclic'"}),
        ({"period": 1}, {"key": "period", "value": 1, "names": "ima"}),
        ({"least": -1.0}, {"key": "least", "value": -1.0, "names": "ima"}),
    ],
)
def test_hyperparameters_out_of_range(values: dict[str, object], fault: Fault) -> None:
    with refused(**fault):
        IMA(**values)  # type: ignore[arg-type]
