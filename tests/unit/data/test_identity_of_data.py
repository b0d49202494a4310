"""By what data are known again: entries of the catalogue, files, partitions."""

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from fedrepro.data.catalogue.catalogue import digest_of, meaning_of
from fedrepro.data.catalogue.entries import Packed, RawFile
from fedrepro.data.catalogue.kinds import IdxFiles, JpegParquet, TabularCsv, Text
from fedrepro.data.fetching import own_files
from fedrepro.data.fetching.raw_files import download
from fedrepro.data.partition.partition import Partition
from fedrepro.data.prepare import recipe_of
from fedrepro.support.plugins import content_of
from support.numbers_in_text import numbers_in
from support.raw_data import entry, idx_entry, idx_files

WORDS = {"title", "licence", "citation", "homepage", "surrogate_for", "size"}
OF_SOURCES = {"urls", "mirrors", "packed"}
ENTRIES: list[Any] = [
    entry("tabular_csv", path="x", label="y"),
    entry("text", path="x", label="y", text="t", length=4),
    entry("jpeg_parquet", path="x", class_names=["a", "b"]),
    idx_entry(idx_files(), "http://127.0.0.1/x"),
]


class Another(BaseModel):
    """A value that no key has."""

    another: int = 1


@pytest.mark.filterwarnings("ignore")  # of pydantic, that a value is of no known type
@pytest.mark.parametrize("spec", ENTRIES, ids=lambda spec: spec.kind)
def test_all_but_words_and_sources_makes_other_data(spec: Any) -> None:
    assert isinstance(spec, TabularCsv | Text | JpegParquet) or spec.kind == "idx"
    for key, value in spec:
        default = type(spec).model_fields[key].default
        for other in (Another(), None if value else 7):
            changed = spec.model_copy(update={key: other})
            same = digest_of(changed) == digest_of(spec)
            assert same == (key in WORDS | OF_SOURCES), (key, default)
    assert digest_of(spec, 7) != digest_of(spec) == digest_of(spec, spec.revision)
    assert meaning_of(spec, 1).get("revision") is None


def test_what_was_prepared_before_is_known_again() -> None:
    """By the recipes of every meta.json that there is: another one prepares all data again."""
    recipes = [recipe_of(spec, "0" * 64)[:8] for spec in ENTRIES]
    before = [recipe_of(spec, "0" * 64, 1)[:8] for spec in ENTRIES]  # of their first readers
    assert [now == then for now, then in zip(recipes, before, strict=True)] == [
        spec.revision == 1 for spec in ENTRIES
    ]
    assert recipe_of(ENTRIES[0], "1" * 64)[:8] != recipes[0]
    assert recipes == ["fb5e3dd3", "b6935ce2", "7092b8b8", "fa390a44"]


def test_of_a_file_to_fetch_its_name_and_content_count_and_not_its_sources() -> None:
    spec = idx_entry(idx_files(), "http://127.0.0.1/x")
    assert isinstance(spec.files, IdxFiles)  # type: ignore[union-attr]
    for role, file in spec.files:  # type: ignore[union-attr]
        assert isinstance(file, RawFile) and isinstance(file.packed, Packed)
        for key in RawFile.model_fields:
            other = file.model_copy(
                update={key: ("http://127.0.0.1/y",) if key == "urls" else None}
            )
            files = spec.files.model_copy(update={role: other})  # type: ignore[union-attr]
            same = digest_of(spec.model_copy(update={"files": files})) == digest_of(spec)
            assert same == (key in OF_SOURCES or getattr(file, key) is None), key


def test_a_folder_is_its_files_names_and_contents(tmp_path: Path) -> None:
    def folder(name: str, files: dict[str, str]) -> str:
        for inside, content in files.items():
            path = tmp_path / name / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return own_files.digest_of(tmp_path / name)

    files = {"a/x.csv": "1", "b.csv": "2"}
    first = folder("one", files)
    assert folder("two", dict(reversed(files.items()))) == first
    others = [
        {"a/x.csv": "2", "b.csv": "1"}, {"a/y.csv": "1", "b.csv": "2"},
        {"x.csv": "1", "b.csv": "2"}, {"a0/x.csv": "1", "b.csv": "2"},
        {**files, "c.csv": ""}, {"b.csv": "2"},
    ]  # fmt: skip
    found = {first, *(folder(str(number), each) for number, each in enumerate(others))}
    assert len(found) == 1 + len(others)
    (tmp_path / "one/empty").mkdir()
    assert own_files.digest_of(tmp_path / "one") == first
    alone = hashlib.sha256(b"2").hexdigest()
    assert own_files.digest_of(tmp_path / "one/b.csv") == alone


def test_names_that_are_no_utf_8_count_by_their_bytes(tmp_path: Path) -> None:
    digests = set()
    for name in (b"gr\xf6n.txt", b"gr\xfcn.txt"):  # Latin-1, as old archives have them
        folder = tmp_path / str(len(digests))
        folder.mkdir()
        (folder / os.fsdecode(name)).write_text("a")
        digests.add(own_files.digest_of(folder))
    assert len(digests) == 2


def test_a_folder_s_tokenizer_and_a_function_s_helpers_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a folder is called as a tokenizer that needs none
    (tmp_path / "words").mkdir()
    (tmp_path / "words/vocab.txt").write_text("a", encoding="utf-8")
    keys = {"path": "x", "label": "y", "text": "t", "length": 4}
    own: Any = entry("text", tokenizer=str(tmp_path / "words"), **keys)
    digests = [own_files.with_code(own, "0" * 64)]
    (tmp_path / "words/vocab.txt").write_text("b", encoding="utf-8")
    digests.append(own_files.with_code(own, "0" * 64))
    digests.append(own_files.with_code(own, "1" * 64))
    assert len({*digests}) == 3
    for tokenizer in ("words", "characters", "bert-base-uncased"):
        plain: Any = entry("text", tokenizer=tokenizer, **keys)
        assert own_files.with_code(plain, "0" * 64) == "0" * 64
    made: Any = entry("plugin", function="waves")
    assert own_files.with_code(made, "0" * 64) == "0" * 64  # before its file is found
    found = set()
    for folder, helper in (("one", "x = 1"), ("two", "x = 2"), ("three", "x = 1")):
        (tmp_path / folder).mkdir()
        for name, code in (("waves", "import helper"), ("helper", helper)):
            (tmp_path / folder / f"{name}.py").write_text(f"{code}\n", encoding="utf-8")
        made._file = tmp_path / folder / "waves.py"
        found.add(own_files.with_code(made, "0" * 64))
    assert len(found) == 2


def test_code_beside_remembered_files_counts_whenever_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read once; a tokenizer or a plug-in's helper may change after that."""
    monkeypatch.chdir(tmp_path)
    for path in ("words/vocab.txt", "plugins/waves.py", "plugins/inner/helper.py", "x.csv"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("a", encoding="utf-8")
    text: Any = entry(
        "text", path="x.csv", label="y", text="t", length=4, tokenizer=str(tmp_path / "words")
    )
    made: Any = entry("plugin", function="waves", path="x.csv")
    made._file = tmp_path / "plugins/waves.py"
    for spec, other in ((text, "words/vocab.txt"), (made, "plugins/inner/helper.py")):
        asked = [own_files.sha256_of_own(spec, None) for _ in range(2)]
        raw = [download("d", spec, root=tmp_path / "raw").sha256]
        Path(other).write_text("b", encoding="utf-8")
        content_of.cache_clear()  # as in another process: each runs the code that it has read
        asked.append(own_files.sha256_of_own(spec, None))
        raw.append(download("d", spec, root=tmp_path / "raw").sha256)
        assert asked[0] == asked[1] == raw[0] != asked[2] == raw[1]


def test_a_file_that_moves_within_a_folder_is_another_even_with_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("images/a/1", "images/b/2"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text("same", encoding="utf-8")
    spec: Any = entry("image_folder", path="images", height=2, width=2)
    first = own_files.sha256_of_own(spec, None)
    Path("images/b").rename("images/c")  # the file itself is not touched, nor is their order
    assert own_files.sha256_of_own(spec, None) != first


def test_files_of_a_folder_are_in_the_order_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order in which a file system lists them."""
    for name in ("b/x", "a", "b.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    wanted = own_files.digest_of(tmp_path)
    listed = [*tmp_path.rglob("*")]
    for order in itertools.permutations(listed):
        monkeypatch.setattr(Path, "rglob", lambda path, _, order=order: iter(order))
        assert own_files.digest_of(tmp_path) == wanted


def test_bytes_are_read_again_when_size_or_time_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text("1", encoding="utf-8")
    Path("other.csv").write_text("1", encoding="utf-8")
    spec: Any = entry("tabular_csv", path="own.csv", label="y")
    other: Any = entry("tabular_csv", path="other.csv", label="y")
    asked: list[Path] = []
    plain = own_files.digest_of
    monkeypatch.setattr(own_files, "digest_of", lambda path: asked.append(path) or plain(path))
    first = own_files.sha256_of_own(spec, None)
    assert first == own_files.sha256_of_own(spec, None) == own_files.sha256_of_own(other, None)
    assert [path.name for path in asked] == ["own.csv", "other.csv"]
    os.utime("own.csv", (1, 1))
    assert own_files.sha256_of_own(spec, None) == first and len(asked) == 3
    Path("own.csv").write_text("2", encoding="utf-8")
    assert own_files.sha256_of_own(spec, None) not in (first, None)
    assert own_files.sha256_of_own(other, None) == first and len(asked) == 4  # as remembered
    Path("own.csv").unlink()
    assert own_files.sha256_of_own(spec, None) is None
    # The first place that exists: the entry's own, then the folder of archives, by its last name.
    archives = tmp_path / "archives"
    archives.mkdir()
    for name in ("own.csv", "other.csv"):
        (archives / name).write_text("1", encoding="utf-8")
    assert own_files.sha256_of_own(spec, archives) == first
    assert own_files.find_own("a/own.csv", archives) == archives / "own.csv"
    assert own_files.find_own("other.csv", archives) == Path("other.csv")


def partition(**changes: Any) -> Partition:
    rows = {
        "train": [np.array([0, 1, 1]), np.array([4]), np.array([5, 6])],
        "test": [np.array([2, 1]), np.array([3]), np.array([7])],
        "validation": [np.array([8]), np.array([9]), np.array([5])],
        **changes,
    }
    labels = np.array([0, 1, 2, 0, 1, 0, 0, 1, 2, 2])
    counts = {
        f"{name}_counts": np.array([np.bincount(labels[each], minlength=4) for each in own])
        for name, own in rows.items()
        if own is not None
    }
    return Partition(**{"spec": {}, "name": "x", "seed": 1, **rows, **counts})  # type: ignore[arg-type]


def test_who_holds_a_sample_twice_and_who_tests_on_what_it_trains_on() -> None:
    """Samples 1 and 5 have two places or three; client 0 trains on one twice and tests on it."""
    # samples, places, who holds one twice of how many, who tests on one; classes without training
    assert numbers_in(partition().warning()) == [10, 13, 2, 3, 1, 2, 4, 2, 3]
    assert partition().samples == 10
    alone = partition(validation=None)
    assert numbers_in(alone.warning())[:4] == [8, 10, 1, 3]
    apart = {"train": [np.array([0]), np.array([1])], "test": [np.array([2]), np.array([3])]}
    assert "assigned" not in str(partition(**apart, validation=None).warning())
    with_server = partition(**apart, validation=None)
    object.__setattr__(with_server, "server", np.array([3, 9]))
    assert with_server.samples == 5  # one of which a client has, too


def test_a_partition_fits_the_labels_it_was_made_of() -> None:
    labels = np.array([0, 1, 2, 0, 1, 0, 0, 1, 2, 2])
    made = partition()
    assert made.fits(labels) and made.fits(np.append(labels, 3))
    assert not made.fits(labels[:9])  # a row that is not there
    for row in range(10):  # of each part
        other = labels.copy()
        other[row] = (labels[row] + 1) % 3
        assert not made.fits(other), row
