"""Trees, streams, steps, nets and registry: the small parts that the engine is made of."""

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedrepro.check.world import play
from fedrepro.engine import executors, tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.evaluate import evaluate, score
from fedrepro.engine.executor_facts import FACTS, first_with
from fedrepro.engine.executors import Training, _missing_to_compile, choose, eager, vectorised
from fedrepro.engine.initialise import initialise
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.net import Net
from fedrepro.engine.optim import sgd
from fedrepro.engine.round import Federation, choose_cohort, context_of, steps_of
from fedrepro.engine.steps import Steps, count, shuffle, side_by_side, some_epochs
from fedrepro.engine.task import CLASSIFICATION
from fedrepro.methods import registry
from fedrepro.methods.ima import IMA
from fedrepro.methods.scaffold import Scaffold
from fedrepro.models.classifier import Classifier
from fedrepro.support.rng import numpy_stream, stream
from support.refusals import Fault, refused
from support.worlds import federation


def test_streams_are_addressed_by_name() -> None:
    def draw(*path: str | int) -> list[float]:
        return torch.rand(3, generator=stream(1, *path)).tolist()

    assert draw("shuffle", 2, 3) == draw("shuffle", 2, 3)
    assert (
        len({tuple(draw(*path)) for path in (("a", 1, 2), ("a", 12), ("a", 2, 1), ("b", 1, 2))})
        == 4
    )
    assert numpy_stream(1, "x").random() == numpy_stream(1, "x").random()
    drawn = (numpy_stream(1, *path).random() for path in (("a", 1), ("a", 2), ("b", 1), ("a1",)))
    assert len({*drawn}) == 4


def test_tree_names_and_rebuilds() -> None:
    what = {"a": {"b": torch.ones(2), "c": {}}, "d": torch.zeros(3)}
    assert [name for name, _ in tree.named(what)] == ["a/b", "d"]
    again = tree.rebuild(what, iter(tree.leaves(what)))
    assert again["a"].keys() == {"b", "c"} and torch.equal(again["a"]["b"], torch.ones(2))
    assert tree.size_in_bytes(what) == 20
    assert float(tree.square_norm({"x": torch.tensor([3.0, 4.0])})) == 25


class Rows:
    """Samples whose input and target are their row."""

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return rows.unsqueeze(-1).to(torch.float32), rows


@given(st.integers(1, 23), st.integers(1, 9), st.integers(1, 3), st.integers(1, 23))
def test_padded_steps_hold_the_same_samples(
    samples: int, batch: int, epochs: int, others: int
) -> None:
    def client(size: int) -> Steps:
        orders = shuffle(torch.arange(size), epochs, stream(1, "s"))
        total = -(-size // batch) * epochs
        return Steps(Rows(), orders, batch, {"draw": torch.arange(total)})

    steps = client(samples)
    padded = tree.take(side_by_side([steps, client(others)]), 0)
    assert int(count(padded)) == count(steps) == -(-samples // batch) * epochs
    live = [index for index in range(len(padded["real"])) if padded["real"][index].any()]
    for index, alone in zip(live, steps, strict=True):
        real = padded["real"][index].bool()
        assert torch.equal(padded["y"][index][real], alone["y"])
        assert torch.equal(padded["x"][index][real], alone["x"])
        assert int(padded["draw"][index]) == int(alone["draw"])
    for epoch in range(epochs):
        one = list(some_epochs(steps, epochs, epoch, epoch + 1))
        part = some_epochs(padded, epochs, epoch, epoch + 1)
        assert int(count(part)) == len(one)
        assert sorted(torch.cat([step["y"] for step in one]).tolist()) == list(range(samples))
        assert [int(step["draw"]) for step in one] == [
            int(draw) for draw, real in zip(part["draw"], part["real"], strict=True) if real.any()
        ]


def batch_norm_net() -> Net:
    body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())
    return Net(Classifier(body, nn.Linear(5, 3)).double())


def test_running_statistics_travel_and_are_averaged_but_have_no_gradient() -> None:
    from dataclasses import replace

    for name in ("fedavg", "scaffold", "fednova", "fedprox", "ima+fedadam"):
        # Mini-batches of 11: none of the clients is left with a last one of a single sample.
        world = federation(name, rounds=2)
        context = replace(world.context, net=batch_norm_net(), batch_size=11)
        world = replace(world, context=context)
        before, _, _ = play(world, until=0)
        server, client_states, _ = play(world)
        moved = {
            key for key in before["params"]
            if not torch.equal(before["params"][key], server["params"][key])
        }  # fmt: skip
        assert {"body.1.running_mean", "body.1.running_var", "body.1.weight"} <= moved
        assert "body.1.running_mean" not in server["optimizer"].get("m", {})
        for client_state in client_states.known.values():
            assert "body.1.running_mean" not in client_state.get("c", {})


@pytest.mark.parametrize("name", ["fedavg", "fedavg+fedadam", "fednova"])
def test_running_statistics_do_not_follow_the_server_s_rate(name: str) -> None:
    found = []
    for rate in (1.0, 0.25):
        world = federation(name)
        context = replace(world.context, net=batch_norm_net(), server_lr=rate, batch_size=11)
        found.append(play(replace(world, context=context), until=1)[0]["params"])
    for key in found[0]:
        same = torch.equal(found[0][key], found[1][key])
        assert same == ("running" in key or "num_batches" in key), key


def test_running_statistics_cannot_be_stacked() -> None:
    from dataclasses import replace

    world = federation(execute=eager)
    world = replace(world, context=replace(world.context, net=batch_norm_net()))
    with refused("value", file="executor", value="vectorised", names="GroupNorm"):
        play(world, until=1)


def test_a_last_mini_batch_of_one_sample_is_told_with_its_client_s_size() -> None:
    """And an error of another kind stays what it is."""
    world = federation(cohort=6)
    context = replace(world.context, net=batch_norm_net(), batch_size=6)
    normed = replace(world, context=context)
    with refused(key="batch_size", value=6, names="13"):
        play(normed, until=1)

    class Fails(Method):
        def loss(self, ctx, message, client_state, params, batch):  # type: ignore[no-untyped-def]
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        play(federation(method=Fails()), until=1)


def test_a_net_bound_to_its_module_is_not_disturbed_by_other_trees() -> None:
    """A method may hand the net another tree than the one that is being moved."""
    world = federation()
    net = world.context.net
    params = play(world, until=0)[0]["params"]
    x = torch.ones(1, 6, dtype=torch.float64)
    bound = net.bind(params)
    expected = net(bound, x)
    net(tree.scale(params, 2.0), x)
    assert torch.equal(net(bound, x), expected)
    assert not torch.equal(net(tree.scale(params, 2.0), x), expected)


def test_only_layers_that_leave_something_out_draw() -> None:
    assert not Net(nn.LSTM(2, 3, num_layers=2)).draws
    assert Net(nn.LSTM(2, 3, num_layers=2, dropout=0.1)).draws


def test_sums_of_losses_are_not_rounded() -> None:
    """999 times the same loss: in float32 the sum is not a multiple of it."""
    net = Net(nn.Linear(1, 2))
    params = tree.zeros(net.init(stream(1, "init")))
    samples = torch.ones(999, 1), torch.zeros(999, dtype=torch.int64)
    found = evaluate(
        net, CLASSIFICATION, params, lambda first, last: tuple(s[first:last] for s in samples), 999
    )
    assert found["loss"] == float(torch.tensor(2.0).log())
    assert score(CLASSIFICATION, torch.zeros(999, 2), samples[1])["loss"] == found["loss"]


def test_scales_drawn_anew_have_a_variance_of_one() -> None:
    module = Classifier(nn.Sequential(nn.BatchNorm2d(4000), nn.Flatten()), nn.Linear(4000, 2))
    module.redrawn = True  # type: ignore[assignment]
    scale = Net(module).init(stream(1, "init"))["body.0.weight"]
    assert float(scale.mean()) == pytest.approx(1, abs=0.1)
    assert float(scale.std()) == pytest.approx(1, abs=0.1)


def test_leaves_of_another_network_are_refused() -> None:
    net = Net(nn.Linear(3, 2))
    params = net.init(stream(1, "init"))
    net.refuse_others(params, "a file")
    stacked = tree.stack([params, params])
    net.refuse_others(stacked, "a file", each_client=True)
    with refused(key="weight", file="a file", value=[2, 2, 3], names="file"):
        net.refuse_others(stacked, "a file")


@pytest.mark.parametrize("kept", ["0", "1", "1.0", "1.0.1", "2", ""])
def test_a_part_keeps_the_weights_of_all_its_layers(kept: str) -> None:
    """At any depth, and no other part keeps its own."""
    inner = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)))
    module = nn.Sequential(nn.Linear(6, 6), nn.Sequential(inner, nn.Linear(6, 6)), nn.Linear(6, 3))
    module.get_submodule(kept).keeps_weights = True  # type: ignore[assignment]
    with torch.no_grad():
        for leaf in module.parameters():
            leaf.fill_(7)
        initialise(module, stream(1, "init"))
    same = {name for name, leaf in module.named_parameters() if bool((leaf == 7).all())}
    inside = f"{kept}." if kept else ""
    assert same == {name for name, _ in module.named_parameters() if name.startswith(inside)}


@pytest.mark.parametrize("redrawn", [False, True])
def test_initial_weights_do_not_depend_on_what_was_trained_before(redrawn: bool) -> None:
    """Weights learned elsewhere stand in the module, whose tensors clients move in place."""
    module = Classifier(nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 8)), nn.Linear(8, 3))
    learned = module.body[0].weight.detach().clone()
    module.body.keeps_weights = True  # type: ignore[assignment]
    module.redrawn = redrawn  # type: ignore[assignment]
    net = Net(module)
    first = net.init(stream(1, "init"))
    assert torch.equal(first["body.0.weight"], learned)  # neither reading draws embeddings
    bound = net.bind(tree.scale(first, 3.0))
    with torch.no_grad():
        for leaf in tree.leaves(bound):
            leaf.add_(1.0)
    again, other = net.init(stream(1, "init")), net.init(stream(2, "init"))
    assert all(torch.equal(leaf, again[name]) for name, leaf in first.items())
    assert not torch.equal(other["head.weight"], first["head.weight"])
    assert torch.equal(other["body.1.weight"], first["body.1.weight"]) is not redrawn


@pytest.mark.parametrize("in_place", [True, False])
def test_momentum_belongs_to_the_parameter_of_its_name(in_place: bool) -> None:
    """Layers of equal shape, in a tree, a state and gradients whose names come in other orders."""
    module = Classifier(nn.Linear(4, 4), nn.Linear(4, 4)).double()
    net = Net(module)
    optimizer = sgd(0.9) if in_place else sgd(0.9)._replace(in_place=None)
    ctx = Context(net=net, optimizer=optimizer, lr=0.1)
    params = net.init(stream(1, "init"))

    def turned(what: tree.Tree) -> tree.Tree:
        return dict(reversed(what.items()))

    def gradient(ctx: Context, message, client_state, params, batch):  # type: ignore[no-untyped-def]
        return {name: leaf.detach() + len(name) for name, leaf in params.items()}

    def backwards(*arguments):  # type: ignore[no-untyped-def]
        return turned(gradient(*arguments))

    steps = federation_steps()
    state = {"momentum": tree.apply(torch.randn_like, params)}
    one, after = descend(ctx, gradient, {}, {}, params, steps, state)
    other, state = descend(
        ctx, backwards, {}, {}, turned(params), steps, {"momentum": turned(state["momentum"])}
    )
    assert all(torch.equal(leaf, other[name]) for name, leaf in one.items())
    for name, leaf in after["momentum"].items():
        assert torch.equal(leaf, state["momentum"][name])


def federation_steps() -> Steps:
    world = federation()
    return steps_of(world, context_of(world, 0, [1]), 1)


def test_the_rate_of_clients_side_by_side_is_not_rounded() -> None:
    """In float32 0.1 is 0.100000001490116: a client that runs alone multiplies by 0.1."""
    seen: list[tuple[torch.dtype, float]] = []

    class Looks(Method):
        def gradient(self, ctx, message, client_state, theta, batch):  # type: ignore[no-untyped-def]
            if isinstance(ctx.lr, Tensor):
                seen.append((ctx.lr.dtype, float(ctx.lr)))
            return tree.apply(torch.ones_like, theta)

    assert torch.get_default_dtype() == torch.float32
    module = Classifier(nn.Linear(6, 3), nn.Identity())
    module.body.single = nn.Parameter(torch.tensor(1.0))  # type: ignore[assignment]
    world = federation(method=Looks(), lr=0.1, execute=eager)
    net = Net(module.float())
    params = {name: leaf.detach().clone() for name, leaf in module.named_parameters()}
    ctx = replace(context_of(world, 0, [0, 1]), net=net)
    steps = [steps_of(world, ctx, client) for client in (0, 1)]
    updates, _ = eager(Training(world.method, ctx, {"params": params}, [{}, {}], steps))
    assert seen and set(seen) == {(torch.float64, 0.1)}
    assert {leaf.dtype for leaf in tree.leaves(updates)} == {torch.float32}


def test_a_part_of_the_parameters_can_be_trained() -> None:
    """As FedRep does: the head first, the body as it was sent."""
    net = federation().context.net
    params = net.init(stream(1, "init"))
    ctx = Context(net=net, optimizer=sgd(), lr=0.1)

    def head_gradient(ctx: Context, message, client_state, head, batch):  # type: ignore[no-untyped-def]
        from fedrepro.engine.net import differentiate

        return differentiate(
            lambda head: ctx.task.loss(ctx.net({**message, **head}, batch["x"]), batch), head
        )

    steps = Steps(federation().clients.samples, [torch.arange(4)], 2, {})
    moved, _ = descend(ctx, head_gradient, params, {}, net.head(params), steps)
    assert moved.keys() == {"head.weight", "head.bias"}
    assert not torch.equal(moved["head.bias"], params["head.bias"])


def test_executors_of_equal_bits_are_chosen_by_speed() -> None:
    assert choose("auto", True, "linear", "cpu", 1) == "vectorised"
    assert choose("auto", True, "linear", "cpu", 10**6, threads=2) == "vectorised"
    assert choose("auto", False, "linear", "cpu", 10**6) == "sequential"
    of_hundred = {"rounds": 100, "threads": 2}
    assert choose("auto", False, "convolutional", "cpu", 10_000, **of_hundred) == "parallel"
    assert choose("auto", False, "convolutional", "cpu", 1_000, **of_hundred) == "sequential"
    assert choose("auto", False, "convolutional", "cuda", 10_000, **of_hundred) == "sequential"
    assert choose("vectorised", False, "convolutional", "cpu", 1) == "vectorised"
    assert choose("parallel", True, "linear", "cpu", 1) == "parallel"
    with refused(file="executor", value="parallel", names=("Linux", "device")):
        choose("parallel", False, "linear", "cuda", 1)
    with refused(key="name", value="sequental", names="'sequential'"):
        choose("sequental", False, "linear", "cpu", 1)


def test_an_executor_is_made_for_its_device_and_its_processes() -> None:
    made = {name: make(3, "cpu") for name, make in executors.EXECUTORS.items()}
    assert made == {
        "sequential": executors.sequential, "parallel": executors.Parallel(3),
        "vectorised": vectorised,
    }  # fmt: skip
    assert isinstance(executors.EXECUTORS["sequential"](3, "cuda:0"), executors.Lanes)
    assert [first_with(name) for name in ("per client", "stacked", "other")] == [
        "sequential", "vectorised", None,
    ]  # fmt: skip
    assert {*FACTS} == {*executors.EXECUTORS}
    assert [name for name, facts in FACTS.items() if facts.in_processes] == ["parallel"]


def test_processes_begin_with_the_largest_clients() -> None:
    """Else one would work alone at the end; what they send stands in the cohort's order."""
    seen: list[int] = []

    class Looks(Method):
        def client_update(self, ctx, message, client_state, steps):  # type: ignore[no-untyped-def]
            seen.append(len(steps.orders[0]))
            return {"size": torch.tensor(seen[-1])}, {"size": torch.tensor([seen[-1]])}

    world = federation(method=Looks())
    cohort = [2, 0, 4, 3]
    ctx = context_of(world, 0, cohort)
    sizes = [world.clients.sizes[client] for client in cohort]
    steps = [steps_of(world, ctx, client) for client in cohort]
    orders = (sizes, sorted(sizes, reverse=True))
    for execute, order in zip((executors.sequential, executors.Parallel(1)), orders, strict=True):
        seen.clear()
        updates, after = execute(Training(world.method, ctx, {}, [{}] * len(cohort), steps))
        assert seen == order and updates["size"].tolist() == sizes
        assert [own["size"].tolist() for own in after] == [[size] for size in sizes]


def test_what_clients_side_by_side_would_share_is_refused() -> None:
    """A state between mini-batches other than BatchNorm's, and a precision for training only."""

    class Moving(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 3)
            self.register_buffer("seen", torch.zeros(1))

    for net in (Net(Moving()), Net(nn.Linear(6, 3), "tf32"), Net(nn.Linear(6, 3), "bfloat16")):
        base = federation(execute=eager)
        world = replace(base, context=replace(base.context, net=net))
        with refused(value="vectorised", names="'sequential'"):
            play(world, until=1)


def _forget_compilers() -> None:
    from torch._inductor import config, cpp_builder

    _missing_to_compile.cache_clear()
    cpp_builder.cpp_compiler_search.cache_clear()
    config.cpp.cxx = (None, os.environ.get("CXX", "g++"))  # as when it is imported


@pytest.fixture
def looked_up_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """What torch.compile needs is looked up once a process: before and after these tests, anew."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    _forget_compilers()
    yield _forget_compilers
    monkeypatch.undo()
    _forget_compilers()


@pytest.mark.parametrize(
    ("there", "given", "missing"),
    [
        (["g++"], {}, ""),
        (["c++", "clang++"], {}, "no g++ on the PATH"),  # PyTorch calls g++
        ([], {}, "no g++ on the PATH"),
        (["other"], {"CXX": "other"}, ""),
        (["g++"], {"CXX": "/nowhere/g++"}, "CXX is '/nowhere/g++'"),
        (["g++"], {"CXX": "nonsense"}, "CXX is 'nonsense'"),
        (["g++"], {"CXX": "/etc/passwd"}, "CXX is '/etc/passwd'"),
        # With which PyTorch computes the same uncompiled, and other bits.
        (["g++"], {"TORCHDYNAMO_DISABLE": "1"}, "TORCHDYNAMO_DISABLE"),
        (["g++"], {"TORCH_COMPILE_DISABLE": "1"}, "TORCH_COMPILE_DISABLE"),
        (["g++"], {"TORCH_COMPILE_DISABLE": "0"}, ""),
    ],
)
def test_the_compiler_is_the_one_that_pytorch_calls(
    there: list[str],
    given: dict[str, str],
    missing: str,
    looked_up_anew: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    looked_up_anew()
    said = _missing_to_compile("cpu")
    assert missing in said and bool(said) == bool(missing)
    if missing:
        world = federation()
        with refused(file="executor", value="vectorised", names="'sequential'"):
            vectorised(Training(world.method, context_of(world, 0, [0]), {}, [], []))


def test_on_a_gpu_it_is_a_c_compiler(
    looked_up_anew: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {"gcc", "clang", "PATH", "CC"} <= {*re.findall(r"\w+", _missing_to_compile("cuda"))}
    monkeypatch.setenv("CC", "/nowhere/cc")
    looked_up_anew()
    assert {"CC", "'/nowhere/cc'"} <= {*re.split("[ ,]", _missing_to_compile("cuda"))}


@pytest.mark.usefixtures("looked_up_anew")
def test_a_folder_of_compiled_code_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file/inside"))
    assert _missing_to_compile("cpu").startswith(f"{tmp_path / 'file/inside'}: ")


@pytest.mark.usefixtures("looked_up_anew")
def test_a_folder_that_nothing_is_executed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    status = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    assert "noexec" in _missing_to_compile("cpu")


def test_a_compiler_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, with pages of output."""
    from torch._dynamo.exc import BackendCompilerFailed

    def fail(*given: object) -> NoReturn:
        pages = "g++ -O3\n" + "a warning\n" * 10_000
        why = "x.cpp:1: fatal error: error writing to /tmp/x.s: No space left on device"
        error = BackendCompilerFailed.__new__(BackendCompilerFailed)  # its arguments change
        RuntimeError.__init__(error, f"{pages}{why}\ncompilation terminated.\n")
        raise error

    monkeypatch.setattr(executors, "_compiled", lambda: fail)
    monkeypatch.setattr(executors, "_missing_to_compile", lambda device: "")
    with refused(names=("/tmp/x.s", "writing")):
        play(federation(execute=vectorised), until=1)


def test_a_model_that_the_compiler_cannot_take_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import Unsupported

    def fail(*given: object) -> NoReturn:
        error = Unsupported.__new__(Unsupported)
        RuntimeError.__init__(error, "Unsupported\n  Hint")
        raise error

    monkeypatch.setattr(executors, "_compiled", lambda: fail)
    monkeypatch.setattr(executors, "_missing_to_compile", lambda device: "")
    with refused(value="vectorised", names=("Unsupported", "'sequential'")):
        play(federation(execute=vectorised), until=1)


@pytest.mark.usefixtures("looked_up_anew")
def test_without_pythons_headers_clients_are_not_stacked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("sysconfig.get_path", lambda *arguments: str(tmp_path))
    monkeypatch.delenv("CPATH", raising=False)
    monkeypatch.delenv("CPLUS_INCLUDE_PATH", raising=False)
    world = federation()
    with refused(value="vectorised", names=("Python.h", "python3-dev")):
        vectorised(Training(world.method, context_of(world, 0, [0]), {}, [], []))


def test_composition() -> None:
    method, optimizer = registry.compose("ima+fedprox+fedadam", {"fedprox": {"mu": 0.5}})
    assert isinstance(method, IMA) and method.inner.mu == 0.5
    assert type(optimizer).__name__ == "FedAdam"
    method, _ = registry.compose("ima@released+fedyogi")
    assert method.before_server_optimizer
    assert type(method.inner).__name__ == "FedAvg"
    scaffold, _ = registry.compose("scaffold@released")
    assert isinstance(scaffold, Scaffold) and not scaffold.corrects


@pytest.mark.parametrize(
    ("name", "values", "fault"),
    [
        ("fedprx", {}, {"key": "part", "value": "fedprx", "names": ("'fedprox'", "mean")}),
        (
            "fedprox",
            {"fedprox": {"nu": 1.0}},
            {"key": "hyperparameter", "value": "nu", "names": "'mu'"},
        ),
        ("fedprox", {"fedprox": {"mu": "much"}}, {"key": "mu", "value": "much"}),
        ("ima", {"ima": {"window": 2.5}}, {"key": "window", "value": 2.5}),
        (
            "fedprox@printed",
            {},
            {"key": "fedprox@printed", "value": "printed", "names": ("'paper'", "'released'")},
        ),
        ("fednova@released", {}, {"key": "fidelity", "value": "fednova@released"}),
        ("fedprox+ima", {}, {"key": "order"}),
        ("fedprox+scaffold", {}, {"key": "order"}),
        ("fedadam+fedyogi", {}, {"key": "order"}),
        ("fedadam+fedavg", {}, {"key": "order", "value": "fedavg"}),
        ("fedadam+ima", {}, {"key": "order", "value": "ima"}),
        ("ima+central", {}, {"key": "wrapper", "value": "ima", "names": ("Central", "wrap")}),
        ("ima+ima+fedavg", {}, {"key": "wrapper", "value": "ima", "names": "already"}),
        ("fedevg+fedadm", {}, {"key": "part", "value": "fedadm", "names": ("'fedadam'", "mean")}),
        ("fedavg++ima", {}, {"key": "name", "value": "fedavg++ima"}),
        ("ima", {"ima": {"window": 0}}, {"key": "window", "value": 0, "names": "1"}),
        ("ima", {"ima": {"decay": 2.0}}, {"key": "decay", "value": 2.0, "names": "1"}),
        ("fedprox", {"fedprox": {"mu": -1.0}}, {"key": "mu", "value": -1.0, "names": "0"}),
        ("fedprox", {"fedprox": {"mu": float("nan")}}, {"key": "mu", "names": "finite"}),
        (
            "fedadam",
            {"fedadam": {"initial_accumulator": "x"}},
            {"key": "initial_accumulator", "value": "x"},
        ),
    ],
)
def test_composition_that_makes_no_sense(name: str, values: dict, fault: Fault) -> None:  # type: ignore[type-arg]
    with refused(**fault) as caught:
        registry.compose(name, values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hook", ["loss", "gradient"])
def test_a_wrapper_may_not_override_what_is_never_called(hook: str) -> None:
    with pytest.raises(TypeError, match=hook):
        type("Wrong", (Wrapper,), {hook: getattr(Method, hook)})


def test_methods_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halved.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedrepro.engine.method import Method\n\n\n"
        "@dataclass(frozen=True)\n"
        "class Halved(Method):\n"
        '    """Halved: a method of one\'s own."""\n\n'
        "    share: float = 0.5\n\n"
        "    def aggregation_weights(self, ctx, server, updates):\n"
        "        weights, server = super().aggregation_weights(ctx, server, updates)\n"
        "        return weights * self.share, server\n"
    )
    monkeypatch.setenv("FEDREPRO_METHODS", str(tmp_path))
    method, _ = registry.compose("ima+halved", {"halved": {"share": 0.25}})
    assert method.inner.share == 0.25
    assert registry.parts()["halved"].paper == "Halved: a method of one's own."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import nowhere", {"names": ("imported", "could")}),
        ("x = 1", {"file": "broken.py", "value": 0, "names": "dataclass"}),
        (
            "from dataclasses import dataclass\nfrom fedrepro.engine.method import Method\n"
            "@dataclass(frozen=True)\nclass One(Method):\n    pass\n"
            "@dataclass(frozen=True)\nclass Other(Method):\n    pass\n",
            {"file": "broken.py", "value": 2, "names": "dataclass"},
        ),
    ],
)
def test_a_broken_method_file(
    text: str, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.setenv("FEDREPRO_METHODS", str(tmp_path))
    with refused(**fault):
        registry.compose("ima+broken")


def test_gradient_is_that_of_autograd() -> None:
    """The shortcut to autograd's engine, which has no public name, gives what grad() gives."""
    from fedrepro.engine.net import differentiate

    net = federation().context.net
    bound = net.bind(net.init(stream(1, "init")))
    x, y = federation().clients.tensors[1]

    def loss(params: tree.Tree) -> Tensor:
        return nn.functional.cross_entropy(net(params, x), y)

    found = torch.autograd.grad(loss(bound), tree.leaves(bound))
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(tree.leaves(differentiate(loss, bound)), found, strict=True)
    )


def test_gradient_of_what_the_loss_does_not_depend_on_is_zero() -> None:
    from fedrepro.engine.net import differentiate

    params = {
        "used": torch.ones(2, requires_grad=True),
        "unused": torch.ones(3, requires_grad=True),
    }
    gradient = differentiate(lambda params: params["used"].sum(), params)
    assert torch.equal(gradient["unused"], torch.zeros(3))
    assert torch.equal(gradient["used"], torch.ones(2))


def test_rounds_of_many_lengths_under_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each length short enough to be unrolled is compiled once, and one step for all others.

    The number of steps differs from round to round. The tracing backend runs no C++ compiler.
    """
    from functools import partial

    from torch._dynamo.testing import CompileCounter

    from fedrepro.check.world import Data
    from fedrepro.engine import descent, executors
    from support.closeness import assert_close

    counter = CompileCounter()
    tracing = partial(torch.compile, backend=lambda graph, inputs, options: counter(graph, inputs))
    monkeypatch.setattr(torch, "compile", tracing)
    monkeypatch.setattr(executors, "UNROLLED", 3)
    for cached in (descent._compiled_step, executors._compiled):
        cached.cache_clear()
    sizes = [8 * number for number in range(1, 6)]  # 1 to 5 mini-batches
    x = torch.randn(sum(sizes), 6, generator=stream(1, "x")).double()
    y = torch.arange(sum(sizes)) % 3
    parts = list(zip(x.split(sizes), y.split(sizes), strict=True))

    def world(execute: executors.Executor) -> Federation:
        base = federation("scaffold", cohort=2, rounds=12, momentum=0.0, lr=0.01)
        context = replace(base.context, clients=len(sizes), epochs=1)
        clients = Data(parts)
        return replace(base, clients=clients, context=context, execute=execute)

    beside = world(executors.vectorised)
    longest = {1 + max(choose_cohort(beside, round)) for round in range(12)}
    assert longest == {2, 3, 4, 5}
    try:
        # With torch's own limit below what is needed here, what the executor asks for is seen.
        with torch._dynamo.config.patch(recompile_limit=1):
            compiled, _, _ = play(beside)
        assert_close(compiled["params"], play(world(executors.sequential))[0]["params"])
    finally:
        for cached in (descent._compiled_step, executors._compiled):
            cached.cache_clear()
    assert counter.frame_count == 2 + 1


@pytest.mark.parametrize("key", ["from_gradients", "after_momentum"])
def test_an_optimizer_that_a_client_makes_is_traced_by_the_compiler(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The tracing backend runs no C++ compiler. Clients with one and with many mini-batches."""
    from functools import partial

    from fedrepro.engine import descent, executors
    from support.closeness import assert_close

    tracing = partial(torch.compile, backend=lambda graph, inputs, options: graph.forward)
    monkeypatch.setattr(torch, "compile", tracing)
    for batch in (64, 4):
        base = federation("scaffold", {"scaffold": {key: True}}, rounds=2, lr=0.01)
        base = replace(base, context=replace(base.context, batch_size=batch))
        for cached in (descent._compiled_step, executors._compiled):
            cached.cache_clear()
        try:
            compiled, _, _ = play(replace(base, execute=executors.vectorised))
        finally:
            for cached in (descent._compiled_step, executors._compiled):
                cached.cache_clear()
        assert_close(compiled["params"], play(base)[0]["params"])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["first", "last"])
def test_one_number_that_is_not_finite_is_noticed_wherever_it_stands(
    number: float, place: str
) -> None:
    leaves = {"first": torch.zeros(3), "inner": {"last": torch.ones(2, 2)}, "n": torch.tensor([7])}
    assert tree.all_finite(leaves) and tree.all_finite({}) and tree.all_finite(torch.ones(()))
    {"first": leaves["first"], **leaves["inner"]}[place].view(-1)[-1] = number
    assert not tree.all_finite(leaves)
