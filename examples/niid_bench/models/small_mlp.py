"""One hidden layer of 32 units, for scale compact."""

import math

from torch import nn

from fedrepro.models.classifier import Classifier

FAMILY = "mlp"


def small_mlp(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """784-32-10 for MNIST: 25,450 parameters."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 32), nn.ReLU())
    return Classifier(body, nn.Linear(32, outputs))
