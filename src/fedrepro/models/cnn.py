"""Convolutional networks of two 5x5 convolutions: McMahan's, and IMA's for FMNIST and CIFAR-10."""

from torch import nn

from fedrepro.models.classifier import Classifier, features_of, require_image


def _ima_cnn(input_shape: tuple[int, ...], outputs: int, first: int, second: int) -> Classifier:
    require_image("IMA's CNN", input_shape)
    convolutions = nn.Sequential(
        nn.Conv2d(input_shape[0], first, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    body = nn.Sequential(
        *convolutions,
        nn.Linear(features_of(convolutions, input_shape), 384),
        nn.ReLU(),
        nn.Linear(384, 128),
        nn.ReLU(),
    )
    return Classifier(body, nn.Linear(128, outputs))


def ima_fmnist_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's CNN for Fashion-MNIST (Table IV): 274,026 parameters at 1x28x28 and 10 classes."""
    return _ima_cnn(input_shape, outputs, 32, 32)


def ima_cifar_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's CNN for CIFAR-10 (Table IV): 772,682 parameters at 3x32x32 and 10 classes."""
    return _ima_cnn(input_shape, outputs, 64, 64)


def mcmahan_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """McMahan's CNN for MNIST: 5x5 convolutions of 32 and 64 channels, 512 units: 1,663,370."""
    require_image("McMahan's CNN", input_shape)
    convolutions = nn.Sequential(
        nn.Conv2d(input_shape[0], 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    body = nn.Sequential(
        *convolutions, nn.Linear(features_of(convolutions, input_shape), 512), nn.ReLU()
    )
    return Classifier(body, nn.Linear(512, outputs))
