"""AlexNet (Krizhevsky, 2014, "One weird trick") with GroupNorm."""

from torch import nn

from fedrepro.models.classifier import Classifier, require_image
from fedrepro.models.layers import FieldMeans, with_units

GROUPS = 32  # IMA's released code (discrepancy B10); the text has 2


def _block(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 1
) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding)
    return [convolution, nn.GroupNorm(GROUPS, outputs), nn.ReLU()]


def ima_alexnet(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's AlexNet with GroupNorm: 12,438,599 parameters at 3x224x224 and 7 classes (PACS).

    Two of its fully connected layers are narrower than AlexNet's, 9216-1024-512, and there is no
    dropout.
    """
    require_image("IMA's AlexNet", input_shape)
    layers = [
        *_block(input_shape[0], 64, 11, stride=4, padding=2),
        nn.MaxPool2d(3, 2),
        *_block(64, 192, 5, padding=2),
        nn.MaxPool2d(3, 2),
        *_block(192, 384, 3),
        *_block(384, 256, 3),
        *_block(256, 256, 3),
        nn.MaxPool2d(3, 2),
        FieldMeans(6),
    ]
    return with_units(input_shape, layers, 1024, 512, outputs)
