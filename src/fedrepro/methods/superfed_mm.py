r"""SuPerFed-MM (Hahn et al., KDD 2022; thesis chapter II, eqs. 2.3 to 2.6).

$$ \min_{f, l} \; \mathbb{E}_{\lambda \sim U(0, 1)} F_k((1 - \lambda) f + \lambda l) + \frac{\mu}{2}
\|f - w\|^2 + \nu \cos^2(f, l) $$

Symbols: $f$, $l$: a client's federated and local model.

A client has two models: the federated one, and a local one with its own initial weights. From round
L = ``start`` * T on, both are trained so that all their interpolations (1 - lambda) f + lambda l
perform well: lambda ~ U(0, 1) is drawn for every mini-batch. The loss has two more terms: mu/2
times the squared distance of the federated model to the received one, and nu times the squared
cosine between the two models, which makes them orthogonal. Before round L only the federated model
is trained, without the last term (discrepancy 53). Only the federated model is communicated.

Discrepancies: 21 (the distance is not squared), 27 (the cosine's inner product has 1e-6 added for
every parameter). 23, each client's lambda chosen on its test samples, concerns the evaluation:
tables offer it as the interpolation "released". 28: layers of equal shape do not start equal, and a
client that was not sampled after round L is scored with the shared model at every lambda. Thesis
section 3.3 and the released code give every client a local model from the start:
``local_from_start`` scores such a client with it, untrained.

https://arxiv.org/abs/2109.07628
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, Share
from fedrepro.engine.method import Context, Method, Steps, Tree, descend, deviation, name_of, tree
from fedrepro.methods.fedprox import FedProx
from fedrepro.methods.personal.proximity import UNSQUARED, proximity


@dataclass(frozen=True)
class SuPerFedMM(Method):
    """SuPerFed-MM, model mixing (Hahn et al., KDD 2022; thesis eqs. 2.3 to 2.6)."""

    interpolates: ClassVar[bool] = True

    start: Share = 0.4  # L / T, the share of rounds before clients have a second model
    mu: NonNegative = 0.01  # pull towards the received model
    nu: NonNegative = 1.0  # weight of the squared cosine
    local_from_start: bool = False  # for clients that were not sampled after round L
    squared: bool = deviation(True, released=False, item="21", why=UNSQUARED)
    plain_cosine: bool = deviation(
        True, released=False, item="27", why="1e-6 per parameter is added to the inner product"
    )

    @property
    def scores_first_states(self) -> bool:
        return self.local_from_start

    def check(self, ctx: Context) -> None:
        ctx.net.refuse_running_statistics(name_of(self))
        if self.first_of(ctx.rounds) < ctx.rounds:
            ctx.net.require_draws(name_of(self), "each client's own model starts from its own")

    def mixing(self, ctx: Context) -> bool:
        """Return True if this round trains both models: after the first L rounds."""
        return ctx.round >= self.first_of(ctx.rounds)

    def first_of(self, rounds: int) -> int:
        """L, for this number of rounds."""
        return int(self.start * rounds + 1e-9)

    def shared_prefix(self, rounds: int) -> tuple[Method, int]:
        """FedProx: before round L clients have no second model."""
        return FedProx(mu=self.mu, squared=self.squared), self.first_of(rounds)

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        # Before round L there is none.
        return {"local": ctx.net.init(rng)} if self.mixing(ctx) else {}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        # An empty entry: its key alone tells `client_update` and `loss`, so that compiled code does
        # not depend on the round's number.
        return {**super().broadcast(ctx, server), **({"mixing": {}} if self.mixing(ctx) else {})}

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return {"lambda": torch.rand(steps, generator=rng)} if self.mixing(ctx) else {}

    def mixed(self, federated: Tree, local: Tree, weight: Tensor) -> Tree:
        """The interpolation at what :meth:`sample_steps` drew for one mini-batch."""
        return tree.mix(federated, local, weight)

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        if "mixing" not in message:
            return super().loss(ctx, message, client_state, params, batch)
        federated = params["federated"]
        pull = proximity(ctx, federated, message["params"], self.mu, self.squared)
        mixed = self.mixed(federated, params["local"], batch["lambda"])
        task = super().loss(ctx, message, client_state, mixed, batch)
        return task + pull + self.nu * self.squared_cosine(ctx, federated, params["local"])

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        if "mixing" in message:
            return super().gradient(ctx, message, client_state, params, batch)
        fedprox = FedProx(mu=self.mu, squared=self.squared)
        return fedprox.gradient(ctx, message, client_state, params, batch)

    def squared_cosine(self, ctx: Context, federated: Tree, local: Tree) -> Tensor:
        """cos^2 over all trainable parameters together (eq. 2.4; 27 has its typing error)."""
        left, right = ctx.net.trainable(federated), ctx.net.trainable(local)
        inner = tree.dot(left, right)
        if not self.plain_cosine:
            inner = inner + 1e-6 * tree.numel(left)
        return inner.square() / (tree.square_norm(left) * tree.square_norm(right))

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        if "mixing" not in message:
            return super().client_update(ctx, message, client_state, steps)
        both = {"federated": message["params"], "local": client_state["local"]}
        params, _ = descend(ctx, self.gradient, message, client_state, both, steps)
        delta = tree.subtract(message["params"], params["federated"])
        return {"delta": delta}, {"local": params["local"]}

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        return self.interpolate(ctx, server, client_state, 0.5)
