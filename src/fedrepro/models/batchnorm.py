"""Networks with BatchNorm for small images, as FedGO uses them, and small ones for demonstrations.

ResNet-18 and ResNet-50 (He et al., CVPR 2016) are the CIFAR variants of kuangliu/pytorch-cifar: a
3x3 stem of stride 1 without pooling. As there, initial weights follow PyTorch's default rules.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.classifier import Classifier, features_of, require_image
from fedrepro.models.layers import Residual, with_units


def normalised(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution without bias, which keeps the size at stride 1, and its BatchNorm."""
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]


class ResidualBlock(Residual):
    """ReLU of the sum of some layers and a shortcut; a 1x1 convolution if the shape changes."""

    def __init__(self, layers: list[nn.Module], inputs: int, outputs: int, stride: int) -> None:
        reshaped = stride > 1 or inputs != outputs
        super().__init__(layers, normalised(inputs, outputs, 1, stride) if reshaped else [])

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(super().forward(x))


def basic(inputs: int, channels: int, stride: int) -> ResidualBlock:
    """Two 3x3 convolutions with ``channels`` outputs."""
    layers = [
        *normalised(inputs, channels, 3, stride),
        nn.ReLU(),
        *normalised(channels, channels, 3),
    ]
    return ResidualBlock(layers, inputs, channels, stride)


def bottleneck(inputs: int, channels: int, stride: int) -> ResidualBlock:
    """1x1, 3x3 and 1x1 convolutions with four times ``channels`` outputs."""
    outputs = 4 * channels
    layers = [
        *normalised(inputs, channels, 1),
        nn.ReLU(),
        *normalised(channels, channels, 3, stride),
        nn.ReLU(),
        *normalised(channels, outputs, 1),
    ]
    return ResidualBlock(layers, inputs, outputs, stride)


def _resnet(
    name: str,
    input_shape: tuple[int, ...],
    outputs: int,
    block: Callable[[int, int, int], ResidualBlock],
    blocks: tuple[int, ...],
    growth: int,
) -> Classifier:
    """A ResNet with so many ``blocks`` in each stage, of ``growth`` times its channels."""
    require_image(name, input_shape)
    layers, inputs = [*normalised(input_shape[0], 64, 3), nn.ReLU()], 64
    for count, channels, stride in zip(blocks, (64, 128, 256, 512), (1, 2, 2, 2), strict=True):
        for number in range(count):
            layers.append(block(inputs, channels, 1 if number else stride))
            inputs = growth * channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Classifier(nn.Sequential(*layers), nn.Linear(inputs, outputs))


def resnet18(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """ResNet-18 with BatchNorm: 11,173,962 parameters for 10 classes, 11,220,132 for 100."""
    return _resnet("ResNet-18", input_shape, outputs, basic, (2, 2, 2, 2), 1)


def resnet50(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """ResNet-50 with BatchNorm: 23,520,842 parameters for 10 classes."""
    return _resnet("ResNet-50", input_shape, outputs, bottleneck, (3, 4, 6, 3), 4)


def vgg11(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """VGG11 (Simonyan and Zisserman, ICLR 2015) with BatchNorm: 9,756,426 parameters.

    The CIFAR variant of chengyangfu/pytorch-vgg-cifar10, for FedGO's Table 8: 32 x 32 pixels become
    512 features, followed by two layers of 512 units, each after a dropout of one half. Initial
    weights follow PyTorch's default rules, whereas that code draws convolutions from normals.
    """
    require_image("VGG11", input_shape)
    layers: list[nn.Module] = []
    inputs = input_shape[0]
    for block in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for channels in block:
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.BatchNorm2d(channels)]
            layers.append(nn.ReLU())
            inputs = channels
        layers.append(nn.MaxPool2d(2))
    convolutions = nn.Sequential(*layers, nn.Flatten())
    body = nn.Sequential(
        *convolutions,
        nn.Dropout(),
        nn.Linear(features_of(convolutions, input_shape), 512),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(512, 512),
        nn.ReLU(),
    )
    return Classifier(body, nn.Linear(512, outputs))


def small_bn_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """Two convolutions with BatchNorm, for demonstrations of FedGO: 20,538 parameters at 1x28x28.

    Convolutions of 16 and 32 channels, 3x3 without bias, each with BatchNorm, ReLU and pooling.
    """
    return _two_convolutions(input_shape, outputs, 1, nn.MaxPool2d(2))


def strided_bn_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """The parameters of :func:`small_bn_cnn` with strides for pooling: a quarter of its arithmetic.

    As in ResNets, convolutions halve the image themselves.
    """
    return _two_convolutions(input_shape, outputs, 2)


def _two_convolutions(
    input_shape: tuple[int, ...], outputs: int, stride: int, *pooling: nn.Module
) -> Classifier:
    require_image("the small BatchNorm network", input_shape)
    layers: list[nn.Module] = []
    for inputs, channels in ((input_shape[0], 16), (16, 32)):
        layers += [
            nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            *pooling,
        ]
    return with_units(input_shape, layers, outputs)
