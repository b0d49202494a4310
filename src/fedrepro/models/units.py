"""Linear units behind other layers, as most networks end."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedrepro.models.classifier import Classifier, features_of


def with_units(
    input_shape: tuple[int, ...],
    layers: Sequence[nn.Module],
    *units: int,
    activated: bool = True,
) -> Classifier:
    """``layers``, flattened, then linear ones of so many ``units`` with ReLU between them.

    The last linear layer is the head.

    Args:
        activated: whether the features, the head's inputs, are activated as well.
    """
    before = nn.Sequential(*layers, nn.Flatten())
    linear: list[nn.Module] = []
    features = features_of(before, input_shape) if layers else math.prod(input_shape)
    for inputs, outputs in pairwise((features, *units)):
        linear += [nn.Linear(inputs, outputs), nn.ReLU()]
    *body, head, _ = linear
    return Classifier(nn.Sequential(*before, *(body if activated else body[:-1])), head)
