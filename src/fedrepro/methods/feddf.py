r"""FedDF (Lin et al., NeurIPS 2020, Algorithm 1), as FedGO (Jang et al., ICML 2025) runs it.

$$ w \approx \mathrm{argmin}_v \, \mathrm{mean}_x \, \mathrm{KL} \left( \mathrm{softmax}\, z(x) \,
\| \, \mathrm{softmax}\, f_v(x) \right), \quad z = \frac{1}{m} \sum_k f_{w_k} $$

Symbols: $x$: a sample of the server's; $z$: the ensemble's logits.

The paper is "Ensemble distillation for robust model fusion in federated learning". After FedAvg's
step the server's model becomes a student: for some epochs over unlabelled data it learns from the
mean of the logits of the round's clients.

Where FedGO does not specify: pseudo-labels are made once per round, on images that are not
mirrored, by teachers in testing mode (A1; one at a time, so that no two are in memory). Adam
restarts in every round and its rate follows a cosine over the rounds, without FedDF's validation
set, early stopping and clipping (A6). BatchNorm's statistics are averaged like weights, and
updated with the student (A12). If clients mirror images, so does the student.

https://arxiv.org/abs/2006.07242
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedrepro.engine.context import Context, LoadedArtifact
from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import BelowOne, NonNegative, NonNegativeWhole, PositiveWhole
from fedrepro.engine.method import Method, name_of, require_classification
from fedrepro.engine.net import differentiate
from fedrepro.engine.optim import Optimizer, adam, sgd
from fedrepro.engine.steps import Steps, shuffle
from fedrepro.engine.tree import Tree
from fedrepro.methods.distilling.losses import cosine, ensemble, kl_divergence
from fedrepro.methods.distilling.weighting import uniform
from fedrepro.support.errors import bad_value

BATCH = 250  # samples per forward pass of a teacher


class Labelled(NamedTuple):
    """The server's samples with their pseudo-labels [n, classes]."""

    given: LoadedArtifact
    labels: Tensor

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.given.inputs(rows), self.labels[rows]


class Teacher(NamedTuple):
    """A client's model, and the client's place in the cohort."""

    params: Tree
    place: int


def in_batches(given: LoadedArtifact, device: torch.device) -> list[Tensor]:
    """The rows of all given samples, in batches."""
    return list(torch.arange(len(given), device=device).split(BATCH))


@dataclass(frozen=True)
class FedDF(Method):
    """FedDF (Lin et al., NeurIPS 2020, Algorithm 1)."""

    requires: ClassVar[tuple[str, ...]] = ("unlabelled",)
    distills: ClassVar[bool] = True

    server_epochs: NonNegativeWhole = 10  # of distillation, in a round
    server_rate: NonNegative = 0.001  # learning rate of the distillation
    server_batch: PositiveWhole = 64  # samples in a mini-batch of the distillation
    server_momentum: BelowOne | None = None  # of SGD at the server; None: Adam
    decays: bool = True  # the server's rate, along a cosine
    decay_rounds: NonNegativeWhole = 0  # rounds until it is 0; 0: all of the run

    def check(self, ctx: Context) -> None:
        require_classification(self, ctx, "it distils the probabilities of classes")
        if 0 < self.decay_rounds < ctx.rounds:
            expected = f"0, or at least {ctx.rounds}, the rounds of the run"
            raise bad_value(f"method {name_of(self)}", "decay_rounds", self.decay_rounds, expected)

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        nothing = torch.zeros((), device=ctx.net.device)
        return {**super().init_server(ctx, params), "distillation_loss": nothing}

    def shares(self, logits: Tensor, judged: Tensor, weights: Tensor) -> Tensor:
        """The weight of each teacher on each sample [cohort, n].

        Args:
            logits: the teachers' [cohort, n, classes].
            judged: from :meth:`judge`, [cohort, n] or [cohort, 0].
            weights: the clients' aggregation weights [cohort].
        """
        return uniform(logits)

    def judge(
        self, ctx: Context, server: Tree, updates: Tree, teacher: Teacher, given: LoadedArtifact
    ) -> Tensor:
        """A teacher's further output for samples, [n] or empty."""
        return torch.zeros(0, device=ctx.net.device)

    def ensemble(
        self, ctx: Context, server: Tree, updates: Tree, weights: Tensor, given: LoadedArtifact
    ) -> Tensor:
        """The teachers' weighted logits for samples [n, classes]."""
        rows = in_batches(given, ctx.net.device)
        logits, judged = [], []
        for place in range(len(ctx.cohort)):
            teacher = Teacher(self.client_model(ctx, server, updates, place), place)
            outputs = [ctx.net.predict(teacher.params, given.inputs(batch)) for batch in rows]
            logits.append(torch.cat(outputs))
            judged.append(self.judge(ctx, server, updates, teacher, given))
            del teacher  # or two teachers would be in memory
        stacked = torch.stack(logits)
        shares = self.shares(stacked, torch.stack(judged), weights)
        return ensemble(stacked, shares.to(stacked))

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = super().server_update(ctx, server, updates, weights)
        if not self.server_epochs:
            return moved
        given = ctx.artifacts["unlabelled"]
        labels = self.pseudo_labels(self.ensemble(ctx, server, updates, weights, given))
        student = self.distilled(ctx, moved["params"], labels)
        rows = in_batches(given, ctx.net.device)
        guessed = torch.cat([ctx.net.predict(student, given.inputs(batch)) for batch in rows])
        loss = self.distance(labels, guessed).to(server["distillation_loss"])
        return {**moved, "params": student, "distillation_loss": loss}

    def pseudo_labels(self, logits: Tensor) -> Tensor:
        """The student's labels [n, classes] from the ensemble's logits."""
        return logits.softmax(-1)

    def distance(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The student's loss, a scalar tensor; both [n, classes]."""
        return kl_divergence(labels, logits)

    def towards_labels(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """The gradient of :meth:`distance` on one mini-batch of the server's samples."""
        return differentiate(
            lambda params: self.distance(batch["y"], ctx.net(params, batch["x"])), params
        )

    def distilled(self, ctx: Context, params: Tree, labels: Tensor) -> Tree:
        """``params`` after the server's epochs of distillation to ``labels`` [n, classes]."""
        everything = torch.arange(len(labels), device=labels.device)
        rng = ctx.stream("distillation")
        orders = shuffle(everything, self.server_epochs, rng)
        flips = [torch.rand(len(labels), generator=rng) < 0.5 for _ in orders] if ctx.flips else []
        steps = Steps(
            Labelled(ctx.artifacts["unlabelled"], labels),
            orders,
            self.server_batch,
            {},
            flips=[mask.to(labels.device) for mask in flips],
        )
        rate = self.server_rate
        if self.decays:
            rate = cosine(rate, ctx.round, self.decay_rounds or ctx.rounds)
        there = replace(ctx, optimizer=self.optimizer(), lr=rate)
        trained, _ = descend(there, self.towards_labels, {}, {}, params, steps)
        return trained

    def optimizer(self) -> Optimizer:
        """The student's."""
        return adam() if self.server_momentum is None else sgd(self.server_momentum)

    def metrics(self, ctx: Context, server: Tree) -> dict[str, float]:
        return {"distillation_loss": float(server["distillation_loss"])}
