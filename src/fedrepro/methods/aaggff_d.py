r"""AAggFF-D (Hahn et al., ICML 2024, Algorithm 3), for samples of many clients. A wrapper.

$$ \breve r_k = \bar r + \frac{[k \text{ takes part}]}{C} (r_k - \bar r), \quad g_t = - \frac{\breve
r}{1 + \bar r} + \frac{\bar r \, \langle p_t, \breve r - \bar r \mathbf{1} \rangle}{(1 + \bar r)^2}
\mathbf{1} $$

$$ p_{t+1, k} \propto \exp \left( - \frac{\sqrt{\log K}}{L \sqrt{t + 1}} \sum_{s \le t} g_{s, k}
\right) $$

Symbols: $K$: number of clients; $r_k$: the response of a client that took part, as in AAggFF-S;
$\bar r$: their mean; $p_t$: the weights of all clients in round $t$; $g_{s,k}$: client $k$'s entry
of $g_s$.

It differs from AAggFF-S in three points: it estimates the responses of clients that did not take
part (eq. 10), linearises the gradient of the decision loss (eq. 11), and has a closed form for the
weights (eq. 12), exponential in the sum of gradients, in time linear in the number of clients. The
cohort's weights are then divided by their sum (eq. 95). By default C1 = 0 and C2 = C, the
participation rate; L = C + 2 (Lemma A.2). Rounds count from 1 (discrepancies 6 and 7).

Released code: 2 (first weights C, not 1 / K), 3 (normal distribution function reversed), 4
(estimate without the mean for clients that took part), 13 (growing server learning rate).

https://arxiv.org/abs/2405.20821
"""

from dataclasses import dataclass

from fedrepro.engine.method import Method, Wrapper, deviation
from fedrepro.methods.adaptive_weighting import bounds, linear
from fedrepro.methods.adaptive_weighting.responses import Array, responses
from fedrepro.methods.adaptive_weighting.rule import (
    Decider,
    Decision,
    Observed,
    check_response,
    proportional,
    refused,
)
from fedrepro.support.errors import bad_value


@dataclass(frozen=True)
class AAggFFD(Decider, Wrapper):
    """AAggFF-D (Hahn et al., ICML 2024, Algorithm 3, eqs. 8 to 12 and 95)."""

    cdf: str = "weibull"  # frechet, gumbel, exponential, logistic or normal
    lower: float = 0.0  # C1: lower bound of responses
    upper: float | None = None  # C2: upper bound of responses; None: the participation rate
    uniform_start: bool = deviation(
        True, released=False, item="2", why="the first coefficients are all C, not 1 / K"
    )
    rising_normal: bool = deviation(
        True, released=False, item="3", why="the normal distribution function falls, 1.5 to 0.5"
    )
    doubly_robust: bool = deviation(
        True, released=False, item="4", why="sampled clients' estimates lack the mean response"
    )

    def __post_init__(self) -> None:
        check_response("method aaggff_d", self.cdf, self.lower, self.upper)

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        return refused(inner)

    def bounds(self, share: float) -> tuple[float, float]:
        """C1 and C2 for a participation rate of ``share``."""
        upper = share if self.upper is None else self.upper
        if upper <= self.lower:
            raise bad_value("method aaggff_d", "lower", self.lower, f"less than upper, {upper:g}")
        return self.lower, upper

    def regret_bound(self, rounds: int, clients: int, share: float) -> float:
        """Theorem 5.2."""
        constant = bounds.linearised_lipschitz(*self.bounds(share), share)
        return bounds.linear_bound(rounds, clients, constant)

    def memory(self, clients: int) -> dict[str, Array]:
        return linear.begin(clients, 1 / clients)

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        cohort, clients = observed.cohort, observed.clients
        share = len(cohort) / clients
        lower, upper = self.bounds(share)
        response = responses(observed.losses, self.cdf, lower, upper, self.rising_normal)
        mean = float(response.mean())
        first = observed.round == 0 and not self.uniform_start
        decision = linear.begin(clients, share)["decision"] if first else memory["decision"]
        total = share * clients if first else 1.0
        estimated = linear.estimate(response, share, mean, self.doubly_robust)
        gradient = linear.linearise(estimated, mean, decision, cohort, total)
        constant = bounds.linearised_lipschitz(lower, upper, share)
        after = linear.learn(memory, gradient, cohort, observed.round + 1, constant)
        weights = proportional(after["decision"][cohort])
        return Decision(weights, after, response, gradient.sampled, gradient.elsewhere)
