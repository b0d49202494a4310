r"""FedRep (Collins et al., ICML 2021, "Exploiting shared representations", Algorithm 1).

$$ \phi_k \approx \mathrm{argmin}_\phi \, F_k(\theta, \phi), \quad \theta_k \approx
\mathrm{argmin}_v \, F_k(v, \phi_k), \quad \theta \leftarrow \sum_k p_k \theta_k $$

Symbols: $\theta$: the body; $\phi_k$: client $k$'s head.

As in FedPer, the body is averaged and each client keeps its head, but a client trains them one
after the other: first the head on the received body, for the E epochs of the round, then the body
under the new head, for ``body_epochs`` (five in SuPerFed's code, or all if there are fewer; the
paper's own choice is one).
The body's epochs use the samples in the order of the round's first epochs.

https://arxiv.org/abs/2102.07078
"""

from dataclasses import dataclass

from fedrepro.engine.fidelity import PositiveWhole
from fedrepro.engine.method import Context, Net, Tree, descend, differentiate, tree
from fedrepro.engine.steps import Steps, epochs_of, some_epochs
from fedrepro.methods.personal.partly_shared import PartlyShared


@dataclass(frozen=True)
class FedRep(PartlyShared):
    """FedRep (Collins et al., ICML 2021, Algorithm 1)."""

    body_epochs: PositiveWhole | None = None  # of the body, after the head's; None: up to five

    def shared(self, net: Net, params: Tree) -> Tree:
        return net.body(params)

    def check(self, ctx: Context) -> None:
        super().check(ctx)
        ctx.net.refuse_running_statistics("fedrep")
        epochs_of("fedrep", "body_epochs", self.body_epochs, ctx.epochs)

    def of_one_part(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """The gradient of one part of the model, with ``client_state["rest"]`` held fixed."""
        return differentiate(
            lambda params: self.loss(
                ctx, message, client_state, {**client_state["rest"], **params}, batch
            ),
            params,
        )

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        body = message["params"]
        head, _ = descend(
            ctx, self.of_one_part, message, {"rest": body}, client_state["kept"], steps
        )
        epochs = epochs_of("fedrep", "body_epochs", self.body_epochs, ctx.epochs)
        again = some_epochs(steps, ctx.epochs, 0, epochs)
        moved, _ = descend(ctx, self.of_one_part, message, {"rest": head}, body, again)
        return {"delta": tree.subtract(body, moved)}, {"kept": head}
