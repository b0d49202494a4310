"""A federation on another device than the CPU, and what is compared with the CPU's."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

from torch import Tensor, nn

from fedrepro.check.world import Data, Memory
from fedrepro.engine import tree
from fedrepro.engine.context import LoadedArtifact
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, begin, context_of, play_round
from fedrepro.methods import registry


def compositions() -> Iterator[str]:
    for name, part in registry.parts().items():
        if part.kind == "method":
            yield name
        elif part.kind == "wrapper":
            yield f"{name}+fedavg"
        elif part.kind.startswith("server"):
            yield f"fedavg+{name}"


def on_device(
    world: Federation,
    sent: Callable[[Tensor], Tensor],
    moved: Callable[[nn.Module], nn.Module],
) -> Federation:
    """A federation whose network, data and givens lie elsewhere.

    Args:
        sent: copies a tensor to that device.
        moved: takes a module there.
    """

    given = {
        name: LoadedArtifact(
            tree.apply(sent, each.tensors),
            Net(moved(each.net.module)) if each.net else None,
            each.about,
        )
        for name, each in world.context.artifacts.items()
    }
    net = Net(moved(deepcopy(world.context.net.module)), world.context.net.precision)
    nets = {name: Net(moved(deepcopy(each.module))) for name, each in world.context.nets.items()}
    context = replace(world.context, net=net, nets=nets, artifacts=given)
    tensors = world.clients.tensors  # type: ignore[attr-defined]
    clients = Data([(sent(x), sent(y)) for x, y in tensors])
    return replace(world, context=context, clients=clients)


def two_rounds(world: Federation) -> tuple[tree.Tree, Memory, tree.Tree]:
    """The server's state and the clients', and the model of one of them."""
    server, client_states = begin(world), Memory()
    for round in range(2):
        server, played = play_round(world, server, client_states, round)
    ctx = context_of(world, 1, played.cohort)
    client = played.cohort[0]
    return (
        server,
        client_states,
        world.method.eval_model(ctx, server, client_states.get(client) or {}),
    )


def all_of_it(world: Federation) -> tree.Tree:
    """What a method that is run before a run leaves: its state, its artifact and its images."""
    server, client_states = begin(world), Memory()
    for round in range(min(2, world.context.rounds)):
        server, played = play_round(world, server, client_states, round)
    ctx = context_of(world, round, played.cohort)
    images, method = world.method.images(ctx, server), world.method
    shown = {} if images is None else {"images": images}
    return {"server": server, "product": method.artifact(ctx, server).tensors, **shown}
