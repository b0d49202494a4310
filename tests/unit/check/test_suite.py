"""Each check of a method fails for a method that breaks just this, and for no other reason."""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedrepro.check import suite, traces, world
from fedrepro.check.hooks import refuse_lone_samples
from fedrepro.check.suite import Failed, NotApplicable, Trial
from fedrepro.check.world import SIZES, Memory, federation, in_float64
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Executor, Outcome, Training, eager, sequential, unrolled
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, choose_cohort
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.scaffold import Scaffold
from fedrepro.models.classifier import Classifier
from fedrepro.run.store import stored
from fedrepro.support.errors import UserError
from support.refusals import refused


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with in_float64():
        yield


@dataclass(frozen=True)
class Fixed(FedAvg):
    """Its model depends on no seed."""

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        done = ctx.round + 1.0
        same = tree.apply(lambda leaf: torch.full_like(leaf, done), server["params"])
        return {**super().server_update(ctx, server, updates, weights), "params": same}


@dataclass(frozen=True)
class Partly(FedAvg):
    """A part of its model depends on no seed, which is no fault."""

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        server = super().server_update(ctx, server, updates, weights)
        kept = {"head.bias": torch.ones_like(server["params"]["head.bias"])}
        return {**server, "params": server["params"] | kept}


@dataclass(frozen=True)
class Lonely(FedAvg):
    """One number of its model is divided by the number of other clients in the last round."""

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        server = super().server_update(ctx, server, updates, weights)
        others = torch.tensor([len(ctx.cohort) - 1.0 if ctx.round == 1 else 1.0, 1.0, 1.0])
        moved = {"head.bias": server["params"]["head.bias"] / others}
        return {**server, "params": server["params"] | moved}


@dataclass(frozen=True)
class Climbing(FedAvg):
    """It goes the wrong way."""

    def client_update(self, ctx: Context, message: Tree, client_state: Tree, steps: Any) -> Any:
        update, state = super().client_update(ctx, message, client_state, steps)
        return {**update, "delta": tree.scale(update["delta"], -1.0)}, state


@dataclass(frozen=True)
class Alone(FedAvg):
    """It says that it follows no server optimizer, and does."""

    uses_server_optimizer = False


@dataclass(frozen=True)
class Deaf(Alone):
    """It follows none, and says so."""

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        mean = tree.weighted_sum(updates["delta"], weights)
        return {**server, "params": tree.subtract(server["params"], mean)}


@dataclass(frozen=True)
class Boasting(Deaf):
    """It follows none, and says that it does."""

    uses_server_optimizer = True


@dataclass(frozen=True)
class Counting(FedAvg):
    """Each hundredth round that any process plays, it does something else."""

    played: tuple[list[int], ...] = ([0],)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        self.played[0][0] += 1
        server = super().server_update(ctx, server, updates, weights)
        return {**server, "params": tree.scale(server["params"], 1 + 1e-9 * self.played[0][0])}


def trial(method: FedAvg, single: bool = True, kept: Callable[..., Any] = stored) -> Trial:
    return Trial(partial(federation, method), kept, single)


@cache
def of_fedavg() -> list[suite.State]:
    return trial(FedAvg()).states


def like_fedavg(its: Trial) -> Trial:
    """The trial, which takes FedAvg's states for its own: these were found to be right."""
    vars(its)["states"] = of_fedavg()
    return its


PLAIN = (
    suite.hooks_keep_their_contract, suite.resuming_changes_no_bit,
    suite.a_round_has_no_side_effects, suite.another_seed_gives_another_result,
    suite.one_client_is_enough, suite.it_learns, suite.a_server_optimizer_is_followed_or_refused,
    suite.running_statistics_stay_among_those_of_the_clients,
)  # fmt: skip


@pytest.mark.parametrize("method", [FedAvg(), Scaffold()])
def test_a_right_method_has_every_property(method: FedAvg) -> None:
    its = trial(method)
    for check in PLAIN:
        check(its)


@pytest.mark.parametrize(
    ("method", "check", "words"),
    [
        (Fixed(), suite.another_seed_gives_another_result, "give the same model"),
        (Fixed(), suite.it_learns, "before training"),
        (Lonely(), suite.one_client_is_enough, "params/.* is not finite"),
        (Climbing(), suite.it_learns, r"accuracy \d+% before training, \d+% after it"),
        (
            Alone(),
            suite.a_server_optimizer_is_followed_or_refused,
            "is False, but the server follows the server optimizer",
        ),
        (
            Boasting(),
            suite.a_server_optimizer_is_followed_or_refused,
            "is True, but the server is the same without one",
        ),
    ],
)
def test_a_wrong_method_fails_the_check(
    method: FedAvg, check: Callable[[Trial], None], words: str
) -> None:
    with pytest.raises(Failed, match=words):
        check(trial(method))


def test_a_part_of_a_model_may_be_the_same_with_every_seed() -> None:
    suite.another_seed_gives_another_result(trial(Partly()))


def test_a_method_that_says_so_may_follow_no_server_optimizer() -> None:
    suite.a_server_optimizer_is_followed_or_refused(trial(Deaf()))
    for method in (Alone(), FedAvg()):
        with pytest.raises(NotApplicable):
            suite.a_server_optimizer_is_followed_or_refused(trial(method, single=False))


def test_a_round_that_cannot_be_played_again_is_found() -> None:
    """What the contract of hooks finds first is found here, too."""
    with pytest.raises(Failed, match="played a second time: the server's params"):
        suite.a_round_has_no_side_effects(like_fedavg(trial(Counting())))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("wrong", [eager, unrolled])
def test_side_by_side_must_agree_in_an_early_and_in_a_late_round(
    wrong: Executor, late: bool
) -> None:
    """Whoever computes otherwise; what only rounding changes is no fault."""

    def make(away: float, execute: Executor = sequential, **options: Any) -> Federation:
        def executed(training: Training) -> Outcome:
            updates, after = sequential(training)
            if execute is wrong and (training.ctx.round > 2) == late:
                bias = updates["delta"]["head.bias"].clone()
                bias[-1, -1] += away  # one number of the last client
                updates = {**updates, "delta": updates["delta"] | {"head.bias": bias}}
            return updates, after

        return federation(FedAvg(), execute=executed, **options)

    suite.executors_agree(like_fedavg(Trial(partial(make, 1e-13), stored)))
    with pytest.raises(Failed, match=r"side by side: the server's params/head\.bias differs"):
        suite.executors_agree(like_fedavg(Trial(partial(make, 1e-6), stored)))


@dataclass(frozen=True)
class InPlace(FedAvg):
    """It changes the state that it was given."""

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = super().server_update(ctx, server, updates, weights)
        server["params"]["head.bias"].add_(1)
        return after


def test_a_round_that_changes_the_state_it_began_with_is_found() -> None:
    its = trial(InPlace())
    vars(its)["states"] = copy.deepcopy(of_fedavg())
    with pytest.raises(Failed, match="the state that a round began with"):
        suite.a_round_has_no_side_effects(its)


@dataclass(frozen=True)
class OneClass(FedAvg):
    """What it evaluates says that all samples are of the last class."""

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        head = {"head.bias": torch.tensor([0.0, 0.0, 1e6])}
        return super().eval_model(ctx, server, client_state) | head


def test_accuracy_is_over_all_samples_of_all_clients() -> None:
    labels = torch.cat([y for _, y in world.data().tensors])
    share = float((labels == 2).double().mean())
    assert suite.accuracies(trial(OneClass())) == (pytest.approx(share), pytest.approx(share))


@dataclass(frozen=True)
class OwnClass(FedAvg):
    """A client says that all of its samples are of the class in its state, else of the first."""

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        bias = client_state.get("bias", torch.tensor([1e6, 0.0, 0.0]))
        return {**server["params"], "head.bias": bias}


def test_accuracy_is_that_of_each_client_with_its_own_state() -> None:
    its = trial(OwnClass())
    known = {2: {"bias": torch.tensor([0.0, 0.0, 1e6])}}
    vars(its)["states"] = [(of_fedavg()[0][0], Memory(known), 0)]
    said = {0: 0, 1: 0, 2: 2, 3: 0, 4: 0, 5: 0}
    hits = [int((y == said[client]).sum()) for client, (_, y) in enumerate(world.data().tensors)]
    assert suite.accuracies(its)[0] == pytest.approx(sum(hits) / sum(SIZES))


def test_what_was_forgotten_in_the_last_round_is_learnt_in_more_rounds() -> None:
    """Only if a method has not learnt by then."""
    asked: list[dict[str, Any]] = []

    def make(**options: Any) -> Federation:
        asked.append(options)
        return federation(FedAvg(), **options)

    first, *others = of_fedavg()
    for last, longer in ((others[-1], False), (first, True)):
        its = Trial(make, stored)
        vars(its)["states"] = [first, *others[:-1], last]
        asked.clear()
        suite.it_learns(its)
        assert [options.get("cohort") for options in asked] == [None, *[len(SIZES)] * longer]


def test_the_federation_is_one_in_which_mistakes_show() -> None:
    """Clients are unequal, some come late, and what depends on a round or a step differs."""
    sizes, batch = world.SIZES, federation(FedAvg()).context.batch_size
    assert len({*sizes}) == len({-(-size // batch) for size in sizes}) + 2 == 6
    assert any(size < batch for size in sizes)
    assert {size % batch == 0 for size in sizes} == {True, False}
    labels = [{*y.tolist()} for _, y in world.data().tensors]
    assert {len(each) for each in labels} >= {1, 3} and set.union(*labels) == {0, 1, 2}
    states = trial(Scaffold()).states
    known = [len(state[1].known) for state in states]
    assert known[1] < known[2] <= known[4] == len(sizes)
    ctx = trial(FedAvg()).world.context
    assert ctx.epochs > 1 and ctx.schedule(1) != ctx.schedule(0)
    one, other = (ctx.optimizer.init({"w": torch.ones(1)}) for _ in range(2))
    assert one.keys() == other.keys() != set()  # momentum


def test_checks_compute_in_float64_on_one_thread_and_leave_both_as_they_were() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        torch.set_default_dtype(torch.float32)
        with suppress(Failed), in_float64():
            within = torch.get_default_dtype(), torch.get_num_threads()
            raise Failed
        assert within == (torch.float64, 1)
        assert (torch.get_default_dtype(), torch.get_num_threads()) == (torch.float32, 3)
    finally:
        torch.set_num_threads(threads)
    options = {"lr": 0.5, "server_lr": 0.25, "rounds": 7, "seed": 9}
    with in_float64():
        made = federation(FedAvg(), cohort=2, **options)  # type: ignore[arg-type]
    ctx = made.context
    assert (ctx.schedule(0), ctx.server_lr, ctx.rounds, ctx.seed, ctx.cohort_size) == (
        0.5, 0.25, 7, 9, 2
    )  # fmt: skip


@dataclass(frozen=True)
class Drawing(FedAvg):
    """It draws from torch's global generator, and uses nothing of it."""

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        torch.rand(())
        return super().aggregation_weights(ctx, server, updates)


def test_a_draw_from_the_global_generator_is_found() -> None:
    its = trial(Drawing())
    with refused(names=("generator", "global")):
        suite.hooks_keep_their_contract(its)
    with pytest.raises(Failed, match="torch's global generator was drawn from"):
        suite.a_round_has_no_side_effects(like_fedavg(trial(Drawing())))


@pytest.mark.parametrize("whose", ["server", "client"])
@pytest.mark.parametrize(
    "change", [lambda leaf: leaf + 1e-15 * leaf.abs().max(), lambda leaf: leaf.float()]
)
def test_what_the_disk_changes_is_found(whose: str, change: Callable[[Tensor], Tensor]) -> None:
    def kept(folder: Path, server: Tree, clients: dict[int, Tree]) -> tuple[Tree, Any]:
        server, there = stored(folder, server, clients)
        if whose == "server":
            return tree.apply(change, server), there
        known = {client: tree.apply(change, there.get(client) or {}) for client in clients}
        return server, Memory(known)

    with pytest.raises((Failed, RuntimeError)):
        suite.resuming_changes_no_bit(trial(Scaffold(), kept=kept))


def test_two_states_are_the_same_only_with_all_leaves_alike() -> None:
    one = {"params": {"w": torch.tensor([1.0, torch.nan])}, "n": torch.tensor(3)}
    state = (one, Memory({2: {"c": torch.zeros(2)}}), 1)
    suite._same("x", state, copy.deepcopy(state))

    def other(**changes: Any) -> suite.State:
        server, clients = copy.deepcopy(one), {2: {"c": torch.zeros(2)}}
        server |= changes.get("server", {})
        return server, Memory(clients | changes.get("clients", {})), 1

    for changed, words in (
        (other(server={"n": torch.tensor(4)}), "the server's n differs"),
        (other(server={"n": torch.tensor(3.0)}), "the server's n differs"),
        (other(server={"n": torch.tensor([3])}), "the server's n differs"),
        (other(server={"params": {"w": torch.tensor([1.0, 2.0])}}), "server's params/w differs"),
        (other(server={"params": {"w": torch.tensor([1.5, torch.nan])}}), "params/w differs"),
        (other(server={"more": torch.ones(1)}), "the server's more is not always there"),
        (
            other(clients={2: {"c": torch.tensor([0.0, 0.25])}}),
            r"clients' 2/c differs by up to 0.25",
        ),
        (other(clients={3: {"c": torch.zeros(2)}}), "clients' 3/c is not always there"),
    ):
        for pair in ((state, changed), (changed, state)):
            with pytest.raises(Failed, match=words):
                suite._same("x", *pair)
    near = other(clients={2: {"c": torch.tensor([0.0, 1e-10])}})
    suite._same("x", state, near, 1e-9)
    with pytest.raises(Failed):
        suite._same("x", state, near, 1e-11)


# --- traces ---------------------------------------------------------------------------------------
class Own:
    """A class as a plug-in has it."""

    def __init__(self) -> None:
        self.value = [1]


Own.__module__ = "fedrepro_user_methods_0.own"


VALUES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "tensor": (lambda: torch.zeros(3), lambda it: it.add_(1)),
    "tensor that autograd does not see": (
        lambda: torch.zeros(3), lambda it: it.data.numpy().__setitem__(0, 5.0),
    ),
    "complex tensor": (
        lambda: torch.zeros(2, dtype=torch.complex64), lambda it: it.data.imag.fill_(1),
    ),
    "numbers of two bytes": (
        lambda: torch.zeros(3, dtype=torch.bfloat16), lambda it: it.data.fill_(1),
    ),
    "whole numbers": (lambda: torch.zeros(3, dtype=torch.int8), lambda it: it.fill_(1)),
    "module": (lambda: nn.Linear(2, 2), lambda it: it.weight.data.fill_(1)),
    "array": (lambda: np.zeros(3), lambda it: it.__setitem__(1, 2.0)),
    "torch's generator": (
        lambda: torch.Generator().manual_seed(1), lambda it: torch.rand(1, generator=it),
    ),
    "numpy's generator": (lambda: np.random.default_rng(1), lambda it: it.random()),
    "Python's generator": (lambda: random.Random(1), lambda it: it.random()),
    "dict": (lambda: {"a": 1}, lambda it: it.update(a=2)),
    "key": (lambda: {"a": 1}, lambda it: it.update(b=2)),
    "list": (lambda: [1, [2]], lambda it: it[1].append(3)),
    "set": (lambda: {1}, lambda it: it.add(2)),
    "bytes": (lambda: bytearray(b"a"), lambda it: it.extend(b"b")),
    "object": (Own, lambda it: it.value.append(2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_that_changes_in_place_leaves_a_trace(kind: str) -> None:
    make, change = VALUES[kind]
    value = make()
    for hidden in (value, [value], {"far": [[value]]}):
        before = traces.frozen(hidden)
        assert traces.frozen(hidden) == before
    before = traces.frozen(value), traces.frozen([value])
    change(value)
    after = traces.frozen(value), traces.frozen([value])
    assert before[0] != after[0] and before[1] != after[1]
    assert traces.changes({"x": before[0], "y": 1}, {"x": after[0], "y": 1}) == ["x"]


def test_a_value_that_has_itself_inside_leaves_a_trace() -> None:
    value: list[Any] = [1]
    value.append(value)
    before = traces.frozen(value)
    assert traces.frozen(value) == before
    value[0] = 2
    assert traces.frozen(value) != before


def test_what_only_one_of_two_has_is_a_change() -> None:
    assert traces.changes({"a": 1}, {"b": None, "a": 1}) == []  # None is as if it were not there
    assert traces.changes({"a": 1, "c": 2}, {"b": 3, "a": 1}) == ["c", "b"]


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: torch.rand(1), "torch"),
        (lambda: np.random.rand(), "numpy"),  # noqa: NPY002
        (lambda: random.random(), "Python's random"),
    ],
)
def test_each_library_s_generator_is_watched(draw: Callable[[], object], name: str) -> None:
    before = traces.generators(torch.device("cpu"))
    assert traces.changes(before, traces.generators(torch.device("cpu"))) == []
    draw()
    assert traces.changes(before, traces.generators(torch.device("cpu"))) == [name]


# --- the last mini-batch --------------------------------------------------------------------------
def normalised(batch_size: int, cohort: int = 6, **more: Any) -> Any:
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))
    world = federation(FedAvg(), cohort=cohort, rounds=more.pop("rounds", 2))
    net = Net(Classifier(body, nn.Linear(8, 3)).double())
    context = replace(world.context, net=net, batch_size=batch_size)
    return replace(world, context=context, **more)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 19, 20, 30, 40])
def test_a_last_mini_batch_of_one_is_refused_wherever_a_client_has_it(batch_size: int) -> None:
    lone = [size for size in SIZES if size % batch_size == 1 or batch_size == 1]
    if not lone:
        refuse_lone_samples(normalised(batch_size))
        return
    with pytest.raises(UserError, match=r"round 1\)"):
        refuse_lone_samples(normalised(batch_size))
    refuse_lone_samples(federation(FedAvg()))  # nothing mixes samples there


def test_the_round_in_which_such_a_client_is_asked_is_said() -> None:
    """One client a round: the first round in which the one with 31 samples is asked."""
    world = normalised(10, cohort=1, rounds=40)
    assert [size for size in SIZES if size % 10 == 1] == [31]
    asked = [choose_cohort(world, round)[0] for round in range(40)]
    first = asked.index(SIZES.index(31))
    assert first > 0
    with pytest.raises(UserError, match=rf"client {SIZES.index(31)} \(round {first + 1}\)"):
        refuse_lone_samples(world)
    never = replace(world, context=replace(world.context, rounds=first))
    refuse_lone_samples(never)


@pytest.mark.parametrize(("steps", "refused"), [(3, False), (4, True), (5, True)])
def test_a_client_that_never_reaches_its_last_mini_batch_is_not_refused(
    steps: int, refused: bool
) -> None:
    """Of the client with 31 samples, in mini-batches of 10."""
    available: Any = SimpleNamespace(
        awake=lambda round, clients: clients,
        arriving=lambda round, asked: asked,
        steps_done=lambda round, client: steps,
    )
    world = normalised(10, rounds=1)
    world = replace(world, availability=available)
    if refused:
        with pytest.raises(UserError, match=rf"client {SIZES.index(31)} "):
            refuse_lone_samples(world)
    else:
        refuse_lone_samples(world)


def test_what_trains_no_classifier_may_have_a_last_mini_batch_of_one() -> None:
    method = type("Generates", (FedAvg,), {"classifies": False})()
    refuse_lone_samples(replace(normalised(10), method=method))
