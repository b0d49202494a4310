"""A CUDA graph on the CPU: repeats recorded operations on the same memory, without Python."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedrepro.engine.graphs import Recorder
from fedrepro.engine.tree import Tree

READS = "_local_scalar_dense"  # Python reads a tensor: a host that waits for its device
UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


def tensors_of(what: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(what) if isinstance(leaf, Tensor)]


class _Listening(TorchDispatchMode):
    """Notes whether Python reads a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if READS in func.__name__:
            self.waits = "Python reads a tensor"
        return func(*args, **(kwargs or {}))


class _Recording(TorchDispatchMode):
    """Notes operations, and undoes what they do to memory that is not their own."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.own: dict[int, Tensor] = {}  # by its storage
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if READS in func.__name__:
            raise RuntimeError("operation not permitted when stream is capturing")
        given = tensors_of((args, kwargs))
        known = {leaf.untyped_storage()._cdata for leaf in given}
        # BatchNorm's declaration does not say that it changes running statistics.
        if func._schema.is_mutable or "batch_norm" in func.__name__:
            for leaf in given:
                place = leaf.untyped_storage()._cdata
                if place not in self.own and place not in self.before:
                    self.before[place] = leaf, leaf.detach().clone()
        result = func(*args, **kwargs)
        fresh = [leaf for leaf in tensors_of(result) if leaf.untyped_storage()._cdata not in known]
        for leaf in fresh:
            self.own[leaf.untyped_storage()._cdata] = leaf
        writes = func._schema.is_mutable or (fresh and func.__name__.split(".")[0] not in UNWRITTEN)
        if writes:
            self.operations.append((func, args, kwargs, fresh))
        return result

    def undo(self) -> None:
        for leaf, value in self.before.values():
            leaf.detach().copy_(value)


class Tape:
    """A recorder (:class:`fedrepro.engine.graphs.Recorder`) for the CPU."""

    def beside(self) -> "Tape":
        return Tape()

    def begin(self) -> None:
        pass

    @contextmanager
    def inside(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        pass

    def waits(self, function: Callable[[], Tree]) -> tuple[Tree, str]:
        with _Listening() as listening:
            return function(), listening.waits

    def record(self, function: Callable[[], Tree]) -> tuple[Tree, Callable[[], None]]:
        generator = torch.get_rng_state()
        mode = _Recording()
        try:
            with mode:
                result = function()
        finally:
            mode.undo()
            torch.set_rng_state(generator)

        def replay() -> None:
            with torch.no_grad():
                for leaf in mode.own.values():
                    if leaf.is_floating_point():
                        leaf.detach().fill_(torch.nan)
                for func, args, kwargs, fresh in mode.operations:
                    results = tensors_of(func(*args, **kwargs))
                    if func._schema.is_mutable:
                        continue
                    for leaf, value in zip(fresh, results, strict=True):
                        leaf.detach().copy_(value)

        return result, replay


class Counted:
    """A recorder that counts.

    Attributes:
        recorded: how many recordings were made.
        replayed: how many times one was repeated.
    """

    def __init__(self, recorder: Recorder, counts: Counter[str] | None = None) -> None:
        self.recorder = recorder
        self.counts = Counter[str]() if counts is None else counts
        self.begin, self.inside, self.end = recorder.begin, recorder.inside, recorder.end
        self.waits = recorder.waits

    @property
    def recorded(self) -> int:
        return self.counts["recorded"]

    @property
    def replayed(self) -> int:
        return self.counts["replayed"]

    def beside(self) -> "Counted":
        return Counted(self.recorder.beside(), self.counts)

    def record(self, function: Callable[[], Tree]) -> tuple[Tree, Callable[[], None]]:
        result, replay = self.recorder.record(function)
        self.counts["recorded"] += 1

        def counted() -> None:
            self.counts["replayed"] += 1
            replay()

        return result, counted
