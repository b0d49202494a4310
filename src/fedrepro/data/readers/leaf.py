"""LEAF's format: folders train and test of JSON files, each with the samples of some users.

The readers of FEMNIST and Shakespeare merge a user's samples of both folders, because SuPerFed's
clients split their own. Samples of the folder test are marked (`held_out`), so that a partition can
use them instead (`given_test`).

Shakespeare's texts become character ids, and samples that predict the next character. Plays in
Markdown, whose roles are the natural clients, do as well: a surrogate for LEAF's Shakespeare.
Reddit's texts become ids of words.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import LeafFemnist, LeafReddit, LeafShakespeare, Plays
from fedrepro.data.fetching.archives import opened
from fedrepro.data.readers.content import Content, Item, Source, Split
from fedrepro.support.errors import reading, refusal
from fedrepro.support.files import read_json, read_text, visible

Array = NDArray[Any]

SIDE = 28
WRITTEN = string.digits + string.ascii_uppercase + string.ascii_lowercase


def parts(
    source: Source, convert: Callable[[Any, Any], Item]
) -> dict[str, Iterator[tuple[str, Item]]]:
    """For train and test, iterate over users and `convert` of their x and y, reading file by file.

    Args:
        source: a folder, or an archive of one.

    Raises:
        UserError: if the folders are missing; during iteration, if a file is not in LEAF's format
            or `convert` raises a ValueError, KeyError or TypeError.
    """
    path, root = source.path, opened(source.path, source.scratch)
    train = next((folder for folder in visible(root, "**/train") if folder.is_dir()), None)
    if train is None or not (train.parent / "test").is_dir():
        why = "expected folders train and test with LEAF's JSON files"
        raise refusal(path, why, "test", code="missing")
    return {part: _users(path, root, train.parent / part, convert) for part in ("train", "test")}


def _users(
    path: Path, root: Path, folder: Path, convert: Callable[[Any, Any], Item]
) -> Iterator[tuple[str, Item]]:
    for file in visible(folder, "*.json"):
        try:
            data = read_json(file)["user_data"]
            for user, own in data.items():
                x, y = own["x"], own["y"]
                if len(x) != len(y):
                    raise ValueError(f"{len(x)} samples and {len(y)} labels of {user}")
                yield user, convert(x, y)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            where = f"{path}: {file.relative_to(root)}"
            raise refusal(where, f"not in LEAF's format: {error!r}", code="damaged") from None


def read_leaf_femnist(_spec: LeafFemnist, source: Source) -> Content:
    """Images [n, 1, 28, 28] of 62 digits and letters, as bytes if all are multiples of 1/255.

    Raises:
        UserError: if the folder or a file is not in LEAF's format.
    """

    def image_and_label(x: Any, y: Any) -> tuple[Array, Array]:
        images = np.array(x, np.float64).reshape(len(x), 1, SIDE, SIDE)
        if not ((images >= 0) & (images <= 1)).all():
            raise ValueError("a pixel is not between 0 and 1")
        whole = np.rint(images * 255)
        exact = np.abs(images * 255 - whole).max(initial=0) < 1e-4  # float32 rounding
        labels = np.array(y)
        if labels.ndim != 1 or (labels.size and not np.issubdtype(labels.dtype, np.integer)):
            raise ValueError("a label is no whole number")
        return whole.astype(np.uint8) if exact else images.astype(np.float32), labels

    return _together(source, image_and_label, list(WRITTEN))


def read_leaf_shakespeare(spec: LeafShakespeare, source: Source) -> Content:
    """Character ids [n, length], and that of the next character (:func:`letters`).

    Raises:
        UserError: if the folder or a file is not in LEAF's format.
    """

    def before_and_next(x: Any, y: Any) -> tuple[Array, Array]:
        if any(len(text) != spec.length for text in x) or any(len(text) != 1 for text in y):
            raise ValueError(f"expected {spec.length} characters and the next one")
        before = letters("".join(x)).reshape(-1, spec.length)
        return before, letters("".join(y))

    content = _together(source, before_and_next, list(ALPHABET))
    # Bytes would be treated as images.
    return content.mapped(lambda samples: replace(samples, x=samples.x.astype(np.int32)))


def _together(
    source: Source, convert: Callable[[Any, Any], tuple[Array, Array]], class_names: list[str]
) -> Content:
    """All samples of both parts, ordered by user name, with test samples marked."""
    samples = [
        (user, part == "test", *arrays)
        for part, users in parts(source, convert).items()
        for user, arrays in users
        if len(arrays[1])
    ]
    if not samples:
        raise refusal(source.path, "no samples")
    samples.sort(key=lambda each: each[:2])
    names = sorted({user for user, *_ in samples})
    sizes = [len(y) for *_, y in samples]
    images = [x for _, _, x, _ in samples]
    if len({x.dtype for x in images}) > 1:  # bytes of some, fractions of others
        images = [x if x.dtype == np.float32 else x.astype(np.float32) / 255 for x in images]
    numbers = {name: at for at, name in enumerate(names)}
    train = Split(
        np.concatenate(images),
        np.concatenate([y for *_, y in samples]),
        np.repeat([numbers[user] for user, *_ in samples], sizes),
        np.repeat([test for _, test, *_ in samples], sizes),
    )
    return Content(train, class_names, notes={"groups": names})


# The first ids of Reddit's vocabulary; they are not words (fedrepro.engine.task.WORDLESS).
MARKS = ("<PAD>", "<UNK>", "<BOS>", "<EOS>")
UNKNOWN = MARKS.index("<UNK>")


def read_leaf_reddit(spec: LeafReddit, source: Source) -> Content:
    """Pieces of comments and, for each of their words, the next one.

    `held_out` marks samples of the users' test files; those for validation are not used. Ids follow
    the words' frequency in the training text, after :data:`MARKS`. LEAF numbers marks like words,
    and one too low, so that one of them coincides with its unknown word.

    Raises:
        UserError: if the folder or a file is not in LEAF's format.
    """
    pieces = {
        part: [(user, x, y) for user, own in users for x, y in own]
        for part, users in parts(source, _pieces).items()
    }
    if not pieces["train"]:
        raise refusal(source.path, "train: no samples", "train")
    counts = Counter(word for _, x, _ in pieces["train"] for word in x if word not in MARKS)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: spec.words - len(MARKS)]
    vocabulary = {word: number for number, word in enumerate((*MARKS, *ranked))}
    users = {user: at for at, user in enumerate(sorted({user for user, _, _ in pieces["train"]}))}
    known = [
        (users[user], x, y, part == "test")
        for part in ("train", "test")
        for user, x, y in pieces[part]
        if user in users
    ]
    if len({len(words) for _, x, y, _ in known for words in (x, y)}) != 1:
        raise refusal(source.path, "expected pieces of one length", code="damaged")

    def numbers(words: list[str]) -> list[int]:
        return [vocabulary.get(word, UNKNOWN) for word in words]

    return Content(
        train=Split(
            np.array([numbers(x) for _, x, _, _ in known], np.int32),
            np.array([numbers(y) for _, _, y, _ in known], np.int64),
            np.array([user for user, _, _, _ in known], np.int64),
            np.array([test for _, _, _, test in known], np.bool_),
        ),
        class_names=[*vocabulary, *(f"<{at}>" for at in range(len(vocabulary), spec.words))],
        notes={"groups": len(users), "vocabulary": len(vocabulary)},
    )


def _pieces(comments: Any, targets: Any) -> list[tuple[list[str], list[str]]]:
    """(words, next words) of all pieces of a user's comments."""
    return [
        (list(x), list(y))
        for comment, target in zip(comments, targets, strict=True)
        for x, y in zip(comment, target["target_tokens"], strict=True)
    ]


ALPHABET = string.printable  # 100 characters, as in SuPerFed's released code; its text says 80
_NONE = 255
_NUMBERS = np.full(128, _NONE, np.uint8)
_NUMBERS[[ord(each) for each in ALPHABET]] = np.arange(len(ALPHABET))


def letters(text: str) -> NDArray[np.uint8]:
    """The index of each character in :data:`ALPHABET`.

    Raises:
        ValueError: for a character that is not in it.
    """
    codes = _NUMBERS[np.frombuffer(text.encode("ascii"), np.uint8)]
    if (codes == _NONE).any():
        unknown = text[int((codes == _NONE).argmax())]
        raise ValueError(f"{unknown!r} is none of the {len(ALPHABET)} characters")
    return codes


def windows(
    text: str, length: int, most: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All windows of `length` characters of a text [n, length], and the next characters [n].

    Args:
        most: the maximum number of windows, spread evenly over the text; None for all.
    """
    codes = letters(text)
    starts = np.arange(max(len(codes) - length, 0))
    if most is not None and most < len(starts):
        starts = np.linspace(0, len(starts) - 1, most).astype(np.int64)
    return codes[starts[:, None] + np.arange(length)], codes[starts + length]


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


def read_plays(spec: Plays, source: Source) -> Content:
    """Character ids [n, length], and that of the next character (:func:`letters`).

    As in LEAF, all lines of a role, joined by spaces, are one text, over which a window slides by
    one character; roles with no more characters than a window are not used as clients.

    Raises:
        UserError: if the archive contains no plays, or a play can't be read.
    """
    archive = source.path / spec.archive.name
    spoken = []
    for path in visible(opened(archive, source.scratch) / spec.folder, "**/*.md"):
        with reading(f"{archive}: {path.name}", ValueError, kind="a play"):
            for role, lines in speeches(read_text(path)).items():
                x, y = windows(" ".join(lines), spec.length, spec.most)
                if len(y):
                    spoken.append((f"{path.stem}/{role}", x, y))
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
    return Content(train, list(ALPHABET), notes={"groups": [*names]})
