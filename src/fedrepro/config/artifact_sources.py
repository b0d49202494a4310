"""Models of where the inputs of methods come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Discriminator,
    Field,
    Tag,
)

from fedrepro.config.values import (
    Fraction,
    LocalSetting,
    MethodName,
    Name,
    Seed,
)
from fedrepro.support.typed_yaml import Typed, expected


class ArtifactFromRun(Typed):
    """An artifact of another run.

    Attributes:
        setting: a setting of this file.
        method: the method of the run that makes the artifact.
        seed: Default: the seed of the run that uses it.
    """

    setting: LocalSetting
    method: MethodName
    seed: Seed | None = None


class ArtifactFromFile(Typed):
    """A model.safetensors file of a run, or in the same format.

    Attributes:
        file: its path, relative to the workbench's root.
        sha256: required: the file is not read without it.
    """

    file: Path
    sha256: (
        Annotated[
            str,
            Field(pattern="^[0-9a-f]{64}$"),
            expected("the SHA-256 of the file, 64 digits of 0-9 and a-f"),
        ]
        | None
    ) = None


class ArtifactFromData(Typed):
    """Training samples of another data set, without labels.

    Attributes:
        dataset: a data set of config/datasets.yaml.
        share: fraction of each class, chosen as for a partition's `server`.
    """

    dataset: Name
    share: Fraction = 1.0


def _tag_of_given(value: object) -> str:
    if isinstance(value, ArtifactFromFile) or (isinstance(value, Mapping) and "file" in value):
        return "ArtifactFromFile"
    if isinstance(value, ArtifactFromData) or (isinstance(value, Mapping) and "dataset" in value):
        return "ArtifactFromData"
    return "ArtifactFromRun" if isinstance(value, Mapping | ArtifactFromRun) else "plain"


ArtifactSource = Annotated[
    Annotated[Literal["server"], Tag("plain")]
    | Annotated[ArtifactFromRun, Tag("ArtifactFromRun")]
    | Annotated[ArtifactFromFile, Tag("ArtifactFromFile")]
    | Annotated[ArtifactFromData, Tag("ArtifactFromData")],
    Discriminator(_tag_of_given),
]
