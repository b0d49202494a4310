"""Frozen parameters and constant buffers stay as they are with every method and executor."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, play
from fedrepro.engine import tree
from fedrepro.engine.executor_facts import FACTS, PER_CLIENT, STACKED
from fedrepro.engine.executors import EXECUTORS, eager, sequential
from fedrepro.engine.net import Net, Own
from fedrepro.engine.round import Federation, context_of
from fedrepro.methods import registry
from fedrepro.models.classifier import Classifier
from fedrepro.run.store import digest_of, refuse_other_constants
from fedrepro.support.errors import UserError
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation

METHODS = sorted(name for name, part in registry.parts().items() if part.kind == "method")
WRAPPED = ["ima+scaffold", "aaggff_d+fedprox", "top_k+fedavg", "krum+fedavg", "fedavg+fedadam"]
FROZEN = ("body.0.weight", "body.0.bias", "body.1.mean")


class Centred(nn.Module):
    """Subtracts a constant, which is a buffer."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((8,), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.mean


def model() -> nn.Module:
    body = nn.Sequential(nn.Linear(FEATURES, 8), Centred(), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    body[0].requires_grad_(False)
    return Classifier(body, nn.Linear(8, CLASSES)).double()


def world_of(name: str) -> Federation:
    few = {"ditto": {"personal_epochs": 1}, "fedrep": {"body_epochs": 1}}
    part = {name: few[name]} if name in few else None
    world = federation(name, part, momentum=0.9 * (name != "scaffnew"), weight_decay=0.1)
    net = Net(model(), own=Own(model, constant=frozenset(FROZEN[2:])))
    return replace(world, context=replace(world.context, net=net))


@pytest.mark.parametrize("execute", [sequential, eager])
@pytest.mark.parametrize("name", [*METHODS, *WRAPPED])
def test_what_is_frozen_is_neither_changed_nor_sent(name: str, execute: object) -> None:
    world = replace(world_of(name), execute=execute)
    net = world.context.net
    before = {leaf: net.module.state_dict()[leaf].clone() for leaf in FROZEN}
    try:
        world.method.check(context_of(world, 0, [0]))
        server, _, _ = play(world, until=3)
    except UserError as error:
        pytest.skip(str(error))
    for leaf, value in before.items():
        assert torch.equal(value, net.module.state_dict()[leaf]), leaf
    sent = [path for path, _ in tree.named(server) if path.endswith(FROZEN)]
    assert sent == []
    moved = server.get("params", {})
    if "body.3.weight" in moved and name not in ("lg_fedavg", "local"):
        assert not torch.equal(moved["body.3.weight"], world.initial["body.3.weight"])


@pytest.mark.parametrize("name", METHODS)
def test_the_names_of_constants_do_not_matter(name: str) -> None:
    """A method's other trees train, though the model has constants with the names of their leaves.

    Such as a buffer called `weight` with the weights of classes.
    """

    def build(constants: frozenset[str] = frozenset()) -> nn.Module:
        module = model()
        for path in constants:
            *parents, last = path.split(".")
            inner = module
            for parent in parents:
                if parent not in dict(inner.named_children()):
                    inner.add_module(parent, nn.Module())
                inner = inner.get_submodule(parent)
            inner.register_buffer(last, torch.ones(2))
        return module

    def played(constants: frozenset[str] = frozenset()) -> dict[str, Tensor]:
        of_constants = partial(build, constants)
        with torch.random.fork_rng([]):
            torch.manual_seed(1)
            module = of_constants()
        net = Net(module, own=Own(of_constants, constant=frozenset(FROZEN[2:]) | constants))
        world = world_of(name)
        world = replace(world, context=replace(world.context, net=net))
        world.method.check(context_of(world, 0, [0]))
        server, own, _ = play(world, until=2)
        known = {str(client): state for client, state in own.known.items()}
        return dict(tree.named({"server": server, "clients": known}))

    try:
        usual = played()
    except UserError as error:
        pytest.skip(str(error))
    names = {path.rpartition("/")[2] for path in usual}
    taken = build()
    own = {*dict(taken.named_parameters()), *dict(taken.named_buffers())}
    free = frozenset(each for each in names - own if not hasattr(taken, each))
    found = played(free)
    assert found.keys() == usual.keys()
    for path, leaf in usual.items():
        assert torch.equal(found[path], leaf), path


def test_frozen_parameters_are_as_if_they_were_constants_of_the_code() -> None:
    """A model whose first layer is arithmetic, not parameters, trains to the same bits."""
    world = world_of("fedavg")
    first = world.context.net.module.get_submodule("body.0")

    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, first.weight, first.bias)  # type: ignore[arg-type]

    body = nn.Sequential(Fixed(), Centred().double(), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    other = replace(
        world,
        context=replace(world.context, net=Net(Classifier(body, nn.Linear(8, CLASSES)).double())),
    )
    other.__dict__["initial"] = world.initial | {"body.1.mean": body[1].mean.clone()}
    server, _, _ = play(world, until=3)
    theirs, _, _ = play(other, until=3)
    assert_close(server["params"], {name: theirs["params"][name] for name in server["params"]}, 0)


def test_a_file_of_a_model_and_what_is_frozen_are_all_of_it() -> None:
    net = world_of("fedavg").context.net
    params = net.init(torch.Generator().manual_seed(1))
    assert net.constants().keys() == set(FROZEN)
    assert params.keys() | set(FROZEN) == net.module.state_dict().keys()
    assert net.constants("body").keys() == {"0.weight", "0.bias", "1.mean"}
    refuse = partial(refuse_other_constants, net.module, params, where="here")
    facts = {"constants": digest_of(net.constants())}
    refuse(facts=facts)
    with torch.no_grad():
        net.module.get_buffer("body.1.mean").add_(1e-6)
    for other in (facts, {}):
        with refused(names=("here", "parameters")):
            refuse(facts=other)


def test_a_constant_that_changes_after_all_is_an_error() -> None:
    class Late(Centred):
        def forward(self, x: Tensor) -> Tensor:
            self.mean.add_(1.0)
            return x

    net = Net(
        nn.Sequential(nn.Linear(8, 8), Late()), own=Own(nn.Identity, constant=frozenset({"1.mean"}))
    )
    with refused(names=("1", "training")), net.drawing_from(1):
        net.module(torch.zeros(2, 8))


def test_all_executors_are_covered_here() -> None:
    """Others have the bits of one of these."""
    assert EXECUTORS.keys() == FACTS.keys()
    assert {facts.arithmetic for facts in FACTS.values()} == {PER_CLIENT, STACKED}
