"""Try a model of the user's own on a few samples, before it produces a wrong number.

What it draws, keeps and changes in training and in testing decides what travels with it; what
cannot travel or be repeated is refused in one line.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedrepro.check.traces import changes, generators, strangers
from fedrepro.data.readers.packing import Packing
from fedrepro.engine.initialise import BatchNorm
from fedrepro.engine.modules import (
    called,
    leaves_of,
    one_input,
    outputs_of,
    refuse_shared,
    refuse_unusable,
    replaced,
)
from fedrepro.engine.net import Net, Own, Precision
from fedrepro.engine.trials import alike, moved
from fedrepro.support.copies import copied
from fedrepro.support.errors import UserError, bad_value, refusal
from fedrepro.support.rng import drawing_on, seeded

SMALL = re.compile("Kernel size|too small")  # in torch's words for images that shrink to nothing
# Functions of the last layer, by task: of their results, losses and accuracies are wrong.
PROBABILITIES = {
    "classification": "Softmax", "next_word": "Softmax",
    "binary": "Sigmoid", "multi_label": "Sigmoid",
}  # fmt: skip
SAME_NUMBERS = re.compile(
    "(Alias|Clone|Permute|ReshapeAlias|Select|Slice|Squeeze|T|ToCopy|Transpose|Unsqueeze|View)Back"
)
Counted = BatchNorm | nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


def own_net(
    name: str,
    build: Callable[[], nn.Module],
    rng: torch.Generator,
    x: Tensor,
    outputs: int | None,
    task: str = "classification",
    own_loss: bool = False,
    decays: bool = False,
    precision: Precision = "float32",
    targets: tuple[int, ...] | None = None,
    packing: Packing | None = None,
) -> Net:
    """A model of the user's own as a function of its parameters.

    Args:
        build: builds it, on the device of ``x``.
        rng: the global generators while it is built, for what does not change in training.
        x: samples, as many as in a mini-batch, or as one can afford: the first two are tried most.
        outputs: how many it needs at least; None if it does not map samples to outputs.
        task: whose outputs it needs: "binary" exactly one, "next_word" those of each place.
        own_loss: whether the loss is not the task's.
        decays: whether its optimizer has a weight decay.
        packing: where each input is in ``x``, if they are several.
        targets: the shape of two samples' targets, if outputs need it, but for axes of length 1.

    Raises:
        UserError: if it does not accept samples, has too few outputs or probabilities as such, or
            does in training or testing what cannot be repeated.
    """
    where = f"model {name}"
    with drawing_on(rng, x.device):
        module = build()
        module.train()
    refuse_unusable(module)
    for path, leaf in module.named_parameters():
        if not leaf.isfinite().all():
            raise bad_value(where, path, "NaN or infinity", "finite initial weights")
    own = Own(build)
    arguments = packing.arguments_for(module.forward) if packing else one_input
    if outputs is not None:
        x, many = x[:2], x if len(x) > 2 else torch.cat([x, x])
        there = refuse_unaccepted(name, module, x, packing)
        if targets is not None and _long(there) != _long(targets):
            wanted = f"{[*targets]}, as targets have"
            raise bad_value(where, "outputs of two samples", [*there], wanted)
        if targets is None and len(there) != 2 and task != "next_word":
            wanted = f"[2, {outputs}]: for numbers at each place, task: regression"
            raise bad_value(where, "outputs of two samples", [*there], wanted)
        if task == "binary" and there[-1] != 1:
            raise bad_value(where, "outputs", there[-1], "1, as there are two classes")
        if targets is None and there[-1] < outputs:
            raise bad_value(where, "outputs", there[-1], f"at least {outputs}, one for each class")
        end = PROBABILITIES.get(task, "")
        first = x[[0] * len(x)]  # what is kept of it shows in later outputs
        calls = [arguments(each) for each in (x, first, x[[-1] * len(x)], many)]

        def outputs_in_both() -> Tensor:
            both = (_called(module, calls[0], training).outputs for training in (False, True))
            return torch.cat([*both])

        with moved(module, outputs_in_both):
            own = _observed(where, own, module, calls, end, decays)
            own = own._replace(features=_features(module, calls[0]))
        if own.normalised and not (end == "Softmax" and own_loss):
            inverse = "log" if end == "Softmax" else "logit"
            wanted = f"logits: leave its last {end.lower()} out, or take the {inverse} of it"
            raise bad_value(where, "outputs", "probabilities", wanted)
    net = Net(module, precision, own, arguments=arguments)
    if not net.trained:
        raise refusal(where, "all of its parameters are frozen: expected some to train")
    return net


_Given = tuple[Sequence[Any], Mapping[str, Any]]  # the arguments of a forward pass


def _features(module: nn.Module, given: _Given) -> int | None:
    """How many numbers its `body` returns of a sample, if it has one.

    0 for a model with `body` and `head` whose outputs are not ``head(body(x))``.
    """
    if not (hasattr(module, "body") and hasattr(module, "head")):
        return None
    with suppress(Exception), torch.no_grad(), seeded(0, next(module.parameters()).device):
        twin = copied(module)
        twin.eval()
        positional, named = given
        body, head = twin.get_submodule("body"), twin.get_submodule("head")
        features = outputs_of(body(*positional, **named))
        parts, whole = outputs_of(head(features)), outputs_of(twin(*positional, **named))
        chained = parts.shape == whole.shape and alike(parts, whole)
        return features.flatten(1).shape[1] if chained else 0
    return 0


class _Call(NamedTuple):
    """A pass: its outputs, the generators it drew from, and the tensors it changed.

    Attributes:
        unreached: the parameters to train that get no gradient; in testing, none.
        strangers: other tensors that require gradients and that outputs follow from.
        end: the name of the function that outputs come from, as autograd calls it.
    """

    outputs: Tensor
    drawn: list[str]
    written: set[str]
    replaced: set[str]
    unreached: frozenset[str]
    strangers: list[Tensor]
    end: str


def _called(
    module: nn.Module,
    given: _Given,
    training: bool,
    factors: Mapping[str, Tensor | float] = {},
    graph: bool | None = None,
) -> _Call:
    """Call the module with copies of its tensors, seeded alike each time.

    Args:
        graph: whether gradients can be taken; by default in training.
    """
    graph = training if graph is None else graph
    before = leaves_of(module)
    copies = {name: leaf.detach().clone() for name, leaf in before.items()}
    for name, factor in factors.items():
        copies[name] *= factor
    places = {name: leaf.data_ptr() for name, leaf in copies.items()}
    after, device = dict(copies), next(module.parameters()).device
    module.train(training)
    if graph:
        for name, leaf in before.items():
            copies[name].requires_grad_(leaf.requires_grad)
    try:
        with seeded(0, device), torch.set_grad_enabled(graph):
            start = generators(device)
            returned = called(module, after, *given)
            outputs = outputs_of(returned)
            drawn = changes(start, generators(device))
        _refuse_returned(returned, outputs)
        unreached = _unreached(outputs, copies) if training else frozenset[str]()
    finally:
        module.train()
    return _Call(
        outputs.detach(),
        drawn,
        {name for name, leaf in copies.items() if leaf._version or _differ(leaf, before[name])},
        {
            name
            for name, leaf in copies.items()
            if after[name] is not leaf or leaf.data_ptr() != places[name]
        },
        unreached,
        strangers(outputs, [*copies.values(), *given[0], *given[1].values()]),
        _end_of(outputs),
    )


def _end_of(outputs: Tensor) -> str:
    node = outputs.grad_fn
    while node is not None and SAME_NUMBERS.match(node.name()):
        node = node.next_functions[0][0]
    return node.name() if node is not None else ""


def _normalises(
    module: nn.Module, given: _Given, training: bool, call: _Call, probabilities: str
) -> bool:
    """Return True if outputs are probabilities, by the last function or whatever the weights."""
    rng, named = torch.Generator().manual_seed(0), dict(module.named_parameters())
    if call.end.startswith(probabilities):
        return True
    with suppress(Exception):  # of a layer that takes no such weights
        for scale in (30.0, 1.0) * 8:  # outputs without a limit pass it with large weights
            outputs = call.outputs
            sums = outputs.sum(-1) if probabilities == "Softmax" else outputs.new_ones(1)
            within = ((outputs >= 0) & (outputs <= 1)).all() and ((sums - 1).abs() <= 1e-3).all()
            if not within and outputs.isfinite().all():
                return False
            draws = (
                scale * torch.randn(leaf.shape, generator=rng).to(leaf) for leaf in named.values()
            )
            call = _called(module, given, training, dict(zip(named, draws, strict=True)))
        return True
    return False


def _unreached(outputs: Tensor, leaves: Mapping[str, Tensor]) -> frozenset[str]:
    """The names of parameters to train that get no gradient of the outputs."""
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if not (wanted and outputs.requires_grad):
        return frozenset(wanted)
    gradients = torch.autograd.grad(outputs.sum(), [*wanted.values()], allow_unused=True)
    pairs = zip(wanted, gradients, strict=True)
    return frozenset(name for name, gradient in pairs if gradient is None)


class _NotOutputsError(TypeError):
    """A forward pass returns something else than outputs."""


def _refuse_returned(returned: Any, outputs: Any) -> None:
    """Refuse what a forward pass returned, if it is not one tensor of outputs.

    Raises:
        _NotOutputsError: also for auxiliary outputs, as torchvision's Inception has in training.
    """
    if not isinstance(outputs, Tensor) or not outputs.ndim:
        wanted = "a tensor [n, outputs], or an object whose `logits` are one"
        what = f"a {type(outputs).__name__}"
        what += " without axes" if isinstance(outputs, Tensor) else ""
        raise _NotOutputsError(f"its forward pass returns {what}: expected {wanted}")
    fields = getattr(returned, "_fields", ())
    for name in fields:
        if name.startswith("aux_logits") and getattr(returned, name) is not None:
            wanted = "a model built with aux_logits=False, as no loss would train them"
            raise _NotOutputsError(f"its forward pass returns {name}: expected {wanted}")


def _differ(one: Tensor, other: Tensor) -> bool:
    if one.is_floating_point():
        one, other = one.nan_to_num(nan=0.5), other.nan_to_num(nan=0.5)
    return not torch.equal(one, other)


def _long(shape: Sequence[int]) -> list[int]:
    """A shape without axes of length 1."""
    return [length for length in shape if length > 1]


def refuse_unaccepted(
    name: str, module: nn.Module, x: Tensor, packing: Packing | None
) -> tuple[int, ...]:
    """The shape of a model's outputs for samples; torch's errors do not name the model.

    Raises:
        UserError: if it does not accept them, draws or changes itself in testing, or returns
            something else.
    """
    if x.is_floating_point():
        x = x.to(torch.get_default_dtype())  # as a run's samples are
    where, sample = f"model {name}", str(packing or f"{[*x.shape[1:]]} of {x.dtype}")
    arguments = packing.arguments_for(module.forward) if packing else one_input
    version = x._version
    try:
        tested = _called(module, arguments(x), training=False)
    except Exception as error:  # of any layer
        hint = ": give it larger images" if SMALL.search(str(error)) else ""
        if isinstance(error, IndexError) and not x.is_floating_point():
            hint = f": they have numbers from {int(x.min())} to {int(x.max())}"
        raise refusal(where, f"does not accept samples {sample}: {error}{hint}") from error
    if tested.drawn:
        remedy = "draw only in training, as in F.dropout(x, p, self.training)"
        drawn = ", ".join(tested.drawn)
        raise refusal(where, f"draws random numbers ({drawn}) in testing mode: {remedy}")
    if changed := sorted(tested.written | tested.replaced):
        remedy, path = "change it only if self.training", changed[0].rpartition(".")[0]
        layer = module.get_submodule(path)
        if (most := getattr(layer, "max_norm", None)) is not None:  # of nn.Embedding
            within = f"self.{changed[0]}.data.renorm_({layer.norm_type}, 0, {most})"
            remedy = f"leave out max_norm, and call {within} in its forward pass if self.training"
        raise refusal(where, f"changes {changed[0]} in testing mode: {remedy}", changed[0])
    if x._version != version:  # as a first `relu_` does, which finds no more to change
        once = x.clone()
        _called(module, arguments(x), training=False)
        if _differ(once, x):
            raise refusal(where, "changes its inputs in place: work on a copy of them")
    if not tested.outputs.is_floating_point():
        raise bad_value(where, "outputs", str(tested.outputs.dtype), "real numbers")
    shape = tuple(tested.outputs.shape)
    try:
        alone = tuple(_called(module, arguments(x[-1:]), training=False).outputs.shape)
    except _NotOutputsError:
        alone = ()
    except Exception:  # of a model that needs several
        return shape
    if len(x) > 1 and alone != (1, *shape[1:]):
        wanted = f"{[1, *shape[1:]]}, with an axis of samples: name the axis that squeeze() removes"
        raise bad_value(where, "outputs", f"{[*alone]} for one sample", wanted)
    return shape


def _repeated(
    where: str, module: nn.Module, given: _Given, first_alone: _Given | None = None
) -> tuple[_Call, Tensor | None]:
    """The first pass in training, and the outputs of one with the first sample in all places.

    Without the arguments of the latter, an error of the model itself is raised as it is.

    Raises:
        UserError: unless a later pass has the same outputs, whatever passes are between the two.
    """
    modes = {"training": True, "testing": False}
    inputs = [each for each in (*given[0], *given[1].values()) if isinstance(each, Tensor)]
    versions = [each._version for each in inputs]
    try:
        tested, first = (_called(module, given, training) for training in (False, True))
        later, others = {}, {}
        for mode, training in modes.items():
            for between in modes.values():
                if first_alone is None:
                    continue
                with suppress(Exception):  # of a model that needs samples that differ
                    others[between] = _called(module, first_alone, between).outputs
            later[mode] = _called(module, given, training)
    except Exception as error:
        if first_alone is None:
            raise
        raise refusal(where, f"cannot train on two samples: {error}") from error
    known = set(map(id, later["training"].strangers))  # not made in a pass, which all of them had
    for leaf in (leaf for leaf in first.strangers if id(leaf) in known):
        wanted = "an nn.Parameter, layers in an nn.ModuleList, or requires_grad_(False)"
        why = f"its forward pass uses a tensor {[*leaf.shape]} that requires gradients and is none"
        raise refusal(where, f"{why} of its own: expected {wanted}")
    remedy = "keep what changes in buffers, and draw from global generators"
    if versions != [each._version for each in inputs]:
        remedy = "it changes its inputs in place, so work on a copy of them"
    for mode, before in (("training", first), ("testing", tested)):
        if modes[mode] in others and others[modes[mode]].is_set_to(before.outputs):
            why = f"its outputs in {mode} are memory that its next forward pass changes"
            raise refusal(where, f"{why}: return a clone() of them", "outputs")
        if _differ(before.outputs, later[mode].outputs):
            why = "the same weights, samples and seed give other outputs in a later forward pass in"
            raise refusal(where, f"{why} {mode}: {remedy}")
    return first, others.get(True)


def _mixes(module: nn.Module, whole: _Call, first_alone: Tensor | None, *beside: _Given) -> bool:
    """Return True if a sample's outputs in training depend on the others of its pass.

    Args:
        whole: the pass of all samples.
        first_alone: the outputs with the first one in all places.
        beside: the arguments with the last one in all places, and with more samples after them.
    """
    if first_alone is not None and not alike(first_alone[0], whole.outputs[0]):
        return True
    last, many = beside
    with suppress(Exception):  # of a model that needs samples that differ
        if not alike(_called(module, last, training=True).outputs[-1], whole.outputs[-1]):
            return True
    with suppress(Exception):
        again = _called(module, many, training=True)
        # More samples draw other numbers.
        return not (again.drawn or alike(again.outputs[: len(whole.outputs)], whole.outputs))
    return False


def _observed(
    where: str,
    own: Own,
    module: nn.Module,
    calls: Sequence[_Given],
    probabilities: str,
    decays: bool,
) -> Own:
    """Observe the model in training.

    Args:
        calls: the arguments of a forward pass; and of others, with the first sample in all places,
            with the last one, and with more samples after them.
        probabilities: the name of the function whose results are no logits.
        decays: whether the optimizer has a weight decay.
    """
    first, first_alone = _repeated(where, module, *calls[:2])
    modes = {True: first}
    with suppress(Exception):  # of a model that takes no gradients in testing
        modes[False] = _called(module, calls[0], training=False, graph=True)
    firsts = [first]
    try:
        firsts.append(_repeated(where, module, calls[3])[0])
    except UserError:
        raise
    except Exception:  # of samples that it does not accept, or of too many: the run says so
        firsts.append(first)
    written = {name for call in firsts for name in call.written}
    buffers = dict(module.named_buffers())
    frozen = {name for name, leaf in module.named_parameters() if not leaf.requires_grad}
    for name in sorted({name for call in firsts for name in call.replaced}):
        raise replaced(where, name)
    trained = dict(module.named_parameters()).keys() - frozen
    if trained and trained == first.unreached:
        why = (
            "no gradient of its outputs reaches a parameter that is trained: leave out detach(), "
            "no_grad and argmax in its forward pass"
        )
        raise refusal(where, why)
    if decays and first.unreached:
        less = _called(module, calls[0], training=True, factors=dict.fromkeys(first.unreached, 0.5))
        if _differ(first.outputs, less.outputs):
            name = min(first.unreached)
            why = (
                f"{name}: outputs depend on it and give it no gradient, so that `weight_decay` "
                "alone would change it: freeze it with requires_grad_(False)"
            )
            raise refusal(where, why, name)
    for name in sorted(written & buffers.keys()):
        layer = module.get_submodule(name.rpartition(".")[0])
        if not buffers[name].is_floating_point() and not isinstance(layer, Counted):
            why = f"which is {buffers[name].dtype} and cannot be averaged over clients"
            raise refusal(where, f"changes {name}, {why}: make it a float buffer", name)
    moving = written | _declared(module)
    refuse_shared(where, module, moving)
    return own._replace(
        draws=any(call.drawn for call in firsts),
        mixes=_mixes(module, first, first_alone, *calls[2:]),
        constant=frozenset(buffers.keys() - moving),
        moving=frozenset(frozen & moving),
        normalised=bool(probabilities)
        and any(_normalises(module, calls[0], *mode, probabilities) for mode in modes.items()),
    )


def _declared(module: nn.Module) -> set[str]:
    """The tensors of layers that declare that they change them, perhaps only later."""
    return {
        f"{path}.{name}".lstrip(".")
        for path, layer in module.named_modules()
        if getattr(layer, "moves_buffers", False)
        for name in leaves_of(layer)
    }
