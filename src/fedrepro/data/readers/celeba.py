"""CelebA with celebrities as clients, made from the official files as in LEAF."""

from pathlib import Path

import numpy as np

from fedrepro.data.catalogue.kinds import Celeba
from fedrepro.data.fetching.archives import opened
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.data.readers.images import read_images
from fedrepro.support.errors import refusal, refuse_unknown, unreadable
from fedrepro.support.files import read_text


def read_celeba(spec: Celeba, folder: Path, scratch: Path, progress: Progress) -> Content:
    """Images of celebrities with at least ``minimum`` images; the label is the attribute.

    Raises:
        UserError: if a file is not in CelebA's format, or an image is missing.
    """
    files = spec.files
    owners = dict(_pairs(folder / files.identities.name))
    where = folder / files.attributes.name
    header, *rows = _lines(where)[1:]
    names = header.split()
    refuse_unknown(where, "attribute", [spec.attribute], names, "one it has")
    column = 1 + names.index(spec.attribute)
    labels = {
        words[0]: words[column]
        for words in (row.split() for row in rows)
        if len(words) == 1 + len(names)
    }
    lacking = next((name for name in owners if labels.get(name) not in ("1", "-1")), None)
    if lacking:
        raise refusal(where, f"{lacking}: expected 1 or -1", lacking, labels.get(lacking))
    people, counts = np.unique(list(owners.values()), return_counts=True)
    kept = {person: at for at, person in enumerate(sorted(people[counts >= spec.minimum], key=int))}
    chosen = sorted(name for name, person in owners.items() if person in kept)
    archive = folder / files.images.name
    images = {path.name: path for path in opened(archive, scratch).rglob("*.jpg")}
    paths = [images.get(name, scratch / name) for name in chosen]
    return Content(
        train=Split(
            read_images(paths, archive, spec.side, progress),
            np.array([labels[name] == "1" for name in chosen], np.int64),
            np.array([kept[owners[name]] for name in chosen], np.int64),
        ),
        class_names=[f"not {spec.attribute}", spec.attribute],
        notes={"groups": len(kept)},
    )


def _lines(path: Path) -> list[str]:
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    if len(lines) < 2:
        raise refusal(path, f"truncated: {len(lines)} lines", code="damaged")
    return lines


def _pairs(path: Path) -> list[list[str]]:
    """The two words of each line."""
    rows = [line.split() for line in _lines(path) if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            why = f"line {number}: {len(row)} words: expected 2"
            raise refusal(path, why, f"line {number}", len(row), "damaged")
    return rows
