"""What the engine has for methods that train other things than a classifier."""

import weakref
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import Memory, in_context, play
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend, scan
from fedrepro.engine.executors import Executor, eager, sequential
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net, differentiate
from fedrepro.engine.optim import Optimizer, adam
from fedrepro.engine.round import Federation, OfCohort, begin, context_of, play_round, steps_of
from fedrepro.engine.steps import Steps, mirrored, side_by_side, some_epochs
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.methods.facts import facts_of
from fedrepro.models.classifier import Classifier
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.given_run import METHODS
from support.refusals import refused
from support.worlds import federation


def with_adam(world: Federation, weight_decay: float = 1e-3) -> Federation:
    return replace(world, context=replace(world.context, optimizer=adam(0.5, 0.9, weight_decay)))


def test_adam_is_that_of_torch() -> None:
    rng = stream(1, "adam")
    start = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    gradients = [torch.randn(5, 3, generator=rng, dtype=torch.float64) for _ in range(7)]
    theirs = start.clone().requires_grad_()
    torch_adam = torch.optim.Adam([theirs], lr=0.1, betas=(0.5, 0.9), weight_decay=0.01)
    optimizer = adam(0.5, 0.9, 0.01)
    ours, state = {"w": start.clone()}, optimizer.init({"w": start})
    alone = [start.clone()]
    assert optimizer.in_place is not None
    move = optimizer.in_place(alone, tree.leaves(tree.copy(state)))
    for gradient in gradients:
        theirs.grad = gradient.clone()
        torch_adam.step()
        change, state = optimizer.update({"w": gradient}, state, ours, 0.1)
        ours = tree.add(ours, change)
        move([gradient], 0.1)
    torch.testing.assert_close(ours["w"], theirs.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(alone[0], theirs.detach(), rtol=1e-12, atol=1e-12)
    assert state["steps"] == 7 and state["steps"].dtype == torch.float64


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "central", "superfed_mm"])
def test_executors_agree_with_adam(name: str) -> None:
    world = with_adam(federation(name))
    server, client_states, _ = play(world)
    stacked, stacked_owns, _ = play(replace(world, execute=eager))
    assert_close(server, stacked)
    for client, client_state in client_states.known.items():
        assert_close(client_state, stacked_owns.known[client])


def test_adam_in_place_is_adam() -> None:
    world = with_adam(federation(), 0.0)
    slow: Optimizer = world.context.optimizer._replace(in_place=None)
    server, _, _ = play(world)
    other, _, _ = play(replace(world, context=replace(world.context, optimizer=slow)))
    assert_close(server, other, 1e-10)


@dataclass(frozen=True)
class Scanned(Method):
    """FedAvg, its steps said by :func:`scan`, with a running mean beside the parameters."""

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        def step(carry: Tree, batch: Tree) -> Tree:
            gradient = differentiate(
                lambda params: self.loss(ctx, message, client_state, params, batch), carry["theta"]
            )
            params = tree.apply(lambda p, g: p - ctx.lr * g, carry["theta"], gradient)
            return {"theta": params, "mean": tree.mix(carry["mean"], params, 0.1)}

        after = scan(step, {"theta": message["params"], "mean": message["params"]}, steps)
        return {"delta": tree.subtract(message["params"], after["theta"])}, {"mean": after["mean"]}


@pytest.mark.parametrize("execute", [sequential, eager])
def test_scan_is_descend(execute: Executor) -> None:
    plain = federation(momentum=0.0, weight_decay=0.0, execute=execute, rounds=2, cohort=6)
    server, _, _ = play(plain)
    scanned, client_states, _ = play(replace(plain, method=Scanned()))
    assert_close(server, scanned)
    assert all(
        leaf.isfinite().all()
        for client_state in client_states.known.values()
        for leaf in tree.leaves(client_state)
    )


@dataclass(frozen=True)
class OnTheServer(Method):
    """FedAvg, then some steps on the server, by ``descend`` and by ``differentiate``."""

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = super().server_update(ctx, server, updates, weights)
        x = torch.randn(10, 6, generator=ctx.stream("x"), dtype=torch.float64)
        batch = {"x": x, "y": torch.zeros(10, dtype=torch.long)}
        params = moved["params"]
        plain = differentiate(lambda params: self.loss(ctx, {}, {}, params, batch), params)
        moved_by_hand = tree.apply(lambda p, g: p - 0.1 * g, params, plain)
        steps = Steps(One(batch), [torch.arange(10)], 10, {})
        once = replace(ctx, lr=0.1)
        followed, _ = descend(once, self.gradient, {}, {}, params, steps)
        assert not any(leaf.requires_grad for leaf in tree.leaves(plain))
        return {**moved, "params": followed, "by_hand": moved_by_hand}


@dataclass(frozen=True)
class One:
    batch: Tree

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.batch["x"][rows], self.batch["y"][rows]


def test_the_server_can_train_too() -> None:
    world = federation(method=OnTheServer(), momentum=0.0, weight_decay=0.0)
    server, _, _ = play(world, until=1)
    assert_close(server["params"], server["by_hand"])
    plain, _, _ = play(federation(momentum=0.0, weight_decay=0.0), until=1)
    assert not torch.equal(tree.leaves(plain["params"])[0], tree.leaves(server["params"])[0])


@dataclass(frozen=True)
class Refreshed(Method):
    """A client starts from what it drew, and keeps a count."""

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"rounds": torch.zeros(())}

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"drawn": torch.randn(3, generator=rng)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        return {"seen": client_state["drawn"]}, {"rounds": client_state["rounds"] + 1}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        return {**server, "seen": updates["seen"]}


@pytest.mark.parametrize("execute", [sequential, eager])
def test_what_is_drawn_once_a_round_is_forgotten(execute: Executor) -> None:
    world = federation(method=Refreshed(), cohort=6, execute=execute)
    first, client_states, _ = play(world, until=1)
    second, client_states, _ = play(world, until=2, state=(first, client_states, 1))
    assert len(torch.cat([first["seen"], second["seen"]]).unique()) == 2 * 6 * 3
    assert all(
        client_state.keys() == {"rounds"} and client_state["rounds"] == 2
        for client_state in client_states.known.values()
    )


@dataclass(frozen=True)
class Counted(Refreshed):
    """It notes how many clients' draws there are in memory while one trains."""

    drawn: ClassVar[list[weakref.ref[Tensor]]] = []
    alive: ClassVar[list[int]] = []

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        made = super().sample_round(ctx, rng)
        self.drawn.append(weakref.ref(made["drawn"]))
        return made

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        self.alive.append(sum(each() is not None for each in self.drawn))
        return super().client_update(ctx, message, client_state, steps)


def test_what_clients_draw_is_made_one_after_another() -> None:
    """It may be as large as the model: a new network for each."""
    play(federation(method=Counted(), cohort=6), until=2)
    assert len(Counted.alive) == 12 and max(Counted.alive) <= 2  # the last one's may not be gone


def test_streams_of_the_server_go_by_purpose_and_round() -> None:
    world = federation()
    one, two = (context_of(world, number, [0]) for number in (0, 1))

    def draw(ctx: Context, purpose: str) -> float:
        return float(torch.rand((), generator=ctx.stream(purpose)))

    assert draw(one, "a") == draw(one, "a")
    assert len({draw(one, "a"), draw(one, "b"), draw(two, "a")}) == 3
    other = context_of(in_context(world, seed=4), 0, [0])
    assert draw(other, "a") != draw(one, "a")


PARTS = registry.parts()


@pytest.mark.parametrize(
    "name",
    [
        key
        for key, part in PARTS.items()
        if part.kind == "method" and key != "local"  # whose clients send no model
    ],
)
def test_models_with_which_clients_ended_are_those_that_the_server_averages(name: str) -> None:
    """Where one client takes part, the server of plain averaging ends where that client did."""
    world = federation(name, cohort=1, momentum=0.0, weight_decay=0.0)
    if any(layer.full_participation for layer in world.method.layers()):
        pytest.skip("needs all clients")
    before, client_states = begin(world), Memory()
    after, played = play_round(world, before, client_states, 0)
    ctx = context_of(world, 0, played.cohort)
    ended = world.method.client_model(ctx, before, played.updates, 0)
    assert ended.keys() == world.initial.keys()
    assert any(not torch.equal(ended[key], leaf) for key, leaf in world.initial.items())
    averages = {"fedavg", "fedprox", "scaffold", "fednova", "fedper", "ditto", "apfl"}
    if name in averages:
        assert_close(ended, {key: after["params"][key] for key in ended})


def test_prediction_is_in_testing_mode() -> None:
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    net = Net(Classifier(body, nn.Linear(8, 3)))
    params = net.init(stream(1, "x"))
    x = torch.randn(5, 4, generator=stream(2, "x"))
    before = tree.copy(params)
    together = net.predict(params, x)
    assert torch.equal(together, net.predict(params, x)) and net.module.training
    one_by_one = torch.cat([net.predict(params, each[None]) for each in x])
    torch.testing.assert_close(together, one_by_one)
    assert_close(before, params, 0)


class Images:
    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        x = rows[..., None, None, None].double() + torch.arange(3.0, dtype=torch.float64)
        return x.expand(*rows.shape, 1, 2, 3), rows


@dataclass(frozen=True)
class ImagesOfClients:
    sizes = (7, 5)
    samples = Images()

    def rows(self, client: int) -> Tensor:
        return torch.arange(self.sizes[client]) + 10 * client


def test_flips_are_half_of_the_samples_and_the_same_side_by_side() -> None:
    world = replace(in_context(federation(), batch_size=3, flips=True), clients=ImagesOfClients())
    ctx = context_of(world, 0, [0, 1])
    alone = [steps_of(world, ctx, client) for client in (0, 1)]
    padded = side_by_side(alone)
    flipped = []
    for client, steps in enumerate(alone):
        # An epoch of the shorter client has as many padded steps as one of the longer.
        places = [0, 1, 2, 3, 4, 5] if client == 0 else [0, 1, 3, 4]
        for place, batch in zip(places, steps, strict=True):
            seen = padded["x"][client, place][padded["real"][client, place] == 1]
            assert torch.equal(seen, batch["x"])
            flipped += (batch["x"][:, 0, 0, 0] > batch["x"][:, 0, 0, 2]).tolist()
    assert 4 < sum(flipped) < 20
    half = some_epochs(alone[0], 2, 1, 2)
    assert isinstance(half, Steps) and len(half.flips) == 1
    assert torch.equal(half.flips[0], alone[0].flips[1])
    image = torch.arange(12.0).reshape(2, 1, 2, 3)
    mask = torch.tensor([True, False])
    assert mirrored(image, mask)[0, 0, 0].tolist() == [2, 1, 0]
    assert torch.equal(mirrored(image, mask)[1], image[1])
    plain = steps_of(in_context(world, flips=False), ctx, 0)
    for one, other in zip(plain.orders, alone[0].orders, strict=True):
        assert torch.equal(one, other)  # flips have a stream of their own


@dataclass(frozen=True)
class Drawing(Method):
    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        DRAWN.append(int(ctx.cohort[0]))
        return {"noise": torch.randn(steps, generator=rng)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        DRAWN.append(-1)
        return super().client_update(ctx, message, client_state, steps)


DRAWN: list[int] = []


def test_draws_of_a_client_are_made_when_it_is_its_turn() -> None:
    DRAWN.clear()
    world = federation(method=Drawing(), cohort=6)
    play(world, until=1)
    assert DRAWN == [0, -1] * 6
    steps = OfCohort([0, 1, 2], partial(steps_of, world, context_of(world, 0, [0, 1, 2])))
    assert len(steps) == 3 and len(steps[1:]) == 2


def test_needs_are_what_the_classes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREPRO_METHODS", str(METHODS))
    parts = registry.parts()
    for name, part in parts.items():
        if not part.kind.startswith("server"):
            assert facts_of(name).requires == part.cls.requires, name
            assert facts_of(name).optional == part.cls.optional, name
    assert facts_of("taught").requires == ("unlabelled", "judges")
    assert facts_of("fedevg").optional == ("start",)
    assert parts["maker"].kind == "pre-training" and parts["taught"].kind == "method"


@pytest.mark.parametrize("wrapper", ["ima", "aaggff_d"])
def test_no_wrapper_wraps_what_classifies_nothing(
    wrapper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDREPRO_METHODS", str(METHODS))
    with refused(key="wrapper", names="Maker"):
        registry.compose(f"{wrapper}+maker")


@dataclass(frozen=True)
class Shapeless(Method):
    """Its server has no model."""

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {"prototypes": torch.zeros(3, 8)}


@pytest.mark.parametrize("wrapper", ["ima", "aaggff_d"])
def test_wrappers_refuse_a_server_without_a_model(wrapper: str) -> None:
    outer, _ = registry.compose(wrapper)
    with refused(file=f"method {wrapper}", names=("model", "server")):
        begin(federation(method=replace(outer, inner=Shapeless())))
