"""A stand-in for distillation: the server's model follows the clients' on data without labels."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method
from fedrepro.engine.steps import Steps, shuffle
from fedrepro.engine.tree import Tree


class Labelled(NamedTuple):
    x: Tensor
    y: Tensor

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[rows], self.y[rows]


@dataclass(frozen=True)
class Taught(Method):
    """Distillation of sorts."""

    requires: ClassVar[tuple[str, ...]] = ("unlabelled", "judges")

    server_epochs: int = 1

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        given, judges = ctx.artifacts["unlabelled"], ctx.artifacts["judges"]
        x = given.inputs(torch.arange(len(given)))
        assert x.min() >= -1 and x.max() <= 1 and x.min() < 0
        total = torch.zeros(len(x), len(server["params"]["head.bias"]))
        for place, client in enumerate(ctx.cohort.tolist()):
            ended = ctx.net.predict(self.client_model(ctx, server, updates, place), x)
            total += weights[place] * ended
            assert judges.net is not None
            total += 0.01 * judges.net.predict(tree.take(judges.tensors, client), x)
        moved = super().server_update(ctx, server, updates, weights)
        orders = shuffle(torch.arange(len(x)), self.server_epochs, ctx.stream("distil"))
        steps = Steps(Labelled(x, total.softmax(1)), orders, 16, {})
        params, _ = descend(ctx, self.gradient, {}, {}, moved["params"], steps)
        return {**moved, "params": params}
