"""Plain convolutional networks with BatchNorm: VGG11 and a small one for demonstrations."""

from torch import nn

from fedrepro.models.classifier import Classifier, features_of, require_image
from fedrepro.models.layers import with_units


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
