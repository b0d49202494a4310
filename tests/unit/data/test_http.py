"""One file over HTTP: what is asked for, how often, and what is left for the next call."""

import math
from pathlib import Path

import pytest

from fedrepro.data.fetching import http
from fedrepro.data.fetching.http import Fetcher, SourceError
from fedrepro.support.errors import UserError
from support.loopback import Loopback, serving

TRIES = 3  # connections for one call
CONTENT = bytes(range(256)) * 5


def fetch(server: Loopback, part: Path, size: int | None = len(CONTENT), path: str = "/a") -> Path:
    """The file, which is right if its bytes are."""

    def fault(whole: Path) -> str | None:
        return None if whole.read_bytes() == CONTENT else "other bytes"

    with Fetcher("d") as fetcher:
        return fetcher.fetch(f"{server.address}{path}", part, size, fault)


@pytest.mark.parametrize("length", [100, 400, 426, 427, 500, 640, 1279])
def test_so_many_connections_and_each_goes_on_where_the_last_broke_off(
    length: int, tmp_path: Path
) -> None:
    part = tmp_path / "a.part"
    with serving({"/a": CONTENT}) as server:
        server.break_after = length
        needed, calls = math.ceil(len(CONTENT) / length), 1
        while calls * TRIES < needed:
            have = calls * TRIES * length
            with pytest.raises(SourceError, match=f" {have} of {len(CONTENT)} "):
                fetch(server, part)
            assert part.read_bytes() == CONTENT[:have]
            calls += 1
        assert fetch(server, part).read_bytes() == CONTENT
        starts = [int(wanted[6:-1]) if wanted else 0 for _, wanted in server.asked]
    assert starts == [at * length for at in range(needed)]


def test_how_long_a_server_is_waited_for_is_as_documented() -> None:
    """In docs/data.md."""
    assert (http.PATIENCE, http.WINDOW, http.SLOWEST, http.TRIES) == (10, 30, 1000, TRIES)


def test_what_is_there_as_a_whole_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT)
    with serving({"/a": CONTENT}) as server:
        assert fetch(server, tmp_path / "a.part") == tmp_path / "a.part"
        assert server.asked == []


def test_a_part_of_a_longer_file_is_dropped_as_the_server_has_no_such_range(tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(bytes(1300))
    with serving({"/a": CONTENT}) as server:
        with pytest.raises(SourceError, match="status 416"):
            fetch(server, part, 2000)
        assert not part.exists()
        assert fetch(server, part).read_bytes() == CONTENT


def test_a_server_is_asked_for_a_size_that_nobody_knows(tmp_path: Path) -> None:
    with serving({"/a": CONTENT}) as server:
        assert fetch(server, tmp_path / "a.part", None).read_bytes() == CONTENT
        assert server.asked == [("/a", None)]
        with pytest.raises(SourceError, match="status 404"):
            fetch(server, tmp_path / "b.part", None, "/b")
        assert fetch(server, tmp_path / "a.part", None)  # a missing file says nothing of the host
    with Fetcher("d") as fetcher:
        for path, said in (("/a", "refused"), ("/b", "refused")):
            with pytest.raises(SourceError, match=said):
                fetcher.fetch(f"{server.address}{path}", tmp_path / "c.part", None, lambda _: None)


def test_a_host_that_does_not_answer_is_not_asked_for_its_other_files(tmp_path: Path) -> None:
    """Nor is another host left out for it."""
    with serving({"/a": CONTENT}) as gone:
        pass
    with serving({"/a": CONTENT}) as server, Fetcher("d") as fetcher:
        said = []
        for path in ("/a", "/other"):
            with pytest.raises(SourceError) as error:
                fetcher.fetch(f"{gone.address}{path}", tmp_path / "x", 9, lambda _: None)
            said.append(str(error.value))
        assert said[0] == said[1] and gone.address.removeprefix("http://") in said[0]
        url = f"{server.address}/a"
        assert fetcher.fetch(url, tmp_path / "a", len(CONTENT), lambda _: None).is_file()


def test_a_file_that_cannot_be_written_is_no_fault_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with serving({"/a": CONTENT}) as server, pytest.raises(UserError, match="file"):
        fetch(server, tmp_path / "file/a.part")
