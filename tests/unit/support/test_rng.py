"""The global generators, while a block seeds them."""

import random

import numpy as np
import pytest
import torch

from fedrepro.support import rng
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


def states() -> tuple[object, ...]:
    numpy_state = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), str(numpy_state), random.getstate()


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_has_its_own_draws_and_leaves_the_others_as_they_were(fails: bool) -> None:
    before = states()
    found = []
    for seed in (3, 3, 4, 3 + 2**32):
        try:
            with rng.seeded(seed):
                found.append(draws())
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert states() == before
    first, again, other, wide = found
    assert first == again and not {*first} & {*other}
    assert first[1] == wide[1] and first[2] != wide[2]  # numpy's takes 32 bits
    with rng.seeded(3, everything=False):
        assert float(torch.rand(())) == first[0]
        assert states()[1:] == before[1:]


def test_global_draws_continue_a_generator_and_it_continues_them() -> None:
    own, twin = rng.stream(1, "a"), rng.stream(1, "a")
    before = states()
    torch.rand(2, generator=own), torch.rand(2, generator=twin)
    with rng.drawing_on(own):
        inside, (_, of_numpy, of_python) = torch.rand(3), draws()
    assert states() == before
    assert inside.tolist() == torch.rand(3, generator=twin).tolist()
    torch.rand((), generator=twin)  # in `draws`
    assert torch.rand(4, generator=own).tolist() == torch.rand(4, generator=twin).tolist()
    # numpy's and Python's follow from the generator's seed.
    np_, py = np.random.RandomState(rng.number(1, "a") % 2**32), random.Random(rng.number(1, "a"))
    assert (of_numpy, of_python) == (np_.rand(), py.random())


def test_each_purpose_has_a_number_of_its_own() -> None:
    paths = [(), ("a",), ("b",), ("a", 1), ("a", "1"), (1, "a"), ("a1",), ("a", 1, 2), ("a", 12)]
    numbers = [rng.number(seed, *path) for seed in (0, 1, 2**32) for path in paths]
    assert len({*numbers}) == len(numbers)
    assert all(0 <= number < 2**63 for number in numbers) and max(numbers) > 2**62
    assert rng.number(1, "a") == rng.number(1, "a")
    assert rng.stream(1, "a").initial_seed() == rng.number(1, "a")
    assert rng.numpy_stream(1, "a").integers(2**62) == np.random.default_rng(
        rng.number(1, "a")
    ).integers(2**62)
