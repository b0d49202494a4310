"""Properties are checked in float64, where the two executors have to agree to 1e-9."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(before)
