"""How stored values become inputs of a model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrepro.data.tensors.samples import ClientData, ClientSamples, Scaling, TensorSamples
from support import tiny_run
from support.refusals import refused


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
    with refused("value", key="scaling", value=kind, names="blobs"):
        Scaling.of(features, "cpu", kind)


def test_pooled_data_have_each_sample_once() -> None:
    """Also what several clients hold, as in the released Dirichlet partition."""
    data = tiny_run.dataset()
    samples = TensorSamples.of(data.train, Scaling.of(data, "cpu"), "cpu")
    held = [np.array([5, 0, 3]), np.array([3, 9]), np.array([0, 7])]
    pooled = ClientData(samples, held).pooled()
    assert pooled.rows(0).tolist() == [0, 3, 5, 7, 9] and pooled.sizes == [5]


BYTES = torch.arange(256, dtype=torch.uint8).repeat(3, 1)[None, :, None]  # [1, 3, 1, 256]


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (None, None), ((0.5,), (0.5,)), ((0.1307,), (0.3081,)), ((0.2, 0.2, 0.2), (3.0, 3.0, 3.0)),
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5, 0.5, 0.5), (0.2, 0.2, 0.3)),
        ((0.1, 0.1, 0.2), (0.2, 0.2, 0.2)),
    ],
)  # fmt: skip
def test_every_byte_is_scaled_as_stated_and_comes_back(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None
) -> None:
    """(b / 255 - mean) / std; the range is that of bytes 0 and 255, if channels have the same."""
    channels = len(mean or (0, 0, 0))
    data = replace(tiny_run.dataset(), mean=mean, std=std, input_shape=(channels, 1, 256))
    scaling = Scaling.of(data, "cpu")
    inputs = scaling(BYTES[:, :channels])
    for channel in range(channels):
        low, spread = (mean or (0, 0, 0))[channel], (std or (1, 1, 1))[channel]
        wanted = (np.arange(256) / 255 - low) / spread
        np.testing.assert_allclose(inputs[0, channel, 0].numpy(), wanted, atol=1e-6)
    assert torch.equal(scaling.to_bytes(inputs), BYTES[:, :channels])
    ends = {(float(each.min()), float(each.max())) for each in inputs[0]}
    if len(ends) == 1:
        assert scaling.range == pytest.approx(ends.pop(), abs=1e-6)
    else:
        assert scaling.range is None
    # Between two bytes the nearer one counts, and outside of them the last.
    nearly = scaling(BYTES[:, :channels]) + 0.4 / 255 / (torch.tensor(std or (1.0,))[:, None, None])
    assert torch.equal(scaling.to_bytes(nearly), BYTES[:, :channels])
    assert scaling.to_bytes(inputs * 0 + 1e9).unique().tolist() == [255]
    assert scaling.to_bytes(inputs * 0 - 1e9).unique().tolist() == [0]


def test_sound_is_a_share_of_the_lowest_number_and_other_numbers_are_as_they_are() -> None:
    scaling = Scaling(torch.tensor([[[0.5]]]), torch.tensor([[[0.5]]]))
    sound = torch.tensor([-32768, 0, 16384, 32767], dtype=torch.int16)
    assert scaling(sound).tolist() == [-1.0, 0.0, 0.5, 32767 / 32768]
    for kind in (torch.int32, torch.int64, torch.float32):
        assert torch.equal(scaling(sound.to(kind)), sound.to(kind))


def test_held_out_samples_are_their_client_s_however_they_are_asked_for() -> None:
    data = tiny_run.dataset()
    samples = TensorSamples.of(data.train, Scaling.of(data, "cpu"), "cpu")
    random = np.random.RandomState(0)
    for _ in range(20):
        sizes = random.randint(0, 6, random.randint(1, 7))
        held = [random.choice(len(samples), size, replace=False) for size in sizes]
        clients = ClientSamples(samples, held)
        assert len(clients) == len(sizes) and clients.sizes.tolist() == sizes.tolist()
        for client, rows in enumerate(held):
            own = clients.of(client)
            assert torch.equal(own.x, samples.x[rows]) and torch.equal(own.y, samples.y[rows])
        some = random.choice(len(sizes), random.randint(1, len(sizes) + 1), replace=False)
        wanted = np.concatenate([held[client] for client in some])
        x, y = clients.at(torch.as_tensor(clients.rows(some)))
        assert torch.equal(x, samples.scaling(samples.x[wanted]))
        assert torch.equal(y, samples.y[wanted])
