"""Every file of a results tree, damaged one at a time, is named; nothing else is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.data.dataset import FORMAT
from fedrepro.run.integrity import Check
from fedrepro.support import checksummed_json
from support.refusals import refused
from support.results_tree import RUN, write_tree


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree") / "results"
    write_tree(root)
    return root


@pytest.fixture
def tree(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "results"))


def flip(path: Path) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_a_whole_tree_has_no_faults(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "runs/test/blobs/fedavg/seed2.partial").mkdir()  # under way
    for folder in ("tables/.new", "trunks/test/blobs/fedavg/.seed1/round3"):
        (tree / folder).mkdir(parents=True)
        (tree / folder / "about.json").write_text("{", encoding="utf-8")
    kept = tree / "trunks/test/blobs/fedavg/seed1/round3/about.json"
    checksummed_json.write(kept, {"files": {}}, "trunks/test/blobs/fedavg/seed1/round3/about")
    check = Check(tree, full=True)
    assert list(check.faults()) == []
    assert check.counts == {
        "downloads": 1, "prepared data sets": 1, "partitions": 2, "runs": 1, "tables": 1,
        "kept checkpoints": 1,
    }  # fmt: skip
    assert main(["verify", str(tree), "--full"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("damage", [flip, cut, replace_by_folder, Path.unlink])
@pytest.mark.parametrize(
    ("name", "full"),
    [
        (f"{RUN}/rounds.parquet", False),
        (f"{RUN}/clients.parquet", False),
        (f"{RUN}/model.safetensors", False),
        (f"{RUN}/manifest.json", False),
        ("partitions/blobs/iid/seed1.npz", False),
        ("partitions/blobs/iid/seed1.json", False),
        ("partitions/blobs/iid/seed2.json", False),
        ("data/blobs/train_x.npy", True),
        ("data/blobs/train_y.npy", True),
        ("data/blobs/test_x.npy", True),
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
    # One array or one file of a run alone is not made again.
    whole = RUN in name or name.startswith("data/")
    where = str(tree / (name.rpartition("/" if whole else ".")[0]))
    assert len(faults) == 1 and faults[0].startswith(where), faults


def test_the_times_of_another_result_are_damage(tree: Path) -> None:
    checksummed_json.write(tree / RUN / "timing.json", {"wall_seconds": 1}, "timing of another")
    (fault,) = Check(tree).faults()
    assert fault.startswith(str(tree / RUN / "timing.json"))


def test_sizes_are_enough_to_see_what_was_cut_off(tree: Path) -> None:
    flip(tree / "data/blobs/train_x.npy")
    assert list(Check(tree).faults()) == []
    cut(tree / "data/blobs/train_x.npy")
    cut(tree / "downloads/blobs/raw")
    longer = tree / "data/blobs/test_y.npy"
    longer.write_bytes(longer.read_bytes() + b"x")
    assert len(list(Check(tree).faults())) == 3


def test_a_run_in_another_ones_place(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / RUN).rename(tree / "runs/test/blobs/fedavg/seed7")
    (tree / "tables/demo/ima/table_1.json").write_text("[")
    assert main(["verify", str(tree)]) == 1
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert "table_1.json: damaged: " in first
    assert "seed7: damaged: " in second and second.endswith(": test/blobs fedavg seed 1")
    assert printed.err.endswith(": 2 wrong\n")


def test_there_must_be_a_tree(tmp_path: Path) -> None:
    with refused("missing", file="absent"):
        list(Check(tmp_path / "absent").faults())


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"files": []},
        {"files": {"raw": 1}},
        {"files": {"raw": {"size": 3}}},
        {"files": {"\0": {"size": 3}}, "run": {}},
        {"files": {"\0": "x"}, "run": {"seed": []}},
        {"splits": 1},
        {"format": FORMAT, "splits": {"train": {"arrays": {"train_x": 1}}}},
        {"format": FORMAT, "splits": {"train": {"arrays": {"train_x": {"size": 168}}}}},
        {"train": [None], "test": 1},
    ],
)
def test_json_of_another_shape_is_a_line(tree: Path, content: object) -> None:
    names = ("downloads/blobs/files.json", "data/blobs/meta.json", f"{RUN}/manifest.json",
             f"{RUN}/timing.json", "partitions/blobs/iid/seed1.json")  # fmt: skip
    for name in names:
        what = Path(name).with_suffix("").as_posix()
        whole = isinstance(content, dict)
        (tree / name).write_text(
            json.dumps(checksummed_json.sealed(content, what) if whole else content)
        )
        assert all("\n" not in fault for fault in Check(tree, full=True).faults())
