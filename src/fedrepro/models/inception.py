"""The Inception v3 network for Fréchet inception distances."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.registry import INCEPTION, LearnedWeights
from fedrepro.models.weights import load_into

SIDE = 299


class Inception(nn.Module):
    """Torchvision's Inception v3 up to its 2048 pooled features, of images [n, 1 or 3, h, w].

    It is the network of FedEvg's released code, with torchvision's weights. Most papers compute
    FIDs with the TensorFlow network of 2015, which gives other numbers.
    """

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.body = whole

    def forward(self, x: Tensor) -> Tensor:
        """Features [n, 2048] of pixels in [0, 1]."""
        x = x.expand(-1, 3, -1, -1)
        x = functional.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True)
        features: Tensor = self.body(2 * x - 1)  # the range that its weights were trained with
        return features


def inception(weights: LearnedWeights) -> Inception:
    """The network with its weights, in testing mode.

    Raises:
        UserError: if the file does not contain its weights.
    """
    from torchvision.models import inception_v3

    whole = inception_v3(weights=None, init_weights=False, transform_input=False)
    load_into(whole, INCEPTION, weights, "")
    whole.fc = nn.Identity()
    whole.AuxLogits = None
    return Inception(whole).eval()


def features(network: Inception, images: Tensor, batch: int = 50) -> Tensor:
    """Features [n, 2048] of images uint8 [n, 1 or 3, h, w]."""
    with torch.inference_mode():
        return torch.cat([network(part.float() / 255) for part in images.split(batch)])
