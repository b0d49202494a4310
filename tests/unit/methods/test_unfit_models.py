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
from fedrepro.methods.superfed_lm import SuPerFedLM
from fedrepro.methods.superfed_mm import SuPerFedMM
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


def test_a_method_s_check_leaves_the_initial_weights_as_they_are() -> None:
    for method in (SuPerFedMM(), SuPerFedLM()):
        made = federation(method=method)
        before = made.initial
        method.check(made.context)
        after = replace(made).initial
        assert all(torch.equal(leaf, after[name]) for name, leaf in before.items())


def test_fedevg_s_clients_may_keep_given_weights_but_not_draw_them() -> None:
    model = Own()
    net = Net(model)
    given = net.init(torch.Generator().manual_seed(1))
    net.init = lambda rng: given  # type: ignore[method-assign]
    made = replace(context(model), net=net)
    with refused("value", file="fedevg", key="model"):
        FedEvg().check(made)
    FedEvg(reinitialise=False).check(made)


@pytest.mark.parametrize("span", [(0.0, 1.0), (-0.42, 2.82), None])
def test_a_generator_s_pixels_are_those_of_the_data(span: tuple[float, float] | None) -> None:
    net = Net(models.build("wgan_gp_small", IMAGES, 1))
    made = replace(federation().context, net=net, inputs=Inputs(IMAGES, 10, (-1.0, 1.0)))
    WganGp().check(made)
    with refused("value", file="wgan_gp", key="scaling", value=span):
        WganGp().check(replace(made, inputs=Inputs(IMAGES, 10, span)))


def test_a_critic_with_batchnorm_is_refused() -> None:
    pair = models.build("wgan_gp_small", IMAGES, 1)
    pair.critic[1] = nn.BatchNorm2d(16)
    made = replace(federation().context, net=Net(pair), inputs=Inputs(IMAGES, 10, (-1.0, 1.0)))
    with refused("value", file="wgan_gp", key="model"):
        WganGp().check(made)


class Lone(FedDF):
    def server_update(self, *arguments: Any) -> Any:
        raise ValueError("Expected more than 1 value per channel when training, got input [1, 6]")


def test_a_lone_sample_of_the_server_is_one_line() -> None:
    made = federation(method=Lone())
    with refused("value", file=__name__.rpartition(".")[2]):
        play_round(made, begin(federation()), Memory(), 0)
