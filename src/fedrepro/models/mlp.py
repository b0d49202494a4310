"""Logistic regression and the two-hidden-layer network of McMahan et al. (AISTATS 2017)."""

import math

from torch import nn

from fedrepro.models.classifier import Classifier
from fedrepro.models.layers import with_units


def logistic(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """Logistic regression: one linear layer, which is the head."""
    body = nn.Flatten() if len(input_shape) > 1 else nn.Identity()
    return Classifier(body, nn.Linear(math.prod(input_shape), outputs))


def twonn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """TwoNN, 784-200-200-10 for MNIST: 199,210 parameters."""
    return with_units(input_shape, [], 200, 200, outputs)
