"""What holds for every method, every wrapper on every method, and every server optimizer.

A new method gets these tests by being in its folder; nothing here names one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check import suite
from fedrepro.check.world import CLASSES, FEATURES, play
from fedrepro.engine import tree
from fedrepro.engine.method import Wrapper
from fedrepro.engine.net import Net, Own
from fedrepro.engine.round import context_of
from fedrepro.methods import registry
from fedrepro.models.classifier import Classifier
from support.closeness import assert_close
from support.worlds import federation, trial_of


def compositions() -> Iterator[str]:
    parts = registry.parts()
    methods = [name for name, part in parts.items() if part.kind == "method"]
    wrappers = [part for part in parts.values() if part.kind == "wrapper"]
    yield from methods
    yield from (f"fedavg+{name}" for name, part in parts.items() if part.kind.startswith("server"))
    for part in parts.values():
        if part.cls.deviations() and part.kind != "pre-training":
            before = "fedavg+" if part.kind.startswith("server") else ""
            yield f"{before}{part.name}@released"
    for wrapper in wrappers:
        inner = [
            name
            for name in methods
            if not parts[name].cls.own_classifier and wrapper.cls.refuses(parts[name].cls()) is None
        ]
        yield from (f"{wrapper.name}+{name}" for name in met(wrapper.cls, inner))
        released = "@released" if wrapper.cls.deviations() else ""
        yield f"{wrapper.name}{released}+fedadam"
        if wrapper.cls.refuses(parts["scaffold"].cls()) is None:
            yield f"{wrapper.name}+scaffold+fedyogi"
        inner = [part.name for part in wrappers if wrapper.cls.refuses(part.cls()) is None]
        yield from (f"{wrapper.name}+{name}+fedavg" for name in unlike(inner))


def unlike(wrappers: list[str]) -> list[str]:
    """One of those that have their own of the same hooks, as the five of robust aggregation do."""
    parts = registry.parts()
    hooks = (*OF_CLIENTS, *NOT_OF_CLIENTS)
    kinds = {
        tuple(getattr(parts[name].cls, hook) is getattr(Wrapper, hook) for hook in hooks): name
        for name in reversed(wrappers)
    }
    return [*kinds.values()]


def met(wrapper: type[Any], methods: list[str]) -> list[str]:
    """The methods around which a wrapper is tried: all, if it changes what clients do.

    To one that acts on the server alone, methods with the same hooks there are alike: one of each.
    So are they to one that does at clients what another before it does, or what their common base
    does, as compressing does. To one that has all hooks of another before it, as trimmed means have
    those of the median, FedAvg is enough.
    """
    parts = registry.parts()
    alike = [part.cls for part in parts.values() if hooks_of(part.cls) == hooks_of(wrapper)]
    if alike[0] is not wrapper:
        return ["fedavg"]
    wrappers = (part.cls for part in parts.values() if part.kind == "wrapper")
    same = (
        cls
        for cls in wrappers
        if of_clients(cls) == of_clients(wrapper) or first_of(cls) is first_of(wrapper)
    )
    if next(same) is wrapper and of_clients(wrapper) != of_clients(Wrapper):
        return methods
    kinds = {
        tuple(getattr(parts[name].cls, hook) for hook in NOT_OF_CLIENTS): name
        for name in reversed(methods)
    }
    return [*kinds.values()]


def of_clients(part: type[Any]) -> list[Any]:
    return [getattr(part, hook) for hook in OF_CLIENTS]


def first_of(wrapper: type[Any]) -> type[Any]:
    """The first of its bases that wraps: the wrapper itself, or what it shares with others."""
    return [cls for cls in wrapper.__mro__ if issubclass(cls, Wrapper) and cls is not Wrapper][-1]


def hooks_of(part: type[Any]) -> list[Any]:
    return [getattr(part, hook, None) for hook in (*OF_CLIENTS, *NOT_OF_CLIENTS)]


OF_CLIENTS = ("broadcast", "init_client", "sample_round", "sample_steps", "client_update")
NOT_OF_CLIENTS = ("init_server", "init_client", "broadcast", "aggregation_weights", "server_update")
ALL = sorted(set(compositions()))


def test_the_list_is_not_empty() -> None:
    assert {"fedavg", "fedprox", "scaffold", "fednova", "central", "ima+scaffold"} <= set(ALL)
    assert {"ima+fedfa", "ima+aaggff_d+fedavg", "krum+norm_clip+fedavg"} <= set(ALL)


SINGLE = [name for name in ALL if not {"+", "@"} & set(name)]
# That it learns, a stronger test says of all compositions.
ELSEWHERE = (*suite.TOGETHER, suite.it_learns)
OF_SINGLE = [check for check in suite.ALL_OF.values() if check not in ELSEWHERE]


class Scaled(nn.Module):
    """A layer whose outputs are scaled by a number that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(FEATURES, 8), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x) * self.scale).tanh()


@pytest.mark.parametrize("name", [name for name in ALL if name.count("+") < 2])
def test_a_parameter_may_be_a_single_number(name: str) -> None:
    """It ended in an error in methods that take norms of updates."""
    own = Own(lambda: Classifier(Scaled(), nn.Linear(8, CLASSES)).double())
    world = federation(name)
    world = replace(world, context=replace(world.context, net=Net(own.build(), own=own)))
    server, _, _ = play(world, until=1)
    assert tree.all_finite(server)


OF_EXECUTION = (suite.executors_agree, suite.processes_change_no_bit)


def clients_run_as_alone(name: str) -> bool:
    """Whether all its wrappers act on the server alone, and its method is not FedAvg.

    How clients are executed is then tested with the method by itself, and with FedAvg wrapped.
    """
    *parts, _ = name.replace("@released", "").split("+")
    wrappers = [registry.parts()[part] for part in parts]
    alike = all(of_clients(part.cls) == of_clients(Wrapper) for part in wrappers)
    return bool(wrappers) and alike and not name.endswith("+fedavg")


def sent_as_elsewhere(name: str) -> bool:
    """Whether what goes to processes is tested with its method alone, and with FedAvg wrapped."""
    return "+" in name and not name.endswith("+fedavg")


# One test for all of them: each looks at the same rounds, which are played once.
@pytest.mark.parametrize("name", ALL)
def test_it_has_the_properties_and_learns(name: str) -> None:
    trial = trial_of(name)
    for check in suite.TOGETHER:
        if not (check in OF_EXECUTION and clients_run_as_alone(name)) and not (
            check is suite.processes_change_no_bit and sent_as_elsewhere(name)
        ):
            check(trial)
    before, after = suite.accuracies(trial)
    # Two server optimizers' default rate is too high here: behind AdaGrad, and behind Krum, which
    # follows one client.
    least = 0.65 if name in ("fedavg+fedadagrad", "krum+fedadam") else 0.85
    assert before < 0.5 and after > least


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("check", OF_SINGLE, ids=lambda check: check.__name__)
def test_a_single_method_has_the_property(check: Callable[[suite.Trial], None], name: str) -> None:
    try:
        check(trial_of(name))
    except suite.NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("ima")])
def test_a_wrapper_goes_on_from_the_method_that_it_begins_as(name: str) -> None:
    """To the bit, from any round up to the last that it names; from later ones it is another."""
    world = federation(name, {"ima": {"start": 0.7, "window": 3}})
    inner, rounds = world.method.shared_prefix(world.context.rounds)
    assert rounds == 2
    server, client_states, _ = play(world)
    theirs_alone = replace(world, method=inner)
    before = play(theirs_alone, until=0)
    for until in (1, rounds, rounds + 2):
        before = theirs, known, done = play(theirs_alone, until=until, state=before)
        begun = world.method.from_parent(context_of(world, 0, [0]), theirs)
        resumed, resumed_states, _ = play(world, state=(begun, known, done))
        if until > rounds:
            assert not torch.equal(flat(server["params"]), flat(resumed["params"]))
        else:
            assert_close(server["params"], resumed["params"], 0)
            assert client_states.known.keys() == resumed_states.known.keys()
            for client, client_state in client_states.known.items():
                assert_close(client_state, resumed_states.known[client], 0)


def flat(params: tree.Tree) -> torch.Tensor:
    return torch.cat([leaf.flatten() for leaf in tree.leaves(params)])
