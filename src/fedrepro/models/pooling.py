"""Pooling whose gradient has the same bits each time on a GPU, too."""

import torch
from torch import Tensor, nn


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
