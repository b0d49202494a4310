"""Convolutions channels_last in memory, which nothing outside can tell, and in bfloat16."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import Data, play
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Executor, Parallel, eager, sequential
from fedrepro.engine.method import Method, Steps, Tree, descend, differentiate
from fedrepro.engine.net import Net
from fedrepro.engine.optim import Optimizer, adam, sgd
from fedrepro.engine.round import Federation
from fedrepro.methods import registry
from fedrepro.models import registry as models
from fedrepro.models.classifier import Classifier
from fedrepro.run.networks import laid_out
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation

METHODS = [
    name
    for name, part in registry.parts().items()
    if part.kind == "method" and not part.cls.centralized and not part.cls.requires
]
SHAPE, SIZES = (2, 14, 14), (4, 3, 5)


def module(dtype: torch.dtype = torch.float64) -> nn.Module:
    return models.build("small_bn_cnn", SHAPE, 3).to(dtype)


def convolving(name: str, net: nn.Module, optimizer: Optimizer | None = None) -> Federation:
    rng, dtype = stream(1, "images"), next(net.parameters()).dtype
    images = [
        (torch.rand(size, *SHAPE, generator=rng, dtype=dtype), torch.arange(size) % 3)
        for size in SIZES
    ]
    world = federation(name, cohort=2)
    context = replace(
        world.context,
        net=Net(net),
        clients=len(SIZES),
        batch_size=2,
        optimizer=optimizer or world.context.optimizer,
    )
    return replace(world, context=context, clients=Data(images))


@dataclass(frozen=True)
class Scaled(Method):
    """Clients learn a factor of each parameter, by its name: alone, or beside other trees."""

    beside: bool = False

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        def loss(params: Tree) -> Tensor:
            return ctx.task.loss(ctx.net(self.model(message, params), batch["x"]), batch)

        return differentiate(loss, params)

    def model(self, message: Tree, params: Tree) -> Tree:
        factors = params["factors"] if self.beside else params
        return {name: leaf * factors[name] for name, leaf in message["params"].items()}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        start = tree.apply(lambda leaf: leaf.new_ones(()), message["params"])
        start = {"factors": start} if self.beside else start
        params, _ = descend(ctx, self.gradient, message, client_state, start, steps)
        return {"delta": tree.subtract(message["params"], self.model(message, params))}, params


@pytest.mark.parametrize("beside", [False, True])
def test_a_number_for_each_layer_by_its_name_is_no_layer(beside: bool) -> None:
    """It stays a number with every executor and format in memory, and trains."""

    def ended(form: torch.memory_format, execute: Executor) -> tuple[Tree, dict[str, Tree]]:
        body = nn.Sequential(nn.Conv2d(2, 3, 5), nn.Tanh(), nn.Flatten())
        net = Classifier(body, nn.Linear(300, 3)).double().to(memory_format=form)
        made = convolving("fedavg", net)
        server, own, _ = play(replace(made, method=Scaled(beside=beside), execute=execute), until=2)
        return server["params"], {str(client): each for client, each in own.known.items()}

    usual = ended(torch.contiguous_format, eager)
    for factor in tree.leaves(usual[1]):
        assert factor.shape == () and factor != 1
    for form in (torch.contiguous_format, torch.channels_last):
        for execute in (sequential, eager):
            for found, expected in zip(ended(form, execute), usual, strict=True):
                assert_close(found, expected, 1e-9)


def test_the_table_says_which_models() -> None:
    def formats(name: str) -> set[bool]:
        built = laid_out(models.build(name, (1, 28, 28), 10), name)
        return {leaf.is_contiguous() for leaf in built.parameters()}

    assert formats("ima_fmnist_cnn") == {True, False}
    assert formats("superfed_vgg9") == {True} == formats("twonn")


def test_initial_weights_are_the_same() -> None:
    turned = Net(module().to(memory_format=torch.channels_last))
    first, expected = turned.init(stream(1, "init")), Net(module()).init(stream(1, "init"))
    assert_close(first, expected, 0)
    assert all(leaf.is_contiguous() for leaf in tree.leaves(first))
    assert not turned.module.get_submodule("body")[0].weight.is_contiguous()  # type: ignore[index]


def test_what_others_made_is_looked_at_in_the_same_format() -> None:
    """Teachers' weights, say; one input channel has strides of its own in either format."""
    net = Net(models.build("small_bn_cnn", (1, 14, 14), 3).to(memory_format=torch.channels_last))
    params, x = net.init(stream(1, "init")), torch.rand(4, 1, 14, 14)
    formats = []
    hook = net.module.get_submodule("body")[0].register_forward_hook(  # type: ignore[index]
        lambda _, __, found: formats.append(found.is_contiguous(memory_format=torch.channels_last))
    )
    found = net.predict(params, x)
    hook.remove()
    assert formats == [True]
    assert torch.equal(found, net.predict(net.bind(params), x))


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedasam", "ditto", "ima+superfed_mm"])
@pytest.mark.parametrize("optimizer", [sgd(0.9, 0.01), adam()], ids=["sgd", "adam"])
def test_it_learns_the_same(name: str, optimizer: Optimizer) -> None:
    expected, theirs, _ = play(convolving(name, module(), optimizer), until=2)
    turned = module().to(memory_format=torch.channels_last)
    found, client_states, _ = play(convolving(name, turned, optimizer), until=2)
    assert_close(found, expected)
    assert_close(dict(client_states.known), dict(theirs.known))
    assert all(leaf.is_contiguous() for leaf in tree.leaves(dict(client_states.known)))
    assert all(leaf.is_contiguous() for leaf in tree.leaves(found))


@pytest.mark.parametrize("name", METHODS)
def test_clients_side_by_side_learn_the_same(name: str) -> None:
    def small() -> nn.Module:
        body = nn.Sequential(nn.Conv2d(SHAPE[0], 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        return Classifier(body, nn.Linear(4 * 6 * 6, 3)).to(torch.float64)

    expected, _, _ = play(convolving(name, small()), until=2)
    turned = convolving(name, small().to(memory_format=torch.channels_last))
    found, _, _ = play(replace(turned, execute=eager), until=2)
    assert_close(found, expected, 1e-7)  # FedDisco's weights are computed in float32


@pytest.mark.parametrize("name", ["scaffold", "ima+superfed_mm"])
def test_neither_processes_nor_a_file_between_rounds_change_a_bit(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    # In float32, which has convolutions of its own for each format.
    turned = module(torch.float32).to(memory_format=torch.channels_last)
    world = convolving(name, turned)
    server, client_states, _ = play(world, until=3)
    distributed, dealt_states, _ = play(replace(world, execute=Parallel(2)), until=3)
    assert_close(distributed, server, 0)
    assert_close(dict(dealt_states.known), dict(client_states.known), 0)
    half, known, done = play(world, until=1)
    save_tree(tmp_path / "server", half)
    for client, client_state in known.known.items():
        save_tree(tmp_path / "own", client_state)
        known.known[client] = load_tree(tmp_path / "own")[0]
    resumed, _, _ = play(world, until=3, state=(load_tree(tmp_path / "server")[0], known, done))
    assert_close(resumed, server, 0)


def test_bfloat16_is_for_training_passes_only() -> None:
    net, exact = Net(module(torch.float32), "bfloat16"), Net(module(torch.float32))
    params = exact.init(stream(1, "init"))
    x = torch.rand(4, *SHAPE, generator=stream(1, "x"))
    for bound in (False, True):
        low, high = (each(each.bind(params) if bound else params, x) for each in (net, exact))
        assert low.dtype == torch.float32
        # 8 bits of precision.
        assert 1e-5 < float(((low - high).abs().max() / high.abs().max()).detach()) < 0.03
    features, outputs = net.features_and_output(params, x)
    assert features.dtype == outputs.dtype == torch.float32
    assert not torch.equal(features, exact.features(params, x))
    assert torch.equal(net.predict(params, x), exact.predict(params, x))


@pytest.mark.parametrize("name", ["fedavg", "superfed_mm"])
def test_bfloat16_has_the_same_bits_by_two_processes(name: str) -> None:
    world = convolving(name, module(torch.float32))
    net = Net(module(torch.float32).to(memory_format=torch.channels_last), "bfloat16")
    low = replace(world, context=replace(world.context, net=net))
    server, _, _ = play(low, until=2)
    distributed, _, _ = play(replace(low, execute=Parallel(2)), until=2)
    assert_close(distributed, server, 0)
    assert all(leaf.dtype != torch.bfloat16 for leaf in tree.leaves(server))
    other, _, _ = play(world, until=2)
    assert not torch.equal(server["params"]["head.weight"], other["params"]["head.weight"])
    smooth = Net(models.build("superfed_twonn", SHAPE, 3), "bfloat16")
    stacked = replace(low, context=replace(low.context, net=smooth), execute=eager)
    with refused(file="executor", value="vectorised", names="`precision`"):
        play(stacked, until=1)
