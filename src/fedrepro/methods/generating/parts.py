"""Networks that are parts of a setting's model, such as the generator of a GAN."""

import torch
from torch import Tensor

from fedrepro.engine.method import Context, Tree
from fedrepro.engine.modules import called
from fedrepro.engine.net import Net, part_of
from fedrepro.methods.generating import synthetic
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.rng import stream


def call(ctx: Context, params: Tree, name: str, x: Tensor) -> Tensor:
    """The output of one of the model's networks for ``x`` in training."""
    module = ctx.net.module.get_submodule(name)
    return called(module, part_of(params, name), (x,))  # type: ignore[no-any-return]


def latent_of(ctx: Context) -> int:
    """The size of the generator's noise input, without the class."""
    latent = ctx.net.module.latent
    assert isinstance(latent, int)
    return latent


def require_parts(method: str, ctx: Context, names: tuple[str, str], models: str) -> None:
    """Raises UserError unless the setting's model has these parts and makes images of classes."""
    module = ctx.net.module
    has = {name for name, _ in module.named_children()}
    if not (set(names) <= has and hasattr(module, "latent") and hasattr(module, "classes")):
        raise without_parts(method, f"{names[0]} and {names[1]}", models)


def without_parts(method: str, parts: str, models: str) -> UserError:
    """The error for a setting's model that lacks ``parts``, with the ``models`` that have them."""
    return refusal(f"method {method}", f"model: expected one with {parts}: {models}", "model")


def conditional_set(
    ctx: Context, params: Tree, name: str, noise: Tensor, per_class: int
) -> tuple[Tensor, Tensor]:
    """Images of a conditional generator, ``per_class`` of each class, and their classes.

    Args:
        noise: [classes * per_class, latent].
    """
    y = synthetic.labels_of(ctx.inputs.classes, per_class, ctx.net.device)
    inputs = torch.cat([noise.to(ctx.net.device), synthetic.one_hot(y, ctx.inputs.classes)], 1)
    net = Net(ctx.net.module.get_submodule(name))
    with torch.no_grad():
        return net.predict(part_of(params, name), inputs), y


def of_run(ctx: Context) -> torch.Generator:
    """The noise of the artifact and the sample sheets: the same in every round."""
    return stream(ctx.seed, "synthetic set")
