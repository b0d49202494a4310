"""AAggFF's data sets: small archives in the official layouts, served on loopback, and damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from fedrepro.data.catalogue.catalogue import load_catalogue
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import PartitionSpec
from fedrepro.data.tensors.standardise import standardised
from fedrepro.support.errors import UserError
from support import raw_fairness as raw
from support.loopback import serving
from support.places import ROOT
from support.raw_data import archived, entry, prepared
from support.refusals import Fault, refused

SPEC: TypeAdapter[PartitionSpec] = TypeAdapter(PartitionSpec)
NATURAL = {"scheme": "natural", "test_fraction": 0.2, "stratified": True}


def served(tmp_path: Path, make: Callable[[str], tuple[DatasetSpec, dict[str, bytes]]]) -> Dataset:
    """The data set whose files a server on this machine has, of which no size is known."""
    with serving({}) as server:
        spec, contents = make(server.address)
        server.contents |= {f"/{name}": content for name, content in contents.items()}
        return prepared(tmp_path, spec)


def heart(tmp_path: Path, name: str = "heart") -> Dataset:
    return prepared(tmp_path, load_catalogue(ROOT / "config/datasets.yaml").datasets[name])


def test_heart_has_920_patients_and_15_features(tmp_path: Path) -> None:
    """Facts item 44, and the golden hash of the prepared arrays."""
    dataset = heart(tmp_path)
    assert dataset.meta["content_sha256"] == (
        "ace24fefc95df798aa11f0b7b4f0188a4ef336ce4b83804b00f1790ec36a3eb1"
    )
    assert (dataset.task, dataset.input_shape, dataset.test) == ("binary", (15,), None)
    assert np.bincount(dataset.train.group).tolist() == [303, 294, 123, 200]
    sick = [int(dataset.train.y[dataset.train.group == site].sum()) for site in range(4)]
    assert sick == [139, 106, 115, 149]
    assert dataset.client_standardised == tuple(range(15))
    features = dataset.meta["features"]
    assert features[-7:] == [
        *(f"cp={c}" for c in (1, 2, 3, 4)),
        *(f"restecg={c}" for c in range(3)),
    ]
    first = dict(zip(features, dataset.train.x[303].tolist(), strict=True))
    # The row that the table calls Cleveland's; its hospital is Hungarian.
    assert dataset.train.group[303] == 1
    assert (first["age"], first["cp=2"], first["restecg=2"], first["oldpeak"]) == (28, 1, 1, 0)
    assert np.isin(dataset.train.x[:, features.index("exang")], (0, 1)).all()


def test_each_hospital_is_standardised_on_its_training_part(tmp_path: Path) -> None:
    dataset = heart(tmp_path)
    train = dataset.train
    partition = make_partition(train.y, train.group, SPEC.validate_python(NATURAL), 2)
    assert partition.test is not None
    assert [len(each) for each in partition.train] == [242, 235, 98, 160]
    assert [len(each) for each in partition.test] == [61, 59, 25, 40]
    x = standardised(dataset, partition).train.x
    for mine in partition.train:
        assert np.allclose(x[mine].mean(axis=0), 0, atol=1e-5)
        deviations = x[mine].std(axis=0)
        assert (np.isclose(deviations, 1, atol=1e-4) | (deviations == 0)).all()
    assert abs(float(x[partition.test[0]].mean())) > 1e-3  # not by their own numbers
    other = make_partition(train.y, train.group, SPEC.validate_python(NATURAL), 4)
    assert not np.array_equal(x, standardised(dataset, other).train.x)


def test_flambys_reading_can_not_be_stratified(tmp_path: Path) -> None:
    train = heart(tmp_path, "heart_740").train
    assert np.bincount(train.group).tolist() == [303, 261, 46, 130]
    with refused(names=("2", "0")):
        make_partition(train.y, train.group, SPEC.validate_python(NATURAL), 2)
    loose = SPEC.validate_python({**NATURAL, "stratified": False})
    assert make_partition(train.y, train.group, loose, 2).test is not None


def test_natural_clients_are_split_as_by_scikit_learn() -> None:
    from sklearn.model_selection import train_test_split  # slow to import

    random = np.random.RandomState(0)
    for seed in range(30):
        groups = np.repeat([0, 1], random.randint(10, 200, 2))
        labels = random.randint(0, 3, len(groups))
        for group in (0, 1):
            labels[np.flatnonzero(groups == group)[:6]] = [0, 0, 1, 1, 2, 2]
        made = make_partition(labels, groups, SPEC.validate_python(NATURAL), seed)
        assert made.test is not None
        for group in (0, 1):
            mine = np.flatnonzero(groups == group)
            _, test = train_test_split(
                mine, test_size=0.2, random_state=seed, stratify=labels[mine]
            )
            assert made.test[group].tolist() == sorted(test.tolist())


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("asymptomatic", "asymptotic", {"key": "cp", "value": "asymptotic", "names": "UCI"}),
        ("restecg", "rested", {"key": "column", "value": "restecg", "names": "'rested'"}),
        ("2,67,Male", "2,old,Male", {"key": "age", "value": "old"}),
        ("reversable defect,1\n", "reversable defect,\n", {"names": ("num", "value")}),
    ],
)
def test_a_damaged_table_of_patients(old: str, new: str, fault: Fault, tmp_path: Path) -> None:
    text = (ROOT / "src/fedrepro/data/bundled/heart_disease_uci.csv").read_text()
    lines = text.splitlines(keepends=True)[:5]
    content = "".join(lines).replace(old, new).encode()
    spec = entry(
        "heart_disease",
        task="binary",
        file=raw.raw_file("h.csv", content, None),
        hospitals={"a": 2, "b": 2},
    )
    with refused(**fault):
        archived(tmp_path, (spec, {"h.csv": content}))


def test_berka(tmp_path: Path) -> None:
    dataset = served(tmp_path, lambda address: raw.berka(raw.berka_tables(), address))
    train = dataset.train
    assert dataset.input_shape == (15,)
    assert dataset.client_standardised == tuple(range(13))
    assert dataset.meta["groups"] == ["Prague", "south Moravia"]
    assert np.bincount(train.group).tolist() == [8, 8]
    named = dict(zip(dataset.meta["features"], train.x[0].tolist(), strict=True))
    assert train.y[0] == 1  # account 1, status B
    assert named == {
        "amount": 1000, "duration": 12, "payments": 101.5, "days_between": 365,
        "inhabitants": 2000, "average_salary": 8000, "entrepreneurs": 100, "unemployment": 2.5,
        "crimes": 30, "order_amount": 20, "transactions": 2, "trans_amount": 150,
        "trans_balance": 1001, "weekly": 1, "after_transaction": 0,
    }  # fmt: skip
    assert dataset.meta["content_sha256"] == GOLDEN["berka"]


def test_a_region_that_is_left_out_is_one_of_the_data(tmp_path: Path) -> None:
    spec, contents = raw.berka(raw.berka_tables(), None)
    for left_out, clients in (((), raw.REGIONS), (("Prague",), (raw.REGIONS[0], raw.REGIONS[2]))):
        changed = spec.model_copy(update={"leave_out": left_out})
        made = archived(tmp_path, (changed, contents))
        assert made.group_names == sorted(clients)
        assert made.train.group is not None
        assert np.bincount(made.train.group).tolist() == [8] * len(clients)
    with refused(key="leave_out", value="Moravia", names="'south Moravia'"):
        wrong = spec.model_copy(update={"leave_out": ("Prague", "Moravia")})
        archived(tmp_path, (wrong, contents))


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("trans.asc", None, None, {"code": "missing", "key": "trans.asc"}),
        (
            "loan.asc",
            b'"status"',
            b'"state"',
            {"key": "column", "value": "status", "names": "loan.asc"},
        ),
        ("loan.asc", b'"D"', b'"E"', {"key": "status", "value": "E"}),
        ("loan.asc", b";940103;", b";941303;", {"key": "date", "value": 941303, "names": "YYMMDD"}),
        (
            "account.asc",
            b"TYDNE",
            b"ROK",
            {"key": "frequency", "value": "POPLATEK ROK", "names": ("POPLATEK", "ROK")},
        ),
        ("trans.asc", b";24;940101", b";1;940101", {"code": "damaged", "names": "account"}),
        ("trans.asc", b";100.0;", b";-1e300;", {"key": "train", "names": "float32"}),
    ],
)
def test_damaged_tables_of_a_bank(
    name: str, old: bytes | None, new: bytes | None, fault: Fault, tmp_path: Path
) -> None:
    tables = raw.berka_tables()
    if old is None or new is None:
        del tables[name]
    else:
        tables[name] = tables[name].replace(old, new)
    with refused(**fault) as raised:
        archived(tmp_path, raw.berka(tables, None))
    assert "\n" not in str(raised.value)


def test_celeba(tmp_path: Path) -> None:
    dataset = served(tmp_path, raw.celeba)
    assert dataset.input_shape == (3, 6, 6)
    # Celebrity 7, with images 2, 3 and 5, comes before 10; 8 has too few.
    assert dataset.train.group.tolist() == [1, 0, 0, 0, 1]
    assert dataset.train.y.tolist() == [1, 0, 1, 1, 0]
    assert dataset.meta["class_names"] == ["not Smiling", "Smiling"]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ({"identity_CelebA__txt": b"000001.jpg 9\n000002.jpg\n"}, {"names": ("2", "1", "words")}),
        (
            {"list_attr_celeba__txt": b"1\nYoung Simling\n"},
            {"key": "attribute", "value": "Smiling", "names": "'Simling'"},
        ),
        ({"list_attr_celeba__txt": b"1\nYoung Smiling\n000001.jpg 1 0\n"}, {"names": ("1", "-1")}),
        ({"img_align_celeba__zip": raw.zipped({"a.jpg": b""})}, {"names": ("000001", "missing")}),
        ({"img_align_celeba__zip": b"PK\3\4"}, {"names": "truncated"}),
    ],
)
def test_damaged_celeba(damage: dict[str, bytes], fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        archived(tmp_path, raw.celeba(None, **damage))


def test_speech_commands(tmp_path: Path) -> None:
    dataset = served(tmp_path, lambda address: raw.speech(raw.clips(), address))
    assert dataset.train.x.dtype == np.int16
    assert dataset.input_shape == (1, 20)
    assert dataset.train.y.tolist() == [0, 0, 1, 2]
    assert dataset.meta["groups"] == ["aa", "bb"]
    assert dataset.train.group.tolist() == [0, 1, 0, 0]
    assert dataset.train.x[1, 0].tolist() == [4] * 10 + [0] * 10
    assert dataset.train.x[2, 0].tolist() == [2] * 20
    assert dataset.meta["content_sha256"] == GOLDEN["speech"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"testing_list.txt": None}, {"names": ("testing_list.txt", "missing")}),
        (
            {"go/aa_nohash_1.wav": b"RIFF"},
            {"code": "unreadable", "file": "aa_nohash_1.wav", "names": "sound"},
        ),
        ({"go/aa_nohash_1.wav": raw.wav(20, 1)[:-6]}, {"names": ("16", "sound")}),
        ({"go/aa_nohash_1.wav": raw.wav(20, 1, 8000)}, {"names": ("16", "sound")}),
        ({"gone/aa_nohash_1.wav": raw.wav(20, 1)}, {"key": "word", "value": "gone"}),
    ],
)
def test_damaged_speech(changes: dict[str, Any], fault: Fault, tmp_path: Path) -> None:
    members = {name: each for name, each in (raw.clips() | changes).items() if each is not None}
    with refused(**fault):
        archived(tmp_path, raw.speech(members, None))


def test_isic(tmp_path: Path) -> None:
    dataset = served(tmp_path, raw.isic)
    assert dataset.input_shape == (3, 8, 8)
    assert dataset.train.group.tolist() == [0, 1, 2]
    assert dataset.train.y.tolist() == [1, 0, 1]
    assert np.abs(dataset.train.x[2, 1].astype(int) - 200).max() < 8


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ({"ISIC_2019_Training_GroundTruth__csv": b"image,MEL\n"}, {"key": "column", "value": "NV"}),
        (
            {"HAM10000_metadata": b"image_id,dataset\nISIC_2,_x\n"},
            {"key": "centre", "value": "HAM__x"},
        ),
        (
            {"ISIC_2019_Training_Input__zip": raw.zipped({"x": b""})},
            {"code": "missing", "key": "ISIC_1.jpg"},
        ),
    ],
)
def test_damaged_isic(damage: dict[str, bytes], fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        archived(tmp_path, raw.isic(None, **damage))


def test_tiny_imagenet(tmp_path: Path) -> None:
    dataset = served(tmp_path, raw.tiny_imagenet)
    assert dataset.meta["class_names"] == ["n01", "n02"]
    assert dataset.train.y.tolist() == [0, 0, 1, 1]
    assert dataset.test is not None
    assert dataset.test.y.tolist() == [1]
    for damage, fault in (
        (
            {"val/val_annotations__txt": b"val_0.JPEG\tn03\n"},
            Fault(key="val_annotations.txt", value="n03"),
        ),
        (
            {"val/val_annotations__txt": b"val_1.JPEG\tn01\n"},
            Fault(code="missing", key="val_1.JPEG"),
        ),
        (
            {"train/n01/images/n01_0__JPEG": b"none"},
            Fault(code="unreadable", file="n01_0.JPEG"),
        ),
    ):
        with refused(**fault):
            archived(tmp_path, raw.tiny_imagenet(None, **damage))


def leaf(tmp_path: Path, members: dict[str, bytes]) -> DatasetSpec:
    (tmp_path / "reddit.zip").write_bytes(raw.zipped(members))
    path = str(tmp_path / "reddit.zip")
    return entry("leaf_reddit", task="next_word", path=path, words=7)


def test_reddit(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, leaf(tmp_path, raw.reddit()))
    # Four marks, then a (three times in the training text), b (twice), c.
    assert dataset.meta["class_names"] == ["<PAD>", "<UNK>", "<BOS>", "<EOS>", "a", "b", "c"]
    assert dataset.meta["vocabulary"] == 7  # chosen by all users: dp refuses it
    train = dataset.train
    assert train.x.dtype == np.int32
    assert train.x.tolist() == [[2, 4, 5], [2, 4, 6], [2, 5, 4], [2, 4, 1], [2, 5, 5]]
    assert train.y.tolist() == [[4, 5, 4], [4, 6, 3], [5, 4, 0], [4, 1, 3], [5, 5, 5]]
    assert train.group.tolist() == [1, 1, 0, 1, 0]
    given = SPEC.validate_python({"scheme": "natural", "given_test": True})
    partition = make_partition(train.y, train.group, given, 1, train.held_out)
    assert partition.test is not None
    assert [each.tolist() for each in partition.train] == [[2], [0, 1]]
    assert [each.tolist() for each in partition.test] == [[4], [3]]
    with refused("value", key="given_test", value=True):
        make_partition(train.y, train.group, given, 1)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"reddit_subsampled/train/train_data.json": b"{"}, {"names": ("LEAF", "format")}),
        (
            {"reddit_subsampled/train/train_data.json": b'{"user_data": {}}'},
            {"names": ("train", "samples")},
        ),
        (
            {"reddit_subsampled/train/more.json": b'{"user_data": {"u": {"x": []}}}'},
            {"names": "LEAF"},
        ),
    ],
)
def test_damaged_reddit(changes: dict[str, bytes], fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        prepared(tmp_path, leaf(tmp_path, raw.reddit(**changes)))


PAIRS = '1,"Is it, bad?",Is it so?,1\n1,Is it bad?,No!,0\n2,It is so,It is so bad,1\n'
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *("is", "it", "so", "ba", "##d", "no", ",", "!", "?"),
]


def test_question_pairs(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    dataset = archived(tmp_path, raw.question_pairs(PAIRS, str(tmp_path)))
    assert dataset.input_shape == (2, 12)
    assert dataset.train.x[1].tolist() == [
        [2, 5, 6, 8, 9, 13, 3, 10, 12, 3, 0, 0],
        [1] * 10 + [0, 0],
    ]
    assert dataset.train.y.tolist() == [1, 0, 1]
    assert dataset.train.group.tolist() == [0, 0, 1]


def test_question_pairs_without_a_tokenizer(tmp_path: Path) -> None:
    with refused("missing", file="vocab.txt", names="distilbert-base-uncased"):
        archived(tmp_path, raw.question_pairs(PAIRS, str(tmp_path / "none")))
    with refused(names=("0", "1")):
        archived(tmp_path, raw.question_pairs(PAIRS.replace(",0\n", ",2\n"), str(tmp_path)))


def test_a_wrong_md5_and_a_server_without_the_file(tmp_path: Path) -> None:
    with serving({}) as server:
        spec, contents = raw.tiny_imagenet(server.address)
        with pytest.raises(UserError, match="status 404"):
            prepared(tmp_path, spec)
        server.contents["/tiny-imagenet-200.zip"] = contents["tiny-imagenet-200.zip"][:-1]
        with pytest.raises(UserError, match="wrong checksum: md5"):
            prepared(tmp_path, spec)
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives/tiny-imagenet-200.zip").write_bytes(b"other")
    with pytest.raises(UserError, match="wrong checksum: md5"):
        prepared(tmp_path, spec, tmp_path / "archives")


def test_clients_with_proportions_of_their_own() -> None:
    labels = np.repeat(np.arange(20), 50)
    few = SPEC.validate_python({"scheme": "client_dirichlet", "clients": 50, "alpha": 0.01})
    made = make_partition(labels, None, few, 1)
    assert (made.train_counts.sum(axis=1) == 20).all()
    assert np.median((made.train_counts > 0).sum(axis=1)) <= 2
    everyone = np.concatenate(made.train)
    assert len(np.unique(everyone)) == len(everyone) == 1000
    many = SPEC.validate_python({"scheme": "client_dirichlet", "clients": 50, "alpha": 1e6})
    assert np.median((make_partition(labels, None, many, 1).train_counts > 0).sum(axis=1)) > 10


def test_groups_with_few_samples_are_no_clients() -> None:
    groups = np.repeat([3, 5, 9], [2, 3, 7])
    few = SPEC.validate_python({"scheme": "natural", "minimum": 3})
    assert few.name == "natural-minimum3"
    made = make_partition(np.zeros(12, int), groups, few, 1)
    assert [len(each) for each in made.train] == [3, 7]
    none = SPEC.validate_python({"scheme": "natural", "minimum": 8})
    with refused(key="minimum", value=8, names="7"):
        make_partition(np.zeros(12, int), groups, none, 1)


# Of the prepared arrays; JPEG is decoded differently by other builds of Pillow, so not of images.
GOLDEN = {
    "berka": "1f330b545046668fa2fb9b1c88cb7cacbf7b2dba7a7686314127003d3cdc022e",
    "speech": "8b3634c2cfa840671c63c7327388f8c11edd8edfa5ae5d5c5cdf34d6f4ffeec5",
}
