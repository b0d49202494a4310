"""The structure of every model: a body that computes features, and a head that classifies."""

import torch
from torch import Tensor, nn

from fedrepro.support.errors import bad_value


class Classifier(nn.Module):
    """``head(body(x))``, or ``head(body(user, item))`` and the like for several inputs."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        return self.head(self.body(*inputs, **named))  # type: ignore[no-any-return]


def features_of(body: nn.Module, input_shape: tuple[int, ...]) -> int:
    """The number of features that ``body`` computes from a sample of ``input_shape``.

    Raises:
        UserError: if it does not accept such a sample.
    """
    body.eval()  # BatchNorm cannot train on one sample, and must not learn from this one
    try:
        with torch.no_grad():
            return int(body(torch.zeros(1, *input_shape)).shape[1])
    except (RuntimeError, ValueError) as error:  # ValueError: BatchNorm on a single number
        raise bad_value(
            "model", "input shape", input_shape, "images large enough for its layers"
        ) from error
    finally:
        body.train()


def require_image(name: str, input_shape: tuple[int, ...]) -> None:
    """Raises UserError unless a sample has the shape (channels, height, width)."""
    if len(input_shape) != 3:
        raise bad_value(name, "input shape", input_shape, "(channels, height, width)")
