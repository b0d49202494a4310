"""The `weights` of config/datasets.yaml: pretrained weights that models start from."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from fedrepro.data.catalogue.entries import Bytes, FileName, Url
from fedrepro.support.typed_yaml import Typed, expected

FirstDigits = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{8,64}$"),
    expected("a SHA-256: 64 lower-case hexadecimal digits, or at least the first 8"),
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
