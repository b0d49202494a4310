"""A recorded step has the bits of one that Python runs, and a hook that can't be recorded runs."""

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, Memory, play
from fedrepro.engine import graphs, tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.executors import Lanes, eager
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net, differentiate
from fedrepro.engine.optim import adam, sgd
from fedrepro.engine.round import Federation
from fedrepro.engine.tree import Tree
from fedrepro.run import devices
from support.on_device import compositions, on_device
from support.pretraining_worlds import WORLDS
from support.tape import Counted, Tape
from support.worlds import federation


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds are small: a step is recorded when it comes for the third time."""
    monkeypatch.setattr(graphs, "AFTER", 2)


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        ),
    ]
)
def on(request: pytest.FixtureRequest) -> Callable[[Federation], Federation]:
    """Takes a federation to a device: the CPU, where a tape stands for a graph, or a GPU."""
    if request.param == "cpu":
        return lambda world: world
    devices.prepare("cuda")
    return partial(on_device, sent=lambda leaf: leaf.cuda(), moved=lambda module: module.cuda())


def on_tape(world: Federation, notes: list[str] | None = None) -> Counted:
    """Let a federation record its steps; counts them."""
    device = world.context.net.device
    counted = Counted(Tape() if device.type == "cpu" else graphs.OnCuda(device))
    common = graphs.Graphs(counted, (notes if notes is not None else []).append)
    for net in (world.context.net, *world.context.nets.values()):
        net.graphs = common
    return counted


def results(world: Federation) -> tuple[Tree, Memory]:
    server, client_states, _ = play(world)
    return server, client_states


def same(one: tuple[Tree, Memory], two: tuple[Tree, Memory]) -> None:
    pairs = zip(
        tree.named({"server": one[0], **{str(c): s for c, s in one[1].known.items()}}),
        tree.named({"server": two[0], **{str(c): s for c, s in two[1].known.items()}}),
        strict=True,
    )
    for (name, left), (_, right) in pairs:
        assert torch.equal(left.nan_to_num(123.0), right.nan_to_num(123.0)), name


# Those whose clients do not follow a gradient with `descend`, or whose gradient is a closure.
NEVER_RECORDED = {"per_fedavg", "fedevg"}


@pytest.mark.parametrize("name", sorted(compositions()))
def test_recorded_steps_have_the_bits_of_a_method(on: Any, name: str) -> None:
    def make() -> Federation:
        return on(federation(name, cohort=4, rounds=4))

    world, notes = make(), list[str]()
    tape = on_tape(world, notes)
    same(results(world), results(make()))
    assert tape.replayed > 10 or name in NEVER_RECORDED, notes


@pytest.mark.parametrize("name", WORLDS)
def test_recorded_steps_have_the_bits_of_what_is_made_before_a_run(on: Any, name: str) -> None:
    world = on(WORLDS[name]())
    on_tape(world)
    same(results(world), results(on(WORLDS[name]())))


@pytest.mark.parametrize("name", sorted(compositions()))
def test_lanes_have_the_bits_of_one_client_after_another(on: Any, name: str) -> None:
    world = on(federation(name, cohort=4, rounds=4, execute=Lanes(2)))
    on_tape(world)
    same(results(world), results(on(federation(name, cohort=4, rounds=4))))


@pytest.mark.parametrize("name", sorted(compositions()))
def test_recorded_stacked_steps_have_the_bits_of_stacked_ones(on: Any, name: str) -> None:
    def make() -> Federation:
        return on(federation(name, cohort=4, rounds=6, execute=eager))

    world, notes = make(), list[str]()
    tape = on_tape(world, notes)
    same(results(world), results(make()))
    assert tape.replayed > 1 or name in NEVER_RECORDED, notes


class Normed(nn.Module):
    """BatchNorm with running statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3)
        )
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "optimizer", [sgd(0.9, 1e-3), adam(weight_decay=1e-3)], ids=["momentum", "adam"]
)
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "ditto", "scaffold", "apfl", "lg_fedavg"])
def test_layers_that_draw_and_normalise_have_the_same_bits(
    on: Any, name: str, optimizer: Any
) -> None:
    def make() -> Federation:
        world = federation(name, cohort=4, rounds=4)
        context = replace(world.context, net=Net(Normed().double()), optimizer=optimizer)
        return on(replace(world, context=replace(context, batch_size=7)))

    world = make()
    tape = on_tape(world)
    same(results(world), results(make()))
    assert tape.replayed > 10


def test_a_run_that_goes_on_has_the_same_bits(on: Any) -> None:
    """It records anew, after other steps than a whole run."""

    def make() -> Federation:
        return on(federation("fedprox", cohort=4, rounds=6))

    world = make()
    on_tape(world)
    half = play(world, 3)
    world = make()
    on_tape(world)
    server, client_states, _ = play(world, None, half)
    same((server, client_states), results(make()))


@dataclass(frozen=True)
class Trap(Method):
    """FedAvg with a gradient that asks for something."""

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        found = super().gradient(ctx, message, client_state, params, batch)
        return tree.scale(found, self.factor(ctx, message, batch, found))

    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return 1.0


class ReadsTheRound(Trap):
    """Every round has four clients of at least two steps."""

    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return 1 / (1 + ctx.round)


class ReadsTheRate(Trap):
    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return ctx.lr


class ReadsTheSizes(Trap):
    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return ctx.sizes.sum() / 100


class CopiesTheContext(Trap):
    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return replace(ctx, clients=3).round + 1.0


class ReadsATensor(Trap):
    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return 0.5 if float(batch["x"].mean()) > 0 else 1.0


class ReadsTheBatch(Trap):
    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return len(batch["y"]) / 8 * batch["x"].mean()


class ReadsTheMessage(Trap):
    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        round = torch.full((), 1.0 + ctx.round, device=ctx.net.device)
        return {**super().broadcast(ctx, server), "round": round}

    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return message["round"]


class ReadsANumberOfTheMessage(ReadsTheMessage):
    """On a GPU: a tensor of the CPU, whose value is a part of what is launched."""

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {**super().broadcast(ctx, server), "round": torch.tensor(1.0 + ctx.round)}


class ReadsTheNorm(Trap):
    """Clips its gradient; without asking for a number it could be recorded."""

    def factor(self, ctx: Context, message: Tree, batch: Tree, found: Tree) -> Any:
        return (1 / tree.square_norm(found).sqrt()).clamp(max=1.0)


class HoldsAClosure(Method):
    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Any
    ) -> tuple[Tree, Tree]:
        weight = 1.0 + ctx.round

        def gradient(ctx: Context, message: Tree, own: Tree, params: Tree, batch: Tree) -> Tree:
            loss = partial(self.loss, ctx, message, own)
            return tree.scale(differentiate(lambda free: loss(free, batch), params), weight)

        params, _ = descend(ctx, gradient, message, client_state, message["params"], steps)
        return {"delta": tree.subtract(message["params"], params)}, client_state


@dataclass
class Counter:
    """An object that may change: its gradients become shorter."""

    calls: int = 0

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        self.calls += 1
        return tree.scale(
            Method().gradient(ctx, message, client_state, params, batch), 1 / self.calls
        )


class AsksAnObject(Method):
    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Any
    ) -> tuple[Tree, Tree]:
        hook = Counter().gradient
        params, _ = descend(ctx, hook, message, client_state, message["params"], steps)
        return {"delta": tree.subtract(message["params"], params)}, client_state


RECORDED, ANEW, NOT = "once", "anew", "never"  # once for each size of a batch


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (ReadsTheRound, ANEW),
        (ReadsTheRate, ANEW),
        (ReadsTheSizes, ANEW),
        (CopiesTheContext, ANEW),
        (ReadsATensor, NOT),
        (ReadsTheBatch, RECORDED),
        (ReadsTheMessage, RECORDED),
        (ReadsANumberOfTheMessage, None),
        (ReadsTheNorm, RECORDED),
        (HoldsAClosure, NOT),
        (AsksAnObject, NOT),
    ],
)
def test_a_hook_that_reads_what_changes(
    on: Any, method: type[Method], expected: str | None
) -> None:
    def make() -> Federation:
        return on(federation(method=method(), cohort=4, rounds=8))

    world, notes = make(), list[str]()
    tape = on_tape(world, notes)
    same(results(world), results(make()))
    sizes = len({size % 8 for size in world.clients.sizes} | {8})
    if expected == NOT:
        assert tape.replayed == 0 and len(notes) == 1
    elif expected == RECORDED:
        assert tape.recorded <= sizes and tape.replayed > 30 and not notes
    elif expected == ANEW:
        assert tape.recorded > sizes and notes  # in the end it was not worth it, and was said


class Counting(nn.Module):
    """A layer whose Python counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) / self.calls  # type: ignore[no-any-return]


def test_a_model_that_counts_in_python_is_not_recorded(on: Any) -> None:
    def make() -> Federation:
        world = federation(cohort=4, rounds=4)
        return on(replace(world, context=replace(world.context, net=Net(Counting().double()))))

    world, notes = make(), list[str]()
    tape = on_tape(world, notes)
    same(results(world), results(make()))
    assert tape.replayed == 0 and len(notes) == 1


def test_what_only_fails_when_it_is_recorded_runs_as_it_is(
    on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch does not see every wait beforehand."""
    world, notes = on(federation(method=ReadsATensor(), cohort=4, rounds=4)), list[str]()
    tape = on_tape(world, notes)
    monkeypatch.setattr(tape, "waits", lambda function: (function(), ""))
    same(results(world), results(on(federation(method=ReadsATensor(), cohort=4, rounds=4))))
    assert tape.replayed == 0 and len(notes) == 1


class Uncopied(nn.Linear):
    """A model that refuses to be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("one of a kind")


def test_a_model_that_cannot_be_copied_trains_on_one_stream() -> None:
    def make(**keys: Any) -> Federation:
        world = federation(cohort=4, rounds=4, **keys)
        net = Net(Uncopied(FEATURES, CLASSES).double())
        return replace(world, context=replace(world.context, net=net))

    world, notes = make(execute=Lanes(2)), list[str]()
    tape = on_tape(world, notes)
    same(results(world), results(make()))
    assert tape.replayed > 10 and len(notes) == 1


def test_memory_that_stays_has_what_was_given_last() -> None:
    """Filled anew for other tensors, for the same after a change, and where steps change it."""
    made = graphs.Graphs(Tape())
    given = {"x": torch.ones(2), "deep": {"y": torch.zeros(1)}}
    one, other = made.fixed(given), made.fixed(given, "of other trees")
    assert one["x"].data_ptr() != other["x"].data_ptr() != given["x"].data_ptr()
    given["x"].add_(1)
    assert (
        made.fixed(given) is one and one["x"].tolist() == [2, 2] and other["x"].tolist() == [1, 1]
    )
    assert made.fixed({"x": torch.full((2,), 5.0), "deep": given["deep"]}) is one
    assert one["x"].tolist() == [5, 5]
    made.fixed({"x": torch.full((2,), 7.0), "deep": given["deep"]})  # changed as often as that
    assert one["x"].tolist() == [7, 7]
    made.fixed(given)
    one["x"].mul_(3)  # as a step does
    assert made.fixed(given)["x"].tolist() == [6, 6]
    assert made.fixed(given, changes=True)["x"].tolist() == [2, 2]
    other = made.fixed(tree.apply(torch.Tensor.half, given))
    assert other["x"].dtype == torch.float16 and other["x"].tolist() == [2, 2]
    assert one["x"].dtype == given["x"].dtype
    assert made.beside().fixed(given)["x"].data_ptr() != one["x"].data_ptr()
    assert made.beside().recorder is not made.recorder  # nor is it the same stream


class Driver:
    """In place of torch.cuda: notes what it is asked for, in order."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.mode = "default"

    def itself(self, *device: Any) -> "Driver":
        return self

    def graph_pool_handle(self) -> str:
        return "pool"

    def set_sync_debug_mode(self, mode: str) -> None:
        self.mode = mode

    def capture_begin(self, pool: str) -> None:
        self.asked.append(("begin", pool, gc.isenabled()))

    def capture_end(self) -> None:
        self.asked.append(("end", gc.isenabled()))
        if len(self.asked) > 2:
            raise RuntimeError("it was not capturing")

    def replay(self) -> None:
        self.asked.append("replay")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    for name in ("Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, made.itself)
    for name in ("graph_pool_handle", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, getattr(made, name))
    return made


def test_a_recording_leaves_python_as_it_was(driver: Driver) -> None:
    """Memory is not freed meanwhile; after an error too, which is that of the step."""
    recorder = graphs.OnCuda(torch.device("cuda:0"))
    result, replay = recorder.record(lambda: {"x": torch.ones(2)})
    assert driver.asked == [("begin", "pool", False), ("end", False)]
    assert torch.equal(result["x"], torch.ones(2)) and gc.isenabled()
    replay()
    assert driver.asked.pop() == "replay"

    def fail() -> Tree:
        raise RuntimeError("of the step")

    with pytest.raises(RuntimeError, match="of the step"):
        recorder.record(fail)
    assert gc.isenabled() and driver.asked[2:] == [("begin", "pool", False), ("end", False)]
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="of the step"):
            recorder.record(fail)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_where_the_host_waits_is_told_and_other_warnings_are_shown(driver: Driver) -> None:
    recorder = graphs.OnCuda(torch.device("cuda:0"))

    def step(*lines: str) -> Callable[[], Tree]:
        def called() -> Tree:
            assert driver.mode == "warn"
            for number, line in enumerate(lines):
                warnings.warn_explicit(line, UserWarning, "own.py", number + 7)
            return {"x": torch.ones(1)}

        return called

    with pytest.warns(UserWarning, match="of its own") as shown:
        result, why = recorder.waits(step("of its own", "called a synchronizing CUDA operation"))
    assert "own.py:8" in why and result.keys() == {"x"} and len(shown) == 1
    with pytest.warns(UserWarning, match="of its own"):
        assert recorder.waits(step("of its own"))[1] == ""
    with pytest.raises(KeyError):
        recorder.waits(lambda: {}["missing"])
    assert driver.mode == "default"


def test_steps_are_recorded_on_a_gpu_only_and_together(driver: Driver) -> None:
    nets = [Net(nn.Linear(2, 2)) for _ in range(2)]
    graphs.record_on("cpu", nets)
    assert [net.graphs for net in nets] == [None, None]
    graphs.record_on("cuda:0", iter(nets))
    assert nets[0].graphs is nets[1].graphs is not None


def test_a_step_is_recorded_a_limited_number_of_times(
    on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "WORTHWHILE", 0)
    monkeypatch.setattr(graphs, "MOST", 3)
    world, notes = on(federation(method=ReadsTheRate(), cohort=4, rounds=8)), list[str]()
    tape = on_tape(world, notes)
    same(results(world), results(on(federation(method=ReadsTheRate(), cohort=4, rounds=8))))
    sizes = {size % 8 for size in world.clients.sizes} | {8}
    assert 0 < tape.recorded <= 3 * len(sizes) and notes
