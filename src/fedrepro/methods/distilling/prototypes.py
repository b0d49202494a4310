"""FedTGP's trainable prototypes (Zhang et al., AAAI 2024): pure functions of tensors.

Clients send the mean features of each class that they have. The server trains a small network that
makes one prototype per class, so that each client prototype is nearest to its own class's by a
margin; clients pull their features towards these.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.tree import Tree
from fedrepro.methods.generating.synthetic import mean_over


def generated(net: Tree) -> Tensor:
    """The prototypes [classes, features] that the server's network makes.

    Args:
        net: ``embedding`` [classes, hidden], ``hidden`` and ``output``, each a tree of ``weight``
            and ``bias`` of a linear layer; ReLU between them.
    """
    hidden = functional.linear(net["embedding"], net["hidden"]["weight"], net["hidden"]["bias"])
    output = net["output"]
    return functional.linear(torch.relu(hidden), output["weight"], output["bias"])


def margin(prototypes: Tensor, there: Tensor, most: float = 100.0) -> Tensor:
    """The largest distance of a class's mean prototype to its nearest other, at most ``most``.

    A scalar tensor; 0 if fewer than two classes occur.

    Args:
        prototypes: of clients [clients, classes, features].
        there: bool [clients, classes]: which a client has.
    """
    counts = there.sum(0)
    mean = (prototypes * there[..., None]).sum(0) / counts.clamp(min=1)[:, None]
    mean = mean[counts > 0]
    if len(mean) < 2:
        return mean.new_zeros(())
    apart = torch.cdist(mean, mean, compute_mode="donot_use_mm_for_euclid_dist")
    apart.fill_diagonal_(torch.inf)
    return apart.min(1).values.max().clamp(max=most)


def contrast(net: Tree, prototypes: Tensor, labels: Tensor, gap: Tensor) -> Tensor:
    """The server's loss: cross-entropy of negative distances, the true class's plus ``gap``.

    Args:
        net: as in :func:`generated`.
        prototypes: clients' [n, features].
        labels: their classes, int64 [n].
        gap: from :func:`margin`.
    """
    centres = generated(net)
    distances = (prototypes[:, None] - centres).square().sum(-1).sqrt()
    own = labels[:, None] == torch.arange(len(centres), device=labels.device)
    return functional.cross_entropy(-(distances + own * gap), labels)


def pull(
    features: Tensor,
    prototypes: Tensor,
    labels: Tensor,
    strength: float = 0.001,
    real: Tensor | None = None,
) -> Tensor:
    """A client's loss term: ``strength`` times the mean square of features minus prototypes.

    Args:
        features: [n, features].
        prototypes: the server's [classes, features].
        labels: int64 [n].
        real: [n], 1 for samples that count, 0 for padding; None: all count.
    """
    distances = (features - prototypes[labels]).square().mean(-1)
    return strength * mean_over(distances, real)
