"""Images of published data sets, from the files that their authors offer.

CIFAR-10 and CIFAR-100 in their binary versions, which need no unpickling; MedMNIST's npz files
(Yang et al., Scientific Data 10, 2023); TinyImageNet, 200 classes of 64 x 64 images, in its
official archive; the downsampled ImageNet of Chrabaszcz et al. (arXiv:1707.08819) in the official
npz version (the other official version is pickled, and this project unpickles nothing); CelebA with
celebrities as clients, made from the official files as in LEAF.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue import kinds
from fedrepro.data.fetching.archives import lacking, opened, opened_around, unpack
from fedrepro.data.readers.arrays import npz_arrays, unlike
from fedrepro.data.readers.content import Content, Source, Split, joined
from fedrepro.data.readers.images import read_images, resized
from fedrepro.support.errors import bad_value, reading, refusal, refuse_unknown
from fedrepro.support.files import read_text, visible

SHAPE = (3, 32, 32)  # the red, the green and the blue plane


def read_cifar10(spec: kinds.Cifar10Binary, source: Source) -> Content:
    """Five training files and a test file; a record is a label and an image.

    Raises:
        UserError: when a file is truncated.
    """
    *training, test = (file.name for _, file in spec.files)
    return Content(
        train=_samples(spec, source.path, source.path, training),
        test=_samples(spec, source.path, source.path, [test]),
        class_names=list(spec.class_names),
    )


def read_cifar100(spec: kinds.Cifar100Binary, source: Source) -> Content:
    """A training and a test file; a record is a coarse label, a fine one and an image.

    Raises:
        UserError: when a file is missing or truncated.
    """
    archive = source.path / spec.archive.name
    files = ("train.bin", "test.bin", "fine_label_names.txt")
    root = opened_around(archive, source.scratch, *files)
    return Content(
        train=_samples(spec, archive, root, ["train.bin"]),
        test=_samples(spec, archive, root, ["test.bin"]),
        class_names=read_text(root / files[2]).split(),
    )


def _samples(
    spec: kinds.Cifar10Binary | kinds.Cifar100Binary, where: Path, root: Path, names: Sequence[str]
) -> Split:
    """The images of some files; the class is the last byte of a record before its image.

    Args:
        where: what an error names.
    """
    labels = 1 if isinstance(spec, kinds.Cifar10Binary) else 2
    grouped = isinstance(spec, kinds.Cifar100Binary) and spec.superclasses  # by the first byte
    width = labels + int(np.prod(SHAPE))
    parts = []
    for name in names:
        content = np.fromfile(root / name, np.uint8)
        if content.size == 0 or content.size % width:
            raise refusal(where, f"{name} is truncated", name, code="damaged")
        parts.append(content.reshape(-1, width))
    rows = np.concatenate(parts)
    images = rows[:, labels:].reshape(-1, *SHAPE)
    images = images if spec.side is None else resized(images, spec.side)
    return Split(images, rows[:, labels - 1], rows[:, 0] if grouped else None)


def read_medmnist(spec: kinds.MedMnist, source: Source) -> Content:
    """Training and test images: in the file, uint8 [n, side, side] (grey) or [n, side, side, 3].

    Raises:
        UserError: if the file is damaged or contains pickles, or its arrays have other shapes.
    """
    path = source.path / spec.file.name

    def split(name: str) -> Split:
        x, y = npz_arrays(path, (f"{name}_images", f"{name}_labels")).values()
        shape = (len(x), spec.side, spec.side)
        if x.dtype != np.uint8 or x.shape not in (shape, (*shape, 3)):
            raise unlike(path, f"{name}_images", x, f"uint8 {shape} or {(*shape, 3)}")
        if y.shape != (len(x), 1) or not np.issubdtype(y.dtype, np.integer):
            raise unlike(path, f"{name}_labels", y, f"whole numbers {(len(x), 1)}")
        images = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
        return Split(np.ascontiguousarray(images), y[:, 0])

    return Content(split("train"), list(spec.class_names), split("test"))


def read_tiny_imagenet(spec: kinds.TinyImageNet, source: Source) -> Content:
    """The training images, and as test set the 10,000 validation images, whose labels are known.

    Raises:
        UserError: if the archive has another layout, or an image is damaged.
    """
    archive = source.path / spec.archive.name
    root = opened_around(archive, source.scratch, "wnids.txt")
    names = sorted(read_text(root / "wnids.txt").split())
    numbers = {name: at for at, name in enumerate(names)}
    training = [
        (path, number)
        for name, number in numbers.items()
        for path in visible(root / "train" / name / "images", "*.JPEG")
    ]
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file() or not training:
        raise lacking(archive, "train or val/val_annotations.txt")
    testing = []
    for line in read_text(annotations).splitlines():
        image, name, *_ = [*line.split("\t"), ""]
        refuse_unknown(archive, "val_annotations.txt", [name], numbers, "a class of wnids.txt")
        testing.append((root / "val" / "images" / image, numbers[name]))
    paths, labels = zip(*training, *testing, strict=True)
    x = read_images(source, paths, archive, spec.side)
    samples, tested = Split(x, np.array(labels, np.int64)), np.arange(len(x)) >= len(training)
    return Content(samples.take(~tested), names, samples.take(tested))


BATCHES = [f"train_data_batch_{number}.npz" for number in range(1, 11)]
VALIDATION, CLASSES = "val_data.npz", "map_clsloc.txt"


def read_downsampled_imagenet(spec: kinds.DownsampledImageNet, source: Source) -> Content:
    """The training images, and as test set the validation images, whose labels are known.

    Batches are read one at a time, keeping only the entry's classes. Classes are numbered in the
    order of their WordNet ids, as in a folder of images.

    Raises:
        UserError: if a file is missing, damaged, pickled or of another image size, or a class is
            unknown.
    """
    for archive in visible(source.path, "**/*.zip"):
        unpack(archive, source.scratch / archive.stem)
    known = _classes(_found(CLASSES, source.path, source.scratch))
    names = sorted(spec.classes or known)
    refuse_unknown(CLASSES, "classes", names, known, "a class that it lists")
    numbers = np.full(max(known.values()) + 1, -1, np.int64)
    numbers[[known[name] for name in names]] = np.arange(len(names))
    parts = []
    for _, batch in source.counted((*BATCHES, VALIDATION)):
        parts.append(_batch(_found(batch, source.path, source.scratch), spec.side, numbers))
    return Content(joined(parts[:-1]), names, parts[-1])


def _found(name: str, *folders: Path) -> Path:
    for folder in folders:
        for path in visible(folder, f"**/{name}"):
            return path
    why = f"{name} is missing, there and in its zip archives"
    raise refusal(folders[0], why, name, code="missing")


def _classes(path: Path) -> dict[str, int]:
    """WordNet ids and their numbers, from lines like `n02119789 1 kit_fox`."""
    classes = {}
    for line in read_text(path).splitlines():
        name, number, *_ = [*line.split(), "", ""]
        if not number.isascii() or not number.isdigit():
            raise bad_value(path, "line", line, "one like 'n02119789 1 kit_fox'")
        classes[name] = int(number)
    if not classes:
        raise refusal(path, "it has no lines", code="damaged")
    return classes


def _batch(path: Path, side: int, numbers: NDArray[np.int64]) -> Split:
    """A file's images of the classes whose entry in `numbers` is not -1."""
    labels, pixels = npz_arrays(path, ("labels", "data")).values()
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3 * side * side):
        wanted = f"uint8 {(len(labels), 3 * side * side)}, {side} x {side} pixels"
        raise unlike(path, "data", pixels, wanted)
    if len(labels) and not 0 < labels.min() <= labels.max() < len(numbers):
        raise refusal(path, f"a label is not in {CLASSES}", "labels")
    wanted = numbers[labels]
    kept = wanted >= 0
    return Split(pixels[kept].reshape(-1, 3, side, side), wanted[kept])


def read_celeba(spec: kinds.Celeba, source: Source) -> Content:
    """Images of celebrities with at least ``minimum`` images; the label is the attribute.

    Raises:
        UserError: if a file is not in CelebA's format, or an image is missing.
    """
    files = spec.files
    owners = dict(_pairs(source.path / files.identities.name))
    where = source.path / files.attributes.name
    header, *rows = _lines(where)[1:]
    names = header.split()
    refuse_unknown(where, "attribute", [spec.attribute], names, "one it has")
    column = 1 + names.index(spec.attribute)
    labels = {
        words[0]: words[column]
        for words in (row.split() for row in rows)
        if len(words) == 1 + len(names)
    }
    lacking = next((name for name in owners if labels.get(name) not in ("1", "-1")), None)
    if lacking:
        raise refusal(where, f"{lacking}: expected 1 or -1", lacking, labels.get(lacking))
    people, counts = np.unique(list(owners.values()), return_counts=True)
    kept = {person: at for at, person in enumerate(sorted(people[counts >= spec.minimum], key=int))}
    chosen = sorted(name for name, person in owners.items() if person in kept)
    archive = source.path / files.images.name
    pictures = visible(opened(archive, source.scratch), "**/*.jpg")
    images = {path.name: path for path in pictures}
    paths = [images.get(name, source.scratch / name) for name in chosen]
    return Content(
        train=Split(
            read_images(source, paths, archive, spec.side),
            np.array([labels[name] == "1" for name in chosen], np.int64),
            np.array([kept[owners[name]] for name in chosen], np.int64),
        ),
        class_names=[f"not {spec.attribute}", spec.attribute],
        notes={"groups": len(kept)},
    )


def _lines(path: Path) -> list[str]:
    with reading(path, OSError, UnicodeDecodeError):
        lines = read_text(path).splitlines()
    if len(lines) < 2:
        raise refusal(path, f"truncated: {len(lines)} lines", code="damaged")
    return lines


def _pairs(path: Path) -> list[list[str]]:
    """The two words of each line."""
    rows = [line.split() for line in _lines(path) if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            why = f"line {number}: {len(row)} words: expected 2"
            raise refusal(path, why, f"line {number}", len(row), "damaged")
    return rows
