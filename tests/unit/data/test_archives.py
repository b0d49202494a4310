"""Archives that are damaged or want to write where they should not."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrepro.data.fetching.archives import gunzip, unpack
from fedrepro.support.errors import UserError
from support.raw_data import write_zip

PLAIN = {"top/a.txt": b"a" * 5000, "top/inner/b.txt": b"b"}


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def tar_with(path: Path, kind: bytes) -> Path:
    """A tar archive with a link (or device) that leads outside."""
    with tarfile.open(path, "w") as file:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)
    return path


def zip_with_link(path: Path) -> Path:
    import stat
    import zipfile

    with zipfile.ZipFile(path, "w") as file:
        member = zipfile.ZipInfo("link")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(member, "/etc/passwd")
    return path


def refused(archive: Path, target: Path, line: str) -> None:
    with pytest.raises(UserError, match=line) as raised:
        unpack(archive, target)
    assert "\n" not in str(raised.value)
    assert archive.name in str(raised.value)
    assert not target.exists()
    left = {path.name for path in target.parent.iterdir()} - {archive.name}
    assert left <= {f".{target.name}.lock"}


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_zip(path / "a.zip", PLAIN),
        lambda path: write_tar(path / "a.tgz", PLAIN),
        lambda path: write_tar(path / "a.tar", PLAIN, "w"),
        lambda path: write_tar(path / "a.tar.xz", PLAIN, "w:xz"),
    ],
    ids=["zip", "tgz", "tar", "xz"],
)
def test_plain_archives_are_unpacked(write: Callable[[Path], Path], tmp_path: Path) -> None:
    unpack(write(tmp_path), tmp_path / "out")
    for name, content in PLAIN.items():
        assert (tmp_path / "out" / name).read_bytes() == content


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "c:\\evil", "..\\evil"])
@pytest.mark.parametrize("write", [write_zip, write_tar], ids=["zip", "tar"])
def test_members_that_lead_outside_are_refused(
    name: str, write: Callable[[Path, dict[str, bytes]], Path], tmp_path: Path
) -> None:
    archive = write(tmp_path / "archive", {**PLAIN, name: b"evil"})
    refused(archive, tmp_path / "out", "would be written elsewhere")
    unpack(write(archive, PLAIN), tmp_path / "out")  # the next call recovers
    assert (tmp_path / "out" / "top" / "a.txt").is_file()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    refused(tar_with(tmp_path / "a.tar", kind), tmp_path / "out", "is a link or a device")


def test_links_in_zip_are_refused(tmp_path: Path) -> None:
    refused(zip_with_link(tmp_path / "a.zip"), tmp_path / "out", "is a link or a device")


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tgz", {"a": b"1", "./a": b"2"})
    refused(archive, tmp_path / "out", "occurs twice")


@pytest.mark.parametrize("write", [write_zip, write_tar], ids=["zip", "tgz"])
@pytest.mark.parametrize("kept", [0.0, 0.4, 0.9])
def test_truncated_archives_are_refused(
    write: Callable[[Path, dict[str, bytes]], Path], kept: float, tmp_path: Path
) -> None:
    archive = write(tmp_path / "archive", {**PLAIN, "noise": bytes(range(256)) * 40})
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * kept)])
    refused(archive, tmp_path / "out", "truncated")


def test_gunzip_refuses_damage_and_more_than_expected(tmp_path: Path) -> None:
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(b"x" * 1000))
    gunzip(packed, tmp_path / "a", 1000)
    assert (tmp_path / "a").read_bytes() == b"x" * 1000
    with pytest.raises(UserError, match="more than the 999 bytes"):
        gunzip(packed, tmp_path / "b", 999)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"a\.gz: truncated or damaged"):
        gunzip(packed, tmp_path / "c", 1000)
