"""Models that are run side by side learn what they learn one after another."""

from dataclasses import replace

import pytest
import torch

from fedrepro.check.world import Data, Memory
from fedrepro.engine.executors import Executor, eager, sequential
from fedrepro.engine.net import Net
from fedrepro.engine.round import begin, play_round
from fedrepro.engine.tree import Tree
from fedrepro.models import registry as models
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation

SIZES = (4, 3)  # mini-batches of two: the second client's last one is padded


def after_a_round(name: str, execute: Executor) -> Tree:
    """The server's state after one round of a model on small images."""
    rng = stream(1, "images")
    images = [
        (torch.rand(size, 1, 20, 20, generator=rng), torch.arange(size) % 3) for size in SIZES
    ]
    world = federation(cohort=len(SIZES), execute=execute)
    context = replace(
        world.context, net=Net(models.build(name, (1, 20, 20), 3)), clients=len(SIZES)
    )
    world = replace(world, clients=Data(images), context=replace(context, batch_size=2))
    return play_round(world, begin(world), Memory(), 0)[0]


@pytest.mark.parametrize(
    "name", ["superfed_twonn", "superfed_twocnn", "superfed_vgg9", "celeba_cnn"]
)
def test_side_by_side(name: str) -> None:
    assert_close(after_a_round(name, sequential), after_a_round(name, eager))


@pytest.mark.parametrize("name", ["superfed_resnet9"])
def test_batchnorm_is_not_run_side_by_side(name: str) -> None:
    """The padding of short mini-batches would count in its statistics."""
    with refused(value="vectorised", names="BatchNorm"):
        after_a_round(name, eager)
