"""The commands about data, on what the repository carries."""

import gzip
import json
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.data.dataset import open_dataset
from fedrepro.data.partition.partition import Partition
from support.places import ROOT
from support.raw_data import encoded


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the repository's config."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


REUSING = """\
system: mine
title: Samples held twice
paper: none
settings:
  again:
    dataset: mnist5k
    partition: { scheme: reusing_dirichlet, clients: 9, alpha: 1.0 }
    model: logistic
    rounds: 1
    participation: 1.0
    epochs: 1
    batch_size: 32
    optimizer: { lr: 0.1 }
"""


def test_a_broken_experiment_stops_no_command_that_needs_none(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bench / "config/experiments/mine.yaml").write_text("system: mine\nmodl: x\n")
    (bench / "own.csv").write_text("a,b\n1,x\n2,y\n3,x\n")
    for words in (
        "methods fedprox", "models logistic", "datasets", "download mnist5k", "prepare mnist5k",
        "check-data own.csv", "verify",
    ):  # fmt: skip
        assert main(words.split()) == 0, words
    end = "fedrepro: runs are not compared with today's configuration: config/experiments/mine.yaml"
    assert end in capsys.readouterr().err
    assert main(["run", "ima/fmnist-shards2-demo", "fedavg", "--seed", "1"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("fedrepro: config/experiments/mine.yaml: ") and line.count("\n") == 1


def test_mnist5k_from_nothing_to_clients(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "mnist5k"]) == 0
    assert (
        "4,000 training and 1,000 test samples, 10 classes, each 1x28x28\n"
        "test samples: 1,000 that belong to no client, test_fraction 0.2 of each class\n"
    ) in capsys.readouterr().out
    dataset = open_dataset("mnist5k")
    assert dataset.test is not None
    assert np.bincount(dataset.train.y).tolist() == [400] * 10
    assert np.bincount(dataset.test.y).tolist() == [100] * 10
    # The same images in the same order on every machine.
    assert dataset.meta["content_sha256"].startswith("3158ca64b778cf63")

    setting = next(s for s in load().settings.values() if s.dataset == "mnist5k")
    assert main(["partition", setting.name, "--seed", "3"]) == 0
    folder = bench / "results" / "partitions" / "mnist5k" / setting.partition.name
    partition = Partition.load(folder / "seed3.npz")
    histogram = json.loads((folder / "seed3.json").read_text())
    assert len(partition.train) == histogram["clients"] == setting.partition.clients
    assert np.array_equal(partition.train_counts, histogram["train"])

    said = capsys.readouterr()
    assert re.search(r"test samples: \d+ to \d+ of each client, test_fraction 0.2\n", said.out)
    assert "warning" not in said.err
    (bench / "config/experiments/mine.yaml").write_text(REUSING)
    assert main(["partition", "mine/again", "--seed", "3"]) == 0
    said = capsys.readouterr()
    assert "test samples: 1,000 that belong to no client, test_fraction 0.2" in said.out
    assert "warning: partition reusing_dirichlet-clients9-alpha1" in said.err
    assert main(["datasets", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mnist5k"]["state"] == "prepared"
    assert rows["mnist5k"]["train"] == 4000
    assert rows["cifar10"]["state"] == "absent"
    assert main(["datasets"]) == 0
    assert "fmnist" in capsys.readouterr().out


def test_download_says_what_came_from_where(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["download", "mnist5k"]) == 0
    assert "mnist_5k.csv  sha256 " in (out := capsys.readouterr().out)
    assert "from python package fedrepro" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["prepare", "fmnits"], "'fmnits': expected one of berka, .*; did you mean 'fmnist'"),
        (["download", "nonsense"], "'nonsense': expected one of"),
        (["partition", "ima/fmnist-shard2"], "'ima/fmnist-shard2': expected .*did you mean"),
        (
            ["partition", "ima/fmnist-shards2", "--seed", "-1"],
            "--seed: -1:",
        ),
        (["partition", "ima/fmnist-shards2"], "has not been prepared: run `fedrepro prepare fmni"),
        (["prepare", "femnist"], "no file data/femnist: put the file there"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], line: str, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(line, error), error


def test_data_archives_of_the_config(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = bench / "config" / "config.yaml"
    config.write_text(config.read_text().replace("archives: null", "archives: my/archives"))
    assert main(["download", "mnist"]) == 2
    assert "data.archives: 'my/archives':" in capsys.readouterr().err


OWN = """age,pain,ward,ill
60,none,b,no
50,much,a,yes
,much,a,yes
40,,b,no
"""


@pytest.fixture
def own(bench: Path) -> Path:
    (bench / "data").mkdir()
    (bench / "data/Own data.csv").write_text(OWN, encoding="utf-8")
    return bench


def test_a_table_is_shown_as_it_is_understood(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-data", "data/Own data.csv", "--set", "group=ward"]) == 0
    shown, place, entry = capsys.readouterr().out.partition(
        "\nIts entry, right below the line `datasets:` in config/datasets.yaml:\n\n"
    )
    assert place
    assert shown.splitlines() == [
        "data\tdata/Own data.csv, tabular_csv",
        "column age\tnumbers, 40 to 60; 1 missing, then the mean",
        "column pain\t2 words, a feature for each; 1 missing, then 0: much, none",
        "column ward\tnatural clients",
        "column ill\tlabel",
        "row 1\t60.0, none, b, no",
        "row 2\t50.0, much, a, yes",
        "row 3\t, much, a, yes",
        "features\tage, pain_much, pain_none",
        "shape\t3",
        "training\t4 samples",
        "test\tnone, unless clients hold out their own: `test_fraction` in the partition",
        "classes\t2 with training samples: no (2), yes (2)",
        "clients\t2 natural ones with 2 training samples: a (2), b (2)",
    ]
    assert not (own / "results").exists()

    # The entry that it prints gives the same data set.
    (own / "config/datasets.yaml").write_text(f"datasets:\n{entry}", encoding="utf-8")
    (own / "config/experiments").rename(own / "others")
    (own / "config/experiments").mkdir()
    (own / "config/experiments/mine.yaml").write_text(REUSING.replace("mnist5k", "own_data"))
    for data in ("own_data", "data/Own data.csv"):
        assert main(["check-data", data]) == 0
        assert capsys.readouterr().out == shown
    assert (
        main(["check-data", "own_data", "--set", "group=null", "--set", "test_fraction=0.5"]) == 0
    )
    said = capsys.readouterr().out
    assert "test\t2 that belong to no client, test_fraction 0.5 of each class\n" in said
    assert "clients\tnone: the partition makes them\n" in said


def test_columns_that_are_no_features_are_named(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "row,patient,born,ward,smokes,height,visits,scan,site_of_the_first_examination,note,ill"
    lines = [
        f"{at},p{at % 30},19{40 + at % 50}-0{1 + at % 9}-11,{at % 4},{['yes', '?', 'no'][at % 3]},"
        f"{150 + at * 7 % 20},{at * at % 13},3,{'abcdefghijkl'[at % 12] * 12},"
        f"all is well with number {at % 9},{at % 2}"
        for at in range(40)
    ]
    (own / "data/study.csv").write_text("\n".join([names, *lines, ""]))
    assert main(["check-data", "data/study.csv"]) == 0
    out = capsys.readouterr().out.splitlines()
    said = dict(line.split("\t") for line in out if "\t" in line)
    assert said["column row"] == "an id? `drop` it; numbers, 0 to 39"
    assert said["column patient"].startswith("an id? `drop` it; 30 words")
    assert said["column born"].startswith("dates? `drop` it")
    assert said["column smokes"].startswith('no value? `missing: ["?"]`; 3 words')
    assert said["column note"].startswith("texts? `kind: text`")
    assert said["column scan"] == "constant: `drop` it; numbers, 3 to 3"
    assert said["look at"] == "6 columns: row, patient, born, smokes, scan, note"
    longest = max(len(key) for key in said)
    assert all(longest + 4 + len(text) <= 80 for key, text in said.items() if "column" in key)

    sets = ["--set", "missing=?,3", "--set", "drop=row,patient,born,scan,note"]
    assert main(["check-data", "data/study.csv", *sets]) == 0
    out = capsys.readouterr().out.splitlines()
    said = dict(line.split("\t") for line in out if "\t" in line)
    assert "look at" not in said
    assert said["column smokes"].startswith("2 words, a feature for each; 13")
    assert said["column ward"].startswith("numbers, 0 to 2; 10 missing, then")


def test_a_client_without_training_samples_takes_no_other_s_name(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a", "test", "no"), ("b", "train", "no"), ("c", "test", "yes"), ("d", "train", "yes")]
    lines = [f"{age},{','.join(row)}" for age, row in enumerate([*rows, rows[-1]])]
    (own / "data/wards.csv").write_text("\n".join(["age,ward,part,ill", *lines, ""]))
    keys = ("group=ward", "split=part", "label=ill")
    sets = [word for key in keys for word in ("--set", key)]
    assert main(["check-data", "data/wards.csv", *sets]) == 0
    said = "clients\t2 natural ones with 1 to 2 training samples: b (1), d (2)\n"
    assert said in capsys.readouterr().out


def test_a_file_is_checked_outside_a_workbench(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(own / "data")
    assert main(["check-data", "Own data.csv", "--set", "group=ward"]) == 0
    assert "column ward\tnatural clients\n" in capsys.readouterr().out
    assert main(["check-data", "mnist5k"]) == 2
    assert "'mnist5k': expected a file or folder that exists" in capsys.readouterr().err


def test_without_a_place_for_temporary_files_no_file_of_the_user_is_blamed(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    assert main(["check-data", "data/Own data.csv"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "temporary directory" in line and "Own data" not in line


def test_images_and_exports_are_shown(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("north/cat", "south/cat", "south/dog"):
        (own / "images/train" / place).mkdir(parents=True)
        (own / "images/train" / place / "1.png").write_bytes(encoded((1, 2, 3)))
    assert main(["check-data", "images", "--set", "layout=client/class"]) == 0
    out = capsys.readouterr().out
    assert "image 2\ttrain/south/cat/1.png\nimage 3\ttrain/south/dog/1.png\nshape\t3x32x32" in out
    assert "classes\t2 with training samples: cat (2), dog (1)\n" in out
    assert "clients\t2 natural ones with 1 to 2 training samples: north (1), south (2)" in out
    assert main(["check-data", "images", "--set", "layout=class"]) == 0  # which the entry keeps
    assert "layout: class\n" in (out := capsys.readouterr().out) and "north (1)" in out

    (own / "export").mkdir()
    np.savez(own / "export/images.npz", x=np.zeros((10, 1, 2, 2), np.uint8), y=np.arange(10) % 2)
    (own / "export/datasheet.json").write_text('{"class_names": ["a", "b"]}')
    for path in ("export", "export/images.npz"):
        assert main(["check-data", path]) == 0
        out = capsys.readouterr().out
        assert "classes\t2 with training samples: a (4), b (4)\n" in out
        assert "sample 2\ta\nsample 3\tb\n" in out and "path: export\n" in out


@pytest.mark.parametrize("kind", [[], ["--set", "kind=tabular_csv"]])
def test_a_compressed_table_is_a_table(
    own: Path, kind: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{row},{row % 2}\n" for row in range(20))
    (own / "data/small.csv.gz").write_bytes(gzip.compress(f"age,ill\n{rows}".encode()))
    assert main(["check-data", "data/small.csv.gz", "--set", "label=ill", *kind]) == 0
    assert "column ill\tlabel\n" in capsys.readouterr().out


def test_numbers_of_channels(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("cat/1", "cat/2", "dog/1", "dog/2"):
        (own / "images/train" / place).parent.mkdir(parents=True, exist_ok=True)
        (own / "images/train" / f"{place}.png").write_bytes(encoded((1, 2, 3)))
    half = "[0.5, 0.5, 0.5]"
    sets = ["--set", f"mean={half}", "--set", f"std={half}"]
    assert main(["check-data", "images", *sets]) == 0
    assert "std:\n    - 0.5\n" in capsys.readouterr().out
    assert main(["check-data", "images", "--set", "kind=image_folder"]) == 0  # as it is guessed
    assert "height: 32" in capsys.readouterr().out
    for wrong in ("std=[0, 0.5, 0.5]", "std=[-1, 0.5, 0.5]", "channels=2"):
        assert main(["check-data", "images", *sets[:2], "--set", wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search("std|one of 1, 3", line)


def test_arrays_are_shown(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, client = np.arange(12.0).reshape(4, 3), np.array(["a", "b", "b", "b"])
    np.savez(own / "data/mine.npz", x=x, y=np.array([1, 0, 1, 0]), client=client)
    assert main(["check-data", "data/mine.npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:9] == [
        "data\tdata/mine.npz, arrays",
        "array x\tfloat64 [4, 3], 0 to 11",
        "array y\tint64 [4], 0 to 1",
        "array client\ttext [4]",
        "row 1\t1, a",
        "row 2\t0, b",
        "row 3\t1, b",
        "shape\t3",
        "training\t4 samples",
    ]
    assert "clients\t2 natural ones with 1 to 3 training samples: a (1), b (3)" in lines
    assert "    kind: arrays" in lines


def test_what_becomes_of_images_is_shown(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "images/train/cat").mkdir(parents=True)
    (own / "images/train/dog").mkdir()
    for name, mode, size in (
        ("cat/1.png", "RGB", (32, 32)),
        ("cat/2.png", "RGBA", (40, 32)),
        ("dog/1.png", "L", (40, 32)),
    ):
        Image.new(mode, size).save(own / "images/train" / name)
    stack = [Image.new("RGB", (32, 32), shade) for shade in ("red", "blue")]
    stack[0].save(own / "images/train/dog/2.tif", save_all=True, append_images=stack[1:])
    for name in ("train/dog/scan.dcm", "train/3.png", "val/cat/1.png", ".hidden"):
        (own / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (own / "images" / name).write_bytes(b"")
    assert main(["check-data", "images"]) == 0
    assert capsys.readouterr().out.splitlines()[1:6] == [
        "height x width\t32x32 (2), 32x40 (2); resized to 32x32: 2 of 4",
        "colours\tRGB (2), RGB with alpha (1), grey (1); converted to RGB: 2 of 4",
        "transparent\tput on white: 1 of 4",
        "frames\tfirst of several read: 1 of 4",
        "not read\t3 files: train/3.png, train/dog/scan.dcm, val/cat/1.png",
    ]
    (own / "images/train/dog/2.tif").unlink()
    sizes = ["--set", "height=32", "--set", "width=40", "--set", "channels=1"]
    assert main(["check-data", "images", *sizes]) == 0
    assert capsys.readouterr().out.splitlines()[1:5] == [
        "height x width\t32x40 (2), 32x32 (1); resized to 32x40: 1 of 3",
        "colours\tRGB (1), RGB with alpha (1), grey (1); converted to grey: 2 of 3",
        "transparent\tput on white: 1 of 3",
        "not read\t3 files: train/3.png, train/dog/scan.dcm, val/cat/1.png",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["data/Own.csv"], "DATA: 'data/Own.csv':"),
        (["mnist5k"], "DATA: 'mnist5k': expected your own data: `fedrepro prepare`"),
        (["config/config.yaml"], "'config/config.yaml': expected a CSV file, images in folders"),
        (["data/Own data.csv", "--set", "labl=ill"], "labl: unknown key: .*did you mean 'label'"),
        (["data/Own data.csv", "--set", "group=wrad"], "group: 'wrad': .* did you mean 'ward'"),
        (["femnist"], "femnist: path: 'data/femnist': expected a file"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    arguments: list[str], line: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-data", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(line, error), error
