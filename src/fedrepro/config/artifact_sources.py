"""Models of where the inputs of methods come from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, Tag

from fedrepro.config.values import LocalSetting, MethodName, Name
from fedrepro.support.typed_yaml import Fraction, Seed, Typed, expected, plain_or


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


ArtifactSource = Annotated[
    Annotated[Literal["server"], Tag("plain")]
    | Annotated[ArtifactFromRun, Tag("ArtifactFromRun")]
    | Annotated[ArtifactFromFile, Tag("ArtifactFromFile")]
    | Annotated[ArtifactFromData, Tag("ArtifactFromData")],
    plain_or(ArtifactFromRun, file=ArtifactFromFile, dataset=ArtifactFromData),
]
