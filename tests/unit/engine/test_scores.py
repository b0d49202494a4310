"""Losses and scores of every task from their definitions, of unequal clients and short batches."""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.engine import metrics
from fedrepro.engine.evaluate import evaluate, evaluate_clients, score
from fedrepro.engine.losses import with_loss, with_own_mean
from fedrepro.engine.net import Net
from fedrepro.engine.task import TASKS, WORDLESS, Task
from fedrepro.support.rng import stream
from support.refusals import refused

WORDS, LENGTH, LABELS, CLASSES = 9, 5, 3, 4


def outputs_and_targets(task: str, n: int) -> tuple[Tensor, Tensor]:
    """Logits in float64 and targets as readers store them; texts end in padding."""
    rng = stream(n, "scores", task)
    wide = {"classification": CLASSES, "binary": 1, "multi_label": LABELS, "regression": LABELS}
    if task == "next_word":
        logits = torch.randn(n, LENGTH, WORDS, generator=rng, dtype=torch.float64)
        words = torch.randint(1, WORDS, (n, LENGTH), generator=rng)
        words[:, 0] = WORDLESS + 1
        words[::2, 0] = WORDLESS
        ends = torch.randint(1, LENGTH + 1, (n, 1), generator=rng)
        return logits, words.where(torch.arange(LENGTH) < ends, 0)
    logits = torch.randn(n, wide[task], generator=rng, dtype=torch.float64)
    if task == "regression":  # outputs may have further axes of length 1
        return logits.unsqueeze(-1), torch.randn(n, LABELS, generator=rng, dtype=torch.float64)
    if task == "multi_label":
        return logits, torch.randint(0, 2, (n, LABELS), generator=rng).double()
    return logits, torch.randint(0, 2 if task == "binary" else CLASSES, (n,), generator=rng)


def log_loss(logit: float, target: float, weight: float = 1.0) -> float:
    right = 1 / (1 + math.exp(-logit))
    return -weight * target * math.log(right) - (1 - target) * math.log(1 - right)


def of_sample(task: str, logits: Any, target: Any, weights: Any = None) -> tuple[float, int, int]:
    """The loss, the hits and the number of predictions of one sample."""
    match task:
        case "classification":
            powers = [math.exp(each) for each in logits]
            hit = int(np.argmax(logits) == target)
            return -math.log(powers[target] / sum(powers)), hit, 1
        case "binary":
            return log_loss(logits[0], target), int((logits[0] > 0) == target), 1
        case "multi_label":
            of = weights or [1.0] * LABELS
            losses = [log_loss(*each) for each in zip(logits, target, of, strict=True)]
            hits = sum(
                (each > 0) == (right > 0) for each, right in zip(logits, target, strict=True)
            )
            return sum(losses) / LABELS, hits, LABELS
        case "regression":
            squares = [(a - b) ** 2 for (a,), b in zip(logits, target, strict=True)]
            return sum(squares) / LABELS, 0, 0
        case _:
            words = [at for at, word in enumerate(target) if word]
            losses = [of_sample("classification", logits[at], target[at])[0] for at in words]
            told = [at for at in words if target[at] >= WORDLESS]
            hits = sum(int(np.argmax(logits[at]) == target[at]) for at in told)
            return sum(losses) / len(words), hits, len(told)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights of classes"])
@pytest.mark.parametrize("name", TASKS)
def test_the_loss_of_a_mini_batch_is_that_of_its_real_samples(name: str, weighted: bool) -> None:
    task, (logits, targets) = TASKS[name], outputs_and_targets(name, 5)
    samples = list(zip(logits.tolist(), targets.tolist(), strict=True))
    weights = [0.5, 2.0, 1.0, 4.0][: LABELS if name == "multi_label" else CLASSES]
    if weighted:
        if name not in ("classification", "multi_label"):
            return
        task = task._replace(class_weights=torch.tensor(weights, dtype=torch.float64))
    of_labels = weights if weighted and name == "multi_label" else None
    losses = [of_sample(name, *sample, of_labels)[0] for sample in samples]
    of_classes = weighted and name == "classification"
    shares = [weights[target] if of_classes else 1.0 for _, target in samples]
    wanted = sum(a * b for a, b in zip(shares, losses, strict=True)) / sum(shares)
    assert float(task.loss(logits, {"y": targets})) == pytest.approx(wanted, rel=1e-12)
    # Beside others: padded by two samples, and a mini-batch of padding alone.
    pad = [0, 1, 2, 3, 4, 0, 3]
    real = torch.tensor([1.0] * 5 + [0.0] * 2, dtype=torch.float64)
    padded = task.loss(logits[pad], {"y": targets[pad], "real": real})
    assert padded.dtype == torch.float64
    assert float(padded) == pytest.approx(wanted, rel=1e-12)
    assert float(task.loss(logits[pad], {"y": targets[pad], "real": 0 * real})) == 0
    for place, one in enumerate(losses):
        alone = task.loss(logits[[place]], {"y": targets[[place]]})
        assert float(alone) == pytest.approx(one, rel=1e-12)
        beside = {"y": targets[[place, 1]], "real": torch.eye(2, dtype=torch.float64)[0]}
        assert float(task.loss(logits[[place, 1]], beside)) == pytest.approx(one, rel=1e-12)


class Rows:
    """Clients' samples, whose inputs are their outputs."""

    def __init__(self, x: Tensor, y: Tensor, sizes: list[int]) -> None:
        self.x, self.y, self.sizes = x, y, np.array(sizes)
        self.ends = np.cumsum(sizes)

    def of(self, client: int) -> Callable[[int, int], tuple[Tensor, Tensor]]:
        own = self.rows(np.array([client]))
        return lambda first, last: (self.x[own[first:last]], self.y[own[first:last]])

    def rows(self, clients: Any) -> Any:
        begins = self.ends - self.sizes
        return np.concatenate([np.arange(begins[each], self.ends[each]) for each in clients])

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[rows], self.y[rows]


class Scaled(nn.Module):
    """Outputs that are the inputs times the only parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


SIZES = [4, 1, 0, 7, 2, 3, 5]
ASKED = np.array([5, 1, 2, 6, 3, 0])  # in another order, without one of them


@pytest.mark.parametrize("name", TASKS)
def test_clients_scored_together_and_alone_are_scored_by_their_samples(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients 1, 3 and 6 share a model; each other one has its own."""
    monkeypatch.setattr("fedrepro.engine.evaluate.BATCH", 3)
    task, (x, y) = TASKS[name], outputs_and_targets(name, sum(SIZES))
    samples, net = Rows(x, y, SIZES), Net(Scaled())
    shared = {"factor": torch.full((1,), 0.7, dtype=torch.float64)}
    models = {each: {"factor": shared["factor"] + each} for each in (0, 2, 5)}
    scores = evaluate_clients(
        net, task, lambda client: models.get(client, shared), samples, ASKED, shared
    )
    sizes = scores.pop("samples")
    assert sizes.tolist() == [SIZES[client] for client in ASKED] and sizes.dtype == np.int64
    assert scores.keys() == {"loss", "accuracy", *task.measures}
    for place, client in enumerate(ASKED.tolist()):
        rows = samples.rows(ASKED[[place]])
        if not len(rows):
            assert all(np.isnan(values[place]) for values in scores.values())
            continue
        factor = float(models.get(client, shared)["factor"])
        of = [of_sample(name, (factor * x[row]).tolist(), y[row].tolist()) for row in rows]
        losses, hits, predictions = (np.sum(each) for each in zip(*of, strict=True))
        assert scores["loss"][place] == pytest.approx(losses / len(rows))
        wanted = hits / predictions if predictions else math.nan
        assert scores["accuracy"][place] == pytest.approx(wanted, nan_ok=True)
        model = {"factor": torch.tensor([factor], dtype=torch.float64)}
        own = evaluate(net, task, model, samples.of(client), len(rows), measured=True)
        assert own["loss"] == pytest.approx(losses / len(rows))
        assert own["accuracy"] == pytest.approx(wanted, nan_ok=True)
        again = score(task, factor * x[rows], y[rows])
        assert again["loss"] == pytest.approx(own["loss"])
        assert again["accuracy"] == pytest.approx(wanted, nan_ok=True)
        for key, measure in task.measures.items():
            outputs = factor * x[rows].numpy()
            value = measure(
                outputs.reshape(y[rows].shape) if task.alike else outputs, y[rows].numpy()
            )
            assert own[key] == pytest.approx(value, nan_ok=True)
            assert scores[key][place] == pytest.approx(value, nan_ok=True)


def test_errors_of_numbers_at_each_place_from_their_definitions() -> None:
    """R² is a mean over the second axis; further axes count as samples. Bytes do not wrap."""
    random = np.random.default_rng(5)
    truth = random.integers(0, 256, (4, 2, 3)).astype(np.uint8)
    outputs = (truth + random.normal(0, 9, truth.shape)).astype(np.float32)
    pairs = [(float(a), float(b)) for a, b in zip(outputs.ravel(), truth.ravel(), strict=True)]
    assert metrics.mse(outputs, truth) == pytest.approx(np.mean([(a - b) ** 2 for a, b in pairs]))
    assert metrics.mae(outputs, truth) == pytest.approx(np.mean([abs(a - b) for a, b in pairs]))
    shares = []
    for at in range(2):
        own, theirs = truth[:, at].ravel().astype(float), outputs[:, at].ravel().astype(float)
        shares.append(1 - ((theirs - own) ** 2).sum() / ((own - own.mean()) ** 2).sum())
    assert metrics.r2(outputs, truth) == pytest.approx(np.mean(shares))
    assert abs(shares[0] - shares[1]) > 1e-4
    truth[:, 1] = 7
    assert math.isnan(metrics.r2(outputs, truth))
    large = np.array([2**24 + 2], dtype=np.int64)  # the numbers between are none in float32
    assert metrics.mae(np.array([2**24], dtype=np.float32), large - 1) == 1


def test_the_auroc_of_labels_is_a_mean_over_those_that_differ_in_a_client() -> None:
    """Also of a label whose samples are all ranked last, and of one that all or none have."""
    truth = np.array([[1, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]])
    outputs = np.array([[0.1, 3, 0, 1], [2, 4, 8, 2], [1, 5, 7, 3], [0, 1, 2, 4], [9, 2, 2, 5]])
    bounds = np.array([0, 4, 4, 5])
    task = TASKS["multi_label"]
    ((name, found),) = task.measured(outputs, truth.astype(float), bounds).items()
    wins = []
    for label in range(3):
        right, wrong = (outputs[:4, label][truth[:4, label] == value] for value in (1, 0))
        wins.append(np.mean([a > b for a in right for b in wrong]))
    assert 0 in wins and len({*wins}) > 1
    assert name == "auroc" and found[0] == pytest.approx(np.mean(wins))
    assert np.isnan(found[1:]).all()


# --- losses of the user's own -------------------------------------------------------------------
def of_each(task: Task, function: Any) -> tuple[list[float], float]:
    """A loss's value for each of three samples, and their mean as training takes it."""
    outputs, targets = outputs_and_targets(task.name, 3)
    made = with_own_mean(with_loss(task, "own", function, "cpu"), outputs, targets)
    values = made.losses(outputs, targets, "none")
    assert values.shape == (3,)
    return values.tolist(), float(made.losses(outputs, targets, "mean"))


def test_a_loss_of_pytorch_is_asked_for_each_sample() -> None:
    """A module and a function; one that weights classes knows only its own mean."""
    task = TASKS["classification"]
    outputs, targets = outputs_and_targets("classification", 3)
    wanted = [of_sample("classification", *each)[0] for each in zip(
        outputs.tolist(), targets.tolist(), strict=True)]  # fmt: skip
    module = nn.CrossEntropyLoss()
    for function in (module, nn.functional.cross_entropy, nn.CrossEntropyLoss(reduction="none")):
        values, mean = of_each(task, function)
        assert values == pytest.approx(wanted) and mean == pytest.approx(np.mean(wanted))
    assert module.reduction == "mean"  # the user's own object stays as it was
    weights = torch.tensor([0.5, 2.0, 1.0, 4.0], dtype=torch.float64)
    values, mean = of_each(task, nn.CrossEntropyLoss(weight=weights))
    shares = weights[targets].tolist()
    assert mean == pytest.approx(np.dot(shares, wanted) / sum(shares))
    assert values == pytest.approx([mean] * 3)


def test_a_loss_of_one_s_own_is_a_mean_over_samples() -> None:
    """Of a sample's several targets the mean; of a mean, that for each sample."""
    task = TASKS["regression"]
    outputs, targets = outputs_and_targets("regression", 3)
    each = (outputs[..., 0] - targets).abs().mean(1)
    plain = of_each(task, torch.sub)[0]  # without a signature
    assert plain == pytest.approx((outputs[..., 0] - targets).mean(1).tolist())
    values, mean = of_each(task, lambda outputs, targets: (outputs - targets).abs())
    assert values == pytest.approx(each.tolist()) and mean == pytest.approx(float(each.mean()))
    values, mean = of_each(task, lambda outputs, targets: (outputs - targets).abs().mean())
    assert values == pytest.approx([float(each.mean())] * 3)
    assert mean == pytest.approx(float(each.mean()))


def masked(outputs: Tensor, targets: Tensor, least: float, reduction: str = "mean") -> Any:
    counted = targets > least
    losses = (outputs - targets).abs() * counted
    return losses.sum() / counted.sum() if reduction == "mean" else losses


def test_a_loss_whose_mean_is_another_knows_only_its_mean() -> None:
    """Over what was measured, say: that mean is trained on, as behind a lambda."""

    class Masked(nn.Module):
        def __init__(self, least: float, reduction: str = "mean") -> None:
            super().__init__()
            self.least, self.reduction = least, reduction

        def forward(self, outputs: Tensor, targets: Tensor) -> Any:
            return masked(outputs, targets, self.least, self.reduction)

    task, (outputs, targets) = TASKS["regression"], outputs_and_targets("regression", 3)
    middle = float(targets.median())
    for least, alone in ((middle, False), (-math.inf, True)):
        wanted = float(masked(outputs[..., 0], targets, least))
        for function in (Masked(least), partial(masked, least=least)):
            values, mean = of_each(task, function)
            assert mean == pytest.approx(wanted)
            assert (values == pytest.approx([mean] * 3)) != alone


def test_a_mean_that_is_no_number_or_of_few_samples_is_told() -> None:
    """Whatever outputs it needs, and whichever sample is missing; a trial counts nothing."""
    task, calls = TASKS["regression"], []

    class Counted(nn.Module):
        reduction = "mean"

        def __init__(self) -> None:
            super().__init__()
            self.reduction, self.calls = "mean", 0

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            self.calls += 1
            calls.append(self)
            there = targets > -1
            each = functional.binary_cross_entropy(outputs, targets.clamp(0), reduction="none")
            each = torch.where(there, each, 0)
            return each.sum() / there.sum() if self.reduction == "mean" else each

    outputs = torch.rand(64, 1, generator=stream(1, "own")).double()
    targets = torch.rand(3000, 1, generator=stream(2, "own")).double()
    for missing, alone in (([], True), ([2999], False)):
        targets[missing] = -1
        made = with_own_mean(with_loss(task, "own", Counted(), "cpu"), outputs, targets)
        assert (made.losses(outputs, targets[:64], "none").std() > 0) == alone
        assert cast(Any, made.losses).function.calls == 1 < len(calls)
    logs = partial(masked_logs, least=0.5)
    made = with_own_mean(with_loss(task, "own", logs, "cpu"), -outputs, targets)
    assert made.losses(-outputs, targets[:64], "none").isnan().all()


@pytest.mark.parametrize("sizes", [(10, 15, 5), (3, 9), (1, 1, 2), (40, 100, 116)])
@pytest.mark.parametrize("ordered", [False, True])
def test_weights_that_add_up_to_all_samples_are_told(sizes: Any, ordered: bool) -> None:
    """As balanced ones do; on a mini-batch, which has other classes, their mean is another."""
    targets = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    if not ordered:
        targets = targets[torch.randperm(len(targets), generator=stream(1, "own"))]
    outputs = torch.rand(len(targets), len(sizes), generator=stream(2, "own"))
    weight = len(targets) / (len(sizes) * torch.tensor(sizes))
    loss = nn.CrossEntropyLoss(weight=weight)
    task = with_loss(TASKS["classification"], "own", loss, "cpu")
    made = with_own_mean(task, outputs, targets)
    one = functional.cross_entropy(outputs[:2], targets[:2], weight=weight)
    assert made.of_mean and torch.equal(made.losses(outputs[:2], targets[:2], "mean"), one)


def test_a_mean_of_test_samples_that_are_no_training_samples_is_told() -> None:
    outputs, targets = outputs_and_targets("regression", 3)
    task = with_loss(TASKS["regression"], "own", partial(masked, least=-1.0), "cpu")
    assert not with_own_mean(task, outputs, targets.abs(), targets.abs()).of_mean
    test = targets.abs().flatten(1).index_fill(0, torch.tensor([1]), -2.0).view(targets.shape)
    assert with_own_mean(task, outputs, targets.abs(), test).of_mean


def masked_logs(outputs: Tensor, targets: Tensor, least: float, reduction: str = "mean") -> Any:
    each = outputs.log() * (targets > least)
    return each.sum() / (targets > least).sum() if reduction == "mean" else each


def test_a_loss_that_cannot_be_copied_is_refused() -> None:
    loss = nn.L1Loss()
    loss.lock = threading.Lock()  # type: ignore[assignment]
    with refused(names="own"):
        of_each(TASKS["regression"], loss)


def test_a_loss_of_a_binary_task_gets_numbers_of_one_shape_and_type() -> None:
    targets = outputs_and_targets("binary", 3)[1]
    seen: list[tuple[Any, Any]] = []

    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append((outputs, targets))
        return (outputs - targets) ** 2

    of_each(TASKS["binary"], own)
    for logits, wanted in seen:
        assert logits.shape == wanted.shape == (3,) and logits.dtype == wanted.dtype
        assert wanted.tolist() == targets.tolist()


def test_a_loss_with_fixed_parameters_is_taken() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.ones(1), requires_grad=False)

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs - targets + self.shift).abs()

    outputs, targets = outputs_and_targets("regression", 3)
    values, _ = of_each(TASKS["regression"], Shifted())
    assert values == pytest.approx((outputs[..., 0] - targets + 1).abs().mean(1).tolist())
