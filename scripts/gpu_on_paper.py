"""A GPU on paper: how long training would take on a card that is not here.

The engine itself plays its rounds, on tensors without memory (PyTorch's device "meta"). Each
operation that it launches moves a clock of the host and one of the card, by a table of what the
card can do: the time of a launch, that of the shortest kernel, FLOP and bytes per second. What the
engine records as a graph is one launch. What waits for the card lets the host wait. So models and
methods are counted as they are programmed, and nothing is computed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from card_table import CardTable, Precision
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedrepro.engine import graphs
from fedrepro.engine.graphs import Graphs
from fedrepro.engine.net import Net
from fedrepro.engine.tree import Tree

PAPER = "meta"  # PyTorch's device
SOON = 2  # calls before a step is recorded: nothing has to warm up
aten = torch.ops.aten
# PyTorch has no meta version: in place, without a result.
IN_PLACE = {getattr(aten._fused_sgd_, name) for name in aten._fused_sgd_.overloads()}


class Clock(TorchDispatchMode):
    """The time on a card of a table, and on the host that launches what the card does.

    Attributes:
        host, card: the seconds at which each is ready for more.
        worked: seconds that the card has worked.
    """

    def __init__(
        self, table: CardTable, precision: Precision = "float32", compiled: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        from torch.utils.flop_counter import flop_registry  # imports a compiler

        self.counts: dict[Any, Any] = flop_registry
        self.table, self.flop_per_second = table, table.flop_per_second[precision]
        # What a compiler fuses is left out of the number of kernels, not of the bytes.
        conv = table.convolution_seconds
        self.least = {aten.convolution: conv, aten.convolution_backward: 2 * conv}
        self.product = table.product_seconds
        self.others = table.kernel_seconds * (table.left_by_compiler if compiled else 1.0)
        self.host = self.card = self.worked = 0.0
        self.recorded: float | None = None  # seconds of the card, while something is recorded

    def wait(self) -> float:
        """Let the host wait for the card, and tell the time."""
        self.host = self.card = max(self.host, self.card)
        return self.host

    def launch(self, takes: float, by: float) -> None:
        """Launch what the card takes some seconds for; the launch takes the host others."""
        if self.recorded is not None:
            self.recorded += takes
            return
        self.host += by
        self.card = max(self.card, self.host) + takes
        self.worked += takes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = _on_card((args, kwargs))
        if func is aten._local_scalar_dense.default and given:
            self.wait()
            return 1.0 if given[0].is_floating_point() else 1
        if func is aten.equal.default and given:
            self.wait()
            return True
        if func is aten._to_copy.default and given and _is_cpu(kwargs.get("device")):
            self.wait()
            return torch.ones(given[0].shape, dtype=kwargs.get("dtype") or given[0].dtype)
        if func is aten.copy_.default and given and args[0].device.type == "cpu":
            self.wait()
            return args[0].fill_(1)
        if func is aten.nonzero.default and given:
            self.wait()
            return given[0].new_zeros((given[0].numel(), given[0].dim()), dtype=torch.int64)
        if func is aten._unique2.default and given:
            self.wait()
            indices = given[0].new_zeros(given[0].shape, dtype=torch.int64)
            return given[0].flatten(), indices, indices.flatten()
        if func is aten.index.Tensor and given:
            args = args[0], [_places(index) for index in args[1]]
        elif func not in self.counts and func._can_decompose():  # as with gradients
            with self:
                return func.decompose(*args, **kwargs)
        result = None if func in IN_PLACE else func(*args, **kwargs)
        made = _on_card(result)
        if (given or made) and not func.is_view:
            flop = 0
            if (count := self.counts.get(func._overloadpacket)) is not None:
                flop = count(*args, **kwargs, out_val=result)
            moved = sum(leaf.numel() * leaf.element_size() for leaf in (*given, *made))
            work = max(flop / self.flop_per_second, moved / self.table.bytes_per_second)
            least = self.least.get(func._overloadpacket, self.product if flop else self.others)
            self.launch(least + work, self.table.launch_seconds)
        return result


class OnPaper:
    """Records for a clock (:class:`fedrepro.engine.graphs.Recorder`)."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def beside(self) -> "OnPaper":
        return self

    def begin(self) -> None:
        pass

    @contextmanager
    def inside(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        pass

    def waits(self, function: Callable[[], Tree]) -> tuple[Tree, str]:
        return function(), ""

    def record(self, function: Callable[[], Tree]) -> tuple[Tree, Callable[[], None]]:
        clock = self.clock
        clock.recorded = 0.0
        try:
            result = function()
        finally:
            takes, clock.recorded = clock.recorded, None
        return result, lambda: clock.launch(takes, clock.table.replay_seconds)


@contextmanager
def on_paper(
    nets: Iterable[Net], table: CardTable, precision: Precision = "float32", compiled: bool = False
) -> Iterator[Clock]:
    """A clock for what networks compute meanwhile, on tensors without memory.

    Args:
        compiled: whether steps of all clients are compiled.
    """
    after, graphs.AFTER = graphs.AFTER, SOON
    # PyTorch knows no other precision for tensors without memory, not even to leave one off.
    autocast, torch.autocast = torch.autocast, lambda *_, **__: nullcontext()  # type: ignore
    with Clock(table, precision, compiled) as clock:
        common = Graphs(OnPaper(clock))
        for net in nets:
            net.graphs = common
        try:
            yield clock
        finally:
            graphs.AFTER, torch.autocast = after, autocast  # type: ignore[misc]


def _on_card(what: Any) -> list[Tensor]:
    leaves = (leaf for leaf in tree_leaves(what) if isinstance(leaf, Tensor))
    return [leaf for leaf in leaves if leaf.device.type == PAPER]


def _places(index: Any) -> Any:
    """Of a mask, whose true places nobody knows: as if all were true."""
    if not isinstance(index, Tensor) or index.dtype != torch.bool:
        return index
    return index.new_zeros(index.numel(), dtype=torch.int64)


def _is_cpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"
