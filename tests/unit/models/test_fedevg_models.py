"""The networks of FedEvg and its baselines: sizes, shapes, what they refuse."""

import pytest
import torch
from torch import nn

from fedrepro.engine.net import Net
from fedrepro.models import registry as models
from fedrepro.models.conditional import AcGan, ConditionalAutoencoder
from fedrepro.papers.fedgo import study_cost
from fedrepro.support.errors import UserError
from fedrepro.support.rng import stream


@pytest.mark.parametrize(
    ("shape", "outputs", "parameters"),
    [
        ((1, 32, 32), 10, 4_979_914),  # 4.98 M
        ((3, 32, 32), 10, 4_981_066),
        ((3, 64, 64), 7, 5_128_519),  # DermaMNIST; 5.13 to 5.26 M
        ((1, 64, 64), 11, 5_258_443),  # OrganCMNIST
    ],
)
def test_resnet10(shape: tuple[int, ...], outputs: int, parameters: int) -> None:
    """As many as its layers come to by hand, the same for all three of its kinds."""
    side, channels = shape[1] // 8, shape[0]
    widths = [(64, 64), (64, 128), (128, 256), (256, 512)]
    by_hand = channels * 64 * 9 + 2 * 64 + 2 * 512 + (512 * side**2 + 1) * outputs
    by_hand += sum(9 * a * b + 9 * b * b + 4 * b + (a * b + 2 * b) * (a != b) for a, b in widths)
    for kind in ("", "_power", "_judge"):
        module = models.build(f"fedevg_resnet10{kind}", shape, outputs)
        assert study_cost.parameters(module) == by_hand == parameters
        assert module(torch.zeros(2, *shape)).shape == (2, outputs)


def test_energies_are_smooth_and_judges_are_not() -> None:
    for name in ("fedevg_resnet10", "fedevg_small"):
        for kind, judges in (("", False), ("_judge", True)):
            module = models.build(f"{name}{kind}", (1, 28, 28), 10)
            layers = {type(layer) for layer in module.modules()}
            assert (nn.ReLU in layers) is judges and (nn.SiLU in layers) is not judges


def test_the_small_one_and_its_start() -> None:
    net = Net(models.build("fedevg_small", (1, 28, 28), 10))
    assert study_cost.parameters(net.module) == 20_842
    judge = models.build("fedevg_small_judge", (1, 28, 28), 10)
    assert study_cost.parameters(judge) == 20_842 - 2 * (16 + 32)
    params = net.init(stream(1, "init"))
    assert (params["head.bias"] == 0).all()
    weight = params["head.weight"]
    assert float(weight.std()) == pytest.approx((2 / sum(weight.shape)) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("name", "side"), [("fedcgan", 32), ("fedcgan", 64), ("fedcgan_small", 28)]
)
def test_adversaries_with_classes(name: str, side: int) -> None:
    pair = models.build(name, (3, side, side), 7)
    assert isinstance(pair, AcGan) and pair.classes == 7
    made = pair.generator(torch.zeros(2, pair.latent + 7))
    assert made.shape == (2, 3, side, side) and pair(made).shape == (2, 8)


@pytest.mark.parametrize(
    ("name", "side"), [("fedcvae", 32), ("fedcvae", 64), ("fedcvae_small", 28)]
)
def test_conditional_autoencoders(name: str, side: int) -> None:
    pair = models.build(name, (3, side, side), 7)
    assert isinstance(pair, ConditionalAutoencoder) and pair.classes == 7
    made = pair.decoder(torch.zeros(2, pair.latent + 7))
    assert made.shape == (2, 3, side, side) and pair(made).shape == (2, 2 * pair.latent)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("fedcgan", (1, 28, 28)), ("fedcvae", (1, 48, 48)), ("fedcvae_small", (1, 32, 32)),
        ("fedcgan_small", (1, 28, 32)), ("fedevg_resnet10", (784,)),
    ],
)  # fmt: skip
def test_images_that_they_can_t_take(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="expected"):
        models.build(name, shape, 10)


def test_the_released_adversaries_have_so_many_parameters() -> None:
    for name, number in (("fedcgan", 2_931_083), ("fedcvae", 1_850_881)):
        assert study_cost.parameters(models.build(name, (1, 32, 32), 10)) == number


@pytest.mark.parametrize(("name", "scale"), [("fedcgan", 0.02), ("fedcvae", 1.0)])
def test_the_released_networks_start_as_in_the_released_code(name: str, scale: float) -> None:
    """Weights from N(0, 0.02) or Xavier-normal, no bias, and BatchNorm's scale from N(1, scale)."""
    net = Net(models.build(name, (1, 32, 32), 10))
    net.init(stream(1, "init"))
    scales = []
    for layer in net.module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            scales.append(layer.weight)
            assert not layer.running_mean.any() and not layer.bias.any()
        elif getattr(layer, "weight", None) is not None:
            weight = layer.weight
            fans = weight[0].numel() + weight[:, 0].numel()
            wanted = 0.02 if name == "fedcgan" else (2 / fans) ** 0.5
            assert float(weight.detach().std()) == pytest.approx(wanted, rel=0.1)
            assert layer.bias is None or not layer.bias.any()
    drawn = torch.cat(scales).detach()
    assert float(drawn.std()) == pytest.approx(scale, rel=0.1)
    assert float(drawn.mean()) == pytest.approx(1, abs=0.2 * scale)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Transposed 7x7, 4x4, 4x4 with BatchNorm after the first two; 4x4, 4x4 and linear.
        ("fedcgan_small", 65_888 + 64 + 8_208 + 32 + 257 + 272 + 8_224 + 17_259),
        ("fedcvae_small", 272 + 8_224 + 50_208 + 42_336 + 8_208 + 257),
    ],
)
def test_all_layers_of_the_small_adversaries_have_a_bias(name: str, parameters: int) -> None:
    assert study_cost.parameters(models.build(name, (1, 28, 28), 10)) == parameters
