"""Learning tasks: the loss of a model's outputs, and when a prediction is correct."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedrepro.engine import metrics
from fedrepro.engine.tree import Tree

# (logits [n, outputs], targets [n]) -> one number for all of these samples. Targets of a task that
# is ``alike`` are numbers, and outputs have their shape.
OfOutputs = Callable[[NDArray[Any], NDArray[Any]], float]


@dataclass(frozen=True)
class AtOnce:
    """A measure that is computed for many clients at once, or for the samples of one.

    Attributes:
        each: see :mod:`fedrepro.engine.metrics`.
        place: of this measure among those that ``each`` computes.
    """

    each: metrics.Each
    place: int = 0

    def __call__(self, logits: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
        return float(self.each(logits, targets, metrics.whole(targets))[self.place, 0])


WORDLESS = 4  # padding, unknown, begin and end tokens (fedrepro.data.readers.leaf)


class Task(NamedTuple):
    """A learning task.

    Attributes:
        name: "classification", "binary", "next_word", "regression" or "multi_label".
        losses: (logits [n, outputs], targets [n], reduction) -> losses [n] for the reduction
            "none", their mean for "mean".
        hits: (logits, targets) -> number of correct predictions for each sample [n].
        predictions: targets -> number of predictions for each sample [n]: one, more for texts.
        has_accuracy: whether a prediction is right or wrong.
        of_mean: whether the loss is only known as a mean over samples, which those of parts of them
            do not add up to.
        class_weights: the weight of each class in :meth:`loss` [classes], or with the task
            multi_label of the samples that have each label [labels]; None: all alike.
        alike: whether a sample's outputs have the shape of its targets, but for axes of length 1.
            Then all ``measures`` are taken on the test set, too.
        on_test: names of the measures that are otherwise taken on the test set, too.
        measures: further measures on a client's own test samples, by name.
        batched: measures that can also be averaged over mini-batches, by name.
    """

    name: str
    losses: Callable[[Tensor, Tensor, str], Tensor]
    hits: Callable[[Tensor, Tensor], Tensor]
    predictions: Callable[[Tensor], Tensor] = torch.ones_like
    measures: Mapping[str, OfOutputs] = {}
    batched: Mapping[str, AtOnce] = {}
    has_accuracy: bool = True
    alike: bool = False
    on_test: tuple[str, ...] = ()
    class_weights: Tensor | None = None
    of_mean: bool = False

    def shaped(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The outputs in the shape in which measures and losses compare them with ``targets``."""
        return outputs.reshape(targets.shape) if self.alike else outputs

    def loss(self, logits: Tensor, batch: Tree) -> Tensor:
        """The mean loss over the real samples of a mini-batch.

        A padded mini-batch (of clients that run side by side) marks its real samples with 1 in
        ``batch["real"]`` [n]. With class weights, the mean is weighted, as PyTorch's ``weight`` is,
        and with several labels as its ``pos_weight``.
        """
        if self.class_weights is None and "real" not in batch:
            return self.losses(logits, batch["y"], "mean")
        losses, shares = self.loss_parts(logits, batch)
        weighted = self.class_weights is not None and not self.alike
        least = torch.finfo(losses.dtype).tiny if weighted else 1
        return (losses * shares).sum() / shares.sum().clamp(min=least)

    def loss_parts(self, logits: Tensor, batch: Tree) -> tuple[Tensor, Tensor]:
        """The losses of a mini-batch's samples [n] and the share of each in their mean [n]."""
        y, weights, losses_of = batch["y"], self.class_weights, self.losses
        if weights is not None and self.alike:
            losses_of = partial(_binary_cross_entropies, weights=weights)
        losses = losses_of(logits, y, "none")
        shares = batch["real"].to(losses.dtype) if "real" in batch else torch.ones_like(losses)
        return losses, self.weighted(shares, y)

    def weighted(self, shares: Tensor, targets: Tensor) -> Tensor:
        """Samples' ``shares`` [n] in a mean, times their classes' weights if these have any."""
        weights = self.class_weights
        return shares if weights is None or self.alike else weights[targets] * shares

    def with_measures(self, further: Mapping[str, OfOutputs]) -> "Task":
        """This task with further measures."""
        return self._replace(measures={**self.measures, **further})

    def with_batch_size(self, batch_size: int) -> "Task":
        """This task with its ``batched`` measures also as means over mini-batches (``_batch``)."""
        over_batches = {
            function: partial(metrics.over_batches, function, batch_size)
            for function in {measure.each for measure in self.batched.values()}
        }
        return self.with_measures(
            {
                f"{name}_batch": AtOnce(over_batches[measure.each], measure.place)
                for name, measure in self.batched.items()
            }
        )

    def of_probabilities(self) -> "Task":
        """This task for outputs that are probabilities already, which calibration asks for."""
        takes = {
            name: measure
            for name, measure in self.measures.items()
            if isinstance(measure, AtOnce) and name.startswith(tuple(CALIBRATION))
        }
        logs = {each: partial(metrics.of_logs, each) for each in {m.each for m in takes.values()}}
        return self.with_measures(
            {name: AtOnce(logs[measure.each], measure.place) for name, measure in takes.items()}
        )

    def measured(
        self, outputs: NDArray[np.float64], targets: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> dict[str, NDArray[np.float64]]:
        """Each client's further measures by name; NaN for a client without samples.

        Args:
            bounds: as in :mod:`fedrepro.engine.metrics`.
        """
        at_once = {kind.each for kind in self.measures.values() if isinstance(kind, AtOnce)}
        values: dict[metrics.Each, NDArray[np.float64]]
        values = {function: function(outputs, targets, bounds) for function in at_once}

        def of_each(measure: OfOutputs) -> NDArray[np.float64]:
            if isinstance(measure, AtOnce):
                row: NDArray[np.float64] = values[measure.each][measure.place]
                return row
            places = pairwise(bounds.tolist())
            return np.array(
                [measure(outputs[a:z], targets[a:z]) if a < z else nan for a, z in places]
            )

        return {name: of_each(measure) for name, measure in self.measures.items()}


def _cross_entropy(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return functional.cross_entropy(logits, targets, reduction=reduction)


def _binary_cross_entropy(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    # Reshape the targets to [n, 1]: reshaping the logits would add a node to the graph.
    losses = functional.binary_cross_entropy_with_logits(
        logits, targets.to(logits.dtype).unsqueeze(-1), reduction=reduction
    )
    return losses if reduction == "mean" else losses.squeeze(-1)


def _binary_cross_entropies(
    logits: Tensor, targets: Tensor, reduction: str, weights: Tensor | None = None
) -> Tensor:
    """The mean over a sample's labels, with weights where it has them. Targets are [n, labels]."""
    losses = functional.binary_cross_entropy_with_logits(
        logits, targets, pos_weight=weights, reduction=reduction
    )
    return by_sample(losses) if reduction == "none" else losses


def _next_word_loss(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The mean over the words of a text, without padding. Targets are [n, length]."""
    by_word = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    there = (targets != 0).to(by_word.dtype)
    losses = (by_word * there).sum(1) / there.sum(1).clamp(min=1)
    return losses.mean() if reduction == "mean" else losses


def _next_word_hits(logits: Tensor, targets: Tensor) -> Tensor:
    return ((logits.argmax(-1) == targets) & (targets >= WORDLESS)).sum(1)


def _squared_errors(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """The mean over all targets of a sample: [n], [n, k], or of any further axes."""
    outputs = outputs.reshape(targets.shape)  # [n, 1] less [n] would be [n, n]
    if reduction == "mean":
        return functional.mse_loss(outputs, targets)
    return by_sample(functional.mse_loss(outputs, targets, reduction="none"))


def by_sample(losses: Tensor) -> Tensor:
    """Losses [n, ...] as means over all axes but the first, [n]."""
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def _none(targets: Tensor) -> Tensor:
    """A number of predictions: none can be right or wrong."""
    return targets.new_zeros(len(targets))


def _aurocs(
    logits: NDArray[np.float64], targets: NDArray[np.int64], bounds: NDArray[np.int64]
) -> NDArray[np.float64]:
    return metrics.aurocs(logits[:, 0], targets, bounds)


def _label_aurocs(
    logits: NDArray[np.float64], targets: NDArray[Any], bounds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Of each client, the mean over the labels that some of its samples have and others do not."""
    labels = zip(logits.T, targets.T.astype(np.int64), strict=True)
    each = np.concatenate([metrics.aurocs(scores, label, bounds) for scores, label in labels])
    known = ~np.isnan(each)
    total, count = np.where(known, each, 0.0).sum(0), known.sum(0)
    return np.where(count, total / np.maximum(count, 1), np.nan)[None]


TOP5 = AtOnce(partial(metrics.tops, 5))
CALIBRATION: dict[str, AtOnce] = {
    "ece": AtOnce(metrics.calibrations, 0),
    "mce": AtOnce(metrics.calibrations, 1),
}
CLASSIFICATION = Task(
    "classification",
    _cross_entropy,
    lambda logits, targets: logits.argmax(-1) == targets,
    measures={"top5": TOP5, **CALIBRATION},
    batched={"accuracy": AtOnce(partial(metrics.tops, 1)), "top5": TOP5, **CALIBRATION},
)
BINARY = Task(
    "binary",
    _binary_cross_entropy,
    lambda logits, targets: (logits.squeeze(-1) > 0) == targets.to(torch.bool),
    measures={"auroc": AtOnce(_aurocs)},
    on_test=("auroc",),
)
NEXT_WORD = Task(
    "next_word",
    _next_word_loss,
    _next_word_hits,
    predictions=lambda targets: (targets >= WORDLESS).sum(1),
)
REGRESSION = Task(
    "regression",
    _squared_errors,
    lambda outputs, targets: _none(targets),
    predictions=_none,
    measures={"mse": metrics.mse, "mae": metrics.mae, "r2": metrics.r2},
    has_accuracy=False,
    alike=True,
)
MULTI_LABEL = Task(
    "multi_label",
    _binary_cross_entropies,
    lambda logits, targets: ((logits > 0) == (targets > 0.5)).sum(1),
    predictions=lambda targets: torch.full_like(targets[:, 0], targets.shape[1]),
    measures={"auroc": AtOnce(_label_aurocs)},
    alike=True,
)
TASKS = {task.name: task for task in (CLASSIFICATION, BINARY, NEXT_WORD, REGRESSION, MULTI_LABEL)}
