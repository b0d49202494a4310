"""Each rule of initial weights against PyTorch's functions, called by hand, layer by layer."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.engine.initialise import fresh_linear, initialise


def network() -> nn.Sequential:
    """Its layers start at values that no rule gives."""
    made = nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.BatchNorm2d(3),
        nn.Sequential(nn.ConvTranspose2d(3, 2, 2), nn.GroupNorm(1, 2)),
        nn.Linear(4, 5),
        nn.Embedding(6, 3, padding_idx=2),
        nn.Linear(3, 2, bias=False),
        nn.Conv1d(2, 3, 2),
    )
    for leaf in (*made.parameters(), *made.buffers()):
        leaf.data.fill_(7)
    return made


def uniform(layer: Any, rng: torch.Generator) -> None:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)); a transposed convolution counts its outputs."""
    bound = layer.weight[0].numel() ** -0.5
    layer.weight.uniform_(-bound, bound, generator=rng)
    if layer.bias is not None:
        layer.bias.uniform_(-bound, bound, generator=rng)


def xavier(layer: Any, rng: torch.Generator) -> None:
    nn.init.xavier_normal_(layer.weight, generator=rng)
    if layer.bias is not None:
        layer.bias.zero_()


def usual(made: nn.Sequential, rng: torch.Generator, draw: Callable[..., None]) -> None:
    draw(made[0], rng)
    made[1].reset_parameters()
    draw(made[2][0], rng)
    made[2][1].reset_parameters()
    draw(made[3], rng)
    made[4].weight.normal_(0, 1, generator=rng)
    made[4].weight[2].zero_()
    draw(made[5], rng)
    draw(made[6], rng)


def dcgan(made: nn.Sequential, rng: torch.Generator) -> None:
    usual(made, rng, uniform)
    made[0].weight.normal_(0, 0.02, generator=rng)
    made[1].weight.normal_(1, 0.02, generator=rng)
    made[2][0].weight.normal_(0, 0.02, generator=rng)


def redrawn(made: nn.Sequential, rng: torch.Generator) -> None:
    """As AAggFF's code does: all else stays, embeddings too."""
    xavier(made[0], rng)
    made[1].weight.normal_(1, 1, generator=rng)
    made[1].bias.zero_()
    xavier(made[2][0], rng)
    for place in (3, 5, 6):
        xavier(made[place], rng)


def redrawn_with(made: nn.Sequential, rng: torch.Generator, std: float | None) -> None:
    """As FedEvg's code does, after PyTorch's rules: the same, or from a normal distribution."""
    usual(made, rng, uniform)
    for layer in (made[0], made[1], made[2][0], made[3], made[5], made[6]):
        if isinstance(layer, nn.BatchNorm2d):
            layer.weight.normal_(1, std or 1, generator=rng)
            layer.bias.zero_()
        else:
            xavier(layer, rng)
            if std:
                layer.weight.normal_(0, std, generator=rng)


def kept(made: nn.Sequential, rng: torch.Generator) -> None:
    """The part keeps its weights, at any depth; those around it are drawn."""
    uniform(made[0], rng)
    made[1].reset_parameters()
    uniform(made[3], rng)
    made[4].weight.normal_(0, 1, generator=rng)
    made[4].weight[2].zero_()
    uniform(made[5], rng)
    uniform(made[6], rng)


RULES: dict[tuple[str, object], Callable[..., None]] = {
    ("", None): lambda made, rng: usual(made, rng, uniform),
    ("xavier", True): lambda made, rng: usual(made, rng, xavier),
    ("dcgan", True): dcgan,
    ("redrawn", True): redrawn,
    ("redrawn_with", "xavier"): lambda made, rng: redrawn_with(made, rng, None),
    ("redrawn_with", 0.02): lambda made, rng: redrawn_with(made, rng, 0.02),
    ("keeps_weights", True): kept,
}


@pytest.mark.parametrize(("rule", "value"), RULES)
def test_a_rule_draws_what_pytorch_s_functions_draw(rule: str, value: object) -> None:
    made = network()
    wanted = copy.deepcopy(made)
    if rule:
        setattr(made[2] if rule == "keeps_weights" else made, rule, value)
    with torch.no_grad():
        initialise(made, torch.Generator().manual_seed(5))
        RULES[rule, value](wanted, torch.Generator().manual_seed(5))
    for (name, one), (_, other) in zip(
        made.state_dict().items(), wanted.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name


def test_a_fresh_linear_layer_is_as_wide_as_its_inputs() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    made = fresh_linear(400, 300, like, torch.Generator().manual_seed(1))
    assert made["weight"].shape == (300, 400) and made["bias"].shape == (300,)
    assert made["weight"].dtype == made["bias"].dtype == torch.float64
    rng = torch.Generator().manual_seed(1)
    for name in ("weight", "bias"):
        wanted = torch.empty_like(made[name]).uniform_(-0.05, 0.05, generator=rng)
        assert torch.equal(made[name], wanted), name
