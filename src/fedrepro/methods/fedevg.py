r"""FedEvg (thesis chapter IV, Algorithms 4.1 and 4.2): a synthetic set refined by energies.

$$ \min_f \; \mathrm{CE}(f(x), y) + \lambda \, \mathrm{CE}(f(\tilde x), \tilde y) + E(x, y) - E(\hat
x, \tilde y), \quad E(x, y) = - f(x)[y] $$

$$ \tilde x \leftarrow \tilde x - \beta \sum_k s_k \nabla E_k(\tilde x, \tilde y) + \delta \,
\mathcal{N}(0, I), \quad s_k \propto p_k e^{- \mathrm{sgn} E_k(\tilde x, \tilde y)} $$

Symbols: $\tilde x$, $\tilde y$: items of the set and their classes; $\hat x$: the copy of $\tilde
x$ that the Langevin steps moved; $E_k$: the energy of client $k$'s classifier; $\lambda$:
``synthetic``; $\beta$: the server's step; $\delta$: ``noise``.

The server holds a small labelled set of images, initially normal noise, with the same number per
class. In a round every client trains its own classifier f as an energy-based model
E(x, y) = -f(x)[y]: cross-entropy on its samples, ``synthetic`` times cross-entropy on items of the
set, and contrastive divergence from a copy of the set that moves by Langevin steps. For every item
its update has the energy's gradient and exp(sgn f) = exp(-sgn E); no parameters are sent in either
direction. The server takes one Langevin step on the energy of the clients' mixture (eqs. 4.13 and
4.14).

Where paper and released code differ: line 13 of Algorithm 4.2 has the contrastive term with the
wrong sign, here it is as in the code (33); the schedule of the steps and the server's noise (35);
limits of gradients and pixels, which the paper does not mention, and without which a step of 10
ends in NaN (36: both can be switched off); cross-entropy on items as they were sent, not as the
chain has moved them, as in the code (37); E counts epochs, as in the code (38).
The spectral norm of the last layer belongs to the model: ``fedevg_resnet10`` computes it exactly,
``fedevg_resnet10_power`` by power iteration.

A setting may give an initial set (``inputs: { start: ... }``, docs/generators.md): the artifact of
another run on the same data set, with the same number of items per class.

A client keeps the classifier of its last round. With ``evaluate: clients`` that classifier is
scored on the client's own test samples; a client that has never taken part has an untrained one. A
round that ends in NaN is dropped: the run stops there as diverged and keeps the last good set.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.descent import scan
from fedrepro.engine.fidelity import NonNegative, PositiveWhole, one_of
from fedrepro.engine.method import Artifact, Context, Method, Tree, deviation, sends_no_models, tree
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import Steps
from fedrepro.methods.generating import synthetic as sets
from fedrepro.support.errors import refusal


def energies_of(outputs: Tensor, y: Tensor) -> Tensor:
    """E(x, y) = -f(x)[y], [n], from outputs [n, classes]."""
    return -outputs.gather(1, y[:, None]).squeeze(1)


@dataclass(frozen=True)
class FedEvg(Method):
    """FedEvg (thesis chapter IV, Algorithms 4.1 and 4.2).

    Attributes:
        per_class: items of each class in the set.
        first_step, last_step, schedule: the server's steps: beta of the first and last round, and
            the schedule between them, "cosine" or "ddpm".
        noise: scale of the server's Langevin noise, delta.
        chain_steps, chain_step, chain_noise: a client's Langevin steps per mini-batch, R, their
            length, gamma, and the scale of their noise, sigma.
        synthetic: weight of the cross-entropy on items of the set, lambda.
        clip: the largest component of an energy's gradient; 0: no limit.
        bounded: whether pixels are clipped to the range of the data.
        reinitialise: whether clients start every round from new weights, not from their last.
    """

    classifies: ClassVar[bool] = False
    uses_server_optimizer: ClassVar[bool] = False
    own_classifier: ClassVar[bool] = True
    optional: ClassVar[tuple[str, ...]] = ("start",)

    per_class: PositiveWhole = 10
    first_step: NonNegative = 10.0
    last_step: NonNegative = deviation(0.01, 1.0, "35", "the scripts end at 1")
    schedule: Annotated[str, one_of(*sets.SCHEDULES)] = deviation(
        "cosine", "ddpm", "35", "DDPM's betas: some 10 for 90 % of rounds"
    )
    noise: NonNegative = deviation(0.01, 1e-4, "35", "written into the code")
    chain_steps: PositiveWhole = 1
    chain_step: NonNegative = 1.0
    chain_noise: NonNegative = 0.01
    synthetic: NonNegative = 0.1
    clip: NonNegative = 3.0
    bounded: bool = True
    reinitialise: bool = True

    def check(self, ctx: Context) -> None:
        sets.check_images("fedevg", ctx)
        # Real images, those of the set and those of the chain share a mini-batch.
        if ctx.net.mixes_in_training():
            why = "model: expected one without BatchNorm: no output may depend on other samples"
            raise refusal("method fedevg", why, "model")
        if self.reinitialise:
            ctx.net.require_draws("fedevg", "a client starts each round from new ones")
        if "start" in ctx.artifacts:
            sets.check_set(
                "method fedevg: given start", ctx, ctx.artifacts["start"], self.per_class
            )

    # --- state ------------------------------------------------------------------------------
    def init_server(self, ctx: Context, params: Tree) -> Tree:
        y = sets.labels_of(ctx.inputs.classes, self.per_class, ctx.net.device)
        x = torch.randn(len(y), *ctx.inputs.shape, generator=ctx.stream("synthetic set"))
        x = ctx.artifacts["start"].tensors["x"].clone() if "start" in ctx.artifacts else x
        return {"x": x.to(ctx.net.device), "y": y, "numbers": torch.zeros(4).to(ctx.net.device)}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"params": ctx.net.init(rng)}

    def sample_round(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"start": ctx.net.init(rng)} if self.reinitialise else {}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {"x": server["x"], "y": server["y"]}

    # --- client -----------------------------------------------------------------------------
    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        items = ctx.inputs.classes * self.per_class
        width = min(items, ctx.batch_size)
        picked = [torch.randperm(items, generator=rng)[:width] for _ in range(steps)]
        shape = (steps, self.chain_steps, width, *ctx.inputs.shape)
        return {"picked": torch.stack(picked), "noise": torch.randn(shape, generator=rng)}

    def energy_gradient(self, ctx: Context, params: Tree, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of every image's energy with respect to the image, [n, ...]."""
        gradient: Tensor = differentiate(
            lambda x: energies_of(ctx.net.predict(params, x), y).sum(), x
        )
        return gradient

    def objective(
        self, ctx: Context, params: Tree, batch: Tree, items: Tensor, chain: Tensor, y: Tensor
    ) -> Tensor:
        """A client's objective on a mini-batch, a scalar tensor.

        Args:
            items, chain: of the set [n, ...], as sent and as moved by the chain.
            y: their classes [n].
        """
        real, counts = batch["x"], batch.get("real")
        # One pass for all three: `check` refuses models in which one sample changes another.
        outputs = ctx.net(params, torch.cat([real, items, chain]))
        of_real, of_items, of_chain = outputs.split((len(real), len(y), len(y)))
        used = None if counts is None else counts[: len(y)]
        known = sets.mean_over(functional.cross_entropy(of_items, y, reduction="none"), used)
        low = sets.mean_over(energies_of(of_real, batch["y"]), counts)
        high = sets.mean_over(energies_of(of_chain, y), used)
        return ctx.task.loss(of_real, batch) + self.synthetic * known + low - high

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        def step(carry: Tree, batch: Tree) -> Tree:
            theta = carry["params"]
            moving = ctx.net.trainable(theta)
            width = min(len(batch["picked"]), len(batch["y"]))  # for a short last mini-batch
            picked = batch["picked"][:width]
            items, y = message["x"][picked], message["y"][picked]
            before = carry["chain"][picked]
            chain = self.moved(ctx, theta, before, y, batch["noise"][:, :width])
            if "real" in batch:
                used = batch["real"][:width].reshape(-1, *[1] * (chain.dim() - 1)) > 0
                chain = torch.where(used, chain, before)
            slope = differentiate(
                lambda free: self.objective(ctx, {**theta, **free}, batch, items, chain, y), moving
            )
            change, state = ctx.optimizer.update(slope, carry["state"], moving, ctx.lr)
            params = {
                name: leaf + change[name].to(leaf.dtype) if name in change else leaf
                for name, leaf in theta.items()
            }
            return {
                "params": params,
                "state": state,
                "chain": carry["chain"].index_copy(0, picked, chain),
            }

        start = client_state["start"] if self.reinitialise else client_state["params"]
        state = ctx.optimizer.init(ctx.net.trainable(start))
        carry = scan(step, {"params": start, "state": state, "chain": message["x"]}, steps)
        theta, x, y = carry["params"], message["x"], message["y"]
        gradient = self.energy_gradient(ctx, theta, x, y)
        outputs = ctx.net.predict(theta, x).detach()
        energies, known = energies_of(outputs, y), functional.cross_entropy(outputs, y)
        update = {
            "gradient": gradient.clamp(-self.clip, self.clip) if self.clip else gradient,
            "factor": torch.exp(-torch.sign(energies)),
            "numbers": torch.stack([energies.mean(), known]),
        }
        return update, {"params": theta}

    def moved(self, ctx: Context, params: Tree, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """Items after a client's Langevin steps; ``noise`` is [steps, *x.shape]."""
        for draw in noise:
            gradient = self.energy_gradient(ctx, params, x, y)
            x = sets.langevin(x, gradient, draw, self.chain_step, self.chain_noise, self.clip)
        return self.limited(ctx, x)

    def limited(self, ctx: Context, x: Tensor) -> Tensor:
        """Pixels clipped to the range of the data, if ``bounded``."""
        return x.clamp(*ctx.inputs.range) if self.bounded and ctx.inputs.range else x

    # --- server -----------------------------------------------------------------------------
    def length(self, ctx: Context) -> float:
        """The server's step in this round, beta."""
        schedule = sets.SCHEDULES[self.schedule]
        return schedule(self.first_step, self.last_step, ctx.rounds, ctx.round)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        gradient = sets.mixture_gradient(weights, updates["factor"], updates["gradient"])
        noise = torch.randn(server["x"].shape, generator=ctx.stream("langevin")).to(server["x"])
        x = sets.langevin(server["x"], gradient, noise, self.length(ctx), self.noise)
        x = self.limited(ctx, x)
        moved = (x - server["x"]).square().mean().sqrt()
        alike = sets.alikeness(gradient, ctx.inputs.classes)
        means = tree.weighted_sum(updates["numbers"], weights)
        numbers = torch.cat([means, torch.stack([moved, alike])])
        if not tree.all_finite({"x": x, "gradient": gradient, "numbers": numbers}):
            return {**server, "numbers": torch.full_like(numbers, torch.nan)}
        return {**server, "x": x, "numbers": numbers}

    # --- use --------------------------------------------------------------------------------
    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        """A client's own classifier; there is no shared one."""
        return client_state["params"] if client_state else ctx.initial

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        raise sends_no_models(self)

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return sets.as_artifact(server["x"], server["y"], ctx.inputs.classes)

    def metrics(self, ctx: Context, server: Tree) -> dict[str, float]:
        """Means over clients and items; RMS movement of a pixel; similarity of the gradients."""
        energy, loss, moved, alike = server["numbers"].tolist()
        return {"item_energy": energy, "item_loss": loss, "moved": moved, "alike": alike}

    def images(self, ctx: Context, server: Tree) -> Tensor:
        """The first images of each class; in early rounds they may look like noise."""
        return sets.sheet(server["x"], ctx.inputs.classes)
