"""Discriminators of FedGO's clients: own samples against generated ones (ICML 2025, App. E).

They end in a sigmoid, and the loss treats their output as a logit (the paper's "double sigmoid"):
D(x) = sigmoid(sigmoid(z)), so that the odds D / (1 - D) = exp(sigmoid(z)) lie between 1 and e.
Convolutions start from N(0, 0.02), BatchNorm's scale from N(1, 0.02), as in DCGAN: the paper does
not say so, but its discriminators follow DCGAN's code.
"""

from torch import nn

from fedrepro.models.batchnorm_resnet import basic, normalised
from fedrepro.models.classifier import Classifier, features_of, require_image
from fedrepro.support.errors import bad_value


def judging(name: str, input_shape: tuple[int, ...], outputs: int) -> None:
    """Raises UserError unless ``input_shape`` is an image's and ``outputs`` is 1."""
    require_image(name, input_shape)
    if outputs != 1:
        raise bad_value(
            name, "outputs", outputs, "1: it tells real samples from generated ones, not classes"
        )


def _discriminator(body: nn.Module, last: nn.Module) -> Classifier:
    model = Classifier(body, nn.Sequential(last, nn.Flatten(), nn.Sigmoid()))
    model.dcgan = True  # type: ignore[assignment]
    return model


def _halving(inputs: int, outputs: int, norm: bool = True) -> list[nn.Module]:
    """A convolution that halves height and width."""
    convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
    return [convolution, *([nn.BatchNorm2d(outputs)] if norm else []), nn.LeakyReLU(0.2)]


def discriminator_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """FedGO's CNN: 662,528 weights at 3x32x32, and 768 of BatchNorm.

    The last convolution has stride 1 and no padding: with those of the code that the paper links to
    it would output four numbers per image, not one (A5).
    """
    judging("the discriminator CNN", input_shape, outputs)
    body = nn.Sequential(
        *_halving(input_shape[0], 64, norm=False), *_halving(64, 128), *_halving(128, 256)
    )
    if input_shape[1:] != (32, 32):
        raise bad_value("discriminator CNN", "input shape", input_shape, "images of 32 x 32 pixels")
    return _discriminator(body, nn.Conv2d(256, 1, 4, bias=False))


def discriminator_cnn_mlp(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """FedGO's CNN+MLP: 142,336 weights at 3x32x32, and 256 of BatchNorm."""
    judging("the discriminator CNN+MLP", input_shape, outputs)
    body = nn.Sequential(
        *_halving(input_shape[0], 64, norm=False), *_halving(64, 128), nn.Flatten()
    )
    return _discriminator(body, nn.Linear(features_of(body, input_shape), 1, bias=False))


def discriminator_resnet8(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """FedGO's ResNet-8: 1,230,528 weights at 3x32x32.

    A stem of 64 channels and three blocks of 64, 128 and 256, all of stride 2. The paper prints
    only its size and cost; of the networks that we tried, only this one has both.
    """
    judging("the discriminator ResNet-8", input_shape, outputs)
    body = nn.Sequential(
        *normalised(input_shape[0], 64, 3),
        nn.ReLU(),
        basic(64, 64, 2),
        basic(64, 128, 2),
        basic(128, 256, 2),
        nn.Flatten(),
    )
    return _discriminator(body, nn.Linear(features_of(body, input_shape), 1, bias=False))


def discriminator_small(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """A CNN+MLP of 16 and 32 channels, for demonstrations: 10,016 weights at 1x28x28."""
    judging("the small discriminator", input_shape, outputs)
    body = nn.Sequential(*_halving(input_shape[0], 16, norm=False), *_halving(16, 32), nn.Flatten())
    return _discriminator(body, nn.Linear(features_of(body, input_shape), 1, bias=False))
