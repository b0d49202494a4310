"""A model that is given as an object: what makes it another one, and what does not."""

import collections
import dataclasses
import enum
import functools
import importlib
import itertools
import math
import operator
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedrepro as fr
from fedrepro.api.model_identity import UnknownError, identity_of
from support.refusals import refused


class Holds(nn.Module):
    """Whatever it holds may change what it computes."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Buffered(nn.Module):
    def __init__(self, value: float, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(value), persistent=persistent)


class Plain:
    def __init__(self, by: Any) -> None:
        self.by = by


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by


class Forgetful(Plain):
    """Pickles nothing."""

    def __getstate__(self) -> None:
        return None


class Named(NamedTuple):
    by: float


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


class Words(dict[str, float]):
    pass


class Number(float):
    pass


@dataclasses.dataclass
class Data:
    by: float
    of: list[int] = dataclasses.field(default_factory=list)


def closure(by: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * by


def two_deep(by: float) -> Callable[[Tensor], Tensor]:
    def inner(x: Tensor) -> Tensor:
        def innermost(x: Tensor) -> Tensor:
            return x * by

        return innermost(x)

    return inner


def with_default(by: float) -> Callable[..., Tensor]:
    def scaled(x: Tensor, factor: float = by) -> Tensor:
        return x * factor

    return scaled


def with_keyword_default(by: float) -> Callable[..., Tensor]:
    def scaled(x: Tensor, *, factor: float = by) -> Tensor:
        return x * factor

    return scaled


def with_attribute(by: float) -> Callable[..., Tensor]:
    def scaled(x: Tensor) -> Tensor:
        return x * scaled.by  # type: ignore[attr-defined, no-any-return]

    scaled.by = by  # type: ignore[attr-defined]
    return scaled


def notebook(code: str, **names: Any) -> dict[str, Any]:
    """What cells of a notebook define."""
    space: dict[str, Any] = {"__name__": "__main__", "torch": torch, "nn": nn, "F": F, **names}
    exec(code, space)
    return space


def of_notebook(code: str, **names: Any) -> Any:
    return notebook(code, **names)["made"]


SCALED = """
class Net(nn.Module):
    {body}
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
    def forward(self, x):
        return self.layer({how})
made = Net()
"""


def class_of(how: str, body: str = "", before: str = "") -> nn.Module:
    return of_notebook(before + SCALED.format(how=how, body=body))  # type: ignore[no-any-return]


def helper_module(by: float) -> types.ModuleType:
    module = types.ModuleType("a_helper")
    vars(module).update(notebook(f"BY = {by}\ndef scale(x): return x * BY", __name__="a_helper"))
    return module


def uses_module(by: float, how: str) -> nn.Module:
    names = {"a_helper": helper_module(by)}
    return of_notebook(SCALED.format(how=how, body=""), **names)  # type: ignore[no-any-return]


def hooked(by: float) -> nn.Module:
    module = nn.Linear(3, 3)
    module.register_forward_pre_hook(lambda layer, given: (given[0] * by,))
    return module


def frozen(whether: bool) -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3))
    module[0].weight.requires_grad_(not whether)
    return module


def tied(whether: bool) -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    if whether:
        module[1].weight = module[0].weight
    return module


def method_of(by: float) -> Any:
    class Scales:
        def __init__(self) -> None:
            self.by = by

        def scale(self, x: Tensor) -> Tensor:
            return x * self.by

    return Scales().scale


def ordered(*names: str) -> collections.OrderedDict[str, int]:
    made = collections.OrderedDict.fromkeys(sorted(names), 0)
    for name in names:
        made.move_to_end(name)
    return made


def assigned(by: float) -> Any:
    """A class attribute that was assigned after the class had been made."""
    space = notebook(SCALED.format(how="x * self.by", body="by = 1.0"))
    space["Net"].by = by
    return space["made"]


def patched(by: float) -> nn.Module:
    module = nn.Linear(3, 3)
    forward = module.forward
    module.forward = lambda x: forward(x) * by  # type: ignore[method-assign]
    return module


# By name, a function of a number that differs between two models.
WITH_NUMBER: dict[str, Callable[[float], Any]] = {
    "a number": float,
    "a number in a list": lambda by: [1, [by]],
    "a number in a dict": lambda by: {"a": {"b": by}},
    "a key": lambda by: {by: "a"},
    "a number in a tuple": lambda by: (1, (by,)),
    "a number in a set": lambda by: {1.5, by},
    "an array": lambda by: np.array([by, 1.0]),
    "an array of objects": lambda by: np.array([by, "a"], dtype=object),
    "a scalar array": np.float32,
    "a tensor": torch.tensor,
    "a tensor in a list": lambda by: [torch.tensor([1.0, by])],
    "a number of your own type": Number,
    "an object": Plain,
    "an object in an object": lambda by: Plain(Plain(by)),
    "an object with slots": Slotted,
    "an object that pickles nothing": Forgetful,
    "a named tuple": Named,
    "a dict of your own": lambda by: Words(a=by),
    "a data class": Data,
    "a data class's list": lambda by: Data(1.0, [int(by)]),
    "a member": lambda by: Kind(int(by)),
    "a deque": lambda by: collections.deque([by]),
    "a default of a dict": lambda by: collections.defaultdict(lambda: by),
    "a counter": lambda by: itertools.count(int(by)) if sys.version_info < (3, 12) else by,
    "a closure": closure,
    "a closure in a closure": two_deep,
    "a default": with_default,
    "a keyword's default": with_keyword_default,
    "a function's attribute": with_attribute,
    "a partial": lambda by: functools.partial(torch.mul, by),
    "a partial's keyword": lambda by: functools.partial(torch.add, other=1, alpha=by),
    "a partial of a closure": lambda by: functools.partial(closure(by)),
    "a cached function": lambda by: functools.lru_cache(closure(by)),
    "a wrapped function": lambda by: functools.wraps(closure)(closure(by)),
    "a bound method": method_of,
    "a method of a tensor": lambda by: torch.tensor(by).mul,
    "a generator's state": lambda by: torch.Generator().manual_seed(int(by)),
    "a numpy generator's state": lambda by: np.random.default_rng(int(by)),
}
WITHOUT_HOLDER: dict[str, Callable[[float], nn.Module]] = {
    "a buffer": Buffered,
    "a buffer that is not saved": lambda by: Buffered(by, persistent=False),
    "a buffer in a part": lambda by: nn.Sequential(nn.Identity(), Buffered(by)),
    "a hook": hooked,
    "a forward of an instance": patched,
    "a rate of Dropout": lambda by: nn.Sequential(nn.Dropout(by / 10)),
    "a slope": lambda by: nn.Sequential(nn.LeakyReLU(by)),
    "epsilon": lambda by: nn.Sequential(nn.BatchNorm1d(3, eps=by)),
    "a method's constant": lambda by: class_of(f"x * {by}"),
    "a class attribute": lambda by: class_of("x * self.by", f"by = {by}"),
    "a class attribute that was assigned": assigned,
    "an attribute of a base": lambda by: of_notebook(
        f"class Base(nn.Module): by = {by}\nclass Net(Base): pass\nmade = Net()"
    ),
    "a property": lambda by: class_of("x", f"by = property(lambda self: {by})"),
    "a static method": lambda by: class_of("x", f"by = staticmethod(lambda: {by})"),
    "a cached property": lambda by: class_of(
        "x", f"by = F.cached_property(lambda self: {by})".replace("F.", "__import__('functools').")
    ),
    "a global": lambda by: class_of("x * BY", before=f"BY = {by}"),
    "a global tensor": lambda by: class_of("x * BY", before=f"BY = torch.tensor({by})"),
    "a helper": lambda by: class_of("helper(x)", before=f"def helper(x): return x * {by}"),
    "a helper's default": lambda by: class_of("helper(x)", before=f"def helper(x, by={by}): pass"),
    "a helper's global": lambda by: class_of(
        "helper(x)", before=f"BY = {by}\ndef helper(x): return x * BY"
    ),
    "a helper's helper": lambda by: class_of(
        "one(x)", before=f"def one(x): return two(x)\ndef two(x): return x * {by}"
    ),
    "a global that a lambda names": lambda by: class_of(
        "(lambda y: y * BY)(x)", before=f"BY = {by}"
    ),
    "a comprehension's global": lambda by: class_of("sum([BY for _ in x])", before=f"BY = {by}"),
    "a list that is global": lambda by: class_of("x * BY[0]", before=f"BY = [{by}]"),
    "a class that forward makes": lambda by: class_of(
        "Other()(x)", before=f"class Other:\n    def __call__(self, x): return x * {by}\n"
    ),
    "a module's function": lambda by: uses_module(by, "a_helper.scale(x)"),
    "a module's number": lambda by: uses_module(by, "x * a_helper.BY"),
    "a function of autograd": lambda by: class_of(
        "Double.apply(x)",
        before="class Double(torch.autograd.Function):\n    @staticmethod\n"
        f"    def forward(ctx, x): return x * {by}\n",
    ),
    "a part that a parametrization has": lambda by: parametrized(by),
}


def parametrized(by: float) -> nn.Module:
    module = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(module, "weight", Scales(by))
    return module


class Scales(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


PAIRS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    **{
        name: (lambda make=make: Holds(make(1.0)), lambda make=make: Holds(make(2.0)))  # type: ignore[misc]
        for name, make in WITH_NUMBER.items()
    },
    **{
        name: (lambda make=make: make(1.0), lambda make=make: make(2.0))  # type: ignore[misc]
        for name, make in WITHOUT_HOLDER.items()
    },
    "functions": (lambda: Holds(torch.relu), lambda: Holds(torch.sin)),
    "functions of two packages": (lambda: Holds(torch.sin), lambda: Holds(math.sin)),
    "functions of numpy": (lambda: Holds(np.sin), lambda: Holds(np.cos)),
    "functions of arrays": (lambda: Holds(np.sum), lambda: Holds(np.mean)),
    "functions of torch.nn": (lambda: Holds(F.relu), lambda: Holds(F.gelu)),
    "methods of a class": (lambda: Holds(Tensor.sin), lambda: Holds(Tensor.cos)),
    "classes": (lambda: Holds(nn.ReLU), lambda: Holds(nn.Tanh)),
    "layers": (lambda: nn.Sequential(nn.ReLU()), lambda: nn.Sequential(nn.Tanh())),
    "types of numbers": (lambda: Holds(1), lambda: Holds(1.0)),
    "signs of zero": (lambda: Holds(0.0), lambda: Holds(-0.0)),
    "a list and a tuple": (lambda: Holds([1]), lambda: Holds((1,))),
    "where a list ends": (lambda: Holds([[1], 2]), lambda: Holds([[1, 2]])),
    "text": (lambda: Holds("a"), lambda: Holds(b"a")),
    "dtypes": (lambda: Holds(torch.float32), lambda: Holds(torch.float64)),
    "dtypes of tensors": (
        lambda: Holds(torch.zeros(2)),
        lambda: Holds(torch.zeros(2, dtype=torch.int32)),
    ),
    "dtypes of arrays": (lambda: Holds(np.zeros(2)), lambda: Holds(np.zeros(2, dtype=np.int64))),
    "dtypes of scalars": (lambda: Holds(np.float32(0)), lambda: Holds(np.int32(0))),
    "shapes": (lambda: Holds(torch.zeros(2, 3)), lambda: Holds(torch.zeros(3, 2))),
    "the order of a dict": (lambda: Holds(ordered("a", "b")), lambda: Holds(ordered("b", "a"))),
    "frozen weights": (lambda: frozen(True), lambda: frozen(False)),
    "tied weights": (lambda: tied(True), lambda: tied(False)),
    "the order of layers": (
        lambda: nn.Sequential(nn.ReLU(), nn.Tanh()),
        lambda: nn.Sequential(nn.Tanh(), nn.ReLU()),
    ),
    "operators": (lambda: class_of("x + 1"), lambda: class_of("x - 1")),
    "another local": (
        lambda: class_of("[a for a, b in [(x, 1)]][0]"),
        lambda: class_of("[b for a, b in [(x, 1)]][0]"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_models_that_may_compute_differently_have_two_identities(name: str) -> None:
    """And each has its own once more, made anew in the same way, or after it was called."""
    first, second = PAIRS[name]
    once, again = first(), first()
    assert identity_of(once, weights=False) == identity_of(again, weights=False)
    assert identity_of(once, weights=False) == identity_of(once, weights=False)
    assert identity_of(once, weights=False) != identity_of(second(), weights=False)


LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "old spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 3)),
    "lazy": lambda: nn.LazyLinear(3),
    "batch norm": lambda: nn.BatchNorm2d(3),
    "complex": lambda: Holds(torch.complex(torch.ones(2), torch.zeros(2)).conj()),
    "logger": lambda: Holds(__import__("logging").getLogger("mine")),
    "path": lambda: Holds(Path("a")),
    "cycle": lambda: cycle(),
}


def cycle() -> nn.Module:
    items: list[Any] = [1]
    items.append(items)
    return Holds(items)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_an_identity_that_lasts(name: str) -> None:
    """Weights that the run draws do not count; those that were brought do."""

    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return LAYERS[name]()

    assert identity_of(made(1), weights=True) == identity_of(made(1), weights=True)
    if name != "old spectral norm":  # which draws a buffer
        assert identity_of(made(1), weights=False) == identity_of(made(2), weights=False)
    drawn = any(parameter.std() > 0 for parameter in made(1).parameters() if name != "lazy")
    differ = identity_of(made(1), weights=True) != identity_of(made(2), weights=True)
    assert differ == drawn


def test_weights_of_a_part_that_keeps_them_count() -> None:
    def made(by: float, kept: bool) -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        nn.init.constant_(module[0].weight, by)
        module[0].keeps_weights = kept  # type: ignore[assignment]
        return module

    for kept in (True, False):
        same = identity_of(made(1, kept), False) == identity_of(made(2, kept), False)
        assert same != kept


@pytest.mark.parametrize(
    "what",
    [threading.Lock(), (each for each in ()), sys.__stdout__, torch.eye(3).to_sparse()],
    ids=["lock", "generator", "file", "sparse"],
)
def test_what_cannot_be_compared_is_said(what: object) -> None:
    with pytest.raises(UnknownError):
        identity_of(Holds(what), weights=False)


def test_comments_names_of_files_and_places_do_not_count() -> None:
    one = class_of("x * 2")
    other = class_of("x * 2  # twice\n", before="\n\nUNUSED = 7\n")
    assert identity_of(one, False) == identity_of(other, False)


def test_a_function_that_was_called_is_the_same() -> None:
    """Python rewrites the code of functions that are called often."""
    net = class_of("helper(x) + len(F.__name__)", before="def helper(x): return x * float(2)")
    before = identity_of(net, weights=False)
    for _ in range(200):
        net(torch.zeros(1, 3))
    assert identity_of(net, weights=False) == before


def compiled_in(part: str, by: float) -> nn.Module:
    """A module, a part of which PyTorch compiles."""
    compiled = functools.partial(torch.compile, backend="eager")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first: Any = nn.Sequential(nn.Linear(3, 3), Holds(by))
            self.act: Any = lambda x: x * by
            if part == "layer":
                self.first = compiled(self.first)
            elif part == "attribute":
                self.act = compiled(self.act)
            elif part == "in place":
                self.first.compile(backend="eager")

        def method(self, x: Tensor) -> Tensor:
            return x * by

        if part == "method":
            method = compiled(method)

        def forward(self, x: Tensor) -> Any:
            return self.method(self.act(self.first(x)))

    return Net()


@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler
@pytest.mark.parametrize("part", ["layer", "attribute", "in place", "method"])
def test_what_is_compiled_counts_and_not_how(part: str, tmp_path: Path) -> None:
    def build() -> nn.Module:
        return compiled_in(part, 2.0)

    net = build()
    before = identity_of(net, weights=False)
    net(torch.zeros(1, 3))
    assert identity_of(net, weights=False) == before == identity_of(build(), weights=False)
    assert identity_of(compiled_in(part, 3.0), weights=False) != before
    for _ in range(2):  # the second one is the first one's run
        run = fr.train("fedavg", build, CLIENTS, rounds=1, test=CLIENTS[0], folder=tmp_path / "run")
    loss = F.cross_entropy(run.model(torch.as_tensor(X)), torch.as_tensor(CLIENTS[0][1]))
    assert run.rounds["test_loss"].iloc[-1] == pytest.approx(loss.item(), rel=1e-5)


ELSEWHERE = """
import importlib, sys, torch
from pathlib import Path
from torch import nn
sys.path.insert(0, ".")
file = Path("a_helper.py")
file.write_text("def scale(x): return x * 2")
import a_helper
from fedrepro.api.model_identity import identity_of
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.kinds, self.f = nn.LSTM(3, 3), {"a", "b", "c"}, lambda x: a_helper.scale(x)
print(identity_of(Net(), False))
file.write_text("def scale(x): return x * 33")
importlib.reload(a_helper)
print(identity_of(Net(), False))
"""


def test_another_process_finds_the_same_and_a_file_that_is_imported_counts(tmp_path: Path) -> None:
    def told(seed: str) -> list[str]:
        env = {"PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1", "PATH": ""}
        command = [sys.executable, "-c", ELSEWHERE]
        return subprocess.check_output(command, env=env, text=True, cwd=tmp_path).split()

    before, after = told("1")
    assert before != after
    assert told("2") == [before, after]


def test_an_import_inside_of_a_function_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(by: float) -> nn.Module:
        monkeypatch.setitem(sys.modules, "a_helper", helper_module(by))
        code = "def f(x):\n    from a_helper import scale\n    import math\n    return scale(x)\n"
        return Holds(notebook(code)["f"])

    one = identity_of(made(1), False)
    assert one == identity_of(made(1), False)
    assert one != identity_of(made(2), False)
    monkeypatch.delitem(sys.modules, "a_helper")
    with pytest.raises(UnknownError, match="a_helper"):
        identity_of(Holds(notebook("def f():\n    import a_helper\n")["f"]), False)


WAYS = {
    "held": "",
    "by name": "getattr(ops, 'scale')(x)",
    "as a dict": "vars(ops)['scale'](x)",
    "by its dict": "ops.__dict__['scale'](x)",
    "by an operator": "operator.attrgetter('scale')(ops)(x)",
    "by another function": "taken(ops, 'scale')(x)",
    "imported": "getattr(__import_it(), 'scale')(x)",
    "plainly": "ops.scale(x) + getattr(x, 'grad', 0)",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_module_uses_counts_where_nobody_names_what_it_gives(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file behind the one that a model's code refers to, and no other that is loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "a_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "an_op.py").write_text("from .deep import op\ndef scale(x): return op.of(x)\n")
    (package / "deep").mkdir()
    (package / "deep/__init__.py").touch()
    (package / "other.py").write_text("from . import an_op\n")

    def taken(what: Any, name: str) -> Any:
        return getattr(what, name)

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("a_package")]:
            del sys.modules[name]

    def told(by: float, more: bool = False) -> str:
        (package / "deep/op.py").write_text(f"def of(x): return x * {by}\n")
        forget()
        importlib.invalidate_caches()
        ops = importlib.import_module("a_package.an_op")
        if more:
            importlib.import_module("a_package.other")
        code = f"def f(x):\n    return {WAYS[way]}\n"
        if way == "imported":
            code = "def f(x):\n    import a_package.an_op as o\n    return getattr(o, 'scale')(x)\n"
        given = {"ops": ops, "taken": taken, "operator": operator}
        what = ops if way == "held" else notebook(code, **given)["f"]
        return identity_of(Holds({"what": what}), False)

    try:
        first = told(2)
        assert told(2) == told(2, more=True) == first != told(3.5)
    finally:
        forget()


X = np.eye(3, dtype="float32")[[0, 1, 2, 0, 1, 2]]
CLIENTS = [(X, np.array([0, 1, 2, 0, 1, 2]))] * 2


def test_a_run_is_reused_for_its_own_model_only(tmp_path: Path) -> None:
    def train(model: Any, name: str, **more: Any) -> list[float]:
        where = {"folder": tmp_path / name, **more}
        run = fr.train("fedavg", model, CLIENTS, rounds=1, test=CLIENTS[0], **where)
        return run.rounds["test_loss"].tolist()

    by_factory = train(lambda shape, classes: class_of("x * 2"), "factory")
    assert train(lambda shape, classes: class_of("x * 2"), "factory") == by_factory
    with refused(names=("finished", "another")):
        train(lambda shape, classes: class_of("x * 5"), "factory")
    assert train(lambda *_: class_of("x * 5"), "factory", overwrite=True) != by_factory

    net = class_of("x * 2")
    assert train(net, "module") == train(net, "module")
    assert train(class_of("x * 2"), "module") == train(net, "module")  # the seed draws both
    for leaf in net.parameters():
        torch.nn.init.constant_(leaf, 0.5)
    with refused(names=("finished", "another")):
        train(net, "module")

    def locked(shape: tuple[int, ...], classes: int) -> nn.Module:
        return Holds(each for each in range(3))

    for _ in range(2):
        with pytest.warns(UserWarning, match="Holds: no saved run is reused for it: .*generator"):
            train(locked, "unknown", overwrite=True)
