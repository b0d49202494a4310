"""The size of a network and its cost per sample."""

import torch
from torch import nn

from fedrepro.cost.network_size import operations

MIB = 2**20  # bytes


def weights(module: nn.Module) -> int:
    """Weights of linear and convolutional layers, without biases and BatchNorm.

    FedGO's Table 14 calls these parameters.
    """
    layers = nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d
    return sum(layer.weight.numel() for layer in module.modules() if isinstance(layer, layers))


def parameters(module: nn.Module) -> int:
    """All trained parameters."""
    return sum(leaf.numel() for leaf in module.parameters())


def sent_bytes(module: nn.Module) -> int:
    """Bytes of an uncompressed copy of a network in transmission.

    Its parameters and its float buffers, BatchNorm's running statistics.
    """
    buffers = (leaf for leaf in module.buffers() if leaf.is_floating_point())
    return sum(leaf.numel() * leaf.element_size() for leaf in (*module.parameters(), *buffers))


def multiply_adds(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Multiply-adds (MACs) of one forward pass of one sample.

    FedGO's Table 14 gives MACs, which Table 17 counts twice, as two operations (A2).

    Args:
        input_shape: of one sample.
    """
    training = module.training
    module.eval()  # BatchNorm can't train on one sample
    counted = operations(module, torch.zeros(1, *input_shape))
    module.train(training)
    return counted // 2
