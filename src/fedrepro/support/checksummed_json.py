"""JSON files that say what they are and of what, with a checksum.

Every JSON file of ``results`` that a number goes through is written and read here. Besides its own
keys it has ``what`` (its place in the tree), sometimes ``of`` (what it was made from), and
``seal``, the checksum of all of this. A file is not used if its content has changed, if it is in
another one's place, or if it has no checksum. Manifests have no ``what``: ``run`` is in them.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedrepro.support.errors import damaged
from fedrepro.support.files import read_json, write_atomically

UNSEALED = ("seal", "went_on_from")  # the second is how a run came about, not what it is
DIFFERS = "its content differs from its checksum"
AGAIN = "delete it and make it again"


def digest_of(content: object) -> str:
    """The SHA-256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def seal_of(content: Mapping[str, Any]) -> str:
    """The checksum of a file's content."""
    return digest_of({**content, **dict.fromkeys(UNSEALED)})


def sealed(content: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Content with the keys ``what`` and ``seal``, as a file has them."""
    plain: dict[str, Any] = json.loads(json.dumps({**content, "what": what}))
    return {**plain, "seal": seal_of(plain)}


def in_lines(content: Mapping[str, Any]) -> str:
    """JSON with a line for each key, and for each element of its lists.

    It can be read and searched, and is written three times as fast as with an indent.

    Raises:
        ValueError: for a number that is not finite.
    """
    written = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    lines = []
    for key, value in content.items():
        rows = ",\n".join(map(written, value)) if isinstance(value, list | tuple) else ""
        lines.append(f"{written(key)}: " + (f"[\n{rows}\n]" if rows else written(value)))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(path: Path, content: Mapping[str, Any], what: str) -> None:
    """Write a sealed file.

    Raises:
        UserError: if it cannot be written.
        ValueError: for a number that is not finite.
    """
    text = in_lines(sealed(content, what))
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read(path: Path, what: str, shown: Path | None = None, again: str = AGAIN) -> dict[str, Any]:
    """The content of a sealed file.

    Args:
        what: the key that it must have.
        shown: its path in messages.
        again: what to do about a damaged file, in words.

    Raises:
        FileNotFoundError: if it does not exist.
        UserError: if it is damaged, or is something else.
    """
    try:
        return checked(path, what)
    except ValueError as error:
        raise damaged(shown or path, f"{error}; {again}") from None


def checked(path: Path, what: str) -> dict[str, Any]:
    """The content of a sealed file.

    Raises:
        FileNotFoundError: if it does not exist.
        ValueError: if it is damaged, or is something else.
    """
    content = parsed(path)
    if why := fault(content, what):
        raise ValueError(why)
    return content


def parsed(path: Path) -> dict[str, Any]:
    """A file's keys and values, unchecked.

    Raises:
        FileNotFoundError: if it does not exist.
        ValueError: if it cannot be read, or holds no keys with values.
    """
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:  # its own words name the path, as on this machine
        raise ValueError(f"can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(str(error)) from None
    if not isinstance(content, dict):
        raise ValueError("expected keys with values")
    return content


def fault(content: Mapping[str, Any], what: str | None = None) -> str:
    """The reason why content is damaged or something else, in words; or "".

    Args:
        what: it must be; None for a manifest.
    """
    seal = content.get("seal")
    if seal is None:
        return "it has no checksum, as files of older versions"
    if seal != seal_of(content):
        return DIFFERS
    if what is not None and content.get("what") != what:
        return f"it is {content.get('what')}, not {what}"
    return ""


def of_results(path: Path) -> str:
    """The key ``what`` of the file at a path such as ``results/studies/x.json``."""
    return place(path, len(path.parts) - 1)


def place(path: Path, parts: int) -> str:
    """The key ``what`` of a file: its last folders and its name, without the suffix."""
    return "/".join((*path.parts[-parts:-1], path.stem))
