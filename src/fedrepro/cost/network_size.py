"""The operations and parameters of a network."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from fedrepro.models import registry
from fedrepro.models.pretrained import untrained
from fedrepro.support.errors import UserError
from fedrepro.support.plugins import Folders

if TYPE_CHECKING:
    from fedrepro.cost.rates import Workload


def size_of(workload: "Workload", plugins: Folders) -> tuple[int, int]:
    """Floating-point operations of a model for one sample, and its number of parameters.

    Where operations cannot be counted without computing, each parameter has two.

    Raises:
        UserError: if the model cannot be built.
    """
    named = workload.model, workload.shape
    with untrained():
        try:
            module = registry.build(*named, workload.classes, folders=plugins)
        except UserError:  # a network with one output, such as a discriminator
            module = registry.build(*named, 1, folders=plugins)
    kind = torch.int64 if workload.numbers == "words" else torch.float32
    parameters, flop = sum(leaf.numel() for leaf in module.parameters()), 0
    try:
        module.eval()
        flop = operations(module, torch.zeros((1, *workload.shape), dtype=kind))
    except Exception:  # the user's code, or a network of several inputs
        flop = 0
    return max(flop, 2 * parameters, 1), parameters


def operations(module: nn.Module, inputs: torch.Tensor) -> int:
    """Floating-point operations of a forward pass, counted by torch.utils.flop_counter.

    It covers convolutions and matrix products and counts each multiply-add as two.
    """
    # It imports triton, which costs memory in every process of the warm start and prints messages.
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(inputs)
    return int(counter.get_total_flops())
