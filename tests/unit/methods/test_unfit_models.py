"""Models and data with which a method would silently be another one: each is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedrepro as fr
from fedrepro.check.world import Memory, begin
from fedrepro.engine.context import Inputs
from fedrepro.engine.net import Net
from fedrepro.engine.round import play_round
from fedrepro.methods.feddf import FedDF
from fedrepro.methods.fedevg import FedEvg
from fedrepro.methods.wgan_gp import WganGp
from fedrepro.models import registry as models
from support import image_worlds
from support.refusals import refused
from support.worlds import federation

IMAGES = (1, 28, 28)


class Own(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), *layers), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))
        return out


def built(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Own()


def context(model: nn.Module, span: tuple[float, float] = (0.0, 1.0)) -> Any:
    made = image_worlds.energies().context
    return replace(made, net=Net(model), inputs=Inputs((1, 2, 3), 3, span))


def test_fedevg_refuses_a_model_in_which_samples_mix() -> None:
    """Real images, those of the set and the chain are one mini-batch."""
    FedEvg().check(context(Own(nn.LayerNorm(6))))
    with refused("value", file="fedevg", key="model"):
        FedEvg().check(context(Own(nn.BatchNorm1d(6, track_running_stats=False))))


def clients() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(1)
    return [(draw.random((6, 1, 2, 3), dtype="f4"), np.arange(6) % 3) for _ in range(3)]


@pytest.mark.parametrize("method", ["superfed_mm", "superfed_lm"])
@pytest.mark.parametrize("way", ["initial", "keep", "changed"])
def test_superfed_refuses_given_weights_from_which_all_clients_would_start(
    method: str, way: str
) -> None:
    model, said = Own(), {}
    if way == "changed":
        nn.init.constant_(model.head.weight, 0.5)
    else:
        said = {"initial": Own().state_dict()} if way == "initial" else {"weights": "keep"}
    given: Any = built if way == "initial" else model
    world = {"clients": clients(), "rounds": 3, "lr": 0.1, "seed": 1, "test_fraction": 0.2}
    with refused("value", file=method, key="model"):
        fr.train(method, given, **world, **said)
    assert len(fr.train(method, built, **world).rounds) == 3
    assert len(fr.train("fedprox", given, **world, **said).rounds) == 3


def test_superfed_without_a_second_model_starts_from_given_weights() -> None:
    given = {"initial": Own().state_dict()}
    world = {"clients": clients(), "rounds": 2, "lr": 0.1, "seed": 1, "test_fraction": 0.2}
    run = fr.train("superfed_mm", built, **world, **given, start=1.0)
    assert len(run.rounds) == 2


def test_fedevg_s_clients_may_keep_given_weights_but_not_draw_them() -> None:
    model = Own()
    net = Net(model)
    given = net.init(torch.Generator().manual_seed(1))
    net.init = lambda rng: given  # type: ignore[method-assign]
    made = replace(context(model), net=net)
    with refused("value", file="fedevg", key="model"):
        FedEvg().check(made)
    FedEvg(reinitialise=False).check(made)


def of_pair(critic: nn.Module | None = None, **inputs: Any) -> Any:
    pair = models.build("wgan_gp_small", IMAGES, 1)
    if critic is not None:
        pair.critic = critic
    return replace(federation().context, net=Net(pair), inputs=Inputs(IMAGES, 10, **inputs))


@pytest.mark.parametrize(
    ("span", "makes"),
    [((-1.0, 1.0), True), ((0.0, 1.0), True), (None, True), ((-0.42, 2.82), False)],
)
def test_a_generator_can_make_the_pixels_of_the_data(
    span: tuple[float, float] | None, makes: bool
) -> None:
    """Those of arrays that nothing scales are not known."""
    if makes:
        WganGp().check(of_pair(span=span))
        return
    with refused("value", file="wgan_gp", key="scaling", value=span, names="-0.42"):
        WganGp().check(of_pair(span=span))


@pytest.mark.parametrize("kind", ["f4", "u1"])
def test_wgan_gp_trains_on_arrays(kind: str) -> None:
    draw = np.random.default_rng(1)
    images = (255 * draw.random((6, *IMAGES))).astype(kind) / (1 if kind == "u1" else 255)
    data = [(images.astype(kind), np.arange(6) % 3)] * 2
    run = fr.train("fedgan", "wgan_gp_small", data, rounds=1, batch_size=3, test_fraction=0.0)
    assert run.finished


class Frozen(nn.Sequential):
    """Its BatchNorm stays in testing mode."""

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        for layer in self:
            if isinstance(layer, nn.BatchNorm1d):
                layer.eval()
        return self


@pytest.mark.parametrize("kind", [nn.Sequential, Frozen])
def test_a_critic_whose_images_mix_is_refused(kind: type[nn.Sequential]) -> None:
    ctx = of_pair(kind(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 1)), span=(0.0, 1.0))
    if kind is Frozen:
        WganGp().check(ctx)
        return
    with refused("value", file="wgan_gp", key="model"):
        WganGp().check(ctx)


def test_a_pair_has_a_critic() -> None:
    ctx = of_pair()
    del ctx.net.module.critic
    with refused("value", file="wgan_gp", key="model", names="critic"):
        WganGp().check(ctx)


class Lone(FedDF):
    def server_update(self, *arguments: Any) -> Any:
        return nn.BatchNorm1d(6)(torch.ones(1, 6))


def test_a_lone_sample_of_the_server_is_one_line() -> None:
    made = federation(method=Lone())
    with refused("value", file=__name__.rpartition(".")[2]):
        play_round(made, begin(federation()), Memory(), 0)
