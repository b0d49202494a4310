"""Compose methods by name: ``ima+fedprox@released+fedadam`` is wrapper, method, optimizer.

Importing this module imports PyTorch; :mod:`fedrepro.methods.facts` needs it for new code only.
"""

import ast
import importlib
import inspect
import math
import sys
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedrepro.check.source import Source, explain, refuse_class, refuse_text
from fedrepro.check.traces import codes_in, functions_of, outside
from fedrepro.engine.method import Method, Wrapper, name_of
from fedrepro.methods._combining import AVERAGING
from fedrepro.methods.files import METHODS, part_files, unknown_part
from fedrepro.methods.server.base import ServerOptimizer
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value, load_valid, refusal
from fedrepro.support.names import Composition
from fedrepro.support.plugins import overrides

# Classes whose hooks are the defaults, not overrides.
BASES = ("Method", "Wrapper", "ServerOptimizer", "object")


class Part(NamedTuple):
    """A part of a composition.

    Attributes:
        kind: "method", "pre-training", "wrapper" or "server optimizer".
        cls: a frozen dataclass whose fields are the hyperparameters.
        paper: the first line of its docstring.
        file: its source.
    """

    name: str
    kind: str
    cls: type[Any]
    paper: str
    file: Path

    @property
    def documentation(self) -> str:
        """The docstring of its module."""
        return inspect.getdoc(sys.modules[self.cls.__module__]) or ""

    @property
    def shown_file(self) -> str:
        """Its path in this repository, or the file's name for a plug-in."""
        if self.file.is_relative_to(METHODS):
            return f"src/fedrepro/methods/{self.file.relative_to(METHODS).as_posix()}"
        return self.file.name


def _import(file: Path) -> ModuleType:
    if file.is_relative_to(METHODS):
        inside = file.relative_to(METHODS).with_suffix("").parts
        return importlib.import_module(".".join(("fedrepro.methods", *inside)))
    code = Source.of(file)
    refuse_text(code)
    try:
        return plugins.import_file("methods", file)
    except UserError as error:
        raise explain(code, error) from error.__cause__


@cache  # a process composes thousands of runs, and modules do not change in it
def part_in(file: Path) -> Part:
    """The part that a file defines.

    Raises:
        UserError: for a file that defines none, or several.
    """
    module = _import(file)
    classes = plugins.classes_in(module, Method, ServerOptimizer)
    if len(classes) != 1:
        expected = "exactly one dataclass that extends Method, Wrapper or ServerOptimizer"
        raise refusal(file, f"expected {expected}, found {len(classes)}", value=len(classes))
    (cls,) = classes
    kind, base = _kind_of(cls)
    if plugins.is_own(module.__name__):
        refuse_class(Source.of(file), cls, base)
    return Part(file.stem, kind, cls, _headline(cls), file)


def _kind_of(cls: type[Any]) -> tuple[str, type[Any]]:
    """The kind of a part, and the base class whose hooks it overrides."""
    kinds = {Wrapper: "wrapper", Method: "method", ServerOptimizer: "server optimizer"}
    base, kind = next(each for each in kinds.items() if issubclass(cls, each[0]))
    pretrains = kind == "method" and not cls.classifies
    return ("pre-training" if pretrains else kind), base


def as_own(cls: type[Any], name: str) -> type[Any]:
    """A part's class of a program, checked and named as if it were in a file ``name``.py.

    Raises:
        UserError: for the mistakes that are refused in a file.
    """
    code = Source(f"class {cls.__name__}", ast.Module([], []))
    with suppress(OSError, TypeError, SyntaxError):  # no source, or none that is whole
        code = code._replace(tree=ast.parse(textwrap.dedent(inspect.getsource(cls))))
    refuse_text(code)
    refuse_class(code, cls, _kind_of(cls)[1])
    module = ModuleType(f"{plugins.PACKAGE}_methods_given.{name}")
    hooks = (value.__code__ for value in vars(cls).values() if inspect.isfunction(value))
    files = (function.co_filename for function in hooks if Path(function.co_filename).is_file())
    module.__file__ = next(files, f"class {cls.__name__}")
    sys.modules[module.__name__] = module
    own = {"__module__": module.__name__, "__doc__": cls.__doc__}
    return dataclass(frozen=True)(type(cls.__name__, (cls,), own))


def _headline(cls: type[Any]) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0] if cls.__doc__ else ""


def parts(folders: plugins.Folders = plugins.NONE) -> dict[str, Part]:
    """All parts that a composition can name: methods, wrappers, server optimizers.

    Broken plug-ins are left out, with a line on stderr for each.
    """
    files, mine = part_files(folders), folders.files("methods")
    packaged = {name: part_in(file) for name, file in files.items() if name not in mine}
    given = {name: _given(name, cls) for kind, name, cls in folders.objects if kind == "methods"}
    return {**packaged, **load_valid(part_in, mine), **given}


def _given(name: str, cls: type[Any]) -> Part:
    return Part(name, _kind_of(cls)[0], cls, _headline(cls), Path(name))


def part(name: str, folders: plugins.Folders = plugins.NONE) -> Part | None:
    """The part of a name, if there is one; no other plug-in is read.

    Raises:
        UserError: if its file defines none, or several.
    """
    if cls := folders.given("methods", name):
        return _given(name, cls)
    file = part_files(folders).get(name)
    return part_in(file) if file else None


def hyperparameters_of(cls: type[Any]) -> dict[str, Any]:
    """Name -> default of every hyperparameter (the wrapped method is not one)."""
    return {field.name: field.default for field in fields(cls) if field.name != "inner"}


def _fields_of(name: str, folders: plugins.Folders) -> dict[str, Any]:
    """The hyperparameters of a known part."""
    return hyperparameters_of(part_in(part_files(folders)[name]).cls)


def code_of_hooks(part: Part) -> dict[str, str]:
    """The code of each hook that a part overrides, wherever its class has it from."""
    base = Method if issubclass(part.cls, Method) else ServerOptimizer
    bookkeeping = {"layers", "check"}
    hooks = [
        name
        for name, value in vars(base).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in bookkeeping
    ]
    theirs = [cls for cls in part.cls.__mro__ if cls.__name__ not in BASES]
    owners = {name: next((cls for cls in theirs if name in vars(cls)), None) for name in hooks}
    return {
        name: textwrap.dedent(inspect.getsource(vars(cls)[name]))
        for name, cls in owners.items()
        if cls is not None
    }


def describe(part: Part) -> dict[str, Any]:
    """A description of a part, as JSON values.

    Keys: name, kind, paper, hyperparameters, hooks (those that it overrides), divergences.
    """
    # A switch between paper and released code is listed as a deviation.
    deviations = part.cls.deviations()
    switches = {deviation.name for deviation in deviations}
    return {
        "name": part.name,
        "kind": part.kind,
        "paper": part.paper,
        "hyperparameters": {
            name: default
            for name, default in hyperparameters_of(part.cls).items()
            if name not in switches
        },
        "hooks": [*code_of_hooks(part)] if issubclass(part.cls, Method) else [],
        "deviations": [
            {
                "field": deviation.name,
                "paper": deviation.default,
                "released": deviation.metadata["released"],
                "item": deviation.metadata["item"],
                "why": deviation.metadata["why"],
            }
            for deviation in deviations
        ],
    }


def _make(part: Part, name: str, values: Mapping[str, Any]) -> Any:
    known = hyperparameters_of(part.cls)
    for key, value in values.items():
        if key not in known:
            choices = f"one of {', '.join(known)}" if known else "none: it has no hyperparameters"
            raise bad_value(f"method {name}", "hyperparameter", key, choices, known)
        default = known[key]
        if isinstance(default, float | int) and not isinstance(default, bool):
            whole = isinstance(default, int)
            right = int if whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, right):
                expected = "a whole number" if whole else "a number"
                raise bad_value(f"method {name}", key, value, expected)
            if not math.isfinite(value):
                raise bad_value(f"method {name}", key, value, "a finite number")
        elif default is None:
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise bad_value(f"method {name}", key, value, "a number or null")
        elif type(value) is not type(default):
            raise bad_value(f"method {name}", key, value, f"a {type(default).__name__}")
    return part.cls(**values)


@plugins.blamed()
def compose(
    composition: str,
    hyperparameters: Mapping[str, Mapping[str, Any]] | None = None,
    folders: plugins.Folders = plugins.NONE,
) -> tuple[Method, ServerOptimizer]:
    """The method and the server optimizer that a composition names.

    Args:
        composition: wrappers, then at most one method (FedAvg if none), then at most one server
            optimizer, joined by "+".
        hyperparameters: part -> its values; values that are not given keep their default.
        folders: plug-in folders, which are searched too.

    Raises:
        UserError: for unknown names or hyperparameters, a wrong order, a wrapper that cannot wrap
            the method, or a server optimizer after a method that does not use one.

    Examples:
        >>> from fedrepro.methods.registry import compose
        >>> method, optimizer = compose("ima+fedprox+fedadam", {"fedprox": {"mu": 0.5}})
        >>> [type(layer).__name__ for layer in method.layers()], method.inner.mu
        (['IMA', 'FedProx'], 0.5)
    """
    where = f"method {composition}"
    wrappers: list[tuple[str, Any]] = []
    method: Any = None
    optimizer: Any = None
    for named in Composition.parse(composition).parts:
        name = named.name
        known = part(name, folders)
        if known is None:
            raise unknown_part(where, "part", name, folders, partial(_fields_of, folders=folders))
        made = _make(known, name, (hyperparameters or {}).get(name, {}))
        if named.released:
            if not known.cls.deviations():
                raise bad_value(
                    where, "fidelity", f"{name}@released", "a part whose released code departs"
                )
            made = made.as_released()
        if known.kind == "server optimizer" and optimizer is None:
            optimizer = made
        elif known.kind in ("method", "pre-training") and method is None and (optimizer is None):
            method = made
        elif known.kind == "wrapper" and method is None and optimizer is None:
            wrappers.append((name, made))
        else:
            raise bad_value(
                where, "order", name, "wrappers, then one method, then one server optimizer"
            )
    if method is None:
        method = part_in(part_files(folders)["fedavg"]).cls()
    for name, wrapper in reversed(wrappers):
        reason = "its clients share no model" if method.own_classifier else None
        reason = reason if method.classifies else "it trains no classifier"
        reason = reason or wrapper.refuses(method) or _refused(wrapper, method)
        if reason:
            inner = type(method).__name__
            raise bad_value(
                where, "wrapper", name, f"a method that it can wrap, not {inner}: {reason}"
            )
        method = replace(wrapper, inner=method)
    if optimizer is not None and not all(layer.uses_server_optimizer for layer in method.layers()):
        inner, chosen = name_of(method), name_of(optimizer)
        expectation = f"none after {inner}, whose server follows no mean movement of models"
        raise bad_value(where, "server optimizer", chosen, expectation)
    return method, optimizer or ServerOptimizer()


# A hook of which a wrapper's own takes the place, and by what names that calls the one inside.
CALLS = {
    "client_update": {"client_update", "gradient", "loss"},
    "aggregation_weights": {"aggregation_weights"},
    "server_update": {"server_update"},
}
OF_UPDATES = ("aggregation_weights", "server_update")


def _refused(wrapper: Wrapper, inner: Method) -> str | None:
    """Return why a wrapper may not be around ``inner``: a hook of a user's would be lost."""
    cls, layers = type(wrapper), inner.layers()
    private = next((layer for layer in layers if layer.mechanism), None)
    if private and any(overrides(cls, hook) for hook in OF_UPDATES):
        return f"it would get updates without its noise: name it after {name_of(private)}"
    if overrides(cls, "apply_server_optimizer") and not overrides(cls, "server_update"):
        return "its server_update would never call the wrapper's apply_server_optimizer"
    for hook in CALLS:
        replaces = cls.sets_weights and hook == "aggregation_weights"
        if not (replaces or (overrides(cls, hook) and not _calls_inner(cls, hook))):
            continue
        for layer in layers:
            # A wrapper of the package says itself what it can't wrap of the package's.
            mine = overrides(cls, hook) or overrides(type(layer), hook)
            if mine and _defines(layer, hook):
                return f"the wrapper would never call the {hook} of {name_of(layer)}"
    return None


def _defines(layer: Method, hook: str) -> bool:
    """Return True if a layer depends on a hook of its own."""
    cls = type(layer)
    if hook == "aggregation_weights":
        # An author may say that other weights will do.
        owner = next(each for each in cls.__mro__ if hook in vars(each))
        return cls.sets_weights or (overrides(cls, hook) and "sets_weights" not in vars(owner))
    defaults = (*AVERAGING, Wrapper) if hook == "server_update" else (Method, Wrapper)
    names = CALLS[hook]
    return any(getattr(cls, each) not in [getattr(d, each) for d in defaults] for each in names)


def _calls_inner(cls: type[Wrapper], hook: str) -> bool:
    """Return False if a wrapper's hook can't call that inside, as its code has no name for it."""
    own = [each for each in cls.__mro__ if not issubclass(Wrapper, each)]
    functions = [
        each
        for owner in own
        for each in (*vars(owner).values(), *outside(functions_of(owner)).values())
    ]
    whole = _names_in(each for each in functions if inspect.isfunction(each))
    return bool(CALLS[hook] & whole or {"inner", "layers"} & _names_in([getattr(cls, hook)]))


def _names_in(functions: Iterable[Any]) -> set[str]:
    """The names in some functions' code, and its texts, which `getattr` may be given."""
    codes = (code for each in functions for code in codes_in(inspect.unwrap(each).__code__))
    return {
        text for code in codes for text in (*code.co_names, *code.co_consts) if type(text) is str
    }


def declared_by(source: Path | type[Any]) -> dict[str, Any]:
    """The attributes of ``Facts`` of a part's file or class.

    Raises:
        UserError: for a file that defines no part.
    """
    cls = part_in(source).cls if isinstance(source, Path) else source
    defaults, deviations = hyperparameters_of(cls), cls.deviations()
    released = {field.name: field.metadata["released"] for field in deviations}
    items = dict.fromkeys(str(field.metadata["item"]) for field in deviations)
    trains = issubclass(cls, Method) and not issubclass(cls, Wrapper)
    prefix = issubclass(cls, Wrapper) and cls.shared_prefix is not Method.shared_prefix
    return {
        "requires": tuple(getattr(cls, "requires", ())),
        "optional": tuple(getattr(cls, "optional", ())),
        "fields": tuple(defaults),
        "defaults": _plain(defaults),
        "released": _plain(defaults | released),
        "departures": tuple(items),
        "shares_prefix_with_inner": prefix,
        "steps": _steps_of(cls) if trains else "",
        "own_models": trains and _has_own_models(cls),
        "own_classifier": trains and cls.classifies and cls.own_classifier,
    }


def _has_own_models(cls: type[Method]) -> bool:
    own = cls.eval_model is not Method.eval_model
    return own and cls.classifies and not cls.own_classifier


def _steps_of(cls: type[Method]) -> str:
    if cls.centralized:
        return "pooled"
    if cls.interpolates:
        return "two models"
    hooks = ("loss", "gradient", "client_update")
    own = any(getattr(cls, hook) is not getattr(Method, hook) for hook in hooks)
    return "own" if own else "plain"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Those that YAML can express."""
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, bool | int | float | str)
    }
