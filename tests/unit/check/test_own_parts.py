"""``fedrepro check`` tries losses, measures and models of the user's own on a few samples."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from fedrepro.check.own_functions import refuse_unfit, repeatable
from fedrepro.check.own_models import own_net
from fedrepro.engine.losses import OwnLoss
from fedrepro.engine.task import TASKS
from fedrepro.support.rng import stream
from support.refusals import refused

# --- losses ---------------------------------------------------------------------------------------
OUTPUTS = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.5, 3.0], [1.0, 1.5], [0.0, -2.0]])
TARGETS = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.5, -1.0], [0.0, 0.0], [3.0, -2.0]])


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


Loss = Callable[[Tensor, Tensor], Any]
GOOD: list[tuple[Loss, bool]] = [  # and whether it has a number for each sample, of that alone
    (lambda o, t: squares(o, t).mean(1) / squares(o, t).mean(), False),
    (lambda o, t: squares(o, t).mean(1), True),
    (squares, True),
    (lambda o, t: squares(o, t).mean(), False),
    (lambda o, t: squares(o, t).sum(1).mean(), False),
    (lambda o, t: -(o * t).mean(), False),  # below zero
    (lambda o, t: 0 * squares(o, t).mean(), False),
    (lambda o, t: squares(o, t).mean() + OTHER.detach().sum(), False),
    (lambda o, t: squares(o + torch.zeros(2, requires_grad=True), t), True),  # made in the call
]
SEEN: list[Tensor] = []
OTHER = torch.ones(2, requires_grad=True)
WRONG: list[Loss] = [
    lambda o, t: squares(o, t).mean(1) * (SEEN.append(o) or len(SEEN)),  # type: ignore[func-returns-value]
    lambda o, t: squares(o, t).sum(),
    lambda o, t: -squares(o, t).sum() / 100,
    lambda o, t: squares(o, t).mean(1).sum(),
    lambda o, t: squares(o, 2 * t).sum(),  # other numbers if they are swapped
    lambda o, t: squares(o, t).sum(1)[1:],
    lambda o, t: squares(o, t).mean(0),  # over samples: one number for each output
    lambda o, t: [squares(o, t).mean()],
    lambda o, t: squares(o.detach(), t).mean(1),
    lambda o, t: squares(o, t).mean(1) + OTHER.sum(),
    lambda o, t: squares(OTHER * o, t).mean(),
    lambda o, t: torch.utils.checkpoint.checkpoint(squares, o, t, use_reentrant=True),
    lambda o, t: squares(o, t.add_(1)).mean(1),
    lambda o, t: squares(o, t).mean(1) * torch.rand(()),
    lambda o, t: squares(o, t).mean(1) * np.random.rand(),  # noqa: NPY002
    lambda o, t: squares(o, t[:2]),
    lambda o, t: squares(o, t).mean(1) * 1j,
]


def tried(function: Loss, stacked: bool) -> None:
    task = TASKS["regression"]
    own = task._replace(losses=OwnLoss(function, task))
    outputs = OUTPUTS.clone()
    refuse_unfit(own, "mine", outputs, TARGETS.clone(), stacked)
    assert not outputs.requires_grad  # they are as they were


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(("loss", "each"), GOOD)
def test_losses_of_samples_and_their_mean_are_taken(loss: Loss, each: bool, stacked: bool) -> None:
    """A mean has no number for the samples of padded mini-batches."""
    if stacked and not each:
        with refused(file="loss mine", key="executor", value="vectorised"):
            tried(loss, stacked)
    else:
        tried(loss, stacked)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("loss", WRONG)
def test_what_is_neither_or_cannot_be_repeated_is_refused(loss: Loss, stacked: bool) -> None:
    with refused(file="loss mine"):
        tried(loss, stacked)


# --- measures -------------------------------------------------------------------------------------
def test_a_measure_is_repeatable_where_its_value_is_the_same_twice() -> None:
    x = np.arange(6.0)
    assert repeatable("m", lambda o, t: float(o.sum() - t.mean()))(x, x) == 12.5
    assert np.isnan(repeatable("m", lambda o, t: float("nan"))(x, x))
    called: list[int] = []
    counted = repeatable("m", lambda o, t: called.append(1) or 2.0)
    assert [counted(x, x) for _ in range(4)] == [2.0] * 4
    assert len(called) == 6  # twice for each of the first two values, then once
    for wrong in (
        lambda o, t: called.append(1) or float(len(called)),
        lambda o, t: float(np.random.rand()),  # noqa: NPY002
        lambda o, t: float(torch.rand(()) * 0),  # drawn, whatever becomes of it
        lambda o, t: float("nan") if called.append(1) or len(called) % 2 else 1.0,
        lambda o, t: 1.0 if called.append(1) or len(called) % 2 else float("nan"),
    ):
        with refused(file="measure m", key="of_outputs"):
            repeatable("m", wrong)(x, x)


def test_a_measure_that_adds_up_what_it_is_given_is_refused() -> None:
    """Its value would be that of all clients so far, and of all rounds."""

    class Running:
        right = total = 0

        def __call__(self, outputs: Any, targets: Any) -> float:
            self.right += int((outputs == targets).sum())
            self.total += len(targets)
            return self.right / self.total

    x = np.arange(6.0)
    running = repeatable("m", Running())
    assert running(x, x % 3) == 0.5  # of one client, it is right
    with refused(file="measure m", key="of_outputs"):
        running(x, x)


# --- models ---------------------------------------------------------------------------------------
class Two(nn.Module):
    """Two layers, with buffers and a frozen layer that it may change."""

    def __init__(self, outputs: int = 3, act: Callable[[Any], None] = lambda module: None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, outputs)
        self.teacher, self.idle = nn.Linear(4, 5), nn.Linear(4, 5)
        self.teacher.requires_grad_(False)
        self.idle.requires_grad_(False)
        self.register_buffer("scale", torch.ones(5))
        self.register_buffer("scale_of_last", torch.ones(5))
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.act(self)
        return self.last(self.first(x) * self.scale)  # type: ignore[no-any-return,operator]


def net_of(build: Callable[[], nn.Module], outputs: int | None = 3, **options: Any) -> Any:
    return own_net("mine", build, stream(1, "x"), torch.randn(2, 4), outputs, **options)


def places(outputs: int) -> nn.Module:
    """Outputs at each of two places."""
    return nn.Sequential(nn.Linear(4, 2 * outputs), nn.Unflatten(1, (2, outputs)))


def test_what_training_changes_and_draws_is_found_by_name() -> None:
    def moves(module: Any) -> None:
        module.scale.mul_(0.5)
        with torch.no_grad():
            module.teacher.bias.add_(1)

    trained = {f"{layer}.{kind}" for layer in ("first", "last") for kind in ("weight", "bias")}
    for act, moved, draws in (
        (lambda module: None, set(), False),
        (moves, {"scale", "teacher.bias"}, False),
        (lambda module: module.scale_of_last.data.mul_(0.5), {"scale_of_last"}, False),
        (lambda module: torch.rand(1), set(), True),
    ):
        net = net_of(lambda act=act: Two(act=act))
        assert ({*net.init(stream(1, "x"))}, net.draws) == (trained | moved, draws)


@pytest.mark.parametrize(
    ("module", "options", "taken"),
    [
        (lambda: Two(3), {}, True),
        (lambda: Two(4), {}, True),  # more outputs than classes
        (lambda: Two(2), {}, False),
        (lambda: Two(1), {"outputs": 2, "task": "binary"}, False),
        (lambda: Two(1), {"outputs": 1, "task": "binary"}, True),
        (lambda: Two(2), {"outputs": 1, "task": "binary"}, False),
        (lambda: Two(2), {"outputs": 2, "targets": (2, 2)}, True),
        (lambda: Two(3), {"outputs": 2, "targets": (2, 2)}, False),
        (lambda: Two(1), {"outputs": 1, "targets": (2,)}, True),  # but for axes of length 1
        (lambda: Two(4), {"outputs": 4, "targets": (2, 1, 4)}, True),
        (lambda: Two(4), {"outputs": 4, "targets": (2, 2, 2)}, False),
        (lambda: places(3), {}, False),
        (lambda: places(3), {"task": "next_word"}, True),
        (lambda: places(2), {"task": "next_word"}, False),
        (lambda: nn.Linear(4, 3).requires_grad_(False), {}, False),
        (lambda: nn.Linear(5, 3), {}, False),
        (lambda: nn.Linear(5, 3), {"outputs": None}, True),  # it maps no samples
    ],
)  # fmt: skip
def test_outputs_fit_the_classes_or_the_targets(
    module: Callable[[], nn.Module], options: dict[str, Any], taken: bool
) -> None:
    if taken:
        net_of(module, **options)
    else:
        with refused(file="model mine"):
            net_of(module, **options)


def replaces(module: Any) -> None:
    module.scale = module.scale * 0.5


def writes(module: Any) -> None:
    module.scale.data.mul_(0.5)


def draws(module: Any) -> None:
    torch.rand(1)


@pytest.mark.parametrize("act", [replaces, writes, draws])
def test_what_changes_or_draws_while_it_is_tested_is_refused(act: Callable[[Any], None]) -> None:
    class Tested(Two):
        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                act(self)
            return super().forward(x)

    with refused(file="model mine"):
        net_of(Tested)


class Remembers(nn.Module):
    """Outputs that depend on the samples of an earlier pass, kept in an attribute."""

    def __init__(self, writes_in: tuple[bool, ...], reads_in: tuple[bool, ...]) -> None:
        super().__init__()
        self.last, self.kept = nn.Linear(4, 3), torch.zeros(3)
        self.writes_in, self.reads_in = writes_in, reads_in

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(x)
        seen = outputs + self.kept if self.training in self.reads_in else outputs
        if self.training in self.writes_in:
            self.kept = outputs.detach().mean(0)
        return seen


@pytest.mark.parametrize("reads_in", [(True,), (False,), (True, False)])
@pytest.mark.parametrize("writes_in", [(True,), (False,), (True, False)])
def test_what_a_model_keeps_of_earlier_samples_is_refused(
    writes_in: tuple[bool, ...], reads_in: tuple[bool, ...]
) -> None:
    """It would go from client to client, and from training to scores."""
    with refused(file="model mine"):
        net_of(lambda: Remembers(writes_in, reads_in))
    net_of(lambda: Remembers(writes_in, ()))  # kept for somebody to look at
    net_of(lambda: Remembers((), reads_in))


def listed_layers(trainable: bool) -> nn.Module:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(4, 5).requires_grad_(trainable)]
            self.last = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.layers[0](x))  # type: ignore[no-any-return]

    return Listed()


def test_what_wants_gradients_and_is_no_parameter_is_refused() -> None:
    """Layers in a list would never be trained, and a BatchNorm there goes from client to client."""
    with refused(file="model mine"):
        net_of(lambda: listed_layers(True))
    net_of(lambda: listed_layers(False))

    class Sloped(Two):
        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                return super().forward(x)
            made = x.clone().requires_grad_()  # in each pass, so nobody would train it
            (slope,) = torch.autograd.grad(made.square().sum(), made, create_graph=True)
            return super().forward(x.requires_grad_() + 0 * slope)

    net_of(Sloped)


class Extractor(nn.Module):
    """A layer that no gradient reaches, of which outputs may depend."""

    def __init__(self, used: bool, trainable: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4).requires_grad_(trainable), nn.Linear(4, 3)
        self.used = used

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.body(x) if self.used else x
        return self.head(features)  # type: ignore[no-any-return]


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_weight_decay_is_not_all_that_changes_a_parameter_in_use(
    used: bool, trainable: bool, decays: bool
) -> None:
    """An extractor under no_grad faded away, where PyTorch's optimizers leave it as it is."""
    if used and trainable and decays:
        with refused(file="model mine", key="body.bias"):
            net_of(lambda: Extractor(used, trainable), decays=decays)
    else:
        net_of(lambda: Extractor(used, trainable), decays=decays)


@pytest.mark.parametrize("after", [(), (nn.Flatten(0), nn.Unflatten(0, (2, -1)))])
@pytest.mark.parametrize(
    ("last", "options", "taken"),
    [
        (nn.Softmax(1), {}, False),
        (nn.Softmax(1), {"own_loss": True}, True),
        (nn.LogSoftmax(1), {}, True),  # the loss leaves it as it is
        (nn.Sigmoid(), {"outputs": 1, "task": "binary"}, False),
        (nn.Sigmoid(), {"outputs": 1, "task": "binary", "own_loss": True}, False),
        (nn.Sigmoid(), {"task": "multi_label", "targets": (2, 3)}, False),
        (nn.Sigmoid(), {"task": "regression", "targets": (2, 3)}, True),
        (nn.Tanh(), {"outputs": 1, "task": "binary"}, True),
    ],
)
def test_probabilities_are_no_logits(
    last: nn.Module, options: dict[str, Any], taken: bool, after: tuple[nn.Module, ...]
) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, options.get("outputs", 3)), last, *after)

    if taken:
        net_of(build, **options)
    else:
        with refused(file="model mine", key="outputs"):
            net_of(build, **options)


def test_of_a_layer_that_moves_its_buffers_later_all_travel() -> None:
    class Later(nn.Module):
        moves_buffers = True

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return x

    net = net_of(lambda: nn.Sequential(nn.Linear(4, 3), Later()))
    assert {*net.init(stream(1, "x"))} == {"0.weight", "0.bias", "1.a", "1.b"}


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training else x


@pytest.mark.parametrize(
    ("layer", "mixes"),
    [(Centred, True), (lambda: nn.BatchNorm1d(3), True), (lambda: nn.Dropout(0.5), False),
     (lambda: nn.LayerNorm(3), False), (lambda: nn.GELU(), False)],
)  # fmt: skip
def test_a_model_that_mixes_samples_is_seen(layer: Callable[[], nn.Module], mixes: bool) -> None:
    """Side by side, padding would count in its statistics."""
    assert net_of(lambda: nn.Sequential(nn.Linear(4, 3), layer())).mixes_samples == mixes


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.LayerNorm])
def test_a_count_of_batch_norm_may_change_and_another_whole_number_may_not(kind: Any) -> None:
    class Counts(Two):
        def __init__(self) -> None:
            super().__init__(act=lambda module: module.norm.seen.add_(1))
            self.norm = kind(5)
            self.norm.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    if kind is nn.BatchNorm1d:
        net_of(Counts)
    else:
        with refused(file="model mine", key="norm.seen"):
            net_of(Counts)
