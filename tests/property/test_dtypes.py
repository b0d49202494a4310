"""Numbers keep their type: a run in float32 has float32 wherever one in float64 has float64.

The other properties are checked in float64, where a number of the wrong type has the right value.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.check.world import Data, Memory
from fedrepro.engine import tree
from fedrepro.engine.context import LoadedArtifact
from fedrepro.engine.executors import Executor, eager, sequential
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, Round, begin, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.methods.fedfa import first_anchors
from support.worlds import federation

PARTS = registry.parts()
TRAINED = [name for name, part in PARTS.items() if part.kind == "method"]
SERVERS = [name for name, part in PARTS.items() if part.kind.startswith("server")]
WRAPPED = [f"{name}+fedavg" for name, part in PARTS.items() if part.kind == "wrapper"]
ALL = [*TRAINED, *WRAPPED, *(f"fedavg+{name}" for name in SERVERS)]
SIDE_BY_SIDE = ["fedavg", "scaffold", "ditto", "superfed_lm", "aaggff_d+fedavg", "fedfa", "moon"]
# From the first round on, so that two rounds have all of it.
EARLY = {
    "ima": {"start": 0.0, "window": 2}, "superfed_mm": {"start": 0.0}, "superfed_lm": {"start": 0.0}
}  # fmt: skip


@contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Factor(nn.Module):
    """A parameter without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.value, 1.5)


def with_factor(world: Federation) -> Federation:
    """The same world, with a model whose last layer's outputs are multiplied by one."""
    module = world.context.net.module
    layer = [each for each in module.modules() if isinstance(each, nn.Linear)][-1]
    layer.add_module("factor", Factor())
    layer.register_forward_hook(lambda layer, inputs, outputs: outputs * layer.factor.value)
    return replace(world, context=replace(world.context, net=Net(module)))


def in_float32(world: Federation) -> Federation:
    """The same world, with all that it was made with in float32."""

    def narrow(net: Net) -> Net:
        return Net(net.module.float())

    def given(artifact: LoadedArtifact) -> LoadedArtifact:
        tensors = tree.apply(torch.Tensor.float, artifact.tensors)
        return replace(artifact, tensors=tensors, net=artifact.net and narrow(artifact.net))

    base = world.context
    context = replace(
        base,
        net=narrow(base.net),
        nets={name: narrow(net) for name, net in base.nets.items()},
        artifacts={name: given(each) for name, each in base.artifacts.items()},
    )
    clients: Any = world.clients
    data = Data([(x.float(), y) for x, y in clients.tensors])
    return replace(world, context=context, clients=data)


def played(
    name: str, dtype: torch.dtype, execute: Executor
) -> tuple[dict[str, torch.Tensor], Round]:
    """All that there is after two rounds, by path, and the last round."""
    with default(dtype):
        momentum = 0.0 if name == "scaffnew" else 0.9
        made = federation(name, EARLY, rounds=2, momentum=momentum, execute=execute)
        made = with_factor(made)
        world = made if dtype == torch.float64 else in_float32(made)
        server, states = begin(world), Memory()
        first = {"server": server}
        for number in range(2):
            server, seen = play_round(world, server, states, number)
        clients = {str(client): own for client, own in states.known.items()}
        ctx = context_of(world, 1, [0])
        models = {
            client: world.method.eval_model(ctx, server, own)
            for client, own in clients.items()
            if "params" in server
        }
        ended: Tree = {"server": server, "clients": clients, "models": models}
        ended |= {"updates": seen.updates, "weights": seen.weights}
        ended |= {
            "client metrics": dict(seen.reported_by_clients),
            "metrics": dict(seen.reported_by_server),
        }
        start, end = dict(tree.named(first)), dict(tree.named(ended))
        for path, leaf in start.items():
            if path in end:
                assert end[path].dtype == leaf.dtype, path
        for client in seen.cohort:
            for path, leaf in tree.named(world.method.init_client(ctx, torch.Generator())):
                assert end[f"clients/{client}/{path}"].dtype == leaf.dtype, path
        return end, seen


@pytest.mark.parametrize(
    ("name", "execute"),
    [*((name, sequential) for name in ALL), *((name, eager) for name in SIDE_BY_SIDE)],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_what_is_float64_in_float64_is_float32_in_float32(name: str, execute: Executor) -> None:
    """But for numbers that are kept in float64 on purpose: counts, and what is not the model's."""
    wide, _ = played(name, torch.float64, execute)
    narrow, seen = played(name, torch.float32, execute)
    assert wide.keys() == narrow.keys()
    for path, leaf in narrow.items():
        if not wide[path].is_floating_point():
            assert leaf.dtype == wide[path].dtype, path
            continue
        kind, *_ = path.split("/")
        model = kind in ("models", "weights") or "params" in path or "delta" in path
        assert leaf.dtype == torch.float32 or (leaf.dtype == torch.float64 and not model), path
    assert seen.weights.dtype == torch.float32


@pytest.mark.parametrize("shape", [(3, 8), (8, 3)])
def test_anchors_have_the_type_of_the_head(shape: tuple[int, int]) -> None:
    for dtype in (torch.float32, torch.float64):
        anchors = first_anchors(torch.zeros(shape, dtype=dtype))
        assert anchors.dtype == dtype and anchors.shape == shape
        torch.testing.assert_close(anchors.norm(dim=1), torch.ones(shape[0], dtype=dtype))
