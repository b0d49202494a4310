"""A torch module as a function of its parameters."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedrepro.engine import internals, tree
from fedrepro.engine.initialise import BatchNorm, initialise
from fedrepro.engine.tree import Branch, Tree
from fedrepro.support.errors import UserError, bad_value

Dropout = nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d
AlphaDropout = nn.AlphaDropout | nn.FeatureAlphaDropout


class Net:
    """A module and the flat tree ``{name: tensor}`` of its parameters and float buffers.

    A module made for a federation has two children, ``body`` and ``head``: personalised methods
    keep the head on the client, feature-based methods use the body's output.

    Buffers (BatchNorm's running statistics) are in the same tree. They have no gradient: forward
    passes update them, and a client's update contains the change.

    The module's own tensors may use the memory format channels_last, which makes some convolutions
    faster. Trees that this class returns never do, because the order in memory affects the bits of
    a sum.

    Args:
        precision: of convolutions and matrix products in training, if it differs from the
            parameters'. Parameters, gradients, sums and testing keep the parameters' precision.

    Attributes:
        draws: whether layers draw random numbers in training (dropout, stochastic depth). They use
            torch's global generator: see :meth:`drawing_from`.
    """

    def __init__(self, module: nn.Module, precision: torch.dtype | None = None) -> None:
        self.module = module
        self.precision = precision
        self._parameters = dict(module.named_parameters())
        self._buffers = {
            name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()
        }
        # The module's own tensors. A tree that *is* this one needs no functional_call, which would
        # take 5 to 30 % of a step of a small model.
        self._bound: Tree = {**self._parameters, **self._buffers}
        self._channels_last = [
            # Includes weights with one input channel: both formats have the same bytes there, but a
            # convolution chooses the format of its output by the strides.
            name
            for name, leaf in self._parameters.items()
            if leaf.stride() != torch.empty(leaf.shape, device="meta").stride()
        ]
        self.draws = any(map(_draws, module.modules()))
        self._learned = _learned_elsewhere(module, self._bound)

    def init(self, rng: torch.Generator) -> Tree:
        """New parameters and buffers, drawn from ``rng`` by PyTorch's default rules.

        Pre-trained parts get the weights that they had when this object was made, even if the
        module's own tensors have been trained since.
        """
        with torch.no_grad():
            for name, leaf in self._learned.items():
                self._bound[name].copy_(leaf)
            initialise(self.module, rng)
        return tree.copy(self._bound)

    def drawing_from(self, seed: int) -> AbstractContextManager[None]:
        """A context in which layers draw from ``seed``; afterwards it restores global generators.

        Does nothing for a model without random layers.
        """
        return (
            _seeded(seed, next(iter(self._bound.values())).device) if self.draws else nullcontext()
        )

    def _holds(self, params: Tree) -> bool:
        """Whether the module itself has these parameters; never in compiled code.

        PyTorch 2.9 cannot compile ``is`` between dictionaries.
        """
        return not torch.compiler.is_compiling() and params is self._bound

    def __call__(self, params: Tree, x: Tensor) -> Tensor:
        """The module's output [n, outputs] at parameters ``params`` for inputs ``x`` [n, ...]."""
        if self._holds(params) and self.precision is None:
            return self.module(x)  # type: ignore[no-any-return]
        return self._call(self.module, params, x)

    def _call(self, part: nn.Module, params: Tree, x: Tensor) -> Tensor:
        """The output of the module or a part of it; ``params`` has the names of that part."""
        low = self.precision if part.training else None
        with torch.autocast(x.device.type, low) if low else nullcontext():
            if self._holds(params):
                found: Tensor = part(x)
            else:
                found = functional_call(part, params, (x,))
        return found.to(next(iter(params.values())).dtype) if low else found

    def predict(self, params: Tree, x: Tensor) -> Tensor:
        """Like calling it, with dropout and BatchNorm in testing mode.

        For clients that run alone and for the server; mapped or compiled models have neither layer.
        """
        with self.testing():
            return self(params if self._holds(params) else self._laid_out(params), x)

    @contextmanager
    def testing(self) -> Iterator[None]:
        """A context in which dropout and BatchNorm are in testing mode."""
        self.module.eval()
        try:
            yield
        finally:
            self.module.train()

    def features(self, params: Tree, x: Tensor) -> Tensor:
        """The body's output [n, features]."""
        self._require_parts()
        if not self.module.training:
            params = self._laid_out(params)
        body = {
            name.removeprefix("body."): leaf
            for name, leaf in params.items()
            if name.startswith("body.")
        }
        return self._call(self.module.get_submodule("body"), body, x)

    def features_and_output(self, params: Tree, x: Tensor) -> tuple[Tensor, Tensor]:
        """The body's output [n, features] and the head's output [n, outputs], in one pass.

        Two passes would update running statistics twice.
        """
        features = self.features(params, x)
        head = {name.removeprefix("head."): leaf for name, leaf in self.head(params).items()}
        return features, self._call(self.module.get_submodule("head"), head, features)

    def outputs(self, params: Tree) -> int:
        """The width of the head's last layer."""
        return len(list(self.head(params).values())[-1])

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
        if not (hasattr(self.module, "body") and hasattr(self.module, "head")):
            raise UserError(
                f"model {type(self.module).__name__}: has no `body` and `head`, which the method "
                "treats differently: use fedrepro.models.classifier.Classifier(body, head)"
            )

    def refuse_running_statistics(self, method: str) -> None:
        """Raises UserError if the model has running statistics, which ``method`` would corrupt."""
        if self._buffers:
            raise UserError(
                f"method {method}: does not support models with running statistics (BatchNorm): "
                "use GroupNorm, or BatchNorm with the statistics of mini-batches"
            )

    def refuse_others(self, params: Tree, whose: str, each_client: bool = False) -> None:
        """Raises UserError unless ``params`` has this network's leaves, by names and shapes.

        Args:
            whose: where the parameters are used; the error message starts with it.
            each_client: whether leaves are those of all clients, [clients, ...].
        """
        wanted = {name: list(leaf.shape) for name, leaf in self._bound.items()}
        found = {name: list(leaf.shape)[each_client:] for name, leaf in tree.named(params)}
        for name in (*wanted, *found):
            if wanted.get(name) != found.get(name):
                raise bad_value(whose, name, found.get(name), f"{wanted.get(name)}, its shape")

    def ordered(self, params: Tree) -> Tree:
        """``params`` of the whole model, in the order of the module's names."""
        return {name: params[name] for name in self._bound}

    def trainable(self, params: Tree) -> Tree:
        """``params`` without buffers, at any depth of the tree."""
        if not self._buffers or not isinstance(params, dict):
            return params
        return {
            name: self.trainable(leaf) for name, leaf in params.items() if name not in self._buffers
        }

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        device: torch.device = next(iter(self._bound.values())).device
        return device

    @property
    def mixes_samples(self) -> bool:
        """Whether a sample's output depends on the other samples of its mini-batch."""
        return any(isinstance(layer, BatchNorm) for layer in self.module.modules())

    def mixes_when_testing(self, x: Tensor) -> bool:
        """Whether a sample's output depends on the other samples in testing mode, as ``x`` shows.

        That of a BatchNorm without running statistics does, and perhaps that of a model of yours.
        """
        with torch.no_grad(), self.testing():
            try:
                alone = torch.cat([self.module(sample) for sample in x.split(1)])
            except ValueError:  # BatchNorm refuses a single sample
                return True
            together: Tensor = self.module(x)
        largest = float(together.abs().max())
        return not torch.allclose(alone, together, rtol=1e-3, atol=1e-3 * largest)

    @property
    def moves_buffers(self) -> bool:
        """Whether a layer other than BatchNorm keeps state between mini-batches."""
        return any(getattr(layer, "moves_buffers", False) for layer in self.module.modules())

    def bind(self, params: Tree) -> Tree:
        """A copy of ``params`` that a client may update in place, and that requires gradients.

        If ``params`` has the module's names, the copy is made in the module's own tensors.
        """
        if isinstance(params, dict) and params.keys() == self._bound.keys():
            with torch.no_grad():
                for name, leaf in self._bound.items():
                    leaf.copy_(params[name])
            return self._bound
        free = self._laid_out(tree.copy(params))
        for leaf in tree.leaves(self.trainable(free)):
            leaf.requires_grad_()
        return free

    def _laid_out(self, params: Tree) -> Tree:
        """``params`` with the memory formats of the module, at any depth of the tree."""
        if not self._channels_last or not isinstance(params, dict):
            return params
        return {
            name: _channels_last(leaf) if name in self._channels_last else self._laid_out(leaf)
            for name, leaf in params.items()
        }


def _channels_last(leaf: Tensor) -> Tensor:
    if leaf.stride(1) == 1 and leaf.is_contiguous(memory_format=torch.channels_last):
        return leaf
    return torch.empty_like(leaf, memory_format=torch.channels_last).copy_(leaf)


def _learned_elsewhere(module: nn.Module, bound: Tree) -> Tree:
    """Copies of the pre-trained leaves, which :func:`initialise` does not (fully) overwrite."""
    parts = [
        (f"{path}." if path else "")
        for path, part in module.named_modules()
        if getattr(part, "keeps_weights", False) or getattr(part, "redrawn", False)
    ]
    return tree.copy({name: leaf for name, leaf in bound.items() if name.startswith(tuple(parts))})


def _draws(layer: nn.Module) -> bool:
    """Whether a layer draws random numbers in training.

    torchvision's StochasticDepth and timm's DropPath are recognised by name, because neither
    package is required. DistilBERT's attention also draws, but comes with a dropout layer.
    """
    if isinstance(layer, Dropout | AlphaDropout):
        return layer.p > 0
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return type(layer).__name__ in ("StochasticDepth", "DropPath")


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of the CPU and ``device``, and restore their states."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def differentiate(loss: Callable[[Branch], Tensor], params: Branch) -> Branch:
    """The gradient of ``loss`` at ``params``, over the leaves that can have one.

    If no leaf requires gradients, all leaves get one: ``params`` must then contain no buffers,
    which belong in the closure of ``loss``.
    """
    every = tree.leaves(params)
    wanted = [leaf for leaf in every if leaf.requires_grad]
    if not wanted:
        if torch.compiler.is_compiling() or internals.is_mapped():  # clients side by side
            whole: Branch = torch.func.grad(loss)(params)
            return whole
        free = tree.apply(lambda leaf: leaf.detach().requires_grad_(), params)
        return differentiate(loss, free)
    if not torch.is_grad_enabled():  # on the server
        with torch.enable_grad():
            return differentiate(loss, params)
    found = internals.backward(loss(params), tuple(wanted))
    gradients = [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(wanted, found, strict=True)
    ]
    if len(wanted) == len(every) or not isinstance(params, dict):
        return tree.rebuild(params, iter(gradients))
    return _rebuild_trainable(params, dict(zip(map(id, wanted), gradients, strict=True)))


def _rebuild_trainable(params: Tree, gradients: dict[int, Tensor]) -> Tree:
    return {
        name: _rebuild_trainable(leaf, gradients) if isinstance(leaf, dict) else gradients[id(leaf)]
        for name, leaf in params.items()
        if isinstance(leaf, dict) or id(leaf) in gradients
    }
