"""The `weights` of config/datasets.yaml: what models start from that was learned elsewhere."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from fedrepro.data.catalogue.entries import Bytes, FileName, Url
from fedrepro.support.typed_yaml import Typed, expected

FirstDigits = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{8,64}$"),
    expected("a SHA-256: 64 lower-case hexadecimal digits, or the first 8 where no more is known"),
]
SUFFIXES = (".safetensors", ".pth")


class Weights(Typed):
    """One file of weights.

    Attributes:
        sha256: of the file, or how it begins where its authors say no more; None: it is not known
            here, and nothing is read before you have said it.
        path: where you may put the file yourself.
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
