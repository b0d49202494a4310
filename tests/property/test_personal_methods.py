"""Degenerate cases and closed forms of the methods in which clients keep a model, or a part."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, Data, play
from fedrepro.engine import descent, executors, tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import eager, vectorised
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import sgd
from fedrepro.engine.round import Federation, context_of, steps_of
from fedrepro.engine.tree import Tree
from fedrepro.methods.apfl import APFL
from fedrepro.methods.central import Central
from fedrepro.methods.ditto import Ditto
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedfa import FedFA
from fedrepro.methods.fedper import FedPer
from fedrepro.methods.fedprox import FedProx
from fedrepro.methods.fedrep import FedRep
from fedrepro.methods.lg_fedavg import LGFedAvg
from fedrepro.methods.per_fedavg import PerFedAvg
from fedrepro.methods.pfedme import PFedMe
from fedrepro.methods.scaffnew import Scaffnew
from fedrepro.methods.superfed_lm import SuPerFedLM, layer_numbers
from fedrepro.methods.superfed_mm import SuPerFedMM
from fedrepro.models.classifier import Classifier
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation


@dataclass(frozen=True)
class Unmixed(SuPerFedMM):
    """SuPerFed whose every lambda is 0."""

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return tree.zeros(super().sample_steps(ctx, rng, steps))


def with_net(world: Federation, body: nn.Module, head: nn.Module) -> Federation:
    net = Net(Classifier(body, head).double())
    return replace(world, context=replace(world.context, net=net))


def alone(world: Federation, client: int, start: Tree, rounds: list[int]) -> Tree:
    """What a client becomes that only ever trains by itself, its optimizer new in every round."""
    params = start
    for round in rounds:
        ctx = context_of(world, round, [client])
        steps = steps_of(world, ctx, client)
        update, _ = Method().client_update(ctx, {"params": params}, {}, steps)
        params = tree.subtract(params, update["delta"])
    return params


@pytest.mark.parametrize("start", [0.0, 0.5, 1.0])
def test_superfed_without_mixing_and_terms_is_fedavg_to_the_bit(start: float) -> None:
    ours, _, _ = play(federation(method=Unmixed(start=start, mu=0.0, nu=0.0)))
    theirs, _, _ = play(federation(method=FedAvg()))
    assert_close(ours["params"], theirs["params"], 0)


@pytest.mark.parametrize("start", [0.0, 0.5, 1.0])
def test_superfed_without_mixing_and_cosine_is_fedprox_to_the_bit(start: float) -> None:
    ours, _, _ = play(federation(method=Unmixed(start=start, mu=0.7, nu=0.0)))
    theirs, _, _ = play(federation(method=FedProx(mu=0.7)))
    assert_close(ours["params"], theirs["params"], 0)


@pytest.mark.parametrize("method", [SuPerFedMM(start=0.0), SuPerFedLM(start=0.0)], ids=["mm", "lm"])
def test_superfed_gradients_are_finite_differences(method: SuPerFedMM) -> None:
    """Eq. 2.3: both models' gradients, of the task at the mixture and of both further terms."""
    method = replace(method, mu=0.3, nu=1.7)
    world = federation(method=method)
    ctx = context_of(world, 0, [3])
    message = method.broadcast(ctx, {"params": ctx.initial})
    rng = stream(5, "test")
    params = {"federated": ctx.net.init(rng), "local": ctx.net.init(rng)}
    batch = next(iter(steps_of(world, ctx, 3)))
    requires = tree.apply(lambda leaf: leaf.clone().requires_grad_(), params)
    gradient = method.gradient(ctx, message, {}, requires, batch)
    step = 1e-6
    for which in ("federated", "local"):
        for name, leaf in params[which].items():
            place = (0,) * leaf.ndim

            def at(shift: float, which: str = which, name: str = name) -> Tensor:
                moved = tree.copy(params)
                moved[which][name][(0,) * moved[which][name].ndim] += shift
                return method.loss(ctx, message, {}, moved, batch)

            numeric = (at(step) - at(-step)) / (2 * step)
            torch.testing.assert_close(gradient[which][name][place], numeric, rtol=1e-5, atol=1e-8)


def test_a_greater_nu_drives_the_two_models_apart() -> None:
    def cosine(nu: float) -> float:
        method = SuPerFedMM(start=0.0, nu=nu)
        server, client_states, _ = play(federation(method=method, cohort=6, rounds=8))
        ctx = federation().context
        cosines = [
            float(method.squared_cosine(ctx, server["params"], client_state["local"]))
            for client_state in client_states.known.values()
        ]
        return sum(cosines) / len(cosines)

    none, some, much = cosine(0.0), cosine(0.5), cosine(5.0)
    assert none > some > much


def test_superfed_local_models_start_different_and_wait_for_their_round() -> None:
    method = SuPerFedMM(start=0.5)
    world = federation(method=method, cohort=6)
    server, before, _ = play(world, until=3)
    ctx = context_of(world, 3, [0, 1])
    # Met only before round L: the shared model at every weight.
    assert not any(before.known.values())
    assert_close(method.eval_model(ctx, server, before.known[0]), server["params"], 0)
    assert_close(method.interpolate(ctx, server, before.known[0], 1.0), server["params"], 0)
    one, other = (method.init_client(ctx, stream(3, "own", client))["local"] for client in (0, 1))
    assert all(not torch.equal(one[name], other[name]) for name in one if "weight" in name)
    _, after, _ = play(world, until=4)
    assert not torch.equal(after.known[0]["local"]["head.bias"], one["head.bias"])


def test_layer_mixing_draws_one_lambda_for_every_layer() -> None:
    world = federation(method=SuPerFedLM(start=0.0))
    ctx = context_of(world, 0, [0])
    drawn = world.method.sample_steps(ctx, stream(1, "x"), 7)["lambda"]
    assert drawn.shape == (7, 2)  # body.0 and head
    assert layer_numbers(ctx.initial) == {
        "body.0.weight": 0, "body.0.bias": 0, "head.weight": 1, "head.bias": 1,
    }  # fmt: skip


def test_compiled_clients_agree(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The generic test runs eagerly; a mixture must survive the compiler, before L and after.

    Traced and differentiated as for C++, which tests/unit/run/test_runner.py also compiles.
    """
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.setattr(executors, "UNROLLED", 0)  # one step is compiled, not a whole round
    descent._compiled_step.cache_clear()
    request.addfinalizer(descent._compiled_step.cache_clear)
    world = federation(method=SuPerFedLM(start=0.5), rounds=2)
    ours, client_states, _ = play(world)
    theirs, compiled, _ = play(replace(world, execute=vectorised))
    assert_close(ours, theirs)
    for client, client_state in client_states.known.items():
        assert_close(client_state, compiled.known[client])


def test_fedper_without_a_head_is_fedavg() -> None:
    """All parameters in the body."""
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    ours, client_states, _ = play(with_net(federation(method=FedPer()), body, nn.Identity()))
    theirs, _, _ = play(with_net(federation(method=FedAvg()), body, nn.Identity()))
    assert_close(ours["params"], theirs["params"], 0)
    assert all(client_state == {"kept": {}} for client_state in client_states.known.values())


def test_fedper_with_all_in_the_head_is_local_training() -> None:
    head = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    world = with_net(federation(method=FedPer(), cohort=6), nn.Identity(), head)
    server, client_states, _ = play(world)
    assert_close(server["params"], world.initial, 0)
    for client in (0, 3):
        expected = alone(world, client, world.initial, list(range(6)))
        assert_close(client_states.known[client]["kept"], expected)


def test_what_fedper_averages_lg_fedavg_keeps() -> None:
    world = federation()
    ctx = context_of(world, 0, [0])
    for method, travels in ((FedPer(), "body."), (LGFedAvg(), "head.")):
        message = method.broadcast(ctx, {"params": ctx.initial})["params"]
        assert message and all(name.startswith(travels) for name in message)
        kept = method.init_client(ctx, stream(1, "x"))["kept"]
        assert {*message, *kept} == set(ctx.initial) and not set(message) & set(kept)


@pytest.mark.parametrize("method", [FedPer(), LGFedAvg(), FedRep(body_epochs=1)])
def test_a_client_is_scored_with_the_part_that_it_keeps(method: Method) -> None:
    world = federation(method=method, rounds=2)
    server, client_states, _ = play(world)
    for client_state in client_states.known.values():
        kept = client_state["kept"]
        assert not any(torch.equal(leaf, server["params"][name]) for name, leaf in kept.items())
        model = world.method.eval_model(world.context, server, client_state)
        for name, leaf in model.items():
            assert torch.equal(leaf, kept.get(name, server["params"][name])), name


def test_fedrep_trains_the_head_on_the_received_body_first() -> None:
    """With a body that may not move, only the head is trained: on fixed features."""
    world = federation(method=FedRep(body_epochs=1), cohort=1)
    ctx = context_of(world, 0, [3])
    message = world.method.broadcast(ctx, {"params": ctx.initial})
    client_state = world.method.init_client(ctx, stream(1, "x"))
    steps = steps_of(world, ctx, 3)
    _, after = world.method.client_update(ctx, message, client_state, steps)
    head, velocity = client_state["kept"], tree.zeros(client_state["kept"])
    for batch in steps:
        free = tree.apply(lambda leaf: leaf.clone().requires_grad_(), head)
        loss = ctx.task.loss(ctx.net({**message["params"], **free}, batch["x"]), batch)
        gradient = dict(zip(free, torch.autograd.grad(loss, tree.leaves(free)), strict=True))
        gradient = tree.add(gradient, tree.scale(head, 1e-4))
        velocity = tree.add(tree.scale(velocity, 0.9), gradient)
        head = tree.subtract(head, tree.scale(velocity, float(ctx.lr)))
    assert_close(after["kept"], head)


def test_ditto_shares_fedavgs_model() -> None:
    ours, _, _ = play(federation(method=Ditto(personal_epochs=2)))
    theirs, _, _ = play(federation(method=FedAvg()))
    assert_close(ours["params"], theirs["params"], 0)


@pytest.mark.parametrize("squared", [True, False])
def test_ditto_without_pull_trains_alone(squared: bool) -> None:
    world = federation(method=Ditto(mu=0.0, personal_epochs=2, squared=squared), cohort=6)
    _, client_states, _ = play(world)
    for client in (1, 3):
        expected = alone(world, client, world.initial, list(range(6)))
        assert_close(client_states.known[client]["personal"], expected)


def test_a_strong_pull_keeps_ditto_at_the_shared_model() -> None:
    def distance(mu: float) -> float:
        world = federation(
            method=Ditto(mu=mu, personal_epochs=2), cohort=6, momentum=0.0, lr=0.01, rounds=30
        )
        server, client_states, _ = play(world, until=29)
        far = [
            tree.subtract(client_state["personal"], server["params"])
            for client_state in client_states.known.values()
        ]
        return max(float(tree.square_norm(each)) for each in far)

    assert distance(50.0) < 0.5 * distance(0.0)


def test_apfl_without_a_local_part_is_fedavg() -> None:
    world = federation(method=APFL(alpha=0.0))
    ours, client_states, _ = play(world)
    theirs, _, _ = play(federation(method=FedAvg()))
    assert_close(ours["params"], theirs["params"], 1e-12)
    ctx = context_of(world, 5, [0])
    for client_state in client_states.known.values():
        assert_close(world.method.eval_model(ctx, ours, client_state), ours["params"], 0)


def test_apfl_with_nothing_shared_trains_alone() -> None:
    world = federation(method=APFL(alpha=1.0), cohort=6)
    _, client_states, _ = play(world)
    for client in (0, 3):
        expected = alone(world, client, world.initial, list(range(6)))
        assert_close(client_states.known[client]["local"], expected)


@dataclass(frozen=True)
class MixedAsSent(Method):
    """A model v whose loss is that of v / 4 + 3 w / 4, where w stays what was sent."""

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        mixed = {name: 0.75 * message["w"][name] + 0.25 * leaf for name, leaf in params.items()}
        return super().loss(ctx, message, client_state, mixed, batch)


def test_apfl_released_mixes_with_the_model_as_it_was_sent() -> None:
    """Its two models then move apart from each other; by the paper only the first step agrees."""
    world = federation("apfl@released")
    ctx = context_of(world, 0, [3])
    steps = steps_of(world, ctx, 3)
    w, v = ctx.initial, ctx.net.init(stream(5, "test"))
    update, client_state = world.method.client_update(ctx, {"params": w}, {"local": v}, steps)
    expected, _ = MixedAsSent().client_update(ctx, {"params": v, "w": w}, {}, steps)
    assert_close(client_state["local"], tree.subtract(v, expected["delta"]), 1e-12)
    # w has no weight decay, v has it.
    undecayed = replace(ctx, optimizer=sgd(momentum=ctx.optimizer.momentum))
    shared = Method().client_update(undecayed, {"params": w}, {}, steps)[0]["delta"]
    assert ctx.optimizer.weight_decay > 0
    assert_close(update["delta"], shared, 1e-12)
    _, by_the_paper = APFL().client_update(ctx, {"params": w}, {"local": v}, steps)
    away = tree.subtract(by_the_paper["local"], client_state["local"])
    assert float(tree.square_norm(away)) > 1e-6


@dataclass(frozen=True)
class OnQuadratic(PFedMe):
    """pFedMe on f(theta) = |theta - 1|^2 / 2, whatever the samples."""

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        return tree.square_norm(tree.apply(lambda leaf: leaf - 1, params)) / 2


def test_pfedme_solves_the_proximal_problem() -> None:
    """prox of |theta - 1|^2 / 2 at w is (1 + mu w) / (1 + mu), and w moves towards it."""
    mu, epochs = 3.0, 1
    world = federation(method=OnQuadratic(mu=mu), momentum=0.0, weight_decay=0.0, lr=0.05)
    # Hundreds of small mini-batches, so that one epoch solves the inner problem.
    context = replace(world.context, epochs=epochs, batch_size=1)
    clients = Data([(torch.zeros(300, FEATURES), torch.zeros(300).long())])
    world = replace(world, clients=clients, context=replace(context, clients=1, cohort_size=1))
    server, client_states, _ = play(world, until=1)
    w = world.initial
    prox = tree.apply(lambda leaf: (1 + mu * leaf) / (1 + mu), w)
    assert_close(client_states.known[0]["personal"], prox)
    rate = 0.05
    expected = tree.apply(lambda a, b: a - rate * mu * (a - b), w, prox)
    assert_close(server["params"], expected)


def prox_gradient(world: Federation, params: Tree, w: Tree, mu: float, squared: bool, batch: Tree):  # type: ignore[no-untyped-def]
    """The gradient of loss + pull, by autograd on a copy."""
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in params.items()}
    away = [leaves[name] - w[name] for name in leaves]
    pull = mu / 2 * sum(each.square().sum() for each in away)
    if not squared:
        pull = mu * sum(each.norm() for each in away)
    loss = world.context.task.loss(world.context.net(leaves, batch["x"]), batch) + pull
    found = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


def one_client(method: Method) -> tuple[Federation, Context, Tree, Any]:
    """A world, and what a client of it finds in round 1."""
    world = federation(method=method, weight_decay=1e-3, lr=0.02)
    server, _, _ = play(world, until=1)
    ctx = context_of(world, 1, [3])
    return world, ctx, world.method.broadcast(ctx, server), steps_of(world, ctx, 3)


def test_pfedme_released_has_one_optimizer_a_round_and_carries_the_personal_model() -> None:
    """SuPerFed's pfedme_update: momentum goes on from epoch to epoch, and w moves after each."""
    world, ctx, message, steps = one_client(PFedMe(mu=2.0).as_released())
    update, client_state = world.method.client_update(ctx, message, {"personal": {}}, steps)
    w = params = message["params"]
    velocity = tree.zeros(params)
    for number, batch in enumerate(steps, start=1):
        gradient = prox_gradient(world, params, w, 2.0, False, batch)
        gradient = tree.add(gradient, tree.scale(params, 1e-3))
        velocity = tree.add(tree.scale(velocity, 0.9), gradient)
        params = tree.subtract(params, tree.scale(velocity, ctx.lr))
        if number % steps.per_epoch == 0:
            w = tree.subtract(w, tree.scale(tree.subtract(w, params), ctx.lr * 2.0))
    # The norm has no gradient at its centre, which autograd calls zero; both do.
    assert_close(client_state["personal"], params)
    assert_close(update["delta"], tree.subtract(message["params"], w))
    anew = PFedMe(mu=2.0, squared=False)
    _, other = anew.client_update(ctx, message, {"personal": {}}, steps)
    with pytest.raises(AssertionError):
        assert_close(client_state["personal"], other["personal"], 1e-4)


@pytest.mark.parametrize("rate", [None, 0.07])
def test_pfedme_after_algorithm_1(rate: float | None) -> None:
    """K plain steps on every mini-batch, then w follows; two rates; clients count the same."""
    method = PFedMe(mu=2.0, inner_steps=3, personal_lr=rate, equal_weights=True)
    world, ctx, message, steps = one_client(method)
    update, client_state = method.client_update(ctx, message, {"personal": {}}, steps)
    w = params = message["params"]
    for batch in steps:
        for _ in range(3):
            gradient = prox_gradient(world, params, w, 2.0, True, batch)
            params = tree.subtract(params, tree.scale(gradient, rate or ctx.lr))
        w = tree.subtract(w, tree.scale(tree.subtract(w, params), ctx.lr * 2.0))
    assert_close(client_state["personal"], params)
    assert_close(update["delta"], tree.subtract(message["params"], w))
    ctx = context_of(world, 1, [0, 2, 3])
    assert method.aggregation_weights(ctx, {}, {})[0].tolist() == pytest.approx([1 / 3] * 3)
    one, stacked = play(world, until=2), play(replace(world, execute=eager), until=2)
    assert_close(one[0], stacked[0])
    assert_close(one[1].known, stacked[1].known)


def test_pfedme_released_clients_use_the_shared_model() -> None:
    world = federation("pfedme@released", {"pfedme": {"mu": 0.5}})
    server, client_states, _ = play(world)
    ctx = context_of(world, 5, [0])
    for client_state in client_states.known.values():
        assert_close(world.method.eval_model(ctx, server, client_state), server["params"], 0)


@pytest.mark.parametrize(
    "method",
    [FedPer(), LGFedAvg(), FedRep(body_epochs=2), APFL(), Ditto(), PFedMe(), SuPerFedMM()],
    ids=lambda method: type(method).__name__,
)
def test_a_client_that_never_took_part_uses_the_shared_model(method: Method) -> None:
    world = federation(method=method)
    server, _, _ = play(world, until=0)
    ctx = context_of(world, 0, [0])
    assert_close(method.eval_model(ctx, server, {}), server["params"], 0)


def test_empty_parts_run_side_by_side() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    world = with_net(federation(method=LGFedAvg()), body, nn.Identity())
    server, client_states, _ = play(world)
    stacked, stacked_owns, _ = play(replace(world, execute=eager))
    assert_close(server, stacked)
    assert_close(client_states.known, stacked_owns.known)


@pytest.mark.parametrize(
    ("method", "key", "value"),
    [
        (SuPerFedMM, "start", 1.2),
        (SuPerFedLM, "nu", -1.0),
        (APFL, "alpha", 1.5),
        (Ditto, "personal_epochs", 0),
        (PFedMe, "inner_steps", -1),
        (PFedMe, "personal_lr", -0.1),
        (PFedMe, "personal_lr", 0.1),  # it would be ignored
        (FedRep, "body_epochs", 0),
    ],
)
def test_bad_hyperparameters_get_one_line(method: type[Method], key: str, value: float) -> None:
    with refused("value", key=key, value=value):
        method(**{key: value})


def test_a_hyperparameter_goes_with_the_one_that_uses_it() -> None:
    PFedMe(personal_lr=0.1, inner_steps=1)
    PerFedAvg(delta=0.1)
    PerFedAvg(hessian_free=False, delta=PerFedAvg.delta)
    with refused("value", key="delta", value=0.1):
        PerFedAvg(hessian_free=False, delta=0.1)


def test_a_model_without_a_head_is_refused() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, CLASSES))
    for method in (FedPer(), LGFedAvg(), FedRep(body_epochs=1)):
        world = with_net(federation(method=method), body, nn.Identity())
        with refused(key="head", names="none"):
            method.check(world.context)


def test_running_statistics_are_refused_where_they_would_go_wrong() -> None:
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8))
    methods = (
        SuPerFedMM(), SuPerFedLM(), APFL(), FedRep(body_epochs=1), FedFA(), PerFedAvg(),
        PFedMe(inner_steps=1), Scaffnew(),
    )  # fmt: skip
    PFedMe().check(with_net(federation(), body, nn.Linear(8, CLASSES)).context)
    for method in methods:
        world = with_net(federation(method=method), body, nn.Linear(8, CLASSES))
        with refused(key="body.1.running_mean", names=("running", "statistics")):
            method.check(world.context)


@pytest.mark.parametrize("epochs", [1, 2, 5, 7])
def test_by_default_five_epochs_or_all_of_a_shorter_round(epochs: int) -> None:
    """To the bit as if that number were given, so that older runs stay what they are."""
    for method, key in ((Ditto(), "personal_epochs"), (FedRep(), "body_epochs")):
        states = []
        for each in (method, replace(method, **{key: min(5, epochs)})):
            world = federation(method=each, rounds=1)
            world = replace(world, context=replace(world.context, epochs=epochs))
            each.check(world.context)
            states.append(play(world)[1].known)
        assert_close(*states, 0)


def test_more_epochs_than_the_round_has_are_refused() -> None:
    for make in (partial(FedRep, 3), partial(Ditto, personal_epochs=3), partial(Central, 3)):
        with refused(value=3, names="epochs"):
            make().check(federation().context)
    Central(2).check(federation().context)
