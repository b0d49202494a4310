"""Old keys of YAML files, which are read with a warning until the next release."""

from functools import cache
from typing import Any

from fedrepro.support.errors import UserError
from fedrepro.support.terminal import say

# kind of file -> the last keys of the path to the old key ("*" matches any) -> its new name
OLD_KEYS: dict[str, dict[tuple[str, ...], str]] = {
    "config": {("own",): "plugins"},
    "experiment": {("methods", "*", "trunk"): "parent"},
    "datasets": {("datasets", "*", "stands_in_for"): "surrogate_for"},
    "claims": {("over",): "quantifier"},
}


def with_new_keys(kind: str, content: Any, shown: object, path: tuple[str, ...] = ()) -> Any:
    """The content of a YAML file with old keys renamed, each with one warning on stderr.

    Args:
        kind: a key of :data:`OLD_KEYS`.
        shown: the file's name in messages.
        path: the keys above ``content``.

    Raises:
        UserError: if a key is present under both names.
    """
    if isinstance(content, list):
        return [with_new_keys(kind, item, shown, path) for item in content]
    if not isinstance(content, dict):
        return content
    renamed = {}
    for key, value in content.items():
        here = (*path, str(key))
        new = next((new for old, new in OLD_KEYS[kind].items() if _ends(here, old)), key)
        if new != key:
            where = f"{shown}: {'.'.join(here)}"
            if new in content:
                raise UserError(f"{where}: is called {new!r} now, which is there too: drop {key!r}")
            _tell(f"fedrepro: {where}: is called {new!r} now; {key!r} goes with the next release")
        renamed[new] = with_new_keys(kind, value, shown, here)
    return renamed


def _ends(path: tuple[str, ...], end: tuple[str, ...]) -> bool:
    last = path[-len(end) :]
    return len(last) == len(end) and all(
        wanted in ("*", key) for key, wanted in zip(last, end, strict=True)
    )


@cache
def _tell(line: str) -> None:
    say(line)
