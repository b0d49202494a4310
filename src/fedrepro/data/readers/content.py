"""The result of a reader of raw files, before it is written as a prepared data set."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.partition.assigning import stratified_choice
from fedrepro.support.errors import UserError, bad_value, brief, listed, refusal, unreadable

Item = TypeVar("Item")

FIRST = 3  # rows, or images, that `fedrepro check-data` shows
LARGEST = np.finfo(np.float32).max  # of the numbers that can be stored


@dataclass(frozen=True)
class Split:
    """The training or test samples: of a prepared data set in memory-mapped arrays.

    Those of a reader may have other types, of which `prepare` makes these.

    Attributes:
        x: uint8 [n, channels, height, width] for images, float32 [n, features] for tables, int16
            [n, 1, samples] for sound, int32 or int64 [n, ...] for whole numbers such as token ids.
        y: int64 [n], the class of each sample; [n, length] for the next words of a text; float32
            [n] or [n, ...], the targets of a regression, or [n, labels] of 0 and 1.
        group: int64 [n], the natural client of each sample, or None.
        held_out: bool [n], the samples that the data set marks for testing, or None.
        missing: bool [n, features], the cells that a table leaves empty, or None.
        drawn: whether the inputs were drawn when they were read, as by a random transform.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    group: NDArray[Any] | None = None
    held_out: NDArray[Any] | None = None
    missing: NDArray[Any] | None = None
    drawn: bool = False

    def __len__(self) -> int:
        return len(self.y)

    def take(self, mask: NDArray[np.bool_]) -> "Split":
        """The samples where `mask` is true, with all that is known of them."""

        def of_mask(array: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if array is None else array[mask]

        return replace(
            self,
            x=self.x[mask],
            y=self.y[mask],
            group=of_mask(self.group),
            held_out=of_mask(self.held_out),
            missing=of_mask(self.missing),
        )


def joined(parts: Sequence[Split]) -> Split:
    """Samples, labels and groups of several parts, one after another."""
    groups = [part.group for part in parts if part.group is not None]
    x, y = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    return Split(x, y, np.concatenate(groups) if groups else None)


@dataclass(frozen=True)
class Content:
    """A whole data set in memory.

    Attributes:
        class_names: of the classes, or of the numbers that a regression predicts.
        notes: further facts for meta.json, such as the names of features, and
            `client_standardised`, the columns that clients standardise, and `standardised`, whether
            features were standardised with all training rows.
        understood: for `fedrepro check-data`: what was read (a column, say) and what it was taken
            for, then the first rows.
    """

    train: Split
    class_names: list[str]
    test: Split | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    understood: Sequence[tuple[str, str]] = ()

    def mapped(self, change: Callable[[Split], Split]) -> "Content":
        """The data set after a change of its training and its test samples."""
        test = None if self.test is None else change(self.test)
        return replace(self, train=change(self.train), test=test)


def of_classes(content: Content, names: Sequence[str], where: object) -> Content:
    """The samples of the classes ``names``, which become 0, 1, ... in this order.

    Raises:
        UserError: for a class that the data do not have, and for data without one class a sample
            or whose other classes' samples standardise or fill features or make the vocabulary.
    """
    if content.train.y.ndim != 1 or content.train.y.dtype.kind == "f":
        raise bad_value(where, "only_classes", [*names], "none, as a sample is not of one class")
    if {"standardised", "vocabulary"} & {*content.notes} or content.train.missing is not None:
        wanted = "none, as all rows scale or fill features, or make the vocabulary"
        raise bad_value(where, "only_classes", [*names], wanted)
    for name in names:
        if name not in content.class_names:
            expectation = f"names of {listed(content.class_names)}"
            raise bad_value(where, "only_classes", name, expectation, content.class_names)
    for samples in filter(None, (content.train, content.test)):
        if not np.isin(samples.y, range(len(content.class_names))).all():
            raise refusal(where, f"a label is not from 0 to {len(content.class_names) - 1}")
    numbers = np.full(len(content.class_names), -1, np.int64)
    numbers[[content.class_names.index(name) for name in names]] = np.arange(len(names))

    def kept(samples: Split) -> Split:
        left = samples.take(numbers[samples.y] >= 0)
        return replace(left, y=numbers[left.y])

    return replace(content.mapped(kept), class_names=[*names])


SPLITS = ("train", "test")
Progress = Callable[[float], None]  # called with the fraction of samples that have been read


@dataclass(frozen=True)
class Source:
    """The raw files of a data set, as readers get them.

    Attributes:
        path: a folder of downloads, or the user's file or folder.
        scratch: an empty folder to unpack into.
    """

    path: Path
    scratch: Path
    progress: Progress = lambda share: None

    def counted(self, items: Sequence[Item]) -> Iterator[tuple[int, Item]]:
        """A reader's items one after another, with their places; each is one step of progress."""
        for place, item in enumerate(items):
            yield place, item
            self.progress((place + 1) / len(items))


Reader = Callable[[Any, Source], Content]  # of an entry


@contextmanager
def read_as(kind: str, where: object) -> Iterator[None]:
    """Turn a reader's exceptions into a UserError, because it reads only files from others.

    Readers raise UserError for faults that they know; libraries raise many other exceptions.
    OSErrors are left to the caller.

    Raises:
        UserError: for all other exceptions.
    """
    try:
        yield
    except (UserError, OSError):
        raise
    except MemoryError:
        raise unreadable(where, "not enough memory", kind) from None
    except Exception as error:
        reason = brief(str(error).strip().partition("\n")[0])
        raise unreadable(where, f"{type(error).__name__}: {reason}", kind) from error


def split_by(
    samples: Split,
    cells: NDArray[Any],
    where: object,
    key: str = "split",
    place: Callable[[int], str] | None = None,
) -> tuple[Split, Split | None]:
    """Training and test samples, as a column says; None if it has no "test".

    Args:
        key: the column, in errors.
        place: of a row, in words.

    Raises:
        UserError: for another word, and if no sample has "train".
    """
    unknown = np.flatnonzero(~np.isin(cells, SPLITS))
    if len(unknown):
        row = int(unknown[0])
        wanted = "'train' or 'test'" + (f" in {place(row)}" if place else "")
        raise bad_value(where, key, str(cells[row]), wanted, SPLITS)
    is_test = cells == "test"
    if is_test.all():
        raise refusal(where, f"{key}: no sample has 'train'", key)
    return samples.take(~is_test), samples.take(is_test) if is_test.any() else None


def held_out(samples: Split, fraction: float, where: object) -> tuple[Split, Split | None]:
    """Split off a share of each class, the same on every machine; None if ``fraction`` is 0.

    Samples with several labels, such as texts, and those with numbers count as one class.

    Raises:
        UserError: if one side would be empty.
    """
    if fraction == 0:
        return samples, None
    wanted = round(fraction * len(samples.y))
    if not 0 < wanted < len(samples.y):
        share = f"a share of the {len(samples.y)} samples that leaves some on both sides"
        raise bad_value(where, "test_fraction", fraction, share)
    one = samples.y.ndim == 1 and samples.y.dtype.kind != "f"
    labels = samples.y if one else np.zeros(len(samples.y), np.int64)
    mask = stratified_choice(labels, wanted, RandomState(0))
    return samples.take(~mask), samples.take(mask)
