"""Ranks of methods over several settings, with Nemenyi's critical difference.

As in J. Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrepro.report.papers.estimate import LEVEL

DIGITS = 9  # after the first, to which scores are compared
RESIDUE = 1e-12  # what rounding errors leave of 0, of the largest score, or of 1 if that is above


def ranks(scores: Sequence[float]) -> list[float]:
    """The rank of each score, 1 for the greatest; equal ones share the mean of their ranks.

    Scores are means of sums, so equal ones may differ by rounding errors, which are relative.
    """
    largest = max((abs(score) for score in scores if math.isfinite(score)), default=0.0)
    least = RESIDUE * min(1.0, largest)
    scores = [0.0 if abs(score) < least else float(f"{score:.{DIGITS}e}") for score in scores]
    return [
        sum(other > score for other in scores) + (scores.count(score) + 1) / 2 for score in scores
    ]


def critical_difference(methods: int, settings: int) -> float:
    """The least difference of two mean ranks that is significant at 5 % (Nemenyi).

    Args:
        methods: how many are compared, at least 2.
        settings: over how many independent settings, at least 1.
    """
    from scipy.special import ndtri
    from scipy.stats import studentized_range

    # The range of two normal numbers needs no table, whose quantile takes a second.
    if methods == 2:
        q = float(ndtri(1 - LEVEL / 2))
    else:
        q = float(studentized_range.ppf(1 - LEVEL, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * settings))


@dataclass(frozen=True)
class MeanRanks:
    """Methods by their mean rank, the best first.

    Attributes:
        settings: over how many.
        critical: Nemenyi's critical difference.
    """

    means: Mapping[str, float]
    settings: int
    critical: float

    @property
    def can_decide(self) -> bool:
        """Return True if any difference of mean ranks could be critical with so few settings."""
        return self.critical <= len(self.means) - 1

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The largest groups of two and more methods that do not differ significantly."""
        names, groups = [*self.means], []
        end = 0
        for start, first in enumerate(names):
            least = self.means[first]
            near = [name for name in names[start:] if self.means[name] - least < self.critical]
            if len(near) > 1 and start + len(near) > end:
                groups.append(tuple(near))
                end = start + len(near)
        return groups

    def apart_from(self, name: str) -> tuple[list[str], list[str]]:
        """The methods that are significantly better than one, and those that are worse."""
        own = self.means[name]
        better = [each for each, mean in self.means.items() if own - mean >= self.critical]
        return better, [each for each, mean in self.means.items() if mean - own >= self.critical]


def mean_ranks(settings: Sequence[Sequence[Mapping[str, float]]]) -> MeanRanks | None:
    """Rank the methods that have a score in every row; None with fewer than two of them.

    Args:
        settings: the rows of each setting: scores by method, greater is better. The rows of one
            setting come from the same runs, so their ranks are averaged and count once.
    """
    rows = [row for setting in settings for row in setting]
    common = set.intersection(*(set(row) for row in rows)) if rows else set()
    if len(common) < 2:
        return None
    names = [name for name in rows[0] if name in common]
    sums = dict.fromkeys(names, 0.0)
    for setting in settings:
        for row in setting:
            row_ranks = ranks([row[name] for name in names])
            for name, rank in zip(names, row_ranks, strict=True):
                sums[name] += rank / len(setting) / len(settings)
    ordered = dict(sorted(sums.items(), key=lambda item: item[1]))
    return MeanRanks(ordered, len(settings), critical_difference(len(names), len(settings)))
