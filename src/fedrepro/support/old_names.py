"""Old keys of YAML files, which are read with a warning until the next release."""

from functools import cache
from typing import Any

from fedrepro.support.errors import refusal
from fedrepro.support.grouping import grouped
from fedrepro.support.terminal import say

Keys = tuple[str, ...]  # a key at the end, those above it before; without places in lists

# kind of file -> the last keys of the path to the old key ("*" matches any) -> its new name
OLD_KEYS: dict[str, dict[Keys, str]] = {
    "config": {("own",): "plugins"},
    "experiment": {
        ("methods", "*", "trunk"): "parent",
        ("methods", "*", "use"): "variant_of",
        ("settings", "*", "given"): "inputs",
        ("settings", "*", "keep"): "save_models_at",
        ("settings", "*", "judge"): "evaluator",
        ("settings", "*", "availability", "day"): "period",
        ("tables", "*", "explains"): "diagnostic",
        ("tables", "*", "instead"): "column_settings",
        ("rows", "instead"): "column_settings",
        ("rows", "demo_instead"): "demo_column_settings",
        ("rows", "around"): "wrapper",
        ("columns", "around"): "wrapper",
        ("figures", "*", "instead"): "column_settings",
        ("panels", "use"): "variant_of",
    },
    "datasets": {
        ("datasets", "*", "stands_in_for"): "surrogate_for",
        ("datasets", "*", "holds"): "size",
    },
    "claims": {("over",): "quantifier"},
}

# Of keys of settings, as in the names of runs that have another value of them.
FIRST_NAMES = {"availability.period": "availability.day"}


def with_new_keys(kind: str, content: Any, shown: object) -> Any:
    """The content of a YAML file with old keys renamed, and one warning on stderr for each key.

    Args:
        kind: a key of :data:`OLD_KEYS`.
        shown: the file's name in messages.

    Raises:
        UserError: if a key is present under both names.
    """
    places: dict[tuple[str, str], list[str]] = {}  # of each old key and its new name

    def renamed(node: Any, above: Keys) -> Any:
        if isinstance(node, list):
            return [renamed(item, above) for item in node]
        if not isinstance(node, dict):
            return node
        content = {}
        for key, value in node.items():
            path = (*above, str(key))
            if new := _new_name(kind, path):
                place = ".".join(filter(None, path))
                if new in node:
                    problem = f"is called {new!r} now, and both are there: remove {key!r}"
                    raise refusal(shown, f"{place}: {problem}", place)
                places.setdefault((key, new), []).append(place)
            content[new or key] = renamed(value, path)
        return content

    content = renamed(content, ())
    for (old, new), (first, *others) in places.items():
        also = f", as at {len(others)} more" if others else ""
        warn_of_old_name(f"{shown}: {first}", old, f"{new!r} now{also}")
    return content


def _new_name(kind: str, path: Keys) -> str | None:
    """The new name of the key at the end of a path; None if it is not an old one."""
    for end, new in _ends(kind).get(path[-1], ()):
        last = path[-len(end) :]
        if len(last) == len(end) and all(
            wanted in ("*", key) for key, wanted in zip(last, end, strict=True)
        ):
            return new
    return None


@cache
def _ends(kind: str) -> dict[str, list[tuple[Keys, str]]]:
    """The entries of :data:`OLD_KEYS` by old key."""
    return grouped(OLD_KEYS[kind].items(), lambda entry: entry[0][-1])


@cache
def warn_of_old_name(place: str, old: str, new: str) -> None:
    """Say once, on stderr, that what is at a place is called otherwise now."""
    say(f"fedrepro: {place}: is called {new}; {old!r} goes with the next release")
