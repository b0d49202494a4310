r"""FedDyn (Acar et al., ICLR 2021, "Federated learning based on dynamic regularization").

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) - \langle g_k, v \rangle + \frac{\alpha}{2} \|v - w\|^2,
\quad g_k \leftarrow g_k - \alpha (w_k - w) $$

$$ w \leftarrow \sum_k p_k w_k + h, \quad h = - \frac{1}{\alpha} \sum_{\text{all } k} \frac{n_k}{n}
g_k $$

Symbols: $g_k$: client $k$'s gradient when it last took part.

A client descends its loss plus alpha/2 |theta - w|^2 - <g_k, theta> (Algorithm 1, eq. 1), where g_k
is its gradient when it last took part (eq. 2; here ``h`` = -g_k / alpha). The server's ``h`` is the
mean of all clients' h, those included that do not take part, and the next model is the mean of the
cohort's models plus h. At a fixed point h is 0, so the gradients of all clients add up to 0.

Both means are weighted by samples, so that the fixed point minimises the mean loss over samples.
Algorithm 1 weights clients equally, and the authors' code divides alpha by a client's share of the
samples, with the same fixed point as here. That code also clips gradients to a norm of 10, and
scores the mean of the clients' models; neither is done here. alpha = 0.01 is the value of its
example; the paper chooses among 0.1, 0.01 and 0.001.

https://arxiv.org/abs/2111.04263
"""

from dataclasses import dataclass

from fedrepro.engine.fidelity import Positive
from fedrepro.methods.lagrangian.augmented import AugmentedLagrangian


@dataclass(frozen=True)
class FedDyn(AugmentedLagrangian):
    """FedDyn (Acar et al., ICLR 2021, Algorithm 1)."""

    alpha: Positive = 0.01  # strength of the regularisation

    @property
    def penalty(self) -> float:
        return self.alpha
