r"""FedGKD+ (Yao et al., 2023), as FedGO (Jang et al., ICML 2025, Appendix E.2) runs it.

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) + \frac{\gamma}{2} \tau^2 \, \mathrm{mean}_i \,
\mathrm{KL} \left( \mathrm{softmax} \frac{f_{\bar w}(x_i)}{\tau} \, \| \, \mathrm{softmax}
\frac{f_v(x_i)}{\tau} \right) $$

$$ \bar w = \frac{1}{M} \sum_{j=0}^{M-1} w_{t-j}, \quad \text{then FedDF's distillation} $$

Symbols: $x_i$: a client's samples; $t$: the round.

FedGKD ("FedGKD: towards heterogeneous federated learning via global knowledge distillation") adds
to a client's loss gamma / 2 tau^2 KL of the client's predictions from those of the mean of the
server's last M models (of all models, while there are fewer). The plus stands for FedDF's
distillation on the server. The historical model predicts in testing mode. Jang et al. name a
tau and gamma / 2, but not tau^2 (discrepancy A31).
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, Positive, PositiveWhole
from fedrepro.engine.method import Context, Tree
from fedrepro.methods.distilling.losses import towards_history
from fedrepro.methods.feddf import FedDF
from fedrepro.methods.ima import full_window, mean_of, slide


@dataclass(frozen=True)
class FedGKDPlus(FedDF):
    """FedGKD+ (Yao et al., 2023, with FedDF's distillation)."""

    gamma: NonNegative = 0.001  # gamma / 2 times tau^2 weighs the distance to past predictions
    temperature: Positive = 3.0  # tau: of both predictions
    models: PositiveWhole = 5  # M: how many of the server's last models are averaged

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "past": full_window(params, self.models)}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        past = mean_of(server["past"], min(ctx.round + 1, self.models))
        return {**super().broadcast(ctx, server), "past": past}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        past = ctx.net.predict(message["past"], batch["x"])
        logits = ctx.net(params, batch["x"])
        term = towards_history(past, logits, self.gamma, self.temperature, batch.get("real"))
        return ctx.task.loss(logits, batch) + term

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = super().server_update(ctx, server, updates, weights)
        return {**after, "past": slide(server["past"], after["params"])}
