"""Properties of every method, wrapper and server optimizer, one function each.

`make test` checks them for all compositions of the package, `fedrepro check` for one. Each check
plays a few rounds of a federation of six unequal clients (:mod:`fedrepro.check.world`).
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from fedrepro.check.world import (
    CLASSES,
    FEATURES,
    PLUGINS,
    ROUNDS,
    Data,
    Memory,
    federation,
    follows_a_server_optimizer,
    play,
)
from fedrepro.engine import tree
from fedrepro.engine.executors import Parallel, eager, unrolled
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, begin, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.models.classifier import Classifier
from fedrepro.run.store import ClientStore, load_tree, save_tree
from fedrepro.run.watch import watched
from fedrepro.support.errors import UserError

State = tuple[Tree, Memory, int]


class Failed(AssertionError):
    """A method lacks the property; the text says what was observed instead."""


# The usual causes of what two checks find.
PADDED = "if `loss` takes a mean of its own, it must leave out padding, which batch['real'] marks"
TESTING = "a model other than the client's own, such as a teacher, needs `with ctx.net.testing():`"


class NotApplicable(Exception):
    """The property does not apply; the text says why."""


@cache
def history(name: str) -> list[State]:
    """The states after 0, 1, ... rounds of the usual federation, which several checks compare.

    Raises:
        UserError: for what :func:`fedrepro.run.watch.watched` refuses in any part.
    """
    world = watched(federation(name), every=True)
    states = [play(world, until=0)]
    for until in range(1, ROUNDS + 1):
        states.append(play(world, until=until, state=states[-1]))
    return states


def hooks_keep_their_contract(name: str) -> None:
    """The mistakes for which a run of a plug-in method is refused, checked in all parts."""
    history(name)


def executors_agree(name: str) -> None:
    """In the second round, in which some clients are new, and in a late one: all have states."""
    states = history(name)
    for execute in (eager, unrolled):
        world = federation(name, execute=execute)
        try:
            for done in (1, 4):
                played = play(world, until=done + 1, state=states[done])
                _same("side by side", states[done + 1], played, 1e-9)
        except Failed as error:
            raise Failed(f"{error}; {PADDED}") from None


def processes_change_no_bit(name: str) -> None:
    """In the second round, in which some clients are new."""
    world, states = federation(name, execute=Parallel(2)), history(name)
    _same("in two processes", states[2], play(world, until=2, state=states[1]))


def resuming_changes_no_bit(name: str) -> None:
    """From a checkpoint after two thirds of the rounds."""
    states = history(name)
    server, owns, done = states[4]
    with TemporaryDirectory() as folder:
        save_tree(Path(folder) / "server", server)
        store = ClientStore(Path(folder) / "clients")
        for client, own in owns.known.items():
            store.put(client, own)
        again = ClientStore(Path(folder) / "clients", versions=store.flush())
        # A client without a state is not stored; rounds do not see a difference.
        restored = Memory({client: again.get(client) or {} for client in owns.known})
        loaded, _ = load_tree(Path(folder) / "server")
        resumed = play(federation(name), state=(loaded, restored, done))
    _same("resumed from disk", states[-1], resumed)


def a_round_has_no_side_effects(name: str) -> None:
    """A round played again gives the same bits, and changes neither state nor randomness."""
    world, states = federation(name), history(name)
    before = copy.deepcopy(states[2])
    torch.manual_seed(0)
    generator_state = torch.get_rng_state()
    again = play(world, until=3, state=states[2])
    _same("the state that a round began with, after it", before, states[2])
    _same("played a second time", states[3], again)
    if not torch.equal(generator_state, torch.get_rng_state()):
        raise Failed("torch's global generator was drawn from")


def another_seed_gives_another_result(name: str) -> None:
    """No method draws from a fixed seed."""
    one, _, _ = history(name)[1]
    other, _, _ = play(federation(name, seed=2), until=1)
    pairs = zip(tree.leaves(one["params"]), tree.leaves(other["params"]), strict=True)
    if all(torch.equal(a, b) for a, b in pairs):
        raise Failed("seeds 2 and 3 give the same model")


def one_client_is_enough(name: str) -> None:
    """A federation of one client, and thus a cohort of one."""
    world = federation(name)
    alone = Data([world.clients.samples.at(world.clients.rows(0))])
    context = replace(world.context, clients=1)
    server, _, _ = play(replace(world, clients=alone, context=context, cohort_size=1), until=2)
    for key, leaf in tree.named(server):
        if leaf.is_floating_point() and not bool(leaf.isfinite().all()):
            raise Failed(f"the server's {key} is not finite")


def accuracies(name: str) -> tuple[float, float]:
    """Accuracy of the clients' models on their own samples: before training, and after it."""
    world, states = federation(name), history(name)
    before, after = _accuracy(world, states[0]), _accuracy(world, states[-1])
    if after > 0.85:
        return before, after
    # It learns slowly: ten rounds of all clients at a higher rate. Without momentum, which some
    # control variates do not support.
    longer = federation(name, cohort=6, rounds=10, lr=0.3, momentum=0.0)
    return before, _accuracy(longer, play(longer))


def _accuracy(world: Federation, state: State) -> float:
    server, owns, _ = state
    everyone = list(range(len(world.clients.sizes)))
    ctx, hits = context_of(world, world.context.rounds - 1, everyone), []
    for client in everyone:
        x, y = world.clients.samples.at(world.clients.rows(client))
        params = world.method.eval_model(ctx, server, owns.get(client) or {})
        hits.append(ctx.net(params, x).argmax(1) == y)
    return float(torch.cat(hits).double().mean())


def it_learns(name: str) -> None:
    """A few rounds improve on the initial models, or ten do."""
    before, after = accuracies(name)
    if after <= before:
        raise Failed(f"accuracy {before:.0%} before training, {after:.0%} after it")


def a_server_optimizer_is_followed_or_refused(name: str) -> None:
    """As its ``uses_server_optimizer`` declares."""
    method, _ = registry.compose(name, folders=PLUGINS.get())
    if {"+", "@"} & set(name):
        raise NotApplicable("said of single methods")
    followed = follows_a_server_optimizer(federation(name))
    if followed is not method.uses_server_optimizer:
        seen = "follows the server optimizer" if followed else "is the same without one"
        raise Failed(
            f"uses_server_optimizer is {method.uses_server_optimizer}, but the server {seen}"
        )


def running_statistics_stay_among_those_of_the_clients(name: str) -> None:
    """BatchNorm's statistics have no gradient: whatever is done to parameters, average them."""
    if {"+", "@"} & set(name):
        raise NotApplicable("said of single methods")
    world = federation(name)
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8))
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    # Mini-batches of 7: for no client the last one has a single sample.
    world = replace(world, context=replace(world.context, net=net), batch_size=7)
    if any(layer.requires for layer in world.method.layers()):
        raise NotApplicable("its server trains, too")
    try:
        world.method.check(context_of(world, 0, [0]))
    except UserError:
        raise NotApplicable("it refuses models with BatchNorm") from None
    before = begin(world)
    try:
        after, played = play_round(watched(world, every=True), before, Memory(), 0)
    except UserError as error:
        raise Failed(f"{error}; {TESTING}") from None
    if torch.equal(after["params"]["body.1.running_mean"], world.initial["body.1.running_mean"]):
        raise NotApplicable("it shares none")
    ctx = context_of(world, 0, played.cohort)
    places = range(len(played.cohort))
    ended = [world.method.client_model(ctx, before, played.updates, place) for place in places]
    for buffer in ("body.1.running_mean", "body.1.running_var"):
        each = torch.stack([model[buffer] for model in ended])
        found = after["params"][buffer]
        least, most = each.min(0).values - 1e-12, each.max(0).values + 1e-12
        if not bool(((least <= found) & (found <= most)).all()):
            raise Failed(f"{buffer} of BatchNorm lies outside of what the clients have")


# In words, in the order of `fedrepro check`.
ALL_OF: dict[str, Callable[[str], None]] = {
    "hooks leave arguments, self, module variables and global randomness alone, "
    "and return trees and weights of the right form": hooks_keep_their_contract,
    "unequal clients side by side give the result of one after another": executors_agree,
    "two processes give the same bits as one": processes_change_no_bit,
    "a run resumed from disk gives the same bits": resuming_changes_no_bit,
    "a round has no side effects, and gives the same bits when it is replayed": (
        a_round_has_no_side_effects
    ),
    "another seed gives another result": another_seed_gives_another_result,
    "it runs with a single client": one_client_is_enough,
    "it learns": it_learns,
    "a server optimizer is followed, or `uses_server_optimizer` is False": (
        a_server_optimizer_is_followed_or_refused
    ),
    "BatchNorm's running statistics are averaged": (
        running_statistics_stay_among_those_of_the_clients
    ),
}
# For a composition with another part: shows that both work together.
TOGETHER = (
    hooks_keep_their_contract,
    executors_agree,
    processes_change_no_bit,
    resuming_changes_no_bit,
    a_round_has_no_side_effects,
    another_seed_gives_another_result,
)


def composes(name: str) -> None:
    """The composition is refused, or has the properties of every composition."""
    try:
        registry.compose(name, folders=PLUGINS.get())
    except UserError as error:
        raise NotApplicable(str(error)) from None
    for check in TOGETHER:
        check(name)


def _by_name(known: Mapping[int, Tree]) -> Tree:
    return {str(client): state for client, state in known.items()}


def _same(what: str, one: State, other: State, tolerance: float = 0.0) -> None:
    """Raises Failed unless two states are equal, to the bit if ``tolerance`` is 0."""
    _close(what, "the server's", one[0], other[0], tolerance)
    _close(what, "clients'", _by_name(one[1].known), _by_name(other[1].known), tolerance)


def _close(what: str, whose: str, one: Tree, other: Tree, tolerance: float) -> None:
    ours, theirs = dict(tree.named(one)), dict(tree.named(other))
    if missing := ours.keys() ^ theirs.keys():
        raise Failed(f"{what}: {whose} state has not always {min(missing)}")
    for key, leaf in ours.items():
        near = leaf.shape == theirs[key].shape and leaf.dtype == theirs[key].dtype
        if not near or not torch.allclose(
            leaf, theirs[key], rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            away = (leaf - theirs[key]).abs().max() if near and leaf.is_floating_point() else None
            raise Failed(
                f"{what}: {whose} {key} differs"
                + ("" if away is None else f" by up to {float(away):.2g}")
            )
