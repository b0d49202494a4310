"""Map losses to bounded responses (Hahn et al., ICML 2024, eq. 8 and Table A1).

r_i = C1 + (C2 - C1) CDF(F_i / mean of F), for one of six distribution functions.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.support.errors import bad_value

Array = NDArray[np.float64]

# Name -> distribution of scipy.stats and its parameters.
DISTRIBUTIONS: dict[str, tuple[str, dict[str, float]]] = {
    "weibull": ("weibull_min", {"c": 2.0}),
    "frechet": ("invweibull", {"c": 1.0}),
    "gumbel": ("gumbel_r", {"loc": 1.0}),
    "exponential": ("expon", {}),
    "logistic": ("logistic", {"loc": 1.0}),
    "normal": ("norm", {"loc": 1.0}),
}


@lru_cache
def _frozen(cdf: str) -> Any:
    from scipy import stats  # slow import, and not every run uses adaptive weighting

    name, parameters = DISTRIBUTIONS[cdf]
    return getattr(stats, name)(**parameters)


def distribution(cdf: str, rising_normal: bool = True) -> Callable[[Array], Array]:
    """A distribution function by name.

    Args:
        rising_normal: False gives the released normal one, (1 + erfc((x - 1) / sqrt 2)) / 2, which
            falls from 1.5 to 0.5 (discrepancy 3).
    """
    frozen = _frozen(cdf)
    if cdf == "normal" and not rising_normal:
        return lambda x: 0.5 + np.asarray(frozen.sf(x))
    return lambda x: np.asarray(frozen.cdf(x))


def with_ratios(losses: Array) -> Array:
    """The same losses.

    Raises:
        UserError: for one below 0, as of a loss of the user's own: ratios would turn around.
    """
    if losses.min() < 0:
        raise bad_value("adaptive weighting", "loss", float(losses.min()), "losses of at least 0")
    return losses


def relative(losses: Array) -> Array:
    """Losses divided by their mean; ones if all losses are zero, as for any equal losses."""
    largest = with_ratios(losses).max()
    if largest == 0:
        return np.ones_like(losses)
    scaled = losses / largest  # the mean of huge losses would overflow
    return np.asarray(scaled / scaled.mean())


def responses(
    losses: Array, cdf: str, lower: float, upper: float, rising_normal: bool = True
) -> Array:
    """Responses [m] of the clients whose losses [m], at least 0 and finite, were observed."""
    with np.errstate(over="ignore"):  # 1 / x of a vanishing loss; its limit is correct
        shares = distribution(cdf, rising_normal)(relative(losses))
    return np.asarray(lower + (upper - lower) * shares)
