r"""AAggFF-S (Hahn et al., ICML 2024, Algorithm 2), for full participation. A wrapper.

$$ r_k = C_1 + (C_2 - C_1) \, \mathrm{CDF} \left( F_k / \bar F \right), \quad \ell_t(p) = - \log(1 +
\langle p, r \rangle), \quad g_t = \nabla \ell_t(p_t) $$

$$ p_{t+1} = \mathrm{argmin}_{p \in \text{simplex}} \sum_{s \le t} \langle g_s, p \rangle +
\frac{\alpha}{2} \|p\|^2 + \frac{\beta}{2} \sum_{s \le t} \langle g_s, p - p_s \rangle^2 $$

Symbols: $K$: number of clients; $F_k$: the received model's loss, before training; $\bar F$: its
mean over clients.

The server learns the aggregation weights by the online Newton step (eq. 7) on the decision loss
-log(1 + <p, r>). r_i is client i's loss before training, divided by the mean loss and mapped by a
distribution function into [C1, C2] (eq. 8). alpha = 4 K L and beta = 1 / (4 L) with
L = C2 / (1 + C1), Lemma 4.1; by default C1 = 0 and C2 = 1 / K (discrepancy 9).

Released code: 1 (objective not centred, alpha twice), 2 (first weights 1, not 1 / K), 3 (normal
distribution function reversed), 13 (growing server learning rate). 14, redrawn pre-trained weights,
concerns the model, not the server.

https://arxiv.org/abs/2405.20821
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedrepro.engine.method import Method, Wrapper, deviation
from fedrepro.methods.adaptive_weighting import bounds, online_newton
from fedrepro.methods.adaptive_weighting.responses import Array, responses
from fedrepro.methods.adaptive_weighting.rule import (
    NEEDS_LOSSES,
    Decider,
    Decision,
    Observed,
    check_response,
    refused,
)
from fedrepro.support.errors import bad_value


@dataclass(frozen=True)
class AAggFFS(Decider, Wrapper):
    """AAggFF-S (Hahn et al., ICML 2024, Algorithm 2, eqs. 7 and 8)."""

    full_participation: ClassVar[bool] = True
    why_all: ClassVar[str] = NEEDS_LOSSES

    cdf: str = "weibull"  # frechet, gumbel, exponential, logistic or normal
    lower: float = 0.0  # C1: lower bound of responses
    upper: float | None = None  # C2: upper bound of responses; None: 1 / K
    centred: bool = deviation(
        True, released=False, item="1", why="quadratic not centred at past decisions, alpha twice"
    )
    uniform_start: bool = deviation(
        True, released=False, item="2", why="the first coefficients are all 1, not 1 / K"
    )
    rising_normal: bool = deviation(
        True, released=False, item="3", why="the normal distribution function falls, 1.5 to 0.5"
    )

    def __post_init__(self) -> None:
        check_response("method aaggff_s", self.cdf, self.lower, self.upper)

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        return refused(inner)

    def bounds(self, clients: int) -> tuple[float, float]:
        """C1 and C2."""
        upper = 1 / clients if self.upper is None else self.upper
        if upper <= self.lower:
            raise bad_value("method aaggff_s", "lower", self.lower, f"less than upper, {upper:g}")
        return self.lower, upper

    def regret_bound(self, rounds: int, clients: int, share: float) -> float:
        """Theorem 5.1."""
        return bounds.newton_bound(rounds, clients, bounds.lipschitz(*self.bounds(clients)))

    def memory(self, clients: int) -> dict[str, Array]:
        self.bounds(clients)
        return online_newton.begin(clients, 1 / clients if self.uniform_start else 1.0)

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        clients, (lower, upper) = observed.clients, self.bounds(observed.clients)
        response = responses(observed.losses, self.cdf, lower, upper, self.rising_normal)
        gradient = -response / (1 + memory["decision"] @ response)
        constant = bounds.lipschitz(lower, upper)
        alpha, beta = 4 * clients * constant, 1 / (4 * constant)
        after = online_newton.learn(memory, gradient, alpha, beta, self.centred)
        return Decision(np.copy(after["decision"]), after, response, gradient)
