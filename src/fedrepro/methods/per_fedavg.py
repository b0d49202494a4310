r"""Per-FedAvg (Fallah et al., NeurIPS 2020, Algorithm 1), versions HF and FO.

$$ \min_w \sum_k p_k F_k \left( w - \alpha \nabla F_k(w) \right) $$

The paper is "Personalized federated learning with theoretical guarantees: a model-agnostic
meta-learning approach". The shared model is a start from which one gradient step makes every
client's own: clients descend f_k(w - alpha grad f_k(w)), whose gradient is
(I - alpha H) grad f_k(w - alpha grad f_k(w)). HF takes the product of the Hessian H and a vector v
from the gradients at w + delta v and w - delta v; FO leaves it out. The three mini-batches of a
step (inner gradient, outer gradient, Hessian) are thirds of FedAvg's mini-batch, in FO two halves,
so that a round uses the same samples. An epoch's last mini-batch may be too short for that: the
outer gradient of no samples is 0 (weight decay and momentum still move the model), and without
samples for the Hessian a step is FO's.

A client is scored after its step with alpha, as in the paper: the current shared model minus alpha
times the gradient over all of its samples (of a loss that is only known as a mean, over 1,000 at a
time). That gradient is taken at the model that it received when it last took part, because scoring
has no training samples. A client that has not taken part uses the shared model. Clients are
weighted by samples (Algorithm 1: equally). alpha is that of the paper's experiments; beta is the
clients' learning rate.

https://arxiv.org/abs/2002.07948
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from fedrepro.engine.descent import scan
from fedrepro.engine.fidelity import NonNegative, Positive
from fedrepro.engine.method import Context, Method, Steps, Tree, some_epochs, tree
from fedrepro.support.errors import bad_value

AT_ONCE = 1000  # samples of which a gradient is that of their mean


def with_real(batch: Tree) -> Tree:
    """A mini-batch that marks its real samples, whether it is padded or not."""
    return {"real": torch.ones(len(batch["x"]), device=batch["x"].device), **batch}


def share(batch: Tree, which: int, shares: int) -> Tree:
    """Every ``shares``-th sample of a mini-batch, from number ``which`` on."""
    names = ("x", "y", "real")
    return {**batch, **{name: with_real(batch)[name][which::shares] for name in names}}


@dataclass(frozen=True)
class PerFedAvg(Method):
    """Per-FedAvg (Fallah et al., NeurIPS 2020, Algorithm 1)."""

    alpha: NonNegative = 0.01  # learning rate of the inner step
    hessian_free: bool = True  # HF; False: FO
    delta: Positive = 0.001  # of HF's finite differences

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hessian_free and self.delta != type(self).delta:
            expected = f"{type(self).delta} without hessian_free, the differences of which it is"
            raise bad_value("method per_fedavg", "delta", self.delta, expected)

    def check(self, ctx: Context) -> None:
        ctx.net.refuse_running_statistics("per_fedavg")
        if self.hessian_free and ctx.net.draws:
            wanted = "False for a model with dropout: its two gradients differ by what each draws"
            raise bad_value("method per_fedavg", "hessian_free", True, wanted)
        if ctx.batch_size < self.shares:
            wanted = f"at least {self.shares}: a step cuts its mini-batch into as many parts"
            raise bad_value("method per_fedavg", "batch_size", ctx.batch_size, wanted)

    @property
    def shares(self) -> int:
        """The number of parts into which a step cuts its mini-batch."""
        return 3 if self.hessian_free else 2

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"gradient": tree.zeros(ctx.initial)}

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        # In quotes: PyTorch's compiler cannot make a union, and annotations are evaluated.
        def gradient_at(along: "Tree | None", length: float, which: int) -> Tree:
            place = params if along is None else tree.add(params, tree.scale(along, length))
            part = share(batch, which, self.shares)
            return super(PerFedAvg, self).gradient(ctx, message, client_state, place, part)

        inner = gradient_at(None, 0.0, 0)
        outer = gradient_at(inner, -self.alpha, 1)
        if not self.hessian_free:
            return outer
        ahead, behind = (gradient_at(outer, shift, 2) for shift in (self.delta, -self.delta))
        curved = tree.scale(tree.subtract(ahead, behind), self.alpha / (2 * self.delta))
        return tree.subtract(outer, curved)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, _ = super().client_update(ctx, message, client_state, steps)
        of_batch = partial(super().gradient, ctx, message, client_state, message["params"])
        epoch = some_epochs(steps, ctx.epochs, 0, 1)
        if ctx.task.of_mean and isinstance(epoch, Steps):
            epoch = replace(epoch, batch_size=max(ctx.batch_size, AT_ONCE))

        def added(carry: Tree, batch: Tree) -> Tree:
            number = ctx.task.weighted(with_real(batch)["real"], batch["y"]).sum()
            gradients = tree.scale(of_batch(batch), number)
            return {"sum": tree.add(carry["sum"], gradients), "number": carry["number"] + number}

        start = {"sum": tree.zeros(message["params"]), "number": torch.zeros_like(ctx.sizes[0])}
        total = scan(added, start, epoch)
        return update, {"gradient": tree.scale(total["sum"], 1 / total["number"])}

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        params: Tree = server["params"]
        if not client_state:
            return params
        return tree.apply(lambda leaf, g: leaf - self.alpha * g, params, client_state["gradient"])
