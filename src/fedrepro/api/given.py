"""What a program gives :func:`fedrepro.train` as objects in place of plug-ins' files."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fedrepro.api.callbacks import Callback, EarlyStopping
from fedrepro.measures.base import Measure
from fedrepro.support.errors import UserError, bad_value, nearest
from fedrepro.support.plugins import Kind, classes_in

# How the parts of a run's code are called.
PART: Mapping[Kind, str] = {"losses": "loss", "measures": "measure", "methods": "method"}
WHERE = "fedrepro.train"
Object = tuple[Kind, str, Any]


def name_of(what: Any, otherwise: str) -> str:
    """The name of an object, or of its class."""
    name = getattr(what, "__name__", type(what).__name__)
    return name if name.isidentifier() else otherwise


def listed(values: Any) -> Any:
    """An array or a tensor as a list."""
    return values.tolist() if hasattr(values, "tolist") else values


def objects_of(loss: Any, measures: Iterable[Any]) -> tuple[Object, ...]:
    """The objects in place of plug-ins: kind, name, object."""
    found = [_measure(each) for each in measures]
    if loss is None:
        return (*found,)
    if not callable(loss):
        wanted = "a function of outputs and targets, such as torch.nn.functional.huber_loss"
        raise bad_value(WHERE, "loss", loss, wanted)
    return (*found, ("losses", name_of(getattr(loss, "func", loss), "loss"), loss))


def composition_of(method: Any) -> tuple[str, tuple[Object, ...]]:
    """A composition's name, and the classes in it in place of methods' files.

    Args:
        method: a name, a class, a module with a class, or several of them from the outermost
            wrapper to the server optimizer.

    Raises:
        UserError: for what is no part of a composition, and for the name of another part.
    """
    from fedrepro.methods.files import part_files
    from fedrepro.methods.registry import as_own

    names, objects = [], list[Object]()
    for each in method if isinstance(method, list | tuple) else [method]:
        if isinstance(each, str):
            names.append(each)
            continue
        cls = _class_in(each)
        name = _snake(cls.__name__)
        if name in part_files():
            raise UserError(f"{WHERE}: class {cls.__name__}: rename it: method {name} is built in")
        names.append(name)
        objects.append(("methods", name, as_own(cls, name)))
    return "+".join(names), (*objects,)


def _class_in(what: Any) -> type[Any]:
    from fedrepro.engine.method import Method
    from fedrepro.methods.server.base import ServerOptimizer

    bases = Method, ServerOptimizer
    found = classes_in(what, *bases) if isinstance(what, ModuleType) else [what]
    if len(found) != 1 or not isinstance(found[0], type) or not issubclass(found[0], bases):
        wanted = "a name, or a class or a module with one class that extends Method or Wrapper"
        raise bad_value(WHERE, "method", what, wanted)
    return found[0]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _measure(what: Any) -> Object:
    """A measure: a class that extends Measure, or a function of a client's outputs and targets."""
    if isinstance(what, type) and issubclass(what, Measure):
        return "measures", _snake(what.__name__), what
    if isinstance(what, type | Measure) or not callable(what):
        wanted = "functions of outputs and targets, or classes that extend Measure"
        raise bad_value(WHERE, "measures", what, wanted)
    name = name_of(what, "measure")
    words = {"words": name.replace("_", " "), "rising": True, "per": "client"}
    return "measures", name, type(name, (Measure,), {**words, "of_outputs": staticmethod(what)})


def names(objects: Iterable[Object], kind: Kind) -> list[str]:
    return [name for each, name, _ in objects if each == kind]


def factors_of(schedule: Any, rounds: Any) -> Any:
    """A schedule as a setting has it: the factors of a function of the round, counted from 0."""
    if callable(schedule) and isinstance(rounds, int):
        return [float(schedule(round)) for round in range(rounds)]
    return listed(schedule)


def stop_of(stop: Any, callbacks: Iterable[Callback]) -> Any:
    """What ends a run, by the argument or by a callback."""
    found = [callback.stop for callback in callbacks if isinstance(callback, EarlyStopping)]
    if len(found) + (stop is not None) > 1:
        raise UserError(f"{WHERE}: stop: given more than once, perhaps by EarlyStopping")
    return found[0] if found else stop


def starting_from(
    model: Any, build: Callable[..., Any] | None, initial: Any
) -> Callable[[tuple[int, ...], int], Any]:
    """A function that builds a model with initial weights.

    Args:
        model: its name, if ``build`` does not build it.
        initial: a state dict, or the path of a file of safetensors.

    Raises:
        UserError: for other files, also when it builds a module that lacks one of the tensors, or
            has others.
    """
    from fedrepro.models import registry

    tensors = _tensors(initial)

    def made(shape: tuple[int, ...], outputs: int) -> Any:
        if build is None:
            module = registry.build(model, shape, outputs)
        else:
            module = registry.made("model", build, shape, outputs)
        wanted = module.state_dict()
        frozen = {name for name, leaf in module.named_parameters() if not leaf.requires_grad}
        for name, leaf in wanted.items():
            if name in tensors and tensors[name].shape != leaf.shape:
                shapes = [*tensors[name].shape], [*leaf.shape]
                raise bad_value(WHERE, f"initial.{name}", shapes[0], f"the shape {shapes[1]}")
            # A run keeps neither counters nor what is frozen.
            if name not in tensors and name not in frozen and leaf.is_floating_point():
                raise UserError(f"{WHERE}: initial: no {name}{nearest(name, tensors)}")
        for name in tensors.keys() - wanted.keys():
            raise bad_value(WHERE, "initial", name, "a tensor of the model", wanted)
        module.load_state_dict(tensors, strict=False)
        return module

    return made


def _tensors(initial: Any) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if isinstance(initial, Mapping):
        return {name: leaf.detach().cpu().clone() for name, leaf in initial.items()}
    if not isinstance(initial, str | Path):
        raise bad_value(WHERE, "initial", initial, "a state dict, or a file of safetensors")
    try:
        return dict(load_file(initial))
    except (SafetensorError, OSError, ValueError) as error:
        said = f"can't be read as safetensors: {str(error).partition(chr(10))[0]}"
        raise UserError(f"{WHERE}: initial: {initial}: {said}") from None
