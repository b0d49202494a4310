"""The terms of IMA's Theorem 1 after rounds of finished runs that differ in their seed.

The theorem's models are random through their initialisation and the order of samples, so its
expectations are means over runs with different seeds but the same clients: the partition has its
own seed and, with partial participation, so do the cohorts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.analysis.kept_models import KeptModels, open_kept
from fedrepro.analysis.landscape import BATCH, average_of
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.partition.partition import Partition
from fedrepro.engine.tree import Tree
from fedrepro.papers.ima.decomposition import (
    decompose,
    distances,
    ensemble_gap,
    error_of,
    errors_by_number,
)
from fedrepro.papers.ima.similarity import mean, mean_cka
from fedrepro.run.results import made_of
from fedrepro.support.errors import bad_value, refusal

Progress = Callable[[float], None]  # called with the finished share
# Shares of the clients' distances at which Lemma 1's slope is measured: it holds near the average,
# but closer still float32 hides the gap.
NEAR = (1 / 16, 1 / 32)


def decomposition_of(
    workbench: Workbench,
    setting: str,
    method: str,
    seeds: Sequence[int],
    samples: int,
    progress: Progress,
) -> dict[str, Any]:
    """The five terms after every round whose models all runs kept.

    Args:
        samples: at most so many of the runs' test samples.

    Returns:
        seeds; samples; clients (how many there are); estimates (in words, what the terms estimate);
        and rounds, each with round, clients (whose models are averaged), the five terms and total
        (their sum), loss and ensemble_loss (the mean squared errors of softmax outputs of the
        averaged model and the ensemble, discrepancy B16), error (of the averaged model, in percent,
        mean over seeds), errors_by_number (of averages of 1, 2, ... clients, of the first seed),
        distance (Delta: the largest of a client's distances from the average, mean over seeds), gap
        (the root mean square of the difference of the average's and the ensemble's outputs, of the
        first seed), slope (of log gap over log Delta for clients drawn to within a sixteenth of
        their distance: 2 is Lemma 1's O(Delta^2); None where there is no gap), cka (linear, of
        logits, mean over pairs and seeds).

    Raises:
        UserError: for fewer than two seeds, runs that are unfinished, kept no models, or have no
            common partition or round, fewer than two common clients, or no classes.
    """
    if len(set(seeds)) < 2:
        raise bad_value("decomposition", "seeds", list(seeds), "at least two different")
    runs = [open_kept(workbench, RunKey(setting, method, seed)) for seed in seeds]
    for run in runs:
        run.require_kept()
    first = runs[0]
    where, task = f"decomposition: {setting}", first.plan.federation.context.task
    if task.name != "classification":
        raise bad_value(where, "task", task.name, "'classification'")
    for other in runs[1:]:
        if not _same_clients(first.partition, other.partition):
            why = (
                f"seeds {first.run.seed} and {other.run.seed} have other clients: expected the "
                "same, by `partition: { ..., seed: 1 }` in the setting"
            )
            raise refusal(where, why, "partition.seed")
    rounds = sorted(set.intersection(*(set(run.clients) for run in runs)))
    if not rounds:
        raise refusal(where, "no round was kept by all of its runs", "save_models_at")
    x, y = first.samples(samples)
    after_rounds = []
    for place, number in enumerate(rounds, 1):
        after_rounds.append(_after(number, runs, x, y))
        progress(place / len(rounds))
    everyone = first.plan.federation.context.clients
    return {
        "of": made_of(run.record for run in runs),
        "seeds": list(seeds),
        "samples": len(y),
        "clients": everyone,
        "estimates": _estimates(after_rounds, everyone),
        "rounds": after_rounds,
    }


def _estimates(rounds: Sequence[dict[str, Any]], everyone: int) -> str:
    fewest = min(round["clients"] for round in rounds)
    if fewest == everyone:
        return f"the loss of the average of all {everyone} clients"
    return (
        f"the loss of the average of the {fewest} of {everyone} clients that took part in a round "
        "in all of the runs, given that they did: not of all clients, nor over the draw of cohorts"
    )


def _same_clients(one: Partition, other: Partition) -> bool:
    pairs = zip(one.train, other.train, strict=False)
    return len(one.train) == len(other.train) and all(
        len(a) == len(b) and bool((a == b).all()) for a, b in pairs
    )


def _after(number: int, runs: Sequence[KeptModels], x: Tensor, y: Tensor) -> dict[str, Any]:
    """One entry of the rounds."""
    first = runs[0]
    clients = sorted(set.intersection(*(set(run.clients[number]) for run in runs)))
    if len(clients) < 2:
        why = (
            f"{len(clients)} clients took part in all of the runs: expected at least two: full "
            "participation, or `cohorts: { stream: numpy_legacy, seed: 1 }` in the setting"
        )
        raise refusal(f"decomposition: round {number}", why, "cohorts", len(clients))
    weights = first.shares(clients)
    net = first.plan.federation.context.net

    @torch.no_grad()
    def logits(params: Tree) -> Tensor:
        bound = net.bind(params)
        return torch.cat([net.predict(bound, part) for part in x.split(BATCH)])

    outputs, averaged, away, alike = [], [], [], []
    errors: list[float] = []
    for run in runs:
        models = [run.client(number, client).params for client in clients]
        outputs.append(torch.stack([logits(model) for model in models]))
        averaged.append(logits(average_of(models, weights)))
        errors.append(error_of(averaged[-1], y))
        away.append(max(distances(models, weights)))
        alike.append(mean_cka(list(outputs[-1])))
        if run is first:
            gap = ensemble_gap(lambda model: logits(model).softmax(-1), models, weights, (1.0,))
            near = ensemble_gap(lambda model: logits(model).softmax(-1), models, weights, NEAR)
            by_number = errors_by_number(logits, models, weights, y)
    seen = torch.zeros(len(clients), len(y), dtype=torch.bool, device=y.device)
    for place, client in enumerate(clients):
        classes = torch.from_numpy(first.classes_of(client)).to(y.device)
        seen[place] = torch.isin(y, classes)
    # On softmax outputs and one-hot targets (discrepancy B16).
    shares, average = (torch.stack(each).softmax(-1) for each in (outputs, averaged))
    one_hot = functional.one_hot(y, outputs[0].shape[-1])
    terms = decompose(shares, average, one_hot, weights.to(y.device), seen)
    loss = float((average.double() - one_hot).square().mean())
    return {
        "round": number,
        "clients": len(clients),
        **terms._asdict(),
        "total": terms.total,
        "loss": loss,
        "ensemble_loss": loss - terms.locality,
        "error": mean(errors),
        "errors_by_number": by_number,
        "distance": mean(away),
        "gap": gap.gaps[0],
        "slope": near.slope if math.isfinite(near.slope) else None,
        "cka": cka if math.isfinite(cka := mean(alike)) else None,
    }
