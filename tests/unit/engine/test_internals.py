"""What PyTorch's internals do, its public functions do."""

import ast
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fedrepro.check.world import play
from fedrepro.engine import internals, tree
from fedrepro.engine.net import differentiate
from fedrepro.engine.optim import Optimizer, adam, sgd
from fedrepro.support.packaged import PACKAGE
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.worlds import federation


def is_mapped() -> bool:
    try:
        torch.empty(()).requires_grad_()  # fails inside a transformation
    except RuntimeError:
        return True
    return False


def one_by_one(operation: str, *arguments: Any, **options: Any) -> list[Tensor]:
    lists = [argument for argument in arguments if isinstance(argument, list)]
    scalars = [argument for argument in arguments if not isinstance(argument, list)]
    return [
        getattr(tensor, operation)(*others, *scalars, **options)
        for tensor, *others in zip(*lists, strict=True)
    ]


def move_by_sgd(
    params: list[Tensor],
    gradients: list[Tensor],
    velocity: list[Tensor],
    *,
    rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    for place, (param, gradient) in enumerate(zip(params, gradients, strict=True)):
        if weight_decay:
            gradient = gradient.add(param, alpha=weight_decay)
        if momentum:
            gradient = velocity[place].mul_(momentum).add_(gradient)
        param.add_(gradient, alpha=-rate)


def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine with public functions alone."""
    public = partial(torch.autograd.grad, allow_unused=True)
    monkeypatch.setattr(internals, "backward", public)
    monkeypatch.setattr(internals, "is_mapped", is_mapped)
    monkeypatch.setattr(internals, "each", lambda operation: partial(one_by_one, operation))
    monkeypatch.setattr(internals, "move_by_sgd", move_by_sgd)


def has_them(names: Iterable[str]) -> bool:
    """Whether this version's compiler has these options."""
    from torch._inductor import config  # here: it takes seconds, also of those who only collect

    return all(hasattr(config, name) for name in names)


def test_gradients_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = stream(1, "internals")
    params = {"w": torch.randn(5, 3, generator=rng).requires_grad_(), "unused": torch.ones(2)}
    params["unused"].requires_grad_()
    x = torch.randn(7, 5, generator=rng)

    def gradient() -> dict[str, Tensor]:
        return differentiate(lambda params: (x @ params["w"]).tanh().square().sum(), params)

    before = gradient()
    gone(monkeypatch)
    after = gradient()
    assert all(torch.equal(before[name], after[name]) for name in params)
    assert before["w"].abs().sum() > 0 and not before["unused"].any()


def test_a_transformation_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def inside() -> list[bool]:
        seen = []

        def look(x: Tensor) -> Tensor:
            seen.append(internals.is_mapped())
            return (x * x).sum()

        vmap(look)(torch.ones(3))
        torch.func.grad(look)(torch.ones(3))
        look(torch.ones(3, requires_grad=True))
        with torch.no_grad():
            look(torch.ones(3))
        return seen

    assert inside() == [True, True, False, False]
    gone(monkeypatch)
    assert inside() == [True, True, False, False]


@pytest.mark.parametrize(
    ("optimizer", "tolerance"),
    [
        (adam(0.5, 0.9), 0.0),
        (adam(0.9, 0.99, 0.01), 0.0),
        (sgd(), 0.0),
        (sgd(0.9, 0.01), 1e-12),  # a fused step rounds a product and a sum at once
    ],
)
def test_steps_in_place_are_the_same(
    monkeypatch: pytest.MonkeyPatch, optimizer: Optimizer, tolerance: float
) -> None:
    rng = stream(2, "internals")
    shapes = {"w": (9, 4), "b": (3,)}

    def draw() -> dict[str, Tensor]:
        return {
            name: torch.randn(shape, generator=rng, dtype=torch.float64)
            for name, shape in shapes.items()
        }

    start, gradients = draw(), [draw() for _ in range(6)]

    def moved() -> list[Tensor]:
        params, state = tree.copy(start), optimizer.init(start)
        assert optimizer.in_place is not None
        move = optimizer.in_place(tree.leaves(params), tree.leaves(state))
        for gradient in gradients:
            move(tree.leaves_as(gradient, params), 0.1)
        return [*tree.leaves(params), *tree.leaves(state)]

    before = moved()
    gone(monkeypatch)
    assert not torch.equal(before[0], start["w"])
    for one, other in zip(before, moved(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_the_compiler_is_asked_for_as_many_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an argument, or in releases that have none by what is configured for all."""
    asked: list[int | None] = []

    def new(function: Callable[..., Any], *, recompile_limit: int, **options: Any) -> Any:
        asked.append(recompile_limit)
        assert not any(options.pop("options").values())  # nothing is timed
        assert options == {"fullgraph": True, "dynamic": False}
        return function

    def old(function: Callable[..., Any], *, fullgraph: bool, dynamic: bool, options: Any) -> Any:
        assert fullgraph and not dynamic
        asked.append(torch._dynamo.config.recompile_limit)
        return function

    with torch._dynamo.config.patch(recompile_limit=5):
        for compiler in (new, old):
            monkeypatch.setattr(torch, "compile", compiler)
            assert internals.compiled(abs, 40)(-1) == 1
    assert asked == [40, 40]


def test_more_kinds_of_arguments_than_kernels_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cohorts of many sizes are, with `availability`: the 33rd kind ended a run in an error."""
    made: list[int] = []

    def backend(graph: Any, inputs: Sequence[Tensor], options: Any) -> Any:
        made.append(len(made))
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    doubled = internals.compiled(_doubled, 2)
    for size in (1, 2, 3, 4, 4, 3, 1):
        assert torch.equal(doubled(torch.ones(size)), torch.full((size,), 2.0))
    assert len(made) == 5  # four kinds, and the first once more


def _doubled(x: Tensor) -> Tensor:
    return 2 * x


def test_a_machine_without_openssl_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch calls it to hash precompiled headers: without it the first kernel was a traceback."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "openssl" else which(name))
    asked: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.append(options))
    internals.compiled(abs, 1)
    (options,) = asked
    assert isinstance(options, dict)
    assert options["options"]["cpp_cache_precompile_headers"] is False
    assert has_them(options["options"])


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "apfl"])
def test_whole_rounds_need_no_internals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = federation(name)
    before = play(world)[0]
    gone(monkeypatch)
    assert_close(play(world)[0], before, 1e-12)


def test_no_function_in_a_function_has_a_union_of_trees_in_an_annotation() -> None:
    """It is evaluated in each call, where PyTorch's compiler cannot make one of a dict's type."""
    seen = 0
    for file in (path for room in ("engine", "methods") for path in (PACKAGE / room).rglob("*.py")):
        for outer in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(outer, ast.FunctionDef):
                continue
            for inner in ast.walk(outer):
                if isinstance(inner, ast.FunctionDef) and inner is not outer:
                    every = (*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs)
                    notes = [
                        note for note in (*(e.annotation for e in every), inner.returns) if note
                    ]
                    parts = (part for note in notes for part in ast.walk(note))
                    unions = [ast.unparse(part) for part in parts if isinstance(part, ast.BinOp)]
                    assert "Tree" not in " ".join(unions), (file.name, inner.name)
                    seen += 1
    assert seen > 20
