"""Similarity of two networks' features: linear CKA (Kornblith et al., ICML 2019)."""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from operator import add

import torch
from torch import Tensor

from fedrepro.support.errors import bad_value, refusal


def linear_cka(one: Tensor, other: Tensor) -> float:
    """Linear centred kernel alignment of features [n, p] and [n, q] of the same samples: 0 to 1.

    |Y'X|^2 / (|X'X| |Y'Y|) after centring, in Frobenius norms (their eq. 6); NaN if one of them is
    constant over samples. Invariant to rotation and scaling.

    Raises:
        UserError: if they have different numbers of samples.
    """
    if len(one) != len(other):
        why = f"features of {len(one)} and {len(other)} samples: expected the same"
        raise refusal("CKA", why, "features")
    x, y = (each.double() - each.double().mean(0) for each in (one, other))
    norm = torch.linalg.matrix_norm(x.T @ x) * torch.linalg.matrix_norm(y.T @ y)
    return float(torch.linalg.matrix_norm(y.T @ x).square() / norm)


def mean_cka(features: Sequence[Tensor]) -> float:
    """:func:`linear_cka` averaged over all pairs, as IMA's Figure 4 is read (discrepancy B16).

    Raises:
        UserError: if there are fewer than two.
    """
    if len(features) < 2:
        raise bad_value("CKA", "models", len(features), "at least two, for a pair")
    return mean([linear_cka(one, other) for one, other in combinations(features, 2)])


def mean(values: Sequence[float]) -> float:
    """The mean, with the same bits in every Python: sum() rounds in another way since 3.12."""
    return reduce(add, values) / len(values)
