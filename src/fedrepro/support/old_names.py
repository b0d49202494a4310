"""Old names in users' files: read with a warning, or rejected with the new name.

The next release removes this module.
"""

import inspect
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro.support.errors import UserError
from fedrepro.support.terminal import say

# Hooks of methods.
OLD_HOOKS = {
    "init": "init_server",
    "own": "init_client",
    "fresh": "sample_round",
    "send": "broadcast",
    "local": "client_update",
    "weigh": "aggregation_weights",
    "step": "server_update",
    "move": "apply_server_optimizer",
    "draw": "sample_steps",
    "ended": "client_model",
    "model": "eval_model",
    "product": "artifact",
    "numbers": "metrics",
    "mixture": "interpolate",
    "taken_over": "from_parent",
    "begins_as": "shared_prefix",
}
OLD_ATTRIBUTES = {
    "needs": "requires",
    "takes": "optional",
    "weighs": "sets_weights",
    "mixes": "interpolates",
    "teaches": "distills",
    "moves": "uses_server_optimizer",
    "pooled": "centralized",
}
# Names that plug-ins may import.
OLD_IMPORTS = {
    "divergence": "deviation",
    "Product": "Artifact",
    "Given": "LoadedArtifact",
    "fedrepro.methods.deciding": "fedrepro.methods.adaptive_weighting",
    "fedrepro.methods._registry": "fedrepro.methods.registry",
    "fedrepro.models._registry": "fedrepro.models.registry",
    "fedrepro.data.partition.dealing": "fedrepro.data.partition.assigning",
}
# kind of file -> the last keys of the path to the old key ("*" matches any) -> its new name
OLD_KEYS: dict[str, dict[tuple[str, ...], str]] = {
    "config": {("own",): "plugins"},
    "experiment": {("methods", "*", "trunk"): "parent"},
    "datasets": {("datasets", "*", "stands_in_for"): "surrogate_for"},
}


def refuse_old_hooks(file: Path, cls: type[Any]) -> None:
    """Reject a method with a hook or attribute that has an old name.

    Functions with such a name that take no ``ctx``, and hyperparameters, are the author's own.

    Raises:
        UserError: with the new name.
    """
    hyperparameters = {each.name for each in fields(cls)}
    for name, value in vars(cls).items():
        if inspect.isfunction(value):
            arguments = [*inspect.signature(value).parameters][1:2]
            new = OLD_HOOKS.get(name) if arguments == ["ctx"] or name == "begins_as" else None
        else:
            new = None if name in hyperparameters else OLD_ATTRIBUTES.get(name)
        if new:
            raise UserError(f"{file}: {cls.__name__}.{name}: is called {new!r} now: rename it")


def hint_of(error: Exception) -> str:
    """What to import instead, or ""."""
    if isinstance(error, ImportError):
        for old, new in OLD_IMPORTS.items():
            if f"'{old}'" in str(error) or f"'{old}." in str(error):
                return f": {old!r} is called {new!r} now"
    return ""


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
        return [with_new_keys(kind, each, shown, path) for each in content]
    if not isinstance(content, dict):
        return content
    found = {}
    for key, value in content.items():
        here = (*path, str(key))
        new = next((new for old, new in OLD_KEYS[kind].items() if _ends(here, old)), key)
        if new != key:
            where = f"{shown}: {'.'.join(here)}"
            if new in content:
                raise UserError(f"{where}: is called {new!r} now, which is there too: drop {key!r}")
            _tell(f"fedrepro: {where}: is called {new!r} now; {key!r} goes with the next release")
        found[new] = with_new_keys(kind, value, shown, here)
    return found


def _ends(path: tuple[str, ...], end: tuple[str, ...]) -> bool:
    last = path[-len(end) :]
    return len(last) == len(end) and all(
        wanted in ("*", key) for key, wanted in zip(last, end, strict=True)
    )


@cache
def _tell(line: str) -> None:
    say(line)
