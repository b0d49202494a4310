"""Users' tables and images: names stay text, held-out rows unseen, images as viewers show them."""

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps

from fedrepro.data.catalogue.catalogue import meaning_of
from fedrepro.data.catalogue.kinds import TabularCsv
from fedrepro.data.dataset import Dataset, Split, open_dataset, refuse_damage
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid, Natural, PartitionSpec
from fedrepro.data.prepare import prepare
from fedrepro.data.readers.content import Source
from fedrepro.data.readers.images import TURNS, decode
from fedrepro.data.readers.tables import facts_of_columns, of_classes, read_tabular_csv
from fedrepro.data.tensors.standardise import standardised
from support.numbers_in_text import numbers_in
from support.raw_data import entry
from support.refusals import refused

NAMES = (
    ["1.1", "1.10", "1.2", "1.100"],
    ["007", "07", "7", "7.0"],
    ["1e1", "10", "10.0", "+10"],
    ["True", "TRUE", "1", "true"],
    ["NA", "NaN", "None", "null", "nan", "N/A", "<NA>"],
    ["9007199254740993", "9007199254740992", "18446744073709551617"],
    ["2020-01-01", "2020-1-1", "1/1/2020"],
    ["0x10", "16", "1_6", "inf"],
    [" a", "b ", "c d", " 7"],
)


def prepared(tmp_path: Path, header: str, rows: Sequence[str], **keys: Any) -> Dataset:
    file = tmp_path / "table.csv"
    file.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    spec = entry("tabular_csv", path=str(file), **{"label": "y", **keys})
    prepare("own", spec, downloads=tmp_path / "downloads", root=tmp_path / "data")
    return open_dataset("own", tmp_path / "data")


@pytest.mark.parametrize("value", [0, 0.1, 0.3, 1e6 + 0.1])
def test_a_column_that_is_constant_in_training_only_is_not_blown_up(
    tmp_path: Path, value: float
) -> None:
    """Rounded sums give 303 times 0.3 a deviation of 6e-17, by which other rows were divided."""
    rows = [f"{value},{at % 2},train,{at % 7}" for at in range(303)]
    rows += [f"{value + 0.5},1,test,2", f"{value},0,test,3"]
    dataset = prepared(tmp_path, "x,y,part,z", rows, split="part")
    assert dataset.test is not None
    assert np.abs(dataset.train.x[:, 0]).max() < 1e-9
    assert dataset.test.x[:, 0].tolist() == pytest.approx([0.5, 0], abs=1e-6)
    assert dataset.train.x[:, 1].std() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("names", NAMES)
def test_clients_are_called_as_the_file_writes_them(tmp_path: Path, names: list[str]) -> None:
    rows = [f"{at},{at % 2},{name}" for at in range(4) for name in names]
    dataset = prepared(tmp_path, "x,y,ward", rows, group="ward")
    assert dataset.group_names == sorted(names)
    assert dataset.train.group is not None
    assert [dataset.group_names[each] for each in dataset.train.group] == names * 4


CLASSES = (
    ["01", "1", "1.0", "10"],
    ["+10", "10", "1e1"],
    ["FALSE", "TRUE", "True", "true"],
    ["0", "9007199254740992", "9007199254740993", "18446744073709551617"],
    *NAMES[4:5],
    *NAMES[6:7],
)


@pytest.mark.parametrize("names", CLASSES)
def test_classes_are_called_as_the_file_writes_them(tmp_path: Path, names: list[str]) -> None:
    rows = [f"{at},{name}" for at in range(4) for name in names]
    dataset = prepared(tmp_path, "x,y", rows, test_fraction=0)
    called = dataset.meta["class_names"]
    assert sorted(called) == sorted(names)
    assert [called[each] for each in dataset.train.y] == names * 4


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    rows = [f"{at},{at % 11 - 2}" for at in range(33)]
    dataset = prepared(tmp_path, "x,y", rows, test_fraction=0)
    assert dataset.meta["class_names"] == [str(each) for each in range(-2, 9)]
    assert dataset.train.y.tolist() == [at % 11 for at in range(33)]


@pytest.mark.parametrize("key", ["label", "group", "column"])
@pytest.mark.parametrize(
    "names",
    [("a", "a "), ("a", " a"), ("\u00e9", "e\u0301"), ("a b", "a\u00a0b"), ("ab", "a\u200bb")],
)
def test_names_that_look_the_same_are_refused(
    tmp_path: Path, key: str, names: tuple[str, str]
) -> None:
    """As labels, clients or words of a feature they would be two."""
    keys = {"label": "z"} | ({} if key == "column" else {key: "y"})
    rows = [f"1,{names[0]},b", "2,b,a", f"3,{names[1]},b", "4,b,a"]
    with refused(names=(key, "y", *map(ascii, names))):
        prepared(tmp_path, "x,y,z", rows, **keys)


ABOUT: dict[str, Any] = dict.fromkeys(("title", "licence", "citation"), "own")


@pytest.mark.parametrize(
    ("names", "doubtful"),
    [(["0", "0.0"], True), (["01", "1"], True), (["True", "true"], True), (["1", "true"], True),
     (["1e1", "2", "10"], True), (["0", "1"], False), (["a", "A"], False), (["nan", "NaN"], False),
     (["1.1", "1.2"], False), (["true", "false"], False)],
)  # fmt: skip
def test_classes_of_one_value_are_to_be_looked_at(names: list[str], doubtful: bool) -> None:
    assert bool(of_classes(names)) == bool(of_classes(reversed(names))) == doubtful
    table = pd.DataFrame({"x": range(len(names)), "y": names})
    lines = dict(
        facts_of_columns(TabularCsv(kind="tabular_csv", path="a.csv", label="y", **ABOUT), table)
    )
    assert lines["look at"] == "y" * doubtful


@pytest.mark.parametrize(
    ("words", "doubtful"),
    [(["5%", "7.5%"], True), (["$5", "-$7", "€9"], True), (["1_000", "2_000", "4"], True),
     (["−5", "−7", "3"], True), (["5 kg", "12 kg"], True), (["20 °C", "21°C"], True),
     (["a", "b5"], False), (["12a", "7b"], False), (["1.2.3", "4.5.6"], False),
     (["5%", "low", "high"], False), (["1", "2", "x", "y"], False), (["10-20", "20-30"], False)],
)  # fmt: skip
def test_numbers_with_a_sign_or_a_unit_are_to_be_looked_at(
    words: list[str], doubtful: bool
) -> None:
    table = pd.DataFrame({"x": words, "y": ["0"] * len(words)})
    lines = dict(
        facts_of_columns(TabularCsv(kind="tabular_csv", path="a.csv", label="y", **ABOUT), table)
    )
    assert lines["column x"].startswith("numbers?") == doubtful
    assert lines["look at"] == "x" or not doubtful


def test_a_last_column_without_a_name_is_one_like_any_other(tmp_path: Path) -> None:
    """A comma at the end of each line makes one."""
    with refused("value", key="Unnamed: 2", names="`drop`"):
        prepared(tmp_path, "x,y,", ["1,a,", "2,b,"])
    assert prepared(tmp_path, "x,y,", ["1,a,", "2,b,"] * 4, drop=["Unnamed: 2"]).input_shape == (1,)
    rows = [f"{at % 4},{at},{'ab'[at % 2]}" for at in range(8)]  # two frames, joined by pandas
    for header in (",x,y", "Unnamed: 0,x,y"):
        with refused("value", key="Unnamed: 0", names="`drop`"):
            prepared(tmp_path, header, rows)
        assert prepared(tmp_path, header, rows, drop=["Unnamed: 0"]).input_shape == (1,)


def test_an_empty_name_is_missing(tmp_path: Path) -> None:
    for cell in ("", " ", '""'):
        with refused(names=("row", "2")):
            prepared(tmp_path, "x,y,ward", ["1,a,n", f"2,b,{cell}", "3,a,s"], group="ward")


SCHEMES = (
    Natural(scheme="natural", test_fraction=0.25),
    Natural(scheme="natural", validation=0.25),
    Natural(scheme="natural", test_fraction=0.25, validation=0.25),
    Iid(scheme="iid", clients=3, test_fraction=0.4),
)


@pytest.mark.parametrize("spec", SCHEMES, ids=lambda spec: spec.name)
@pytest.mark.parametrize("standardise", [True, False, "per_client"])
def test_held_out_rows_are_not_in_means(
    tmp_path: Path, spec: PartitionSpec, standardise: Any
) -> None:
    random = np.random.default_rng(1)
    numbers = random.normal(5, 3, (60, 3)).round(3).astype(object)
    for row, column in zip(random.integers(0, 60, 15), random.integers(0, 3, 15), strict=True):
        numbers[row, column] = ""

    def made(table: Any) -> tuple[Any, Dataset]:
        rows = [
            f"{','.join(map(str, row))},{at % 2},{'abc'[at % 3]}" for at, row in enumerate(table)
        ]
        keys = {"group": "g", "standardise": standardise}
        dataset = prepared(tmp_path, "p,q,r,y,g", rows, **keys)
        labels, groups = dataset.train.y, dataset.train.group
        partition = make_partition(labels, groups, spec, 1)
        return partition, standardised(dataset, partition)

    partition, first = made(numbers)
    held = np.concatenate([np.concatenate(rows) for name, rows, _ in partition.parts[1:]])
    changed = numbers.copy()
    for row in held:
        changed[row] = [1000 + row, "", -row]
    _, second = made(changed)
    kept = np.setdiff1d(np.arange(60), held)
    scale = 1e-5
    assert np.allclose(first.train.x[kept], second.train.x[kept], atol=scale)
    assert not np.allclose(first.train.x[held], second.train.x[held], atol=1)
    if standardise is True:  # by hand, from the file
        raw = np.where(numbers == "", np.nan, numbers).astype(float)
        mean = np.nanmean(raw[kept], axis=0)
        whole = np.where(np.isnan(raw), mean, raw)
        by_hand = (whole - mean) / whole[kept].std(axis=0)
        assert np.allclose(first.train.x, by_hand, atol=scale)


def test_without_held_out_rows_the_prepared_numbers_are_used(tmp_path: Path) -> None:
    rows = [f"{at},{at % 2},{'ab'[at % 2]}" for at in range(10)]
    dataset = prepared(tmp_path, "x,y,g", [*rows, ",0,a"], group="g")
    partition = make_partition(dataset.train.y, dataset.train.group, Natural(scheme="natural"), 1)
    assert standardised(dataset, partition) is dataset


def test_a_test_set_follows_the_statistics_of_training_rows(tmp_path: Path) -> None:
    rows = [f"{at},{at % 2},{'train' if at < 30 else 'test'}" for at in range(40)]
    dataset = prepared(tmp_path, "x,y,s", rows, split="s")
    spec = Iid(scheme="iid", clients=2, test_fraction=0.5)
    partition = make_partition(dataset.train.y, None, spec, 1)
    kept = np.sort(np.concatenate(partition.train))
    assert dataset.test is not None
    test = standardised(dataset, partition).test
    assert isinstance(test, Split)
    by_hand = (np.arange(30, 40) - kept.mean()) / kept.std()
    assert np.allclose(test.x[:, 0], by_hand, atol=1e-5)
    assert not np.allclose(dataset.test.x[:, 0], by_hand, atol=1e-2)


def test_what_the_same_numbers_stand_for_is_told(tmp_path: Path) -> None:
    """Gaps that happen to be filled in as they are by hand, and who standardises."""
    keys = {"group": "g", "standardise": False}
    rows = ["1,0,a", "3,1,a", "2,0,b", "2,1,b"]
    made = prepared(tmp_path, "x,y,g", rows, **keys).meta
    gaps = prepared(tmp_path, "x,y,g", [*rows[:3], ",1,b"], **keys)
    assert gaps.train.missing is not None and gaps.train.missing.sum() == 1
    assert gaps.meta["content_sha256"] == made["content_sha256"]
    assert "missing_sha256" in gaps.meta and "missing_sha256" not in made
    own = prepared(tmp_path, "x,y,g", rows, **{**keys, "standardise": "per_client"})
    assert own.client_standardised == (0,) and not own.standardised
    assert own.meta["content_sha256"] == made["content_sha256"]


@pytest.mark.parametrize(
    ("header", "numbers", "keys", "same"),
    [
        ("x,y", "1.0 3.0 2 2", {}, True),  # another file
        ("x,y", "1 3 2 2", {"missing": ["?"]}, True),  # another entry
        ("x,y", "1 3 2 ?", {"missing": ["?"]}, True),  # who holds rows out looks at the gap itself
        ("x,y", "1 4 2 2", {}, False),
        ("z,y", "1 3 2 2", {}, False),
        ("x,y", "1 3 2 2", {"test_fraction": 0.5}, False),
    ],
)
def test_data_prepared_anew_keep_their_time_if_they_are_the_same(
    tmp_path: Path, header: str, numbers: str, keys: dict[str, Any], same: bool
) -> None:
    """By the time of meta.json, Snakemake makes again what was made from them."""
    plain: dict[str, Any] = {"standardise": False, "test_fraction": 0}
    before = prepared(tmp_path, "x,y", ["1,0", "3,1", "2,0", "2,1"], **plain)
    about = tmp_path / "data/own/meta.json"
    os.utime(about, (1e9, 1e9))
    rows = [f"{number},{at % 2}" for at, number in enumerate(numbers.split())]
    after = prepared(tmp_path, header, rows, **{**plain, **keys})
    assert after.meta["recipe"] != before.meta["recipe"]
    assert (about.stat().st_mtime == 1e9) == same


def test_a_changed_bit_is_found_in_clients_and_gaps_as_well(tmp_path: Path) -> None:
    rows = ["1,0,a,train", ",1,b,train", "3,1,a,test", ",0,b,test"]
    prepared(tmp_path, "x,y,g,s", rows, group="g", split="s")
    arrays = {path.stem: path for path in (tmp_path / "data/own").glob("*.npy")}
    parts = ("x", "y", "group", "missing")
    assert {*arrays} == {f"{split}_{part}" for split in ("train", "test") for part in parts}
    for path in arrays.values():
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with refused("damaged", file="data/own", names=path.name):
            refuse_damage("own", tmp_path / "data")
        path.write_bytes(whole)
    refuse_damage("own", tmp_path / "data")


def test_a_folder_that_is_made_again_keeps_what_is_not_of_it_alone(tmp_path: Path) -> None:
    """Notes that someone put there stay; arrays that the data no longer have go."""
    rows = ["1,0,a,train", ",1,b,train", "3,1,a,test", ",0,b,test"]
    prepared(tmp_path, "x,y,g,s", rows, group="g", split="s")
    folder = tmp_path / "data/own"
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert prepared(tmp_path, "x,y,g,s", rows[:1] + rows[2:3], test_fraction=0).test is None
    names = {path.name for path in folder.iterdir()}
    assert names == {"meta.json", "train_x.npy", "train_y.npy", "notes.txt"}
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    # A list that somebody edited does not say whose files they are.
    about = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    about["splits"]["train"]["arrays"]["mine"] = about["splits"]["train"]["arrays"]["train_x"]
    (folder / "meta.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "mine.npy").write_bytes(b"mine")
    prepared(tmp_path, "x,y,g,s", rows, group="g", split="s")
    assert (folder / "mine.npy").read_bytes() == b"mine"


def test_own_data_are_read_again_when_their_reader_has_changed(tmp_path: Path) -> None:
    for kind in ("tabular_csv", "image_folder", "jpeg_parquet"):
        keys: dict[str, Any] = {
            "tabular_csv": {"label": "y"},
            "image_folder": {"height": 2, "width": 2},
            "jpeg_parquet": {"class_names": ["a", "b"]},
        }[kind]
        assert meaning_of(entry(kind, path="x", **keys))["revision"] == 2
    assert "revision" not in meaning_of(entry("pacs", path="x"))


def stored(image: Image.Image, form: str = "PNG", **keys: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **keys)
    return file.getvalue()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", [1, *TURNS, 99])
def test_images_are_turned_as_exif_says(form: str, orientation: int) -> None:
    shown = np.zeros((16, 24), np.uint8)
    shown[:8, :8], shown[:8, 8:16] = 250, 120
    exif = Image.Exif()
    exif[0x0112] = orientation
    # What a camera stores: the inverse of the turn. Five of them are their own inverse.
    back = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    turn = back.get(orientation, TURNS.get(orientation))
    image = Image.fromarray(np.dstack([shown] * 3))
    sensed = image if turn is None else image.transpose(turn)
    keys: dict[str, Any] = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True}}.get(form, {})
    content = stored(sensed, form, exif=exif, **keys)
    read = decode(content, "x", 1)[0]
    if form == "PNG":  # as Pillow's own function has it
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
        assert np.array_equal(read, np.asarray(upright)[..., 0])
    assert read.shape == shown.shape
    assert np.abs(read.astype(int) - shown).max() < 5


def strokes(shade: int, mode: str) -> Image.Image:
    """A bar of one shade; all other pixels are transparent and of the same shade."""
    array = np.full((6, 6, 4), shade, np.uint8)
    array[..., 3] = 0
    array[1:5, 2, 3] = 255
    return Image.fromarray(array).convert(mode)


@pytest.mark.parametrize(("mode", "form"), [("RGBA", "PNG"), ("LA", "PNG"), ("RGBA", "TIFF")])
@pytest.mark.parametrize("channels", [1, 3])
def test_transparent_pixels_show_the_background(mode: str, form: str, channels: int) -> None:
    black, white = strokes(0, mode), strokes(255, mode)
    bar = np.zeros((6, 6), bool)
    bar[1:5, 2] = True
    for layer in decode(stored(black, form), "x", channels):
        assert np.array_equal(layer == 0, bar)
        assert np.array_equal(layer == 255, ~bar)
    for layer in decode(stored(white, form), "x", channels, background="black"):
        assert np.array_equal(layer == 255, bar)
    with refused("value", key="background", value="white", names="'black'"):
        decode(stored(white, form), "x", channels)


@pytest.mark.parametrize("alpha", [1, 128, 254])
def test_the_background_shows_through_in_part(alpha: int) -> None:
    """Even where no pixel is wholly transparent."""
    array = np.random.default_rng(1).integers(0, 256, (5, 5, 4)).astype(np.uint8)
    array[..., 3] = 255
    array[2, 3, 3] = alpha
    for background, shade in (("white", 255), ("black", 0)):
        read = decode(stored(Image.fromarray(array)), "x", 3, background=background)
        wanted = array[..., :3].astype(float)
        wanted[2, 3] = wanted[2, 3] * alpha / 255 + shade * (1 - alpha / 255)
        assert (abs(read.transpose(1, 2, 0) - wanted) <= 1).all()


def test_a_colour_that_stands_for_transparency_shows_the_background() -> None:
    grey = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4))
    for image in (grey, grey.convert("RGB"), grey.convert("P")):
        clear: Any = (3, 3, 3) if image.mode == "RGB" else 3
        read = decode(stored(image, transparency=clear), "x", 1)[0]
        assert read[0, 3] == 255
        assert read.ravel().tolist()[4:] == list(range(4, 16))


def test_opaque_images_keep_their_values() -> None:
    array = np.random.default_rng(0).integers(0, 256, (5, 5, 4)).astype(np.uint8)
    array[..., 3] = 255
    image = Image.fromarray(array)
    for background in ("white", "black"):
        read = decode(stored(image), "x", 3, background=background)
        assert np.array_equal(read, array[..., :3].transpose(2, 0, 1))
    grey = decode(stored(image), "x", 1)[0]
    assert np.array_equal(grey, np.asarray(image.convert("L")))


def test_a_further_column_costs_little(tmp_path: Path) -> None:
    """Some 600 calls for each, of pandas most of them: 10,000 columns took 37 s."""

    def calls_of(columns: int) -> int:
        file = tmp_path / "wide.csv"
        names = [f"c{at}" for at in range(columns)]
        rows = [[*(str(at * row) for at in range(columns)), str(row % 2)] for row in (1, 2, 3)]
        file.write_text("\n".join([",".join([*names, "y"]), *map(",".join, rows), ""]))
        spec: Any = entry("tabular_csv", path=str(file), label="y", test_fraction=0)
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            content = read_tabular_csv(spec, Source(file, tmp_path))
        finally:
            sys.setprofile(None)
        told = dict(content.understood)
        assert told["column c7"] == "numbers, 7 to 21" and told["column y"] == "label"
        return calls

    few = calls_of(100)
    assert calls_of(300) - few < 200 * 300


def test_which_columns_are_to_be_looked_at(tmp_path: Path) -> None:
    """Of 42 rows; those whose names begin with `no ` are fine, though only just."""
    shuffled = np.random.default_rng(3).permutation(42).tolist()
    sparse = [5 * at for at in shuffled]
    columns: dict[str, list[Any]] = {
        "dense": shuffled,
        "no dense": [0, *shuffled[1:]] if shuffled[0] else [1, *shuffled[1:]],
        **dict.fromkeys(("patient_id", "Key", "no", "case nr"), sparse),
        **dict.fromkeys(("no idea", "no keyboard"), sparse),
        "no time": [at + 0.5 for at in range(42)],
        "days": [100 * at for at in range(42)],
        "no twice": [100 * max(at, 1) for at in range(42)],
        "some": [at if at % 2 else "" for at in range(42)],
        "no few": ["" if at % 2 or at == 4 else at for at in range(42)],
        "half": [f"c{at % 22}" for at in range(42)],
        "no half": [f"c{at % 21}" for at in range(42)],
        "told": [["yes", " N.A. "][at % 2] for at in range(42)],
        "note": [["a b c d", "a b c d e"][at % 2] for at in range(42)],
        "no note": [["a b c d", "a b c e"][at % 2] for at in range(42)],
        "one": ["same"] * 42,
        "no one": [*["same"] * 41, "other"],
        "zero": [0.0] * 42,
        "born": [f"1.{1 + at % 12}.19{10 + at % 20}" for at in range(42)],
        "no version": [f"1.{at % 3}-beta" for at in range(42)],
        "y": [at % 2 for at in range(42)],
    }  # fmt: skip
    file = tmp_path / "doubtful.csv"
    pd.DataFrame(columns).to_csv(file, index=False)
    spec: Any = entry("tabular_csv", path=str(file), label="y", test_fraction=0)
    told = dict(read_tabular_csv(spec, Source(file, tmp_path)).understood)
    number, _, names = told["look at"].partition(" columns: ")
    fine = [name for name in columns if name[:3] == "no " or name == "y"]
    assert names.split(", ") == [name for name in columns if name not in fine]
    assert int(number) == len(columns) - len(fine)
    assert '`missing: ["N.A."]`' in told["column told"] and numbers_in(told["column told"]) == [2]
    assert "`drop`" in told["column some"]
    assert numbers_in(told["column some"])[:3] == [1, 41, 21]  # from, to and how many are missing
    assert told["row 3"].startswith(f"{shuffled[2]}, ")


def test_words_for_missing_values_are_as_empty_cells(tmp_path: Path) -> None:
    rows = [f"{at % 7},{'ab'[at % 2]},{at % 2}" for at in range(20)]

    def with_cells(number: str, word: str) -> list[str]:
        return [*rows, f"{number},a,0", f"3,{word},1"]

    empty = prepared(tmp_path, "x,z,y", with_cells("", ""), test_fraction=0)
    other = prepared(
        tmp_path, "x,z,y", with_cells("?", " n.a."), test_fraction=0, missing=["?", "n.a."]
    )
    assert empty.meta["content_sha256"] == other.meta["content_sha256"]
    assert empty.meta["missing_sha256"] == other.meta["missing_sha256"]
    with refused(names=("'?'", "21", "missing")):
        prepared(tmp_path, "x,z,y", with_cells("?", "a"))
    for value in ('"1,5"', '"1,004"', '"1,004.91"', '"1,234,567.5"'):
        with refused(key="x", names="comma"):
            prepared(
                tmp_path,
                "x,z,y",
                [
                    value + row.partition(",")[1] + row.partition(",")[2]
                    for row in with_cells("1", "2")
                ],
            )
    with refused("value", key="label", value="y"):
        prepared(tmp_path, "x,z,y", rows, missing=["1"])
    assert "missing" not in meaning_of(entry("tabular_csv", path="x", label="y", missing=[]))


PACK = [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]


@pytest.mark.parametrize(("suffix", "pack"), PACK)
def test_a_compressed_table_is_as_the_plain_one(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """Also where the last column has an empty cell, and where a row is too short."""
    text = "x,y,z\n1,0,2\n2,1,\n3,0,4\n4,1,6\n"
    path = tmp_path / f"table.csv{suffix}"
    path.write_bytes(pack(text.encode()))
    spec = entry("tabular_csv", path=str(path), label="y", test_fraction=0)
    plain = tmp_path / "table.csv"
    plain.write_text(text)
    read, wanted = (read_tabular_csv(spec, Source(file, tmp_path)) for file in (path, plain))
    assert np.array_equal(read.train.x, wanted.train.x)
    path.write_bytes(pack(f"{text}5,0\n".encode()))
    with refused("value", file=path.name, names=("5", "2", "3")):
        read_tabular_csv(spec, Source(path, tmp_path))
    path.write_bytes(pack(text.encode())[:-12])
    with refused("unreadable", file=path.name):
        read_tabular_csv(spec, Source(path, tmp_path))


def test_an_archive_whose_rows_may_be_short_is_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.csv", "x,y,z\n1,0,2\n2,1,\n")
    spec = entry("tabular_csv", path=str(path), label="y", test_fraction=0)
    with refused("unreadable", file=path.name, names="unpack"):
        read_tabular_csv(spec, Source(path, tmp_path))


def test_a_cell_may_be_longer_than_the_csv_module_allows(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, "x,y,z", [f"{'a' * 140_000},0,1", "b,1,", "c,0,3", "d,1,4"])
    assert dataset.input_shape == (5,)
