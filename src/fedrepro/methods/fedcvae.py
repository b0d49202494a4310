r"""FedCVAE: a class-conditional decoder, averaged by the server (baseline of thesis chapter IV).

$$ \min \; \mathbb{E} \left[ \frac{1}{d} \|x - \mathrm{Dec}(z, y)\|^2 + \mathrm{KL} \left(
\mathcal{N}(\mu(x), \sigma^2(x)) \, \| \, \mathcal{N}(0, I) \right) \right], \quad z \sim
\mathcal{N}(\mu(x), \sigma^2(x)) $$

Symbols: $d$: number of pixel values; $\mu(x)$, $\sigma(x)$: outputs of the encoder; $z$: the code
that is drawn with them.

The network is a conditional variational autoencoder (Sohn et al., NIPS 2015, "Learning structured
output representation using deep conditional generative models"); as in the released code, only the
decoder is told the class. Clients train encoder and decoder on their own samples, and the server
averages both, weighted by samples. Optimizers restart in every round. The artifact is a set of
images that the decoder makes from noise drawn once per run, the same number per class.

The thesis does not state the objective. As in the released code, it is the mean squared error per
pixel plus the full KL divergence of the code from the standard normal. The second term outweighs
the first so much that codes carry almost no information: all images of a class come out close to
the class's mean. With ``error: image`` the objective is the bound for a normal density, half of
each image's squared error. Codes then also encode the class, because the encoder is not told it,
and an image may show another class than its label.
The setting defines rounds and scaling, the same for all methods (43).
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.fidelity import PositiveWhole, one_of
from fedrepro.engine.method import Artifact, Context, Method, Tree
from fedrepro.methods.generating import parts
from fedrepro.methods.generating import synthetic as sets

PARTS = ("encoder", "decoder")
LEAST = 1e-8  # of a standard deviation


@dataclass(frozen=True)
class FedCVAE(Method):
    """FedCVAE (thesis chapter IV), of a conditional autoencoder (Sohn et al., NIPS 2015).

    Attributes:
        per_class: images of each class in the artifact.
        error: of an image: "image", half the sum of its squared errors, or "pixel", their mean.
    """

    classifies: ClassVar[bool] = False

    per_class: PositiveWhole = 10
    error: Annotated[str, one_of("image", "pixel")] = "pixel"

    def check(self, ctx: Context) -> None:
        parts.require_parts("fedcvae", ctx, PARTS, "fedcvae or fedcvae_small")
        sets.check_images("fedcvae", ctx, (0.0, 1.0))

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return {"noise": torch.randn(steps, ctx.batch_size, parts.latent_of(ctx), generator=rng)}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        real, y = batch["x"], batch["y"]
        mean, spread = parts.call(ctx, params, "encoder", real).chunk(2, dim=1)
        deviation = functional.softplus(spread) + LEAST
        code = mean + deviation * batch["noise"][: len(y)].to(real)
        decoded = torch.cat([code, sets.one_hot(y, ctx.inputs.classes).to(real)], 1)
        errors = (parts.call(ctx, params, "decoder", decoded) - real).square().flatten(1)
        error = errors.sum(1) / 2 if self.error == "image" else errors.mean(1)
        apart = (mean.square() + deviation.square() - 1) / 2 - deviation.log()
        return sets.mean_over(error + apart.sum(1), batch.get("real"))

    # --- use --------------------------------------------------------------------------------
    def made(self, ctx: Context, server: Tree) -> tuple[Tensor, Tensor]:
        """The set: images and their classes."""
        items = ctx.inputs.classes * self.per_class
        noise = torch.randn(items, parts.latent_of(ctx), generator=parts.of_run(ctx))
        return parts.conditional_set(ctx, server["params"], "decoder", noise, self.per_class)

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return sets.as_artifact(*self.made(ctx, server), ctx.inputs.classes)

    def images(self, ctx: Context, server: Tree) -> Tensor:
        return sets.sheet(self.made(ctx, server)[0], ctx.inputs.classes)
