"""Discriminators, and generators with their critics, as in FedGO (ICML 2025, App. E).

Discriminators tell own samples from generated ones. They end in a sigmoid, and the loss treats
their output as a logit (the paper's "double sigmoid"): D(x) = sigmoid(sigmoid(z)), so that the odds
D / (1 - D) = exp(sigmoid(z)) lie between 1 and e. Convolutions start from N(0, 0.02), BatchNorm's
scale from N(1, 0.02), as in DCGAN: the paper does not say so, but its discriminators follow DCGAN's
code.

``wgan_gp_resnet`` (Gulrajani et al., NeurIPS 2017) is the network of
igul222/improved_wgan_training for CIFAR-10 without classes, FedGO's G1; ``wgan_gp_small`` is a
small pair for images of 28 x 28 pixels. Their pixels are in [-1, 1], and their initial weights
follow PyTorch's default rules.
"""

from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.batchnorm import basic, normalised
from fedrepro.models.classifier import Classifier, features_of, require_image
from fedrepro.models.layers import Residual
from fedrepro.support.errors import bad_value


def judging(name: str, input_shape: tuple[int, ...], outputs: int) -> None:
    """Raises UserError unless ``input_shape`` is an image's and ``outputs`` is 1."""
    require_image(name, input_shape)
    if outputs != 1:
        raise bad_value(
            name, "outputs", outputs, "1: it tells real samples from generated ones, not classes"
        )


def _discriminator(body: nn.Module, last: nn.Module) -> Classifier:
    model = Classifier(body, nn.Sequential(last, nn.Flatten(), nn.Sigmoid()))
    model.dcgan = True  # type: ignore[assignment]
    return model


def _halving(inputs: int, outputs: int, norm: bool = True) -> list[nn.Module]:
    """A convolution that halves height and width."""
    convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
    return [convolution, *([nn.BatchNorm2d(outputs)] if norm else []), nn.LeakyReLU(0.2)]


def discriminator_cnn(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """FedGO's CNN: 662,528 weights at 3x32x32, and 768 of BatchNorm.

    The last convolution has stride 1 and no padding: with those of the code that the paper links to
    it would output four numbers per image, not one (A5).
    """
    judging("the discriminator CNN", input_shape, outputs)
    body = nn.Sequential(
        *_halving(input_shape[0], 64, norm=False), *_halving(64, 128), *_halving(128, 256)
    )
    if input_shape[1:] != (32, 32):
        raise bad_value("discriminator CNN", "input shape", input_shape, "images of 32 x 32 pixels")
    return _discriminator(body, nn.Conv2d(256, 1, 4, bias=False))


def discriminator_cnn_mlp(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """FedGO's CNN+MLP: 142,336 weights at 3x32x32, and 256 of BatchNorm."""
    judging("the discriminator CNN+MLP", input_shape, outputs)
    body = nn.Sequential(
        *_halving(input_shape[0], 64, norm=False), *_halving(64, 128), nn.Flatten()
    )
    return _discriminator(body, nn.Linear(features_of(body, input_shape), 1, bias=False))


def discriminator_resnet8(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """FedGO's ResNet-8: 1,230,528 weights at 3x32x32.

    A stem of 64 channels and three blocks of 64, 128 and 256, all of stride 2. The paper prints
    only its size and cost; of the networks that we tried, only this one has both.
    """
    judging("the discriminator ResNet-8", input_shape, outputs)
    body = nn.Sequential(
        *normalised(input_shape[0], 64, 3),
        nn.ReLU(),
        basic(64, 64, 2),
        basic(64, 128, 2),
        basic(128, 256, 2),
        nn.Flatten(),
    )
    return _discriminator(body, nn.Linear(features_of(body, input_shape), 1, bias=False))


def discriminator_small(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """A CNN+MLP of 16 and 32 channels, for demonstrations: 10,016 weights at 1x28x28."""
    judging("the small discriminator", input_shape, outputs)
    body = nn.Sequential(*_halving(input_shape[0], 16, norm=False), *_halving(16, 32), nn.Flatten())
    return _discriminator(body, nn.Linear(features_of(body, input_shape), 1, bias=False))


class Adversaries(nn.Module):
    """A generator of images from noise [n, latent], and the critic that scores images.

    Called as a whole it is the critic: [n, channels, height, width] -> [n, 1].
    """

    def __init__(self, generator: nn.Module, critic: nn.Module, latent: int) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic
        self.latent = latent
        self.pixel_range = (-1.0, 1.0)  # of what the generator makes

    def forward(self, x: Tensor) -> Tensor:
        return self.critic(x)  # type: ignore[no-any-return]


WIDTH = 128  # channels of all layers of the ResNet


def _same(inputs: int, outputs: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


def _up() -> Residual:
    """A block of the generator, which doubles height and width."""
    layers = [
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        _same(WIDTH, WIDTH),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        _same(WIDTH, WIDTH),
    ]
    return Residual(layers, [nn.Upsample(scale_factor=2), _same(WIDTH, WIDTH, 1)])


def _first(channels: int) -> Residual:
    """The critic's first block, which halves height and width; the image gets no activation."""
    layers = [_same(channels, WIDTH), nn.ReLU(), _same(WIDTH, WIDTH), nn.AvgPool2d(2)]
    return Residual(layers, [nn.AvgPool2d(2), _same(channels, WIDTH, 1)])


def _block(halves: bool) -> Residual:
    """A later block of the critic, which halves height and width, or keeps them."""
    pool = [nn.AvgPool2d(2)] if halves else []
    layers = [nn.ReLU(), _same(WIDTH, WIDTH), nn.ReLU(), _same(WIDTH, WIDTH), *pool]
    return Residual(layers, [_same(WIDTH, WIDTH, 1), *pool] if halves else [])


class _MeanPool(nn.Module):
    """ReLU, then the mean over height and width: [n, channels, ...] -> [n, channels]."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x).mean((2, 3))


def wgan_gp_resnet(input_shape: tuple[int, ...], outputs: int) -> Adversaries:
    """FedGO's G1 for 3x32x32: a generator of 1,204,483 parameters, a critic of 1,053,825."""
    judging("the WGAN-GP ResNet", input_shape, outputs)
    if input_shape[1:] != (32, 32):
        raise bad_value("WGAN-GP ResNet", "input shape", input_shape, "images of 32 x 32 pixels")
    generator = nn.Sequential(
        nn.Linear(128, 4 * 4 * WIDTH),
        nn.Unflatten(1, (WIDTH, 4, 4)),
        *(_up() for _ in range(3)),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        _same(WIDTH, input_shape[0]),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        _first(input_shape[0]),
        _block(halves=True),
        _block(halves=False),
        _block(halves=False),
        _MeanPool(),
        nn.Linear(WIDTH, 1),
    )
    return Adversaries(generator, critic, 128)


def wgan_gp_small(input_shape: tuple[int, ...], outputs: int) -> Adversaries:
    """A small pair for 1x28x28: transposed convolutions 32-16-1, convolutions 16-32."""
    judging("the small WGAN-GP", input_shape, outputs)
    if input_shape[1:] != (28, 28):
        raise bad_value("small WGAN-GP", "input shape", input_shape, "images of 28 x 28 pixels")
    latent, channels = 32, input_shape[0]
    generator = nn.Sequential(
        nn.Unflatten(1, (latent, 1, 1)),
        nn.ConvTranspose2d(latent, 32, 7),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, channels, 4, 2, 1),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.Conv2d(channels, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 1),
    )
    return Adversaries(generator, critic, latent)
