"""Shared code of methods that produce a small labelled set of images; FedEvg's arithmetic."""

import math

import torch
from torch import Tensor

from fedrepro.engine.method import SAMPLES, Artifact, Context, LoadedArtifact
from fedrepro.support.errors import refusal

SHOWN = 10  # at most this many images of a class on a sample sheet


def check_images(method: str, ctx: Context, range: tuple[float, float] | None = None) -> None:
    """Refuse a federation from which no labelled set of images can be made.

    Args:
        range: of pixels that the method's model makes; None: any.

    Raises:
        UserError: one line that gives the reason.
    """
    inputs, where = ctx.inputs, f"method {method}"
    if ctx.task.name != "classification" or len(inputs.shape) != 3:
        raise refusal(where, "expected images with classes, from (channels, h, w)")
    if inputs.range is None:
        expected = "'unit' or 'symmetric', so that all channels of an image have the same range"
        raise refusal(where, f"scaling: expected {expected}", "scaling")
    if range is not None and inputs.range != range:
        name = {(0.0, 1.0): "unit", (-1.0, 1.0): "symmetric"}[range]
        low, high = inputs.range
        why = (
            f"scaling: pixels from {low:g} to {high:g}: expected {name!r}, as its model makes "
            f"pixels from {range[0]:g} to {range[1]:g}"
        )
        raise refusal(where, why, "scaling", inputs.range)
    if inputs.unheld:
        classes = ", ".join(map(str, inputs.unheld))
        why = (
            f"partition: no client has a training sample of class {classes}: expected at least "
            "one sample of each class"
        )
        raise refusal(where, why, "partition")


def check_set(where: str, ctx: Context, given: LoadedArtifact, per_class: int) -> None:
    """Refuse a given set unless it has ``per_class`` images of each class, ordered by class.

    Raises:
        UserError: one line that says what differs.
    """
    x, y = (given.tensors.get(name) for name in ("x", "y"))
    classes = ctx.inputs.classes
    if x is None or y is None:
        raise refusal(where, "samples without classes: expected a synthetic set")
    if not torch.equal(y, labels_of(classes, per_class, y.device)):
        why = (
            f"{len(y)} samples of {len(y.unique())} classes: expected {per_class} of each of "
            f"{classes}, ordered by class"
        )
        raise refusal(where, why)
    if len(x) != len(y) or not x.isfinite().all():
        why = f"{len(x)} images for {len(y)} classes, or values not finite"
        raise refusal(where, why, code="damaged")


def labels_of(classes: int, per_class: int, device: torch.device) -> Tensor:
    """Labels of a set with equal numbers of all classes, ordered by class; int64."""
    return torch.arange(classes, device=device).repeat_interleave(per_class)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """[n, classes]; unlike PyTorch's, or bincount, it works for clients side by side."""
    hits = labels[:, None] == torch.arange(classes, device=labels.device)
    return hits.to(torch.get_default_dtype())


def as_artifact(x: Tensor, y: Tensor, classes: int) -> Artifact:
    """The set as a run's artifact."""
    facts = {"classes": classes, "per_class": len(y) // classes}
    return Artifact({"x": x, "y": y}, part=SAMPLES, about=facts)


def mean_over(values: Tensor, counts: Tensor | None) -> Tensor:
    """The mean of ``values`` [n] over samples that count (``counts`` [n]: 1, or 0 for padding)."""
    if counts is None:
        return values.mean()
    return (values * counts).sum() / counts.sum().clamp(min=1)


def sheet(images: Tensor, classes: int) -> Tensor:
    """Up to :data:`SHOWN` images of every class, of ``images`` [classes * n, ...], by class."""
    by_class = images.reshape(classes, -1, *images.shape[1:])[:, :SHOWN]
    return by_class.reshape(-1, *images.shape[1:])


# --- FedEvg ------------------------------------------------------------------------------------


def mixture_gradient(weights: Tensor, factors: Tensor, gradients: Tensor) -> Tensor:
    """The gradient of the mixture's energy at every synthetic item (eq. 4.13), [items, ...].

    That of -log sum_k w_k exp(-E_k) (eq. 4.11) where ``factors`` are exp(-E_k); assumes equal
    normalising constants of the clients' densities.

    Args:
        weights: of clients, w_k [clients].
        factors: [clients, items].
        gradients: of the clients' energies, [clients, items, ...].
    """
    shares = weights[:, None].to(factors.dtype) * factors
    shares = shares / shares.sum(0)
    return (shares.reshape(*shares.shape, *[1] * (gradients.dim() - 2)) * gradients).sum(0)


def alikeness(gradients: Tensor, classes: int) -> Tensor:
    """How alike the gradients of a class are: 1 if all its items move together, a scalar tensor.

    The length of their mean divided by their root mean square length, averaged over classes;
    independent gradients of n items give 1 / sqrt(n).

    Args:
        gradients: [classes * n, ...], ordered by class.
    """
    by_class = gradients.reshape(classes, -1, gradients[0].numel())
    means = torch.linalg.vector_norm(by_class.mean(1), dim=1)
    usual = by_class.square().sum(2).mean(1).sqrt()
    alike: Tensor = means / usual.clamp(min=torch.finfo(usual.dtype).tiny)
    return alike.mean()


def langevin(
    x: Tensor, gradient: Tensor, noise: Tensor, step: float, scale: float, clip: float = 0.0
) -> Tensor:
    """One step of stochastic gradient Langevin dynamics, x - step g + scale noise (eq. 4.14).

    Args:
        noise: standard normal, as ``x``.
        clip: the largest component of the gradient that is used; 0: any.
    """
    if clip:
        gradient = gradient.clamp(-clip, clip)
    return x - step * gradient + scale * noise


def cosine(first: float, last: float, rounds: int, round: int) -> float:
    """The step of ``round`` (from 0): half a cosine from ``first`` to ``last``, both included."""
    way = round / (rounds - 1) if rounds > 1 else 0.0
    return last + (first - last) * (1 + math.cos(math.pi * way)) / 2


def ddpm(first: float, last: float, rounds: int, round: int) -> float:
    """The step of ``round`` as released: close to ``first``, falling to ``last`` at the end.

    It interpolates by beta_t of the cosine schedule of Nichol and Dhariwal (ICML 2021), s = 0.008,
    without its limit of 0.999.
    """

    def kept(time: int) -> float:
        return math.cos((time / rounds + 0.008) / 1.008 * math.pi / 2) ** 2

    return first - (first - last) * (1 - kept(round + 1) / kept(round))


SCHEDULES = {"cosine": cosine, "ddpm": ddpm}
