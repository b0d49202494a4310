"""Small convolutional networks: McMahan's, IMA's for three data sets, CelebA's in AAggFF."""

from torch import nn

from fedrepro.models.classifier import Classifier, require_image
from fedrepro.models.layers import FieldMeans, with_units


def _two_convolutions(inputs: int, first: int, second: int, padding: int = 0) -> list[nn.Module]:
    """5x5 convolutions of ``first`` and ``second`` channels, each with ReLU and pooling."""
    return [
        nn.Conv2d(inputs, first, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def _ima_cnn(input_shape: tuple[int, ...], outputs: int, first: int, second: int) -> Classifier:
    require_image("IMA's CNN", input_shape)
    layers = _two_convolutions(input_shape[0], first, second)
    return with_units(input_shape, layers, 384, 128, outputs)


def ima_fmnist_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's CNN for Fashion-MNIST (Table IV): 274,026 parameters at 1x28x28 and 10 classes."""
    return _ima_cnn(input_shape, outputs, 32, 32)


def ima_cifar_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's CNN for CIFAR-10 (Table IV): 772,682 parameters at 3x32x32 and 10 classes."""
    return _ima_cnn(input_shape, outputs, 64, 64)


def ima_digits_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's CNN for Digit-Five: 806,090 parameters at 3x28x28 and 10 classes.

    GroupNorm after each convolution and three poolings, whereas the 6,272 inputs in Table IV imply
    two (B10). The classifier gets the features of layer 384-128 without activation.
    """
    require_image("IMA's CNN for digits", input_shape)
    layers: list[nn.Module] = []
    for inputs, channels in ((input_shape[0], 64), (64, 64), (64, 128)):
        convolution = nn.Conv2d(inputs, channels, 5, padding=2)
        layers += [convolution, nn.GroupNorm(2, channels), nn.ReLU(), nn.MaxPool2d(2)]
    return with_units(input_shape, layers, 384, 128, outputs, activated=False)


def mcmahan_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """McMahan's CNN for MNIST: 5x5 convolutions of 32 and 64 channels, 512 units: 1,663,370."""
    require_image("McMahan's CNN", input_shape)
    layers = _two_convolutions(input_shape[0], 32, 64, padding=2)
    return with_units(input_shape, layers, 512, outputs)


def celeba_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """LEAF's CNN for CelebA as AAggFF changes it (C.2): 29,569 parameters at 3x84x84, one logit.

    Four 3x3 convolutions of 32 channels without bias, each with GroupNorm (32, 16, 8 and 4 groups),
    pooling and ReLU, then the mean in 5 x 5 fields. Poolings are padded by 1 as in the released
    code, where the text is silent: sides of 84, 43, 22, 12 and 7.
    """
    require_image("LEAF's CNN", input_shape)
    layers: list[nn.Module] = []
    for inputs, groups in ((input_shape[0], 32), (32, 16), (32, 8), (32, 4)):
        layers += [
            nn.Conv2d(inputs, 32, 3, padding=1, bias=False),
            nn.GroupNorm(groups, 32),
            nn.MaxPool2d(2, padding=1),
            nn.ReLU(),
        ]
    return with_units(input_shape, [*layers, FieldMeans(5)], outputs)
