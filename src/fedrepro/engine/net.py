"""A torch module as a function of its parameters."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedrepro.engine import internals, modules, tf32, tree
from fedrepro.engine.initialise import BatchNorm, initialise
from fedrepro.engine.modules import Arguments, leaves_of, one_input, outputs_of, replaced
from fedrepro.engine.tree import Branch, Tree
from fedrepro.support.copies import rebound
from fedrepro.support.errors import bad_value, refusal
from fedrepro.support.rng import drawing_on, seeded, stream

if TYPE_CHECKING:
    from fedrepro.engine.graphs import Graphs

Precision = Literal["float32", "tf32", "bfloat16"]
TOO_FEW = "more than 1 value per channel"  # in PyTorch's error of BatchNorm on a single sample


class Own(NamedTuple):
    """The known facts of a model of the user's own.

    Attributes:
        build: builds it once more; its draws are then the initial weights.
        draws: whether it draws random numbers in training.
        mixes: whether a sample's output in training depends on the others of its mini-batch.
        constant: names of leaves that training does not change, besides frozen parameters.
        moving: names of frozen parameters that its forward passes change.
        features: how many numbers its `body` returns of a sample, if it has one; 0 if its outputs
            are not those of its `head` on them.
        normalised: whether its outputs are probabilities, where a task's are logits.
    """

    build: Callable[[], nn.Module]
    draws: bool = False
    mixes: bool = False
    constant: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()
    features: int | None = None
    normalised: bool = False


class Net:
    """A module and the flat tree ``{name: tensor}`` of its parameters and float buffers.

    A module made for a federation has two children, ``body`` and ``head``: personalised methods
    keep the head on the client, feature-based methods use the body's output.

    Buffers (BatchNorm's running statistics) are in the same tree. They have no gradient: forward
    passes update them, and a client's update contains the change. What training cannot change is
    not in the tree, so that no method can change or send it: frozen parameters (without
    ``requires_grad``), and buffers that stay as they are. The module holds those.

    The module's own tensors may use the memory format channels_last, which makes some convolutions
    faster. Trees that this class returns never do, because the order in memory affects the bits of
    a sum.

    Args:
        precision: of convolutions and matrix products in training. Parameters, gradients, sums and
            testing keep the parameters' precision.
        own: of a model of the user's own; None: :func:`initialise` draws its weights.
        leaves: their names in the tree; None: all that training can change.
        arguments: how the module is called with inputs [n, ...], if they are several in one.

    Attributes:
        own: the known facts of a model of the user's own; else None.
        draws: whether layers draw random numbers in training (dropout, stochastic depth). They use
            global generators: see :meth:`drawing_from`.
        graphs: what a run on a GPU records of its steps; None: nothing is recorded.

    Raises:
        UserError: for a module that cannot be a function of its parameters.
    """

    def __init__(
        self,
        module: nn.Module,
        precision: Precision = "float32",
        own: Own | None = None,
        leaves: Collection[str] | None = None,
        arguments: Arguments = one_input,
    ) -> None:
        modules.refuse_unusable(module)
        modules.count_in_floats(module)
        modules.lay_out(module)
        self.module = module
        self.precision = precision
        self.graphs: Graphs | None = None
        self._kept: dict[object, Tree] = {}
        self.own = own
        self._arguments = arguments
        parameters, buffers = dict(module.named_parameters()), modules.float_buffers(module)
        frozen = {name for name, leaf in parameters.items() if not leaf.requires_grad}
        constant = (frozen | own.constant) - own.moving if own else frozen
        everything = {**parameters, **buffers}
        kept = everything.keys() - constant if leaves is None else leaves
        # Of the tree only: a method's other trees may use a constant's name, such as "weight".
        self._untrained = {name for name in (*buffers, *frozen) if name in kept}
        # The module's own tensors. A tree that *is* this one needs no functional_call, which would
        # take 5 to 30 % of a step of a small model.
        self._bound: Tree = {name: leaf for name, leaf in everything.items() if name in kept}
        self._constants = {name: leaf for name, leaf in everything.items() if name not in kept}
        self._channels_last = [
            # Includes weights with one input channel: both formats have the same bytes there, but a
            # convolution chooses the format of its output by the strides.
            name
            for name, leaf in parameters.items()
            if name in self._bound
            and leaf.dim() == 4
            and leaf.stride() != torch.empty(leaf.shape, device="meta").stride()
        ]
        has_draws = any(map(modules.draws_in_training, module.modules()))
        self.draws = has_draws or bool(own and own.draws)
        self._learned: Tree = {}
        if own is None:
            learned = modules.learned_elsewhere(module, self._bound)
            self._learned = learned | tree.copy(self._constants)
        self._tied = modules.tied(module)
        self._versions = self._versions_now()

    def init(self, rng: torch.Generator) -> Tree:
        """New parameters and buffers, drawn from ``rng`` by PyTorch's default rules.

        Pre-trained parts get the weights that they had when this object was made, even if the
        module's own tensors have been trained since. A model of the user's own is built once more,
        with ``rng`` in place of the global generators.
        """
        with torch.no_grad():
            if self.own:
                with drawing_on(rng, self.device):
                    fresh = leaves_of(self.own.build())
                for name, leaf in self._bound.items():
                    leaf.copy_(fresh[name])
                return tree.copy(self._bound)
            everything = {**self._bound, **self._constants}
            for name, leaf in self._learned.items():
                everything[name].copy_(leaf)
            initialise(self.module, rng)
            for name, leaf in self._constants.items():
                leaf.copy_(self._learned[name])
            self._versions = self._versions_now()
        return tree.copy(self._bound)

    @contextmanager
    def drawing_from(self, seed: int, others: bool = False) -> Iterator[None]:
        """A context in which layers draw from ``seed``; afterwards it restores global generators.

        Does nothing for a model without random layers, unless it is the user's own: that may draw
        in places that the engine does not know, and from numpy's and Python's generators too.

        Args:
            others: whether other networks have random layers.

        Raises:
            UserError: at its end, if the model has changed a tensor that does not travel with it.
        """
        if self.draws or others or self.own:
            with seeded(seed, self.device, everything=self.own is not None):
                yield
        else:
            yield
        self._refuse_strays()

    def _refuse_strays(self) -> None:
        """Raises UserError if training has changed what is not in the tree."""
        where = f"model {type(self.module).__name__}"
        for name in self.running_statistics:
            if not modules.is_in(self.module, name, self._bound[name]):
                raise replaced(where, name)
        for name, version in self._versions_now().items():
            if version < 0:
                raise replaced(where, name)
            if version != self._versions[name]:
                why = (
                    f"{name} changed in training, though it did not on the first samples: give its "
                    "layer the attribute `moves_buffers = True`"
                )
                raise refusal(where, why, name)

    def _versions_now(self) -> dict[str, int]:
        """How often the tensors outside the tree have been written to; -1 for another tensor."""
        return {
            name: leaf._version if modules.is_in(self.module, name, leaf) else -1
            for name, leaf in self._constants.items()
        }

    def _holds(self, params: Tree) -> bool:
        """Return True if the module itself has these parameters; never in compiled code.

        PyTorch 2.9 cannot compile ``is`` between dictionaries.
        """
        return not torch.compiler.is_compiling() and params is self._bound

    def __call__(self, params: Tree, x: Tensor) -> Tensor:
        """The module's output [n, outputs] at parameters ``params`` for inputs ``x`` [n, ...]."""
        if self._holds(params) and self.precision != "bfloat16":
            return self.plain(x)
        return self._call(self.module, params, *self._arguments(x))

    def plain(self, x: Tensor) -> Tensor:
        """The module's output at its own parameters."""
        inputs, named = self._arguments(x)
        return outputs_of(self.module(*inputs, **named))  # type: ignore[no-any-return]

    def _call(
        self, part: nn.Module, params: Tree, inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> Tensor:
        """The output of the module or a part of it; ``params`` has the names of that part."""
        low = part.training and self.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if low else nullcontext():
            if self._holds(params):
                returned = part(*inputs, **named)
            else:
                returned = modules.called(part, params, inputs, named)
        output: Tensor = outputs_of(returned)
        return output.to(next(iter(params.values())).dtype) if low else output

    def predict(self, params: Tree, x: Tensor) -> Tensor:
        """Like calling it, with dropout and BatchNorm in testing mode.

        For clients that run alone and for the server; mapped or compiled models have neither layer.
        """
        with self.testing():
            return self(params if self._holds(params) else self._laid_out(params), x)

    @contextmanager
    def testing(self) -> Iterator[None]:
        """A context in which dropout and BatchNorm are in testing mode, without TF32."""
        self.module.eval()
        try:
            with tf32.allowed(False):
                yield
        finally:
            self.module.train()

    def of_steps(self) -> AbstractContextManager[None]:
        """A context for steps of training, in which products may use TF32 if that is its precision.

        The gradient has to be in it as well: its products are computed after the forward pass.
        """
        return tf32.allowed(self.precision == "tf32")

    def features(self, params: Tree, x: Tensor) -> Tensor:
        """The body's output [n, features], of which the head's are the model's outputs."""
        self.require_chain()
        if not self.module.training:
            params = self._laid_out(params)
        body = self.module.get_submodule("body")
        return self._call(body, part_of(params, "body"), *self._arguments(x))

    def require_chain(self) -> None:
        """Raises UserError for a model whose outputs are not ``head(body(x))``."""
        self._require_parts()
        if self.own and self.own.features == 0:
            why = "its outputs are not head(body(x)), which the method trains: let them be that"
            raise refusal(f"model {type(self.module).__name__}", why, "forward")

    def features_and_output(self, params: Tree, x: Tensor) -> tuple[Tensor, Tensor]:
        """The body's output [n, features] and the head's output [n, outputs], in one pass.

        Two passes would update running statistics twice.
        """
        features = self.features(params, x)
        head = self.module.get_submodule("head")
        return features, self._call(head, part_of(params, "head"), (features,), {})

    def width(self, method: str, params: Tree) -> int:
        """How many numbers the body returns of a sample.

        Of the user's own model a trial says so: its head need not begin with a linear layer.
        """
        if self.own and self.own.features:
            return self.own.features
        matrix = next((leaf for leaf in self.head(params).values() if leaf.dim() == 2), None)
        if matrix is None:
            why = "model: expected one whose head trains a linear layer"
            raise refusal(f"method {method}", why, "model")
        columns: int = matrix.shape[1]
        return columns

    def outputs(self, params: Tree) -> int:
        """The width of the head's last layer."""
        head = [*self.head(params).values()]
        # Its matrix, if it has one: the last leaf may be a scale of all outputs.
        matrices = [leaf for leaf in head if leaf.dim() == 2]
        return len((matrices or head)[-1])

    def head(self, params: Tree) -> Tree:
        """The part of ``params`` that belongs to the head."""
        self._require_parts()
        return {name: leaf for name, leaf in params.items() if name.startswith("head.")}

    def body(self, params: Tree) -> Tree:
        """The part of ``params`` that does not belong to the head."""
        self._require_parts()
        return {name: leaf for name, leaf in params.items() if not name.startswith("head.")}

    def _require_parts(self) -> None:
        """Raises UserError for a module without `body` and `head`."""
        where = f"model {type(self.module).__name__}"
        if not (hasattr(self.module, "body") and hasattr(self.module, "head")):
            why = (
                "has no `body` and `head`, which the method treats differently: use "
                "fedrepro.models.classifier.Classifier(body, head)"
            )
            raise refusal(where, why)
        if self._tied:
            why = (
                f"{self._tied}: shared by its `body` and `head`, which the method treats "
                "differently: give each its own"
            )
            raise refusal(where, why, self._tied)

    def require_trained_parts(self, method: str, parts: tuple[str, ...] = ("body", "head")) -> None:
        """Raises UserError unless these parts have parameters to train, which ``method`` needs."""
        self._require_parts()
        for part in parts:
            if not any(name.startswith(f"{part}.") for name in self.trained):
                wanted = " and ".join(parts)
                why = f"expected a model with parameters to train in {wanted}: its {part} has none"
                raise refusal(f"method {method}", why, part)

    def twin(self) -> "Net":
        """The same network in other memory, with nothing recorded."""
        graphs, kept, self.graphs, self._kept = self.graphs, self._kept, None, {}
        try:
            twins: dict[int, Any] = {}
            twin = copy.deepcopy(self, twins)
            rebound(twin.module, twins)
            return twin
        finally:
            self.graphs, self._kept = graphs, kept

    @property
    def running_statistics(self) -> list[str]:
        """The names of leaves that forward passes change: state between mini-batches."""
        return [name for name in self._bound if name in self._untrained]

    @property
    def trained(self) -> list[str]:
        """The names of leaves that have gradients."""
        return [name for name in self._bound if name not in self._untrained]

    def refuse_running_statistics(self, method: str) -> None:
        """Raises UserError if the model has running statistics, which ``method`` would corrupt."""
        if names := self.running_statistics:
            why = (
                f"does not support models with running statistics ({names[0]}): use GroupNorm, or "
                "BatchNorm with the statistics of mini-batches"
            )
            raise refusal(f"method {method}", why, names[0])

    def require_draws(self, method: str, why: str) -> None:
        """Raises UserError, which says ``why``, unless two draws of most weights differ.

        They are the same where weights are given: by a state dict, by a trained module, or in a
        pre-trained part.
        """
        one, other = (self.trainable(self.init(stream(0, "draws", seed))) for seed in (0, 1))
        same = sum(leaf.numel() for name, leaf in one.items() if torch.equal(leaf, other[name]))
        if 2 * same > sum(leaf.numel() for leaf in one.values()):
            expected = f"model: most of its weights are given: expected to draw them, as {why}"
            raise refusal(f"method {method}", expected, "model")

    def refuse_others(self, params: Tree, whose: str, each_client: bool = False) -> None:
        """Raises UserError unless ``params`` has this network's leaves, by names and shapes.

        Args:
            whose: where the parameters are used; the error message starts with it.
            each_client: whether leaves are those of all clients, [clients, ...].
        """
        wanted = {name: list(leaf.shape) for name, leaf in self._bound.items()}
        shapes = {name: list(leaf.shape)[each_client:] for name, leaf in tree.named(params)}
        for name in (*wanted, *shapes):
            if wanted.get(name) != shapes.get(name):
                raise bad_value(whose, name, shapes.get(name), f"{wanted.get(name)}, its shape")

    def ordered(self, params: Tree) -> Tree:
        """``params`` of the whole model, in the order of the module's names."""
        return {name: params[name] for name in self._bound}

    def trainable(self, params: Tree) -> Tree:
        """``params`` without buffers, at any depth of the tree."""
        if not self._untrained or not isinstance(params, dict):
            return params
        return {
            name: self.trainable(leaf)
            for name, leaf in params.items()
            if isinstance(leaf, dict) or name not in self._untrained
        }

    def constants(self, part: str = "") -> Tree:
        """What the module or a ``part`` of it holds outside the tree, by its names there."""
        return part_of(self._constants, part) if part else dict(self._constants)

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        device: torch.device = next(iter(self._bound.values())).device
        return device

    @property
    def mixes_samples(self) -> bool:
        """True if a sample's output or gradient depends on the other samples of its mini-batch."""
        if self.own and self.own.mixes:
            return True
        return any(
            isinstance(layer, BatchNorm)
            or (getattr(layer, "scale_grad_by_freq", False) and layer.weight.requires_grad)
            for layer in self.module.modules()
        )

    def mixes_in_training(self, part: str = "") -> bool:
        """Return True if a sample's output in training depends on the others of its mini-batch.

        Not with BatchNorm that the model's own ``train`` keeps in testing mode.

        Args:
            part: the submodule to look at; "" for the whole model.
        """
        if self.own and self.own.mixes:
            return True
        training = self.module.training
        self.module.train()
        layers = self.module.get_submodule(part).modules()
        mixes = any(isinstance(layer, BatchNorm) and layer.training for layer in layers)
        self.module.train(training)
        return mixes

    def refuses_to_train_on(self, x: Tensor) -> bool:
        """Return True if BatchNorm cannot normalise a mini-batch ``x``; changes nothing."""
        copies = {name: leaf.detach().clone() for name, leaf in leaves_of(self.module).items()}
        try:
            with torch.no_grad(), seeded(0, self.device):
                self(copies, x)
        except ValueError as error:
            return TOO_FEW in str(error)
        return False

    def bind(self, params: Tree) -> Tree:
        """A copy of ``params`` that a client may update in place, and that requires gradients.

        If ``params`` has the module's names and shapes, the copy is made in the module's own
        tensors. A method may train something else of each layer by its name, such as a number.
        """
        if self._has_its_leaves(params):
            tree.fill([*self._bound.values()], [params[name] for name in self._bound])
            return self._bound
        if self.graphs and (kept := self._kept.get(tree.signature(params))):
            tree.fill(tree.leaves(kept), tree.leaves(params))  # a recorded step knows the memory
            return kept
        free = self._laid_out(tree.copy(params))
        for leaf in tree.leaves(self.trainable(free)):
            leaf.requires_grad_()
        if self.graphs:
            self._kept[tree.signature(params)] = free
        return free

    def _has_its_leaves(self, params: Tree) -> bool:
        """Return whether ``params`` has the module's names, with tensors of its shapes."""
        if not isinstance(params, dict) or params.keys() != self._bound.keys():
            return False
        pairs = [(params[name], leaf) for name, leaf in self._bound.items()]
        return all(isinstance(one, Tensor) and one.shape == leaf.shape for one, leaf in pairs)

    def _laid_out(self, params: Tree) -> Tree:
        """``params`` with the memory formats of the module, at any depth of the tree."""
        if not self._channels_last or not isinstance(params, dict):
            return params
        leaves = {name: params.get(name) for name in self._channels_last}
        last = [
            name for name, leaf in leaves.items() if isinstance(leaf, Tensor) and leaf.dim() == 4
        ]
        return {
            name: _channels_last(leaf) if name in last else self._laid_out(leaf)
            for name, leaf in params.items()
        }


def part_of(params: Tree, part: str) -> Tree:
    """The leaves of a part of the module, by their names in it."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): leaf for name, leaf in params.items() if name.startswith(prefix)
    }


def _channels_last(leaf: Tensor) -> Tensor:
    if leaf.stride(1) == 1 and leaf.is_contiguous(memory_format=torch.channels_last):
        return leaf
    # vmap knows no clone to channels_last.
    last = leaf.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
    return last.permute(0, 3, 1, 2)


def differentiate(loss: Callable[[Branch], Tensor], params: Branch) -> Branch:
    """The gradient of ``loss`` at ``params``, over the leaves that can have one.

    If no leaf requires gradients, all leaves get one: ``params`` must then contain no buffers,
    which belong in the closure of ``loss``.
    """
    every = tree.leaves(params)
    wanted = [leaf for leaf in every if leaf.requires_grad]
    if not wanted:
        if torch.compiler.is_compiling() or internals.is_mapped():  # clients side by side
            whole: Branch = torch.func.grad(partial(_followed, loss))(params)
            return whole
        free = tree.apply(lambda leaf: leaf.detach().requires_grad_(), params)
        return differentiate(loss, free)
    if not torch.is_grad_enabled():  # on the server
        with torch.enable_grad():
            return differentiate(loss, params)
    by_leaf = internals.backward(loss(params), tuple(wanted))
    gradients = [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(wanted, by_leaf, strict=True)
    ]
    if len(wanted) == len(every) or not isinstance(params, dict):
        return tree.rebuild(params, iter(gradients))
    return _rebuild_trainable(params, dict(zip(map(id, wanted), gradients, strict=True)))


def _followed(loss: Callable[[Branch], Tensor], params: Branch) -> Tensor:
    """A loss that a gradient follows from; of another one, torch.func would return zeros."""
    value = loss(params)
    if not value.requires_grad:
        raise refusal("loss", "no gradient follows from it: compute without detach() and no_grad")
    return value


def _rebuild_trainable(params: Tree, gradients: dict[int, Tensor]) -> Tree:
    return {
        name: _rebuild_trainable(leaf, gradients) if isinstance(leaf, dict) else gradients[id(leaf)]
        for name, leaf in params.items()
        if isinstance(leaf, dict) or id(leaf) in gradients
    }
