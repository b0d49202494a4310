"""IMA's data sets: small archives in the official layouts, hostile ones, and its partitions."""

import gzip
import os
import pickle  # noqa: TID251 - the files that are read are pickles
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState
from numpy.typing import NDArray
from PIL import Image

import fedrepro.data
from fedrepro.data.dataset import Dataset, open_dataset
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Dirichlet, Domains, Labels, Natural, Pachinko
from fedrepro.data.prepare import prepare
from fedrepro.data.readers.domains import DIGITS, PACS
from fedrepro.data.readers.pickled_arrays import read_arrays
from support import raw_ima as raw
from support.raw_data import entry, prepared, sha256
from support.raw_fairness import by_macos, zipped
from support.raw_superfed import cifar100, cifar100_rows
from support.refusals import Fault, refused


def transforms() -> Any:
    """torchvision's, which import PyTorch's compiler: not when tests are collected."""
    from torchvision import transforms

    return transforms


def archived(tmp_path: Path, kind: str, members: dict[str, bytes], **keys: Any) -> Dataset:
    """Of a zip with these members, made by macOS, in a folder and with hidden files of images."""
    hidden = {f"{PurePosixPath(name).parent}/._{PurePosixPath(name).name}" for name in members}
    others = by_macos(members) | dict.fromkeys(hidden, b"\0\5")
    (tmp_path / "own.zip").write_bytes(zipped(others | members))
    spec = entry(kind, path=str(tmp_path / "own.zip"), **keys)
    return prepared(tmp_path, spec)


# --- digits in styles -----------------------------------------------------------------------------
BUNDLED = Path(fedrepro.data.__file__).parent / "bundled"


def styles(tmp_path: Path, **changed: bytes) -> Dataset:
    """Of the files in the package, or of changed ones."""
    contents = {
        name: changed.get(name) or gzip.decompress((BUNDLED / f"{file}.csv.gz").read_bytes())
        for name, file in (("mnist", "mnist_5k"), ("optical", "optical_digits"))
    }
    archives = tmp_path / "archives"
    archives.mkdir()
    for name, content in contents.items():
        (archives / f"{name}.csv").write_bytes(content)
    files = {
        name: {"name": f"{name}.csv", "sha256": sha256(content)}
        for name, content in contents.items()
    }
    spec = entry("digit_styles", files=files, test_fraction=0.2)
    prepare("d", spec, archives, downloads=tmp_path / "downloads", root=tmp_path / "data")
    return open_dataset("d", tmp_path / "data")


def test_digits_in_styles(tmp_path: Path) -> None:
    dataset = styles(tmp_path)
    assert dataset.test is not None and dataset.test.group is not None
    assert dataset.train.group is not None
    assert np.bincount(dataset.train.group).tolist() == [1000, 1000, 1000, 1000, 1438]
    assert np.bincount(dataset.test.group).tolist() == [250, 250, 250, 250, 359]
    assert np.bincount(dataset.test.y[dataset.test.group < 4]).tolist() == [100] * 10
    rows = np.loadtxt(BUNDLED / "mnist_5k.csv.gz", delimiter=",", dtype=np.uint8)
    source = {row[:-1].tobytes(): row[-1] for row in rows}

    def undone(image: NDArray[Any], group: int) -> NDArray[Any]:
        if group == 1:
            return 255 - image
        return np.rot90(image, -1) if group == 2 else image

    seen: list[bytes] = []
    noisy = 0
    for split in (dataset.train, dataset.test):
        assert split.group is not None
        for image, label, group in zip(split.x[:, 0], split.y, split.group, strict=True):
            if group < 3:
                seen.append(undone(image, group).tobytes())
                assert source[seen[-1]] == label
            noisy += group == 3
    left = {key: row for key, row in source.items() if key not in set(seen)}
    assert len(set(seen)) == len(seen) == 3750 and len(left) == noisy == 1250
    # Behind the noise, whose mean is 63.5, stand the images that no other domain has.
    behind = np.stack([np.frombuffer(each, np.uint8).astype(float) for each in left])
    shown = np.concatenate([split.x[split.group == 3] for split in (dataset.train, dataset.test)])
    off = (shown.reshape(len(shown), -1) - 63.5).mean(0) - behind.mean(0) / 2
    assert abs(off).max() < 8  # five standard errors of the noise

    optical = np.loadtxt(BUNDLED / "optical_digits.csv.gz", delimiter=",", dtype=np.uint8)
    first = int(np.flatnonzero(dataset.train.group == 4)[0])
    shades = Image.fromarray(np.round(optical[:, :-1].reshape(-1, 8, 8) * 15.9375)[0].astype("u1"))
    enlarged = np.asarray(transforms().Resize(28)(shades))
    assert any(np.array_equal(enlarged, each) for each in dataset.train.x[first : first + 3, 0])


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"optical": b"1,2,3\n"}, {"names": ("optical.csv", "3", "columns", "65")}),
        ({"mnist": b"no number\n"}, {"code": "unreadable", "file": "mnist.csv", "names": "read"}),
        ({"optical": b",".join([b"17"] * 65) + b"\n"}, {"names": ("17", "0", "16")}),
    ],
)
def test_damaged_digits_in_styles(changed: dict[str, bytes], fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        styles(tmp_path, **changed)


# --- Digit-Five -----------------------------------------------------------------------------------
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_digit_five(protocol: int, tmp_path: Path) -> None:
    known = transforms()
    dataset = archived(tmp_path, "digit_five", raw.digit_five(protocol), parts=2)
    assert dataset.test is not None and dataset.input_shape == (3, 28, 28)
    assert dataset.classes == 10 and dataset.meta["groups"] == list(DIGITS)
    per = raw.PER_FILE
    assert dataset.train.group.tolist() == np.repeat(range(5), 2 * per).tolist()
    assert dataset.test.group.tolist() == np.repeat(range(5), per).tolist()
    for number, domain in enumerate(DIGITS):
        for part, split, first in ((0, dataset.train, 2 * number), (2, dataset.test, number)):
            images, labels = raw.digits(domain, part)
            rows = slice(first * per, (first + 1) * per)
            assert split.y[rows].tolist() == labels.reshape(-1).tolist()
            # What IMA's code makes of an image, up to ToTensor.
            if images.ndim == 3:
                change = known.Compose([known.Resize([28, 28]), known.Grayscale(3)])
            else:
                change = known.Resize(28)
            for mine, theirs in zip(split.x[rows], images, strict=True):
                expected = np.asarray(change(Image.fromarray(theirs))).transpose(2, 0, 1)
                assert np.array_equal(mine, expected)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"SVHN/partitions/train_part1.pkl": None},
            {"names": ("SVHN/partitions/train_part1.pkl", "missing")},
        ),
        ({"USPS/test.pkl": b"no pickle"}, {"names": ("test.pkl", "pickled")}),
        (
            {"USPS/test.pkl": pickle.dumps(raw.digits("USPS", 2))[:200]},
            {"names": "test.pkl"},
        ),
        (
            {"USPS/test.pkl": pickle.dumps((np.zeros((2, 4, 4)), np.zeros(2)))},
            {"names": ("images", "bytes")},
        ),
        (
            {"USPS/test.pkl": pickle.dumps((np.zeros((2, 4, 4), np.uint8), np.zeros(3, int)))},
            {"names": ("labels", "many")},
        ),
        (
            {"USPS/test.pkl": pickle.dumps((np.zeros((2, 4, 4, 2), np.uint8), np.zeros(2, int)))},
            {"names": ("coloured", "grey")},
        ),
    ],
)
def test_damaged_digit_five(change: dict[str, bytes | None], fault: Fault, tmp_path: Path) -> None:
    members = raw.digit_five() | {f"digit_dataset/{name}": new for name, new in change.items()}
    with refused(**fault) as raised:
        archived(
            tmp_path, "digit_five", {n: c for n, c in members.items() if c is not None}, parts=2
        )
    assert "\n" not in str(raised.value)


def test_a_missing_domain(tmp_path: Path) -> None:
    members = {name: each for name, each in raw.digit_five().items() if "SynthDigits" not in name}
    with refused("missing", key="SynthDigits", names=("MNIST", "SVHN")):
        archived(tmp_path, "digit_five", members, parts=2)


class Hostile:
    """A pickle of it makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_nothing_is_unpickled(protocol: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    file = tmp_path / "arrays.pkl"
    file.write_bytes(pickle.dumps((np.zeros(3), Hostile(made)), protocol))
    with refused("unreadable", names="pickled"):
        read_arrays(file)
    assert not made.exists()
    pickle.loads(file.read_bytes())  # the test could see it
    assert made.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_of_a_pickle(protocol: int, tmp_path: Path) -> None:
    numbers = np.arange(6.0).reshape(2, 3)
    arrays = [numbers, numbers.T, numbers.astype(">i4"), numbers.astype("u1"), numbers > 2, numbers]
    for several in (tuple(arrays), arrays):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(several, protocol))
        for mine, theirs in zip(read_arrays(tmp_path / "a.pkl"), arrays, strict=True):
            assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)


class Filled:
    """Pickled as an array whose content is something else than bytes."""

    def __init__(self, content: Any, shape: tuple[int, ...]) -> None:
        self.content, self.shape = content, shape

    def __reduce__(self) -> Any:
        make, arguments, _ = np.zeros(1, np.uint8).__reduce__()
        return make, arguments, (1, self.shape, np.dtype(np.uint8), False, self.content)


@pytest.mark.parametrize("content", [2**31, 7, True, None, (1, 2), [0]])
def test_an_array_s_content_is_bytes(content: Any, tmp_path: Path) -> None:
    """A whole number n became n zeros: 2 GB of them from a file of 100 bytes."""
    shape = (int(content),) if isinstance(content, int) else (1,)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps((Filled(content, shape),)))
    with refused("unreadable", file="a.pkl"):
        read_arrays(tmp_path / "a.pkl")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps((Filled(b"ab", (2,)),)))
    assert read_arrays(tmp_path / "a.pkl")[0].tolist() == [97, 98]


@pytest.mark.parametrize(
    "value",
    [
        (np.array([{}, []], dtype=object),),
        (np.array(["text"]),),
        (np.zeros(2, [("a", "i4")]),),
        {"a": np.zeros(2)},
        (np.zeros(2), 3),
        (),
        np.zeros(2),
    ],
    ids=str,
)
def test_other_pickles_are_refused(value: Any, tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value))
    with refused("unreadable", file="a.pkl"):
        read_arrays(tmp_path / "a.pkl")


# --- PACS -----------------------------------------------------------------------------------------
def test_pacs(tmp_path: Path) -> None:
    members = raw.pacs()
    others = {"PACS/photo/dog/Thumbs.db": b"x", "PACS/read.me": b"x"}  # no images
    dataset = archived(tmp_path, "pacs", members | others)
    assert dataset.test is not None and dataset.input_shape == (3, 224, 224)
    assert dataset.meta["class_names"] == ["dog", "elephant"]
    assert dataset.meta["groups"] == ["photo", "art_painting", "cartoon", "sketch"]
    assert np.bincount(dataset.train.group).tolist() == [18] * 4
    assert np.bincount(dataset.test.group).tolist() == [2] * 4
    # As IMA's code: seed 1, one list after another is shuffled, its first tenth is for testing.
    legacy = RandomState(1)  # the stream of np.random.seed(1)
    known = transforms()
    as_torchvision = known.Compose([known.Resize(256), known.CenterCrop(224)])
    for group, domain in enumerate(PACS):
        names = sorted(name for name in members if f"/{domain}/" in name)
        indices = list(range(20))
        legacy.shuffle(indices)
        for split, chosen in ((dataset.test, indices[:2]), (dataset.train, indices[2:])):
            rows = np.flatnonzero(split.group == group)
            assert split.y[rows].tolist() == [int("elephant" in names[at]) for at in chosen]
            at = names[chosen[0]]
            (tmp_path / "one.png").write_bytes(members[at])
            with Image.open(tmp_path / "one.png") as image:
                expected = np.asarray(as_torchvision(image)).transpose(2, 0, 1)
            assert np.array_equal(split.x[rows[0]], expected)


def test_damaged_pacs(tmp_path: Path) -> None:
    with refused("value", key="sketch: classes"):
        archived(tmp_path, "pacs", raw.pacs() | {"PACS/sketch/horse/a.png": b"x"})
    few = {name: each for name, each in raw.pacs().items() if "cartoon" not in name}
    with refused("missing", key="cartoon"):
        archived(tmp_path, "pacs", few)
    with refused("unreadable", names="image"):
        archived(tmp_path, "pacs", raw.pacs() | {"PACS/photo/dog/pic_000.png": b"x"})


# --- partitions -----------------------------------------------------------------------------------
def test_cifar100_with_superclasses(tmp_path: Path) -> None:
    spec, contents = cifar100(None)
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    spec = spec.model_copy(update={"superclasses": True})
    prepare("d", spec, tmp_path, downloads=tmp_path / "downloads", root=tmp_path / "data")
    dataset = open_dataset("d", tmp_path / "data")
    assert dataset.train.group.tolist() == cifar100_rows()[:4, 0].tolist()


def classes_of_five(samples: int = 10_000) -> tuple[Any, Any]:
    """100 classes, of which five make a superclass, as CIFAR-100."""
    labels = np.arange(samples) % 100
    return labels, labels // 5


def test_pachinko() -> None:
    labels, superclasses = classes_of_five()
    spec = Pachinko(scheme="pachinko", clients=50)
    assert spec.name == "pachinko-clients50-coarse0.1-fine10"
    partition = make_partition(labels, superclasses, spec, 3)
    assert [len(own) for own in partition.train] == [200] * 50
    assert len(np.unique(np.concatenate(partition.train))) == 10_000
    again = make_partition(labels, superclasses, spec, 3)
    assert all(np.array_equal(a, b) for a, b in zip(partition.train, again.train, strict=True))
    other = make_partition(labels, superclasses, spec, 4)
    assert not np.array_equal(partition.train[0], other.train[0])


def test_pachinko_has_the_shares_that_its_alphas_give() -> None:
    """Of 60 clients of 400, so that little is used up: the mean sum of squared shares.

    In k shares of a symmetric Dirichlet(alpha) draw that is (alpha + 1) / (k alpha + 1), and a
    little more in what is drawn from them.
    """
    labels, superclasses = classes_of_five(40_000)
    spec = Pachinko(scheme="pachinko", clients=400)
    coarse, fine = [], []
    for own in spec.assign(labels, superclasses, RandomState(1))[:60]:
        shares = np.bincount(superclasses[own], minlength=20) / len(own)
        coarse.append((shares**2).sum())
        largest = labels[own][superclasses[own] == shares.argmax()] % 5
        fine.append(((np.bincount(largest, minlength=5) / len(largest)) ** 2).sum())
    assert np.mean(coarse) == pytest.approx(1.1 / 3, abs=0.08)
    assert np.mean(fine) == pytest.approx(11 / 51, abs=0.06)


def test_domains_are_dealt_out_by_themselves() -> None:
    groups = np.repeat(range(5), 400)
    labels = np.tile(np.arange(10), 200)
    within = Labels(scheme="labels", clients=20, classes_per_client=2)
    spec = Domains(scheme="domains", within=within)
    assert spec.name == "domains-labels-clients20-classes2"
    partition = make_partition(labels, groups, spec, 1)
    assert len(partition.train) == 100
    for client, own in enumerate(partition.train):
        assert set(groups[own]) == {client // 20}
        assert len(set(labels[own])) == 2
    whole = np.concatenate(partition.train)
    assert len(np.unique(whole)) == len(whole)
    held = Domains(scheme="domains", within=within, test_fraction=0.2)
    assert make_partition(labels, groups, held, 1).test is not None


def test_partitions_that_are_refused() -> None:
    labels, _ = classes_of_five(1_000)
    within = Dirichlet(scheme="dirichlet", clients=4, alpha=0.5)
    for spec in (Pachinko(scheme="pachinko", clients=4), Domains(scheme="domains", within=within)):
        with refused(names=("groups", "data")):
            make_partition(labels, None, spec, 1)
    for key, value in (  # each of which would change nothing there
        ("test_fraction", 0.1), ("validation", 0.1), ("server", 0.1), ("seed", 0),
        ("stratified", True),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"`{key}` next to `within`"):
            Domains(scheme="domains", within=within.model_copy(update={key: value}))
    with refused(names="groups"):
        make_partition(
            labels, labels, Domains(scheme="domains", within=Natural(scheme="natural")), 1
        )
