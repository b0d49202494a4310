"""Files that users supply: known by their bytes wherever they are, and never waited for."""

import os
import shutil
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import PREPARED
from fedrepro.data.fetching.own_files import digest_of, find_own
from fedrepro.data.fetching.raw_files import DOWNLOADS
from fedrepro.data.prepare import prepare, read_checked
from fedrepro.data.readers.content import Source
from fedrepro.provenance import fingerprint
from fedrepro.run.standing import prepared_differences
from fedrepro.support.errors import UserError
from support import raw_fairness, raw_superfed
from support.raw_data import entry
from support.refusals import refused

FETCHED: dict[str, Callable[[], tuple[DatasetSpec, dict[str, bytes]]]] = {
    "celeba": lambda: raw_fairness.celeba(None),
    "tiny_imagenet": lambda: raw_fairness.tiny_imagenet(None),
    "speech": lambda: raw_fairness.speech(raw_fairness.clips(), None),
    "isic": lambda: raw_fairness.isic(None),
    "plays": raw_superfed.plays,
}


@pytest.fixture
def _at_most_half_a_minute() -> Any:
    def stop(*_: object) -> None:
        raise AssertionError("it waits for the pipe")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 30)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_at_most_half_a_minute")
@pytest.mark.parametrize("kind", FETCHED)
def test_a_pipe_in_place_of_a_file_is_one_line(tmp_path: Path, kind: str) -> None:
    spec, contents = FETCHED[kind]()
    for name in contents:
        folder = tmp_path / name
        (folder / "scratch").mkdir(parents=True)
        for other, content in contents.items():
            (folder / other).write_bytes(content) if other != name else os.mkfifo(folder / name)
        with pytest.raises((UserError, OSError), match=r"not a file|missing"):
            read_checked("d", spec, Source(folder, folder / "scratch"))


@pytest.mark.usefixtures("_at_most_half_a_minute")
def test_a_pipe_as_own_data_is_one_line_wherever_it_is_found(tmp_path: Path) -> None:
    """Before anything reads it: its digest would wait for ever."""
    os.mkfifo(tmp_path / "own.csv")
    for given, archives in ((str(tmp_path / "own.csv"), None), ("own.csv", tmp_path)):
        with refused("unreadable", names="neither"):
            find_own(given, archives)


@pytest.mark.usefixtures("_at_most_half_a_minute")
@pytest.mark.parametrize("kind", ["tabular_csv", "arrays", "pixel_csv"])
def test_a_pipe_for_a_table_is_one_line(tmp_path: Path, kind: str) -> None:
    os.mkfifo(path := tmp_path / "own.parquet")
    module, _, function = {
        "tabular_csv": "tables:read_tabular_csv",
        "arrays": "own_arrays:read_own_arrays",
        "pixel_csv": "images:pixel_rows",
    }[kind].partition(":")
    read = getattr(import_module(f"fedrepro.data.readers.{module}"), function)
    spec = None if kind == "pixel_csv" else entry(kind, path=str(path), **TABLE.get(kind, {}))
    with refused("unreadable", names="file"):
        read(path, 2, 2) if spec is None else read(spec, Source(path, tmp_path))


TABLE = {"tabular_csv": {"label": "y"}}


def test_the_same_bytes_at_another_path_make_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,y\n" + "".join(f"{at},{at % 2}\n" for at in range(20)))
    Path("b.csv").write_bytes(Path("a.csv").read_bytes())
    Path("c.csv").write_text("x,y\n" + "".join(f"{at},{at % 2}\n" for at in range(22)))

    def differing(path: str, **keys: Any) -> list[str]:
        spec = entry("tabular_csv", path=path, label="y", **keys)
        config = SimpleNamespace(data=SimpleNamespace(archives=None))
        bench = SimpleNamespace(root=tmp_path, datasets={"own": spec}, config=config)
        return [str(each) for each in prepared_differences(bench, "own")]  # type: ignore[arg-type]

    prepare("own", entry("tabular_csv", path="a.csv", label="y"))
    assert (PREPARED / "own").is_dir() and (DOWNLOADS / "own").is_dir()
    assert differing("a.csv") == differing("b.csv") == []
    places = (PREPARED / "own/meta.json", DOWNLOADS / "own/files.json")
    for place in places:
        os.utime(place, (1e9, 1e9))
    prepare("own", entry("tabular_csv", path="b.csv", label="y"))
    assert [place.stat().st_mtime for place in places] == [1e9, 1e9]
    assert differing("a.csv") == differing("b.csv") == []
    (other_bytes,), (other_entry,) = differing("c.csv"), differing("b.csv", test_fraction=0.5)
    assert other_bytes != other_entry


@pytest.mark.parametrize("link", ["train", "train/cat", "train/cat/more"])
def test_what_is_behind_a_linked_folder_counts_as_if_it_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """Once, other images behind a link were taken for those that had been prepared."""
    (tmp_path / "disk/train/cat/more").mkdir(parents=True)
    (tmp_path / "disk/train/dog").mkdir()
    for at, name in enumerate(("cat/a", "cat/more/b", "dog/c", "dog/d")):
        image = Image.fromarray(np.full((4, 4, 3), 40 * at, np.uint8))
        image.save(tmp_path / f"disk/train/{name}.png")
    shutil.copytree(tmp_path / "disk", tmp_path / "copied/own")
    shutil.copytree(tmp_path / "disk", tmp_path / "linked/own")
    shutil.rmtree(tmp_path / "linked/own" / link)
    (tmp_path / "linked/own" / link).symlink_to(tmp_path / "disk" / link)
    keys = {"height": 4, "width": 4, "layout": "class", "test_fraction": 0.5}
    spec = entry("image_folder", path="own", **keys)

    def read(folder: str) -> list[object]:
        monkeypatch.chdir(tmp_path / folder)
        content = read_checked("own", spec, Source(Path("own"), tmp_path / "scratch"))
        hashes = digest_of(Path("own")), fingerprint.of_files([Path("own")])
        assert content.test is not None
        return [*hashes, content.train.x.tobytes() + content.test.x.tobytes()]

    assert read("linked") == read("copied")
    before = read("linked")
    changed = tmp_path / "disk/train/cat/more/b.png"
    changed.write_bytes((tmp_path / "disk/train/dog/d.png").read_bytes())
    assert all(now != then for now, then in zip(read("linked"), before, strict=True))


def test_links_back_to_a_folder_above_are_not_followed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for folder in (own / "a", own / "b"):
        folder.mkdir(parents=True)
        (folder / "x.csv").write_text("1")
    before = digest_of(own)
    links = {"self": own, "a/up": own, "b/above": tmp_path, "b/loop": own / "b/loop"}
    for name, target in links.items():
        (own / name).symlink_to(target)
    assert digest_of(own) == before
