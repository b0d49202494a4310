r"""Ditto (Li et al., ICML 2021, "Fair and robust federated learning through personalization").

$$ v_k \approx \mathrm{argmin}_v \, F_k(v) + \frac{\mu}{2} \|v - w\|^2, \quad w \leftarrow w -
\sum_k p_k \Delta_k $$

The global model is FedAvg's. In addition, every client trains its own model on its samples, pulled
towards the global model that it received (Algorithm 1, h_k = F_k(v) + lambda/2 |v - w|^2; their
lambda is ``mu`` here). The personal model is trained on the mini-batches of the round's first
``personal_epochs`` epochs (five in SuPerFed's code, or all if there are fewer), and it is the one
that the client uses.

https://arxiv.org/abs/2012.04221
"""

from dataclasses import dataclass

from fedrepro.engine.fidelity import NonNegative, PositiveWhole
from fedrepro.engine.method import Context, Tree, descend
from fedrepro.engine.steps import Steps, epochs_of, some_epochs
from fedrepro.methods.personal.own_model import PersonalModel


@dataclass(frozen=True)
class Ditto(PersonalModel):
    """Ditto (Li et al., ICML 2021, Algorithm 1)."""

    mu: NonNegative = 1.0  # their lambda: pull towards the received model
    personal_epochs: PositiveWhole | None = None  # of its own model, in a round; None: up to five

    def check(self, ctx: Context) -> None:
        self.own_epochs(ctx)

    def own_epochs(self, ctx: Context) -> int:
        """The epochs of the client's own model in a round."""
        return epochs_of("ditto", "personal_epochs", self.personal_epochs, ctx.epochs)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, _ = super().client_update(ctx, message, client_state, steps)
        first = some_epochs(steps, ctx.epochs, 0, self.own_epochs(ctx))
        personal, _ = descend(
            ctx, self.gradient_with_pull, message, client_state, client_state["personal"], first
        )
        return update, {"personal": personal}
