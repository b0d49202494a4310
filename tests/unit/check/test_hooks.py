"""``fedrepro check`` refuses wrong results and forbidden changes of every hook, in two rounds."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import pytest
import torch

from fedrepro.check import hooks
from fedrepro.check.hooks import float32_by_default, watched
from fedrepro.check.world import Memory, federation, in_float64
from fedrepro.engine import tree
from fedrepro.engine.executors import eager
from fedrepro.engine.method import METRICS, Method, Wrapper
from fedrepro.engine.round import begin, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.methods.ima import IMA
from support.refusals import refused

Change = Callable[[Any], Any]  # of what a hook returns, or of its context


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with in_float64():
        yield


def changed(results: Mapping[str, Change], acts: Change = lambda ctx: None, since: int = 0) -> Any:
    """A method with other results of some hooks, from a round on; ``acts`` is called before."""

    def over(name: str, change: Change) -> Callable[..., Any]:
        plain = getattr(Method, name)

        @wraps(plain)
        def hook(self: Method, ctx: Any, *given: Any, **named: Any) -> Any:
            result = plain(self, ctx, *given, **named)
            if ctx.round < since:
                return result
            acts(ctx)
            return change(result)

        return hook

    own = {name: over(name, change) for name, change in results.items()}
    return dataclass(frozen=True)(type("Changed", (Method,), own))()


def play(method: Method, rounds: int = 2, **options: Any) -> Tree:
    """Play rounds under all checks, and ask for the model."""
    plain = federation(method, cohort=2, **options)
    whole = replace(plain.context, batch_size=40)  # one step an epoch
    world = watched(replace(plain, context=whole), every=True)
    server, clients = begin(world), Memory()
    for round in range(rounds):
        server, _ = play_round(world, server, clients, round)
    return world.method.eval_model(context_of(world, 1, [0]), server, {})


def without_bias(params: Tree) -> Tree:
    return {name: leaf for name, leaf in params.items() if name != "head.bias"}


narrow = partial(tree.apply, torch.Tensor.float)  # another dtype
ONE = torch.zeros(1)
OTHER = torch.nn.Parameter(torch.zeros(2))  # such as a weight of the module that was given

REFUSED: list[tuple[str, Change]] = [
    ("learning_rate", lambda rate: math.nan),
    ("learning_rate", lambda rate: torch.tensor(rate)),
    ("learning_rate", str),
    ("init_server", lambda state: {**state, "count": 3}),
    ("init_client", lambda state: ONE),
    ("init_client", lambda state: {"count": 3}),
    ("broadcast", lambda message: message["params"]["head.bias"]),
    ("broadcast", lambda message: {**message, "round": 1}),
    ("sample_round", lambda drawn: {"coin": 0.5}),
    ("sample_round", lambda drawn: ONE),
    ("sample_steps", lambda drawn: {"coin": ONE}),
    ("sample_steps", lambda drawn: {"coin": torch.rand(999, generator=torch.Generator())}),
    ("loss", lambda loss: float(loss.detach())),
    ("loss", lambda loss: loss[None]),
    ("loss", lambda loss: loss.long()),
    ("loss", torch.Tensor.detach),
    ("loss", lambda loss: loss + OTHER.sum()),
    ("gradient", without_bias),
    ("gradient", narrow),
    ("gradient", lambda direction: direction | {"head.bias": direction["head.bias"][:1]}),
    ("client_update", lambda result: (result[0], {"seen": ONE})),
    ("client_update", lambda result: (narrow(result[0]), result[1])),
    ("client_update", lambda result: ({"delta": without_bias(result[0]["delta"])}, {})),
    ("client_update", lambda result: result[:1]),
    ("aggregation_weights", lambda result: (result[0][:, None], result[1])),
    ("aggregation_weights", lambda result: (result[0] / (result[0] - result[0][1]), result[1])),
    ("aggregation_weights", lambda result: (result[0].tolist(), result[1])),
    ("aggregation_weights", lambda result: (result[0], {**result[1], "more": ONE})),
    ("server_update", lambda state: {**state, "params": narrow(state["params"])}),
    ("server_update", lambda state: {"params": state["params"]}),
    ("apply_server_optimizer", lambda state: {**state, "more": ONE}),
    ("eval_model", without_bias),
    ("eval_model", narrow),
    ("eval_model", lambda params: {}),
]  # fmt: skip


def kept(state: Tree) -> Tree:
    return {**state, "kept": ONE}


@pytest.mark.parametrize(("hook", "change"), REFUSED)
def test_a_result_of_another_form_is_refused_and_its_hook_named(hook: str, change: Change) -> None:
    results = {"init_server": kept, hook: change} if hook != "init_server" else {hook: change}
    with refused(key=hook):
        play(changed(results), rounds=1)


@pytest.mark.parametrize(
    ("hook", "change"), [REFUSED[6], REFUSED[13], REFUSED[16], REFUSED[19], REFUSED[26]]
)
def test_a_hook_that_goes_wrong_in_the_second_round_is_refused(hook: str, change: Change) -> None:
    wrong = changed({hook: change}, since=1)
    play(wrong, rounds=1)
    with refused(key=hook):
        play(wrong)


@pytest.mark.parametrize(
    ("hook", "acts", "name", "since"),
    [
        ("server_update", lambda ctx: ctx.sizes.div_(ctx.sizes.sum()), "sizes", 0),
        ("aggregation_weights", lambda ctx: ctx.cohort.add_(1), "cohort", 1),
        ("client_update", lambda ctx: ctx.initial["head.bias"].add_(1), "initial", 1),
    ],
)
def test_what_a_context_has_may_not_be_changed(
    hook: str, acts: Change, name: str, since: int
) -> None:
    with refused(key=hook, names=name):
        play(changed({hook: lambda result: result}, acts, since))


def test_an_argument_that_is_one_tensor_may_not_be_changed() -> None:
    @dataclass(frozen=True)
    class Doubles(Method):
        def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Any) -> Tree:
            after = super().server_update(ctx, server, updates, weights)
            weights.mul_(2)
            return after

    with refused(key="server_update", names="weights"):
        play(Doubles())


@pytest.mark.parametrize("hook", hooks.EVERY_STEP)
@pytest.mark.parametrize("of", ["parameter", "input"])
def test_what_a_step_gets_may_not_be_changed(hook: str, of: str) -> None:
    @torch.no_grad()
    def changing(self: Method, ctx: Any, *given: Any, **named: Any) -> Any:
        *_, params, batch = (*given, *named.values())
        (batch["x"] if of == "input" else params["head.bias"]).add_(1)
        with torch.enable_grad():
            return getattr(Method, hook)(self, ctx, *given, **named)

    changes = dataclass(frozen=True)(type("Changes", (Method,), {hook: changing}))
    with refused(key=hook, names="x" if of == "input" else "head.bias"):
        play(changes())


@pytest.mark.parametrize(
    "results",
    [
        {"learning_rate": lambda rate: 1},
        {"aggregation_weights": lambda result: (2 * result[0], result[1])},
        {"server_update": lambda state: {**state, METRICS: {"norm": torch.tensor(1.0)}}},
        {
            "init_client": lambda state: {"seen": ONE},
            "client_update": lambda result: (result[0], {"seen": result[1]["seen"] + 1}),
        },
        {  # drawn in each round, and no part of the state
            "sample_round": lambda drawn: {"coin": ONE},
            "client_update": lambda result: (result[0], {}),
        },
        {"init_server": kept, "eval_model": lambda params: {**params}},
    ],
)
def test_what_has_the_right_form_is_taken(results: Mapping[str, Change]) -> None:
    play(changed(results))


def test_what_a_client_draws_may_not_stay_in_its_state() -> None:
    with refused(key="client_update", names="coin"):
        play(changed({"sample_round": lambda drawn: {"coin": ONE}}))


def test_updates_are_alike_within_a_round_and_may_differ_between_rounds() -> None:
    more = {"client_update": lambda result: ({**result[0], "more": ONE}, result[1])}
    play(changed(more, since=1))


def test_a_hook_is_refused_within_a_wrapper() -> None:
    inner = changed({"server_update": lambda state: {"params": state["params"]}})
    with refused(key="server_update"):
        play(IMA(inner))
    play(IMA(Method()))

    @dataclass(frozen=True)
    class Drops(Wrapper):
        def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
            update, state = self.inner.client_update(ctx, message, client_state, steps)
            return {"model": update["delta"]}, state

    with refused(key="client_update", names="delta"):
        play(Drops(Method()))


@pytest.mark.parametrize("classifies", [False, True])
def test_a_method_that_trains_no_classifier_has_any_model(classifies: bool) -> None:
    method = changed({"eval_model": without_bias})
    type(method).classifies = classifies
    if classifies:
        with refused(key="eval_model"):
            play(method)
    else:
        play(method)


def test_side_by_side_the_method_itself_trains_and_its_result_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compiler would take no checks; what it raises has lost the line."""
    trained: list[Method] = []

    def stand_in(training: Any) -> Any:
        trained.append(training.method)
        return eager(training)

    monkeypatch.setattr(hooks, "vectorised", stand_in)
    monkeypatch.setattr(hooks.plugins, "is_own", lambda module: module == __name__)
    method = changed({})
    play(method, rounds=1, execute=stand_in)
    assert trained[0] is method
    lost = {"client_update": lambda result: ({"model": result[0]["delta"]}, result[1])}
    with refused(key="client_update", names="delta"):
        play(changed(lost), rounds=1, execute=stand_in)
    fails: Any = partial(int, "x")  # in nobody's file
    monkeypatch.setattr(hooks, "vectorised", fails)
    with refused(key="client_update", names="sequential"):
        play(method, rounds=1, execute=fails)


def test_runs_begin_and_end_with_float32() -> None:
    begun = False
    with refused("value", key="torch.set_default_dtype", value=torch.float64), float32_by_default():
        begun = True
    assert not begun
    torch.set_default_dtype(torch.float32)
    with float32_by_default():
        pass
    with refused("value", key="torch.set_default_dtype", value=torch.float64), float32_by_default():
        torch.set_default_dtype(torch.float64)
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("asked", ["highest", "high", "medium"])
def test_products_on_a_cpu_are_of_float32_in_a_run_whatever_a_notebook_asks_for(asked: str) -> None:
    of_cpu: Any = torch.backends.mkldnn
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision(asked)
    try:
        before = of_cpu.matmul.fp32_precision
        with float32_by_default():
            assert of_cpu.matmul.fp32_precision in ("ieee", "none")
        assert of_cpu.matmul.fp32_precision == before
    finally:
        torch.set_float32_matmul_precision("highest")
