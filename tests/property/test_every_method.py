"""What holds for every method, every wrapper on every method, and every server optimizer.

A new method gets these tests by being in its folder; nothing here names one.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from fedrepro.engine import tree
from fedrepro.engine.executors import Parallel, eager
from fedrepro.engine.net import Net
from fedrepro.engine.round import begin, context_of, play_round
from fedrepro.methods import _registry as registry
from fedrepro.models.classifier import Classifier
from fedrepro.run.store import ClientStore, load_tree, save_tree
from fedrepro.support.errors import UserError
from support.worlds import (
    CLASSES,
    FEATURES,
    ROUNDS,
    Memory,
    assert_close,
    federation,
    follows_a_server_optimizer,
    play,
)


def compositions() -> Iterator[str]:
    parts = registry.parts()
    methods = [name for name, part in parts.items() if part.kind == "method"]
    wrappers = [part for part in parts.values() if part.kind == "wrapper"]
    yield from methods
    yield from (f"fedavg+{name}" for name, part in parts.items() if part.kind.startswith("server"))
    for part in parts.values():
        if part.cls.divergences() and part.kind != "pre-training":
            before = "fedavg+" if part.kind.startswith("server") else ""
            yield f"{before}{part.name}@released"
    for wrapper in wrappers:
        for name in methods:
            if wrapper.cls.refuses(parts[name].cls()) is None:
                yield f"{wrapper.name}+{name}"
        yield f"{wrapper.name}@released+fedadam"
        yield f"{wrapper.name}+scaffold+fedyogi"
        for other in wrappers:
            if wrapper.cls.refuses(other.cls()) is None:
                yield f"{wrapper.name}+{other.name}+fedavg"


ALL = sorted(set(compositions()))


@cache
def history(name: str) -> list[tuple[tree.Tree, Memory, int]]:
    """What was so after 0, 1, ... rounds of the usual federation, as several tests compare it."""
    world = federation(name)
    states = [play(world, until=0)]
    for until in range(1, ROUNDS + 1):
        states.append(play(world, until=until, state=states[-1]))
    return states


def test_the_list_is_not_empty() -> None:
    assert {"fedavg", "fedprox", "scaffold", "fednova", "central", "ima+scaffold"} <= set(ALL)
    assert {"ima+fedfa", "ima+aaggff_s+fedavg"} <= set(ALL)


def assert_same(
    one: tuple[tree.Tree, Memory, int], other: tuple[tree.Tree, Memory, int], tolerance: float
) -> None:
    assert_close(one[0], other[0], tolerance)
    assert_close(dict(one[1].known), dict(other[1].known), tolerance)
    assert one[2] == other[2]


@pytest.mark.parametrize("name", ALL)
def test_executors_agree(name: str) -> None:
    """In the first rounds, whose clients are new, and in a late one, when all have states."""
    world, states = federation(name, execute=eager), history(name)
    assert_same(states[2], play(world, until=2), 1e-9)
    assert_same(states[5], play(world, until=5, state=states[4]), 1e-9)


@pytest.mark.parametrize("name", ALL)
def test_dealt_out_to_processes_no_bit_changes(name: str) -> None:
    """In the second round, of clients some of which are new."""
    world, states = federation(name, execute=Parallel(2)), history(name)
    assert_same(states[2], play(world, until=2, state=states[1]), 0)


@pytest.mark.parametrize("name", ALL)
def test_resuming_from_disk_changes_no_bit(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    states = history(name)
    server, owns, done = states[3]
    save_tree(tmp_path / "server", server)
    store = ClientStore(tmp_path / "clients")
    for client, own in owns.known.items():
        store.put(client, own)
    again = ClientStore(tmp_path / "clients", versions=store.flush())
    # A client without a state is not kept on disk; to the rounds that is the same.
    restored = Memory({client: again.get(client) or {} for client in owns.known})
    loaded, _ = load_tree(tmp_path / "server")
    resumed = play(federation(name), state=(loaded, restored, done))
    assert_same(states[-1], resumed, 0)


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("ima")])
def test_a_wrapper_goes_on_from_the_method_that_it_begins_as(name: str) -> None:
    """To the bit, from any round up to the last that it names; from later ones it is another."""
    world = federation(name, {"ima": {"start": 0.7, "window": 3}})
    inner, rounds = world.method.begins_as(world.context.rounds)
    assert rounds == 2
    server, owns, _ = play(world)
    for until in (1, rounds, rounds + 2):
        theirs, known, done = play(replace(world, method=inner), until=until)
        begun = world.method.taken_over(context_of(world, 0, [0]), theirs)
        resumed, resumed_owns, _ = play(world, state=(begun, known, done))
        if until > rounds:
            assert not torch.equal(flat(server["params"]), flat(resumed["params"]))
        else:
            assert_close(server["params"], resumed["params"], 0)
            assert owns.known.keys() == resumed_owns.known.keys()
            for client, own in owns.known.items():
                assert_close(own, resumed_owns.known[client], 0)


def flat(params: tree.Tree) -> torch.Tensor:
    return torch.cat([leaf.flatten() for leaf in tree.leaves(params)])


@pytest.mark.parametrize("name", ALL)
def test_hooks_leave_arguments_and_global_randomness_alone(name: str) -> None:
    world = federation(name)
    server, owns, done = copy.deepcopy(history(name)[2])
    before = copy.deepcopy((server, owns.known))
    torch.manual_seed(0)
    generator_state = torch.get_rng_state()
    first, _, _ = play(world, until=3, state=(server, owns, done))
    second, _, _ = play(world, until=3, state=(server, owns, done))
    assert_close(before[0], server, 0)
    for client, own in owns.known.items():
        assert_close(before[1][client], own, 0)
    assert_close(first, second, 0)
    assert torch.equal(generator_state, torch.get_rng_state())


@pytest.mark.parametrize("name", [name for name in ALL if not {"+", "@"} & set(name)])
def test_a_server_optimizer_is_followed_or_refused(name: str) -> None:
    method, _ = registry.compose(name)
    assert follows_a_server_optimizer(federation(name)) is method.moves


@pytest.mark.parametrize("name", ALL)
def test_it_learns(name: str) -> None:
    # Without momentum: SCAFFOLD's variates are not made for it (see its file).
    # The rate times pFedMe's mu must stay below 1: w moves so far towards theta.
    quick = {"pfedme": {"mu": 1.0}, "fedadagrad": {"lr": 0.03}}
    world = federation(name, quick, cohort=6, rounds=10, lr=0.3, momentum=0.0)
    server, owns, done = play(world)
    everyone = list(range(len(world.clients.sizes)))
    ctx, method = context_of(world, done - 1, everyone), world.method

    def accuracy(server: tree.Tree, owns: Memory) -> float:
        """Of the model that each client uses, on its own samples."""
        hits = []
        for client in everyone:
            x, y = world.clients.load(client)
            params = method.model(ctx, server, owns.get(client) or {})
            hits.append(ctx.net(params, x).argmax(1) == y)
        return float(torch.cat(hits).double().mean())

    begin, nobody, _ = play(world, until=0)
    assert accuracy(server, owns) > max(0.85, accuracy(begin, nobody))


@pytest.mark.parametrize("name", ALL)
def test_another_seed_gives_another_result(name: str) -> None:
    one, _, _ = history(name)[1]
    other, _, _ = play(federation(name, seed=2), until=1)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(tree.leaves(one["params"]), tree.leaves(other["params"]), strict=True)
    )


@pytest.mark.parametrize("name", [name for name in ALL if not {"+", "@"} & set(name)])
def test_running_statistics_stay_among_those_of_the_clients(name: str) -> None:
    """No gradient moves them: whatever steers the parameters, they are averaged."""
    world = federation(name)
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8))
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    # Mini-batches of 7: no client has a last one of a single sample.
    world = replace(world, context=replace(world.context, net=net), batch_size=7)
    if any(layer.needs for layer in world.method.layers()):
        pytest.skip("its server trains, too")
    try:
        world.method.check(context_of(world, 0, [0]))
    except UserError:
        pytest.skip("refuses running statistics")
    before = begin(world)
    after, played = play_round(world, before, Memory(), 0)
    if torch.equal(after["params"]["body.1.running_mean"], world.initial["body.1.running_mean"]):
        pytest.skip("shares none")
    ctx = context_of(world, 0, played.cohort)
    places = range(len(played.cohort))
    ended = [world.method.ended(ctx, before, played.reports, place) for place in places]
    for buffer in ("body.1.running_mean", "body.1.running_var"):
        each = torch.stack([model[buffer] for model in ended])
        found = after["params"][buffer]
        assert bool((found <= each.max(0).values + 1e-12).all())
        assert bool((found >= each.min(0).values - 1e-12).all())
