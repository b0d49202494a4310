"""Readers of each kind of raw file, and what they refuse."""

import gzip
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from fedrepro.data.readers.content import Content, Split, of_classes
from fedrepro.data.readers.images import decode, read_idx
from fedrepro.support.errors import UserError
from support.raw_data import (
    IDX_NAMES,
    cifar10_archive,
    cifar10_entry,
    cifar10_files,
    encoded,
    entry,
    idx,
    idx_entry,
    idx_files,
    png_of_16_bits,
    prepared,
    sha256,
    tiff_of_16_bits,
    write_packed,
    write_zip,
)
from support.refusals import Fault, refused

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def test_idx(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "images"
    path.write_bytes(idx(array))
    assert np.array_equal(read_idx(path), array)
    for content, word in [
        (idx(array)[:-1], "truncated"),
        (idx(array) + b"\0", "truncated"),
        (idx(array)[:9], "IDX"),
        (b"", "IDX"),
        (b"\0\0\x0d" + idx(array)[3:], "IDX"),
    ]:
        path.write_bytes(content)
        with refused("damaged", file="images", names=word):
            read_idx(path)


def test_idx_files_of_different_lengths(tmp_path: Path) -> None:
    contents = idx_files(train=20, test=10)
    contents[IDX_NAMES["test_labels"]] = idx(np.arange(9, dtype=np.uint8))
    write_packed(contents, tmp_path / "archives")
    with refused("damaged", file=IDX_NAMES["test_labels"], names=("9", "10")):
        prepared(tmp_path, idx_entry(contents), tmp_path / "archives")


def test_cifar10_binary(tmp_path: Path) -> None:
    files, archives = cifar10_files(), tmp_path / "archives"
    rows = np.frombuffer(b"".join(files.values()), np.uint8).reshape(12, 3073)
    archives.mkdir()
    (archives / "cifar.tar.gz").write_bytes(cifar10_archive(files))
    dataset = prepared(tmp_path, cifar10_entry(files), archives)
    assert dataset.input_shape == (3, 32, 32)
    assert np.array_equal(dataset.train.y, rows[:10, 0])
    assert np.array_equal(dataset.train.x.reshape(10, -1), rows[:10, 1:])
    assert dataset.test is not None
    assert np.array_equal(dataset.test.x.reshape(2, -1), rows[10:, 1:])
    smaller = cifar10_entry(files, side=28)
    assert prepared(tmp_path, smaller, archives).input_shape == (3, 28, 28)
    cut = {**files, "data_batch_3.bin": files["data_batch_3.bin"][:-1]}
    (archives / "cifar.tar.gz").write_bytes(cifar10_archive(cut))
    with refused("damaged", file="downloads/d", key="data_batch_3.bin"):
        prepared(tmp_path, cifar10_entry(cut), archives)


def test_pixel_csv(tmp_path: Path) -> None:
    rows = [[(row + column) % 256 for column in range(4)] + [row % 2] for row in range(20)]
    content = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "p.csv.gz").write_bytes(gzip.compress(content))
    packed = {"name": "p.csv.gz", "size": 1, "sha256": sha256(b"")}
    keys: dict[str, Any] = {"height": 2, "width": 2, "class_names": ["0", "1"]}
    file = {"name": "p.csv", "size": len(content), "sha256": sha256(content), "packed": packed}
    spec = entry("pixel_csv", file=file, test_fraction=0.2, **keys)
    dataset = prepared(tmp_path, spec, tmp_path / "a")
    assert dataset.test is not None
    assert np.bincount(dataset.train.y).tolist() == [8, 8]
    assert np.bincount(dataset.test.y).tolist() == [2, 2]
    first = dataset.train.x[0, 0]
    assert first.ravel().tolist() == [first[0, 0] + step for step in range(4)]
    spec = entry("pixel_csv", file=file, test_fraction=0.2, **{**keys, "width": 3})
    with refused("value", file="p.csv", key="columns", value=5, names="7"):
        prepared(tmp_path, spec, tmp_path / "a")


def parquet(path: Path, **columns: list[Any]) -> Any:
    pq.write_table(pa.table(columns), path)
    return entry(
        "jpeg_parquet",
        path=str(path),
        class_names=["a", "b"],
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        group="owner" if "owner" in columns else None,
    )


@pytest.mark.parametrize(
    "names", [["7", "2"], ["0", "1", "2"], [str(label) for label in range(10)]]
)
def test_only_classes_keeps_the_samples_of_these_classes(tmp_path: Path, names: list[str]) -> None:
    contents = idx_files()
    write_packed(contents, tmp_path / "archives")
    everything = prepared(tmp_path / "all", idx_entry(contents), tmp_path / "archives")
    spec = idx_entry(contents, only_classes=names)
    kept = prepared(tmp_path / "some", spec, tmp_path / "archives")
    assert kept.meta["class_names"] == names
    for split in ("train", "test"):
        before, after = getattr(everything, split), getattr(kept, split)
        rows = np.isin(before.y, [int(name) for name in names])
        assert np.array_equal(after.x, before.x[rows])
        assert [names[label] for label in after.y] == [str(label) for label in before.y[rows]]


def test_classes_that_cannot_be_kept(tmp_path: Path) -> None:
    contents = idx_files()
    write_packed(contents, tmp_path / "archives")
    with refused("value", file="d", key="only_classes", value="10"):
        prepared(tmp_path, idx_entry(contents, only_classes=["1", "10"]), tmp_path / "archives")
    with refused("value", file="d", key="classes"):
        prepared(tmp_path, idx_entry(contents, only_classes=["1"]), tmp_path / "archives")
    with pytest.raises(ValidationError):
        idx_entry(contents, only_classes=["1", "1"])
    two = prepared(
        tmp_path, idx_entry(contents, only_classes=["3", "1"], task="binary"), tmp_path / "archives"
    )
    assert (two.task, two.outputs) == ("binary", 1)
    size = {"train": 60, "shape": [1, 8, 8], "classes": 10}
    with pytest.raises(ValidationError):
        idx_entry(contents, only_classes=["1", "2"], size=size)
    some = Split(np.zeros((3, 2), np.float32), np.array([0, 1, 2]), np.array([5, 6, 5]))
    marked = replace(some, held_out=np.array([True, False, True]))
    kept = of_classes(Content(marked, ["a", "b", "c"]), ["c", "a"], "d").train
    assert kept.group is not None
    assert kept.held_out is not None
    assert (list(kept.y), list(kept.group), list(kept.held_out)) == ([1, 0], [5, 5], [True, True])
    numbers = replace(some, y=np.zeros(3, np.float32))
    every = (
        Content(some, ["a", "b", "c"], notes={key: 1}) for key in ("standardised", "vocabulary")
    )
    for content in (Content(numbers, ["a"]), *every):
        with refused("value", file="d", key="only_classes"):
            of_classes(content, ["a"], "d")


def test_jpeg_parquet(tmp_path: Path) -> None:
    images = [encoded(colour, form="JPEG") for colour in (RED, GREEN, BLUE)]
    split, owner = ["train", "test", "train"], ["y", "x", "x"]
    spec = parquet(tmp_path / "p", split=split, label=[0, 1, 1], jpeg=images, owner=owner)
    dataset = prepared(tmp_path, spec)
    assert dataset.mean == (0.5, 0.5, 0.5)
    assert dataset.train.y.tolist() == [0, 1]
    assert dataset.train.group is not None
    assert dataset.train.group.tolist() == [1, 0]
    assert dataset.test is not None
    assert np.abs(dataset.test.x[0, :, 0, 0].astype(int) - np.array(GREEN)).max() < 8
    for numbers in ((0.5,), (0.5,) * 4):  # of three colours
        with refused("value", key="mean", names="3"):
            prepared(tmp_path, spec.model_copy(update={"mean": numbers, "std": numbers}))
    smaller = prepared(tmp_path, spec.model_copy(update={"side": 3}))
    assert smaller.input_shape == (3, 3, 3)


def clear(background: str) -> bytes:
    """An image of 4 x 4 of which the first pixel is transparent, the second half so."""
    pixels = np.full((4, 4, 4), 0 if background == "white" else 255, np.uint8)
    pixels[..., 3] = 255
    pixels[0, :2, 3] = 0, 128
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("background", "shown"), [("white", 255), ("black", 0)])
@pytest.mark.parametrize("form", ["parquet", "folder"])
def test_the_entry_says_on_what_transparent_pixels_are(
    background: str, shown: int, form: str, tmp_path: Path
) -> None:
    images = [encoded(RED), clear(background)]  # the second as the first
    if form == "parquet":
        spec: Any = parquet(tmp_path / "p", split=["train"] * 2, label=[0, 1], jpeg=images)
    else:
        files = dict(zip(("train/a/1.png", "train/b/2.png"), images, strict=True))
        path = str(folder_of(tmp_path / "i", files))
        spec = entry("image_folder", path=path, height=4, width=4, test_fraction=0)
    spec = spec.model_copy(update={"background": background})
    image = prepared(tmp_path, spec).train.x[1].astype(int)
    assert (image[:, 0, 0] == shown).all() and (image[:, 0, 2:] == 255 - shown).all()
    assert (abs(image[:, 0, 1] - 127.5) < 1).all()  # half of each


def test_a_parquet_file_of_dictionaries_and_of_clients_as_numbers(tmp_path: Path) -> None:
    """As pandas writes categories; clients are in the order of their numbers."""
    columns = {
        "split": pa.array(["train", "test", "train"]).dictionary_encode(),
        "label": pa.array([1, 0, 0], pa.int8()).dictionary_encode(),
        "jpeg": pa.array([encoded(colour) for colour in (RED, GREEN, BLUE)], pa.large_binary()),
        "who": pa.array([10, 10, 9]),
    }
    data = prepared(tmp_path, parquet_of(tmp_path / "p", **columns))
    assert data.group_names == ["9", "10"] and data.train.group is not None
    assert (data.train.group.tolist(), data.train.y.tolist()) == ([1, 0], [1, 0])
    assert data.test is not None and data.test.group is not None
    assert (data.test.group.tolist(), data.test.y.tolist()) == ([1], [0])
    columns["split"] = pa.array(["train", "test", "train"], pa.large_string())
    again = prepared(tmp_path, parquet_of(tmp_path / "p", **columns))
    assert again.meta["content_sha256"] == data.meta["content_sha256"]
    turned = io.BytesIO()  # as many pixels
    Image.new("RGB", (8, 2)).save(turned, "PNG")
    columns["jpeg"] = pa.array([encoded(RED), turned.getvalue(), encoded(RED)])
    with refused("value", key="row 1", names="0"):
        prepared(tmp_path, parquet_of(tmp_path / "p", **columns))


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"labels": [0]}, {"key": "column", "value": "label", "names": "'labels'"}),
        ({"label": [2]}, {"names": ("2", "0", "1")}),
        (
            {"label": [0], "split": ["tests"]},
            {"key": "split", "value": "tests", "names": ("'train'", "'test'")},
        ),
        (
            {"label": [0], "jpeg": [b"not an image"]},
            {"code": "unreadable", "file": "p: row 0", "names": ("p", "0", "image", "damaged")},
        ),
        (
            {"label": [0], "jpeg": [encoded(RED, 64, "JPEG")[:600]]},
            {"code": "unreadable", "names": ("0", "read")},
        ),
        ({"label": [0], "split": ["test"]}, {"names": ("split", "train")}),
        ({"label": [1]}, {"names": ("'a'", "samples", "class")}),
    ],
)
def test_faults_in_a_parquet_file(columns: dict[str, Any], fault: Fault, tmp_path: Path) -> None:
    plain: dict[str, list[Any]] = {"split": ["train"], "jpeg": [encoded(RED, form="JPEG")]}
    with refused(**fault):
        prepared(tmp_path, parquet(tmp_path / "p", **{**plain, **columns}))
    assert not (tmp_path / "data" / "d").exists()


def test_not_a_parquet_file_and_another_one(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"PAR1 but no more")
    spec = entry("jpeg_parquet", path=str(tmp_path / "p"), class_names=["a", "b"])
    with refused("unreadable", file="p", names="parquet"):
        prepared(tmp_path, spec)
    with refused("damaged", key="sha256", names="`sha256`"):
        prepared(tmp_path, spec.model_copy(update={"sha256": "0" * 64}))


IMAGES = {
    "train/cat/1.png": encoded(RED),
    "train/cat/2.png": encoded(RED, 9),
    "train/dog/1.jpg": encoded(BLUE, form="JPEG"),
    "train/dog/notes.txt": b"not an image",
    "test/dog/3.png": encoded(GREEN),
}


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def inside_one_folder(path: Path, files: dict[str, bytes]) -> Path:
    return write_zip(path, {f"all/{name}": content for name, content in files.items()})


@pytest.mark.parametrize("write", [folder_of, write_zip, inside_one_folder])
def test_image_folder(write: Callable[[Path, dict[str, bytes]], Path], tmp_path: Path) -> None:
    path = write(tmp_path / "images", IMAGES)
    dataset = prepared(tmp_path, entry("image_folder", path=str(path), height=6, width=5))
    assert dataset.meta["class_names"] == ["cat", "dog"]
    assert dataset.input_shape == (3, 6, 5)
    assert dataset.train.y.tolist() == [0, 0, 1]
    assert (dataset.train.x[:2] == np.array(RED)[:, None, None]).all()
    assert dataset.test is not None
    assert dataset.test.y.tolist() == [1]
    grey = entry("image_folder", path=str(path), height=4, width=4, channels=1)
    assert prepared(tmp_path, grey).input_shape == (1, 4, 4)


def test_which_files_of_a_folder_are_images(tmp_path: Path) -> None:
    """By their endings in small letters or not, in the order of their names, and none hidden."""
    shades = {"b.PNG": 20, "a.png": 10, "c/1.Png": 30, "a2.png": 11}
    files = {f"train/cat/{name}": encoded((shade, 0, 0)) for name, shade in shades.items()}
    files |= {f"train/dog/{at}.png": encoded((at, 0, 9)) for at in range(3)}
    hidden = {"train/cat/.thumbs/1.png": b"x", "train/dog/._1.png": b"x"}
    path = folder_of(tmp_path / "i", {**files, **hidden})
    keys: dict[str, Any] = {"path": str(path), "height": 4, "width": 4, "layout": "class"}
    data = prepared(tmp_path, entry("image_folder", **keys, test_fraction=0))
    assert data.train.x[:, 0, 0, 0].tolist() == [10, 11, 20, 30, 0, 1, 2]
    assert data.train.y.tolist() == [0, 0, 0, 0, 1, 1, 1]
    halved = prepared(tmp_path, entry("image_folder", **keys, test_fraction=0.5))
    assert halved.test is not None and (len(halved.test), halved.meta["test_fraction"]) == (4, 0.5)
    (path / "test/cat").mkdir(parents=True)  # without images in it
    assert prepared(tmp_path, entry("image_folder", **keys)).meta["test_fraction"] == 0.2
    (path / "train/dog/9.png").symlink_to(tmp_path / "nothing")
    with pytest.raises((UserError, OSError), match=r"9\.png"):
        prepared(tmp_path, entry("image_folder", **keys, test_fraction=0.4))


def test_two_folders_of_which_none_is_train_are_no_images(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "i.zip", {f"{at}/train/cat/1.png": encoded(RED) for at in "ab"})
    with refused("missing", file="i.zip", key="train", names="train/CLASS"):
        prepared(tmp_path, entry("image_folder", path=str(path), height=4, width=4))


def test_image_folder_without_test(tmp_path: Path) -> None:
    files = {f"train/{name}/{at}.png": encoded(RED) for name in "ab" for at in range(10)}
    path = folder_of(tmp_path / "images", files)
    spec = entry("image_folder", path=str(path), height=4, width=4, test_fraction=0.3)
    dataset = prepared(tmp_path, spec)
    assert dataset.test is not None
    assert np.bincount(dataset.test.y).tolist() == [3, 3]
    whole = entry("image_folder", path=str(path), height=4, width=4, test_fraction=0)
    assert prepared(tmp_path, whole).test is None


def test_folders_of_images_that_name_the_clients(tmp_path: Path) -> None:
    names = [("north", "cat"), ("north", "dog"), ("south", "dog")]
    shades = [encoded((shade, 0, 0)) for shade in (10, 20, 30)]
    for layout, order in (("client/class", 1), ("class/client", -1)):
        files = {
            "/".join(("train", *pair[::order], "1.png")): shade
            for pair, shade in zip(names, shades, strict=True)
        }
        path = folder_of(tmp_path / str(order), {**files, "train/.hidden/a/1.png": b"no image"})
        spec = entry("image_folder", path=str(path), height=4, width=4, layout=layout)
        dataset = prepared(tmp_path, spec)
        assert dataset.test is None  # clients hold out their own
        assert dataset.meta["groups"] == ["north", "south"]
        assert dataset.meta["class_names"] == ["cat", "dog"]
        assert dataset.train.group is not None
        rows = zip(dataset.train.x[:, 0, 0, 0], dataset.train.group, dataset.train.y, strict=True)
        assert sorted(rows) == [(10, 0, 0), (20, 0, 1), (30, 1, 1)]
    write = folder_of(path, {"test/dog/west/1.png": shades[0]})
    with refused(key="test", value="west"):
        prepared(tmp_path, spec.model_copy(update={"path": str(write)}))


@pytest.mark.parametrize("level", ["class", "client"])
def test_folders_whose_names_look_the_same_are_one_line(level: str, tmp_path: Path) -> None:
    """Systems differ in how they write an accent: archives of two may have both."""
    layout = f"{'client' if level == 'class' else 'class'}/{level}"
    places = ("a/\u00e9", "b/e\u0301")
    path = folder_of(tmp_path / "i", {f"train/{place}/1.png": encoded(RED) for place in places})
    with refused(names=(level, *map(ascii, ("\u00e9", "e\u0301")))):
        prepared(tmp_path, entry("image_folder", path=str(path), height=4, width=4, layout=layout))


@pytest.mark.parametrize("tested", ["north", "east"])
def test_folders_that_may_be_clients_or_classes_need_a_layout(tested: str, tmp_path: Path) -> None:
    places = [f"train/{place}" for place in ("north/cat", "north/dog", "south/dog")]
    files = {f"{place}/1.png": encoded(RED) for place in (*places, f"test/{tested}/cat")}
    spec = entry("image_folder", path=str(folder_of(tmp_path / "i", files)), height=4, width=4)
    with refused("missing", file="/i", key="layout", names="train/north/cat/1.png") as raised:
        prepared(tmp_path, spec)
    either = r"'client/class' \w+ north\b.*'class/client' \w+ cat\b.*'class'"
    assert re.search(either, str(raised.value))
    if tested == "north":
        flat = prepared(tmp_path, spec.model_copy(update={"layout": "class"}))
        assert flat.meta["class_names"] == ["north", "south"]


def test_an_archive_of_macos(tmp_path: Path) -> None:
    """It has a second folder beside the images, and hidden files that are named like images."""
    hidden = {f"__MACOSX/all/._{name}": b"\0" for name in ("train", "test")}
    files = {f"all/{name}": content for name, content in IMAGES.items()}
    path = write_zip(tmp_path / "i.zip", {**files, **hidden, "all/train/cat/._1.png": b"\0"})
    spec = entry("image_folder", path=str(path), height=4, width=4)
    assert prepared(tmp_path, spec).train.y.tolist() == [0, 0, 1]


def test_natural_clients_lose_no_rows_to_a_shared_test_set(tmp_path: Path) -> None:
    assert prepared(tmp_path, table(tmp_path, group="site")).test is None
    shared = prepared(tmp_path, table(tmp_path, group="site", test_fraction=0.5)).test
    assert shared is not None and len(shared) == 2


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("9.png", png_of_16_bits(1), "PNG, mode I;16"),
        ("9.png", png_of_16_bits(2), "PNG, mode RGBA"),  # as Pillow calls grey with alpha
        ("9.png", png_of_16_bits(3), "PNG, mode RGB"),
        ("9.png", png_of_16_bits(4), "PNG, mode RGBA"),
        ("9.tif", tiff_of_16_bits(1), "TIFF, mode RGB"),
        ("9.tif", tiff_of_16_bits(2), "TIFF, mode RGB"),
        ("9.ppm", b"P6 2 2 1000\n" + bytes(24), "PPM, mode RGB"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_image_of_16_bits_is_not_cut_off(
    name: str, content: bytes, kind: str, tmp_path: Path
) -> None:
    path = folder_of(tmp_path / "images", {**IMAGES, f"train/cat/{name}": content})
    for channels in (1, 3):
        spec = entry("image_folder", path=str(path), height=2, width=2, channels=channels)
        with refused("value", file=f"train/cat/{name}", names=("8", f"({kind})")):
            prepared(tmp_path, spec)


@pytest.mark.parametrize(
    ("form", "mode"),
    [("PNG", "RGBA"), ("PNG", "LA"), ("PNG", "P"), ("PNG", "1"), ("BMP", "RGB"), ("GIF", "P"),
     ("TIFF", "RGB"), ("TIFF", "CMYK"), ("TIFF", "1"), ("PPM", "RGB"), ("PPM", "L")],
)  # fmt: skip
def test_images_of_8_bits_are_read_in_every_mode(form: str, mode: str) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (5, 4)).save(buffer, form)
    assert decode(buffer.getvalue(), "image", 3).shape == (3, 4, 5)
    assert decode(buffer.getvalue(), "image", 1).shape == (1, 4, 5)


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({**IMAGES, "train/cow/1.txt": b""}, {"names": ("'cow'", "samples")}),
        ({"cat/1.png": b""}, {"code": "missing", "key": "train", "names": "train/CLASS"}),
        ({**IMAGES, "test/cow/1.png": encoded(RED)}, {"key": "test", "value": "cow"}),
        (
            {**IMAGES, "train/cat/3.png": encoded(RED)[:40]},
            {
                "code": "unreadable",
                "file": "3.png",
                "names": ("images.zip", "train/cat/3.png", "image"),
            },
        ),
        ({"train/cat/1.txt": b""}, {"code": "missing", "key": "train"}),
        (
            {"train/cat/1.png": encoded(RED), "test/cat/1.png": encoded(RED)},
            {"key": "classes", "value": 1},
        ),
        ({**IMAGES, "../../evil.png": encoded(RED)}, {"names": ("elsewhere", "written")}),
    ],
)
def test_faults_in_an_image_archive(files: dict[str, bytes], fault: Fault, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "images.zip", files)
    spec = entry("image_folder", path=str(path), height=4, width=4)
    with refused(**fault) as raised:
        prepared(tmp_path, spec)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "data" / "d").exists()
    write_zip(path, IMAGES)
    assert len(prepared(tmp_path, spec).train) == 3  # the next call recovers


TABLE = """id,age,sex,site,when,sick
1,40,f,B,train,yes
2,,m,A,train,no
3,60,f,A,train,no
4,50,m,B,test,yes
"""


def table(tmp_path: Path, text: str = TABLE, **keys: Any) -> Any:
    (tmp_path / "t.csv").write_text(text)
    return entry("tabular_csv", path=str(tmp_path / "t.csv"), **{"label": "sick", **keys})


def test_tabular_csv(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"group": "site", "split": "when", "drop": ["id"], "task": "binary"}
    dataset = prepared(tmp_path, table(tmp_path, standardise=False, **keys))
    assert dataset.meta["features"] == ["age", "sex_f", "sex_m"]
    assert dataset.meta["class_names"] == ["no", "yes"]
    assert dataset.train.x.dtype == np.float32
    # The missing age is the mean of the training rows, 50.
    assert dataset.train.x.tolist() == [[40, 1, 0], [50, 0, 1], [60, 1, 0]]
    assert dataset.train.y.tolist() == [1, 0, 0]
    assert dataset.train.group is not None
    assert dataset.train.group.tolist() == [1, 0, 0]
    assert dataset.test is not None
    assert dataset.test.x.tolist() == [[50, 0, 1]]
    scaled = prepared(tmp_path, table(tmp_path, **keys))
    assert np.allclose(scaled.train.x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(scaled.train.x.std(axis=0), 1, atol=1e-6)
    assert scaled.test is not None
    assert scaled.test.x[0, 0] == 0


@pytest.mark.parametrize(
    ("text", "keys", "fault"),
    [
        (
            TABLE,
            {"label": "sik"},
            {"names": ("label", "'sik'", "'sick'")},
        ),
        (TABLE, {"drop": ["idd"]}, {"names": ("drop", "'idd'")}),
        (
            TABLE.replace("test", "tset"),
            {"split": "when", "group": "site"},
            {"names": ("when", "'tset'", "4", "B", "'train'")},
        ),
        (TABLE.replace("test", ""), {"split": "when"}, {"names": ("when", "4", "'train'")}),
        (TABLE.replace("yes", ""), {}, {"names": ("value", "every")}),
        (TABLE.replace("yes", "no"), {}, {"names": ("1", "classes", "2")}),
        (
            TABLE.replace("4,50,m,B,test,yes", "4,50,m,B,test,x"),
            {"task": "binary"},
            {"names": "2"},
        ),
        ("", {}, {"code": "unreadable", "names": ("CSV", "read")}),
        (
            TABLE.replace(",", ";"),
            {},
            {"names": ("header", "','", "';'")},
        ),
        (TABLE.replace(",", "\t"), {}, {"names": ("tab", "CSV")}),
        (TABLE.replace("id,age", "age,age"), {}, {"names": ("header", "'age'", "2", "columns")}),
        (TABLE.replace("yes", "yes,1").replace("no", "no,2"), {}, {"names": ("6", "cells")}),
        (TABLE + "5,60,m,B,train,\n", {"group": "site"}, {"names": ("row", "5")}),
        (
            TABLE + "5,old,m,B,test,no\n",
            {"group": "site"},
            {"names": ("age", "'old'", "5", "B", "1.5", "3", "4")},
        ),
        (
            TABLE.replace("40", '"4,5"'),
            {},
            {"names": ("age", "'4,5'", "1", "1.5")},
        ),
        (
            TABLE.replace("train,no", "train", 1),
            {},
            {"names": ("t.csv", "2", "5", "cells", "6")},
        ),
        (
            re.sub("40|50|60", "NA", TABLE),
            {},
            {"names": ("age", "empty", "row", "`drop`")},
        ),
        (
            "a,sick\n1,1\n2,1\n3,0\n4,0\n5,maybe\n",
            {},
            {"names": ("label", "sick", "'maybe'", "5", "4", "numbers")},
        ),
        (TABLE.replace("60", "-inf"), {}, {"names": ("age", "3")}),
        (TABLE.replace("60", "1e999"), {"standardise": False}, {"names": ("age", "3")}),
        (
            TABLE.replace("4,50,m,B,test,yes", "4,50,m,B,test,maybe"),
            {"split": "when"},
            {"names": ("'maybe'", "samples", "class")},
        ),
        ("sick\n1\n0\n", {}, {"names": ("column", "left")}),
        (TABLE, {"test_fraction": 0.01}, {"names": ("4", "samples")}),
        (TABLE, {"test_fraction": 0.99}, {"names": ("4", "samples")}),
        (TABLE, {"label": ["id"], "task": "multi_label"}, {"names": ("'multi_label'", "0", "1")}),
        (TABLE.replace("train", "test"), {"split": "when"}, {"names": ("when", "'train'")}),
        # Also of clients' own rows, which none is taken from by default.
        *(
            (TABLE, {"standardise": "per_client", "group": "site", **keys}, {"names": "per_client"})
            for keys in ({"split": "when"}, {"test_fraction": 0.5})
        ),
        ("a|b;c;d\n1|2;3;4\n", {}, {"names": ("header", "';'")}),
        (
            TABLE.replace("60", "much").replace("2,,", "2,5,"),
            {"label": ["age", "id"], "task": "regression"},
            {"names": ("label", "age", "'much'", "3")},
        ),
        (
            TABLE.replace("60", "much").replace("2,,", "2,5,"),
            {"label": ["id", "age"], "task": "regression"},
            {"names": ("label", "age", "'much'", "3")},
        ),
        # Of five values that are there, three are numbers: the others are mistakes.
        ("a,sick\n1,1\n2,0\n3,1\nx,0\ny,1\n,0\n,1\n", {}, {"names": ("a", "'x'", "3", "5")}),
    ],
)
def test_faults_in_a_table(text: str, keys: dict[str, Any], fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        prepared(tmp_path, table(tmp_path, text, **keys))


def test_what_becomes_of_words_truths_and_several_numbers_to_predict(tmp_path: Path) -> None:
    """Half of `code` are numbers, so it is words; `old` is a number; `b` is before `a`."""
    text = "code,old,b,a\n1,TRUE,5,0.5\n2,FALSE,6,1.5\nx,FALSE,7,2.5\ny,TRUE,8,3.5\n"
    keys: dict[str, Any] = {"standardise": False, "test_fraction": 0, "task": "regression"}
    data = prepared(tmp_path, table(tmp_path, text, label=["b", "a"], **keys))
    assert data.meta["features"] == ["old", "code_1", "code_2", "code_x", "code_y"]
    assert data.train.x[:, 0].tolist() == [1, 0, 0, 1]
    assert data.meta["class_names"] == ["b", "a"] and data.outputs == 2
    assert data.train.y.tolist() == [[5, 0.5], [6, 1.5], [7, 2.5], [8, 3.5]]
    assert "test_fraction" in data.meta and data.train.missing is None


def test_a_table_that_is_split_has_no_fraction_for_testing(tmp_path: Path) -> None:
    data = prepared(tmp_path, table(tmp_path, split="when", task="binary"))
    assert "test_fraction" not in data.meta
    assert (data.classes, data.outputs) == (2, 1)
    assert prepared(tmp_path, table(tmp_path, split="when")).outputs == 2


def test_a_table_that_is_not_utf_8(tmp_path: Path) -> None:
    spec = table(tmp_path)
    (tmp_path / "t.csv").write_bytes(TABLE.replace("yes", "j\xe4").encode("latin-1"))
    with refused("unreadable", names="UTF-8"):
        prepared(tmp_path, spec)


def test_a_group_may_be_called_na(tmp_path: Path) -> None:
    text = TABLE.replace(",A,", ",NA,").replace(",B,", ",None,")
    dataset = prepared(tmp_path, table(tmp_path, text, group="site"))
    assert dataset.meta["groups"] == ["NA", "None"]
    with refused("value", key="group", value="site"):
        prepared(tmp_path, table(tmp_path, text.replace(",NA,", ",,"), group="site"))


def parquet_of(path: Path, **columns: Any) -> Any:
    """A file of two images; some columns otherwise."""
    usual = {
        "split": pa.array(["train", "train"]),
        "label": pa.array([0, 1]),
        "jpeg": pa.array([encoded(RED), encoded(BLUE)]),
        "who": pa.array([3, 4]),
    }
    pq.write_table(pa.table({**usual, **columns}), path)
    return entry("jpeg_parquet", path=str(path), group="who", class_names=["a", "b"])


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"label": pa.array([0.5, 1.0])}, {"names": ("label", "double")}),
        ({"label": pa.array([[0], [1]])}, {"names": ("label", "numbers")}),
        ({"label": pa.array([0, None])}, {"names": ("label", "value")}),
        ({"jpeg": pa.array(["a", "b"])}, {"names": ("jpeg", "string")}),
        ({"jpeg": pa.array([1, 2])}, {"names": ("jpeg", "int64")}),
        ({"jpeg": pa.array([None, b"x"])}, {"names": ("jpeg", "value")}),
        ({"who": pa.array([1, None])}, {"names": ("value", "every")}),
        ({"who": pa.array([[1], [2]])}, {"names": ("numbers", "column")}),
        ({"split": pa.array([1, 2])}, {"names": ("split", "int64")}),
        ({"split": pa.array(["train", None])}, {"names": ("split", "value")}),
        (
            {
                "split": pa.array([], pa.string()),
                "label": pa.array([], pa.int64()),
                "jpeg": pa.array([], pa.binary()),
                "who": pa.array([], pa.int64()),
            },
            {"names": "rows"},
        ),
    ],
)
def test_columns_of_images_that_are_not_what_they_should_be(
    tmp_path: Path, columns: dict[str, Any], fault: Fault
) -> None:
    prepared(tmp_path, parquet_of(tmp_path / "right.parquet"))
    with refused(**fault):
        prepared(tmp_path, parquet_of(tmp_path / "images.parquet", **columns))


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            ["1,0.5,x", "2,1.5,y"],
            {"names": ("label", "y", "0.5", "1", "x")},
        ),
        (["1,inf,x", "2,1,y"], {"names": ("label", "y", "1", "x")}),
        (["1,a,x", "2,b,"], {"names": ("group", "'g'", "row", "2")}),
        (["1,a,x", "2,,"], {"names": ("label", "'y'", "row", "2")}),
        (
            ["1,a,x", "-1e300,b,y", "3,a,x"],
            {"names": ("x", "300", "2", "y", "38")},
        ),
        (
            ["1,a,x", f"{10**23},b,y", "3,a,x"],
            {"names": ("x", "2", "y", "63")},
        ),
        (["-1,a,x", f"{2**63},b,y"], {"names": ("x", "2", "y", "63")}),
        ([f"t{at},{at % 2},x" for at in range(1001)], {"names": ("x", "1001", "texts", "`drop`")}),
    ],
)
def test_tables_that_are_not_what_they_should_be(
    tmp_path: Path, rows: list[str], fault: Fault
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["x,y,g", *rows]), encoding="utf-8")
    for standardise in (
        False,
        True,
    ):  # with which large numbers overflowed before they were refused
        keys = {"group": "g", "standardise": standardise, "test_fraction": 0}
        with refused(**fault):
            prepared(tmp_path, entry("tabular_csv", path=str(path), label="y", **keys))


def test_sides_have_a_limit(tmp_path: Path) -> None:
    assert entry("image_folder", path="x", height=1, width=4096)
    for height, width in ((1, 4097), (0, 4096), (10**6, 10**6)):
        with pytest.raises(ValidationError, match="4096"):
            entry("image_folder", path="x", height=height, width=width)


def test_a_part_of_the_samples_keeps_their_groups() -> None:
    whole = Split(np.arange(4), np.array([0, 1, 0, 1]), np.array([7, 8, 9, 7]))
    part = whole.take(np.array([True, False, True, False]))
    assert part.group is not None
    assert (part.x.tolist(), part.y.tolist(), part.group.tolist()) == ([0, 2], [0, 0], [7, 9])
