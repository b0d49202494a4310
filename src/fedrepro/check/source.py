"""Refuse mistakes in a method's file on loading, before it produces a wrong number.

Each mistake gives one line: the file and line, what is wrong, what to write instead.
"""

import ast
import inspect
import re
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value, nearest, refusal
from fedrepro.support.plugins import CLOSE

# Parameters of hooks, and what others call the context.
GIVEN = {
    "ctx", "context", "server", "updates", "message", "client_state", "params", "batch", "steps",
}  # fmt: skip
FROZEN = "write @dataclass(frozen=True) above the class"


class Source(NamedTuple):
    """The code of a part.

    Attributes:
        name: in errors.
        tree: its syntax tree; without statements if the code is not known.
    """

    name: str
    tree: ast.Module

    @classmethod
    def of(cls, file: Path) -> Self:
        """The code in a file.

        Raises:
            UserError: for a syntax error.
        """
        return cls(str(file), plugins.parse(file))

    def place_of(self, name: str) -> str:
        """The line that defines a class, or a method or field of it; 1 if there is none."""
        classes = [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]
        for node in (*classes, *(statement for cls in classes for statement in cls.body)):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if name in (getattr(node, "name", None), *(getattr(to, "id", None) for to in targets)):
                return f"{self.name}:{node.lineno}"
        return f"{self.name}:1"


def refuse_text(source: Source) -> None:
    """Refuse what can be seen without running the code.

    Raises:
        UserError: for a function that assigns a module's variable.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global):
            names = ", ".join(node.names)
            why = (
                f"global {names}: module variables are neither saved nor shared between processes: "
                "return what must survive a round in `server` or `client_state`"
            )
            raise refusal(f"{source.name}:{node.lineno}", why, names)


def explain(source: Source, refused: UserError) -> UserError:
    """The error for a file that could not be imported because dataclasses refuse it."""
    cause = refused.__cause__
    missing = re.search(r"non-default argument '(\w+)'", str(cause))
    if isinstance(cause, TypeError) and missing:
        return _without_default(source, missing[1])
    if isinstance(cause, TypeError) and "inherit non-frozen dataclass" in str(cause):
        return refusal(source.name, f"the class is not frozen: {FROZEN}")
    return refused


def refuse_class(source: Source, cls: type[Any], base: type[Any]) -> None:
    """Refuse a class that would not do what its author intends.

    Args:
        base: Method, Wrapper or ServerOptimizer: whose hooks it may override.

    Raises:
        UserError: for a missing ``@dataclass``, a hyperparameter without a plain default or with
            the name of something else, a hook with wrong parameters, or a misspelt hook.
    """
    # A class that is no dataclass, has no source and declares nothing loses nothing.
    declares = bool(source.tree.body or vars(cls).get("__annotations__"))
    if declares and "__dataclass_fields__" not in vars(cls):
        where = source.place_of(cls.__name__)
        why = "is not a dataclass, so its hyperparameters would be ignored"
        raise refusal(where, f"class {cls.__name__} {why}: {FROZEN}", cls.__name__)
    # `inner` is a wrapper's method. A function's name is refused below, with its signature.
    attributes = {"inner", *dir(base)} - {field.name for field in fields(base)}
    for field in fields(cls):
        if field.default is MISSING:
            raise _without_default(source, field.name)
        known = inspect.getattr_static(base, field.name, None)
        if field.name in attributes and not inspect.isfunction(known):
            where = source.place_of(field.name)
            wanted = f"a name that {base.__name__} does not use for something else"
            raise bad_value(where, "hyperparameter", field.name, wanted)
    hyperparameters = {field.name for field in fields(cls)}
    # Its own, and those of classes in the same file from which it inherits.
    others = [owner for owner in cls.__mro__ if owner.__module__ != cls.__module__]
    for owner in (owner for owner in cls.__mro__ if owner.__module__ == cls.__module__):
        for name, value in vars(owner).items():
            known = inspect.getattr_static(base, name, MISSING)
            if inspect.isfunction(_plain(known)) and not name.startswith("_"):
                _refuse_signature(source, owner, name, value, known)
            # What a class of another file has calls it, such as `shared` of PartlyShared.
            elif not (
                name.startswith("__")
                or name in hyperparameters
                or any(name in vars(other) for other in others)
            ):
                _refuse_no_hook(source, owner, name, base)


def _without_default(source: Source, name: str) -> UserError:
    why = f"a hyperparameter without a plain default: write one, such as `{name}: float = 0.1`"
    return refusal(source.place_of(name), f"{name}: {why}", name, code="missing")


def _refuse_signature(
    source: Source, cls: type[Any], name: str, value: object, known: object
) -> None:
    """Refuse a hook that cannot be called by position with the default's parameters."""
    hook, names = _plain(value), [*inspect.signature(_plain(known)).parameters]
    where, key = source.place_of(name), f"{cls.__name__}.{name}"
    if not inspect.isfunction(hook) or type(value) is not type(known):
        why = f"this is a hook and must be a method: {_signature(name, known)}"
        raise refusal(where, f"{key}: {why}", key)
    signature = inspect.signature(hook)
    try:  # another name is harmless, another position is not
        places = signature.bind(*names).arguments.items()
        fits = all(place == given or place not in names for place, given in places)
    except TypeError:
        fits = False
    if not fits:
        given = f"({', '.join(signature.parameters)})"
        why = f"wrong parameters: expected {_signature(name, known)}"
        raise refusal(where, f"{key}{given}: {why}", key, given)


def _refuse_no_hook(source: Source, cls: type[Any], name: str, base: type[Any]) -> None:
    """Refuse a name similar to a hook's, or a public function of what hooks get, such as ``ctx``.

    Unless the file uses it: then it is a helper. Nothing else would ever call it.
    """
    hooks = [hook for hook in dir(base) if not hook.startswith("_")]
    close = get_close_matches(name.lower().strip("_"), hooks, n=1, cutoff=CLOSE)
    if _is_used(source, name):
        return
    function = _plain(vars(cls)[name])
    takes = {*inspect.signature(function).parameters} if inspect.isfunction(function) else set()
    if close or (takes & GIVEN and not name.startswith("_")):
        key = f"{cls.__name__}.{name}"
        why = f"no hook has this name, and nothing in the file uses it{nearest(name, hooks)}"
        raise refusal(source.place_of(name), f"{key}: {why}", key, code="unknown_key")


def _is_used(source: Source, name: str) -> bool:
    """Return True if the code reads a name, or is not known."""
    return not source.tree.body or any(
        (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
        for node in ast.walk(source.tree)
    )


def _plain(hook: object) -> Any:
    """The function behind a method or a class method."""
    return hook.__func__ if isinstance(hook, classmethod) else hook


def _signature(name: str, hook: object) -> str:
    return f"{name}({', '.join(inspect.signature(_plain(hook)).parameters)})"
