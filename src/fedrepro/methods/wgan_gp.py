r"""WGAN-GP (Gulrajani et al., NeurIPS 2017, Algorithm 1), FedGO's generator G1.

$$ \max_D \; \mathbb{E}_x D(x) - \mathbb{E}_z D(G(z)) - \lambda \, \mathbb{E}_{\hat x} \left(
\|\nabla D(\hat x)\| - 1 \right)^2, \quad \min_G \; {-} \mathbb{E}_z D(G(z)) $$

$$ \hat x = x + u (G(z) - x), \quad u \sim U(0, 1) $$

Symbols: $x$: real samples; $\lambda$: ``penalty``.

The paper is "Improved training of Wasserstein GANs". One client, the server itself, holds the
unlabelled samples (partition scheme ``at_server``). Every mini-batch is a step of the critic; after
``critic_steps`` of them the generator takes one, with as many new samples. Both use the setting's
optimizer, whose state is kept between rounds, at a constant rate (A21).

A round that ends in NaN is dropped: the run stops there as diverged and keeps the last good
networks. Like any unfinished run, it cannot be given to another.

https://arxiv.org/abs/1704.00028
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, PositiveWhole
from fedrepro.engine.method import Artifact, Context, Method, Steps, Tree, name_of, tree
from fedrepro.engine.net import Net, part_of
from fedrepro.methods.generating.adversarial import critic_loss, generator_loss
from fedrepro.methods.generating.parts import without_parts
from fedrepro.support.errors import refusal
from fedrepro.support.rng import stream

PARTS = ("generator", "critic")
SHOWN = 64  # images on a sample sheet


class _Player:
    """One of the two networks during training: copies that are updated in place."""

    def __init__(self, ctx: Context, name: str, params: Tree, state: Tree) -> None:
        self.net = Net(ctx.net.module.get_submodule(name))
        self.params = tree.copy(part_of(params, name))
        moving = self.net.trainable(self.params)
        self.leaves = [leaf.requires_grad_() for leaf in tree.leaves(moving)]
        self.state = tree.copy(tree.ordered_as(state, moving))
        assert ctx.optimizer.in_place is not None
        memory = [leaf.detach() for leaf in self.leaves]
        self._move = ctx.optimizer.in_place(memory, tree.leaves(self.state))

    def __call__(self, x: Tensor) -> Tensor:
        return self.net(self.params, x)

    def follow(self, loss: Tensor, rate: float) -> None:
        """Take a descent step on ``loss``."""
        self._move(list(torch.autograd.grad(loss, self.leaves)), rate)


@dataclass(frozen=True)
class WganGp(Method):
    """WGAN-GP (Gulrajani et al., NeurIPS 2017, Algorithm 1)."""

    classifies: ClassVar[bool] = False
    outputs: ClassVar[int | None] = 1
    carries: ClassVar[bool] = True  # keeps the optimizers' states between rounds

    critic_steps: PositiveWhole = 5  # per step of the generator
    penalty: NonNegative = 10.0  # weight of the penalty on the critic's gradient

    def check(self, ctx: Context) -> None:
        module, where = ctx.net.module, f"method {name_of(self)}"
        parts = {name for name, _ in module.named_children()}
        if not isinstance(getattr(module, "latent", None), int) or not parts.issuperset(PARTS):
            models = "wgan_gp_resnet or wgan_gp_small"
            raise without_parts("wgan_gp", "a generator and a critic", models)
        if ctx.net.mixes_in_training("critic"):
            why = "model: expected a critic without BatchNorm: the penalty is on each image's slope"
            raise refusal(where, why, "model")
        makes, span = getattr(module, "pixel_range", None), ctx.inputs.span
        if makes and span and not makes[0] <= span[0] <= span[1] <= makes[1]:
            of_data, of_model = ("{:.3g} to {:.3g}".format(*each) for each in (span, makes))
            why = f"pixels from {of_data}: expected 'symmetric', as its model makes those from"
            raise refusal(where, f"scaling: {why} {of_model}", "scaling", span)

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "losses": torch.zeros(2, device=ctx.net.device)}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        trainable = ctx.net.trainable(ctx.initial)
        states = {name: ctx.optimizer.init(part_of(trainable, name)) for name in PARTS}
        taken = torch.zeros((), dtype=torch.long, device=ctx.net.device)
        return {"optimizers": states, "taken": taken}

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        # A seed, because the number of samples in a mini-batch is not known here.
        return {"seed": torch.randint(2**62, (steps,), generator=rng)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        if not isinstance(steps, Steps):
            why = "'vectorised': a generator and its critic take turns: use 'sequential'"
            raise refusal("executor", why, "name", "vectorised")
        generator, critic = (
            _Player(ctx, name, message["params"], client_state["optimizers"][name])
            for name in PARTS
        )
        taken, rate, losses = int(client_state["taken"]), float(ctx.lr), torch.zeros(len(steps), 2)
        with torch.enable_grad():
            for place, batch in enumerate(steps):
                real = batch["x"]
                rng = torch.Generator().manual_seed(int(batch["seed"]))
                with torch.no_grad():
                    fake = generator(self.noise(ctx, len(real), rng).to(real))
                places = torch.rand(len(real), generator=rng).to(real)
                loss = critic_loss(critic, real, fake, places, self.penalty)
                critic.follow(loss, rate)
                losses[place, 0] = loss.detach()
                taken += 1
                if taken % self.critic_steps == 0:
                    made = generator(self.noise(ctx, len(real), rng).to(real))
                    loss = generator_loss(critic(made))
                    generator.follow(loss, rate)
                    losses[place, 1] = loss.detach()
        params = {
            f"{name}.{key}": leaf.detach()
            for name, player in zip(PARTS, (generator, critic), strict=True)
            for key, leaf in player.params.items()
        }
        delta = tree.subtract(message["params"], ctx.net.ordered(params))
        turns = max(1, taken // self.critic_steps - int(client_state["taken"]) // self.critic_steps)
        means = losses.sum(0) / torch.tensor([len(steps), turns])
        update = {"delta": delta, "losses": means.to(ctx.net.device)}
        if not self.carries:
            return update, client_state
        optimizers = {"generator": generator.state, "critic": critic.state}
        return update, {
            "optimizers": optimizers,
            "taken": torch.full_like(client_state["taken"], taken),
        }

    def noise(self, ctx: Context, samples: int, rng: torch.Generator) -> Tensor:
        """The generator's input noise for samples, [samples, latent]."""
        latent = cast(int, ctx.net.module.latent)
        return torch.randn(samples, latent, generator=rng)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        losses = tree.weighted_sum(updates["losses"], weights)
        if not tree.all_finite(updates["delta"]):
            return {**server, "losses": torch.full_like(losses, torch.nan)}
        return {**super().server_update(ctx, server, updates, weights), "losses": losses}

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        about = {"latent": cast(int, ctx.net.module.latent)}
        return Artifact(part_of(server["params"], "generator"), part="generator", about=about)

    def metrics(self, ctx: Context, server: Tree) -> dict[str, float]:
        critic, generator = server["losses"].tolist()
        return {"critic_loss": critic, "generator_loss": generator}

    def images(self, ctx: Context, server: Tree) -> Tensor:
        """Samples of the same noise in every round."""
        noise = self.noise(ctx, SHOWN, stream(ctx.seed, "shown")).to(ctx.net.device)
        net = Net(ctx.net.module.get_submodule("generator"))
        with torch.no_grad():
            return net.predict(part_of(server["params"], "generator"), noise)
