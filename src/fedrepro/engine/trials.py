"""Try a module with other weights than its initial ones, which may hide what it does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn

from fedrepro.engine.modules import leaves_of
from fedrepro.engine.net import Net


@contextmanager
def moved(module: nn.Module, outputs: Callable[[], Tensor]) -> Iterator[None]:
    """A context in which what a module trains is off its initial values, as it soon will be.

    Where a last layer or a branch starts at zero, outputs say nothing of what is before it.

    Args:
        outputs: the module's, which may need other values: if they are no numbers or cannot be
            had, the module stays as it is.
    """
    before = {leaf: leaf.detach().clone() for leaf in leaves_of(module).values()}
    rng, works = torch.Generator().manual_seed(0), False

    def restore() -> None:
        for leaf, values in before.items():
            if not torch.equal(leaf, values):
                leaf.data.copy_(values)  # no change that autograd counts

    try:
        with suppress(Exception):
            for leaf in filter(lambda leaf: leaf.requires_grad, before):
                leaf.data.add_(_noise(leaf.detach(), rng))
            works = bool(outputs().isfinite().all())
        if not works:
            restore()
        yield
    finally:
        restore()


def _noise(leaf: Tensor, rng: torch.Generator) -> Tensor:
    """Noise that takes numbers further from zero: their sign, which a root may need, stays.

    Zeros beside other numbers stay as well, such as those of an embedding's padding.
    """
    size = (leaf.numel() // max(1, len(leaf))) ** -0.5 if leaf.ndim > 1 else 0.5
    noise = size * torch.rand(leaf.shape, generator=rng).to(leaf)
    if leaf.any():
        return 0.1 * noise * leaf.sign()
    return torch.where(noise < 0.5 * size, -0.5 * size - noise, noise)


def alike(one: Tensor, other: Tensor) -> bool:
    """Return True for numbers that are the same but for rounding."""
    largest = float(other.nan_to_num().abs().max())
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3 * largest, equal_nan=True)


def mixes_when_testing(net: Net, x: Tensor) -> bool:
    """Return True if, for ``x`` in testing mode, an output depends on the other samples.

    That of a BatchNorm without running statistics does, and perhaps that of a model of yours.
    """
    with torch.no_grad(), net.testing(), moved(net.module, lambda: net.plain(x)):
        try:
            alone = torch.cat([net.plain(sample) for sample in x.split(1)])
        except ValueError:  # BatchNorm refuses a single sample
            return True
        return not alike(alone, net.plain(x))
