"""The kinds of entries of config/datasets.yaml.

To add a kind, add a class here and a reader in data/readers, which the class names in ``reader``.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from fedrepro.data.catalogue.entries import (
    NUMBERS,
    Described,
    Fetched,
    FunctionName,
    Inside,
    Name,
    Own,
    Pixels,
    RawFile,
    Sha256,
    WordNetId,
)
from fedrepro.support.errors import bad_value
from fedrepro.support.plugins import Folders
from fedrepro.support.typed_yaml import PositiveWhole, Share, Typed, Whole, any_of, expected, later

Background = Literal["white", "black"]
Argument = Annotated[bool | int | float | str, expected("a number, a word, true or false")]


class IdxFiles(Typed):
    """The four files of MNIST and similar data sets.

    Attributes:
        train_images: the training split's images.
        train_labels: its labels.
        test_images: the test split's images.
        test_labels: its labels.
    """

    train_images: RawFile
    train_labels: RawFile
    test_images: RawFile
    test_labels: RawFile


class Idx(Fetched):
    """Images and labels in the IDX format of MNIST.

    Attributes:
        class_names: of the classes 0, 1, ... in order.
        files: its four files.
        side: images are resized to `side` x `side`, as torchvision's Resize does; left out: 28.
    """

    reader = "images:read_idx_pairs"
    kind: Literal["idx"]
    class_names: tuple[str, ...]
    files: IdxFiles
    side: Pixels | None = later(None)


class Cifar10Files(Typed):
    """The six files of CIFAR-10's binary version.

    Attributes:
        data_batch_1: the first fifth of the training split.
        data_batch_2: the second.
        data_batch_3: the third.
        data_batch_4: the fourth.
        data_batch_5: the last.
        test_batch: the test split.
    """

    data_batch_1: RawFile
    data_batch_2: RawFile
    data_batch_3: RawFile
    data_batch_4: RawFile
    data_batch_5: RawFile
    test_batch: RawFile


class Cifar10Binary(Fetched):
    """CIFAR-10's binary version, which needs no unpickling.

    Attributes:
        class_names: of the classes 0, 1, ... in order.
        files: its six files.
        side: images are resized to `side` x `side`, as torchvision's Resize does; left out: 32.
    """

    reader = "image_sets:read_cifar10"
    kind: Literal["cifar10_binary"]
    class_names: tuple[str, ...]
    files: Cifar10Files
    side: Pixels | None = None


class Cifar100Binary(Fetched):
    """CIFAR-100's binary version, with the fine labels and their names.

    Attributes:
        archive: the tar.gz of the binary version.
        side: images are resized to `side` x `side`, as torchvision's Resize does; left out: 32.
        superclasses: use the coarse labels as groups, for the partition `pachinko`.
    """

    reader = "image_sets:read_cifar100"
    kind: Literal["cifar100_binary"]
    archive: RawFile
    side: Pixels | None = None
    superclasses: bool = False


class PixelCsv(Fetched):
    """A row for each grey image: its pixels (0 to 255, row by row), then its label.

    Attributes:
        class_names: of the classes 0, 1, ... in order.
        file: the CSV file, without a header line.
        height: of an image, in pixels.
        width: of an image, in pixels.
        test_fraction: the share of each class that becomes the test split (seed 0).
    """

    reader = "images:read_pixel_csv"
    kind: Literal["pixel_csv"]
    class_names: tuple[str, ...]
    file: RawFile
    height: Pixels
    width: Pixels
    test_fraction: Share


class JpegParquet(Own):
    """A parquet file with the columns `split` (train, test), `label` (0, 1, ...) and `jpeg`.

    Attributes:
        sha256: of the file; left out: it is not checked.
        class_names: of the classes 0, 1, ... in order.
        group: a column with each image's natural client.
        side: images are resized to `side` x `side`; left out: they are not resized.
        background: what shows through transparent pixels: white or black.
    """

    reader = "images:read_jpeg_parquet"
    revision = 2
    every_class = True
    kind: Literal["jpeg_parquet"]
    sha256: Sha256 | None = None
    class_names: tuple[str, ...]
    group: str | None = None
    side: Pixels | None = None
    background: Background = later("white")


class ImageFolder(Own):
    """Your own images: train/CLASS/*.png and, if you have them, test/CLASS/*.png.

    Its `path` is a folder, or a zip or tar archive of one.

    Attributes:
        layout: the levels of folders in train and test; those of `client` are the natural clients.
            Default: class; must be given if images lie deeper.
        height: all images are resized (bilinear) to `height` x `width`.
        width: see `height`.
        channels: 3 (red, green, blue) or 1 (grey).
        background: what shows through transparent pixels: white or black.
        test_fraction: the share of each class taken from train/ when there is no test/ (seed 0).
            Default: 0 with natural clients, which hold out their own samples, else 0.2.
    """

    reader = "images:read_image_folder"
    revision = 2
    every_class = True
    kind: Literal["image_folder"]
    height: Pixels
    width: Pixels
    channels: Literal[1, 3] = 3
    layout: Literal["class", "client/class", "class/client"] | None = later(None)
    background: Background = later("white")
    test_fraction: Share = Field(
        default_factory=lambda keys: 0.2 if keys.get("layout") in (None, "class") else 0.0
    )


class TabularCsv(Own):
    """Your own table as CSV, with a header line.

    Numeric columns become float32, with missing values replaced by the training mean; text columns
    are one-hot encoded.

    Attributes:
        label: the column to predict; with the tasks regression and multi_label, it may be a list.
        group: a column with each row's natural client; not a feature.
        split: a column with `train` or `test`; not a feature.
        drop: columns that are not features.
        missing: words, such as `?`, whose cells count as empty.
        standardise: subtract the training mean and divide by the training standard deviation. With
            `per_client`, each client uses its own; then all samples are partitioned, so
            `test_fraction` is 0 and clients hold out their own test samples.
        test_fraction: the share of each class held out when there is no `split` (seed 0). Default:
            0 with a `group`, whose clients hold out their own rows, else 0.2.
    """

    reader = "tables:read_tabular_csv"
    revision = 2
    every_class = True
    kind: Literal["tabular_csv"]
    label: str | tuple[str, ...]
    group: str | None = None
    split: str | None = None
    drop: tuple[str, ...] = ()
    missing: tuple[str, ...] = later(())
    standardise: bool | Literal["per_client"] = True
    test_fraction: Share = Field(
        default_factory=lambda keys: 0.2 if keys.get("group") is None else 0.0
    )

    @model_validator(mode="after")
    def _one_label(self) -> Self:
        if not self.labels or (isinstance(self.label, tuple) and self.task not in NUMBERS):
            raise ValueError(f"one column as `label`, or some with the task {' or '.join(NUMBERS)}")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.label,) if isinstance(self.label, str) else self.label


class Arrays(Own):
    """Your own arrays, in an npz archive or a Parquet file.

    `x` [n, ...] and `y` [n], whole numbers from 0 or words; with the task regression, `y` [n],
    [n, k] or of further axes has numbers, and with multi_label, `y` [n, k] has 0 and 1. With
    next_word, `y` [n, length] has words' ids from 4, and 0 to 3 as in a text. Optionally `client`
    [n], the natural clients, and `split` [n], `train` or `test`. In Parquet they are columns; those
    of `x` and `y` may be lists. Bytes are scaled to [0, 1]; other whole numbers stay whole, as ids
    of words. In place of `x`, several inputs are `x_0`, `x_1`, or `x_NAME` each.

    Attributes:
        test_fraction: the share of each class held out when there is no `split` (seed 0). Default:
            0 with `client`, whose clients hold out their own samples, else 0.2.
    """

    reader = "own_arrays:read_own_arrays"
    every_class = True
    kind: Literal["arrays"]
    test_fraction: Share | None = None


SPLITS = ("words", "characters")  # tokenizers that need no library


class Text(Own):
    """Your own texts: a column of a CSV, JSON Lines or Parquet file.

    A sample is a text's first `length` tokens, padded with 0. With `task: next_word` it is a piece
    of a text, and predicts each next token. 0 to 3 are padding, unknown, begin and end.

    Attributes:
        text: the column of texts.
        label: the column to predict, or several as in a table; none for `next_word`.
        group: a column with each text's natural client.
        split: a column with `train` or `test`.
        tokenizer: `words` (lower-cased, signs apart), `characters`, or the name or folder of a
            tokenizer of transformers, which gives ids and attention mask [2, length].
        length: tokens of a sample; longer texts are cut.
        words: the size of the vocabulary with its four marks: the most frequent tokens of the
            training texts. Of `words` and `characters` only.
        test_fraction: the share of each class held out when there is no `split` (seed 0). Default:
            0 with a `group`, whose clients hold out their own texts, else 0.2.
    """

    reader = "own_texts:read_own_texts"
    every_class = True
    kind: Literal["text"]
    text: str
    label: str | tuple[str, ...] | None = None
    group: str | None = None
    split: str | None = None
    tokenizer: str = "words"
    length: PositiveWhole
    words: Annotated[Whole, Field(ge=5), expected("a whole number of at least 5")] = 10_000
    test_fraction: Share | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if bool(self.labels) == (self.task == "next_word"):
            raise ValueError("a `label`, or `task: next_word` without one")
        if isinstance(self.label, tuple) and self.task not in NUMBERS:
            raise ValueError(f"one column as `label`, or some with the task {' or '.join(NUMBERS)}")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()


class Plugin(Own):
    """What a function of your own returns: a file in the folder `plugins.data` of config.yaml.

    `waves.py` has the function `waves`, which returns a dict of arrays as kind `arrays` has them.
    The global random generators are seeded while it runs.

    Attributes:
        function: the name of the file and of the function in it.
        arguments: what the function is given, by name.
        path: a file or folder that it reads, which it is given as `path`; left out: none.
        test_fraction: as of kind `arrays`.
    """

    reader = "own_functions:read_plugin"
    every_class = True
    kind: Literal["plugin"]
    function: FunctionName
    arguments: dict[str, Argument] = Field(default={})
    path: str = ""
    test_fraction: Share | None = None
    _file: Path | None = PrivateAttr(default=None)

    def found_in(self, folders: Folders, where: object) -> Self:
        """This entry with its function's file, which is its ``path`` if it has no other.

        Raises:
            UserError: if there is no such file.
        """
        files = folders.files("data")
        if self.function not in files:
            wanted = "a file of the folder `plugins.data` in config/config.yaml"
            raise bad_value(where, "function", self.function, wanted, files)
        file = files[self.function]
        placed = self.model_copy(update={"path": self.path or os.path.relpath(file, folders.root)})
        placed._file = file
        return placed

    @property
    def file(self) -> Path | None:
        """The function's file, once it has been found."""
        return self._file


class HeartDisease(Fetched):
    """UCI's heart disease data of four hospitals in one CSV, ordered by hospital.

    Slope, ca and thal, which two hospitals hardly ever recorded, are dropped.

    Attributes:
        file: the CSV file.
        hospitals: the number of rows of each, in the file's order; they are the natural clients.
        missing: `mean`: the hospital's mean of the column (a category's cut to a whole number), as
            in AAggFF's released code, 920 rows; `drop`: rows with a missing value are dropped, as
            in FLamby, 740 rows.
    """

    reader = "silos:read_heart_disease"
    kind: Literal["heart_disease"]
    file: RawFile
    hospitals: dict[Name, PositiveWhole]
    missing: Literal["mean", "drop"] = "mean"


class Berka(Fetched):
    """The loans of the PKDD'99 financial data: an archive of tables such as loan.asc.

    Attributes:
        archive: the zip of the tables.
        leave_out: regions that are not used as clients.
    """

    reader = "silos:read_berka"
    kind: Literal["berka"]
    archive: RawFile
    leave_out: tuple[str, ...] = ()


class QuestionPairs(Fetched):
    """Medical question pairs: rows of doctor, question, question, label (1: they mean the same).

    Attributes:
        file: the CSV file.
        tokenizer: a folder with the vocab.txt of an uncased BERT model.
        length: tokens of a pair, padded or cut.
    """

    reader = "silos:read_question_pairs"
    kind: Literal["question_pairs"]
    file: RawFile
    tokenizer: str
    length: Annotated[Whole, Field(ge=8), expected("a whole number of at least 8")]


class CelebaFiles(Typed):
    """The files from which LEAF makes its CelebA.

    Attributes:
        identities: the celebrity of each image.
        attributes: each image's 40 attributes.
        images: the archive of the aligned images.
    """

    identities: RawFile
    attributes: RawFile
    images: RawFile


class Celeba(Fetched):
    """CelebA as in LEAF: predict who smiles; each celebrity is a client.

    Attributes:
        files: its three files.
        attribute: what is predicted.
        minimum: celebrities with fewer images are dropped.
        side: images are resized to `side` x `side`.
    """

    reader = "image_sets:read_celeba"
    kind: Literal["celeba"]
    files: CelebaFiles
    attribute: str = "Smiling"
    minimum: PositiveWhole = 5
    side: Pixels = 84


class SpeechCommands(Fetched):
    """Google's Speech Commands: WORD/SPEAKER_nohash_NUMBER.wav; a speaker is a client.

    The clips of validation_list.txt and testing_list.txt are left out (torchaudio's `training`).

    Attributes:
        class_names: of the classes 0, 1, ... in order.
        archive: the tar.gz of the clips.
        samples: of a clip, padded with silence.
    """

    reader = "silos:read_speech_commands"
    kind: Literal["speech_commands"]
    class_names: tuple[str, ...]
    archive: RawFile
    samples: PositiveWhole = 16_000


class IsicFiles(Typed):
    """ISIC 2019's three files, and HAM10000's table, which identifies its hospitals.

    Attributes:
        images: the archive of the images.
        labels: each image's class.
        metadata: each image's origin.
        ham: HAM10000's table.
    """

    images: RawFile
    labels: RawFile
    metadata: RawFile
    ham: RawFile


class Isic(Fetched):
    """ISIC 2019: skin lesions of 8 kinds from FLamby's 6 centres.

    Attributes:
        class_names: of the classes 0, 1, ... in order.
        files: its four files.
        centres: the centres' names; they are the natural clients.
        shorter: to which the shorter side of an image is resized.
        side: of the square in the middle of an image whose shorter side is `shorter`.
        leave_out: images that are not used.
    """

    reader = "silos:read_isic"
    kind: Literal["isic2019"]
    class_names: tuple[str, ...]
    files: IsicFiles
    centres: tuple[str, ...]
    shorter: Pixels = 224
    side: Pixels = 200
    leave_out: tuple[str, ...] = ()


class MedMnist(Fetched):
    """One of MedMNIST's npz files: images and labels of its own training and test splits.

    Its validation images are left out: neither FedEvg's text nor its code uses them.

    Attributes:
        class_names: of the classes 0, 1, ... in order.
        file: the npz file.
        side: the images' size.
    """

    reader = "image_sets:read_medmnist"
    kind: Literal["medmnist"]
    class_names: tuple[str, ...]
    file: RawFile
    side: Pixels


class Synthetic(Own):
    """The output of `fedrepro synth export`: a folder with images.npz and datasheet.json.

    Attributes:
        test_fraction: the share of each class that becomes the test split (seed 0).
    """

    reader = "own_arrays:read_export"
    kind: Literal["synthetic"]
    test_fraction: Share = 0.2


class DigitFive(Own):
    """Digit-Five as FedBN's authors offer it: MNIST, SVHN, USPS, SynthDigits and MNIST-M.

    Folders DOMAIN with partitions/train_part0.pkl and so on, and test.pkl; its `path` is a folder
    around them, or an archive of one. The files are read without unpickling them.

    Attributes:
        parts: of the ten of a domain's training data that are used, all of equal size.
    """

    reader = "domains:read_digit_five"
    kind: Literal["digit_five"]
    parts: Annotated[Whole, Field(ge=1, le=10), expected("a whole number from 1 to 10")] = 10


class DigitStylesFiles(Typed):
    """Rows of grey pixels, the label last: MNIST's digits, 28 x 28, and optical digits, 8 x 8.

    Attributes:
        mnist: the rows of MNIST's digits.
        optical: the rows of optical digits.
    """

    mnist: RawFile
    optical: RawFile


class DigitStyles(Fetched):
    """Digits of five domains, in place of Digit-Five: MNIST's in four styles, and optical digits.

    Attributes:
        files: its two files.
        test_fraction: the share of each class that each domain's test split has (seed 0).
    """

    reader = "domains:read_digit_styles"
    kind: Literal["digit_styles"]
    files: DigitStylesFiles
    test_fraction: Share


class Pacs(Own):
    """PACS: DOMAIN/CLASS/image for photo, art_painting, cartoon and sketch.

    Its `path` is a folder around the domains, or an archive of one.
    """

    reader = "domains:read_pacs"
    kind: Literal["pacs"]


class TinyImageNet(Fetched):
    """TinyImageNet's archive: train/WORDNET/images and val with val_annotations.txt.

    Attributes:
        archive: the zip of the images.
        side: images are resized to `side` x `side`.
    """

    reader = "image_sets:read_tiny_imagenet"
    kind: Literal["tiny_imagenet"]
    archive: RawFile
    side: Pixels = 64


class DownsampledImageNet(Own):
    """Downsampled ImageNet: npz archives of training and validation images, and map_clsloc.txt.

    Its `path` is a folder with these, unpacked or not. ImageNet's site requires an account.

    Attributes:
        classes: WordNet ids of the classes to use; left out: all 1,000.
        side: the images' size.
    """

    reader = "image_sets:read_downsampled_imagenet"
    kind: Literal["downsampled_imagenet"]
    classes: tuple[WordNetId, ...] = ()
    side: Pixels = 32


class LeafReddit(Own):
    """LEAF's tokenised Reddit: folders train and test of JSON; each user is a client.

    Its `path`, like that of LEAF's other data sets, is a folder, or an archive of one.

    Attributes:
        words: the size of the vocabulary: the most frequent words of the training text.
    """

    reader = "leaf:read_leaf_reddit"
    kind: Literal["leaf_reddit"]
    words: PositiveWhole = 10_000


class LeafFemnist(Own):
    """LEAF's FEMNIST: digits and letters, 28 x 28; each writer is a client."""

    reader = "leaf:read_leaf_femnist"
    kind: Literal["leaf_femnist"]


class LeafShakespeare(Own):
    """LEAF's Shakespeare: predict the next character; each role of a play is a client.

    Attributes:
        length: characters of a sample before the one to predict.
    """

    reader = "leaf:read_leaf_shakespeare"
    kind: Literal["leaf_shakespeare"]
    length: PositiveWhole = 80


class Plays(Fetched):
    """Plays as Markdown with speakers in bold, turned into samples like LEAF's Shakespeare.

    Attributes:
        archive: a zip, such as a wheel.
        folder: the folder of the plays in it.
        length: characters of a sample before the one to predict.
        most: the maximum of samples per role, spread evenly over its text; left out: all.
    """

    reader = "leaf:read_plays"
    kind: Literal["plays"]
    archive: RawFile
    folder: Inside
    length: PositiveWhole = 80
    most: PositiveWhole | None = None


if TYPE_CHECKING:
    DatasetSpec = Fetched | Own
else:
    DatasetSpec = any_of(Described, "kind")
