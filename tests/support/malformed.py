"""Input made wrong by hypothesis, and a watch over what the code does with it."""

import io
import os
import re
import resource
import signal
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from fedrepro.support.errors import UserError

SECONDS = 5.0  # of CPU: other processes may hold it up
BYTES = 10**9
LONGEST_LINE = 1000  # characters
# `make fuzz` sets it; else the examples are few, and the same every time.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))

NASTY = (
    b"", b"-1", b"0.5", b"1e999", b"nan", b"null", b"None", b"true", b"[1]", b"[[]]", b"{}", b"0",
    b"{a: 1}", b'"a"', b"9" * 400, b"0x" + b"f" * 5000, b"\xff\xfe", b"\0", b"1e308", b"-0.0", b"~",
    b"99999999999999999999", b"10000000", b"../../x", b"/", b"a" * 5000, b"*x", b"&x", b"<script>",
    b"!!python/object:os.system {}", b"2001-99-99", b"\xe2\x80\xae", b",", b"\n", b"- ", b": ",
    b"1:1:1:1:1", b"inf",
)  # fmt: skip
TOKEN = re.compile(rb"[A-Za-z0-9_.+/-]+")

Mutation = tuple[str, float, float, bytes]


def fuzzed(few: int) -> Callable[..., object]:
    """Settings of a fuzzing test: ``few`` examples, or as many times more as are wanted."""
    return settings(
        max_examples=few * EXAMPLES or few,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def mutations(most: int = 3) -> st.SearchStrategy[list[Mutation]]:
    """What :func:`mutated` does, one after the other."""
    share = st.floats(0, 1, exclude_max=True)
    kinds = st.sampled_from(("token", "token", "token", "byte", "cut", "drop", "double", "insert"))
    return st.lists(
        st.tuples(kinds, share, share, st.sampled_from(NASTY)), min_size=1, max_size=most
    )


def mutated(content: bytes, how: list[Mutation]) -> bytes:
    """``content`` with words, bytes or pieces of it changed."""
    for kind, first, second, nasty in how:
        at = int(first * len(content))
        end = min(len(content), at + 1 + int(second * 40))
        if kind == "token":
            found = list(TOKEN.finditer(content))
            if found:
                word = found[int(first * len(found))]
                content = content[: word.start()] + nasty + content[word.end() :]
        elif kind == "byte":
            content = content[:at] + bytes([int(second * 256)]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at]
        elif kind == "drop":
            content = content[:at] + content[end:]
        elif kind == "double":
            content = content[:end] + content[at:end] + content[end:]
        else:
            content = content[:at] + nasty + content[at:]
    return content


def mutated_archive(content: bytes, which: float, how: list[Mutation]) -> bytes:
    """A zip or tar with one of its members changed; any other file changed as a whole."""
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as source:
            members = {name: source.read(name) for name in source.namelist()}
    elif content[:2] == b"\x1f\x8b":
        with tarfile.open(fileobj=io.BytesIO(content)) as source:
            members = {
                member.name: file.read()
                for member in source.getmembers()
                if (file := source.extractfile(member))
            }
    else:
        return mutated(content, how)
    name = list(members)[int(which * len(members))]
    members[name] = mutated(members[name], how)
    out = io.BytesIO()
    if content[:2] == b"PK":
        with zipfile.ZipFile(out, "w") as target:
            for each, inside in members.items():
                target.writestr(each, inside)
    else:
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as target:
            for each, inside in members.items():
                member = tarfile.TarInfo(each)
                member.size = len(inside)
                target.addfile(member, io.BytesIO(inside))
    return out.getvalue()


def tree_of(root: Path) -> dict[str, tuple[int, int]]:
    """Name, size and time of change of all files under ``root`` but those in results/."""
    return {
        str(path.relative_to(root)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in root.rglob("*")
        if not path.is_dir() and path.relative_to(root).parts[0] != "results"
    }


@contextmanager
def watched(root: Path) -> Iterator[None]:
    """Fail for a slow or hungry block, one that writes elsewhere, or raises more than one line."""
    before, start = tree_of(root), time.process_time()
    with _limits(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries; the test looks at what is raised
        try:
            yield
        except UserError as error:
            line = str(error)
            assert "\n" not in line.strip("\n") and len(line) < LONGEST_LINE, line[:2000]
    assert time.process_time() - start < SECONDS
    assert tree_of(root) == before


@contextmanager
def _limits() -> Iterator[None]:
    """At most :data:`BYTES` more of address space, and an end to what hangs."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it hangs")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 12 * SECONDS)  # by the clock, on a busy machine
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
