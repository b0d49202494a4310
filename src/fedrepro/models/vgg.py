"""VGG-11 (Simonyan and Zisserman, ICLR 2015) with GroupNorm, for small images."""

from torch import nn

from fedrepro.models.classifier import Classifier, require_image
from fedrepro.models.layers import with_units

GROUPS = 2  # IMA's released code; GroupNorm has no running statistics to aggregate
LAYERS = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)  # channels; 0 halves the image


def ima_vgg11(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's VGG-11 with GroupNorm: 9,304,548 parameters at 3x32x32 and 100 classes.

    The fully connected layers are 512-128 and 128-classes without activation between them.
    """
    require_image("IMA's VGG-11", input_shape)
    layers: list[nn.Module] = []
    inputs = input_shape[0]
    for channels in LAYERS:
        if channels:
            convolution = nn.Conv2d(inputs, channels, 3, padding=1)
            layers += [convolution, nn.GroupNorm(GROUPS, channels), nn.ReLU()]
            inputs = channels
        else:
            layers.append(nn.MaxPool2d(2))
    return with_units(input_shape, layers, 128, outputs, activated=False)
