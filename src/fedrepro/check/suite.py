"""Properties of every method, wrapper and server optimizer, one function each.

`make test` checks them for all compositions of the package, `fedrepro check` for one. Each check
plays a few rounds of a federation of six unequal clients (:mod:`fedrepro.check.world`).
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from fedrepro.check.hooks import watched
from fedrepro.check.padding import PADDED
from fedrepro.check.world import (
    CLASSES,
    FEATURES,
    ROUNDS,
    Data,
    Memory,
    State,
    follows_a_server_optimizer,
    play,
)
from fedrepro.engine import tree
from fedrepro.engine.executors import Parallel, eager, unrolled
from fedrepro.engine.net import Net
from fedrepro.engine.round import ClientStates, Federation, begin, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import UserError


class Failed(AssertionError):
    """A method lacks the property; the text says what was observed instead."""


# The usual cause of what a check finds.
TESTING = "a model other than the client's own, such as a teacher, needs `with ctx.net.testing():`"


class NotApplicable(Exception):
    """The property does not apply; the text says why."""


@dataclass(frozen=True)
class Trial:
    """A composition to be checked.

    Attributes:
        make: its federation, with options of :func:`fedrepro.check.world.federation`.
        stored: folder, server's state, clients' states -> both, written there and read again.
        single: whether it is a single method, without a wrapper, a server optimizer or a fidelity.
    """

    make: Callable[..., Federation]
    stored: Callable[[Path, Tree, Mapping[int, Tree]], tuple[Tree, ClientStates]]
    single: bool = False
    server_optimizer: object = None  # the part that the composition has, if it has one

    @cached_property
    def world(self) -> Federation:
        return self.make()

    @cached_property
    def states(self) -> list[State]:
        """The states after 0, 1, ... rounds of the usual federation, which several checks compare.

        Raises:
            UserError: for what :func:`fedrepro.check.hooks.watched` refuses in any part.
        """
        world = watched(self.world, every=True, server_optimizer=self.server_optimizer)
        states = [play(world, until=0)]
        for until in range(1, ROUNDS + 1):
            states.append(play(world, until=until, state=states[-1]))
        return states


def hooks_keep_their_contract(trial: Trial) -> None:
    """The mistakes for which a run of a plug-in method is refused, checked in all parts."""
    assert trial.states


def executors_agree(trial: Trial) -> None:
    """In the second round, in which some clients are new, and in a late one: all have states."""
    for execute in (eager, unrolled):
        world = trial.make(execute=execute)
        try:
            for done in (1, 4):
                played = play(world, until=done + 1, state=trial.states[done])
                _same("side by side", trial.states[done + 1], played, 1e-9)
        except Failed as error:
            raise Failed(f"{error}; {PADDED}") from None


def processes_change_no_bit(trial: Trial) -> None:
    """In the second round, in which some clients are new."""
    played = play(trial.make(execute=Parallel(2)), until=2, state=trial.states[1])
    _same("in two processes", trial.states[2], played)


def resuming_changes_no_bit(trial: Trial) -> None:
    """From a checkpoint after two thirds of the rounds."""
    server, client_states, done = trial.states[4]
    known = client_states.known
    with TemporaryDirectory() as folder:
        loaded, stored = trial.stored(Path(folder), server, known)
        # A client without a state is not stored; rounds do not see a difference.
        restored = Memory({client: stored.get(client) or {} for client in known})
    _same("resumed from disk", trial.states[-1], play(trial.world, state=(loaded, restored, done)))


def a_round_has_no_side_effects(trial: Trial) -> None:
    """A round played again gives the same bits, and changes neither state nor randomness."""
    states = trial.states
    before = copy.deepcopy(states[2])
    torch.manual_seed(0)
    generator_state = torch.get_rng_state()
    again = play(trial.world, until=3, state=states[2])
    _same("the state that a round began with, after it", before, states[2])
    _same("played a second time", states[3], again)
    if not torch.equal(generator_state, torch.get_rng_state()):
        raise Failed("torch's global generator was drawn from")


def another_seed_gives_another_result(trial: Trial) -> None:
    """No method draws from a fixed seed."""
    one, _, _ = trial.states[1]
    other, _, _ = play(trial.make(seed=2), until=1)
    pairs = zip(tree.leaves(one["params"]), tree.leaves(other["params"]), strict=True)
    if all(torch.equal(a, b) for a, b in pairs):
        raise Failed("seeds 2 and 3 give the same model")


def one_client_is_enough(trial: Trial) -> None:
    """A federation of one client, and thus a cohort of one."""
    world = trial.world
    alone = Data([world.clients.samples.at(world.clients.rows(0))])
    context = replace(world.context, clients=1, cohort_size=1)
    server, _, _ = play(replace(world, clients=alone, context=context), until=2)
    for key, leaf in tree.named(server):
        if leaf.is_floating_point() and not bool(leaf.isfinite().all()):
            raise Failed(f"the server's {key} is not finite")


def accuracies(trial: Trial) -> tuple[float, float]:
    """Accuracy of the clients' models on their own samples: before training, and after it."""
    world, states = trial.world, trial.states
    before, after = _accuracy(world, states[0]), _accuracy(world, states[-1])
    if after > 0.85:
        return before, after
    # It learns slowly: ten rounds of all clients at a higher rate. Without momentum, which some
    # control variates do not support.
    longer = trial.make(cohort=6, rounds=10, lr=0.3, momentum=0.0)
    return before, _accuracy(longer, play(longer))


def _accuracy(world: Federation, state: State) -> float:
    server, client_states, _ = state
    everyone = list(range(len(world.clients.sizes)))
    ctx, hits = context_of(world, world.context.rounds - 1, everyone), []
    for client in everyone:
        x, y = world.clients.samples.at(world.clients.rows(client))
        params = world.method.eval_model(ctx, server, client_states.get(client) or {})
        hits.append(ctx.net(params, x).argmax(1) == y)
    return float(torch.cat(hits).double().mean())


def it_learns(trial: Trial) -> None:
    """A few rounds improve on the initial models, or ten do."""
    before, after = accuracies(trial)
    if after <= before:
        raise Failed(f"accuracy {before:.0%} before training, {after:.0%} after it")


def a_server_optimizer_is_followed_or_refused(trial: Trial) -> None:
    """As its ``uses_server_optimizer`` declares."""
    if not trial.single:
        raise NotApplicable("said of single methods")
    declared = trial.world.method.uses_server_optimizer
    followed = follows_a_server_optimizer(trial.world)
    if followed is not declared:
        seen = "follows the server optimizer" if followed else "is the same without one"
        raise Failed(f"uses_server_optimizer is {declared}, but the server {seen}")


def running_statistics_stay_among_those_of_the_clients(trial: Trial) -> None:
    """BatchNorm's statistics have no gradient: whatever is done to parameters, average them."""
    if not trial.single:
        raise NotApplicable("said of single methods")
    world = trial.world
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8))
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    # Mini-batches of 7: for no client the last one has a single sample.
    world = replace(world, context=replace(world.context, net=net, batch_size=7))
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
        value = after["params"][buffer]
        least, most = each.min(0).values - 1e-12, each.max(0).values + 1e-12
        if not bool(((least <= value) & (value <= most)).all()):
            raise Failed(f"{buffer} of BatchNorm lies outside of what the clients have")


# In words, in the order of `fedrepro check`.
ALL_OF: dict[str, Callable[[Trial], None]] = {
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
# Those that composing with another part could break.
TOGETHER = (*ALL_OF.values(),)[:6]


def composes(trial: Trial) -> None:
    """Raises Failed unless both parts of a composition work together."""
    for check in TOGETHER:
        check(trial)


def _leaves(state: State) -> dict[str, Tensor]:
    """All tensors of a state, by whose they are and their paths."""
    server, client_states, _ = state
    clients = {str(client): known for client, known in client_states.known.items()}
    whole = tree.named({"the server's": server, "clients'": clients})
    return {path.replace("/", " ", 1): leaf for path, leaf in whole}


def _same(what: str, one: State, other: State, tolerance: float = 0.0) -> None:
    """Raises Failed unless two states are equal, to the bit if ``tolerance`` is 0."""
    first, second = _leaves(one), _leaves(other)
    if missing := first.keys() ^ second.keys():
        raise Failed(f"{what}: {min(missing)} is not always there")
    for name, leaf in first.items():
        near = leaf.shape == second[name].shape and leaf.dtype == second[name].dtype
        if not near or not torch.allclose(
            leaf, second[name], rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            away = (leaf - second[name]).abs().max() if near and leaf.is_floating_point() else None
            by = "" if away is None else f" by up to {float(away):.2g}"
            raise Failed(f"{what}: {name} differs{by}")
