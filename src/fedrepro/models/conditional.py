"""Conditional generators: FedCGAN's AC-GAN and FedCVAE's autoencoder (thesis chapter IV).

``fedcgan`` and ``fedcvae`` are the released code's networks and initial weights for 32 x 32 pixels,
with one more doubling for images of 64; the small ones are for demonstrations at 28 x 28. Both
kinds make an image from noise and a class, concatenated to [n, latent + classes].
"""

from torch import Tensor, nn

from fedrepro.models.classifier import features_of, require_image
from fedrepro.support.errors import bad_value

WIDTH = 64
SLOPE = 0.2


class AcGan(nn.Module):
    """A generator, and a discriminator with one logit plus one output per class.

    Called as a whole it is the discriminator: [n, channels, height, width] -> [n, 1 + classes].

    Attributes:
        latent, classes: the sizes of the generator's inputs: noise and class.
    """

    def __init__(
        self, generator: nn.Module, discriminator: nn.Module, latent: int, classes: int
    ) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        self.latent, self.classes = latent, classes

    def forward(self, x: Tensor) -> Tensor:
        return self.discriminator(x)  # type: ignore[no-any-return]


class ConditionalAutoencoder(nn.Module):
    """An encoder of images [n, ...] -> [n, 2 * latent], and a decoder of codes and classes.

    Called as a whole it is the encoder: means, and the inputs of softplus for deviations.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, latent: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.latent, self.classes = latent, classes

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)  # type: ignore[no-any-return]


def _require(name: str, input_shape: tuple[int, ...], sides: tuple[int, ...]) -> None:
    require_image(name, input_shape)
    if input_shape[1] != input_shape[2] or input_shape[1] not in sides:
        wanted = " or ".join(f"{side} x {side}" for side in sides)
        raise bad_value(name, "input shape", input_shape, f"images of {wanted} pixels")


def _up(inputs: int, outputs: int, act: nn.Module, bias: bool) -> list[nn.Module]:
    """A transposed convolution that doubles height and width, BatchNorm, and ``act``."""
    convolution = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=bias)
    return [convolution, nn.BatchNorm2d(outputs), act]


def fedcgan(input_shape: tuple[int, ...], outputs: int) -> AcGan:
    """The released AC-GAN; images lie in [-1, 1]. 2,931,083 parameters at 1x32x32, 10 classes."""
    _require("FedCGAN's network", input_shape, (32, 64))
    channels, large = input_shape[0], input_shape[1] == 64
    leaky = nn.LeakyReLU(SLOPE)
    latent = 2 * WIDTH
    generator = nn.Sequential(
        nn.Unflatten(1, (latent + outputs, 1, 1)),
        nn.ConvTranspose2d(latent + outputs, 4 * WIDTH, 4, bias=False),
        nn.BatchNorm2d(4 * WIDTH),
        leaky,
        *(_up(4 * WIDTH, 4 * WIDTH, leaky, bias=False) if large else []),
        *_up(4 * WIDTH, 2 * WIDTH, leaky, bias=False),
        *_up(2 * WIDTH, WIDTH, leaky, bias=False),
        nn.ConvTranspose2d(WIDTH, channels, 4, 2, 1, bias=False),
        nn.Tanh(),
    )

    def halving(inputs: int, outputs: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), leaky, nn.Dropout(0.5)]

    discriminator = nn.Sequential(
        nn.Conv2d(channels, WIDTH, 4, 2, 1, bias=False),
        leaky,
        nn.Dropout(0.5),
        *halving(WIDTH, 2 * WIDTH),
        *halving(2 * WIDTH, 4 * WIDTH),
        *(halving(4 * WIDTH, 4 * WIDTH) if large else []),
        nn.Conv2d(4 * WIDTH, 4 * WIDTH, 4, bias=False),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(4 * WIDTH, 1 + outputs),
    )
    pair = AcGan(generator, discriminator, latent, outputs)
    pair.redrawn_with = 0.02  # type: ignore[assignment]
    return pair


def fedcgan_small(input_shape: tuple[int, ...], outputs: int) -> AcGan:
    """A small pair for 1x28x28: transposed convolutions 32-16-1, convolutions 16-32."""
    _require("the small FedCGAN", input_shape, (28,))
    latent, channels = 32, input_shape[0]
    generator = nn.Sequential(
        nn.Unflatten(1, (latent + outputs, 1, 1)),
        nn.ConvTranspose2d(latent + outputs, 32, 7),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        *_up(32, 16, nn.ReLU(), bias=True),
        nn.ConvTranspose2d(16, channels, 4, 2, 1),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(channels, 16, 4, 2, 1),
        nn.LeakyReLU(SLOPE),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(SLOPE),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 1 + outputs),
    )
    return AcGan(generator, discriminator, latent, outputs)


def fedcvae(input_shape: tuple[int, ...], outputs: int) -> ConditionalAutoencoder:
    """The released autoencoder; images lie in [0, 1]. 1,850,881 parameters at 1x32x32."""
    _require("FedCVAE's network", input_shape, (32, 64))
    channels, side, latent = input_shape[0], input_shape[1] // 16, 2 * WIDTH
    relu = nn.ReLU()

    def halving(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), relu]

    features = 4 * WIDTH * side * side
    encoder = nn.Sequential(
        *halving(channels, WIDTH),
        *halving(WIDTH, WIDTH),
        *halving(WIDTH, 2 * WIDTH),
        *halving(2 * WIDTH, 4 * WIDTH),
        nn.Flatten(),
        nn.Linear(features, 2 * latent),
    )
    decoder = nn.Sequential(
        nn.Linear(latent + outputs, features),
        nn.Unflatten(1, (4 * WIDTH, side, side)),
        relu,
        *_up(4 * WIDTH, 2 * WIDTH, relu, bias=True),
        *_up(2 * WIDTH, WIDTH, relu, bias=True),
        *_up(WIDTH, WIDTH, relu, bias=True),
        nn.ConvTranspose2d(WIDTH, channels, 4, 2, 1),
        nn.Sigmoid(),
    )
    pair = ConditionalAutoencoder(encoder, decoder, latent, outputs)
    pair.redrawn_with = "xavier"  # type: ignore[assignment]
    return pair


def fedcvae_small(input_shape: tuple[int, ...], outputs: int) -> ConditionalAutoencoder:
    """A small autoencoder of 16 codes for 1x28x28, without BatchNorm."""
    _require("the small FedCVAE", input_shape, (28,))
    channels, latent, relu = input_shape[0], 16, nn.ReLU()
    body = nn.Sequential(
        nn.Conv2d(channels, 16, 4, 2, 1), relu, nn.Conv2d(16, 32, 4, 2, 1), relu, nn.Flatten()
    )
    features = features_of(body, input_shape)
    decoder = nn.Sequential(
        nn.Linear(latent + outputs, features),
        relu,
        nn.Unflatten(1, (32, 7, 7)),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        relu,
        nn.ConvTranspose2d(16, channels, 4, 2, 1),
        nn.Sigmoid(),
    )
    encoder = nn.Sequential(*body, nn.Linear(features, 2 * latent))
    return ConditionalAutoencoder(encoder, decoder, latent, outputs)
