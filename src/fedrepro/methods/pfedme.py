r"""pFedMe (Dinh et al., NeurIPS 2020, "Personalized federated learning with Moreau envelopes").

$$ \theta_k \approx \mathrm{argmin}_\theta \, F_k(\theta) + \frac{\mu}{2} \|\theta - w_k\|^2, \quad
w_k \leftarrow w_k - \eta \mu (w_k - \theta_k) $$

A client's model theta minimises f(theta) + lambda/2 |theta - w|^2 (eq. 3; their lambda is ``mu``
here). Its copy of the shared model then follows the envelope's gradient, w - eta lambda (w - theta)
(Algorithm 1, line 8). The server averages w (their beta is the server's learning rate).

The default is simpler than Algorithm 1, so that a round has as many steps as FedAvg's: one epoch of
a restarted client optimizer solves the inner problem (with its mini-batches and momentum), eta is
that optimizer's learning rate, and clients are weighted by samples. ``inner_steps`` is K of
Algorithm 1: on every mini-batch, K plain gradient steps at the constant rate ``personal_lr`` (null:
the clients' rate), then one step of w at the clients' rate; momentum, weight decay and Adam are
refused with it. With ``equal_weights`` the server's mean is that of line 11.

The code that SuPerFed's authors released (26) keeps one optimizer for all epochs of a round, does
not square the pull (21), and evaluates the shared model, because it overwrites the personal ones.
Its rows for CIFAR-10 are APFL's. Its cells for MNIST also need its decay of the learning rate (item
22): at 0.999 per round, three seeds with 500 clients give 81.08 (12.02), printed 81.96 (12.28).

https://arxiv.org/abs/2006.08848
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, NonNegativeWhole
from fedrepro.engine.method import Context, Tree, descend, deviation, require_rates, tree
from fedrepro.engine.optim import sgd
from fedrepro.engine.steps import Steps, some_epochs
from fedrepro.methods.personal.own_model import PersonalModel
from fedrepro.support.errors import bad_value, refusal

PLAIN = sgd()  # one object for all rounds, or every round would be recompiled


@dataclass(frozen=True)
class PFedMe(PersonalModel):
    """pFedMe (Dinh et al., NeurIPS 2020, eq. 3, Algorithm 1)."""

    mu: NonNegative = 15.0  # their lambda: pull towards the shared model
    inner_steps: NonNegativeWhole = 0  # Algorithm 1's K; 0: instead an epoch of the optimizer
    personal_lr: NonNegative | None = None  # of the K steps
    equal_weights: bool = False  # weight clients equally, not by samples
    new_optimizer: bool = deviation(
        True, released=False, item="26", why="one optimizer for all local epochs of a round"
    )
    personal: bool = deviation(
        True, released=False, item="26", why="clients are evaluated with the shared model"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.personal_lr is not None and not self.inner_steps:
            expected = "null without inner_steps, the steps of which it is the rate"
            raise bad_value("method pfedme", "personal_lr", self.personal_lr, expected)

    def check(self, ctx: Context) -> None:
        if self.inner_steps:
            ctx.net.refuse_running_statistics("pfedme")
            require_rates(self, ctx)
            if ctx.optimizer.weight_decay or ctx.optimizer.init({"any": torch.zeros(1)}):
                why = "optimizer: expected plain SGD with inner_steps, which take plain steps"
                raise refusal("method pfedme", why, "optimizer")

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        shared = personal = message["params"]
        if self.inner_steps:
            both = {"shared": shared, "personal": personal}
            params, _ = descend(
                replace(ctx, optimizer=PLAIN), self.inner, message, client_state, both, steps
            )
            shared, personal = params["shared"], params["personal"]
            return {"delta": tree.subtract(message["params"], shared)}, {"personal": personal}
        state = None
        for epoch in range(ctx.epochs):
            batches = some_epochs(steps, ctx.epochs, epoch, epoch + 1)
            around = {"params": shared}
            personal, after = descend(
                ctx, self.gradient_with_pull, around, client_state, personal, batches, state
            )
            state = None if self.new_optimizer else after
            pulled, near = ctx.net.trainable(shared), ctx.net.trainable(personal)
            # Running statistics are no parameters: they follow the training, as in FedAvg.
            shared = {**shared, **personal, **tree.mix(pulled, near, ctx.lr * self.mu)}
        return {"delta": tree.subtract(message["params"], shared)}, {"personal": personal}

    def inner(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """Lines 6 to 8 of Algorithm 1, as the direction of one plain step."""
        around = {"params": tree.apply(Tensor.detach, params["shared"])}
        rate = ctx.lr if self.personal_lr is None else self.personal_lr
        personal = params["personal"]
        for _ in range(self.inner_steps):
            gradient = self.gradient_with_pull(ctx, around, client_state, personal, batch)
            personal = tree.apply(lambda leaf, g: _stepped(leaf, rate * g), personal, gradient)
        solved = tree.apply(Tensor.detach, personal)
        away = tree.subtract(tree.apply(Tensor.detach, params["personal"]), solved)
        return {
            "shared": tree.scale(tree.subtract(around["params"], solved), self.mu),
            "personal": tree.scale(away, 1 / ctx.lr),
        }

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        if not self.equal_weights:
            return super().aggregation_weights(ctx, server, updates)
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        return super().eval_model(ctx, server, client_state if self.personal else {})


def _stepped(leaf: Tensor, change: Tensor) -> Tensor:
    """``leaf - change``, detached from any graph; it requires gradients if ``leaf`` does."""
    after = leaf.detach() - change.detach()
    return after.requires_grad_() if leaf.requires_grad else after
