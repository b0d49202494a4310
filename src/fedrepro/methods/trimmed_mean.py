r"""The coordinate-wise trimmed mean (Yin et al., ICML 2018, Definition 2). A wrapper.

$$ w_i \leftarrow w_i - \frac{1}{m - 2b} \sum_{j=b+1}^{m-b} \Delta_{(j),i}, \quad b = \lfloor \beta
m \rfloor, \quad \Delta_{(1),i} \le \dots \le \Delta_{(m),i}, \quad \text{for every parameter } i $$

The paper is "Byzantine-robust distributed learning: towards optimal statistical rates" (Algorithm
1, option II). For every parameter by itself, the server leaves out the largest and the smallest
``share`` of the clients' updates (beta, rounded down to whole clients) and moves by the mean of the
others. It withstands attackers up to that share of a cohort. NaN counts as the largest value.

https://arxiv.org/abs/1803.01498
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.context import Context
from fedrepro.methods._combining import Withstanding


@dataclass(frozen=True)
class TrimmedMean(Withstanding):
    """Coordinate-wise trimmed mean (Yin et al., ICML 2018, Algorithm 1, option II)."""

    share: float = 0.2  # beta, of a cohort at each end

    def combined(self, ctx: Context, deltas: Tensor) -> Tensor:
        cut = self.attackers(ctx)
        return deltas.sort(0).values[cut : len(deltas) - cut].mean(0)
