"""How stored values become inputs of a model."""

from dataclasses import replace

import numpy as np
import pytest

from fedrepro.data.tensors.samples import ClientData, Scaling, TensorSamples
from fedrepro.support.errors import UserError
from support import tiny_run


@pytest.mark.parametrize(
    ("kind", "least", "most"), [(None, 0, 1), ("unit", 0, 1), ("symmetric", -1, 1)]
)
def test_scaling_goes_there_and_back(kind: str | None, least: float, most: float) -> None:
    data = tiny_run.dataset()
    scaling = Scaling.of(data, "cpu", kind)
    samples = TensorSamples.of(data.train, scaling, "cpu")
    inputs, _ = samples(0, 20)
    assert least <= inputs.min() and inputs.max() <= most
    assert np.array_equal(scaling.to_bytes(inputs).numpy(), data.train.x[:20])


@pytest.mark.parametrize("kind", ["unit", "symmetric"])
def test_what_is_no_image_has_no_range_to_be_scaled_to(kind: str) -> None:
    data = tiny_run.dataset()
    features = replace(data, train=replace(data.train, x=data.train.x.astype(np.float32)))
    with pytest.raises(UserError, match=f"scaling: '{kind}': expected none for blobs: not images"):
        Scaling.of(features, "cpu", kind)


def test_pooled_data_have_each_sample_once() -> None:
    """Also what several clients hold, as in the released Dirichlet partition."""
    data = tiny_run.dataset()
    samples = TensorSamples.of(data.train, Scaling.of(data, "cpu"), "cpu")
    held = [np.array([5, 0, 3]), np.array([3, 9]), np.array([0, 7])]
    pooled = ClientData(samples, held).pooled()
    assert pooled.rows(0).tolist() == [0, 3, 5, 7, 9] and pooled.sizes == [5]
