"""On a GPU, if there is one: the CPU's numbers but for rounding, and the same bits each time."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from fedrepro.check.world import Data, play
from fedrepro.engine import tree
from fedrepro.engine.context import LoadedArtifact
from fedrepro.engine.executors import Executor, eager, sequential, unrolled
from fedrepro.engine.net import Net, Precision, differentiate
from fedrepro.engine.round import Federation
from fedrepro.models import registry as models
from fedrepro.run import devices
from fedrepro.run.networks import laid_out
from fedrepro.support.rng import stream
from support import tiny_run
from support.closeness import assert_close
from support.on_device import all_of_it, compositions, on_device, two_rounds
from support.pretraining_worlds import WORLDS
from support.worlds import federation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = "cuda"
SIDE_BY_SIDE = ("scaffold", "superfed_mm")  # what an executor does is the same for all


@pytest.fixture(autouse=True)
def ready() -> None:
    devices.prepare(GPU)


def on_gpu(world: Federation) -> Federation:
    return on_device(world, lambda leaf: leaf.to(GPU), lambda module: module.to(GPU))


def fetched(what: tree.Tree) -> tree.Tree:
    return tree.apply(lambda leaf: leaf.cpu(), what)


@pytest.mark.parametrize(
    ("name", "execute"),
    [(name, sequential) for name in sorted(compositions())]
    + [(name, execute) for name in SIDE_BY_SIDE for execute in (eager, unrolled)],
)
def test_a_method_agrees_with_the_cpu(name: str, execute: Executor) -> None:
    def world() -> Federation:
        return federation(name, cohort=2, rounds=2, execute=execute)

    expected, their_states, model = two_rounds(world())
    found, client_states, our_model = two_rounds(on_gpu(world()))
    assert all(leaf.device.type == GPU for leaf in tree.leaves(our_model))
    assert_close(fetched(found), expected)
    assert_close(fetched(our_model), model)
    assert_close(fetched(dict(client_states.known)), dict(their_states.known))


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_made_before_a_run_agrees_with_the_cpu(name: str) -> None:
    found, expected = all_of_it(on_gpu(WORLDS[name]())), all_of_it(WORLDS[name]())
    assert all(leaf.device.type == GPU for leaf in tree.leaves(found["product"]))
    assert_close(fetched(found), expected)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mcmahan_cnn", (1, 28, 28)),
        ("small_bn_cnn", (1, 28, 28)),
        ("ima_cifar_cnn", (3, 32, 32)),
        ("ima_vgg11", (3, 32, 32)),
        ("ima_alexnet", (3, 224, 224)),
        ("ima_resnet18", (3, 32, 32)),
        ("celeba_cnn", (3, 84, 84)),
        ("m5", (1, 16_000)),
        ("superfed_resnet9", (3, 28, 28)),
        ("superfed_mobilenet", (3, 64, 64)),
        ("resnet50", (3, 32, 32)),
        ("stacked_lstm", (10,)),
        ("next_char_lstm", (80,)),
    ],
)
def test_a_model_has_the_cpu_s_gradients_and_repeats_its_bits(
    name: str, shape: tuple[int, ...]
) -> None:
    """The first in float64, where no unit's choice hangs on rounding; the second in float32."""
    words = len(shape) == 1
    draws = stream(1, "x")
    inputs = (
        torch.randint(50, (8, *shape), generator=draws, dtype=torch.int32)
        if words
        else torch.randn(8, *shape, generator=draws)
    )

    def gradients(device: str, dtype: torch.dtype) -> tree.Tree:
        module = models.build(name, shape, 60)
        module.load_state_dict(Net(module).init(stream(2, "init")))
        module = module.to(device, dtype).train()
        logits = module(inputs.to(device) if words else inputs.to(device, dtype))
        targets = torch.arange(logits.numel() // 60, device=device) % 60
        functional.cross_entropy(logits.reshape(-1, 60), targets).backward()
        return {
            key: leaf.grad.cpu() for key, leaf in module.named_parameters() if leaf.grad is not None
        }

    assert_close(gradients(GPU, torch.float64), gradients("cpu", torch.float64))
    one, two = (gradients(GPU, torch.float32) for _ in range(2))
    assert_close(one, two, 0)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(32, 64, 5), (32, 28, 28)),
        (nn.Conv2d(64, 64, 3, padding=1), (64, 14, 14)),
        (nn.Conv1d(16, 64, 80, stride=4), (16, 800)),
        (nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), (64, 7, 7)),
        (nn.Linear(784, 200), (784,)),
    ],
)
def test_layers_compute_in_float32_not_in_tf32(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """Outputs and gradients. TF32, which is PyTorch's default, is off by 3e-4."""
    x = torch.randn(8, *shape, generator=stream(1, "x"))

    def pass_through(device: str, dtype: torch.dtype) -> torch.Tensor:
        here = layer.to(device, dtype)
        y = here(x.to(device, dtype))
        (slope,) = torch.autograd.grad(y.square().sum(), here.get_parameter("weight"))
        return torch.cat([each.flatten().double().cpu() for each in (y, slope)])

    expected = pass_through("cpu", torch.float64)
    error = (pass_through(GPU, torch.float32) - expected).norm() / expected.norm()
    assert error < 1e-5


PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16")


def convolutional(precision: Precision) -> tuple[Net, torch.Tensor]:
    """A network with BatchNorm as a run lays it out, and mini-batches of 50 samples."""
    module = models.build("small_bn_cnn", (3, 32, 32), 10).to(GPU, torch.float32)
    net = Net(laid_out(module, "small_bn_cnn", precision=precision), precision)
    return net, torch.randn(50, 3, 32, 32, generator=stream(1, "x")).to(GPU, torch.float32)


def test_precisions_are_those_of_steps_alone() -> None:
    """8, 11 and 24 bits, in outputs and gradients; tested in 24 bits, also within a step."""
    exact = Net(models.build("small_bn_cnn", (3, 32, 32), 10).to(GPU, torch.float64))
    start = exact.init(stream(2, "init"))
    y = torch.arange(50, device=GPU) % 10

    def of_step(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        params = net.bind(tree.apply(lambda leaf: leaf.to(x.dtype), start))
        with net.of_steps():
            tested = net.predict(params, x)
            outputs = net(params, x)
            slopes = differentiate(
                lambda moving: functional.cross_entropy(net({**params, **moving}, x), y),
                net.trainable(params),
            )
        parts = (outputs, *tree.leaves(slopes))
        return tested.detach().double(), torch.cat(
            [part.detach().double().flatten() for part in parts]
        )

    expected = of_step(exact, convolutional("float32")[1].double())
    found = {precision: of_step(*convolutional(precision)) for precision in PRECISIONS}
    tested, trained = (
        {
            name: float((each[place] - expected[place]).norm() / expected[place].norm())
            for name, each in found.items()
        }
        for place in (0, 1)
    )
    assert max(tested.values()) < 1e-5
    assert trained["float32"] < 1e-5
    assert 1e-5 < trained["tf32"] < trained["bfloat16"] / 2 < 0.1
    for precision in PRECISIONS:
        assert torch.equal(of_step(*convolutional(precision))[1], found[precision][1])
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["fedavg", "superfed_mm", "feddf"])
def test_a_federation_repeats_its_bits_in_each_precision(name: str, precision: Precision) -> None:
    def played() -> tree.Tree:
        net, x = convolutional(precision)
        world = federation(name, cohort=2)
        given = {"unlabelled": LoadedArtifact({"x": x.cpu()})} if name == "feddf" else {}
        images = Data([(x[first : first + 16].cpu(), torch.arange(16) % 10) for first in (0, 16)])
        context = replace(world.context, net=net, clients=2, artifacts=given)
        world = replace(world, clients=images, context=replace(context, batch_size=8))
        server, _, _ = play(on_device(world, lambda leaf: leaf.to(GPU), lambda each: each), until=2)
        return server

    one, two = played(), played()
    assert_close(one, two, 0)
    assert all(leaf.is_contiguous() for leaf in tree.leaves(one))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("aaggff_s+fedavg", {}),
        ("apfl", {}),
        ("scaffold", {"executor": "vectorised"}),
        ("fedavg+fedadam", {"optimizer": {"lr": 0.1, "momentum": 0.9}}),
    ],
)
def test_a_whole_run_repeats_its_bytes_and_resumes(
    name: str, keys: dict[str, object], tmp_path: Path
) -> None:
    torch.set_default_dtype(torch.float32)  # in which all runs compute; the fixture resets it
    keys = {"participation": 1.0, "rounds": 6, "evaluate": {"clients": True}, **keys}
    spec = tiny_run.run_spec(name, **keys, device=GPU)
    with pytest.raises(tiny_run.Stop):
        tiny_run.carry_out(tmp_path / "resumed", spec, tiny_run.stop_after(5))
    seen: list[int] = []
    tiny_run.carry_out(tmp_path / "resumed", spec, lambda each: seen.append(each.round))
    assert seen[0] > 1
    manifest = tiny_run.carry_out(tmp_path / "whole", spec)
    assert manifest["hardware"]["accelerator"] == torch.cuda.get_device_name()
    assert manifest["arithmetic"].endswith(", cuda without TF32")
    for file in ("model.safetensors", "rounds.parquet", "clients.parquet"):
        bytes_of = [(tmp_path / each / file).read_bytes() for each in ("whole", "resumed")]
        assert bytes_of[0] == bytes_of[1], file
    tiny_run.carry_out(tmp_path / "cpu", tiny_run.run_spec(name, **keys))
    ours, theirs = (load_file(tmp_path / each / "model.safetensors") for each in ("whole", "cpu"))
    assert_close(ours, theirs, 1e-4)
    loss, their_loss = (
        pd.read_parquet(tmp_path / each / "rounds.parquet")["test_loss"].to_numpy()
        for each in ("whole", "cpu")
    )
    assert loss == pytest.approx(their_loss, rel=1e-4)


def test_layers_that_draw_repeat_and_leave_the_generator_as_it_was() -> None:
    net = Net(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).to(GPU))
    net.module.train()
    x = torch.ones(4, 6, device=GPU)
    before = torch.cuda.get_rng_state()
    drawn = []
    for seed in (3, 3, 4):
        with net.drawing_from(seed):
            drawn.append(net.module(x))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert torch.equal(before, torch.cuda.get_rng_state())
