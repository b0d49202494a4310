"""Readers of images, as uint8 [n, channels, height, width]. They unpickle nothing."""

import io
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from fedrepro.data.catalogue.kinds import Background, Idx, ImageFolder, JpegParquet, PixelCsv
from fedrepro.data.fetching.archives import lacking, opened
from fedrepro.data.readers.content import FIRST, Content, Source, Split, held_out, split_by
from fedrepro.data.readers.tables import refuse_alike
from fedrepro.support.errors import bad_value, listed, reading, refusal, refuse_unknown, unreadable
from fedrepro.support.files import files_below, is_hidden, plain, visible

IDX_BYTES = 0x08  # the only type of values in MNIST and similar data sets
TURNS = {  # by EXIF's orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
IMAGE_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MODES = {  # Pillow's names of colours that users know by another one
    "1": "black and white",
    "L": "grey",
    "LA": "grey with alpha",
    "P": "palette",
    "RGBA": "RGB with alpha",
}


class Look(NamedTuple):
    """The properties of an image file.

    Attributes:
        mode: its colours, in Pillow's words.
        size: (width, height) in pixels.
        several: whether it has several frames or pages, of which the first is read.
        turned: whether its EXIF orientation turns or mirrors it.
        transparent: whether the background shows through it.
    """

    mode: str
    size: tuple[int, int]
    several: bool
    turned: bool
    transparent: bool


def facts_of_looks(looks: "Counter[Look]", spec: ImageFolder) -> list[tuple[str, str]]:
    """The sizes and colours of images, and how many become images of another size or colour."""
    mode = "RGB" if spec.channels == 3 else "L"
    sizes = Counter(f"{look.size[1]}x{look.size[0]}" for look in looks.elements())
    colours = Counter(MODES.get(look.mode, look.mode) for look in looks.elements())
    of_other_size = sum(look.size != (spec.width, spec.height) for look in looks.elements())
    converted = sum(look.mode != mode for look in looks.elements())

    def how_many(which: str, words: str) -> str:
        count = sum(getattr(look, which) for look in looks.elements())
        return f"{words}: {count} of {looks.total()}" if count else ""

    def said(counts: "Counter[str]", changed: int, change: str) -> str:
        names = listed([f"{name} ({count})" for name, count in counts.most_common()])
        return f"{names}; {change}: {changed} of {looks.total()}" if changed else names

    return [
        ("height x width", said(sizes, of_other_size, f"resized to {spec.height}x{spec.width}")),
        ("colours", said(colours, converted, f"converted to {MODES.get(mode, mode)}")),
        ("orientation", how_many("turned", "turned as EXIF says")),
        ("transparent", how_many("transparent", f"put on {spec.background}")),
        ("frames", how_many("several", "first of several read")),
    ]


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of bytes: two zero bytes, type, number of axes, their lengths, the values.

    Raises:
        UserError: if it is not such a file or is truncated.
    """
    with reading(path, OSError):
        content = plain(path).read_bytes()
    axes = content[3] if len(content) >= 4 else 0
    start = 4 + 4 * axes
    if content[:3] != bytes([0, 0, IDX_BYTES]) or len(content) < start:
        raise refusal(path, "not an IDX file of bytes", code="damaged")
    shape = np.frombuffer(content, ">u4", axes, offset=4).tolist()
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != math.prod(shape):
        why = f"truncated: {values.size} values for the shape {shape}"
        raise refusal(path, why, code="damaged")
    return values.reshape(shape)


def read_idx_pairs(spec: Idx, source: Source) -> Content:
    """Read MNIST's four files in `folder`."""

    def split(images: str, labels: str) -> Split:
        x, y = read_idx(source.path / images), read_idx(source.path / labels)
        if x.ndim != 3 or y.shape != x.shape[:1]:
            why = f"{y.shape} labels for {x.shape} images"
            raise refusal(source.path / labels, why, code="damaged")
        grey = x[:, None]
        return Split(grey if spec.side is None else resized(grey, spec.side), y)

    files = spec.files
    return Content(
        train=split(files.train_images.name, files.train_labels.name),
        test=split(files.test_images.name, files.test_labels.name),
        class_names=list(spec.class_names),
    )


def read_pixel_csv(spec: PixelCsv, source: Source) -> Content:
    """Read rows of pixels with the label last; split them into training and test by class."""
    path = source.path / spec.file.name
    samples = pixel_rows(path, spec.height, spec.width)
    train, test = held_out(samples, spec.test_fraction, path)
    notes = {"test_fraction": spec.test_fraction}
    return Content(train, list(spec.class_names), test, notes)


def pixel_rows(path: Path, height: int, width: int) -> Split:
    """Grey images [n, 1, height, width] as bytes, one a line of a CSV file, the label last."""
    with reading(path, OSError, ValueError):
        rows = np.loadtxt(plain(path), delimiter=",", dtype=np.uint8, ndmin=2)
    if rows.shape[1] != height * width + 1:
        why = f"{rows.shape[1]} columns: expected {height * width + 1}"
        raise refusal(path, why, "columns", rows.shape[1])
    return Split(rows[:, :-1].reshape(-1, 1, height, width), rows[:, -1])


def read_jpeg_parquet(spec: JpegParquet, source: Source) -> Content:
    """Read a parquet file of encoded images, in the order of its rows."""
    path = source.path
    import pyarrow

    from fedrepro.data.readers.table_files import parquet_table

    types = pyarrow.types
    text = (types.is_string, types.is_large_string)
    columns: dict[str, tuple[str, tuple[Callable[[Any], bool], ...]]] = {
        "split": ("text", text),
        "label": ("whole numbers", (types.is_integer,)),
        "jpeg": ("bytes", (types.is_binary, types.is_large_binary)),
    }
    if spec.group:
        columns[spec.group] = ("whole numbers or text", (types.is_integer, types.is_string))
    table = parquet_table(path, columns)
    if not len(table):
        raise refusal(path, "no rows: expected at least one image")
    for column, (words, fitting) in columns.items():
        kind = table.schema.field(column).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if not any(fits(kind) for fits in fitting):
            why = f"{column}: a column of {kind}: expected {words}"
            raise refusal(path, why, column, str(kind))
        if table[column].null_count:
            raise refusal(path, f"{column}: expected a value in every row", column)
    split = np.asarray(table["split"].cast(pyarrow.string()).to_pylist())
    labels = table["label"].to_numpy().astype(np.int64)
    group, notes = None, dict[str, Any]()
    if spec.group:
        owners, group = np.unique(table[spec.group].to_numpy(), return_inverse=True)
        notes = {"groups": [str(owner) for owner in owners]}
    size = (spec.side, spec.side) if spec.side else None
    images = np.empty(0, np.uint8)
    for row, encoded in source.counted(table["jpeg"]):
        image = decode(encoded.as_py(), f"{path}: row {row}", 3, size, spec.background)
        images = images if row else np.empty((len(table), *image.shape), np.uint8)
        if image.shape != images.shape[1:]:
            raise bad_value(path, f"row {row}", image.shape, f"{images.shape[1:]} as in row 0")
        images[row] = image
    train, test = split_by(Split(images, labels, group), split, path)
    return Content(train, list(spec.class_names), test, notes)


def read_image_folder(spec: ImageFolder, source: Source) -> Content:
    """Read a folder (or an archive of one) with train/CLASS/image and optional test/CLASS/image.

    Raises:
        UserError: if a class has no images in train, an image is damaged, or images lie deeper and
            the entry has no `layout`.
    """
    path = source.path
    root = _root(source)
    levels = (spec.layout or "class").split("/")
    folders = {split: _folders(root / split, len(levels)) for split in ("train", "test")}

    def names(split: str, level: str) -> list[str]:
        if level not in levels:
            return []
        return sorted({folder.parts[levels.index(level)] for folder in folders[split]})

    classes, clients = names("train", "class"), names("train", "client")
    if not classes:
        expected = f"expected folders train/{'/'.join(levels).upper()} with images in them"
        raise refusal(path, expected, "train", code="missing")
    files = {
        split: [
            (image, folder)
            for folder in folders[split]
            for image in _files(root / split / folder)
            if image.suffix.lower() in IMAGE_SUFFIXES
        ]
        for split in ("train", "test")
    }
    if not files["train"]:
        why = f"no images in train: expected one of {sorted(IMAGE_SUFFIXES)}"
        raise refusal(path, why, "train", code="missing")
    images = [image.relative_to(root) for pairs in files.values() for image, _ in pairs]
    if spec.layout is None:
        _refuse_deeper(path, images)
    for level, known in (("class", classes), ("client", clients)):
        refuse_alike(known, f"{path}: {level}")
        refuse_unknown(path, "test", names("test", level), known, f"a {level} that train has")
    done, looks = 0, Counter[Look]()
    splits = {}
    for split, pairs in files.items():
        x = np.empty((len(pairs), spec.channels, spec.height, spec.width), np.uint8)
        for row, (image, _) in enumerate(pairs):
            # The place in an archive: the unpacked file is gone when the error is read.
            where = image if path.is_dir() else f"{path}: {image.relative_to(root)}"
            pixels, look = _decoded(
                plain(image).read_bytes(), where, spec.channels, spec.background
            )
            x[row] = _array(pixels, (spec.width, spec.height))
            looks[look] += 1
            done += 1
            source.progress(done / len(images))
        named = [dict(zip(levels, folder.parts, strict=True)) for _, folder in pairs]
        y = np.array([classes.index(name["class"]) for name in named], np.int64)
        group = np.array([clients.index(name["client"]) for name in named]) if clients else None
        splits[split] = Split(x, y, group)
    train, test = splits["train"], splits["test"] if files["test"] else None
    notes: dict[str, Any] = {"groups": clients} if clients else {}
    if test is None:
        train, test = held_out(train, spec.test_fraction, path)
        notes["test_fraction"] = spec.test_fraction
    understood = [
        *facts_of_looks(looks, spec),
        ("not read", _left_out(root, set(images))),
        *((f"image {number}", str(name)) for number, name in enumerate(images[:FIRST], 1)),
    ]
    return Content(train, classes, test, notes, understood)


def _root(source: Source) -> Path:
    """The folder that contains train; an archive is unpacked first."""
    root = opened(source.path, source.scratch)
    # Archives often wrap all in one folder; those of macOS have another one beside it.
    inside = visible(root, "*")
    return inside[0] if not (root / "train").is_dir() and len(inside) == 1 else root


def _folders(root: Path, levels: int) -> list[Path]:
    """The folders so many levels below `root`, as relative paths, sorted; hidden ones are not."""
    entries = visible(root, "/".join("*" * levels))
    return [entry.relative_to(root) for entry in entries if entry.is_dir()]


def _files(root: Path) -> list[Path]:
    """All files below `root`, sorted, without hidden ones, such as macOS adds to images.

    A broken link is one, so that it is named; a pipe is not, as reading it would wait for ever.
    """
    return [
        each
        for each in sorted(files_below(root))
        if not is_hidden(each.relative_to(root)) and (each.is_file() or not each.exists())
    ]


def _left_out(root: Path, images: set[Path]) -> str:
    """How many files are none of the images that were read, and which; "" if all are."""
    others = [name for each in _files(root) if (name := each.relative_to(root)) not in images]
    return f"{len(others):,} files: {listed(list(map(str, others)))}" if others else ""


def _refuse_deeper(path: Path, images: Sequence[Path]) -> None:
    """Refuse images of train/A/B without a `layout`: A may be the class, or the client."""
    for image in images:
        split, outer, inner, *deeper = image.parts
        if deeper:
            wanted = f"'client/class' if {outer} is a client, 'class/client' if {inner} is one"
            lies = f"not given, but {image} lies deeper than {split}/CLASS"
            why = f"layout: {lies}: expected {wanted}, or 'class' if neither is"
            raise refusal(path, why, "layout", code="missing")


def read_images(
    source: Source, paths: Sequence[Path], archive: Path, side: int, shorter: int | None = None
) -> NDArray[np.uint8]:
    """Files of coloured images as [n, 3, side, side].

    They are resized to a square, or, with ``shorter``, so that their shorter side has this length,
    of which the middle is cut out (torchvision's Resize and CenterCrop).

    Args:
        archive: the place that an error names.

    Raises:
        UserError: if a file is missing, or as :func:`decode`.
    """

    def size(width: int, height: int) -> tuple[int, int]:
        if shorter is None:
            return side, side
        least = min(width, height)
        return int(width * shorter / least), int(height * shorter / least)

    images = np.empty((len(paths), 3, side, side), np.uint8)
    for row, path in source.counted(paths):
        if not path.is_file():
            raise lacking(archive, path.name)
        image = decode(path.read_bytes(), f"{archive}: {path.name}", 3, size)
        top, left = (round((length - side) / 2) for length in image.shape[1:])
        images[row] = image[:, top : top + side, left : left + side]
    return images


def decode(
    encoded: bytes,
    where: object,
    channels: int,
    size: tuple[int, int] | Callable[[int, int], tuple[int, int]] | None = None,
    background: Background = "white",
) -> NDArray[Any]:
    """Decode an image to uint8 [channels, height, width], turned as its EXIF orientation says.

    Args:
        where: its name in errors.
        channels: 3 (red, green, blue) or 1 (grey).
        size: the (width, height) to resize it to, or a function of its own width and height that
            returns them; None to keep its size.
        background: what shows through transparent pixels.

    Raises:
        UserError: if it is not an image, is damaged, has more than 8 bits per channel, or is all
            of one colour on this background.
    """
    pixels, _ = _decoded(encoded, where, channels, background)
    return _array(pixels, size(*pixels.size) if callable(size) else size)


def _decoded(
    encoded: bytes, where: object, channels: int, background: Background
) -> tuple[Image.Image, Look]:
    """An image in RGB or grey, and what it was; see `decode`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # 90 million pixels
            with Image.open(io.BytesIO(encoded)) as image:
                kind, mode = image.format, image.mode
                deep = _is_deep(image)
                upright, turned = _upright(image)
                low, high = _opacity(upright)
                if low < 255:
                    upright = _on(background, upright)
                pixels = upright.convert("RGB" if channels == 3 else "L")
                several = bool(getattr(image, "is_animated", False))
    except UnidentifiedImageError:  # its message names the bytes in memory
        reason = "it is in no known format, or damaged"
        raise unreadable(where, reason, "an image") from None
    except (OSError, MemoryError) as error:
        raise unreadable(where, error, "an image") from None
    except Exception as error:  # Pillow raises many kinds of exceptions for damaged files
        reason = f"{type(error).__name__}: {error}"
        raise unreadable(where, reason, "an image") from None
    if deep:
        depth = f"an image of more than 8 bits per channel ({kind}, mode {mode})"
        wanted = "8 bits: convert it, with the scale that suits your images"
        raise refusal(where, f"{depth}: expected {wanted}")
    if low < high and pixels.getcolors(1):
        other = "black" if background == "white" else "white"
        image_is = "the image, parts of which are transparent, is all of one colour"
        wanted = f"{other!r}, as {image_is} on {background!r}"
        raise bad_value(where, "background", background, wanted)
    return pixels, Look(mode, pixels.size, several, turned, low < 255)


def _upright(image: Image.Image) -> tuple[Image.Image, bool]:
    """An image as its EXIF orientation says, and whether that turned it.

    Cameras store what the sensor saw, and how to turn it. Damaged EXIF data are ignored, as by
    viewers.
    """
    image.load()  # Pillow turns a TIFF here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            turn = TURNS.get(int(image.getexif().get(ExifTags.Base.Orientation, 1)))
        except Exception:
            turn = None
    return (image, False) if turn is None else (image.transpose(turn), True)


def _opacity(image: Image.Image) -> tuple[int, int]:
    """The smallest and largest alpha of an image, 255 if it has none."""
    if not image.has_transparency_data:
        return 255, 255
    low, high = image.convert("RGBA").getchannel("A").getextrema()
    return int(low), int(high)  # type: ignore[arg-type]  # one channel


def _on(background: Background, image: Image.Image) -> Image.Image:
    """An image with transparent pixels on a background.

    Without its alpha channel it would show the colours that transparent pixels happen to have:
    often the same as the visible ones.
    """
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, background), layer)


def resized(images: NDArray[np.uint8], side: int) -> NDArray[Any]:
    """Resize uint8 images [n, c, height, width] to [n, c, side, side], c 1 or 3.

    The result is that of torchvision's Resize on Pillow images, whose bilinear filter antialiases.
    """
    result = np.empty((len(images), images.shape[1], side, side), np.uint8)
    for row, image in enumerate(images):
        pixels = Image.fromarray(image.transpose(1, 2, 0) if len(image) > 1 else image[0])
        result[row] = _array(pixels, (side, side))
    return result


def _array(pixels: Image.Image, size: tuple[int, int] | None) -> NDArray[Any]:
    """An image as uint8 [channels, height, width], resized to (width, height) if given."""
    if size is not None and pixels.size != size:
        pixels = pixels.resize(size, Image.Resampling.BILINEAR)
    array = np.asarray(pixels)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _is_deep(image: ImageFile) -> bool:
    """Return True if an image that is not decoded yet has more than 8 bits per channel.

    Pillow cuts such values off, or keeps their upper 8 bits. Its mode says so of grey images only:
    for colours it is that of 8 bits.
    """
    if image.mode.startswith(("I", "F")):
        return True
    if isinstance(image, TiffImageFile):  # colours may lie in separate planes, decoded as bytes
        return bool(max(image.tag_v2.get(BITSPERSAMPLE, (1,))) > 8)
    ways = [tile.args for tile in image.tile]
    if image.format == "PPM":  # with the largest value, or plain bytes
        return any(isinstance(way, tuple) and way[1] > 255 for way in ways)
    return image.format == "PNG" and any(";16" in str(way) for way in ways)
