"""Layers that several networks share: pooling in fields, residual blocks, linear units."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedrepro.models.classifier import Classifier, features_of


class FieldMeans(nn.Module):
    """The means in ``side`` x ``side`` fields of an image, as ``nn.AdaptiveAvgPool2d(side)``.

    On a GPU the gradient of that one is summed in whatever order threads arrive. Like it, this
    computes in float32 where autocast has bfloat16, in which thirds would be off by .2 %.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """From [..., height, width] to [..., side, side]."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float() if x.dtype == torch.bfloat16 else x
            rows, columns = (self._shares(size, x) for size in x.shape[-2:])
            return rows @ x @ columns.mT

    def _shares(self, size: int, like: Tensor) -> Tensor:
        """The share of each place in each field's mean [side, size]; fields may overlap."""
        field = torch.arange(self.side, device=like.device)[:, None]
        place = torch.arange(size, device=like.device)
        inside = (place >= field * size // self.side) & (place * self.side < (field + 1) * size)
        return inside.to(like.dtype) / inside.sum(1, keepdim=True)


class Residual(nn.Module):
    """The sum of some layers and a shortcut, which is the input itself if it has no layers."""

    def __init__(self, layers: Sequence[nn.Module], shortcut: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + self.shortcut(x)  # type: ignore[no-any-return]


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
