"""Base of wrappers that compress what clients send, with error feedback.

A client sends C(delta + e) and keeps e <- delta + e - C(delta + e), what the compressor C left out
(Stich et al., NeurIPS 2018, "Sparsified SGD with memory", Algorithm 1; Karimireddy et al., ICML
2019, "Error feedback fixes SignSGD", Algorithm 2). C gets all parameters of a client as one vector.
Running statistics, and all else that a method sends, are sent as they are.

The simulation passes on decompressed updates, so that attacks and other wrappers see what the
server sees. :meth:`update_bytes` counts what a client would send.

https://arxiv.org/abs/1809.07599, https://arxiv.org/abs/1901.09847
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.method import Context, Method, Steps, Tree, Wrapper, tree
from fedrepro.methods._combining import needs_more_than_delta

ERROR = "error"  # in a client's state


@dataclass(frozen=True)
class Compressing(Wrapper):
    """Base of wrappers that compress ``delta``; ``client_state["error"]`` is what is still owed."""

    drawn: ClassVar[tuple[str, ...]] = ()  # names of what the compressor draws in `sample_round`

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        if any(isinstance(layer, Compressing) for layer in inner.layers()):
            return "its updates are compressed already"
        if any(layer.interpolates for layer in inner.layers()):
            # The engine asks for the first state as long as a client has none.
            return "its clients have no state in early rounds, and errors would be one"
        return needs_more_than_delta(inner)

    def compressed(self, vector: Tensor, client_state: Tree) -> Tensor:
        """The server's decompressed copy of ``vector`` [n]."""
        raise NotImplementedError

    def bytes_of(self, entries: int, width: int) -> int:
        """Bytes of a compressed vector of ``entries`` numbers of ``width`` bytes."""
        raise NotImplementedError

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        error = tree.zeros(ctx.net.trainable(ctx.initial))
        return {**self.inner.init_client(ctx, rng), ERROR: error}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        added = (ERROR, *self.drawn)
        inner_state = {name: leaf for name, leaf in client_state.items() if name not in added}
        update, after = self.inner.client_update(ctx, message, inner_state, steps)
        delta, error = update["delta"], client_state[ERROR]
        moved = ctx.net.trainable(delta)
        # Of a model of which only a part is communicated: that part.
        owed = {name: leaf + error[name] for name, leaf in moved.items()}
        vector = torch.cat([leaf.flatten() for leaf in tree.leaves(owed)])
        sizes = [leaf.numel() for leaf in owed.values()]
        parts = self.compressed(vector, client_state).split(sizes)
        sent = {
            name: part.view(leaf.shape)
            for (name, leaf), part in zip(owed.items(), parts, strict=True)
        }
        kept = {**error, **tree.subtract(owed, sent)}
        return {**update, "delta": {**delta, **sent}}, {**after, ERROR: kept}

    def update_bytes(self, ctx: Context, updates: Tree) -> int:
        moved = ctx.net.trainable(updates["delta"])
        first = tree.leaves(moved)[0]
        entries = tree.numel(moved) // len(first)
        others = {name: leaf for name, leaf in updates["delta"].items() if name not in moved}
        rest = self.inner.update_bytes(ctx, {**updates, "delta": others})
        return rest + len(first) * self.bytes_of(entries, first.element_size())
