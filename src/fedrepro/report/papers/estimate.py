"""A few seeds' values as mean, standard deviation and 95 % interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def student_t(degrees: float) -> float:
    """The 97.5 % quantile of Student's t: 4.30 for 2 degrees of freedom, 1.96 for many."""
    from scipy.special import stdtrit  # takes half a second, which most commands save

    return float(stdtrit(degrees, 0.975))


@dataclass(frozen=True)
class Estimate:
    """The statistics of ``n`` values.

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

    @property
    def reach_of_a_draw(self) -> float | None:
        """Half the 95 % prediction interval of one further value; None if ``n`` is 1."""
        if self.std is None:
            return None
        return student_t(self.n - 1) * self.std * math.sqrt(1 + 1 / self.n)


@dataclass(frozen=True)
class Residual:
    """Residuals of several methods' values after removing each method's and each seed's mean.

    Attributes:
        std: the residual standard deviation of the two-way analysis of variance.
        degrees: its degrees of freedom, (methods - 1) (seeds - 1).
        methods: the number of different ones behind it.
    """

    std: float
    degrees: int
    methods: int

    @classmethod
    def of(cls, values: Sequence[Sequence[float]]) -> "Residual | None":
        """The residual of values [methods, seeds]; methods with identical values count once.

        None for fewer than two methods or seeds.
        """
        table = np.array(sorted({tuple(row) for row in values}))
        if table.ndim != 2 or min(table.shape) < 2:
            return None
        rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
        degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
        return cls(float(np.sqrt((rest**2).sum() / degrees)), degrees, table.shape[0])

    def limit(self, seeds: int) -> float:
        """The 95 % limit for the difference of two means over the same ``seeds``."""
        return student_t(self.degrees) * self.std * math.sqrt(2 / seeds)
