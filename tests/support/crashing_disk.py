"""What a disk may hold after the machine stops: a record of a folder, and the images it allows.

A file's bytes are safe once the file was flushed (fsync), a change of a folder's entries once the
folder was. Until then a change may have reached the disk or not, each by itself, in any order; a
file whose bytes were not flushed is there with the first half of them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(eq=False)
class File:
    """A file, wherever it is called what."""

    path: Path  # where it is now
    safe: bytes | None = None  # what was flushed


@dataclass(eq=False)
class Folder:
    """A folder: its entries now, and those that are safe."""

    now: dict[str, "Entry"] = field(default_factory=dict)
    safe: dict[str, "Entry"] = field(default_factory=dict)


Entry = File | Folder
Edit = tuple[Folder, str, Entry | None]  # None: the name goes
Change = list[Edit]  # what happens together: a rename takes one name and gives another
Image = dict[str, bytes | None]  # relative path -> bytes; None: a folder


class Disk:
    """Watches ``root``; calls ``crash`` with every image that each moment allows.

    Moments are those before and after each call that changes names or flushes.
    """

    def __init__(self, root: Path, crash: Callable[[Image], None]) -> None:
        self.root, self.crash = root, crash
        self.top = Folder()
        self.pending: list[Change] = []
        self._numbers: dict[int, Entry] = {}  # by inode
        self._busy = False
        self._scan()
        for change in self.pending:
            _settle(change)
        self.pending.clear()

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name in ("replace", "rename", "unlink", "remove", "rmdir", "mkdir"):
                patch.setattr(os, name, self._noting(getattr(os, name)))
            patch.setattr(os, "fsync", self._flushing(os.fsync))
            yield

    def _noting(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **keys: object) -> None:
            self._moment()  # files that were made since
            real(*arguments, **keys)
            self._moment()

        return call

    def _flushing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            self._moment()
            real(descriptor)
            entry = self._numbers.get(os.fstat(descriptor).st_ino)
            if isinstance(entry, File):
                entry.safe = entry.path.read_bytes()
            elif entry is not None:
                through = [each for each in self.pending if any(e[0] is entry for e in each)]
                self.pending = [each for each in self.pending if each not in through]
                for change in through:
                    _settle(change)
            self._moment()

        return call

    def _moment(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._scan()
            for image in self._images():
                self.crash(image)
        finally:
            self._busy = False

    def _scan(self) -> None:
        """Add what has changed since the last time to :attr:`pending`, as one change."""
        seen: dict[int, Entry] = {}
        edits: Change = []
        self._numbers.setdefault(self.root.stat().st_ino, self.top)
        seen[self.root.stat().st_ino] = self.top

        def look(folder: Folder, place: Path) -> None:
            found: dict[str, Entry] = {}
            for path in sorted(place.iterdir()):
                if ".lock" in path.name:  # whoever held it does not after a crash
                    continue
                number = path.stat().st_ino
                entry = self._numbers.get(number)
                if entry is None or isinstance(entry, Folder) != path.is_dir():
                    entry = Folder() if path.is_dir() else File(path)
                if isinstance(entry, File):
                    entry.path = path
                seen[number] = found[path.name] = entry
                if folder.now.get(path.name) is not entry:
                    edits.append((folder, path.name, entry))
                if isinstance(entry, Folder):
                    look(entry, path)
            edits.extend((folder, name, None) for name in folder.now if name not in found)
            folder.now = found

        look(self.top, self.root)
        self._numbers = seen
        # Names that are gone come first, so that one that is given anew stays.
        if edits:
            self.pending.append(sorted(edits, key=lambda edit: edit[2] is not None))

    def _images(self) -> Iterator[Image]:
        """None of what is pending, all of it, all but one, and one alone."""
        every = range(len(self.pending))
        chosen = [set(), set(every), *({at} for at in every), *(set(every) - {at} for at in every)]
        for some in chosen:
            yield self._image([self.pending[at] for at in sorted(some)])

    def _image(self, through: list[Change]) -> Image:
        image: Image = {}
        entries: dict[int, dict[str, Entry]] = {}

        def of(folder: Folder) -> dict[str, Entry]:
            return entries.setdefault(id(folder), dict(folder.safe))

        for change in through:
            for folder, name, entry in change:
                of(folder).pop(name, None)
                if entry is not None:
                    of(folder)[name] = entry

        def lay(folder: Folder, place: str) -> None:
            for name, entry in of(folder).items():
                path = f"{place}{name}"
                if isinstance(entry, Folder):
                    image[path] = None
                    lay(entry, f"{path}/")
                elif entry.safe is not None:
                    image[path] = entry.safe
                else:
                    content = entry.path.read_bytes() if entry.path.exists() else b""
                    image[path] = content[: len(content) // 2]

        lay(self.top, "")
        return image


def _settle(change: Change) -> None:
    for folder, name, entry in change:
        folder.safe.pop(name, None)
        if entry is not None:
            folder.safe[name] = entry


def restore(image: Image, root: Path) -> None:
    """Write an image into the new folder ``root``."""
    root.mkdir(parents=True)
    for name, content in image.items():
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
