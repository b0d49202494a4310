"""Downloads that resume after any interruption, and that end if a server is too slow."""

import http.client
import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from rich import progress
from rich.console import Console

from fedrepro.support.errors import writing
from fedrepro.support.terminal import say

PATIENCE = 10  # seconds without an answer or a byte
WINDOW = 30.0  # seconds over which the speed of a connection is measured
SLOWEST = 1000  # bytes per second in a window; a slower connection is closed
TRIES = 3  # connections for one file; each resumes where the last one broke off
BLOCK = 1 << 16
Fault = Callable[[Path], str | None]  # returns what is wrong with a file, or None
HEADERS = {"User-Agent": "fedrepro", "Accept-Encoding": "identity"}


class SourceError(Exception):
    """A source does not provide a file; the next source may."""


class _Paced(io.RawIOBase):
    """The bytes of a connection; reading them fails if less than ``SLOWEST`` arrives per second.

    ``PATIENCE`` alone would wait for years for a server that sends one byte at a time.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._start, self._received = time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        number = self._raw.readinto(buffer)
        self._received += number or 0
        seconds = time.monotonic() - self._start
        if seconds >= WINDOW:
            if self._received < SLOWEST * seconds:
                speed = self._received / seconds
                raise TimeoutError(f"slower than {SLOWEST} bytes per second ({speed:.0f})")
            self._start, self._received = time.monotonic(), 0
        return number

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, *arguments: Any, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.fp = io.BufferedReader(_Paced(self.fp.detach()))


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens addresses of both kinds, with answers whose pace is measured."""

    def do_open(self, http_class: Any, *arguments: Any, **keys: Any) -> http.client.HTTPResponse:
        def connection(*its_arguments: Any, **its_keys: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = http_class(*its_arguments, **its_keys)
            made.response_class = _Answer
            return made

        return super().do_open(connection, *arguments, **keys)


OPENER = urllib.request.build_opener(_Handler)


class Fetcher:
    """Fetches files over HTTP, with a progress bar on terminals.

    Attributes:
        fetched: the files that it has fetched.
        reasons: why addresses have not provided a file, in words.
    """

    def __init__(self, name: str) -> None:
        self.fetched: list[Path] = []
        self.reasons: list[str] = []
        console = Console(stderr=True)
        self._name = name
        self._watched = console.is_terminal
        self._unreachable: dict[str, str] = {}
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            disable=not self._watched,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @property
    def why(self) -> str:
        """Why a file could not be fetched."""
        return "; ".join(dict.fromkeys(self.reasons)) or "no source is given"

    def fetch_first(
        self, urls: Iterable[str], target: Path, size: int | None, fault: Fault
    ) -> str | None:
        """Download a file to `target` from the first address that provides it.

        Args:
            size, fault: as of :meth:`fetch`.

        Returns:
            The address; None if there is none.

        Raises:
            UserError: if the file cannot be written.
        """
        for url in urls:
            try:
                part = self.fetch(url, target.with_name(f"{target.name}.part"), size, fault)
            except SourceError as error:
                self.reasons.append(str(error))
                continue
            part.replace(target)
            self.fetched.append(target)
            return url
        return None

    def fetch(self, url: str, part: Path, size: int | None, fault: Fault) -> Path:
        """Download `url` to the file `part`, resuming an earlier call's download; returns `part`.

        If the complete file is wrong, it is removed, so that the next call starts over.

        Args:
            size: bytes; None to ask the server.
            fault: of a complete file, such as its checksum.

        Raises:
            SourceError: if the server does not answer, or the file is wrong.
            UserError: if the file cannot be written.
        """
        host = urlsplit(url).netloc
        if host in self._unreachable:
            raise SourceError(self._unreachable[host])
        if not self._watched:
            say(f"{self._name}: fetching {url}")
        size = self._length(url) if size is None else size
        task = self._progress.add_task(f"{self._name}: {part.stem}", total=size)
        try:
            return self._insist(url, part, size, fault, task)
        except SourceError:
            self._progress.remove_task(task)  # the next source adds its own bar
            raise

    def _length(self, url: str) -> int:
        """The size of `url` in bytes, according to the server."""
        host = urlsplit(url).netloc
        request = urllib.request.Request(url, headers=HEADERS, method="HEAD")
        try:
            with OPENER.open(request, timeout=PATIENCE) as answer:
                length = answer.headers.get("Content-Length", "")
        except urllib.error.HTTPError as error:
            raise SourceError(f"{url}: status {error.code}") from None
        except (OSError, http.client.HTTPException) as error:
            self._unreachable[host] = f"{host}: {getattr(error, 'reason', None) or error}"
            raise SourceError(self._unreachable[host]) from None
        if not length.isdecimal():
            raise SourceError(f"{url}: the server does not report its size")
        return int(length)

    def _insist(self, url: str, part: Path, size: int, fault: Fault, task: progress.TaskID) -> Path:
        """Connect up to `TRIES` times; returns `part` once it is complete and right."""
        host, reason = urlsplit(url).netloc, ""
        for _ in range(TRIES):
            before = part.stat().st_size if part.is_file() else 0
            try:
                if before < size:
                    self._continue(url, part, size, task)
            except urllib.error.HTTPError as error:
                if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    part.unlink(missing_ok=True)  # it belongs to another file
                raise SourceError(f"{url}: status {error.code}") from None
            except (OSError, http.client.HTTPException) as error:
                reason = f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
                if not part.is_file() or part.stat().st_size == before:  # no byte: do not retry
                    self._unreachable[host] = f"{host}: {reason.removeprefix(f'{url}: ')}"
                    raise SourceError(self._unreachable[host]) from None
                continue
            received = part.stat().st_size
            if received < size:
                reason = f"{url}: broke off after {received} of {size} bytes"
                if received == before:
                    break
                continue
            wrong = fault(part) if received == size else f"{received} bytes, not {size}"
            if wrong is None:
                return part
            part.unlink()
            raise SourceError(f"{url}: wrong checksum: {wrong}")
        raise SourceError(reason)

    def _continue(self, url: str, part: Path, size: int, task: progress.TaskID) -> None:
        """One connection: append its data; return when it ends, whether or not it is complete."""
        have = part.stat().st_size if part.is_file() else 0
        headers = dict(HEADERS)
        if have:
            headers["Range"] = f"bytes={have}-"
        request = urllib.request.Request(url, headers=headers)
        with OPENER.open(request, timeout=PATIENCE) as answer:
            resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT and answer.headers.get(
                "Content-Range", ""
            ).startswith(f"bytes {have}-")
            have = have if resumed else 0
            length = answer.headers.get("Content-Length", "")
            if length.isdecimal() and have + int(length) != size:
                part.unlink(missing_ok=True)
                raise SourceError(f"{url}: has {have + int(length)} bytes, not {size}")
            with writing(part):
                part.parent.mkdir(parents=True, exist_ok=True)
                file = part.open("ab" if resumed else "wb")
            with file:
                while have <= size and (block := answer.read1(BLOCK)):
                    with writing(part):
                        file.write(block)
                        file.flush()
                    have += len(block)
                    self._progress.update(task, completed=have)
