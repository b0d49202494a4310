"""Prepared data as tensors, for training and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.data.dataset import Dataset, Redraw, Split
from fedrepro.support.errors import bad_value


@dataclass(frozen=True)
class Scaling:
    """Turn stored values into inputs: bytes into [0, 1], then (x - mean) / std per channel.

    16-bit sound becomes [-1, 1).

    Attributes:
        mean, std: float tensors [channels, 1, 1], or None for no normalisation.
    """

    mean: Tensor | None
    std: Tensor | None

    @classmethod
    def of(cls, dataset: Dataset, device: str, kind: str | None = None) -> "Scaling":
        """The data set's scaling, or ``kind``: "unit" for [0, 1], "symmetric" for [-1, 1].

        Raises:
            UserError: if there is a ``kind`` but the data are not images.
        """
        if kind and dataset.train.x.dtype != np.uint8:
            raise bad_value("setting", "scaling", kind, f"none for {dataset.name}: not images")
        if kind == "unit":
            return cls(None, None)
        if kind == "symmetric":
            middle = torch.full((dataset.input_shape[0], 1, 1), 0.5, device=device)
            return cls(middle, middle)

        def column(values: tuple[float, ...] | None) -> Tensor | None:
            if values is None:
                return None
            return torch.tensor(values, device=device).view(-1, 1, 1)

        return cls(column(dataset.mean), column(dataset.std))

    def __call__(self, x: Tensor) -> Tensor:
        """Scale bytes and sound to floats; features and tokens are unchanged."""
        if x.dtype == torch.int16:
            return x.to(torch.get_default_dtype()) / 32768
        if x.dtype != torch.uint8:
            return x
        scaled = x.to(torch.get_default_dtype()) / 255
        if self.mean is None or self.std is None:
            return scaled
        return (scaled - self.mean) / self.std

    @property
    def range(self) -> tuple[float, float] | None:
        """The smallest and largest input of a byte; None if they differ between channels."""
        lowest, highest = self._ends
        if len(lowest.unique()) > 1 or len(highest.unique()) > 1:
            return None
        return float(lowest.flatten()[0]), float(highest.flatten()[0])

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and largest input of a byte in any channel."""
        lowest, highest = self._ends
        return float(lowest.min()), float(highest.max())

    @property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """Black and white, by channel."""
        if self.mean is None or self.std is None:
            return torch.zeros(1), torch.ones(1)
        return -self.mean / self.std, (1 - self.mean) / self.std

    def to_bytes(self, x: Tensor) -> Tensor:
        """Inputs [n, channels, height, width] as uint8 images: the inverse of scaling."""
        if self.mean is not None and self.std is not None:
            x = x * self.std + self.mean
        return (x * 255).round().clamp(0, 255).nan_to_num().to(torch.uint8)


@dataclass(frozen=True)
class TensorSamples:
    """Samples of a split, kept on the device in their stored type and scaled on access.

    Bytes take a quarter of the memory of floats, and scaling costs less than 1 % of training. Only
    features and targets of float32 are converted to the run's float type at once.

    Attributes:
        redraw: draws their inputs anew, for data that draw; else None.
    """

    x: Tensor
    y: Tensor
    scaling: Scaling
    redraw: Redraw | None = None

    @classmethod
    def of(cls, split: Split, scaling: Scaling, device: str) -> "TensorSamples":
        return cls(_number(_tensor(split.x, device)), _number(_tensor(split.y, device)), scaling)

    def __len__(self) -> int:
        return len(self.y)

    def __call__(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        return self.scaling(self.x[first:last]), self.y[first:last]

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets at ``rows``, an index tensor of any shape."""
        return self.scaling(self.x[rows]), self.y[rows]

    def redrawn(self, seed: int, rows: Tensor) -> Tensor:
        """The inputs at ``rows`` [n], drawn anew by ``seed``, for samples with a ``redraw``.

        Raises:
            UserError: if their type would cut them.
        """
        assert self.redraw is not None
        inputs = torch.from_numpy(self.redraw(seed, rows.cpu().numpy()))
        kept = inputs.to(self.x.device, self.x.dtype)
        if not self.x.is_floating_point() and not kept.cpu().to(inputs.dtype).equal(inputs):
            wanted = f"those of {self.x.dtype}, as all had when they were first read"
            raise bad_value("samples that are drawn", "numbers", str(inputs.dtype), wanted)
        return self.scaling(kept)

    def some(self, indices: NDArray[np.int64]) -> "TensorSamples":
        """A copy of the samples at ``indices``."""
        rows = torch.from_numpy(indices).to(self.y.device)
        return TensorSamples(self.x[rows], self.y[rows], self.scaling)


class ClientSamples:
    """Samples that clients hold out, one client's after the other's.

    Args:
        samples: what they are chosen from.
        indices: int64 [n] for each client, the rows of its samples.

    Attributes:
        whole: the samples of all clients.
        sizes: number of samples of each client [clients].
    """

    def __init__(self, samples: TensorSamples, indices: Sequence[NDArray[np.int64]]) -> None:
        self.sizes = np.array([len(rows) for rows in indices], dtype=np.int64)
        self._starts = np.cumsum(self.sizes) - self.sizes
        self.whole = samples.some(np.concatenate([np.empty(0, np.int64), *indices]))

    def __len__(self) -> int:
        return len(self.sizes)

    def of(self, client: int) -> TensorSamples:
        """One client's samples, copied: bits may depend on where a tensor lies in memory."""
        first = int(self._starts[client])
        chosen = slice(first, first + int(self.sizes[client]))
        whole = self.whole
        return TensorSamples(whole.x[chosen].clone(), whole.y[chosen].clone(), whole.scaling)

    def rows(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these clients' samples in ``whole``, one client's after the other's."""
        sizes, starts = self.sizes[clients], self._starts[clients]
        before = np.cumsum(sizes) - sizes
        places: NDArray[np.int64] = np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
        return places

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets at ``rows`` of ``whole``."""
        return self.whole.at(rows)


def _number(values: Tensor) -> Tensor:
    """Fractions in the run's float type, and all else as it is."""
    return values.to(torch.get_default_dtype()) if values.is_floating_point() else values


def _tensor(array: NDArray[np.generic], device: str) -> Tensor:
    # Copy: writing to a tensor over a read-only memory map would crash the process.
    return torch.from_numpy(np.array(array)).to(device)


class ClientData:
    """The training data of all clients of a partition (:class:`fedrepro.engine.round.Clients`).

    Args:
        samples: the samples of all clients.
        indices: int64 [n] for each client, the rows of its samples.
    """

    def __init__(self, samples: TensorSamples, indices: list[NDArray[np.int64]]) -> None:
        self.samples = samples
        self.indices = indices
        self.sizes = [len(rows) for rows in indices]
        self._rows = [torch.from_numpy(rows).to(samples.y.device) for rows in indices]

    def rows(self, client: int) -> Tensor:
        return self._rows[client]

    def pooled(self) -> "ClientData":
        """A single client with the data of all clients, each sample once."""
        return ClientData(self.samples, [np.unique(np.concatenate(self.indices))])
