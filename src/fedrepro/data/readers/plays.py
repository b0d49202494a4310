"""Plays in Markdown, whose roles are the natural clients: a surrogate for LEAF's Shakespeare."""

import re
from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import Plays
from fedrepro.data.fetching.archives import opened
from fedrepro.data.readers import characters
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.support.errors import refusal, unreadable
from fedrepro.support.files import read_text

SPEAKER = re.compile(r"\*\*(.+)\*\*\s*")
# Stage directions: in brackets, which may be between underscores, or in italics of either kind.
DIRECTION = re.compile(r"_*\*?\\?\[[^\]]*\]\*?_*|_[^_]+_|(?<!\*)\*(?!\*)[^*]+(?<!\*)\*(?!\*)")
ESCAPE = re.compile(r"\\(?=[^\w\s])")


def speeches(play: str) -> dict[str, list[str]]:
    """The lines of each role of a play, without stage directions and headings.

    A speech ends at the next speaker or heading: it may contain a stage direction, even with blank
    lines around it.
    """
    plain = ESCAPE.sub("", DIRECTION.sub(" ", play)).replace("—", "--")
    spoken: dict[str, list[str]] = {}
    role = None
    for line in plain.splitlines():
        if speaker := SPEAKER.fullmatch(line):
            role = speaker[1]
        elif line.startswith("#"):
            role = None
        elif role and line.strip():
            spoken.setdefault(role, []).append(" ".join(line.split()))
    return spoken


def read_plays(spec: Plays, folder: Path, scratch: Path, _progress: Progress) -> Content:
    """Character ids [n, length], and that of the next character (data/readers/characters.py).

    As in LEAF, all lines of a role, joined by spaces, are one text, over which a window slides by
    one character; roles with no more characters than a window are not used as clients.

    Raises:
        UserError: if the archive contains no plays, or a play can't be read.
    """
    archive = folder / spec.archive.name
    spoken = []
    for path in sorted((opened(archive, scratch) / spec.folder).rglob("*.md")):
        try:
            for role, lines in speeches(read_text(path)).items():
                x, y = characters.windows(" ".join(lines), spec.length, spec.most)
                if len(y):
                    spoken.append((f"{path.stem}/{role}", x, y))
        except ValueError as error:
            raise unreadable(f"{archive}: {path.name}", error, "a play") from None
    if not spoken:
        wanted = "expected plays with speakers as **NAME**"
        raise refusal(archive, f"{spec.folder}: {wanted}", spec.folder, code="missing")
    spoken.sort(key=lambda role: role[0])
    names, before, following = zip(*spoken, strict=True)
    train = Split(
        np.concatenate(before, dtype=np.int32),  # bytes would be treated as images
        np.concatenate(following),
        np.repeat(np.arange(len(names)), list(map(len, following))),
    )
    return Content(train, list(characters.ALPHABET), notes={"groups": [*names]})
