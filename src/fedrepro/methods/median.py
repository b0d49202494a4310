r"""The coordinate-wise median (Yin et al., ICML 2018, Definition 1 and Algorithm 1). A wrapper.

$$ w_i \leftarrow w_i - \mathrm{median}_k \, \Delta_{k,i} \quad \text{for every parameter } i $$

The paper is "Byzantine-robust distributed learning: towards optimal statistical rates". The server
moves by the median of the clients' updates, for every parameter by itself; of an even number, by
the mean of the two in the middle. NaN counts as the largest value.

https://arxiv.org/abs/1803.01498
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.context import Context
from fedrepro.methods._combining import Combining


@dataclass(frozen=True)
class Median(Combining):
    """Coordinate-wise median (Yin et al., ICML 2018, Algorithm 1, option I)."""

    def combined(self, ctx: Context, deltas: Tensor) -> Tensor:
        cohort = len(deltas)
        # Not torch.median, which takes the lower of the two in the middle and spreads NaN.
        return deltas.sort(0).values[(cohort - 1) // 2 : cohort // 2 + 1].mean(0)
