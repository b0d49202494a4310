"""Wrong training labels: noise, as in SuPerFed (thesis chapter II, 2.4), and attackers' labels."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.dataset import Split
from fedrepro.data.partition.partition import Partition
from fedrepro.support.errors import refusal
from fedrepro.support.rng import numpy_stream

Labels = NDArray[np.int64]


class LabelNoise(Protocol):
    """The keys in experiment files (:class:`fedrepro.config.settings.Noise`)."""

    @property
    def kind(self) -> str: ...

    @property
    def rate(self) -> float: ...

    @property
    def everywhere(self) -> bool: ...


def flip(
    labels: Labels, classes: int, kind: str, rate: float, random: np.random.Generator
) -> Labels:
    """``labels`` [n], each wrong with probability ``rate``.

    With "pair", a wrong label is the next class, cyclically (eq. 2.7); with "symmetric", any other
    class with equal probability (eq. 2.8).
    """
    wrong = random.random(len(labels)) < rate
    distance = 1 if kind == "pair" else random.integers(1, classes, len(labels))
    return np.where(wrong, (labels + distance) % classes, labels)


def with_noise(
    split: Split, partition: Partition, classes: int, noise: LabelNoise | None, seed: int
) -> Split:
    """The training split with labels flipped according to ``noise``; unchanged if it is None.

    Only clients' training and validation labels change, because clients have no clean labels. With
    ``everywhere``, their test labels change, too, as in the released code, which flips before it
    splits and swaps the two kinds (discrepancy 25). Which labels are flipped does not depend on
    the partition.

    Raises:
        UserError: if samples have several labels.
    """
    if noise is None:
        return split
    clean = _one_each(split, "noise")
    flipped = flip(clean, classes, noise.kind, noise.rate, numpy_stream(seed, "noise"))
    held = [rows for name, rows, _ in partition.parts if name != "test" or noise.everywhere]
    rows = np.concatenate([each for part in held for each in part])
    noisy = clean.copy()
    noisy[rows] = flipped[rows]
    return replace(split, y=noisy)


def with_reversed_labels(
    split: Split, partition: Partition, classes: int, clients: Collection[int]
) -> Split:
    """The training split in which some clients' training labels y are ``classes`` - 1 - y.

    Fang et al., USENIX Security 2020, "Local model poisoning attacks to Byzantine-robust federated
    learning", label flipping attack (https://arxiv.org/abs/1911.11815). A
    sample that several clients hold is wrong for all of them.

    Raises:
        UserError: if samples have several labels.
    """
    labels = _one_each(split, "attack: label_flip").copy()
    for rows in (partition.train[client] for client in clients):
        labels[rows] = classes - 1 - split.y[rows]
    return replace(split, y=labels)


def _one_each(split: Split, key: str) -> Labels:
    """The labels [n].

    Raises:
        UserError: if samples have several, or numbers as targets.
    """
    if split.y.ndim > 1 or split.y.dtype.kind == "f":
        raise refusal(key, "expected data with one class for each sample, not texts or numbers")
    return np.asarray(split.y)
