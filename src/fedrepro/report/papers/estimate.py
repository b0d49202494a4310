"""A few seeds' values as mean, standard deviation and 95 % interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def student_t(degrees: float) -> float:
    """The 97.5 % quantile of Student's t: 4.30 for 2 degrees of freedom, 1.96 for many."""
    from scipy.special import stdtrit  # half a second, which most commands can do without

    return float(stdtrit(degrees, 0.975))


@dataclass(frozen=True)
class Estimate:
    """What ``n`` values say.

    Attributes:
        std: sample standard deviation (ddof 1); None for one value.
        half_width: of the mean's 95 % interval by Student's t; None for one value.
    """

    n: int
    mean: float
    std: float | None
    half_width: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Raises ValueError for no values."""
        n = len(values)
        if n == 0:
            raise ValueError("an estimate needs at least one value")
        mean = math.fsum(values) / n
        if n == 1:
            return cls(1, mean, None, None)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        return cls(n, mean, std, student_t(n - 1) * std / math.sqrt(n))
