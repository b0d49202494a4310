r"""SCAFFOLD (Karimireddy et al., ICML 2020, "Stochastic controlled averaging", Algorithm 1).

$$ w_k \leftarrow w_k - \eta \left( \nabla F_k(w_k) - c_k + c \right) $$

$$ c_k \leftarrow c_k - c + \frac{w - w_k}{\tau_k \eta}, \quad c = \sum_{\text{all } k}
\frac{n_k}{n} c_k $$

Symbols: $\tau_k$: client $k$'s number of steps; with momentum, FedNova's $a_k$.

Control variates correct client drift: every local step adds c - c_i to the gradient. A client's new
variate follows option II: c_i+ = c_i - c + (x - y_i) / (tau * lr) after tau steps, which makes it
the mean gradient of the client's path. Every client's c_i is kept. The paper uses SGD without
momentum. With momentum the path is longer than tau gradients, and FedNova's a_i replaces tau. (With
tau, variates are ten times too long at momentum 0.9, and training diverges.) With Adam, whose steps
do not have a gradient's size, it is no mean gradient. ``from_gradients`` takes the mean of the
gradients themselves, whatever the optimizer: with plain SGD the same numbers.

c is the mean of all clients' c_i, weighted by samples like the parameters. At a fixed point c is
zero, so c's weights determine which objective is minimised, whatever the weights of the parameters
(a wrapper's included). Algorithm 1 has equal weights in both: ``equal_weights``.

The SCAFFOLD that SuPerFed's authors released is FedAvg: its correction is assigned to a loop
variable and lost (discrepancy 26). ``after_momentum`` is what that line intends, and what IMA's
code does: the correction follows the optimizer's step, so that momentum does not repeat it, and the
variate is divided by tau times the learning rate, whatever the momentum. (With momentum, clients
with different tau then shift the fixed point.) IMA's code also decays the correction's rate twice,
lr(t)^2 / lr(0), which ``decays_twice`` selects (B21). Variates cover trainable parameters only
(A8).

https://arxiv.org/abs/1910.06378
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrepro.engine.method import (
    Context,
    Method,
    Steps,
    Tree,
    descend,
    deviation,
    require_rates,
    tree,
)
from fedrepro.engine.optim import gradient_weight, shifted, summing
from fedrepro.engine.steps import count
from fedrepro.support.errors import bad_value


@dataclass(frozen=True)
class Scaffold(Method):
    """SCAFFOLD (Karimireddy et al., ICML 2020, Algorithm 1, option II)."""

    corrects: bool = deviation(
        True, released=False, item="26", why="the released correction has no effect (FedAvg)"
    )
    equal_weights: bool = False  # weight clients equally, not by samples
    from_gradients: bool = False  # a variate from the path's gradients, not from its length
    after_momentum: bool = False  # apply the correction after the optimizer's step
    decays_twice: bool = False  # with after_momentum: the rate of the correction

    def __post_init__(self) -> None:
        if self.decays_twice and not self.after_momentum:
            expected = "False without after_momentum, whose correction has a rate of its own"
            raise bad_value("method scaffold", "decays_twice", True, expected)
        if self.from_gradients and self.after_momentum:
            expected = "False with after_momentum, whose gradients have no correction"
            raise bad_value("method scaffold", "from_gradients", True, expected)

    def check(self, ctx: Context) -> None:
        require_rates(self, ctx)

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "c": tree.zeros(ctx.net.trainable(params))}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"c": tree.zeros(ctx.net.trainable(ctx.initial))}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {"params": server["params"], "c": server["c"]}

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        gradient = super().gradient(ctx, message, client_state, params, batch)
        if not self.corrects or self.after_momentum:
            return gradient
        return tree.apply(lambda g, c, c_i: g + c - c_i, gradient, message["c"], client_state["c"])

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        start, state = message["params"], None
        if self.from_gradients:
            ctx = replace(ctx, optimizer=summing(ctx.optimizer))
        elif self.corrects and self.after_momentum:
            ctx = replace(ctx, optimizer=shifted(ctx.optimizer))
            state = ctx.optimizer.init(ctx.net.trainable(start))
            shift = tree.subtract(message["c"], client_state["c"])
            decayed = ctx.lr / ctx.schedule(0) if self.decays_twice else 1.0
            state = {**state, "shift": tree.scale(shift, decayed)}
        params, state = descend(ctx, self.gradient, message, client_state, start, steps, state)
        delta = tree.subtract(start, params)
        if self.from_gradients:
            mean_move = tree.scale(state["sum"], 1 / count(steps))
        else:
            momentum = 0.0 if self.after_momentum else ctx.optimizer.momentum
            length = gradient_weight(count(steps), momentum) * ctx.lr
            mean_move = tree.scale(ctx.net.trainable(delta), 1 / length)
        change = tree.subtract(mean_move, message["c"])
        return {"delta": delta, "change": change}, {"c": tree.add(client_state["c"], change)}

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        if not self.equal_weights:
            return super().aggregation_weights(ctx, server, updates)
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        # c stays the mean over all clients, including those that did not take part.
        equal = torch.full_like(ctx.sizes, 1 / ctx.clients)
        shares = equal if self.equal_weights else ctx.sizes / ctx.total
        change = tree.weighted_sum(updates["change"], shares)
        moved = super().server_update(ctx, server, updates, weights)
        return {**moved, "c": tree.add(server["c"], change)}
