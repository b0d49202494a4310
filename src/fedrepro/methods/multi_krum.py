r"""Multi-Krum (Blanchard et al., NeurIPS 2017, section 4, "Multi-Krum"). A wrapper.

$$ w \leftarrow w - \frac{1}{q} \sum_{k \in B} \Delta_k, \quad B \text{: the } q \text{ lowest
scores } \sum_{j \in N_k} \|\Delta_k - \Delta_j\|^2 $$

Symbols: $N_k$, $f$: as for Krum; $q$: ``number``.

The server moves by the mean of the ``number`` updates with the lowest scores of
:mod:`fedrepro.methods.krum`. The default, m - f - 2 but at least 1, is the largest number for which
resilience is proven (Damaskinos et al., MLSys 2019, "AggregaThor").

https://arxiv.org/abs/1703.02757
"""

from dataclasses import dataclass

from fedrepro.engine.fidelity import PositiveWhole
from fedrepro.methods.krum import Krum


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Multi-Krum (Blanchard et al., NeurIPS 2017, section 4)."""

    number: PositiveWhole | None = None  # the updates that the server averages; None: m - f - 2

    def selected(self, cohort: int, attackers: int) -> int:
        return min(self.number or max(cohort - attackers - 2, 1), cohort)
