"""A model of your own: a function of this file's name."""

import math

from torch import nn

from fedrepro.models.classifier import Classifier

# It decides how clients are run, not what comes out: linear, mlp, convolutional (where there is no
# such line), recurrent or transformer.
FAMILY = "mlp"


def small_mlp(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """One hidden layer.

    Args:
        input_shape: of one sample, such as (1, 28, 28) or (15,).
        outputs: classes, or 1 for a binary task.

    Returns:
        A body and a head, as personalised methods keep the head apart. Other methods take any
        module. Weights are drawn later, from the run's seed.
    """
    body = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 32), nn.ReLU())
    return Classifier(body, nn.Linear(32, outputs))
