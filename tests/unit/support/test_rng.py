"""The global generators, while a block seeds them."""

import random

import numpy as np
import pytest
import torch

from fedrepro.support.rng import seeded

DRAWS = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: float(np.random.rand()),  # noqa: NPY002
    "Python": random.random,
}


@pytest.mark.parametrize("name", DRAWS)
def test_each_bit_of_a_seed_counts_that_a_generator_takes(name: str) -> None:
    """Those of torch (on a CPU) and numpy take 32."""
    draw, bits = DRAWS[name], 63 if name == "Python" else 32
    drawn = set()
    for seed in (0, *(2**bit for bit in range(bits))):
        with seeded(seed):
            once = draw()
        with seeded(seed):
            assert draw() == once
        drawn.add(once)
    assert len(drawn) == bits + 1
