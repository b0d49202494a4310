"""SuPerFed's networks (thesis chapter II), as its released code defines them.

Linear and convolutional layers have no bias. BatchNorm has no running statistics: it normalises by
the mini-batch, in testing too (for its size see :func:`fedrepro.engine.evaluate.evaluate`). Its
scale and bias are trained and averaged like all parameters, whereas the released code never
averages the biases (29). Linear and convolutional layers start Xavier-normal, each with its own
draws; the released code gives layers of equal shape equal values (discrepancy 28).
"""

import math
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.classifier import Classifier, features_of, require_image
from fedrepro.models.layers import with_units


def _joined(body: nn.Module, *widths: int) -> Classifier:
    """``body`` and a head of linear layers with ``widths``, ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, bias=False), nn.ReLU()]
    return _xavier(Classifier(body, nn.Sequential(*layers[:-1])))


def _xavier(model: Classifier) -> Classifier:
    model.xavier = True  # type: ignore[assignment]
    return model


def twonn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """TwoNN, 784-200-200 and a head 200-200-10, so three hidden layers: 238,800 parameters.

    The thesis calls it two-layered (discrepancy 31).
    """
    body = nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 200, bias=False),
        nn.ReLU(),
        nn.Linear(200, 200, bias=False),
        nn.ReLU(),
    )
    return _joined(body, 200, 200, outputs)


def twonn_earlier(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """784-200-200 and a head 200-10, with biases: an earlier state of their repository (58)."""
    return _xavier(with_units(input_shape, [], 200, 200, outputs))


def _two_convolutions(input_shape: tuple[int, ...]) -> list[nn.Module]:
    require_image("TwoCNN", input_shape)
    layers: list[nn.Module] = []
    for inputs, channels in ((input_shape[0], 32), (32, 64)):
        layers += [
            nn.Conv2d(inputs, channels, 5, padding=1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(2, padding=1),
        ]
    return layers


def twocnn_earlier(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """TwoCNN in an earlier state of their repository (58): 683,010 parameters at 3x28x28."""
    return _xavier(with_units(input_shape, _two_convolutions(input_shape), 200, outputs))


def twocnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """TwoCNN: 722,800 parameters at 3x28x28 and 10 classes, of them 669,200 in the head."""
    body = nn.Sequential(*_two_convolutions(input_shape), nn.Flatten())
    return _joined(body, features_of(body, input_shape), 200, 200, outputs)


def vgg9(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """VGG9, 16-M-32-M-64-128-M-256-512-M: 1,718,416 parameters at 1x28x28 and 62 classes."""
    require_image("VGG9", input_shape)
    layers: list[nn.Module] = []
    inputs = input_shape[0]
    for block in ((16,), (32,), (64, 128), (256, 512)):
        for channels in block:
            layers += [nn.Conv2d(inputs, channels, 3, padding=1, bias=False), nn.ReLU()]
            inputs = channels
        layers.append(nn.MaxPool2d(2))
    body = nn.Sequential(*layers, nn.Flatten())
    return _joined(body, features_of(body, input_shape), 256, outputs)


def _normalised(
    inputs: int, outputs: int, kernel: int, stride: int, padding: int, groups: int = 1
) -> list[nn.Module]:
    """A convolution and its BatchNorm."""
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, track_running_stats=False),
    ]


class _Block(nn.Module):
    """Two 3x3 convolutions and, if the shape changes, a 1x1 shortcut.

    If it does not, the released code adds nothing: there is no identity to learn a residual to.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *_normalised(inputs, outputs, 3, stride, 1),
            nn.ReLU(),
            *_normalised(outputs, outputs, 3, 1, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Sequential(*_normalised(inputs, outputs, 1, stride, 0))

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolutions(x)
        return functional.relu(y if self.shortcut is None else y + self.shortcut(x))


def resnet9(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """ResNet9: 5,054,784 parameters at three channels and 100 classes."""
    require_image("ResNet9", input_shape)
    body = nn.Sequential(
        *_normalised(input_shape[0], 64, 3, 2, 1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
        _Block(64, 64, 1),
        _Block(64, 128, 1),
        _Block(128, 256, 2),
        _Block(256, 512, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return _joined(body, features_of(body, input_shape), 256, outputs)


def mobilenet(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """A MobileNet of four depthwise-separable blocks: 364,480 parameters for 200 classes.

    Depthwise convolutions are not padded.
    """
    require_image("MobileNet", input_shape)
    layers = [*_normalised(input_shape[0], 32, 3, 2, 1), nn.ReLU()]
    inputs = 32
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 1)):
        layers += [*_normalised(inputs, inputs, 3, stride, 0, groups=inputs), nn.ReLU()]
        layers += [*_normalised(inputs, channels, 1, 1, 0), nn.ReLU()]
        inputs = channels
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return _joined(body, features_of(body, input_shape), 256, outputs)
