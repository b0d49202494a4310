"""Each paper's networks layer by layer: kind, normalisation, bias, and the shape of every output.

Two networks with the same number of parameters may differ in all of these. The expected layers are
written by hand from the papers' text and, where it is silent, their released code; activations,
dropout and flattening are left out.

Notation: ``conv3`` is a 3 x 3 convolution, ``conv3/2`` of stride 2, ``conv3d`` depthwise, ``up4/2``
transposed; ``+`` means with a bias. ``group32`` is GroupNorm with 32 groups, ``batch`` BatchNorm
with running statistics, ``batch!`` without. ``max2`` and ``mean2`` pool, ``mean`` pools to a given
size. What follows is the output's shape without the number of samples; normalisations keep it.
"""

import pytest
import torch
from torch import nn

from fedrepro.models import registry as models
from fedrepro.models.layers import FieldMeans


def described(layer: nn.Module) -> str:
    """A layer in the notation above; empty for one that is left out."""
    match layer:
        case nn.Conv1d() | nn.Conv2d():
            depthwise = "d" if layer.groups > 1 else ""
            name = f"conv{layer.kernel_size[0]}{depthwise}"
        case nn.ConvTranspose2d():
            name = f"up{layer.kernel_size[0]}"
        case nn.Linear():
            return f"linear{'+' if layer.bias is not None else ''}"
        case nn.GroupNorm():
            return f"group{layer.num_groups}"
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            return "batch" if layer.track_running_stats else "batch!"
        case nn.MaxPool1d() | nn.MaxPool2d():
            return f"max{layer.kernel_size}"
        case nn.AvgPool2d():
            return f"mean{layer.kernel_size}"
        case nn.AdaptiveAvgPool1d() | nn.AdaptiveAvgPool2d() | FieldMeans():
            return "mean"
        case nn.Embedding():
            return "embedding"
        case nn.LSTM():
            return f"lstm{layer.num_layers}{'+' if layer.bias else ''}"
        case _:
            return ""
    stride = f"/{layer.stride[0]}" if layer.stride[0] > 1 else ""
    return f"{name}{stride}{'+' if layer.bias is not None else ''}"


def layers_of(module: nn.Module, x: torch.Tensor) -> list[str]:
    """The layers in the order in which they run on ``x``."""
    found: list[str] = []

    def note(layer: nn.Module, given: object, output: object) -> None:
        name = described(layer)
        made = output[0] if isinstance(output, tuple) else output
        assert isinstance(made, torch.Tensor)
        shape = "x".join(map(str, made.shape[1:]))
        found.append(name if name.startswith(("group", "batch")) else f"{name} {shape}")

    for layer in module.modules():
        if described(layer):
            layer.register_forward_hook(note)
    module.eval()
    with torch.no_grad():
        module(x)
    return found


def written(text: str) -> list[str]:
    return [each.strip() for each in text.replace("\n", " ").split("|")]


def residual(kernel: str, channels: int, side: int, norm: str, shortcut: str = "") -> str:
    """Two 3 x 3 convolutions and, if there is one, a 1 x 1 shortcut of the same output."""
    shape = f"{channels}x{side}x{side}"
    first = f"{kernel} {shape} | {norm} | conv3 {shape} | {norm}"
    return f"{first} | {shortcut} {shape} | {norm}" if shortcut else first


RESNET18_BLOCKS = ((64, 32, False), (128, 16, True), (256, 8, True), (512, 4, True))


def resnet18(norm: str, end: str) -> str:
    """He et al. for 32 x 32 pixels: a 3 x 3 stem, four pairs of blocks."""
    found = [f"conv3 64x32x32 | {norm}"]
    for channels, side, halves in RESNET18_BLOCKS:
        found.append(
            residual("conv3/2", channels, side, norm, "conv1/2")
            if halves
            else residual("conv3", channels, side, norm)
        )
        found.append(residual("conv3", channels, side, norm))
    return " | ".join([*found, "mean 512x1x1", end])


def bottleneck(channels: int, side: int, before: int, stride: str, shortcut: bool) -> str:
    wide = f"{4 * channels}x{side}x{side}"
    found = f"conv1 {channels}x{before}x{before} | batch | conv3{stride} {channels}x{side}x{side}"
    found += f" | batch | conv1 {wide} | batch"
    return f"{found} | conv1{stride} {wide} | batch" if shortcut else found


def resnet50() -> str:
    found, before = ["conv3 64x32x32 | batch"], 32
    for channels, side, blocks in ((64, 32, 3), (128, 16, 4), (256, 8, 6), (512, 4, 3)):
        stride = "/2" if side < before else ""
        found.append(bottleneck(channels, side, before, stride, True))
        found += [bottleneck(channels, side, side, "", False)] * (blocks - 1)
        before = side
    return " | ".join([*found, "mean 2048x1x1 | linear+ 10"])


def vgg11(norm: str, end: str) -> str:
    """Simonyan and Zisserman: five blocks, each ended by a pooling."""
    found, side = [], 32
    for block in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        found += [f"conv3+ {channels}x{side}x{side} | {norm}" for channels in block]
        side //= 2
        found.append(f"max2 {block[-1]}x{side}x{side}")
    return " | ".join([*found, end])


def evg_resnet10() -> str:
    """The thesis's chapter IV: a GroupNorm with half as many groups as channels per layer."""
    found = ["conv3 64x32x32 | group16"]
    for channels, side in ((64, 32), (128, 16), (256, 8), (512, 4)):
        kernel, shortcut = ("conv3/2", "conv1/2") if channels > 64 else ("conv3", "")
        found.append(residual(kernel, channels, side, f"group{channels // 2}", shortcut))
    return " | ".join([*found, "group64 | linear+ 10"])


LAYERS: dict[str, tuple[tuple[int, ...], int, str]] = {
    # AAggFF, Appendix C.2. Released poolings have a padding of 1.
    "celeba_cnn": (
        (3, 84, 84), 1,
        """conv3 32x84x84 | group32 | max2 32x43x43 | conv3 32x43x43 | group16 | max2 32x22x22
        | conv3 32x22x22 | group8 | max2 32x12x12 | conv3 32x12x12 | group4 | max2 32x7x7
        | mean 32x5x5 | linear+ 1""",
    ),
    "m5": (
        (1, 16_000), 35,
        """conv80/4+ 64x3981 | batch | max4 64x995 | conv3+ 64x995 | batch | max4 64x248
        | conv3+ 128x248 | batch | max4 128x62 | conv3+ 256x62 | batch | max4 256x15
        | mean 256x1 | linear+ 35""",
    ),
    "logistic": ((15,), 1, "linear+ 1"),
    # McMahan et al.
    "twonn": ((1, 28, 28), 10, "linear+ 200 | linear+ 200 | linear+ 10"),
    "mcmahan_cnn": (
        (1, 28, 28), 10,
        """conv5+ 32x28x28 | max2 32x14x14 | conv5+ 64x14x14 | max2 64x7x7
        | linear+ 512 | linear+ 10""",
    ),
    "stacked_lstm": ((10,), 10_000, "embedding 10x200 | lstm2+ 10x256 | linear+ 10x10000"),
    # IMA, Table IV, with the code's shapes (B10).
    "ima_fmnist_cnn": (
        (1, 28, 28), 10,
        """conv5+ 32x24x24 | max2 32x12x12 | conv5+ 32x8x8 | max2 32x4x4
        | linear+ 384 | linear+ 128 | linear+ 10""",
    ),
    "ima_cifar_cnn": (
        (3, 32, 32), 10,
        """conv5+ 64x28x28 | max2 64x14x14 | conv5+ 64x10x10 | max2 64x5x5
        | linear+ 384 | linear+ 128 | linear+ 10""",
    ),
    "ima_digits_cnn": (
        (3, 28, 28), 10,
        """conv5+ 64x28x28 | group2 | max2 64x14x14 | conv5+ 64x14x14 | group2 | max2 64x7x7
        | conv5+ 128x7x7 | group2 | max2 128x3x3 | linear+ 384 | linear+ 128 | linear+ 10""",
    ),
    "ima_vgg11": ((3, 32, 32), 100, vgg11("group2", "linear+ 128 | linear+ 100")),
    "ima_resnet18": ((3, 32, 32), 10, resnet18("group2", "linear+ 128 | linear+ 10")),
    "ima_alexnet": (
        (3, 224, 224), 7,
        """conv11/4+ 64x55x55 | group32 | max3 64x27x27 | conv5+ 192x27x27 | group32
        | max3 192x13x13 | conv3+ 384x13x13 | group32 | conv3+ 256x13x13 | group32
        | conv3+ 256x13x13 | group32 | max3 256x6x6 | mean 256x6x6
        | linear+ 1024 | linear+ 512 | linear+ 7""",
    ),
    # SuPerFed's released code: no biases, no running statistics.
    "superfed_twonn": ((1, 28, 28), 10, "linear 200 | linear 200 | linear 200 | linear 10"),
    "superfed_twonn_earlier": ((1, 28, 28), 10, "linear+ 200 | linear+ 200 | linear+ 10"),
    "superfed_twocnn": (
        (3, 28, 28), 10,
        """conv5 32x26x26 | max2 32x14x14 | conv5 64x12x12 | max2 64x7x7
        | linear 200 | linear 200 | linear 10""",
    ),
    "superfed_twocnn_earlier": (
        (3, 28, 28), 10,
        """conv5 32x26x26 | max2 32x14x14 | conv5 64x12x12 | max2 64x7x7
        | linear+ 200 | linear+ 10""",
    ),
    "superfed_resnet9": (
        (3, 28, 28), 100,
        " | ".join(
            [
                "conv3/2 64x14x14 | batch! | max3 64x7x7",
                residual("conv3", 64, 7, "batch!"),
                residual("conv3", 128, 7, "batch!", "conv1"),
                residual("conv3/2", 256, 4, "batch!", "conv1/2"),
                residual("conv3/2", 512, 2, "batch!", "conv1/2"),
                "mean 512x1x1 | linear 256 | linear 100",
            ]
        ),
    ),
    "superfed_mobilenet": (
        (3, 64, 64), 200,
        """conv3/2 32x32x32 | batch! | conv3d 32x30x30 | batch! | conv1 64x30x30 | batch!
        | conv3d/2 64x14x14 | batch! | conv1 128x14x14 | batch!
        | conv3d/2 128x6x6 | batch! | conv1 256x6x6 | batch!
        | conv3d 256x4x4 | batch! | conv1 512x4x4 | batch!
        | mean 512x1x1 | linear 256 | linear 200""",
    ),
    "superfed_vgg9": (
        (1, 28, 28), 62,
        """conv3 16x28x28 | max2 16x14x14 | conv3 32x14x14 | max2 32x7x7 | conv3 64x7x7
        | conv3 128x7x7 | max2 128x3x3 | conv3 256x3x3 | conv3 512x3x3 | max2 512x1x1
        | linear 256 | linear 62""",
    ),
    "next_char_lstm": ((80,), 100, "embedding 80x8 | lstm2 80x256 | linear 100"),
    # FedGO, section 4.1 and Appendix E.
    "resnet18": ((3, 32, 32), 10, resnet18("batch", "linear+ 10")),
    "resnet50": ((3, 32, 32), 10, resnet50()),
    "vgg11": ((3, 32, 32), 10, vgg11("batch", "linear+ 512 | linear+ 512 | linear+ 10")),
    "discriminator_cnn": (
        (3, 32, 32), 1,
        """conv4/2 64x16x16 | conv4/2 128x8x8 | batch | conv4/2 256x4x4 | batch
        | conv4 1x1x1""",
    ),
    "discriminator_cnn_mlp": (
        (3, 32, 32), 1, "conv4/2 64x16x16 | conv4/2 128x8x8 | batch | linear 1"
    ),
    "discriminator_resnet8": (
        (3, 32, 32), 1,
        " | ".join(
            [
                "conv3 64x32x32 | batch",
                *(
                    residual("conv3/2", channels, side, "batch", "conv1/2")
                    for channels, side in ((64, 16), (128, 8), (256, 4))
                ),
                "linear 1",
            ]
        ),
    ),
    "wgan_gp_resnet": (
        (3, 32, 32), 1,
        """conv3+ 128x32x32 | conv3+ 128x32x32 | mean2 128x16x16 | mean2 3x16x16 | conv1+ 128x16x16
        | conv3+ 128x16x16 | conv3+ 128x16x16 | mean2 128x8x8 | conv1+ 128x16x16 | mean2 128x8x8
        | conv3+ 128x8x8 | conv3+ 128x8x8 | conv3+ 128x8x8 | conv3+ 128x8x8 | linear+ 1""",
    ),
    # FedEvg: chapter IV of the thesis, and the released code of its baselines.
    "fedevg_resnet10": ((1, 32, 32), 10, evg_resnet10()),
    "fedevg_resnet10_power": ((1, 32, 32), 10, evg_resnet10()),
    "fedevg_resnet10_judge": ((1, 32, 32), 10, evg_resnet10()),
    "fedcgan": (
        (1, 32, 32), 10,
        """conv4/2 64x16x16 | conv4/2 128x8x8 | batch | conv4/2 256x4x4 | batch
        | conv4 256x1x1 | linear+ 11""",
    ),
    "fedcvae": (
        (1, 32, 32), 10,
        """conv4/2+ 64x16x16 | batch | conv4/2+ 64x8x8 | batch | conv4/2+ 128x4x4 | batch
        | conv4/2+ 256x2x2 | batch | linear+ 256""",
    ),
}  # fmt: skip

MAKERS = {
    ("wgan_gp_resnet", "generator"): (
        128,
        " | ".join(
            [
                "linear+ 2048",
                *(
                    f"batch | conv3+ 128x{side}x{side} | batch | conv3+ 128x{side}x{side}"
                    f" | conv1+ 128x{side}x{side}"
                    for side in (8, 16, 32)
                ),
                "batch | conv3+ 3x32x32",
            ]
        ),
    ),
    ("fedcgan", "generator"): (
        138,
        "up4 256x4x4 | batch | up4/2 128x8x8 | batch | up4/2 64x16x16 | batch | up4/2 3x32x32",
    ),
    ("fedcvae", "decoder"): (
        138,
        """linear+ 1024 | up4/2+ 128x4x4 | batch | up4/2+ 64x8x8 | batch | up4/2+ 64x16x16 | batch
        | up4/2+ 3x32x32""",
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    shape, outputs, expected = LAYERS[name]
    x = torch.zeros(2, *shape, dtype=torch.int32 if name.endswith("lstm") else None)
    assert layers_of(models.build(name, shape, outputs), x) == written(expected)


@pytest.mark.parametrize(("name", "part"), MAKERS)
def test_layers_of_what_makes_images(name: str, part: str) -> None:
    width, expected = MAKERS[name, part]
    outputs = 1 if name.startswith("wgan") else 10
    module = models.build(name, (3, 32, 32), outputs).get_submodule(part)
    assert layers_of(module, torch.zeros(2, width)) == written(expected)


def test_every_papers_network_is_listed() -> None:
    """But for demonstrations, and those whose layers are another package's."""
    elsewhere = ("distilbert", "efficientnet", "mobilevit")
    unlisted = {
        name
        for name, entry in models.MODELS.items()
        if name not in LAYERS
        and entry.source != "demonstrations"
        and not name.startswith(elsewhere)
    }
    assert not unlisted


@pytest.mark.parametrize(
    ("height", "width", "side"), [(7, 7, 5), (6, 6, 6), (12, 9, 5), (3, 4, 5), (84, 43, 7)]
)
def test_means_of_fields_are_pytorch_s(height: int, width: int, side: int) -> None:
    """Fields overlap where sides are no multiples; of an image of that size it is the identity."""
    x = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))
    expected, found = nn.AdaptiveAvgPool2d(side)(x), FieldMeans(side)(x)
    torch.testing.assert_close(found, expected)
    assert (height, width) != (side, side) or torch.equal(found, x)


def test_means_of_fields_are_float32_where_layers_before_compute_in_bfloat16() -> None:
    x = torch.rand(2, 3, 7, 7, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = FieldMeans(5)(x)
    torch.testing.assert_close(found, nn.AdaptiveAvgPool2d(5)(x.float()))
