"""Running statistics have no gradient: no method's steps may depend on how far they moved."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, Memory, play
from fedrepro.engine.net import Net
from fedrepro.engine.round import begin, context_of, play_round, steps_of
from fedrepro.methods import registry
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import UserError
from support.pretraining_worlds import critic_world, images_world
from support.worlds import federation

METHODS = [name for name, part in registry.parts().items() if part.kind == "method"]
WRAPPED = ["ima+fedavg", "aaggff_s+fedavg", "aaggff_d+fedavg", "fedavg+fedadam"]


class Counter(nn.Module):
    """Hands its input on, and counts mini-batches in a buffer."""

    moves_buffers = True
    seen: Tensor

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by
        self.register_buffer("seen", torch.full((8,), by))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.seen.add_(self.by)
        return x


@pytest.mark.parametrize("name", [*METHODS, *WRAPPED])
def test_buffers_steer_nothing(name: str) -> None:
    def played(by: float) -> dict[str, Tensor]:
        world = federation(name)
        body = nn.Sequential(nn.Linear(FEATURES, 8), Counter(by), nn.Tanh())
        net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
        world = replace(world, context=replace(world.context, net=net))
        try:
            world.method.check(context_of(world, 0, [0]))
        except UserError as error:
            if "running statistics" in str(error):
                pytest.skip(str(error))
        server, _, _ = play(world, until=2)
        stays = bool((server["params"]["body.1.seen"] == by).all())
        assert stays == (not by or name in ("lg_fedavg", "local"))
        return dict(net.trainable(server["params"]))

    still, moving = played(0.0), played(1000.0)
    for leaf, value in still.items():
        assert torch.equal(value, moving[leaf]), leaf


class Mode(nn.Module):
    """Hands its input on, and notes whether that was in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.noted.append(self.training)
        return x


# How often a step runs the model: in training mode, and in testing mode for a model that is fixed.
PASSES = {
    "fedavg": (1, 0), "fedprox": (1, 0), "scaffold": (1, 0), "fedsam": (2, 0), "fedasam": (2, 0),
    "moon": (1, 2), "fedgkd_plus": (1, 1), "dafkd": (1, 3), "feduv": (1, 0), "fedtgp": (1, 0),
    "feddf": (1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_a_step_trains_one_model_and_asks_others_in_testing_mode(name: str) -> None:
    """Else BatchNorm's statistics would move, and dropout would act, where nothing is trained."""
    epochs = {"fedgkd_plus": 0, "dafkd": 0, "feddf": 3}
    still = {"server_epochs": epochs[name]} if name in epochs else {}
    world, mode = federation(name, {name: still}, rounds=1), Mode()
    body = nn.Sequential(nn.Linear(FEATURES, 8), mode, nn.Tanh())
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    world = replace(world, context=replace(world.context, net=net))
    server = begin(world)
    mode.noted.clear()
    _, seen = play_round(world, server, Memory(), 0)
    ctx = context_of(world, 0, seen.cohort)
    steps = sum(len(steps_of(world, ctx, client)) for client in seen.cohort)
    training, testing = PASSES[name]
    # Features after training, or labels, once a client; the student's three mini-batches and guess.
    own = len(seen.cohort) if name in ("fedtgp", "feddf") else 0
    student = 3 if name == "feddf" else 0
    assert mode.noted.count(True) == training * steps + student
    assert mode.noted.count(False) == testing * steps + own + bool(student)


@pytest.mark.parametrize("name", ["fedgo", "dafkd", "discriminators", "generated"])
def test_given_networks_are_in_testing_mode(name: str) -> None:
    mode = Mode()
    made = {"discriminators": critic_world, "generated": images_world}
    world = made[name]() if name in made else federation(name)
    given = dict(world.context.artifacts)
    which = "discriminators" if name == "fedgo" else "generator"
    last = nn.Sigmoid() if name == "fedgo" else nn.Tanh()
    linear = nn.Linear(FEATURES, 1) if name == "fedgo" else nn.Linear(2, FEATURES)
    given[which] = replace(given[which], net=Net(nn.Sequential(linear, mode, last).double()))
    world = replace(world, context=replace(world.context, artifacts=given))
    play(world, until=1)
    assert mode.noted and not any(mode.noted)
