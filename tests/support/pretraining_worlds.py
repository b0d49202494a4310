"""Small federations of the methods that are run before a run: they train no classifier."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from fedrepro.check.world import FEATURES, Data, data, in_context
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import adam
from fedrepro.engine.round import Federation
from fedrepro.methods.discriminators import Discriminators
from fedrepro.methods.fedgan import FedGAN
from fedrepro.methods.generated import Generated
from fedrepro.methods.wgan_gp import WganGp
from support.image_worlds import adversaries, autoencoders, energies
from support.worlds import federation

LATENT = 3


class Pair(nn.Module):
    """A generator with BatchNorm and a critic, of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(LATENT, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, FEATURES)
        )
        self.critic = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))
        self.latent = LATENT

    def forward(self, x: Tensor) -> Tensor:
        return self.critic(x)  # type: ignore[no-any-return]


def world(method: Method, module: nn.Module, lr: float = 0.01, rounds: int = 4) -> Federation:
    base = federation("fedavg", method=method, cohort=6, lr=lr, rounds=rounds)
    net, optimizer = Net(module.double()), adam(0.5, 0.9)
    context = replace(base.context, net=net, optimizer=optimizer, batch_size=16)
    return replace(base, context=context)


def of_server(method: WganGp, **changes: float) -> Federation:
    """All samples at one client; 96 are six full mini-batches an epoch."""
    made = world(method, Pair(), **changes)  # type: ignore[arg-type]
    x, y = (torch.cat(parts) for parts in zip(*data().tensors, strict=True))
    context = replace(made.context, clients=1, cohort_size=1)
    return replace(made, clients=Data([(x, y)]), context=context)


def critic_world(rounds: int = 4) -> Federation:
    critic = nn.Sequential(nn.Linear(FEATURES, 1), nn.Sigmoid())
    return world(Discriminators(fakes=8), critic, lr=0.1, rounds=rounds)


def images_world() -> Federation:
    """Images of the stand-in generator; of several rounds the last one's stay."""
    return world(Generated(number=600), nn.Sequential(nn.Linear(FEATURES, 1)))


WORLDS = {
    "fedevg": energies,
    "fedcgan": adversaries,
    "fedcvae": autoencoders,
    "wgan_gp": lambda: of_server(WganGp(critic_steps=5)),
    "fedgan": lambda: in_context(world(FedGAN(critic_steps=2), Pair()), batch_size=32),
    "discriminators": critic_world,
    "generated": images_world,
}
