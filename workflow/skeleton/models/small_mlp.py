"""Your own model: a function with the name of this file."""

import math

from torch import nn

from fedrepro.models.classifier import Classifier

# Affects only how clients are executed, not the result: linear, mlp, convolutional (the default),
# recurrent or transformer.
FAMILY = "mlp"


def small_mlp(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """One hidden layer.

    Args:
        input_shape: the shape of one sample, such as (1, 28, 28) or (15,).
        outputs: the number of classes, or 1 for a binary task.

    Returns:
        A body and a head, because personalised methods treat the head separately. Other methods
        accept any module. Its weights are the initial ones: the run's seed draws them, as it seeds
        PyTorch's generator here.
    """
    body = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 32), nn.ReLU())
    return Classifier(body, nn.Linear(32, outputs))
