"""Open prepared data sets: memory-mapped arrays and a small JSON file."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.readers.content import Split as Split  # in which data sets have samples
from fedrepro.data.readers.packing import Packing, Shapes
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, brief, nearest, refusal
from fedrepro.support.files import plain, sha256_of

PREPARED = Path("results/data")
FORMAT = 2  # bump when the layout of a prepared folder changes
OPTIONAL = {"group": np.int64, "held_out": np.bool_, "missing": np.bool_}  # arrays of a split


class Redraw(Protocol):
    """Inputs of training samples that are drawn whenever they are read, as by random transforms."""

    @property
    def drawing(self) -> list[Any]:
        """The objects that draw."""

    def __call__(self, seed: int, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The inputs [n, ...] of the samples at ``rows``, drawn by ``seed``."""


@dataclass(frozen=True)
class Dataset:
    """A prepared data set.

    Attributes:
        task: "classification", "binary" (two classes, one logit), "next_word", "regression" or
            "multi_label".
        classes: their number; without classes, how many numbers are predicted of a sample, or at
            each of its places.
        input_shape: the shape of one sample, such as (1, 28, 28) or (15,).
        mean: per channel, subtracted after division of uint8 by 255; None if not applied.
        std: per channel, the divisor after that; None if not applied.
        client_standardised: the columns that each client standardises with its own training rows.
        standardised: whether its features were standardised, with all training rows.
        packing: where each input is, if samples have several; their shape is flat then.
        redraw: inputs of training samples drawn anew, for data that draw; else None.
        meta: all of meta.json; `content_sha256` in it identifies the data, and `clients_sha256` of
            data in memory, in which the clients follow each other, who has which.
    """

    name: str
    task: str
    classes: int
    input_shape: tuple[int, ...]
    train: Split
    test: Split | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    meta: dict[str, Any]
    client_standardised: tuple[int, ...] = ()
    standardised: bool = False
    redraw: Redraw | None = None
    packing: Packing | None = None

    @property
    def shapes(self) -> Shapes:
        """The shape of one sample, or of each of its inputs."""
        return self.packing.shapes if self.packing else self.input_shape

    @property
    def outputs(self) -> int:
        """The number of outputs of a model."""
        return 1 if self.task == "binary" else self.classes

    @property
    def group_names(self) -> list[str]:
        """The names of natural clients in the order of their numbers, or [] if they have none."""
        names = self.meta.get("groups")
        return names if isinstance(names, list) else []


def open_dataset(name: str, root: Path = PREPARED) -> Dataset:
    """Open `root`/`name`; this reads only headers and does not need torch.

    Raises:
        UserError: if it has not been prepared or is damaged.
    """
    folder = root / name
    meta = read_meta(folder)
    if meta is None:
        prepared = [path.parent.name for path in root.glob("[!.]*/meta.json")]
        repair = f"run `fedrepro prepare {name}`{nearest(name, prepared)}"
        why = f"the data set has not been prepared: {repair}"
        raise refusal(folder, why, value=name, code="missing")
    try:
        splits = {split: _split(folder, split, about) for split, about in meta["splits"].items()}
        return Dataset(
            name=name,
            task=meta["task"],
            classes=meta["classes"],
            input_shape=tuple(meta["input_shape"]),
            train=splits["train"],
            test=splits.get("test"),
            mean=None if meta["mean"] is None else tuple(meta["mean"]),
            std=None if meta["std"] is None else tuple(meta["std"]),
            meta=meta,
            client_standardised=tuple(meta.get("client_standardised", ())),
            standardised=bool(meta.get("standardised", False)),
            packing=Packing.of(meta["packing"]) if "packing" in meta else None,
        )
    except Exception as error:  # whatever a damaged meta.json or header leads to
        raise damaged(folder, error) from None


def refuse_damage(name: str, root: Path = PREPARED) -> None:
    """Verify the checksums of all arrays of a prepared data set: disks may corrupt bits.

    Raises:
        UserError: if an array has changed.
    """
    folder = root / name
    meta = read_meta(folder)
    try:
        for name, about in arrays_of(meta or {"splits": {}}).items():
            if sha256_of(folder / name) != about["sha256"]:
                raise ValueError(f"{name} has a wrong checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder, error) from None


def is_prepared(name: str, root: Path = PREPARED) -> bool:
    """Return True if a data set has been prepared, whether or not it is damaged now."""
    return (root / name / "meta.json").exists()


def read_meta(folder: Path) -> dict[str, Any] | None:
    """A prepared folder's meta.json, or None if it does not exist.

    Raises:
        UserError: if it is damaged or from another version of fedrepro.
    """
    try:
        meta = checksummed_json.checked(folder / "meta.json", what_is(folder.name))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise damaged(folder, ValueError(f"meta.json: {error}")) from None
    if meta.get("format") != FORMAT:
        raise damaged(folder, ValueError("meta.json is of another version"))
    return meta


def arrays_of(meta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of arrays that meta.json lists, with their size and SHA-256, by name."""
    splits = meta["splits"].values()
    return {f"{key}.npy": about for split in splits for key, about in split["arrays"].items()}


def what_is(name: str) -> str:
    """The name by which meta.json of a data set is sealed: its place."""
    return f"data/{name}/meta"


def damaged(folder: Path, error: Exception) -> UserError:
    """The error for a damaged prepared folder.

    Raises:
        MemoryError: if memory ran out, which says nothing of the folder.
    """
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        raise MemoryError(*error.args) from error
    reason = brief(str(error).partition("\n")[0])
    why = f"damaged ({reason}): run `fedrepro prepare {folder.name} --again`"
    return refusal(folder, why, code="damaged")


def _split(folder: Path, split: str, about: dict[str, Any]) -> Split:
    """The training or test samples of a folder."""

    def array(name: str) -> NDArray[Any]:
        path = folder / f"{split}_{name}.npy"
        size = about["arrays"][path.stem]["size"]
        if plain(path).stat().st_size != size:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {size}")
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped

    others: dict[str, Any] = {
        name: array(name) for name in OPTIONAL if f"{split}_{name}" in about["arrays"]
    }
    return Split(array("x"), array("y"), **others)
