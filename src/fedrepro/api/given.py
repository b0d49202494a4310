"""What a program gives :func:`fedrepro.train` as objects in place of plug-ins' files."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn, strided
from torch.utils.data import Dataset

from fedrepro.api.callbacks import Callback, EarlyStopping
from fedrepro.api.runs import Architecture, place_of
from fedrepro.api.stored_model import kept_by_clients
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.searches import values_in
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.modules import float_buffers
from fedrepro.measures.base import Measure
from fedrepro.methods import registry
from fedrepro.methods.facts import defaults_of, facts_of
from fedrepro.methods.files import part_files, unknown_part
from fedrepro.methods.personal.partly_shared import PartlyShared
from fedrepro.methods.registry import as_own, compose
from fedrepro.methods.server.base import ServerOptimizer
from fedrepro.models import registry as models
from fedrepro.models.pretrained import untrained
from fedrepro.run.results import manifest_in
from fedrepro.run.store import KEY, load_tree, refuse_other_constants
from fedrepro.support import rng
from fedrepro.support.errors import UserError, bad_value, nearest, refusal
from fedrepro.support.files import plain
from fedrepro.support.names import Composition
from fedrepro.support.plugins import NONE, Folders, Kind, classes_in, taken_name
from fedrepro.support.rng import drawing_on, stream

# How the parts of a run's code are called.
PART: Mapping[Kind, str] = {"losses": "loss", "measures": "measure", "methods": "method"}
WHERE = "fedrepro.train"
EXTRA = "_extra_state"  # the end of such a name in a state dict
Object = tuple[Kind, str, Any]
# The first argument of functions that take targets before outputs, as scikit-learn's do.
TARGETS = {"y_true", "target", "targets", "label", "labels", "truth"}
# What others call arguments, where it resembles no name here, or the wrong one.
ELSEWHERE = {
    "learning_rate": "lr", "client_lr": "lr", "random_state": "seed",
    "fraction": "participation", "client_fraction": "participation", "join_ratio": "participation",
    "fraction_fit": "participation", "fraction_train": "participation",
    "eval_every": "evaluate_every", "eval_gap": "evaluate_every", "test_every": "evaluate_every",
    "test_size": "test_fraction", "test_data": "test",
    "criterion": "loss", "loss_fn": "loss", "loss_function": "loss", "metrics": "measures",
    "scheduler": "lr_schedule", "lr_scheduler": "lr_schedule", "learning_rate_decay": "lr_decay",
    "early_stopping": "stop", "patience": "stop", "pos_weight": "class_weights",
    "val_fraction": "validation", "validation_fraction": "validation", "state_dict": "initial",
    "initial_parameters": "initial", "initial_weights": "initial",
}  # fmt: skip


def name_of(what: Any, otherwise: str) -> str:
    """The name of an object, or of its class."""
    name = getattr(what, "__name__", type(what).__name__)
    return name if name.isidentifier() else otherwise


def as_in_files(value: Any) -> Any:
    """Arguments with Python's numbers for numpy's, and a device's name for it, as in files."""
    match value:
        case torch.device():
            return str(value)
        case np.generic() | np.ndarray(shape=()):
            return value.item()
        case dict():
            return {key: as_in_files(item) for key, item in value.items()}
        case list() | tuple() | np.ndarray():  # an array has no truth value
            return tuple(map(as_in_files, value))
    return value


def several(values: Any) -> list[Any]:
    """The values of an argument that takes several, one of which needs no list; none for None."""
    if values is None:
        return []
    alone = isinstance(values, str) or callable(values) or not isinstance(values, Iterable)
    return [values] if alone or getattr(values, "ndim", 1) == 0 else [*values]


def clients_of(clients: Any) -> Any:
    """The samples of each client, as a list if an iterator gives them.

    Raises:
        UserError: for samples that are not shared out: one array, pair of arrays or data set.
    """
    if not isinstance(clients, Iterator | Dataset) and not hasattr(clients, "__len__"):
        wanted = "a list with (x, y), or a data set, for each client"
        raise bad_value(WHERE, "clients", clients, wanted)
    clients = [*clients] if isinstance(clients, Iterator) else clients
    parts = clients if isinstance(clients, list | tuple) else ()
    if isinstance(clients, Dataset) or any(hasattr(part, "shape") for part in (clients, *parts)):
        what = f"samples that are not shared out ({type(clients).__name__})"
        wanted = "a list with (x, y), or a data set, for each client"
        raise refusal(WHERE, f"clients: {what}: expected {wanted}", "clients")
    return clients


def listed(values: Any) -> Any:
    """An array or a tensor as a list."""
    return values.tolist() if hasattr(values, "tolist") else values


def objects_of(loss: Any, measures: Iterable[Any]) -> tuple[Object, ...]:
    """The objects in place of plug-ins: kind, name, object."""
    objects = [_measure(measure) for measure in measures]
    named = [name for _, name, _ in objects]
    if twice := [name for name in named if named.count(name) > 1]:
        wanted = "functions of different names, as columns are called by them"
        raise bad_value(WHERE, "measures", twice[0], wanted)
    if loss is None:
        return (*objects,)
    if not callable(loss) or isinstance(loss, type):
        wanted = "a function of outputs and targets, such as torch.nn.functional.huber_loss"
        wanted = f"an object of it, such as {loss.__name__}()" if isinstance(loss, type) else wanted
        raise bad_value(WHERE, "loss", loss, wanted)
    _refuse_targets_first("loss", loss)
    return (*objects, ("losses", name_of(getattr(loss, "func", loss), "loss"), loss))


def composition_of(method: Any) -> tuple[str, tuple[Object, ...]]:
    """A composition's name, and the classes in it in place of methods' files.

    Args:
        method: a name, a class, a module with a class, or several of them from the outermost
            wrapper to the server optimizer.

    Raises:
        UserError: for what is no part of a composition, and for the name of another part.
    """
    names, objects = [], list[Object]()
    for part in method if isinstance(method, list | tuple) else [method]:
        if isinstance(part, str):
            names.append(part)
            continue
        cls = _class_in(part)
        name = _snake(cls.__name__)
        if name in part_files():
            raise taken_name(f"{WHERE}: class {cls.__name__}", "methods", name)
        names.append(name)
        objects.append(("methods", name, as_own(cls, name)))
    return "+".join(names), (*objects,)


def _class_in(what: Any) -> type[Any]:
    bases = Method, ServerOptimizer
    classes = classes_in(what, *bases) if isinstance(what, ModuleType) else [what]
    one = classes[0] if len(classes) == 1 else None
    if not isinstance(one, type) or not issubclass(one, bases) or one in (*bases, Wrapper):
        wanted = "a name, or a class or a module with one class that extends Method or Wrapper"
        if isinstance(what, bases):
            wanted = f"the class {type(what).__name__}, with its hyperparameters as arguments here"
        raise bad_value(WHERE, "method", what, wanted)
    return one


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _measure(what: Any) -> Object:
    """A measure: a class that extends Measure, or a function of a client's outputs and targets."""
    if isinstance(what, type) and issubclass(what, Measure):
        return "measures", _snake(what.__name__), what
    if isinstance(what, type | Measure) or not callable(what):
        wanted = "functions of outputs and targets, or classes that extend Measure"
        raise bad_value(WHERE, "measures", what, wanted)
    _refuse_targets_first("measures", what)
    name = name_of(getattr(what, "func", what), "measure")
    words = {"words": name.replace("_", " "), "higher_is_better": True, "per": "client"}
    return "measures", name, type(name, (Measure,), {**words, "of_outputs": staticmethod(what)})


def _refuse_targets_first(key: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose first argument is the targets, as scikit-learn's measures have it."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        first = next(iter(inspect.signature(called).parameters), "")
    except (TypeError, ValueError):  # of some that are built in
        return
    if first in TARGETS:
        name = name_of(getattr(function, "func", function), key)
        wanted = f"outputs first: lambda outputs, targets: {name}(targets, outputs)"
        raise bad_value(WHERE, key, f"{name}({first}, ...)", wanted)


def names(objects: Iterable[Object], kind: Kind) -> list[str]:
    return [name for each, name, _ in objects if each == kind]


def factors_of(schedule: Any, rounds: Any) -> Any:
    """A schedule as a setting has it: the factors of a function of the round, counted from 0."""
    if isinstance(schedule, Set):
        raise bad_value(WHERE, "lr_schedule", schedule, "factors in an order, such as a list")
    if not callable(schedule) or not isinstance(rounds, Integral):
        return listed(schedule)
    try:
        return [float(schedule(round)) for round in range(int(rounds))]
    except Exception as error:  # of the user's code
        wanted = f"a function of the round that returns a factor: {type(error).__name__}: {error}"
        raise bad_value(WHERE, "lr_schedule", schedule, wanted) from error


def stop_of(stop: Any, callbacks: Iterable[Callback]) -> Any:
    """What ends a run, by the argument or by a callback."""
    stops = [callback.stop for callback in callbacks if isinstance(callback, EarlyStopping)]
    if len(stops) + (stop is not None) > 1:
        raise refusal(WHERE, "stop: given more than once, perhaps by EarlyStopping", "stop")
    return stops[0] if stops else stop


def refuse_unscored(objects: Iterable[Object], share: float) -> None:
    """Refuse a measure of clients' outputs where clients hold out no test samples.

    Raises:
        UserError: for it.
    """
    for kind, name, each in objects:
        if kind != "measures" or share or each.per != "client":
            continue
        if each.of_outputs is not Measure.of_outputs:
            wanted = f"above 0 with measure {name}, which needs test samples of each client"
            raise bad_value(WHERE, "test_fraction", share, wanted)


def starting_from(
    model: Any, build: Callable[..., Any] | None, initial: Any, seed: int
) -> Callable[[tuple[int, ...], int], Any]:
    """A function that builds a model with initial weights.

    Args:
        model: its name, if ``build`` does not build it.
        initial: a state dict or a module with one, or the path of a file of safetensors.
        seed: of the run.

    Raises:
        UserError: for other files, also when it builds a module that lacks one of the tensors, or
            has others, or frozen ones that are drawn in each run.
    """
    given = _state_of(initial) if isinstance(initial, nn.Module) else initial
    extra = _extra_state(given)
    tensors, facts = _tensors(given)

    def built(shape: tuple[int, ...], outputs: int) -> nn.Module:
        if build is None:
            return models.build(model, shape, outputs)
        return models.made("model", build, shape, outputs)

    def made(shape: tuple[int, ...], outputs: int) -> Any:
        module = built(shape, outputs)
        wanted = _state_of(module)
        own = _extra_state(wanted)
        if name := next((name for name in extra if not _same(extra[name], own.get(name))), ""):
            raise bad_value(
                WHERE, f"initial.{name}", extra[name], f"{own.get(name)!r}, the model's"
            )
        for name, leaf in wanted.items():
            if name in tensors and tensors[name].shape != leaf.shape:
                shapes = [*tensors[name].shape], [*leaf.shape]
                raise bad_value(WHERE, f"initial.{name}", shapes[0], f"the shape {shapes[1]}")
            if name in tensors and tensors[name].is_complex() > leaf.is_complex():
                raise bad_value(WHERE, f"initial.{name}", str(tensors[name].dtype), "real numbers")
        for name in tensors.keys() - wanted.keys():
            raise bad_value(WHERE, "initial", name, "a tensor of the model", wanted)
        # Tied weights have two names, of which one will do; counters are of no run.
        needed = {**dict(module.named_parameters()), **float_buffers(module)}
        before = {name: needed[name].detach().clone() for name in needed.keys() & wanted.keys()}
        module.load_state_dict(tensors, strict=False)  # of its class, which may replace tensors
        needed |= {**dict(module.named_parameters()), **float_buffers(module)}
        lacking = {
            name
            for name, leaf in before.items()
            if needed[name].equal(leaf)
            and not (name in tensors and leaf.equal(tensors[name].to(leaf)))
        }
        if lacking and facts:  # a run's file, without what training cannot change
            with drawing_on(stream(seed, "init")), untrained():  # as in the run
                refuse_other_constants(built(shape, outputs), tensors, facts, f"{WHERE}: initial")
        elif lacking:
            with rng.seeded(seed + 1):
                again = dict(built(shape, outputs).named_parameters())
            for name in sorted(lacking):
                leaf = needed[name]
                frozen = isinstance(leaf, nn.Parameter) and not leaf.requires_grad
                if not frozen or not leaf.equal(again[name]):
                    why = f"initial: no {name}{nearest(name, tensors)}"
                    raise refusal(WHERE, why, f"initial.{name}", code="missing")
        return module

    return made


def _state_of(module: nn.Module) -> dict[str, Any]:
    """The state dict of a module, with what its class leaves out of it."""
    own = module.state_dict()
    whole = {**dict(module.named_parameters()), **nn.Module.state_dict(module)}
    return {**whole, **own} if own.keys() <= whole.keys() else own  # which may be other names


def _extra_state(initial: Any) -> dict[str, Any]:
    """The entries of a state dict that `get_extra_state` of modules made, but for tensors."""
    items = initial.items() if isinstance(initial, Mapping) else ()
    of_modules = ((name, state) for name, state in items if str(name).endswith(EXTRA))
    return {name: state for name, state in of_modules if not isinstance(state, Tensor)}


def _same(one: Any, other: Any) -> bool:
    """Return True for equal extra states; False if they can't be compared."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    with suppress(Exception):
        return np.array_equal(one, other)
    return False


def _tensors(initial: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of initial weights; if a run wrote their file, what it says of them."""
    if isinstance(initial, Mapping):
        initial = {name: initial[name] for name in initial if name not in _extra_state(initial)}
        for name, leaf in initial.items():
            if not isinstance(leaf, Tensor):
                wanted = "a tensor: of a checkpoint, pass the state dict in it"
                raise bad_value(WHERE, f"initial.{name}", type(leaf).__name__, wanted)
            if leaf.is_meta or leaf.layout != strided:
                kind = "meta" if leaf.is_meta else str(leaf.layout)
                raise bad_value(WHERE, f"initial.{name}", kind, "a dense tensor with numbers")
        return {name: leaf.detach().cpu().clone() for name, leaf in initial.items()}, {}
    file = place_of(initial, WHERE, "initial", "a state dict, or a file of safetensors")
    try:
        with safe_open(plain(file), framework="pt") as opened:
            ours = KEY in (opened.metadata() or {})
        if ours:
            _require_shared(file)
        return load_tree(file) if ours else (load_file(file), {})
    except (SafetensorError, OSError, ValueError) as error:
        said = f"can't be read as safetensors: {str(error).partition(chr(10))[0]}"
        raise refusal(WHERE, f"initial: {initial}: {said}", "initial", code="unreadable") from None


def _require_shared(file: Path) -> None:
    """Refuse the file of a run whose clients share no model, which has what they began with."""
    try:
        made = manifest_in(file.parent)
    except (FileNotFoundError, ValueError):  # a copy
        return
    if file.name in made["files"] and (kept := kept_by_clients(made, NONE)):
        what = "no model" if kept == "all" else "a part of it only"
        line = f"initial: {file}: clients shared {what}: the rest is as that run began"
        if kept == "all":
            raise refusal(WHERE, line, "initial", code="missing")
        warnings.warn(line, stacklevel=7)  # of who called fedrepro.train


def by_part(
    composition: str, values: Mapping[str, Any], plugins: Folders, arguments: list[str]
) -> dict[str, dict[str, Any]]:
    """Hyperparameters by part of the composition, of names such as mu or fedprox.mu.

    Raises:
        UserError: for an unknown part, for a name with values, which are arguments here, and for a
            hyperparameter that no part or more than one part has.
    """
    known = registry.parts(plugins)
    names = Composition.parse(composition).names
    for name in (name for name in names if name not in known):
        for part in (part for part in known if name.startswith(f"{part}_")):
            if said := values_in(name.removeprefix(part), defaults_of(part)):
                given = ", ".join(f"{key}={value}" for key, value in said.items())
                raise bad_value(WHERE, "method", name, f"{part}, with {given} as arguments")
        raise unknown_part(WHERE, "method", name, NONE, defaults_of)
    fields = {name: registry.hyperparameters_of(known[name].cls) for name in names}
    by_part: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in values.items():
        having = [
            (name, field)
            for name, own in fields.items()
            for field in own
            if key in (field, f"{name}.{field}")
        ]
        if len(having) != 1:
            choices = sorted({field for own in fields.values() for field in own})
            such = f", as {', '.join(choices)}" * bool(choices)
            choices += arguments
            wanted = f"an argument of train, or a hyperparameter of one part{such}"
            ours = ELSEWHERE.get(key, key)
            close = f"; did you mean {ours!r}?" if ours in choices else nearest(ours, choices)
            why = f"hyperparameter: {key!r}: expected {wanted}{close}"
            raise refusal(WHERE, why, key, code="unknown_key")
        ((part, field),) = having
        by_part[part][field] = value
    return by_part


def unscored(spec: RunSpec) -> str:
    """A line for a method whose clients have models of their own, where no client is scored."""
    method, _ = compose(spec.composition, spec.hyperparameters, spec.plugins)
    in_part = any(isinstance(layer, PartlyShared) for layer in method.layers())
    if in_part or not facts_of(spec.composition, spec.plugins).own_models:
        return ""
    return (
        f"method {spec.method}: test_accuracy is of the shared model; clients' own have "
        "client_accuracy, for which each client holds out test samples: `test_fraction=0.2`"
    )


def stopped_by_shared(spec: RunSpec) -> str:
    """A line for such a method in a run with test samples of no client, which is to stop by them.

    Without them, the score that counts is of clients' own models.
    """
    if not spec.setting.stop or not facts_of(spec.composition, spec.plugins).own_models:
        return ""
    return (
        f"method {spec.method}: stop: with `test`, the shared model's score counts, which may not "
        "move; without it, that of clients' own models"
    )


def builder(model: "Architecture") -> "Architecture":
    """A function or a class that is called with a sample's shape and the number of outputs.

    One that cannot take them is called without. So is one that needs no arguments, unless its first
    is called a shape, or it is a function with a default of None, which waits for a value.

    Raises:
        UserError: if it needs others, and from its call if it cannot use them.
    """
    name = getattr(model, "__name__", type(model).__name__)
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):  # of `int` and others that are built in
        raise bad_value(WHERE, "model", model, "a function that returns a module") from None
    first = next(iter(signature.parameters.values()), None)
    waits = first is None or first.kind is first.VAR_POSITIONAL or "shape" in first.name
    unset = any(parameter.default is None for parameter in signature.parameters.values())
    waits |= unset and inspect.isfunction(model)
    alone = _takes(signature, 0) and not waits
    given = 0 if alone or not _takes(signature, 2) else 2
    wanted = "pass an instance, or a function of a sample's shape and the outputs' number"
    if not _takes(signature, given):
        why = f"model {name}{signature}: needs other arguments: {wanted}"
        raise refusal(WHERE, why, "model")

    def build(shape: Any, outputs: int) -> "nn.Module":
        arguments = (shape, outputs)[:given]
        try:
            return model(*arguments)
        except UserError:
            raise
        except Exception as error:
            why = f"model {name}{arguments}: {error}: {wanted}"
            raise refusal(WHERE, why, "model") from error

    return build


def _takes(signature: inspect.Signature, count: int) -> bool:
    """Return True if a call with so many arguments is possible."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
