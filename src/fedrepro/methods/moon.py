r"""MOON (Li et al., CVPR 2021, "Model-contrastive federated learning", Algorithm 1).

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) - \mu \, \mathrm{mean}_i \log \frac{e^{s_i /
\tau}}{e^{s_i / \tau} + e^{s_i' / \tau}} $$

$$ s_i = \cos(z_i(v), z_i(w)), \quad s_i' = \cos(z_i(v), z_i(w_k^{\text{previous}})) $$

A contrastive term pulls the features z of a sample towards those of the received model and away
from those of the client's own previous model, its model after the round in which it last took part:
mu times -log(e^(s/tau) / (e^(s/tau) + e^(s'/tau))), with s and s' the cosine similarities of z to
the two (eq. 3). Both are fixed and in testing mode. A new client's previous model is the initial
one, so that the term has no gradient in round 1.

Features are the inputs of the head. The paper adds a projection head of two layers in front of the
output layer and compares its outputs; here no model is changed. mu = 1 is the default of the
authors' code and their choice for CIFAR-100 and Tiny-ImageNet (CIFAR-10: 5); tau is 0.5.

https://arxiv.org/abs/2103.16257
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.fidelity import NonNegative, Positive
from fedrepro.engine.method import Context, Method, Steps, Tree, descend, tree


@dataclass(frozen=True)
class MOON(Method):
    """MOON (Li et al., CVPR 2021, eq. 3, Algorithm 1)."""

    mu: NonNegative = 1.0  # weight of the contrastive term
    tau: Positive = 0.5  # temperature

    def check(self, ctx: Context) -> None:
        ctx.net.require_chain()
        if self.mu:  # the contrast is of the body's features
            ctx.net.require_trained_parts("moon", ("body",))

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"previous": ctx.initial}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        features, logits = ctx.net.features_and_output(params, batch["x"])

        def similarity(model: Tree) -> Tensor:
            with torch.no_grad(), ctx.net.testing():
                fixed = ctx.net.features(model, batch["x"]).flatten(1)
            return functional.cosine_similarity(features.flatten(1), fixed)

        nearer = similarity(message["params"]) - similarity(client_state["previous"])
        losses = functional.softplus(-nearer / self.tau)
        real = batch["real"] if "real" in batch else torch.ones_like(losses)
        contrast = (losses * real).sum() / real.sum().clamp(min=1)
        return ctx.task.loss(logits, batch) + self.mu * contrast

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        params, _ = descend(ctx, self.gradient, message, client_state, message["params"], steps)
        return {"delta": tree.subtract(message["params"], params)}, {"previous": params}
