"""Check a method of the user's own before it produces a wrong number.

A method is checked in its first rounds. The checks run outside the method: they compare a hook's
arguments before and after the call and inspect what it returns. They do not change a bit of the
run. Inspecting a model takes as long as copying it, so only the first client's round is checked in
full, and nothing from round 2 on.

Each mistake gives one line: the file and line, the hook, what it did, what to do instead.
"""

import copy
import inspect
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Executor, Outcome, Training, lone_sample, vectorised
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.round import Federation, choose_cohort, without_metrics
from fedrepro.engine.tree import Tree
from fedrepro.run.assembly import Plan
from fedrepro.run.own_models import GENERATORS
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value

ROUNDS = 2  # in the second, clients and the server have states

# Hooks that get a context and whose effects can be checked.
WATCHED = (
    "init_server", "init_client", "sample_round", "learning_rate", "broadcast", "sample_steps",
    "loss", "gradient", "client_update", "aggregation_weights", "server_update",
    "apply_server_optimizer", "update_bytes", "client_model", "eval_model", "artifact", "metrics",
    "images", "interpolate", "ensemble",
)  # fmt: skip
EVERY_STEP = ("loss", "gradient")  # called so often that only their result is checked

Structure = dict[str, tuple[tuple[int, ...], torch.dtype]]


def watched(federation: Federation, every: bool = False) -> Federation:
    """The same federation with its plug-in methods (``every``: all methods) under checks.

    The hooks then raise:
        UserError: one line, about a mistake that the method's author has to fix.
    """
    method = _watched(federation.method, every)
    if method is federation.method:
        return federation
    execute = federation.execute
    if execute is vectorised:  # compiled: it runs the hooks unchecked
        execute = partial(_executed, federation.method, execute)
    return replace(federation, method=method, execute=execute)


@contextmanager
def float32_by_default() -> Iterator[None]:
    """A context that begins and ends with float32 as torch's default, in which runs compute.

    Raises:
        UserError: if a plug-in or the calling program has set another one.
    """
    _refuse_dtype(torch.get_default_dtype())
    try:
        yield
    finally:
        found = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        _refuse_dtype(found)


def _refuse_dtype(found: torch.dtype) -> None:
    if found is torch.float32:
        return
    files = (str(each.__file__) for name, each in [*sys.modules.items()] if plugins.is_own(name))
    setting = (file for file in files if b"set_default_dtype" in plugins.content_of(Path(file)))
    where = next(setting, "this program")
    expected = "torch.float32, in which all of a process's runs compute: give `dtype` to layers"
    raise bad_value(where, "torch.set_default_dtype", found, expected)


def refuse_lone_samples(plan: Plan) -> None:
    """Refuse a client whose last mini-batch is one sample that BatchNorm cannot normalise.

    Before the first round, not in the round that first asks such a client.

    Raises:
        UserError: with the client and its round.
    """
    federation = plan.federation
    net, sizes, width = federation.context.net, federation.clients.sizes, federation.batch_size
    lone = {client for client, size in enumerate(sizes) if size % width == 1 or width == 1}
    if not lone or not net.mixes_samples or not federation.method.classifies:
        return
    x, _ = federation.clients.samples.at(federation.clients.rows(min(lone))[:1])
    if not net.refuses_to_train_on(x):
        return
    for round in range(federation.context.rounds):
        for client in lone.intersection(choose_cohort(federation, round)):
            available = federation.availability
            if not available or available.steps_done(round, client) * width >= sizes[client]:
                raise lone_sample(width, sizes[client], f"client {client} (round {round + 1})")


def _watched(method: Method, every: bool) -> Method:
    inner = _watched(method.inner, every) if isinstance(method, Wrapper) else None
    mine = every or plugins.is_own(type(method).__module__)
    if not mine and inner is (method.inner if isinstance(method, Wrapper) else None):
        return method
    made = copy.copy(method)
    if inner is not None:
        object.__setattr__(made, "inner", inner)
    if mine:
        watch = Watch(made)
        for name in WATCHED:
            # An attribute of the object takes precedence over a method of its class.
            object.__setattr__(made, name, watch.over(name))
    return made


def _executed(method: Method, execute: Executor, training: Training) -> Outcome:
    """Clients side by side, trained by ``method`` itself instead of the checked one."""
    mine = next(each for each in method.layers() if plugins.is_own(type(each).__module__))
    file = sys.modules[type(mine).__module__].__file__
    try:
        with plugins.blamed():
            updates, after = execute(training._replace(method=method))
    except UserError:
        raise
    except Exception as error:  # from the compiler, which has lost the line of code
        raise plugins.PluginError(
            f"{file}: client_update: cannot run with executor 'vectorised': use 'sequential', "
            f"or see docs/hooks.md: {type(error).__name__}: {error}"
        ) from error
    if wrong := _without_delta(method, updates):
        raise UserError(f"{file}: client_update: {': '.join(wrong)}")
    return updates, after


class Watch:
    """Checks one method's hooks."""

    def __init__(self, method: Method) -> None:
        self.method, self.cls = method, type(method)
        self.module = sys.modules[self.cls.__module__]
        self.looked: set[tuple[str, int]] = set()  # hooks and rounds that were checked in full
        self.reported: dict[int, Structure] = {}  # structure of a round's first update
        self.fresh: set[str] = set()
        self.classifies = all(layer.classifies for layer in method.layers())

    def over(self, name: str) -> Callable[..., Any]:
        """The hook called ``name`` with its checks."""
        hook = MethodType(getattr(self.cls, name), self.method)
        parameters = list(inspect.signature(hook).parameters)[1:]

        @wraps(hook)
        def called(ctx: Context, *given: Any, **named: Any) -> Any:
            with plugins.blamed():
                # Not `ctx.round`, which would look like a hook that depends on the round.
                if vars(ctx)["round"] >= ROUNDS:
                    return hook(ctx, *given, **named)
                arguments = dict(zip(parameters, given, strict=False)) | named
                first, before = (name, ctx.round) not in self.looked, None
                self.looked.add((name, ctx.round))
                if name in EVERY_STEP and not first:
                    return hook(ctx, *given, **named)
                if name not in EVERY_STEP and first:
                    before = _Before(ctx, arguments, self.method, self.module)
                found = hook(ctx, *given, **named)
                if before and (done := before.what_changed()):
                    raise self.wrong(name, *done)
                if wrong := self.unfit(name, ctx, arguments, found):
                    raise self.wrong(name, *wrong)
                return found

        return called

    def wrong(self, name: str, what: str, remedy: str) -> UserError:
        """The error about a hook."""
        code = inspect.unwrap(getattr(self.cls, name)).__code__
        file = str(self.module.__file__)
        where = f"{file}:{code.co_firstlineno}" if code.co_filename == file else file
        return UserError(f"{where}: {name}: {what}: {remedy}")

    def unfit(
        self, name: str, ctx: Context, given: Mapping[str, Any], found: Any
    ) -> tuple[str, str] | None:
        """What is wrong with a hook's result, and the remedy; or nothing."""
        look = getattr(self, f"_of_{name}", None)
        wrong: tuple[str, str] | None = look(ctx, given, found) if look else None
        return wrong

    def _of_learning_rate(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        if not isinstance(found, float | int) or not math.isfinite(found):
            return f"returned {_shown(found)}", "return a finite number"
        return None

    def _of_init_server(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        return _no_tree(found, "the server's state")

    def _of_init_client(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        return _no_dict(found, "a client's state")

    def _of_broadcast(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        return _no_dict(found, "what clients receive")

    def _of_sample_round(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        wrong = _no_dict(found, "what a client draws")
        self.fresh = set() if wrong else set(found)
        return wrong

    def _of_sample_steps(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        wrong = _no_dict(found, "what a client draws")
        if wrong:
            return wrong
        for key, leaf in tree.named(found):
            if leaf.shape[:1] != (given["steps"],):
                return (
                    f"{key} has shape {_shape(leaf)}",
                    f"return one entry for each of the {given['steps']} steps, [steps, ...]",
                )
        return None

    def _of_loss(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        if not isinstance(found, Tensor) or found.shape or not found.is_floating_point():
            return f"returned {_shown(found)}", "return a scalar tensor, such as a mean"
        return None

    def _of_gradient(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        wrong = _no_dict(found, "the direction")
        trained = ctx.net.trainable(given["params"])
        return wrong or _differs(
            {key: leaf for key, leaf in found.items() if key in trained},
            trained,
            "the direction",
            "return one tensor for each trainable leaf of `params`, of its shape and dtype",
        )

    def _of_client_update(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        if not isinstance(found, tuple) or len(found) != 2:
            return (
                f"returned {_shown(found)}",
                "return two trees: the update and the client's state",
            )
        update, after = found
        wrong = _no_dict(update, "the update") or _no_dict(after, "the client's state")
        if wrong:
            return wrong
        if wrong := _without_delta(self.method, update):
            return wrong
        message = given["message"].get("params")
        summed = _sums_delta(self.method) and message is not None
        if summed and (wrong := _differs(update["delta"], message, "delta", SAME)):
            return wrong
        structure = _structure(update)
        usual = self.reported.setdefault(ctx.round, structure)
        if wrong := _compared(structure, usual, "the update", SAME_REPORT):
            return wrong
        before = {key: leaf for key, leaf in given["client_state"].items() if key not in self.fresh}
        return _differs(after, before, "the client's state", SAME_OWN)

    def _of_aggregation_weights(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        if not isinstance(found, tuple) or len(found) != 2:
            return (
                f"returned {_shown(found)}",
                "return two things: the aggregation weights [cohort] and the server's state",
            )
        weights, server = found
        cohort = len(ctx.cohort)
        if not isinstance(weights, Tensor) or weights.shape != (cohort,):
            return (
                f"the aggregation weights are {_shown(weights)}",
                f"return one for each client of the cohort, [{cohort}]",
            )
        if not bool(weights.isfinite().all()):
            return "an aggregation weight is not finite", "return finite ones"
        return self._of_server(given, server)

    def _of_server_update(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        # Metrics are removed before the next round.
        found = without_metrics(found)[0] if isinstance(found, dict) else found
        return self._of_server(given, found)

    _of_apply_server_optimizer = _of_server_update

    def _of_server(self, given: Mapping[str, Any], found: Any) -> Any:
        whose = "the server's state"
        return _no_tree(found, whose) or _differs(found, given["server"], whose, SAME_SERVER)

    def _of_eval_model(self, ctx: Context, given: Mapping[str, Any], found: Any) -> Any:
        whose = "the model"
        return _no_tree(found, whose) or (
            _differs(found, ctx.initial, whose, "return all of the network's parameters")
            if self.classifies
            else None
        )


SAME = "give it the names and shapes of the `params` that were broadcast"
SAME_REPORT = "let every client return the same names, shapes and dtypes"
SAME_OWN = "return the names, shapes and dtypes of the state that `init_client` returns"
SAME_SERVER = (
    "keep the names, shapes and dtypes of the state from `init_server`, as in {**server, ...}"
)


def _sums_delta(method: Method) -> bool:
    """Whether the server sums the clients' ``delta``, as FedAvg's does."""
    return type(method.layers()[-1]).server_update is Method.server_update


def _without_delta(method: Method, update: Tree) -> tuple[str, str] | None:
    if "delta" in update or not _sums_delta(method):
        return None
    return (
        f"no `delta` in the update, which has {', '.join(update) or 'nothing'}",
        "return the received parameters minus the trained ones as `delta`, or override "
        "server_update",
    )


def _no_tree(found: Any, whose: str) -> tuple[str, str] | None:
    """What is wrong with something that is not a tree; or nothing."""
    for key, leaf in tree.named(found):
        if not isinstance(leaf, Tensor):
            what = f"{whose}: {key}" if key else whose
            return f"{what} is {_shown(leaf)}", "return tensors, in dicts by name"
    return None


def _no_dict(found: Any, whose: str) -> tuple[str, str] | None:
    if not isinstance(found, dict):
        return f"{whose} is {_shown(found)}", "return a dict of tensors by name"
    return _no_tree(found, whose)


def _structure(what: Tree) -> Structure:
    return {key: (tuple(leaf.shape), leaf.dtype) for key, leaf in tree.named(what)}


def _differs(found: Tree, wanted: Tree, whose: str, remedy: str) -> tuple[str, str] | None:
    return _compared(_structure(found), _structure(wanted), whose, remedy)


def _compared(
    found: Structure, wanted: Structure, whose: str, remedy: str
) -> tuple[str, str] | None:
    """The first place where two trees differ in names, shapes or dtypes."""
    for key in wanted:
        if key not in found:
            return f"{whose} lacks {key}", remedy
    for key, (shape, dtype) in found.items():
        if key not in wanted:
            return f"{whose} has an additional {key}", remedy
        if wanted[key] != (shape, dtype):
            expected = f"{_dtype(wanted[key][1])} {list(wanted[key][0])}"
            return f"{whose}: {key} is {_dtype(dtype)} {list(shape)}, not {expected}", remedy
    return None


class _Before:
    """What a hook must not change, as it was before the call."""

    def __init__(
        self, ctx: Context, arguments: Mapping[str, Any], method: Method, module: ModuleType
    ) -> None:
        self.ctx, self.arguments, self.method, self.module = ctx, arguments, method, module
        self.trees = {key: value for key, value in arguments.items() if _is_tree(value)}
        self.trees |= {"ctx.initial": ctx.initial, "ctx.sizes": ctx.sizes, "ctx.cohort": ctx.cohort}
        self.marks = {key: _marks(each) for key, each in self.trees.items()}
        # Kept alive, so that no new tensor reuses the memory address of an old one.
        self.kept = [leaf for each in self.trees.values() for leaf in tree.leaves(each)]
        self.itself = _values_of(vars(method))
        self.of_class = _values_of(vars(type(method)))
        self.globals = _values_of(vars(module))
        self.random = self._random()
        self.dtype = torch.get_default_dtype()

    def what_changed(self) -> tuple[str, str] | None:
        """What a hook changed although it must not, and the remedy; or nothing."""
        for name, marks in self.marks.items():
            key = _first_change(marks, _marks(self.trees[name]))
            if key is not None:
                path = f"{name}[{key}]" if key else name
                return f"changed {path} in place", "return new tensors and new dicts instead"
        for whose, values, now in (
            ("self.", self.itself, vars(self.method)),
            (f"{type(self.method).__name__}.", self.of_class, vars(type(self.method))),
            ("the module's variable ", self.globals, vars(self.module)),
        ):
            key = _first_change(values, _values_of(now))
            if key is not None:
                return (
                    f"changed {whose}{key}",
                    "return what must survive a round in `server` or `client_state`",
                )
        if torch.get_default_dtype() is not self.dtype:
            torch.set_default_dtype(self.dtype)
            return "set torch's default dtype", "give `dtype` to what makes tensors"
        for name, before, after in zip(GENERATORS, self.random, self._random(), strict=True):
            if before != after:
                return (
                    f"drew from the global generator of {name}",
                    "draw from `rng`, or on the server from ctx.stream(purpose), with generator=",
                )
        return None

    def _random(self) -> tuple[object, ...]:
        nets = (self.ctx.net, *self.ctx.nets.values())
        # Layers such as dropout draw from the generators, which are restored afterwards.
        if any(net.draws for net in nets):
            return (b"",) * len(GENERATORS)
        torch_state = _bytes(torch.get_rng_state())
        device = self.ctx.net.device
        if device.type == "cuda":
            torch_state += _bytes(torch.cuda.get_rng_state(device))
        numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  # only inspected
        return torch_state, _hashable(numpy_state), random.getstate()


def _first_change(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    return next((key for key in (*before, *after) if before.get(key) != after.get(key)), None)


def _is_tree(value: object) -> bool:
    return isinstance(value, Tensor | dict)


def _marks(what: Tree | Tensor) -> dict[str, tuple[int, int, int]]:
    """Identity and version of every leaf, and a checksum for writes that autograd misses."""
    return {key: (id(leaf), leaf._version, _sum_of(leaf)) for key, leaf in tree.named(what)}


def _sum_of(leaf: Tensor) -> int:
    """The sum of a tensor's bits as integers, which does not depend on the order."""
    if leaf.is_complex():
        leaf = torch.view_as_real(leaf)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[leaf.element_size()]
    return int(leaf.detach().view(whole).sum(dtype=torch.int64))


def _values_of(names: Mapping[str, object]) -> dict[str, object]:
    """Variables that can change without being rebound; no hooks and no dunders."""
    return {
        key: _hashable(value)
        for key, value in list(names.items())
        if not key.startswith("__") and key not in WATCHED and not isinstance(value, type)
    }


def _hashable(value: Any, depth: int = 4) -> object:
    """A value that differs if a variable was changed, in place or by assignment."""
    if depth == 0:
        return id(value)
    inside = partial(_hashable, depth=depth - 1)
    match value:
        case Tensor():
            return id(value), _marks(value)
        case torch.nn.Module():
            return id(value), _marks(dict(value.state_dict(keep_vars=True)))
        case np.ndarray():
            return value.tobytes()
        case torch.Generator():
            return _bytes(value.get_state())
        case np.random.Generator():
            return inside(value.bit_generator.state)
        case random.Random():
            return value.getstate()
        case dict():
            return [(key, inside(each)) for key, each in value.items()]
        case list() | tuple() | set() | frozenset():
            return [inside(each) for each in value]
        case str() | bytes() | bytearray() | int() | float() | None:
            return repr(value)
    kind = type(value).__module__
    if kind in ("collections", "itertools"):
        return repr(value)
    if plugins.is_own(kind) and not isinstance(value, Method):
        return id(value), inside(vars(value))
    return id(value)


def _bytes(state: Tensor) -> bytes:
    return state.numpy().tobytes()


def _shown(found: Any) -> str:
    if isinstance(found, Tensor):
        return f"a tensor of {_dtype(found.dtype)} {list(found.shape)}"
    if isinstance(found, float | int | str | None):
        return repr(found)
    return f"a {type(found).__name__}"


def _shape(leaf: Tensor) -> list[int]:
    return list(leaf.shape)


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
