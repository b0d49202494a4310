"""Wrappers refuse some methods behind another wrapper, and pass hooks on to the one within."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedrepro.check.hooks import watched
from fedrepro.check.world import Memory
from fedrepro.engine.context import Context
from fedrepro.engine.method import Wrapper
from fedrepro.engine.round import begin, context_of, play_round
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.methods.fedavg import FedAvg
from fedrepro.support.errors import UserError
from support.refusals import refused
from support.worlds import federation

PARTS = registry.parts()
WRAPPERS = sorted(name for name, part in PARTS.items() if part.kind == "wrapper")


def composes(name: str) -> bool:
    """Whether it does; what is refused is a wrapper's place."""
    refusal = None
    try:
        registry.compose(name)
    except UserError as error:
        refusal = error
    assert refusal is None or refusal.key == "wrapper", name
    return refusal is None


@pytest.mark.parametrize("wrapper", [name for name in WRAPPERS if name != "ima"])
def test_what_is_refused_next_to_a_wrapper_is_refused_behind_a_moving_average(wrapper: str) -> None:
    """As tests/golden/hooks.json says what is refused next to it."""
    for name, part in PARTS.items():
        inner = f"{name}+fedavg" if part.kind == "wrapper" else name
        if part.kind in ("method", "wrapper") and composes(f"ima+{inner}"):
            assert composes(f"{wrapper}+ima+{inner}") == composes(f"{wrapper}+{inner}"), name


def test_one_moving_average_is_enough() -> None:
    assert composes("ima+top_k+norm_clip+fedavg")
    assert not composes("ima+top_k+norm_clip+ima+fedavg")


def test_only_plug_ins_run_under_checks() -> None:
    plain = federation()
    for name, part in PARTS.items():
        if part.kind in ("method", "wrapper"):
            method, _ = registry.compose(f"{name}+fedavg" if part.kind == "wrapper" else name)
            own = replace(plain, method=method)
            assert watched(own) is own, name


# --- what a wrapper leaves to the method in it ---------------------------------------------------
@dataclass(frozen=True)
class Probe(FedAvg):
    """FedAvg with something of its own in each hook that a wrapper may have, too."""

    def check(self, ctx: Context) -> None:
        raise UserError("method probe: refused")

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "kept": torch.ones(())}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"visits": torch.zeros(())}

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"drawn": torch.rand((), generator=rng)}

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return {"number": torch.arange(steps)}

    def learning_rate(self, ctx: Context, round: int) -> float:
        return 2 * ctx.schedule(round)

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {**super().broadcast(ctx, server), "sent": server["kept"]}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        assert int(batch["number"]) >= 0
        return super().loss(ctx, message, client_state, params, batch)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        assert client_state.keys() == {"visits", "drawn"} and message["sent"] == 1
        update, _ = super().client_update(ctx, message, client_state, steps)
        return {**update, "told": torch.ones(7)}, {"visits": client_state["visits"] + 1}


def around(wrapper: str, **inner: Any) -> Wrapper:
    made: Wrapper = replace(PARTS[wrapper].cls(), **inner)
    return made


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_method_in_a_wrapper_gets_and_keeps_what_it_would_alone(wrapper: str) -> None:
    method, cohort = around(wrapper, inner=Probe()), 6
    assert PARTS[wrapper].cls.refuses(Probe()) is None
    world = federation(method=method, cohort=cohort)
    server, states = begin(world), Memory()
    for number in range(2):
        server, seen = play_round(world, server, states, number)
        assert seen.updates["told"].shape == (cohort, 7)
    assert server["kept"] == 1
    assert {float(own["visits"]) for own in states.known.values()} == {2.0}
    ctx = context_of(world, 0, [0])
    assert method.learning_rate(ctx, 3) == 2 * ctx.schedule(3)
    with refused(names="probe"):
        method.check(replace(ctx, cohort_size=cohort))
    # A compressed update has other bytes, but what is beside it is sent as it is.
    bare = around(wrapper, inner=FedAvg())
    lean = {name: leaf for name, leaf in seen.updates.items() if name != "told"}
    beside = method.update_bytes(ctx, seen.updates) - bare.update_bytes(ctx, lean)
    assert beside == cohort * 7 * seen.updates["told"].element_size()


@dataclass(frozen=True)
class WithoutModel(FedAvg):
    """Its server has no model."""

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {"things": torch.ones(3)}


@pytest.mark.parametrize("wrapper", ["aaggff_d", "aaggff_s", "ima"])
def test_who_needs_a_model_on_the_server_says_so_at_once(wrapper: str) -> None:
    world = federation(method=around(wrapper, inner=WithoutModel()))
    with refused(names=(wrapper, "server")):
        begin(world)


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("scheme", ["exponential", "constant", "cyclic", "epoch", "none"])
def test_a_moving_average_decays_the_rate_of_the_method_in_it(scheme: str, released: bool) -> None:
    """That is twice the schedule's here, before t_s, in round t_s and later."""
    ours, plain = (around("ima", inner=inner, scheme=scheme) for inner in (Probe(), FedAvg()))
    if released:
        ours, plain = ours.as_released(), plain.as_released()
    ctx = replace(federation().context, rounds=40, schedule=lambda round: 0.1 * 0.9**round)
    doubled = replace(ctx, schedule=lambda round: 0.2 * 0.9**round)
    for number in (0, 29, 30, 31, 39):
        assert ours.learning_rate(ctx, number) == plain.learning_rate(doubled, number)
