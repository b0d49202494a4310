"""Read config/datasets.yaml: data sets, and the weights that models start from."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedrepro.data.catalogue.entries import Bytes, FileName, Name, Url
from fedrepro.data.catalogue.kinds import DatasetSpec, Plugin
from fedrepro.support import checksummed_json
from fedrepro.support.errors import bad_value
from fedrepro.support.old_names import with_new_keys
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.typed_yaml import Typed, expected, like, read_yaml, validate

FirstDigits = Annotated[
    str,
    *like(
        r"^[0-9a-f]{8,64}$", "a SHA-256: 64 lower-case hexadecimal digits, or at least the first 8"
    ),
]
SUFFIXES = (".safetensors", ".pth")


class Weights(Typed):
    """One file of pretrained weights.

    Attributes:
        title: what it is.
        licence: under which its authors offer it.
        name: the file's name.
        size: its bytes; left out if its authors do not state them.
        sha256: of the file, or its first digits if its authors publish only those; if left out, you
            must add it before the file is read.
        urls: where its authors offer it; tried in order.
        path: where you can put the file yourself.
    """

    title: str
    licence: str
    name: Annotated[FileName, expected(f"a file name that ends in {' or '.join(SUFFIXES)}")] = (
        Field(pattern=r"\.(safetensors|pth)$")
    )
    size: Bytes | None = None
    sha256: FirstDigits | None = None
    urls: tuple[Url, ...] = ()
    path: Path | None = None


CATALOGUE = Path("config/datasets.yaml")


class Catalogue(Typed):
    """The whole of config/datasets.yaml.

    Attributes:
        datasets: all data sets, by name.
        weights: files of pretrained weights, by name.
    """

    datasets: dict[Name, DatasetSpec]
    weights: dict[Name, Weights] = Field(default={})


def load_catalogue(path: Path = CATALOGUE, folders: Folders = NONE) -> Catalogue:
    """Read and check the file.

    Args:
        folders: the workbench's folders of plug-ins.

    Raises:
        UserError: for the first error in it.
    """
    catalogue = validate(Catalogue, with_new_keys("datasets", read_yaml(path), path), path)
    for name, spec in catalogue.datasets.items():
        other = spec.surrogate_for
        if other is not None and (other == name or other not in catalogue.datasets):
            key = f"datasets.{name}.surrogate_for"
            raise bad_value(path, key, other, "another data set of this file", catalogue.datasets)
        if isinstance(spec, Plugin):
            catalogue.datasets[name] = spec.found_in(folders, f"{path}: datasets.{name}")
    return catalogue


def find_dataset(name: str, known: Mapping[str, DatasetSpec]) -> DatasetSpec:
    """The entry of a data set.

    Raises:
        UserError: if there is none, with the nearest name.
    """
    if name not in known:
        raise bad_value(CATALOGUE, "data set", name, f"one of {', '.join(sorted(known))}", known)
    return known[name]


# Keys that do not affect the data themselves, by their first names.
DESCRIPTIVE = (
    "title", "licence", "citation", "homepage", "surrogate_for", "urls", "mirrors", "packed",
    "holds",
)  # fmt: skip


def meaning_of(spec: DatasetSpec, revision: int | None = None) -> Any:
    """The parts of an entry that determine the data themselves, as nested dicts.

    Args:
        revision: of the reader; by default today's.
    """
    keys = _without(spec.model_dump(mode="json"), DESCRIPTIVE)
    revision = revision or spec.revision
    return keys | {"revision": revision} if revision > 1 else keys


def digest_of(spec: DatasetSpec, revision: int | None = None) -> str:
    """A hash of :func:`meaning_of`."""
    return checksummed_json.digest_of(meaning_of(spec, revision))


def _without(what: Any, keys: Collection[str]) -> Any:
    """Nested dicts without some keys."""
    if not isinstance(what, dict):
        return what
    return {key: _without(value, keys) for key, value in what.items() if key not in keys}
