r"""FedCGAN: a class-conditional generator, averaged by the server (baseline of thesis chapter IV).

$$ \min_D \; {-} \mathbb{E} \left[ \log D(x) + \log D(y | x) + \log(1 - D(\tilde x)) + \log D(y |
\tilde x) \right], \quad \tilde x = G(z, y) $$

$$ \min_G \; {-} \mathbb{E} \left[ \log D(\tilde x) + \log D(y | \tilde x) \right] $$

Symbols: $D(x)$: the probability of being real; $D(y | x)$: that of class $y$.

The network is AC-GAN (Odena et al., ICML 2017, "Conditional image synthesis with auxiliary
classifier GANs"): its discriminator also classifies. Clients train it and the generator on their
own samples, one simultaneous step of each per mini-batch, with as many fakes of the same classes.
The server averages both, weighted by samples. Optimizers restart in every round. The artifact is a
set of images that the generator makes from noise drawn once per run, the same number per class.

In the released code, the classes that the discriminator is told for fakes are drawn independently
of those that the generator was told (43), and the generator's step follows the discriminator's,
on a second pass through both. The setting defines rounds and scaling.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.fidelity import PositiveWhole, one_of
from fedrepro.engine.method import Artifact, Context, Method, Tree, deviation, tree
from fedrepro.methods.generating import parts
from fedrepro.methods.generating import synthetic as sets

PARTS = ("generator", "discriminator")


@dataclass(frozen=True)
class FedCGAN(Method):
    """FedCGAN (thesis chapter IV), of AC-GAN (Odena et al., ICML 2017).

    Attributes:
        per_class: images of each class in the artifact.
        labels_of_fakes: the classes of fakes that the discriminator is told: "made", those of
            the generator, or "drawn", independent ones.
    """

    classifies: ClassVar[bool] = False

    per_class: PositiveWhole = 10
    labels_of_fakes: Annotated[str, one_of("made", "drawn")] = deviation(
        "made", "drawn", "43", "unrelated to what was generated"
    )

    def check(self, ctx: Context) -> None:
        parts.require_parts("fedcgan", ctx, PARTS, "fedcgan or fedcgan_small")
        sets.check_images("fedcgan", ctx, (-1.0, 1.0))

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        latent, width = parts.latent_of(ctx), ctx.batch_size
        return {
            "noise": 2 * torch.rand(steps, width, latent, generator=rng) - 1,
            "drawn": torch.randint(ctx.inputs.classes, (steps, width), generator=rng),
        }

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        """Both losses; each graph ends where the other network's begins."""
        real, y, counts = batch["x"], batch["y"], batch.get("real")
        classes = sets.one_hot(y, ctx.inputs.classes).to(real)
        noise = batch["noise"][: len(y)].to(real)
        made = parts.call(ctx, params, "generator", torch.cat([noise, classes], 1))
        scores = parts.call(ctx, params, "discriminator", torch.cat([made.detach(), real]))
        of_made, of_real = scores.split((len(y), len(y)))
        stopped = tree.apply(Tensor.detach, params)
        fooled = parts.call(ctx, stopped, "discriminator", made)
        drawn = batch["drawn"][: len(y)]
        losses = (
            functional.softplus(-of_real[:, 0])
            + functional.softplus(of_made[:, 0])
            + _class_loss(of_real, y)
            + _class_loss(of_made, drawn if self.labels_of_fakes == "drawn" else y)
            + functional.softplus(-fooled[:, 0])
            + _class_loss(fooled, y)
        )
        return sets.mean_over(losses, counts)

    # --- use --------------------------------------------------------------------------------
    def made(self, ctx: Context, server: Tree) -> tuple[Tensor, Tensor]:
        """The set: images and their classes."""
        items = ctx.inputs.classes * self.per_class
        noise = 2 * torch.rand(items, parts.latent_of(ctx), generator=parts.of_run(ctx)) - 1
        return parts.conditional_set(ctx, server["params"], "generator", noise, self.per_class)

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return sets.as_artifact(*self.made(ctx, server), ctx.inputs.classes)

    def metrics(self, ctx: Context, server: Tree) -> dict[str, float]:
        """Of the set: mean probability of being real, and share with a recognised class."""
        x, y = self.made(ctx, server)
        with torch.no_grad():
            scores = ctx.net.predict(server["params"], x)
        right = (scores[:, 1:].argmax(1) == y).to(scores.dtype)
        return {
            "taken_for_real": float(scores[:, 0].sigmoid().mean()),
            "recognised": float(right.mean()),
        }

    def images(self, ctx: Context, server: Tree) -> Tensor:
        return sets.sheet(self.made(ctx, server)[0], ctx.inputs.classes)


def _class_loss(scores: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of the class head, [n]."""
    return functional.cross_entropy(scores[:, 1:], y, reduction="none")
