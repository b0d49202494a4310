"""A model with dropout: what its layers draw follows from seed, round and client, nothing else."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, play
from fedrepro.engine import tree
from fedrepro.engine.executors import Training, eager, sequential
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net, Own
from fedrepro.engine.round import Federation, client_state_of, context_of, steps_of
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.models.classifier import Classifier
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation

METHODS = sorted(name for name, part in registry.parts().items() if part.kind == "method")
WRAPPED = ["ima+scaffold", "aaggff_d+fedprox"]


class Functional(nn.Module):
    """Dropout that no layer shows."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.3, self.training)


def world_of(name: str, probability: float = 0.3, functional: bool = False) -> Federation:
    world = federation(name)
    drops = Functional() if functional else nn.Dropout(probability)
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), drops)
    module = Classifier(body, nn.Linear(8, CLASSES)).double()
    net = Net(module, own=Own(lambda: copy.deepcopy(module), draws=True))
    return replace(world, context=replace(world.context, net=net if functional else Net(module)))


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("name", [*METHODS, *WRAPPED])
def test_a_run_follows_from_its_seed_and_resumes_to_the_same_bits(
    name: str, functional: bool
) -> None:
    world = world_of(name, functional=functional)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    whole, client_states, _ = play(world, until=4)
    assert torch.equal(before, torch.get_rng_state())  # nothing global has moved
    half = play(world, until=2)
    torch.manual_seed(2)  # another process
    resumed, resumed_states, _ = play(world, until=4, state=half)
    assert_close(whole, resumed, 0)
    for client, client_state in client_states.known.items():
        assert_close(client_state, resumed_states.known[client], 0)


@pytest.mark.parametrize("name", [*METHODS, *WRAPPED])
def test_what_a_client_does_depends_on_no_other(name: str) -> None:
    world = world_of(name)
    server, client_states, _ = play(world, until=2)
    everyone = list(range(len(world.clients.sizes)))

    def outcome(cohort: list[int]) -> dict[int, Tree]:
        ctx = context_of(world, 2, cohort)
        states = [client_state_of(world, ctx, client_states, client) for client in cohort]
        steps = [steps_of(world, ctx, client) for client in cohort]
        message = world.method.broadcast(ctx, server)
        updates, after = sequential(Training(world.method, ctx, message, states, steps))
        return {
            client: {"report": tree.take(updates, place), "own": after[place]}
            for place, client in enumerate(cohort)
        }

    forwards, backwards = outcome(everyone), outcome(everyone[::-1])
    alone = outcome(everyone[-1:])
    for client in everyone:
        assert_close(forwards[client], backwards[client], 0)
    assert_close(forwards[everyone[-1]], alone[everyone[-1]], 0)


def test_rounds_and_clients_draw_anew() -> None:
    """Clients with the same samples in the same order still drop other features."""
    world = world_of("fedavg")
    ctx = context_of(world, 0, [0])
    message = {"params": world.initial}

    def moved(seed: int) -> Tree:
        steps = replace(steps_of(world, ctx, 0), layers_seed=seed)
        return sequential(Training(Method(), ctx, message, [{}], [steps]))[0]

    seeds = [
        steps_of(world, context_of(world, round, [client]), client).layers_seed
        for round in (0, 1)
        for client in (0, 1)
    ]
    assert len(set(seeds)) == len(seeds)
    assert_close(moved(seeds[0]), moved(seeds[0]), 0)
    with pytest.raises(AssertionError):
        assert_close(moved(seeds[0]), moved(seeds[1]), 1e-6)


def test_the_server_draws_by_name_as_well() -> None:
    class OnServer(Method):
        def server_update(self, ctx, server, updates, weights):  # type: ignore[no-untyped-def]
            return {**super().server_update(ctx, server, updates, weights), "drawn": torch.rand(3)}

    world = replace(world_of("fedavg"), method=OnServer())
    one, _, _ = play(world, until=2)
    torch.rand(5)
    again, _, _ = play(world, until=2, state=play(world, until=1))
    assert_close(one, again, 0)
    first, _, _ = play(world, until=1)
    assert not torch.equal(first["drawn"], one["drawn"])


def test_dropout_is_refused_side_by_side_in_one_line() -> None:
    with refused(value="vectorised", names=("'sequential'", "dropout")):
        play(replace(world_of("fedavg"), execute=eager), until=1)
    play(replace(world_of("fedavg", probability=0.0), execute=eager), until=1)  # draws nothing


@pytest.mark.parametrize(
    ("layer", "draws"),
    [
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.5), True),
        (nn.LSTM(2, 2, num_layers=2), False),
        (nn.MultiheadAttention(2, 1, dropout=0.1), True),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout2d(0.5)), True),
        (nn.Linear(2, 2), False),
    ],
    ids=str,
)
def test_which_models_draw(layer: nn.Module, draws: bool) -> None:
    assert Net(layer).draws is draws


def test_stochastic_depth_draws() -> None:
    ops = pytest.importorskip("torchvision.ops")
    assert Net(nn.Sequential(nn.Linear(2, 2), ops.StochasticDepth(0.2, "row"))).draws


def test_a_model_that_draws_nothing_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("seeded")

    monkeypatch.setattr(torch.random, "fork_rng", never)
    play(federation("fedavg"), until=1)
