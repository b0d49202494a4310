"""Small federations of images of 2 x 3 pixels in [-1, 1] or [0, 1], in float64."""

from dataclasses import replace
from typing import Any

from torch import nn

from fedrepro.check.world import CLASSES, FEATURES, Data, data
from fedrepro.engine.context import Inputs
from fedrepro.engine.executors import Executor, sequential
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import adam
from fedrepro.engine.round import Federation
from fedrepro.methods.fedcgan import FedCGAN
from fedrepro.methods.fedcvae import FedCVAE
from fedrepro.methods.fedevg import FedEvg
from fedrepro.models.classifier import Classifier
from fedrepro.models.conditional import AcGan, ConditionalAutoencoder
from fedrepro.models.energy import SpectralLinear
from support.worlds import federation

SHAPE, LATENT = (1, 2, 3), 3


def of_images(
    method: Method,
    module: nn.Module,
    range: tuple[float, float],
    execute: Executor = sequential,
    rounds: int = 4,
    lr: float = 0.01,
) -> Federation:
    made = federation(method=method, cohort=4, lr=lr, rounds=rounds, execute=execute)
    low, high = range
    clients = Data(
        [
            ((x.reshape(-1, *SHAPE) / 8 + 0.5).clamp(0, 1) * (high - low) + low, y)
            for x, y in data().tensors
        ]
    )
    context = replace(
        made.context,
        net=Net(module.double()),
        optimizer=adam(0.5, 0.9),
        inputs=Inputs(SHAPE, CLASSES, range),
    )
    return replace(made, clients=clients, context=context)


def energy_net(last: type[nn.Linear] = SpectralLinear) -> Classifier:
    body = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 8), nn.SiLU())
    return Classifier(body, last(8, CLASSES))


def energies(last: type[nn.Linear] = SpectralLinear, **options: Any) -> Federation:
    """FedEvg, whose sets have more items than a mini-batch samples, and some clients fewer."""
    world = {key: options.pop(key) for key in ("execute", "rounds", "lr") & options.keys()}
    method = FedEvg(**{"per_class": 4, "first_step": 1.0, **options})
    return of_images(method, energy_net(last), (0.0, 1.0), **world)


def adversaries(**options: Any) -> Federation:
    world = {key: options.pop(key) for key in ("execute", "rounds", "lr") & options.keys()}
    generator = nn.Sequential(
        nn.Linear(LATENT + CLASSES, 8), nn.Tanh(), nn.Linear(8, FEATURES), nn.Tanh(),
        nn.Unflatten(1, SHAPE),
    )  # fmt: skip
    discriminator = nn.Sequential(
        nn.Flatten(), nn.Linear(FEATURES, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1 + CLASSES)
    )
    pair = AcGan(generator, discriminator, LATENT, CLASSES)
    return of_images(FedCGAN(**{"per_class": 4, **options}), pair, (-1.0, 1.0), **world)


def autoencoders(**options: Any) -> Federation:
    world = {key: options.pop(key) for key in ("execute", "rounds", "lr") & options.keys()}
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 6))
    decoder = nn.Sequential(
        nn.Linear(LATENT + CLASSES, 8), nn.Tanh(), nn.Linear(8, FEATURES), nn.Sigmoid(),
        nn.Unflatten(1, SHAPE),
    )  # fmt: skip
    pair = ConditionalAutoencoder(encoder, decoder, LATENT, CLASSES)
    return of_images(FedCVAE(**{"per_class": 4, **options}), pair, (0.0, 1.0), **world)
