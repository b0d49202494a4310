"""The identity of a model that is given as an object: two have the same one if they compute alike.

A finished run is reused for the same model only. A module is known by its class and everything that
it holds: tensors by their bytes, functions by their code and what this refers to, objects of your
classes by their attributes. Installed packages are known by name and version.
"""

import builtins
import dis
import enum
import functools
import hashlib
import importlib.util
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.utils.hooks import RemovableHandle

from fedrepro.api.user_modules import (
    file_of,
    imports_of,
    is_binary,
    is_in_packages,
    is_installed,
    version_of,
)
from fedrepro.check.traces import codes_in

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype, range, slice)
CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset)
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
# By which a function reads what it does not name.
UNSEEN = {"__import__", "eval", "exec", "globals", "import_module"}
# By which it may take attributes of a module that it imports itself and does not name.
UNNAMED = {"__dict__", "attrgetter", "getattr", "getmembers", "vars"}
# Attributes by which `torch.compile` holds what it compiled, and its caches.
COMPILED = (
    "_torchdynamo_orig_callable", "dynamo_ctx", "_torchdynamo_wrapper_id", "forward",
    "get_compiler_config",
)  # fmt: skip
# Attributes of classes that say nothing of what they do, or count classes.
UNSAID = {
    "__abstractmethods__", "__annotate_func__", "__annotations__", "__annotations_cache__",
    "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__", "__firstlineno__",
    "__match_args__", "__module__", "__orig_bases__", "__parameters__", "__qualname__",
    "__slotnames__", "__static_attributes__", "__weakref__", "_abc_impl", "_autograd_function_id",
}  # fmt: skip


class UnknownError(Exception):
    """Something that cannot be compared, such as a lock or an open file."""


def identity_of(module: nn.Module, weights: bool) -> str:
    """A hash of a module and everything that it refers to.

    Args:
        weights: whether its parameters count by value. Those of a part with ``keeps_weights`` do in
            any case.

    Raises:
        UnknownError: if it holds something that cannot be compared.
    """
    walk = _Walk(weights)
    try:
        walk.add(module)
    except UnknownError:
        raise
    except Exception as error:  # of anybody's property or __reduce__, or a depth of 1,000
        raise UnknownError(f"{type(error).__name__}: {error}") from error
    return walk.digest.hexdigest()


class _Walk:
    """Adds values to a hash, each object once.

    Attributes:
        digest: of what has been added.
    """

    def __init__(self, weights: bool) -> None:
        self.digest = hashlib.sha256()
        self._weights = weights
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # an id may be given anew to another object
        self._whole: set[str] = set()  # modules of which all counts

    def add(self, value: Any, named: bool = False) -> None:
        """Add a value; of a module, all it may use if nobody says which ``named`` part is used."""
        if self._add_plain(value):
            return
        if isinstance(value, types.ModuleType) and not named:
            self._add_used_by(value)
        if id(value) in self._numbers:
            self._say("again", self._numbers[id(value)])
            return
        if not isinstance(value, tuple | frozenset | types.CodeType):  # equal ones may be one
            self._numbers[id(value)] = len(self._alive)
            self._alive.append(value)
        self._add_object(value)

    def _say(self, *words: object) -> None:
        for word in words:
            text = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
            self.digest.update(b"%d:" % len(text))
            self.digest.update(text)

    def _each(self, what: str, *values: Any) -> None:
        self._say(what, len(values))
        for value in values:
            self.add(value)

    def _add_plain(self, value: Any) -> bool:
        if type(value) in PLAIN:
            self._say(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        elif isinstance(value, NAMED) or type(value) is torch.Size:
            self._say(type(value).__name__, repr(value))
        elif isinstance(value, enum.Enum):
            self._say("member", value.name)
            self.add(type(value))
        elif isinstance(value, np.generic) and value.dtype != object:
            self._say("number", value.dtype.str, value.tobytes())
        else:
            return False
        return True

    def _add_object(self, value: Any) -> None:
        match value:
            case Tensor():
                self._add_tensor(value)
            case np.ndarray() if value.dtype != object:
                self._say("array", value.dtype.descr, value.shape, value.tobytes())
            case np.ndarray():
                self._each("array", value.shape, value.tolist())
            case nn.Module():
                self._add_module(value)
            case types.CodeType():
                self._add_code(value)
            case types.FunctionType() if COMPILED[0] in vars(value):
                self.add(vars(value)[COMPILED[0]])
            case types.FunctionType():
                self._add_function(value)
            case types.MethodType():
                self._each("method", value.__func__, value.__self__)
            case types.BuiltinFunctionType():
                bound = value.__self__
                self._say("built in", value.__module__, version_of(value.__module__))
                self._each(value.__name__, None if isinstance(bound, types.ModuleType) else bound)
            case types.CellType():
                self._each("cell", *_content_of(value))
            case types.ModuleType():
                self._say("module", value.__name__, version_of(value.__name__))
            case type():
                self._add_class(value)
            case weakref.ReferenceType():
                self._each("reference", value())
            case RemovableHandle():
                self._say("handle")
            case functools.partial():
                self._each("partial", value.func, value.args, value.keywords, vars(value))
            case staticmethod() | classmethod():
                self._each(type(value).__name__, value.__func__)
            case property():
                self._each("property", value.fget, value.fset, value.fdel)
            case functools.cached_property():
                self._each("cached property", value.func)
            case functools._lru_cache_wrapper():
                self._each("cached", value.__wrapped__)
            case types.MappingProxyType():
                self._each("view", dict(value))
            case (
                types.MemberDescriptorType()
                | types.GetSetDescriptorType()
                | types.MethodDescriptorType()
                | types.WrapperDescriptorType()
                | types.ClassMethodDescriptorType()
            ):
                self._each("descriptor", value.__name__, value.__objclass__)
            case np.ufunc():
                self._say("ufunc", value.__name__)
            case torch.Generator():
                self._each("generator", value.device, value.get_state())
            case _:
                self._add_instance(value)

    def _add_tensor(self, tensor: Tensor) -> None:
        """Dtype, shape, whether it is trained, and the bytes if they are not drawn by the run."""
        kind = type(tensor)
        if kind.__module__.partition(".")[0] != "torch":
            raise UnknownError(f"a tensor of type {kind.__name__}")
        self._say("tensor", kind.__name__, tensor.dtype, tensor.requires_grad)
        if isinstance(tensor, UninitializedTensorMixin):
            return
        self._say(tuple(tensor.shape))
        held = {key: each for key, each in vars(tensor).items() if not key.startswith("_dynamo_")}
        if held:
            self._each("attributes", held)
        drawn = isinstance(tensor, nn.Parameter) and not self._weights
        if drawn or tensor.device.type == "meta":
            return
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise UnknownError("a sparse or quantised tensor")
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self._say(plain.view(torch.uint8).numpy().tobytes())

    def _add_module(self, module: nn.Module) -> None:
        """Class, attributes, buffers, hooks and parts; of parameters as much as is kept of them."""
        before = self._weights
        self._weights = before or bool(getattr(module, "keeps_weights", False))
        self.add(type(module))
        of_compiler = COMPILED if COMPILED[1] in vars(module) else ()
        for name in sorted(vars(module).keys() - {*of_compiler}):
            value = vars(module)[name]
            if isinstance(value, Mapping) and "_hooks" in name:  # by numbers that are counted on
                self._each(name, *value.values())
            else:  # a run sets the mode itself
                self._each(name, True if name == "training" else value)
        self._weights = before

    def _add_function(self, function: types.FunctionType) -> None:
        """Code, defaults, closure and attributes; of your own also the globals that it names."""
        self.add(function.__code__)
        self._each("defaults", function.__defaults__, function.__kwdefaults__)
        self._each("closure", *(function.__closure__ or ()))
        self._each("attributes", vars(function))
        space = function.__globals__
        if is_installed(space.get("__name__")):
            self._say(space["__name__"], version_of(space["__name__"]))
            return
        named = _names(function.__code__)
        all_named = set[str]().union(*named.values())
        attributes = {name for kind in ATTRIBUTES for name in named.get(kind, ())}
        unseen = UNSEEN & all_named
        if space.get("sys") is sys and "modules" in attributes:
            unseen = {"sys.modules"}
        if unseen:
            raise UnknownError(f"a function with `{min(unseen)}`, by which it may read anything")
        whole = _passed_on(function.__code__)
        for name in sorted({name for kind in GLOBALS for name in named.get(kind, ())}):
            if name in space:
                self._say(name, 1)
                self.add(space[name], named=name not in whole)
                self._add_used(space[name], attributes)
            elif not hasattr(builtins, name):
                self._say("undefined", name)
        for name in sorted(named.get("IMPORT_NAME", ())):
            module = _imported(name, space.get("__package__"))
            if module and UNNAMED & all_named:
                self.add(module)
            self._add_used(module, attributes)

    def _add_used_by(self, module: types.ModuleType) -> None:
        """Add the files of yours that a module of yours imports, directly or not."""
        name, file = module.__name__, file_of(module.__name__)
        if name in self._whole or is_installed(name) or file is None or file.suffix != ".py":
            return
        self._whole.add(name)
        for other in imports_of(file, module.__package__ or ""):
            self._say("used", other.__name__, version_of(other.__name__))
            self._add_used_by(other)

    def _add_used(self, module: object, attributes: set[str]) -> None:
        """Add what a function may take from a module of yours: by the names of its attributes."""
        if not isinstance(module, types.ModuleType) or is_installed(module.__name__):
            return
        for name in sorted(attributes & vars(module).keys()):
            inner = vars(module)[name]
            self._each(f"{module.__name__}.{name}", inner)
            if inner is not module and isinstance(inner, types.ModuleType):
                self._add_used(inner, attributes)

    def _add_code(self, code: types.CodeType) -> None:
        """Add code without names of files and numbers of lines."""
        self._say("code", code.co_code, code.co_flags, code.co_exceptiontable)
        self._say(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self._say(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._each("constants", *code.co_consts)

    def _add_class(self, cls: type) -> None:
        """Add an installed class by name; your own by its bases and everything in its body."""
        name = f"{_module_of(cls)}.{cls.__qualname__}"
        if is_installed(_module_of(cls)) and _is_found(cls):
            self._say("class", name, version_of(_module_of(cls)))
            return
        self._each("class", type(cls), *cls.__bases__)
        for key, value in sorted(vars(cls).items()):
            if key not in UNSAID:
                self._each(key, value)

    def _add_instance(self, value: Any) -> None:
        """Add a container's content, and attributes; of other installed classes as pickle has it.

        Raises:
            UnknownError: if the class has no way to say what an instance holds.
        """
        cls = type(value)
        base = next((base for base in CONTAINERS if isinstance(value, base)), None)
        self.add(cls)
        if base in (set, frozenset):
            self._say("members", *sorted(map(self._alone, value)))
        elif base is dict:
            items = OrderedDict.items if isinstance(value, OrderedDict) else dict.items
            self._each("items", *(part for item in items(value) for part in item))
        elif base is not None:
            self._each("items", *(list if base is list else tuple).__iter__(value))
        own = not is_installed(_module_of(cls))
        if cls not in CONTAINERS and (not own or _holds_more(cls)):
            try:
                reduced = value.__reduce_ex__(4)
            except TypeError as error:
                raise UnknownError(f"a {_module_of(cls)}.{cls.__qualname__}: {error}") from error
            if isinstance(reduced, tuple):  # the fourth and fifth iterate over what it contains
                ends = (list(part) if part is not None else None for part in reduced[3:5])
                reduced = (*reduced[:3], *ends, *reduced[5:])
            self._each("reduced", reduced)
        if own:
            self._each("attributes", getattr(value, "__dict__", None), *_slots_of(value))

    def _alone(self, value: Any) -> str:
        """The hash of a member of a set, which has no place among the others."""
        walk = _Walk(self._weights)
        walk.add(value)
        return walk.digest.hexdigest()


def _module_of(cls: type) -> str:
    return cls.__module__ if isinstance(cls.__module__, str) else builtins.__name__


def _content_of(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not filled yet
        return []


def _names(code: types.CodeType) -> dict[str, set[str]]:
    """By operation, the names that some code, and functions inside of it, take."""
    names: dict[str, set[str]] = {}
    for part in codes_in(code):
        for instruction in dis.get_instructions(part):
            if isinstance(instruction.argval, str):
                names.setdefault(instruction.opname, set()).add(instruction.argval)
    return names


def _passed_on(code: types.CodeType) -> set[str]:
    """The global names that some code, or a function inside of it, uses without an attribute.

    Of a module that it passes on, it may take any.
    """
    names = set[str]()
    for part in codes_in(code):
        instructions = list(dis.get_instructions(part))
        for one, following in zip(instructions, [*instructions[1:], None], strict=True):
            if one.opname in GLOBALS:
                attribute = following and following.opname in ATTRIBUTES and following.argval
                if not attribute or attribute.startswith("__"):
                    names.add(one.argval)
    return names


def _imported(name: str, package: str | None) -> types.ModuleType | None:
    """The module that an import inside of a function loads; None if an installed one would be.

    Raises:
        UnknownError: for a module of yours that has not been loaded yet.
    """
    for full in (name, f"{package}.{name}"):
        if full in sys.modules:
            return sys.modules[full]
    top = name.partition(".")[0]
    spec = None if not top or top in sys.stdlib_module_names else importlib.util.find_spec(top)
    if top not in sys.stdlib_module_names and not (spec and is_in_packages(spec.origin or "")):
        raise UnknownError(f"a function that imports {name or package}")
    return None


def _slots_of(value: object) -> Iterator[tuple[str, Any]]:
    for cls in type(value).__mro__:
        for name, slot in sorted(vars(cls).items()):
            if isinstance(slot, types.MemberDescriptorType) and hasattr(value, name):
                yield name, getattr(value, name)


def _holds_more(cls: type) -> bool:
    """Return True if instances of your class hold more than attributes, as with a base in C."""
    installed = (base for base in cls.__mro__ if is_installed(_module_of(base)))
    return is_binary(_module_of(cls)) or any(
        base not in (object, *CONTAINERS) for base in installed
    )


def _is_found(cls: type) -> bool:
    """Return True if a class is in its module under its name: not one that a function made."""
    place: Any = sys.modules.get(_module_of(cls))
    for name in cls.__qualname__.split("."):
        place = getattr(place, name, None)
    return place is cls
