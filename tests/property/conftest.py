"""Properties are checked in float64, where the two executors have to agree to 1e-9."""

from collections.abc import Iterator

import pytest

from fedrepro.check.world import in_float64


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with in_float64():
        yield
