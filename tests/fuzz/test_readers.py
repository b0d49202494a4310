"""Raw files of every kind, damaged: a data set or one line, never a traceback."""

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from pydantic import TypeAdapter

from fedrepro.data import prepare as preparing
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import open_dataset
from fedrepro.data.prepare import prepare
from fedrepro.data.readers.image_sets import BATCHES, VALIDATION
from fedrepro.data.readers.images import decode
from fedrepro.support import files
from fedrepro.support.errors import UserError
from support import raw_fairness, raw_ima, raw_superfed
from support.malformed import Mutation, fuzzed, mutated, mutated_archive, mutations, watched
from support.raw_data import encoded, entry, idx_entry, idx_files, medmnist, sha256

ADAPTER: TypeAdapter[DatasetSpec] = TypeAdapter(DatasetSpec)
SHARE = st.floats(0, 1, exclude_max=True)
TABLE = b"""sex,age,ward,when,split,heart
f,60.5,a,2001-01-01,train,yes
m,,b,2001-01-02,test,no
f,1e3,a,,train,no
m,-5,c,2001-01-03,train,yes
f,7,b,2001-01-04,test,no
"""


@pytest.fixture(autouse=True)
def _unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "flush", lambda path: None)


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    """Imports and pools of threads take address space once."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "x.png").write_bytes(encoded((1, 2, 3)))
        table = pa.table({"a": [1]})
        pq.write_table(table, Path(folder) / "x.parquet")
        pq.read_table(Path(folder) / "x.parquet").to_pandas()
    decode(encoded((1, 2, 3)), "x", 3)


def outcome(spec: DatasetSpec, root: Path, archives: Path | None = None) -> None:
    with watched(root):
        prepare("d", spec, archives, downloads=root / "results/raw", root=root / "results/data")
        opened = open_dataset("d", root / "results/data")
        assert np.isfinite(np.asarray(opened.train.x, np.float64)).all()
    left = [path.name for path in (root / "results").rglob("*.tmp")]
    assert not left


def rebuilt(spec: DatasetSpec, contents: dict[str, bytes]) -> DatasetSpec:
    """The entry with the sizes and hashes of other contents, so that they are read at all."""

    def fix(node: Any) -> Any:
        if isinstance(node, dict) and node.get("name") in contents:
            content = contents[node["name"]]
            kept = {"packed": None, "urls": [], "md5": None, "sha256": sha256(content)}
            return {**node, **kept, "size": max(1, len(content))}
        if isinstance(node, dict):
            return {key: fix(value) for key, value in node.items() if key != "mirrors"}
        return node

    return ADAPTER.validate_python(fix(spec.model_dump(mode="python", by_alias=False)))


def medmnist_of(content: bytes) -> tuple[DatasetSpec, dict[str, bytes]]:
    file = {"name": "x.npz", "sha256": sha256(content)}
    return entry("medmnist", class_names=list("abc"), side=8, file=file), {"x.npz": content}


def digit_styles() -> tuple[DatasetSpec, dict[str, bytes]]:
    """Two small files: 80 digits of 28 x 28 pixels, 20 of 8 x 8."""
    contents = {
        f"{name}.csv": "".join(
            ",".join(["7"] * pixels) + f",{row % 2}\n" for row in range(rows)
        ).encode()
        for name, rows, pixels in (("mnist", 80, 784), ("optical", 20, 64))
    }
    files = {
        name.removesuffix(".csv"): {"name": name, "sha256": sha256(content)}
        for name, content in contents.items()
    }
    return entry("digit_styles", files=files, test_fraction=0.2), contents


VOCABULARY = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"])
HEART = (files.Path(preparing.__file__).parent / "bundled/heart_disease_uci.csv").read_bytes()
FETCHED: dict[str, Callable[[], tuple[DatasetSpec, dict[str, bytes]]]] = {
    "idx": lambda: (idx_entry(idx_files()), idx_files()),
    "cifar100": lambda: raw_superfed.cifar100(None),
    "plays": raw_superfed.plays,
    "berka": lambda: raw_fairness.berka(raw_fairness.berka_tables(), None),
    "celeba": lambda: raw_fairness.celeba(None),
    "speech": lambda: raw_fairness.speech(raw_fairness.clips(), None),
    "isic": lambda: raw_fairness.isic(None),
    "tiny_imagenet": lambda: raw_fairness.tiny_imagenet(None),
    "digit_styles": digit_styles,
    "medmnist": lambda: medmnist_of(medmnist(8)),
}


@pytest.mark.parametrize("kind", FETCHED)
def test_fetched_kinds(kind: str) -> None:
    spec, contents = FETCHED[kind]()

    @fuzzed(12)
    @given(SHARE, SHARE, mutations(), st.booleans())
    def check(which: float, member: float, how: list[Mutation], whole: bool) -> None:
        names = list(contents)
        name = names[int(which * len(names))]
        content = contents[name]
        changed = mutated(content, how) if whole else mutated_archive(content, member, how)
        with TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "archives").mkdir()
            now = {**contents, name: changed}
            for each, inside in now.items():
                (root / "archives" / each).write_bytes(inside)
            outcome(rebuilt(spec, now), root, root / "archives")

    check()


def test_heart_disease() -> None:
    lines = HEART.splitlines(keepends=True)
    short = b"".join([lines[0], *lines[1:9]])
    file = {"name": "heart.csv", "size": len(short), "sha256": sha256(short)}
    hospitals = {"a": 4, "b": 4}
    spec = entry("heart_disease", task="binary", file=file, hospitals=hospitals)

    @fuzzed(20)
    @given(mutations())
    def check(how: list[Mutation]) -> None:
        content = {"heart.csv": mutated(short, how)}
        with TemporaryDirectory() as folder:
            (Path(folder) / "heart.csv").write_bytes(content["heart.csv"])
            outcome(rebuilt(spec, content), Path(folder), Path(folder))

    check()


@fuzzed(60)
@given(mutations(), st.sampled_from([True, False, "per_client"]), st.booleans(), st.booleans())
@example([("token", 0.3, 0, b"0.5")], True, False, False)
def test_tables(how: list[Mutation], standardise: object, group: bool, split: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(mutated(TABLE, how))
        keys = {"group": "ward" if group else None, "split": "split" if split else None}
        spec = entry("tabular_csv", path=str(path), label="heart", standardise=standardise, **keys)
        outcome(spec, Path(folder))


def columns(size: int) -> dict[str, list[Callable[[], pa.Array]]]:
    """What each column of a parquet file of images could be; what it should be comes first."""
    image = encoded((9, 9, 9), 3)
    odd: list[Callable[[], pa.Array]] = [
        lambda: pa.nulls(size),
        lambda: pa.array([0.5] * size),
        lambda: pa.array([[1, 2]] * size),
        lambda: pa.array([{"a": 1}] * size),
        lambda: pa.array(["a"] * size),
        lambda: pa.array([None, *[1] * (size - 1)][:size], pa.int64()),
        lambda: pa.array([-1] * size),
        lambda: pa.array([2**63 - 1] * size),
        lambda: pa.array([True] * size),
        lambda: pa.array([b"\xff"] * size),
        lambda: pa.array([1] * size, pa.timestamp("s")),
        lambda: pa.array([None] * size, pa.binary()),
        lambda: pa.array(["train", None, "test"][:size] + ["x"] * (size - 3)),
    ]
    return {
        "split": [lambda: pa.array((["train", "test"] * size)[:size]), *odd],
        "label": [lambda: pa.array(([0, 1] * size)[:size]), *odd],
        "jpeg": [
            lambda: pa.array([image] * size),
            lambda: pa.array([encoded((0, 0, 0), 2 + at) for at in range(size)], pa.binary()),
            *odd,
        ],
        "who": [lambda: pa.array([1] * size), *odd],
    }


@fuzzed(80)
@given(
    st.sampled_from([0, 1, 4]),
    st.lists(st.integers(0, 14), min_size=4, max_size=4).map(
        lambda at: [0 if n > 13 else n for n in at]
    ),
    st.sets(st.integers(0, 3), max_size=2),
    st.booleans(),
    st.sampled_from([None, 5]),
)
@example(0, [0, 0, 0, 0], set(), False, None)
def test_parquet(
    size: int, kinds: list[int], wrong: set[int], group: bool, side: int | None
) -> None:
    """All combinations of one or two wrong columns."""
    choices = columns(size)
    made = {
        name: choices[name][kinds[at] % len(choices[name]) if at in wrong else 0]()
        for at, name in enumerate(choices)
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "images.parquet"
        pq.write_table(pa.table(made), path)
        keys = {"group": "who" if group else None, "class_names": ["a", "b"], "side": side}
        outcome(entry("jpeg_parquet", path=str(path), **keys), Path(folder))


@fuzzed(20)
@given(mutations())
def test_damaged_parquet(how: list[Mutation]) -> None:
    made = {name: kinds[0]() for name, kinds in columns(4).items()}
    out = io.BytesIO()
    pq.write_table(pa.table(made), out)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "images.parquet"
        path.write_bytes(mutated(out.getvalue(), how))
        spec = entry("jpeg_parquet", path=str(path), class_names=["a", "b"])
        outcome(spec, Path(folder))


@fuzzed(20)
@given(st.booleans(), SHARE, mutations(), st.booleans())
def test_own_arrays(npz: bool, member: float, how: list[Mutation], all_of_it: bool) -> None:
    out = io.BytesIO()
    arrays = {"x": np.ones((8, 2, 2)), "y": np.arange(8) % 2, "client": np.array([*"aabbaabb"])}
    if npz:
        np.savez(out, **arrays)  # type: ignore[arg-type]
    else:
        pq.write_table(pa.table({key: each.tolist() for key, each in arrays.items()}), out)
    change = mutated if all_of_it or not npz else partial(mutated_archive, which=member)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"own.{'npz' if npz else 'parquet'}"
        path.write_bytes(change(out.getvalue(), how=how))
        outcome(entry("arrays", path=str(path)), Path(folder))


@fuzzed(30)
@given(st.sampled_from(["csv", "jsonl"]), mutations(), st.booleans())
def test_own_texts(form: str, how: list[Mutation], generates: bool) -> None:
    rows = [
        (f"a text, number {at} of 6", "good" if at % 2 else "bad", "xy"[at % 2]) for at in range(6)
    ]
    lines = {
        "csv": "\n".join(["t,y,who", *(f'"{text}",{y},{who}' for text, y, who in rows)]),
        "jsonl": "\n".join(json.dumps({"t": text, "y": y, "who": who}) for text, y, who in rows),
    }
    keys = {"task": "next_word"} if generates else {"label": "y"}
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"own.{form}"
        path.write_bytes(mutated(lines[form].encode(), how))
        spec = entry("text", path=str(path), text="t", group="who", length=4, **keys)
        outcome(spec, Path(folder))


def own_files(kind: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Members of an archive, and keys of its entry."""
    if kind == "digit_five":
        return raw_ima.digit_five(), {"parts": 2}
    if kind == "pacs":
        return raw_ima.pacs(), {}
    if kind == "leaf_reddit":
        return raw_fairness.reddit(), {"words": 4}
    made = raw_superfed.femnist() if kind == "leaf_femnist" else raw_superfed.shakespeare()
    keys = {"length": 4} if kind == "leaf_shakespeare" else {}
    return {f"data/{name}": json.dumps(each).encode() for name, each in made.items()}, keys


OWN = {"digit_five": 20, "pacs": 3, "leaf_reddit": 20, "leaf_femnist": 20, "leaf_shakespeare": 20}


@pytest.mark.parametrize(("kind", "few"), OWN.items())
def test_own_archives(kind: str, few: int) -> None:
    members, keys = own_files(kind)
    whole = raw_fairness.zipped(members)

    @fuzzed(few)
    @given(SHARE, mutations(), st.booleans())
    def check(member: float, how: list[Mutation], all_of_it: bool) -> None:
        content = mutated(whole, how) if all_of_it else mutated_archive(whole, member, how)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "own.zip"
            path.write_bytes(content)
            outcome(entry(kind, path=str(path), **keys), Path(folder))

    check()


def imagenet() -> dict[str, bytes]:
    """A sample of each of two classes in every file, 2 x 2 pixels."""
    out = io.BytesIO()
    np.savez(out, data=np.arange(24, dtype=np.uint8).reshape(2, 12), labels=np.array([1, 2]))
    batches = dict.fromkeys((*BATCHES, VALIDATION), out.getvalue())
    return {**batches, "map_clsloc.txt": b"n00000007 1 kit_fox\nn00000003 2 tench\n"}


@fuzzed(20)
@given(SHARE, SHARE, mutations(), st.booleans())
def test_downsampled_imagenet(
    which: float, member: float, how: list[Mutation], all_of_it: bool
) -> None:
    contents = imagenet()
    name = list(contents)[int(which * len(contents))]
    change = mutated if all_of_it else partial(mutated_archive, which=member)
    contents[name] = change(contents[name], how=how)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "imagenet"
        path.mkdir()
        for each, content in contents.items():
            (path / each).write_bytes(content)
        outcome(entry("downsampled_imagenet", path=str(path), side=2), Path(folder))


@fuzzed(20)
@given(st.booleans(), SHARE, mutations(), st.booleans())
def test_synthetic_sets(images: bool, member: float, how: list[Mutation], all_of_it: bool) -> None:
    out = io.BytesIO()
    np.savez(out, x=np.arange(128, dtype=np.uint8).reshape(8, 1, 4, 4), y=np.arange(8) % 2)
    contents = {"images.npz": out.getvalue(), "datasheet.json": b'{"class_names": ["a", "b"]}'}
    if images:
        change = mutated if all_of_it else partial(mutated_archive, which=member)
        contents["images.npz"] = change(contents["images.npz"], how=how)
    else:
        contents["datasheet.json"] = mutated(contents["datasheet.json"], how)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "digits"
        path.mkdir()
        for each, content in contents.items():
            (path / each).write_bytes(content)
        outcome(entry("synthetic", path=str(path), test_fraction=0.5), Path(folder))


def pictures() -> Iterator[bytes]:
    image = Image.effect_noise((9, 7), 40)
    for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        out = io.BytesIO()
        image.save(out, form)
        yield out.getvalue()


PICTURES = list(pictures())


@fuzzed(80)
@given(st.sampled_from(PICTURES), mutations(), st.sampled_from([1, 3]))
def test_pictures(content: bytes, how: list[Mutation], channels: int) -> None:
    with TemporaryDirectory() as folder, watched(Path(folder)):
        array = decode(mutated(content, how), "x", channels, (5, 4))
        assert array.shape == (channels, 4, 5)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (10**6, 100), (10**8, 1), (2, 10**9)])
def test_a_huge_picture(shape: tuple[int, int]) -> None:
    """A short file whose header claims millions of pixels, as PNG and as PPM."""
    import struct
    import zlib

    def chunk(name: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", *shape, 8, 2, 0, 0, 0)
    lines = zlib.compress(b"\0" * 10**6)
    signature = b"\x89PNG\r\n\x1a\n"
    png = signature + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
    for content in (png, b"P6 %d %d 255\n" % shape):
        with TemporaryDirectory() as folder, watched(Path(folder)), pytest.raises(UserError):
            decode(content, "x", 3)
