"""LEAF's format: folders train and test of JSON files, each with the samples of some users.

The readers of FEMNIST and Shakespeare merge a user's samples of both folders, because SuPerFed's
clients split their own. Samples of the folder test are marked (`held_out`), so that a partition can
use them instead (`given_test`).
"""

import string
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import LeafFemnist, LeafShakespeare
from fedrepro.data.fetching.archives import opened
from fedrepro.data.readers import characters
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.support.errors import refusal
from fedrepro.support.files import read_json

Item = TypeVar("Item")
Array = NDArray[Any]

SIDE = 28
WRITTEN = string.digits + string.ascii_uppercase + string.ascii_lowercase


def parts(
    path: Path, scratch: Path, convert: Callable[[Any, Any], Item]
) -> dict[str, Iterator[tuple[str, Item]]]:
    """For train and test, iterate over users and `convert` of their x and y, reading file by file.

    Args:
        path: a folder, or an archive of one.

    Raises:
        UserError: if the folders are missing; during iteration, if a file is not in LEAF's format
            or `convert` raises a ValueError, KeyError or TypeError.
    """
    root = opened(path, scratch)
    train = next(iter(sorted(folder for folder in root.rglob("train") if folder.is_dir())), None)
    if train is None or not (train.parent / "test").is_dir():
        why = "expected folders train and test with LEAF's JSON files"
        raise refusal(path, why, "test", code="missing")
    return {part: _users(path, root, train.parent / part, convert) for part in ("train", "test")}


def _users(
    path: Path, root: Path, folder: Path, convert: Callable[[Any, Any], Item]
) -> Iterator[tuple[str, Item]]:
    for file in sorted(folder.glob("*.json")):
        try:
            data = read_json(file)["user_data"]
            for user, own in data.items():
                x, y = own["x"], own["y"]
                if len(x) != len(y):
                    raise ValueError(f"{len(x)} samples and {len(y)} labels of {user}")
                yield user, convert(x, y)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            where = f"{path}: {file.relative_to(root)}"
            raise refusal(where, f"not in LEAF's format: {error!r}", code="damaged") from None


def read_leaf_femnist(
    _spec: LeafFemnist, path: Path, scratch: Path, _progress: Progress
) -> Content:
    """Images [n, 1, 28, 28] of 62 digits and letters, as bytes if all are multiples of 1/255.

    Raises:
        UserError: if the folder or a file is not in LEAF's format.
    """

    def image_and_label(x: Any, y: Any) -> tuple[Array, Array]:
        images = np.array(x, np.float64).reshape(len(x), 1, SIDE, SIDE)
        if not ((images >= 0) & (images <= 1)).all():
            raise ValueError("a pixel is not between 0 and 1")
        whole = np.rint(images * 255)
        exact = np.abs(images * 255 - whole).max(initial=0) < 1e-4  # float32 rounding
        labels = np.array(y)
        if labels.ndim != 1 or (labels.size and not np.issubdtype(labels.dtype, np.integer)):
            raise ValueError("a label is no whole number")
        return whole.astype(np.uint8) if exact else images.astype(np.float32), labels

    return _together(path, scratch, image_and_label, list(WRITTEN))


def read_leaf_shakespeare(
    spec: LeafShakespeare, path: Path, scratch: Path, _progress: Progress
) -> Content:
    """Character ids [n, length], and that of the next character (data/readers/characters.py).

    Raises:
        UserError: if the folder or a file is not in LEAF's format.
    """

    def before_and_next(x: Any, y: Any) -> tuple[Array, Array]:
        if any(len(text) != spec.length for text in x) or any(len(text) != 1 for text in y):
            raise ValueError(f"expected {spec.length} characters and the next one")
        before = characters.numbers("".join(x)).reshape(-1, spec.length)
        return before, characters.numbers("".join(y))

    content = _together(path, scratch, before_and_next, list(characters.ALPHABET))
    # Bytes would be treated as images.
    return replace(content, train=replace(content.train, x=content.train.x.astype(np.int32)))


def _together(
    path: Path,
    scratch: Path,
    convert: Callable[[Any, Any], tuple[Array, Array]],
    class_names: list[str],
) -> Content:
    """All samples of both parts, ordered by user name, with test samples marked."""
    samples = [
        (user, part == "test", *arrays)
        for part, users in parts(path, scratch, convert).items()
        for user, arrays in users
        if len(arrays[1])
    ]
    if not samples:
        raise refusal(path, "no samples")
    samples.sort(key=lambda each: each[:2])
    names = sorted({user for user, *_ in samples})
    sizes = [len(y) for *_, y in samples]
    images = [x for _, _, x, _ in samples]
    if len({x.dtype for x in images}) > 1:  # bytes of some, fractions of others
        images = [x if x.dtype == np.float32 else x.astype(np.float32) / 255 for x in images]
    numbers = {name: at for at, name in enumerate(names)}
    train = Split(
        np.concatenate(images),
        np.concatenate([y for *_, y in samples]),
        np.repeat([numbers[user] for user, *_ in samples], sizes),
        np.repeat([test for _, test, *_ in samples], sizes),
    )
    return Content(train, class_names, notes={"groups": names})
