"""`fedrepro clean`: only old states that are made again go, and nobody's own file."""

import os
import time
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.run import disk_space
from fedrepro.run.checkpoint import ABOUT, PLACE
from fedrepro.support import checksummed_json
from support.project import CONFIG

TRUNK = Path("results/trunks/mine/skewed/fedavg/seed1/round3")
ASIDE = Path("results/runs/mine/skewed/fedavg/seed1.aside-0123456789ab")
RESULT = Path("results/runs/mine/skewed/fedavg/seed1/model.safetensors")


def written(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 1000)
    return aged(path, days)


def aged(path: Path, days: float) -> Path:
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    Path("config/config.yaml").write_text(CONFIG, encoding="utf-8")
    names = ("checkpoint.safetensors", "clients/3.safetensors")
    for name in names:
        written(TRUNK / name, 40)
        written(ASIDE / name, 40)
    about = {"layout": 4, "files": dict.fromkeys(names, "0")}
    checksummed_json.write(TRUNK / ABOUT, about, checksummed_json.place(TRUNK / ABOUT, PLACE))
    aged(TRUNK / ABOUT, 40)
    written(RESULT, 400)


def test_only_with_remove_and_only_what_is_old(
    bench: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clean"]) == 0
    out, said = capsys.readouterr()
    assert f"{TRUNK}\t" in out and f"{ASIDE}\t" in out and "would remove 2 folders" in said
    assert (TRUNK / ABOUT).exists() and ASIDE.exists()
    assert main(["clean", "--older", "41", "--remove"]) == 0
    assert TRUNK.exists() and ASIDE.exists()
    assert main(["clean", "--older", "39", "--remove"]) == 0
    assert not TRUNK.exists() and not ASIDE.exists() and RESULT.exists()
    assert main(["clean", "--older", "-1"]) == main(["clean", "--older", "nan"]) == 2


def test_a_folder_is_as_old_as_its_newest_file(bench: None) -> None:
    for folder in (TRUNK, ASIDE):
        aged(folder / "clients/3.safetensors", 10)
    assert [*disk_space.removable(Path(), 11)] == []
    going = [*disk_space.removable(Path(), 9)]
    assert {each.folder for each in going} == {TRUNK, ASIDE}
    for each in going:
        assert each.days == pytest.approx(10, abs=0.1) and each.size >= 2000
        each.remove()
    assert not TRUNK.parents[2].exists() and not ASIDE.exists()
    assert [*RESULT.parent.iterdir()] == [RESULT]


def test_what_a_record_must_not_name_and_links_stay(bench: None) -> None:
    names = ("checkpoint.safetensors", "../own.safetensors", "own/1.safetensors")
    for name in names:
        written(TRUNK / name, 40)
    about = {"layout": 4, "files": dict.fromkeys(names, "0")}
    checksummed_json.write(TRUNK / ABOUT, about, checksummed_json.place(TRUNK / ABOUT, PLACE))
    aged(TRUNK / ABOUT, 40)
    (ASIDE / "clients/4.safetensors").symlink_to(RESULT.resolve())
    aged(RESULT, 40)
    for each in disk_space.removable(Path(), 9):
        each.remove()
    assert not (TRUNK / names[0]).exists() and not (TRUNK / ABOUT).exists()
    assert all((TRUNK / name).exists() for name in names[1:])
    assert (ASIDE / "clients/4.safetensors").is_symlink() and RESULT.exists()
    assert not (ASIDE / "checkpoint.safetensors").exists()


def test_nothing_goes_by_a_record_that_is_damaged(bench: None) -> None:
    written(TRUNK / ABOUT, 40)
    assert [each.folder for each in disk_space.removable(Path(), 9)] == [ASIDE]


def test_somebody_s_own_file_stays(bench: None) -> None:
    own = [written(folder / "notes.txt", 50) for folder in (TRUNK, ASIDE)]
    assert main(["clean", "--remove"]) == 0
    assert all(path.exists() for path in own)
    assert [*TRUNK.iterdir()] == [own[0]]  # what the record lists is ours
    assert (ASIDE / "clients/3.safetensors").exists()  # a folder with another's file is left alone
