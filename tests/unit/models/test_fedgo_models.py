"""FedGO's networks: sizes and costs against the released code's and the paper's (Table 14)."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from fedrepro.engine.initialise import initialise
from fedrepro.engine.net import Net
from fedrepro.models import registry as models
from fedrepro.models.adversaries import Adversaries, _MeanPool
from fedrepro.papers.fedgo import study_cost
from fedrepro.support.errors import UserError
from fedrepro.support.rng import stream

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden/architectures.json").read_text(encoding="utf-8")
)
IMAGE = (3, 32, 32)


def assert_as_counted(module: nn.Module, shape: tuple[int, ...], golden: str) -> None:
    expected = GOLDEN[golden]
    assert study_cost.parameters(module) == expected["params"]
    assert study_cost.weights(module) == expected["conv_linear_weight_params"]
    assert study_cost.multiply_adds(module, shape) == expected["macs"]
    # The golden size is that of a file, which also has names and numbers of batches.
    assert 0.99 < study_cost.sent_bytes(module) / expected["state_dict_bytes"] < 1


@pytest.mark.parametrize(
    ("name", "outputs", "golden"),
    [
        ("resnet18", 10, "resnet18_10"),
        ("resnet18", 100, "resnet18_100"),
        ("resnet50", 10, "resnet50_10"),
        ("vgg11", 10, "vgg11_bn"),
        ("discriminator_cnn", 1, "disc_cnn_last_4_1_0"),
        ("discriminator_cnn_mlp", 1, "disc_cnn_mlp"),
    ],
)
def test_size_and_cost(name: str, outputs: int, golden: str) -> None:
    module = models.build(name, IMAGE, outputs)
    assert_as_counted(module, IMAGE, golden)
    module.eval()
    assert module(torch.zeros(2, *IMAGE)).shape == (2, outputs)


def test_adversaries() -> None:
    pair = models.build("wgan_gp_resnet", IMAGE, 1)
    assert isinstance(pair, Adversaries)
    assert_as_counted(pair.generator, (pair.latent,), "wgan_gp_resnet_generator")
    assert_as_counted(pair.critic, IMAGE, "wgan_gp_resnet_critic")


@pytest.mark.parametrize(
    ("name", "weights", "multiply_adds"),
    [
        ("discriminator_cnn", 662_528, 17.6e6),
        ("discriminator_cnn_mlp", 142_336, 9.18e6),
        ("discriminator_resnet8", 1_230_528, 51.1e6),
    ],
)
def test_table_14(name: str, weights: int, multiply_adds: float) -> None:
    """The printed MFLOPs are multiply-adds (A2)."""
    module = models.build(name, IMAGE, 1)
    assert study_cost.weights(module) == weights
    assert float(f"{study_cost.multiply_adds(module, IMAGE):.3g}") == multiply_adds


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("small_bn_cnn", 10, 20_538),
        ("strided_bn_cnn", 10, 20_538),
        ("discriminator_small", 1, 10_080),
    ],
)
def test_small_networks(name: str, shape: int, parameters: int) -> None:
    assert study_cost.parameters(models.build(name, (1, 28, 28), shape)) == parameters


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("discriminator_cnn", IMAGE),
        ("discriminator_cnn_mlp", IMAGE),
        ("discriminator_resnet8", IMAGE),
        ("discriminator_small", (1, 28, 28)),
    ],
)
def test_discriminators_give_one_number_between_0_and_1(name: str, shape: tuple[int, ...]) -> None:
    net = Net(models.build(name, shape, 1))
    params = net.init(stream(1, "init"))
    given = net(params, torch.randn(4, *shape, generator=stream(1, "x")))
    assert given.shape == (4, 1)
    assert ((given > 0) & (given < 1)).all()
    assert net.head(params) and net.features(params, torch.zeros(2, *shape)).shape[0] == 2


@pytest.mark.parametrize("name", ["wgan_gp_resnet", "wgan_gp_small"])
def test_generators_make_images_of_the_critics_shape(name: str) -> None:
    shape = IMAGE if name.endswith("resnet") else (1, 28, 28)
    pair = models.build(name, shape, 1)
    assert isinstance(pair, Adversaries)
    params = Net(pair).init(stream(1, "init"))
    pair.load_state_dict(params, strict=False)
    images = pair.generator(torch.randn(3, pair.latent, generator=stream(1, "z")))
    assert images.shape == (3, *shape) and float(images.detach().abs().max()) <= 1
    assert pair(images).shape == (3, 1)
    # No critic may mix samples: its penalty is on each sample's own gradient.
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in pair.critic.modules())


def test_discriminators_start_as_dcgan() -> None:
    params = Net(models.build("discriminator_cnn", IMAGE, 1)).init(stream(1, "init"))
    weight, scale = params["body.5.weight"], params["body.6.weight"]
    assert weight.shape == (256, 128, 4, 4) and scale.shape == (256,)
    assert float(weight.std()) == pytest.approx(0.02, rel=0.01)
    assert float(scale.std()) == pytest.approx(0.02, rel=0.25)
    assert float(scale.mean()) == pytest.approx(1, abs=0.01)
    assert (params["body.6.bias"] == 0).all()


def test_transposed_convolutions_start_as_in_pytorch() -> None:
    """U(-b, b) with b = 1 / sqrt(outputs * kernel), as ``reset_parameters`` draws."""
    layer, theirs = nn.ConvTranspose2d(40, 10, 5), nn.ConvTranspose2d(40, 10, 5)
    with torch.no_grad():
        initialise(layer, stream(1, "init"))
    bound = (10 * 25) ** -0.5
    for each in (layer, theirs):
        assert bound * 0.99 < float(each.weight.detach().abs().max()) <= bound
        assert float(each.bias.detach().abs().max()) <= bound
    assert not torch.equal(layer.weight, theirs.weight)


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "line"),
    [
        ("resnet18", (10,), 10, "input shape"),
        ("vgg11", (3, 16, 16), 10, "input shape"),
        ("small_bn_cnn", (1, 3, 3), 10, "input shape"),
        ("discriminator_cnn", (1, 28, 28), 1, "32 x 32"),
        ("discriminator_cnn", IMAGE, 10, "outputs: 10: expected 1"),
        ("wgan_gp_resnet", (1, 28, 28), 1, "32 x 32"),
        ("wgan_gp_small", IMAGE, 1, "28 x 28"),
        ("wgan_gp_small", (1, 28, 28), 10, "outputs: 10: expected 1"),
    ],
)
def test_what_does_not_fit(name: str, shape: tuple[int, ...], outputs: int, line: str) -> None:
    with pytest.raises(UserError, match=line):
        models.build(name, shape, outputs)


def test_a_critic_s_score_is_of_the_mean_over_pixels() -> None:
    """So that an image of twice the height scores alike where all its pixels do."""
    pool = _MeanPool()
    assert torch.equal(pool(torch.full((2, 3, 4, 5), 7.0)), torch.full((2, 3), 7.0))
    assert not pool(torch.full((2, 3, 4, 5), -7.0)).any()
