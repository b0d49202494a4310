"""The contract of a method's hooks, checked while they run, before they produce a wrong number.

The checks run outside the method: they compare a hook's arguments before and after the call and
inspect what it returns. They do not change a bit of the run. Inspecting a model takes as long as
copying it, so only the first client's round is checked in full, and nothing from round 2 on.

Each mistake gives one line: the file and line, the hook, what it did, what to do instead.
"""

import copy
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from fedrepro.check.contract import (
    HOOKS,
    Mistake,
    Purity,
    Structure,
    require_dict,
    require_like,
    require_pair,
    require_structure,
    require_tree,
    require_weights,
    shown,
    structure_of,
)
from fedrepro.check.padding import most_padded, refuse_padding
from fedrepro.check.server_optimizers import checked_optimizer, require_effects
from fedrepro.check.traces import strangers
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import (
    Executor,
    Outcome,
    Training,
    eager,
    lone_sample,
    sequential,
    vectorised,
)
from fedrepro.engine.internals import is_mapped
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.round import Federation, choose_cohort, without_metrics
from fedrepro.engine.tree import Tree
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_value, refusal

ROUNDS = 2  # in the second, clients and the server have states
EVERY_STEP = ("loss", "gradient")  # called so often that only the first call is checked

# How a program asked for products of less precision, by what PyTorch then calls them.
ASKED_FOR = {"tf32": "high", "bf16": "medium"}

# Remedies for two trees that differ in names, shapes or dtypes.
AS_SENT = "give it the names and shapes of the `params` that were broadcast"
AS_OTHERS = "let every client return the same names, shapes and dtypes"
AS_CLIENT = "return the names, shapes and dtypes of the state that `init_client` returns"
AS_SERVER = (
    "keep the names, shapes and dtypes of the state from `init_server`, as in {**server, ...}"
)


def watched(
    federation: Federation, every: bool = False, server_optimizer: object = None
) -> Federation:
    """The same federation with its plug-in methods (``every``: all methods) under checks.

    Args:
        server_optimizer: the part of the composition that made the context's; None without any.

    The hooks then raise:
        UserError: one line, about a mistake that the method's author has to fix.
    """
    followed = server_optimizer is not None
    if followed and (every or plugins.is_own(type(server_optimizer).__module__)):
        context = checked_optimizer(server_optimizer, federation.context)
        federation = replace(federation, context=context)
    method = _watched(federation.method, every, followed)
    if method is federation.method:
        return federation
    execute = federation.execute
    if execute in (vectorised, eager):  # compiled: it runs the hooks unchecked
        execute = partial(_executed, execute, federation.method, method)
    return replace(federation, method=method, execute=execute)


@contextmanager
def float32_by_default() -> Iterator[None]:
    """A context that begins and ends with float32 as torch's default, in which runs compute.

    In it, products on a CPU are of float32, too, whatever ``torch.set_float32_matmul_precision``
    has asked for: there are CPUs that would round their factors to 8 bits.

    Raises:
        UserError: if a plug-in or the calling program sets another one, or autocast.
    """
    _refuse_dtype(torch.get_default_dtype())
    _refuse_autocast()
    of_cpu: Any = torch.backends.mkldnn
    if asked := ASKED_FOR.get(of_cpu.matmul.fp32_precision):
        torch.set_float32_matmul_precision("highest")
    try:
        yield
        _refuse_autocast()
    finally:
        if asked:
            torch.set_float32_matmul_precision(asked)
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        _refuse_dtype(dtype)


def _refuse_autocast() -> None:
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            wanted = "none: the key `precision` of a setting is that of a run"
            raise bad_value("this program", "torch.autocast", device, wanted)


def _refuse_dtype(dtype: torch.dtype) -> None:
    if dtype is torch.float32:
        return
    own = (module for name, module in [*sys.modules.items()] if plugins.is_own(name))
    files = (file for module in own if (file := Path(str(module.__file__))).is_file())
    setting = (file for file in files if b"set_default_dtype" in plugins.content_of(file))
    where = next(setting, "this program")
    expected = "torch.float32, in which all of a process's runs compute: give `dtype` to layers"
    raise bad_value(where, "torch.set_default_dtype", dtype, expected)


def refuse_lone_samples(federation: Federation) -> None:
    """Refuse a client whose last mini-batch is one sample that BatchNorm cannot normalise.

    Before the first round, not in the round that first asks such a client.

    Raises:
        UserError: with the client and its round.
    """
    net, sizes, width = (
        federation.context.net,
        federation.clients.sizes,
        federation.context.batch_size,
    )
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


def _watched(method: Method, every: bool, followed: bool, weighed: bool = False) -> Method:
    attributes: dict[str, object] = {}
    # Of a wrapper: PFedMe's ``inner`` is a function.
    if isinstance(method, Wrapper):
        cls, hook = type(method), "aggregation_weights"
        weighs = weighed or cls.sets_weights or plugins.overrides(cls, hook)
        if (inner := _watched(method.inner, every, followed, weighs)) is not method.inner:
            attributes["inner"] = inner
    copied = copy.copy(method)
    if every or plugins.is_own(type(method).__module__):
        checks = HookChecks(copied, followed, weighed)
        # An attribute of the object takes precedence over a method of its class.
        attributes |= {name: checks.over(name) for name in HOOKS}
    for name, value in attributes.items():
        object.__setattr__(copied, name, value)
    return copied if attributes else method


def _executed(execute: Executor, method: Method, checked: Method, training: Training) -> Outcome:
    """Clients side by side, trained by ``method`` itself after one of them by the checked one."""
    own = next((each for each in method.layers() if plugins.is_own(type(each).__module__)), method)
    file, name = sys.modules[type(own).__module__].__file__, "client_update"
    place = most_padded(training.ctx)
    early = training.ctx.round < ROUNDS
    alone = _check_one(training._replace(method=checked), place) if early else None
    try:
        with plugins.blamed():
            updates, after = execute(training._replace(method=method))
        _require_delta(method, updates)
        if alone:
            refuse_padding(training._replace(method=method), place, alone, (updates, after))
    except UserError:
        raise
    except Mistake as mistake:
        raise refusal(file, f"{name}: {mistake}", name) from None
    except Exception as error:  # from the compiler, which has lost the line of code
        raise plugins.PluginError(
            f"{file}: {name}: cannot run with executor 'vectorised': use 'sequential', or see "
            f"docs/hooks.md: {type(error).__name__}: {error}",
            file=file,
            key=name,
        ) from error
    return updates, after


def _check_one(training: Training, place: int) -> Outcome | None:
    """Train one client, whose hooks are checked; None if it fails.

    A method may work side by side only: what else fails is raised there, if it does.

    Raises:
        UserError: about a mistake.
    """
    states, steps = [tree.copy(training.client_states[place])], [training.steps[place]]
    try:
        return sequential(training._replace(client_states=states, steps=steps))
    except Exception as error:
        if isinstance(error, UserError) and not isinstance(error, plugins.PluginError):
            raise
    return None


class HookChecks(Purity):
    """Checks one method's hooks.

    Args:
        followed: whether a server optimizer is given, which its server has to follow.
        weighed: whether a wrapper around it sets the aggregation weights.
    """

    def __init__(self, method: Method, followed: bool, weighed: bool) -> None:
        super().__init__(method)
        self.method, self.followed, self.weighed = method, followed, weighed
        self.traced: set[tuple[str, int]] = set()  # hooks and rounds that were checked in full
        self.reported: dict[int, Structure] = {}  # structure of a round's first update
        self.fresh: set[str] = set()
        self.classifies = all(layer.classifies for layer in method.layers())

    def over(self, name: str) -> Callable[..., Any]:
        """The hook called ``name`` with its checks."""
        hook = MethodType(getattr(self.cls, name), self.method)
        # Called by position: a plug-in may have names of its own, or `*rest`.
        parameters = list(inspect.signature(getattr(Method, name)).parameters)[2:]

        @wraps(hook)
        def called(ctx: Context, *given: Any, **named: Any) -> Any:
            with plugins.blamed():
                # Not `ctx.round`, which would look like a hook that depends on the round.
                call = name, vars(ctx)["round"]
                first = call not in self.traced
                if call[1] >= ROUNDS or (name in EVERY_STEP and not first):
                    return hook(ctx, *given, **named)
                self.traced.add(call)
                arguments = dict(zip(parameters, given, strict=False)) | named
                try:
                    fixed = arguments
                    if name in EVERY_STEP and "params" in arguments:
                        # Its forward pass updates running statistics.
                        fixed = arguments | {"params": ctx.net.trainable(arguments["params"])}
                    # What is recorded or transformed has no numbers to look at.
                    gpu = ctx.net.device.type == "cuda"
                    hidden = is_mapped() or (gpu and torch.cuda.is_current_stream_capturing())
                    looks = first and not hidden
                    with self._unchanged(ctx, fixed) if looks else nullcontext():
                        result = hook(ctx, *given, **named)
                    self._require_form(name, ctx, arguments, result)
                    if name == "server_update" and first and (self.followed or self.weighed):
                        require_effects(ctx, hook, arguments, result, self.followed, self.weighed)
                except Mistake as mistake:
                    raise refusal(self._where(name), f"{name}: {mistake}", name) from None
                except KeyError as missing:
                    self._refuse_unsent(name, missing.args[0], arguments.get("updates"))
                    raise
                return result

        return called

    def _refuse_unsent(self, name: str, key: object, updates: Tree | None) -> None:
        """Raise UserError if an inherited hook missed what `client_update` no longer returns."""
        inherited = inspect.unwrap(getattr(self.cls, name)).__code__
        if updates is None or key in updates or inherited.co_filename == self.module.__file__:
            return
        hook, there = "client_update", ", ".join(updates) or "nothing"
        why = (
            f"no `{key}` in the update, which has {there}: {inherited.co_qualname} reads it: "
            f"return it, too, or override {name}"
        )
        raise refusal(self._where(hook), f"{hook}: {why}", hook)

    def _require_form(self, name: str, ctx: Context, given: Mapping[str, Any], result: Any) -> None:
        """Raise Mistake unless a hook's result has the form that the engine expects."""
        match name:
            case "learning_rate":
                if not isinstance(result, float | int) or not math.isfinite(result):
                    raise Mistake(f"returned {shown(result)}", "return a finite number")
            case "init_server":
                require_tree(result, "the server's state")
            case "init_client":
                require_dict(result, "a client's state")
            case "broadcast":
                require_dict(result, "what clients receive")
            case "sample_round":
                require_dict(result, "what a client draws")
                self.fresh = set(result)
            case "sample_steps":
                require_dict(result, "what a client draws")
                for key, leaf in tree.named(result):
                    if leaf.shape[:1] != (given["steps"],):
                        remedy = f"return one entry for each of the {given['steps']} steps"
                        raise Mistake(f"{key} has shape {[*leaf.shape]}", f"{remedy}, [steps, ...]")
            case "loss":
                if not isinstance(result, Tensor) or result.shape or not result.is_floating_point():
                    remedy = "return a scalar tensor, such as a mean"
                    raise Mistake(f"returned {shown(result)}", remedy)
                given_grad = any(leaf.requires_grad for leaf in tree.leaves(given["params"]))
                if given_grad and not result.requires_grad:
                    remedy = "compute with the tensors of `params`, without detach() and no_grad"
                    raise Mistake("returned a tensor that no gradient follows from", remedy)
                modules = [net.module for net in (ctx.net, *ctx.nets.values())]
                known = [leaf for module in modules for leaf in module.parameters()]
                for leaf in strangers(result, [*tree.leaves(given["params"]), *known]):
                    if isinstance(leaf, nn.Parameter):  # not made in this call
                        remedy = "use the tensors of `params`, and detach() what stays as it is"
                        what = f"depends on a parameter {[*leaf.shape]} that nothing trains"
                        raise Mistake(what, f"{remedy}: a run trains a copy of its model")
            case "gradient":
                trained = ctx.net.trainable(given["params"])
                require_dict(result, "the direction")
                require_like(
                    {key: leaf for key, leaf in result.items() if key in trained},
                    trained,
                    "the direction",
                    "return one tensor for each trainable leaf of `params`, of its shape and dtype",
                )
            case "client_update":
                self._require_update(ctx, given, result)
            case "aggregation_weights":
                self._require_server(given, require_weights(result, len(ctx.cohort)))
            case "server_update" | "apply_server_optimizer":
                # Metrics are removed before the next round.
                split = without_metrics(result)[0] if isinstance(result, dict) else result
                self._require_server(given, split)
            case "eval_model":
                require_tree(result, "the model")
                if self.classifies:
                    remedy = "return all of the network's parameters"
                    require_like(result, ctx.initial, "the model", remedy)

    def _require_update(self, ctx: Context, given: Mapping[str, Any], result: Any) -> None:
        update, after = require_pair(result, "two trees: the update and the client's state")
        require_dict(update, "the update")
        require_dict(after, "the client's state")
        _require_delta(self.method, update)
        message = given["message"].get("params")
        if _sums_delta(self.method) and message is not None:
            require_like(update["delta"], message, "delta", AS_SENT)
        structure = structure_of(update)
        usual = self.reported.setdefault(ctx.round, structure)
        require_structure(structure, usual, "the update", AS_OTHERS)
        before = {key: leaf for key, leaf in given["client_state"].items() if key not in self.fresh}
        require_like(after, before, "the client's state", AS_CLIENT)

    def _require_server(self, given: Mapping[str, Any], state: Any) -> None:
        require_tree(state, "the server's state")
        require_like(state, given["server"], "the server's state", AS_SERVER)


def _sums_delta(method: Method) -> bool:
    """Whether the server sums the clients' ``delta``, as FedAvg's does."""
    return type(method.layers()[-1]).server_update is Method.server_update


def _require_delta(method: Method, update: Tree) -> None:
    if "delta" not in update and _sums_delta(method):
        raise Mistake(
            f"no `delta` in the update, which has {', '.join(update) or 'nothing'}",
            "return the received parameters minus the trained ones as `delta`, or override "
            "server_update",
        )
