"""Every file of a results tree, damaged one at a time, is named; nothing else is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrepro.cli.main import main
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid
from fedrepro.run.integrity import Check
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of
from support import tiny_run

RUN = "runs/test/blobs/fedavg/seed1"


def write_partition(root: Path) -> None:
    spec = Iid.model_validate({"scheme": "iid", "clients": 3, "test_fraction": 0.2})
    made = make_partition(np.arange(60) % 4, None, spec, 1)
    made.save(root / "partitions/blobs/iid/seed1.npz")


def write_data(root: Path) -> None:
    folder = root / "data/blobs"
    folder.mkdir(parents=True)
    np.save(folder / "train_x.npy", np.arange(40, dtype=np.uint8))
    file = folder / "train_x.npy"
    about = {"size": file.stat().st_size, "sha256": sha256_of(file), "shape": [40]}
    meta = {"format": 1, "splits": {"train": {"samples": 40, "arrays": {"train_x": about}}}}
    (folder / "meta.json").write_text(json.dumps(meta))


def write_download(root: Path) -> None:
    folder = root / "downloads/blobs"
    folder.mkdir(parents=True)
    (folder / "raw").write_bytes(b"raw")
    files = {
        "raw": {"size": 3, "sha256": sha256_of(folder / "raw"), "from": "there"},
        "own/elsewhere": {"sha256": "0" * 64, "from": "your own"},
    }
    (folder / "files.json").write_text(json.dumps({"files": files}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree") / "results"
    tiny_run.carry_out(root / RUN, tiny_run.run_spec(rounds=2))
    write_partition(root)
    write_data(root)
    write_download(root)
    (root / "tables/demo/ima").mkdir(parents=True)
    (root / "tables/demo/ima/table_1.json").write_text("{}")
    return root


@pytest.fixture
def tree(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "results"))


def flip(path: Path) -> None:
    """Change one byte: of a manifest in its configuration (its other words have no hash)."""
    content = bytearray(path.read_bytes())
    wanted = content.find(b'"batch_size": 8') + 14 if path.name == "manifest.json" else 0
    content[wanted or len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def test_a_whole_tree_has_no_faults(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "runs/test/blobs/fedavg/seed2.partial").mkdir()  # under way
    check = Check(tree, full=True)
    assert list(check.faults()) == []
    assert check.counts == {
        "downloads": 1, "prepared data sets": 1, "partitions": 1, "runs": 1, "tables": 1,
    }  # fmt: skip
    assert main(["verify", str(tree), "--full"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize(
    ("name", "full"),
    [
        (f"{RUN}/rounds.parquet", False),
        (f"{RUN}/clients.parquet", False),
        (f"{RUN}/model.safetensors", False),
        (f"{RUN}/manifest.json", False),
        ("partitions/blobs/iid/seed1.npz", False),
        ("partitions/blobs/iid/seed1.json", False),
        ("data/blobs/train_x.npy", True),
        ("downloads/blobs/raw", True),
    ],
)
def test_every_damaged_file_is_named(
    name: str, full: bool, damage: Callable[[Path], None], tree: Path
) -> None:
    if name.endswith("iid/seed1.npz") and damage is Path.unlink:
        pytest.skip("one that is not there is not made yet")
    damage(tree / name)
    faults = list(Check(tree, full).faults())
    where = str(tree / (RUN if RUN in name else name.rpartition(".")[0]))
    assert len(faults) == 1 and faults[0].startswith(where), faults


def test_sizes_are_enough_to_see_what_was_cut_off(tree: Path) -> None:
    flip(tree / "data/blobs/train_x.npy")
    assert list(Check(tree).faults()) == []
    cut(tree / "data/blobs/train_x.npy")
    cut(tree / "downloads/blobs/raw")
    assert len(list(Check(tree).faults())) == 2


def test_a_run_in_another_ones_place(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / RUN).rename(tree / "runs/test/blobs/fedavg/seed7")
    (tree / "tables/demo/ima/table_1.json").write_text("[")
    assert main(["verify", str(tree)]) == 1
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert first.endswith("seed7/manifest.json: damaged: it is another run's")
    assert "table_1.json: damaged: " in second
    assert printed.err.endswith(": 2 wrong\n")


def test_there_must_be_a_tree(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the folder of a results tree"):
        list(Check(tmp_path / "absent").faults())
