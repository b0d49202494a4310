"""A small generator of images of 28 x 28 pixels and its opponent, for demonstrations."""

from torch import nn


def small_generator(inputs: int, channels: int) -> nn.Sequential:
    """From numbers [n, inputs] to images in [-1, 1]: transposed convolutions 32-16-channels."""
    return nn.Sequential(
        nn.Unflatten(1, (inputs, 1, 1)),
        nn.ConvTranspose2d(inputs, 32, 7),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, channels, 4, 2, 1),
        nn.Tanh(),
    )


def small_judge(channels: int, outputs: int) -> nn.Sequential:
    """From images to numbers [n, outputs]: convolutions 16-32, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, outputs),
    )
