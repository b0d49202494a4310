"""NIID-Bench's `simple-cnn`, for CIFAR-10."""

from torch import nn

from fedrepro.models.classifier import Classifier


def simple_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """Two convolutions (6 and 16 channels, 5 x 5), then 120-84-10: SimpleCNN of their model.py."""
    channels, height, width = input_shape
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    body = nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return Classifier(body, nn.Linear(84, outputs))
