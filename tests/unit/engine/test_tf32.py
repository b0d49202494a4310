"""TF32 is allowed in the steps of training that ask for it, and nowhere else.

On the CPU PyTorch's settings can be seen, though they have no effect.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.check.world import play
from fedrepro.engine import tf32
from fedrepro.engine.executors import eager
from fedrepro.engine.net import Net, Precision
from fedrepro.engine.round import Federation
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation

BACKENDS: Any = torch.backends
OPERATIONS = (BACKENDS.cuda.matmul, BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn)


def seen() -> set[str]:
    """What PyTorch says of products, convolutions and recurrent layers, in both of its ways."""
    older = {BACKENDS.cuda.matmul.allow_tf32, BACKENDS.cudnn.allow_tf32}
    return {each.fp32_precision for each in OPERATIONS} | {
        "tf32" if allowed else "ieee" for allowed in older
    }


@pytest.fixture(autouse=True)
def _as_on_a_gpu() -> Iterator[None]:
    """As fedrepro.run.devices.prepare leaves a process, and afterwards as PyTorch starts."""
    tf32.impose(False)
    yield
    tf32.impose(False)
    BACKENDS.cudnn.allow_tf32 = True
    BACKENDS.fp32_precision = BACKENDS.cudnn.fp32_precision = "none"
    BACKENDS.cuda.matmul.fp32_precision = "none"


class Noting(nn.Module):
    """A layer that notes what PyTorch says in each pass, forward and back."""

    def __init__(self) -> None:
        super().__init__()
        self.training_passes: list[set[str]] = []
        self.gradients: list[set[str]] = []
        self.testing_passes: list[set[str]] = []
        self.fails = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails == ("training" if self.training else "testing"):
            raise ZeroDivisionError
        (self.training_passes if self.training else self.testing_passes).append(seen())
        if x.requires_grad:
            x.register_hook(lambda slope: self.gradients.append(seen()))
        return x


def noted(name: str, precision: Precision) -> tuple[Federation, Noting]:
    """A federation whose model has a layer that notes."""
    world, layer = federation(name, cohort=2), Noting()
    module = world.context.net.module
    module.body = nn.Sequential(module.get_submodule("body"), layer)
    net = Net(module, precision)
    return replace(world, context=replace(world.context, net=net)), layer


# With a student on the server, a teacher in each step, two models, two phases, two gradients.
METHODS = ("fedavg", "feddf", "fedgkd_plus", "superfed_mm", "fedrep", "fedasam", "ima+pfedme")


@pytest.mark.parametrize("name", METHODS)
def test_it_is_for_the_steps_of_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, layer = noted(name, "tf32")
    means: list[set[str]] = []
    together = torch.tensordot

    def tensordot(*arguments: Any, **options: Any) -> torch.Tensor:
        means.append(seen())
        return together(*arguments, **options)

    monkeypatch.setattr(torch, "tensordot", tensordot)
    server, _, _ = play(world, until=3)
    assert layer.training_passes and layer.gradients and means
    assert set(map(frozenset, layer.training_passes + layer.gradients)) == {frozenset({"tf32"})}
    assert all(each == {"ieee"} for each in layer.testing_passes + means)
    assert seen() == {"ieee"}
    expected, _, _ = play(noted(name, "float32")[0], until=3)
    assert_close(server, expected, 0)  # a CPU has no TF32


def test_teachers_are_looked_at_without_it() -> None:
    for name in ("feddf", "fedgkd_plus"):
        world, layer = noted(name, "tf32")
        play(world, until=3)
        assert layer.testing_passes


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nothing_is_touched_for_others(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(allowed: bool) -> None:
        raise AssertionError

    world, layer = noted("fedgkd_plus", precision)
    monkeypatch.setattr(tf32, "impose", refused)
    play(world, until=2)
    assert all(each == {"ieee"} for each in layer.training_passes + layer.testing_passes)


@pytest.mark.parametrize("during", ["training", "testing"])
def test_what_fails_leaves_it_forbidden(during: str) -> None:
    world, layer = noted("fedgkd_plus", "tf32")
    play(world, until=2)
    layer.fails = during
    with pytest.raises(ZeroDivisionError):
        play(world, until=3)
    assert seen() == {"ieee"}


@pytest.mark.parametrize("backend", ["generic", "cudnn"])
def test_float32_is_float32_whatever_a_process_asked_for(backend: str) -> None:
    """PyTorch's older way alone leaves convolutions as the newer one says."""
    (BACKENDS if backend == "generic" else BACKENDS.cudnn).fp32_precision = "tf32"
    for allowed in (False, True, False):
        tf32.impose(allowed)
        assert seen() == {"tf32" if allowed else "ieee"}


def test_clients_side_by_side_are_refused() -> None:
    world, _ = noted("fedavg", "tf32")
    with refused(file="executor", value="vectorised", names="`precision`"):
        play(replace(world, execute=eager), until=1)
