"""Prepare data sets: read raw files and write the arrays that `open_dataset` opens."""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.catalogue import digest_of, meaning_of
from fedrepro.data.catalogue.entries import NUMBERS
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import FORMAT, OPTIONAL, PREPARED, Split, arrays_of, read_meta, what_is
from fedrepro.data.fetching.raw_files import DOWNLOADS, download
from fedrepro.data.readers.arrays import WHOLE, as_float32
from fedrepro.data.readers.content import (
    LARGEST,
    Content,
    Progress,
    Reader,
    Source,
    of_classes,
    read_as,
)
from fedrepro.data.readers.packing import Packing
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, bad_value, brief, listed, refusal, writing
from fedrepro.support.files import atomic_folder, read_json
from fedrepro.support.locks import exclusive_lock

STORED = tuple(map(np.dtype, (np.uint8, np.int16, *WHOLE)))  # others become float32


def prepare(
    name: str,
    spec: DatasetSpec,
    archives: Path | None = None,
    *,
    downloads: Path = DOWNLOADS,
    root: Path = PREPARED,
    again: bool = False,
    progress: Progress = lambda share: None,
) -> Path:
    """Make and return the folder `root`/`name`; download missing files first.

    Do nothing if the folder was made from the same files and the same catalogue entry.

    Args:
        name: the data set's name.
        spec: its catalogue entry.
        archives: a folder of archives, searched before the network.
        downloads: the folder of raw files.
        root: the folder of prepared data.
        again: make it in any case.
        progress: called with the fraction of images decoded.

    Raises:
        UserError: if files cannot be obtained or written, or differ from the entry. The folder is
            then unchanged.
    """
    raw = download(name, spec, archives, root=downloads)
    recipe = recipe_of(spec, raw.sha256)
    folder = root / name
    with exclusive_lock(folder):
        if not again and _made_by(folder, recipe):
            return folder
        with atomic_folder(folder, partial(_arrays, name)) as temporary:
            scratch = temporary / "scratch"
            scratch.mkdir()
            content = read_checked(name, spec, Source(raw.path, scratch, progress))
            shutil.rmtree(scratch)
            _write(content, spec, name, recipe, temporary)
            _keep_time(folder, temporary)
    return folder


# Keys of meta.json that are those of the entry.
SAID = ("title", "licence", "citation", "task", "mean", "std")
# Keys of meta.json that say how data were prepared, not what they are.
HOW = {"recipe", "entry", "seal", "splits"}


def _keep_time(before: Path, made: Path) -> None:
    """Let a prepared folder with the same data have the time of the one that it replaces.

    Snakemake, which looks at times, then makes nothing again that was made from them.
    """
    with suppress(UserError):  # damaged, or of another version
        then, now = read_meta(before), read_json(made / "meta.json")
        if then and all(now.get(key) == then[key] for key in then.keys() - HOW):
            about = (before / "meta.json").stat()
            os.utime(made / "meta.json", ns=(about.st_atime_ns, about.st_mtime_ns))


def recipe_of(spec: DatasetSpec, raw_sha256: str, revision: int | None = None) -> str:
    """A hash of a catalogue entry and of the raw files that it is prepared from."""
    what = {"format": FORMAT, "spec": meaning_of(spec, revision), "raw": raw_sha256}
    return checksummed_json.digest_of(what)


def read_checked(name: str, spec: DatasetSpec, source: Source) -> Content:
    """Read raw files and check what they hold, without writing a data set.

    Raises:
        UserError: if the files are not what the entry says, or can't be trained on.
    """
    # Imported lazily: opening a data set needs neither pandas nor Pillow.
    module, _, function = spec.reader.partition(":")
    with read_as(spec.kind, name):
        read: Reader = getattr(import_module(f"fedrepro.data.readers.{module}"), function)
        content = read(spec, source)
        if spec.only_classes is not None:
            content = of_classes(content, spec.only_classes, name)
        _check(content, spec, name)
    return content


def _arrays(name: str, folder: Path) -> set[str]:
    """The files of arrays that data set ``name`` has in a folder; empty if meta.json is damaged.

    The folder has another name than the data set while it is replaced.
    """
    try:
        return {*arrays_of(checksummed_json.checked(folder / "meta.json", what_is(name)))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _made_by(folder: Path, recipe: str) -> bool:
    try:
        meta = read_meta(folder)
        return (
            meta is not None
            and meta.get("recipe") == recipe
            and all(
                (folder / file).stat().st_size == about["size"]
                for file, about in arrays_of(meta).items()
            )
        )
    except (UserError, OSError, KeyError, TypeError, AttributeError):  # damaged
        return False


def _check(content: Content, spec: DatasetSpec, name: str) -> None:
    classes = len(content.class_names)
    for split, samples in (("train", content.train), ("test", content.test)):
        if samples is None:
            continue
        if len(samples.y) == 0:
            raise refusal(name, f"the {split} split has no samples", split)
        if samples.x.dtype not in STORED and not (np.abs(samples.x) < LARGEST).all():
            why = f"{split}: a value is NaN, infinite or too large for float32"
            raise refusal(name, why, split)
        _check_digits(content, samples, f"{name}: {split}")
        if spec.task in NUMBERS:
            _check_targets(samples, spec.task, f"{name}: {split}")
            continue
        low, high = int(samples.y.min()), int(samples.y.max())
        if low < 0 or high >= classes:
            label = low if low < 0 else high
            why = f"{split}: a label is {label}: expected 0 to {classes - 1}"
            raise refusal(name, why, split, label)
    numbers = spec.task in NUMBERS
    if not numbers and (classes < 2 or (spec.task == "binary" and classes != 2)):
        expected = "2 classes" if spec.task == "binary" else "at least 2 classes"
        raise refusal(name, f"{classes} classes: expected {expected}", "classes", classes)
    if (
        spec.every_class and content.train.y.ndim == 1 and not numbers
    ):  # a model has an output for each, but would never learn this one
        counts = np.bincount(content.train.y, minlength=classes)
        for empty in np.flatnonzero(counts == 0):
            own = content.class_names[empty]
            wanted = f"expected some of each class: {listed(content.class_names)}"
            why = f"class {brief(own)}: no training samples: {wanted}"
            raise refusal(name, why, "classes", own)
    if spec.mean is not None and len(spec.mean) != content.train.x.shape[1]:
        channels = content.train.x.shape[1]
        raise bad_value(name, "mean", list(spec.mean), f"{channels} numbers")


def _check_digits(content: Content, samples: Split, where: str) -> None:
    """Refuse features and targets that float32 makes equal."""
    standardised = bool(content.notes.get("standardised"))
    arrays = {"x": (samples.x, content.notes.get("features", [])), "y": (samples.y, [])}
    for key, (array, names) in arrays.items():
        if array.dtype not in STORED and array.dtype.kind == "f":
            names = names if len(names) == array[0].size else []
            as_float32(where, key, array, names, standardised and key == "x")


def _check_targets(samples: Split, task: str, where: str) -> None:
    """Refuse targets that are no finite numbers, or of several labels not 0 or 1."""
    if samples.y.dtype.kind != "f":
        kinds = "a column of kind tabular_csv, or kind arrays"
        raise bad_value(where, "task", task, f"data with numbers, not classes, such as {kinds}")
    if not (np.abs(samples.y) < LARGEST).all():
        raise refusal(where, "a target is NaN, infinite or too large for float32")
    if task == "multi_label" and not np.isin(samples.y, (0, 1)).all():
        raise bad_value(where, "task", task, "every target to be 0 or 1")


def _write(content: Content, spec: DatasetSpec, name: str, recipe: str, folder: Path) -> None:
    splits = {"train": _write_split(folder, "train", content.train)}
    if content.test is not None:
        splits["test"] = _write_split(folder, "test", content.test)
    arrays = arrays_of({"splits": splits})
    hashes = {file.removesuffix(".npy"): about["sha256"] for file, about in arrays.items()}
    if "packing" in content.notes:  # the same bytes as other inputs are other data
        hashes["packing"] = str(Packing.of(content.notes["packing"]))
    missing = {key: hashes.pop(key) for key in list(hashes) if key.endswith("_missing")}
    meta = {
        "format": FORMAT,
        "name": name,
        **{key: getattr(spec, key) for key in SAID},
        "classes": len(content.class_names),
        "class_names": content.class_names,
        "input_shape": list(content.train.x.shape[1:]),
        "splits": splits,
        "content_sha256": checksummed_json.digest_of(hashes),
        **({"missing_sha256": checksummed_json.digest_of(missing)} if missing else {}),
        "recipe": recipe,
        "entry": digest_of(spec),
        **content.notes,
    }
    sealed = checksummed_json.sealed(meta, what_is(name))
    text = json.dumps(sealed, indent=2, sort_keys=True) + "\n"
    with writing(folder):
        (folder / "meta.json").write_text(text, encoding="utf-8")


def _write_split(folder: Path, split: str, samples: Split) -> dict[str, Any]:
    x = samples.x if samples.x.dtype in STORED else samples.x.astype(np.float32)
    kind = np.float32 if samples.y.dtype.kind == "f" else np.int64
    arrays: dict[str, NDArray[Any]] = {"x": x, "y": samples.y.astype(kind)}
    for key, stored in OPTIONAL.items():
        if (array := getattr(samples, key)) is not None:
            arrays[key] = array.astype(stored)
    return {
        "samples": len(samples.y),
        "arrays": {
            f"{split}_{key}": _write_array(folder / f"{split}_{key}.npy", array)
            for key, array in arrays.items()
        },
    }


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    """Write an .npy file with plain writes: np.save hides why a write failed."""
    array = np.ascontiguousarray(array)
    with path.open("xb") as file:
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.data.cast("B") if array.size else b"")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest, "shape": list(array.shape)}
