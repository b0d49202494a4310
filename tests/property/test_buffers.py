"""Running statistics have no gradient: no method's steps may depend on how far they moved."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, play
from fedrepro.engine.net import Net
from fedrepro.engine.round import context_of
from fedrepro.methods import registry
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import UserError
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
