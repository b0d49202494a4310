"""Archives that are damaged or want to write where they should not."""

import gzip
import hashlib
import io
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrepro.data.fetching.archives import BLOCK, gunzip, opened_around, take_out, unpack
from fedrepro.support.errors import UserError
from support.raw_data import write_zip
from support.refusals import refused

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


def zip_with(path: Path, kind: int) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        member = zipfile.ZipInfo("link")
        member.external_attr = (kind | 0o777) << 16
        file.writestr(member, "/etc/passwd")
    return path


def refusal(archive: Path, target: Path, line: str) -> None:
    with pytest.raises(UserError, match=line) as raised:
        unpack(archive, target)
    assert "\n" not in str(raised.value)
    assert archive.name in str(raised.value)
    nothing_written(archive, target)


def member_refused(archive: Path, target: Path, member: str) -> None:
    with refused("value", file=archive.name, value=member):
        unpack(archive, target)
    nothing_written(archive, target)


def nothing_written(archive: Path, target: Path) -> None:
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
    member_refused(archive, tmp_path / "out", name)
    unpack(write(archive, PLAIN), tmp_path / "out")  # the next call recovers
    assert (tmp_path / "out" / "top" / "a.txt").is_file()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    member_refused(tar_with(tmp_path / "a.tar", kind), tmp_path / "out", "link")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_in_zip_are_refused(kind: int, tmp_path: Path) -> None:
    member_refused(zip_with(tmp_path / "a.zip", kind), tmp_path / "out", "link")


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tgz", {"a": b"1", "./a": b"2"})
    refusal(archive, tmp_path / "out", "occurs twice")


@pytest.mark.parametrize("write", [write_zip, write_tar], ids=["zip", "tgz"])
@pytest.mark.parametrize("kept", [0.0, 0.4, 0.9])
def test_truncated_archives_are_refused(
    write: Callable[[Path, dict[str, bytes]], Path], kept: float, tmp_path: Path
) -> None:
    archive = write(tmp_path / "archive", {**PLAIN, "noise": bytes(range(256)) * 40})
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * kept)])
    refusal(archive, tmp_path / "out", "truncated")


def test_gunzip_refuses_damage_and_more_than_expected(tmp_path: Path) -> None:
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(b"x" * 1000))
    gunzip(packed, tmp_path / "a", 1000)
    assert (tmp_path / "a").read_bytes() == b"x" * 1000
    with refused(names=("999", "bytes")):
        gunzip(packed, tmp_path / "b", 999)
    packed.write_bytes(gzip.compress(bytes(2 * BLOCK + 1)))  # more than is read at a time
    gunzip(packed, tmp_path / "d", 2 * BLOCK + 1)
    assert (tmp_path / "d").stat().st_size == 2 * BLOCK + 1
    with refused(names=(str(2 * BLOCK), "bytes")):
        gunzip(packed, tmp_path / "e", 2 * BLOCK)
    packed.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with refused(names=("a.gz", "truncated")):
        gunzip(packed, tmp_path / "c", 1000)


def tree(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder: files' contents, and None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


KINDS = ("zip", "tar", "gztar", "bztar", "xztar")


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_others_packed_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    """With folders as members of their own, of which one is empty, and with an empty file."""
    folder = tmp_path / "before"
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/nothing").write_bytes(b"")
    (folder / "a/b/same").write_bytes(bytes(range(256)) * 9)
    (folder / "same").write_bytes(b"another")
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), kind, folder))
    unpack(archive, tmp_path / "after")
    assert tree(tmp_path / "after") == tree(folder)
    assert {str(path) for path in (tmp_path / "after").rglob("*") if path.stat().st_mode & 0o111} \
        == {str(path) for path in (tmp_path / "after").rglob("*") if path.is_dir()}  # fmt: skip


def said_of(archive: Path, target: Path) -> str:
    """The line that refuses an archive, or ""."""
    try:
        unpack(archive, target)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", [*KINDS, "lzma", "bzip2"])
def test_an_archive_cut_or_changed_anywhere_is_one_line_or_whole(kind: str, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    noise = b"".join(hashlib.sha256(bytes([at])).digest() for at in range(40))
    (tmp_path / "before/noise").write_bytes(noise)
    if kind in KINDS:
        archive = Path(shutil.make_archive(str(tmp_path / "packed"), kind, tmp_path / "before"))
    else:
        archive = tmp_path / "packed.zip"
        compression = {"lzma": zipfile.ZIP_LZMA, "bzip2": zipfile.ZIP_BZIP2}[kind]
        with zipfile.ZipFile(archive, "w", compression) as file:
            file.write(tmp_path / "before/noise", "noise")
    content = archive.read_bytes()
    for at in range(7, len(content) - 1, max(1, len(content) // 25)):
        changed = content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
        for damaged in (content[:at], changed):
            archive.write_bytes(damaged)
            said = said_of(archive, tmp_path / "after")
            assert ("\n" not in said and archive.name in said) or not said
            assert (tmp_path / "after").exists() != bool(said)
            shutil.rmtree(tmp_path / "after", ignore_errors=True)


def test_a_zip_archive_with_a_password_is_one_line(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", {"a": b"secret"})
    content = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + flags] |= 1
    archive.write_bytes(content)
    refusal(archive, tmp_path / "out", "encrypted")


def test_one_member_is_taken_out_wherever_it_is(tmp_path: Path) -> None:
    members = {"b/a.txt/x": b"no", "b/not a.txt": b"no", "c/d/a.txt": b"yes!"}
    archive = write_tar(tmp_path / "a.tar.gz", members)
    take_out(archive, "a.txt", tmp_path / "a", 4)
    assert (tmp_path / "a").read_bytes() == b"yes!"
    with refused("value", file="a.tar.gz", names="3"):
        take_out(archive, "a.txt", tmp_path / "b", 3)
    for missing in ("b", "d/a.txt", "txt"):
        with refused("missing", file="a.tar.gz", key=missing):
            take_out(archive, missing, tmp_path / "c", 9)


def test_the_folder_around_files_has_all_of_them(tmp_path: Path) -> None:
    members = {"z/one": b"1", "z/two": b"2", "m/one": b"3", "m/two": b"4", "a/two": b"5"}
    archive = write_tar(tmp_path / "a.tgz", members)
    root = opened_around(archive, tmp_path / "scratch", "one", "two")
    assert root.name == "m" and tree(root) == {"one": b"3", "two": b"4"}  # the first by its name
    assert opened_around(root, tmp_path / "other", "two") == root  # a folder as it is
    for number, names in enumerate([("one", "three"), ("three",), ("three", "one")]):
        with refused("missing", file="a.tgz", key="three"):
            opened_around(archive, tmp_path / str(number), *names)
