"""Classifiers that FedEvg's clients use as energies (thesis chapter IV), and the server's twins.

The energy of an image x of class y is minus the y-th output. Clients use SiLU, for a smooth
gradient, and a spectral norm on the last layer. The server's classifier, which evaluates the
synthetic set, uses ReLU and no spectral norm. Initial weights are Xavier-normal, as in the released
code.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.classifier import Classifier, features_of, require_image
from fedrepro.models.layers import Residual

WIDTH = 64


class SpectralLinear(nn.Linear):
    """A linear layer whose weight is divided by its largest singular value.

    Computed exactly, from the eigenvalues of W W^T. This keeps no state between mini-batches, so
    that clients can run side by side.
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight / self.largest(), self.bias)

    def largest(self) -> Tensor:
        """The weight's largest singular value, a scalar tensor."""
        # For NaN weights LAPACK would raise; the layer's output is to show them instead.
        products = (self.weight @ self.weight.T).nan_to_num(0.0, 0.0, 0.0)
        squares: Tensor = torch.linalg.eigvalsh(products)
        return squares[-1].sqrt()


class PowerIterationLinear(SpectralLinear):
    """The same by one power iteration per mini-batch in training (Miyato et al., ICLR 2018).

    As in PyTorch and the released code, the singular vectors are treated as constants.
    """

    moves_buffers = True
    singular: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("singular", torch.ones(outputs) / outputs**0.5)

    def draw_buffers(self, rng: torch.Generator) -> None:
        """Draw a random start for the iteration."""
        drawn = torch.randn(len(self.singular), generator=rng, dtype=self.singular.dtype)
        self.singular.copy_(functional.normalize(drawn, dim=0))

    def largest(self) -> Tensor:
        with torch.no_grad():
            left = self.singular
            right = functional.normalize(self.weight.T @ left, dim=0)
            if self.training:
                left = functional.normalize(self.weight @ right, dim=0)
                self.singular.copy_(left)
        return left @ self.weight @ right


def _block(inputs: int, outputs: int, stride: int, act: type[nn.Module]) -> Residual:
    """Two 3x3 convolutions and a shortcut, without activation of their sum."""
    layers = [*_normalised(inputs, outputs, 3, stride), act(), *_normalised(outputs, outputs, 3)]
    same = stride == 1 and inputs == outputs
    return Residual(layers, [] if same else _normalised(inputs, outputs, 1, stride))


def _normalised(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.GroupNorm(outputs // 2, outputs)]


def _resnet10(
    input_shape: tuple[int, ...], outputs: int, act: type[nn.Module], last: type[nn.Linear]
) -> Classifier:
    require_image("FedEvg's ResNet-10", input_shape)
    body = nn.Sequential(
        nn.Conv2d(input_shape[0], WIDTH, 3, padding=1, bias=False),
        nn.GroupNorm(WIDTH // 4, WIDTH),
        act(),
        _block(WIDTH, WIDTH, 1, act),
        _block(WIDTH, 2 * WIDTH, 2, act),
        _block(2 * WIDTH, 4 * WIDTH, 2, act),
        _block(4 * WIDTH, 8 * WIDTH, 2, act),
        nn.GroupNorm(WIDTH, 8 * WIDTH),
        act(),
        nn.Flatten(),
    )
    return _xavier(body, last(features_of(body, input_shape), outputs))


def _xavier(body: nn.Module, head: nn.Module) -> Classifier:
    model = Classifier(body, head)
    model.xavier = True  # type: ignore[assignment]
    return model


def fedevg_resnet10(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """The clients' ResNet-10: GroupNorm, SiLU, no pooling; 4,979,914 parameters at 1x32x32."""
    return _resnet10(input_shape, outputs, nn.SiLU, SpectralLinear)


def fedevg_resnet10_power(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """The same with a power iteration in place of the exact spectral norm, as released."""
    return _resnet10(input_shape, outputs, nn.SiLU, PowerIterationLinear)


def fedevg_resnet10_judge(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """The server's twin: ReLU, no spectral norm."""
    return _resnet10(input_shape, outputs, nn.ReLU, nn.Linear)


def fedevg_small(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """For demonstrations: two convolutions, normalised as in the ResNet-10; 20,842 at 1x28x28.

    Without GroupNorm an energy is nearly linear in the image, and has one prototype per class.
    """
    require_image("FedEvg's small network", input_shape)
    body = nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 5, 2, 2), nn.GroupNorm(8, 16), nn.SiLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(16, 32), nn.SiLU(), nn.Flatten(),
    )  # fmt: skip
    return _xavier(body, SpectralLinear(features_of(body, input_shape), outputs))


def fedevg_small_judge(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """The server's: ReLU, no spectral norm, nothing normalised; 20,746 at 1x28x28."""
    require_image("FedEvg's small network", input_shape)
    body = nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Flatten(),
    )  # fmt: skip
    return _xavier(body, nn.Linear(features_of(body, input_shape), outputs))
