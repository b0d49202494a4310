"""Convolutional networks without BatchNorm: McMahan's, CelebA's in AAggFF, and IMA's.

IMA's have GroupNorm where they normalise: it has no running statistics to aggregate.
"""

from torch import Tensor, nn
from torch.nn import functional

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


GROUPS = 2  # in VGG-11 and ResNet-18: IMA's released code
VGG11 = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)  # channels; 0 halves the image


def ima_vgg11(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's VGG-11 with GroupNorm: 9,304,548 parameters at 3x32x32 and 100 classes.

    The fully connected layers are 512-128 and 128-classes without activation between them.
    """
    require_image("IMA's VGG-11", input_shape)
    layers: list[nn.Module] = []
    inputs = input_shape[0]
    for channels in VGG11:
        if channels:
            convolution = nn.Conv2d(inputs, channels, 3, padding=1)
            layers += [convolution, nn.GroupNorm(GROUPS, channels), nn.ReLU()]
            inputs = channels
        else:
            layers.append(nn.MaxPool2d(2))
    return with_units(input_shape, layers, 128, outputs, activated=False)


ALEXNET_GROUPS = 32  # IMA's released code (discrepancy B10); the text has 2


def _alexnet_layer(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 1
) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding)
    return [convolution, nn.GroupNorm(ALEXNET_GROUPS, outputs), nn.ReLU()]


def ima_alexnet(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's AlexNet with GroupNorm: 12,438,599 parameters at 3x224x224 and 7 classes (PACS).

    Two of its fully connected layers are narrower than AlexNet's, 9216-1024-512, and there is no
    dropout.
    """
    require_image("IMA's AlexNet", input_shape)
    layers = [
        *_alexnet_layer(input_shape[0], 64, 11, stride=4, padding=2),
        nn.MaxPool2d(3, 2),
        *_alexnet_layer(64, 192, 5, padding=2),
        nn.MaxPool2d(3, 2),
        *_alexnet_layer(192, 384, 3),
        *_alexnet_layer(384, 256, 3),
        *_alexnet_layer(256, 256, 3),
        nn.MaxPool2d(3, 2),
        FieldMeans(6),
    ]
    return with_units(input_shape, layers, 1024, 512, outputs)


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, a 1x1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, outputs)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(GROUPS, outputs)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def ima_resnet18(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's ResNet-18 with GroupNorm: 11,235,786 parameters for 10 classes.

    The fully connected layers are 512-128 and 128-classes without activation between them.
    """
    require_image("IMA's ResNet-18", input_shape)
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], 64, 3, padding=1, bias=False),
        nn.GroupNorm(GROUPS, 64),
        nn.ReLU(),
    ]
    inputs = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Block(inputs, channels, stride), _Block(channels, channels, 1)]
        inputs = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 128)]
    return Classifier(nn.Sequential(*layers), nn.Linear(128, outputs))
