r"""DaFKD (Wang et al., CVPR 2023), as FedGO (Jang et al., ICML 2025) compares it.

$$ w \approx \mathrm{argmin}_v \, \mathrm{mean}_x \, \mathrm{KL} \left( \mathrm{softmax}\, z(x) \,
\| \, \mathrm{softmax}\, f_v(x) \right) $$

$$ z(x) = \sum_k \alpha_k(x) f_{w_k}(x), \quad \alpha_k(x) \propto D_k(x), \quad \sum_k \alpha_k(x)
= 1 $$

Symbols: $x$: a sample of the server's; $z$: the ensemble's logits; $D_k$: the output of client
$k$'s discriminator.

The paper is "DaFKD: domain-aware federated knowledge distillation". It differs from FedDF in the
weights of teachers: on a sample, a teacher's weight is proportional to D_k, the output of its
discriminator. A discriminator is one linear layer on the classifier's body; both are trained on the
client's samples against generated ones. A client also trains the generator against it, and the
server averages all three, weighted by samples.

Readings: on every mini-batch, classifier, discriminator and generator each take one step, together.
The discriminator uses the body in testing mode, as on the server, so that generated samples do not
change running statistics. The generator starts from the given one, because FedGO's Table 12 prints
DaFKD at 100,000 generator steps; its BatchNorm keeps its statistics. Distillation uses the server's
samples (A10), at temperature 1 as in FedGO's Algorithm 1. DaFKD's own code distils at 10, times its
square, with a mean over samples and classes: ``own_distillation`` (A32).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.fidelity import PositiveWhole
from fedrepro.engine.initialise import fresh_linear
from fedrepro.engine.method import Context, LoadedArtifact, Steps, Tree, descend, tree
from fedrepro.methods.distilling.weighting import domain_aware
from fedrepro.methods.feddf import FedDF, Teacher, in_batches
from fedrepro.methods.generating.adversarial import discriminator_loss

TEMPERATURE = 10.0  # of ``own_distillation``


@dataclass(frozen=True)
class DaFKD(FedDF):
    """DaFKD (Wang et al., CVPR 2023)."""

    requires: ClassVar[tuple[str, ...]] = ("unlabelled", "generator")

    fakes: PositiveWhole = 64  # generated samples per mini-batch
    own_distillation: bool = False  # the loss of DaFKD's code, not of FedGO's Algorithm 1

    def check(self, ctx: Context) -> None:
        super().check(ctx)
        ctx.net.require_chain()

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        generator = ctx.artifacts["generator"]
        assert generator.net is not None
        width, like = ctx.net.width("dafkd", params), next(iter(params.values()))
        judge = fresh_linear(width, 1, like, ctx.stream("initial discriminator"))
        made = tree.copy(generator.net.trainable(generator.tensors))
        return {**super().init_server(ctx, params), "judge": judge, "generator": made}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        shared = {name: server[name] for name in ("judge", "generator")}
        return {**super().broadcast(ctx, server), **shared}

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        latent = ctx.artifacts["generator"].about["latent"]
        return {"noise": torch.randn(steps, self.fakes, latent, generator=rng)}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        """The three losses; each graph ends where another network's begins."""
        given, judge = ctx.artifacts["generator"], params["judge"]
        assert given.net is not None
        logits = ctx.net(params["params"], batch["x"])
        generator = {**given.tensors, **params["generator"]}
        made = given.net.predict(generator, batch["noise"].to(batch["x"]))
        against = discriminator_loss(
            self.scores(ctx, params["params"], judge, batch["x"]),
            self.scores(ctx, params["params"], judge, made.detach()),
            batch.get("real"),
        )
        stopped = tree.apply(Tensor.detach, {"params": params["params"], "judge": judge})
        fooled = functional.softplus(-self.scores(ctx, stopped["params"], stopped["judge"], made))
        return ctx.task.loss(logits, batch) + against + fooled.mean()

    def scores(self, ctx: Context, params: Tree, judge: Tree, x: Tensor) -> Tensor:
        """The discriminator's logits for samples, [n, 1]."""
        with ctx.net.testing():
            features = ctx.net.features(params, x)
        return functional.linear(features.flatten(1), judge["weight"], judge["bias"])

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        start = {name: message[name] for name in ("params", "judge", "generator")}
        params, _ = descend(ctx, self.gradient, message, client_state, start, steps)
        delta = tree.subtract(message["params"], params["params"])
        others = {name: params[name] for name in ("judge", "generator")}
        return {"delta": delta, **others}, client_state

    def judge(
        self, ctx: Context, server: Tree, updates: Tree, teacher: Teacher, given: LoadedArtifact
    ) -> Tensor:
        judge, rows = tree.take(updates["judge"], teacher.place), in_batches(given, ctx.net.device)
        scores = [self.scores(ctx, teacher.params, judge, given.inputs(batch)) for batch in rows]
        return torch.cat(scores).squeeze(-1)

    def shares(self, logits: Tensor, judged: Tensor, weights: Tensor) -> Tensor:
        return domain_aware(judged)

    def pseudo_labels(self, logits: Tensor) -> Tensor:
        return super().pseudo_labels(logits / TEMPERATURE if self.own_distillation else logits)

    def distance(self, labels: Tensor, logits: Tensor) -> Tensor:
        if not self.own_distillation:
            return super().distance(labels, logits)
        # The mean over samples and classes, in place of a sum over classes.
        scale = TEMPERATURE**2 / logits.shape[-1]
        return scale * super().distance(labels, logits / TEMPERATURE)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = super().server_update(ctx, server, updates, weights)
        shared = {
            name: tree.weighted_sum(updates[name], weights) for name in ("judge", "generator")
        }
        return {**after, **shared}
