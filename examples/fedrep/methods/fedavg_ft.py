r"""FedAvg whose clients fine-tune the head (FedAvg+FT of Collins et al., ICML 2021, section 5.2).

$$ w \leftarrow \sum_k p_k w_k, \quad \phi_k \approx \mathrm{argmin}_\phi \, F_k(\theta, \phi),
\quad w = (\theta, \phi) $$

The shared model is FedAvg's, trained on the round's first ``shared_epochs`` epochs. A client is
scored with a head of its own, which all of the round's epochs tune from the shared one, with the
body as it is. The paper tunes heads once, after the last round. Scoring has no training samples
here, so a client tunes when it takes part, and what tuning changed in the head that it had
received is added to the shared head that it is scored with.

https://arxiv.org/abs/2102.07078
"""

from dataclasses import dataclass

from fedrepro.engine import tree
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import epochs_of, some_epochs
from fedrepro.support.errors import whole_or_none


@dataclass(frozen=True)
class FedAvgFT(Method):
    """FedAvg, and a fine-tuned head for each client (Collins et al., ICML 2021)."""

    shared_epochs: int | None = None  # of the shared model in a round; None: up to five

    def __post_init__(self):
        whole_or_none("fedavg_ft", "shared_epochs", self.shared_epochs)

    def check(self, ctx):
        ctx.net.require_trained_parts("fedavg_ft")
        ctx.net.refuse_running_statistics("fedavg_ft")
        epochs_of("fedavg_ft", "shared_epochs", self.shared_epochs, ctx.epochs)

    def init_client(self, ctx, rng):
        return {"tuned": tree.zeros(ctx.net.head(ctx.initial))}

    def of_head(self, ctx, message, client_state, params, batch):
        """The gradient of the head, with the received body."""
        body = ctx.net.body(message["params"])
        return differentiate(
            lambda head: self.loss(ctx, message, client_state, {**body, **head}, batch), params
        )

    def client_update(self, ctx, message, client_state, steps):
        epochs = epochs_of("fedavg_ft", "shared_epochs", self.shared_epochs, ctx.epochs)
        first = some_epochs(steps, ctx.epochs, 0, epochs)
        update, _ = super().client_update(ctx, message, client_state, first)
        received = ctx.net.head(message["params"])
        head, _ = descend(ctx, self.of_head, message, client_state, received, steps)
        return update, {"tuned": tree.subtract(head, received)}

    def eval_model(self, ctx, server, client_state):
        params = server["params"]
        if not client_state:
            return params
        head = tree.add(ctx.net.head(params), client_state["tuned"])
        return {**params, **head}
