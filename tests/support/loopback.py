"""An HTTP server on this machine that knows Range and can be told to misbehave."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Loopback:
    """What is served, and how.

    Attributes:
        break_after: close the connection after so many bytes of an answer's body.
        stall: then keep it open, silent, until the server ends.
        drip: send an answer's "body", or "all" of it, one byte at a time, so many seconds apart.
        ranges: whether Range is understood.
        from_start: answer with all bytes, and say so, whatever range is asked for.
        asked: path and Range header of each request so far.
    """

    contents: dict[str, bytes]
    address: str = ""
    break_after: int | None = None
    stall: bool = False
    drip: dict[str, float] = field(default_factory=dict)
    ranges: bool = True
    from_start: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    stalled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class Dripping(io.RawIOBase):
    """Writes to a connection one byte at a time, until the other side has had enough."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.connection, self.seconds = connection, seconds

    def write(self, data: Any) -> int:
        with suppress(OSError):
            for byte in bytes(data):
                self.connection.sendall(bytes([byte]))
                time.sleep(self.seconds)
        return len(data)


@contextmanager
def serving(contents: dict[str, bytes]) -> Iterator[Loopback]:
    """Serve `contents` by path, such as "/a.gz", on a free port."""
    state = Loopback(contents)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            self._slow_down("all")
            content = state.contents.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            resumed = wanted is not None and state.ranges
            start = 0 if state.from_start else start
            if resumed and start >= len(content):
                self.send_error(416)
                return
            body = content[start:] if resumed else content
            self.send_response(206 if resumed else 200)
            if resumed:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self._slow_down("body")
            self.wfile.write(body[: state.break_after])
            if state.stall:
                self.wfile.flush()
                state.stalled.set()
                state.ended.wait(30)

        def _slow_down(self, what: str) -> None:
            if what in state.drip:
                self.wfile = Dripping(self.connection, state.drip[what])

        def do_HEAD(self) -> None:
            content = state.contents.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
