"""Residual blocks of several families."""

from collections.abc import Sequence

from torch import Tensor, nn


class Residual(nn.Module):
    """The sum of some layers and a shortcut, which is the input itself if it has no layers."""

    def __init__(self, layers: Sequence[nn.Module], shortcut: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + self.shortcut(x)  # type: ignore[no-any-return]
