"""A few seeds' values as mean, standard deviation and 95 % interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

LEVEL = 0.05


@cache
def student_t(degrees: float, level: float = LEVEL) -> float:
    """Student's t that is exceeded, on either side, with probability ``level``.

    4.30 for 2 degrees of freedom at 5 %, 1.96 for many.
    """
    from scipy.special import stdtrit  # takes half a second, which most commands save

    return float(stdtrit(degrees, 1 - level / 2))


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
        """The statistics of these values; raises ValueError without any."""
        n = len(values)
        if n == 0:
            raise ValueError("an estimate needs at least one value")
        mean = math.fsum(values) / n
        if n == 1:
            return cls(1, mean, None, None)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        return cls(n, mean, std, student_t(n - 1) * std / math.sqrt(n))


@dataclass(frozen=True)
class Borrowed:
    """A spread for a method with one seed, measured elsewhere.

    Attributes:
        degrees: of freedom of ``std``.
        source: where it was measured, in words.
    """

    std: float
    degrees: int
    source: str

    @property
    def limit(self) -> float:
        """The 95 % limit of the difference of two single draws with this spread."""
        return student_t(self.degrees) * self.std * math.sqrt(2)


def _are_apart(values: Sequence[float], others: Sequence[float], by: float) -> bool:
    return any(abs(one - other) > by for one, other in zip(values, others, strict=True))


@dataclass(frozen=True)
class Paired:
    """A method's own spread over seeds that the authors used too.

    Attributes:
        std: over the seeds, of its value less the median of the other methods' values there. The
            median removes what a seed does to all methods; it varies, too, so this is rather too
            wide than too narrow. No other method's spread is pooled with it.
        seeds: their number; one less are the degrees of freedom.
        others: how many methods the median is over; twins count once.
    """

    std: float
    seeds: int
    others: int

    @classmethod
    def of(
        cls, own: Sequence[float], others: Sequence[Sequence[float]], twins: float
    ) -> "Paired | None":
        """The spread of a method, from its and others' values by seed.

        Args:
            twins: methods whose values differ by at most this with every seed are twins. A
                method's twins are left out, and of twins among the others the first counts.

        None if no other method is left, or for one seed.
        """
        distinct: list[Sequence[float]] = [own]
        for values in others:
            if all(_are_apart(values, each, twins) for each in distinct):
                distinct.append(values)
        if len(own) < 2 or len(distinct) < 2:
            return None
        table = np.array(distinct)
        table = table - table.mean(axis=1, keepdims=True)
        rest = table[0] - np.median(table[1:], axis=0)
        return cls(float(np.std(rest, ddof=1)), len(own), len(distinct) - 1)
