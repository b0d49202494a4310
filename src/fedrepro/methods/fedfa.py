r"""FedFA, federated learning with feature anchors (Zhou et al., IEEE TMC 2023, "FedFA").

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) + \frac{\lambda}{C} \sum_c \mathrm{mean}_{i: y_i = c}
\|h_i(v) - a_c\|^2 $$

$$ a_c \leftarrow \mu a_c + (1 - \mu) \, \mathrm{mean}_{i: y_i = c} \, h_i $$

Symbols: $h_i$: features of sample $i$, the head's inputs; $C$: number of classes; $\lambda$:
``pull``; $\mu$: ``momentum``.

All clients share one anchor a_c for the features of every class c. From the second round on, the
local loss pulls features towards it: + lambda / C * sum_c mean_{i of class c} |h_i - a_c|^2 over a
mini-batch. After round ``calibration`` * R, every step is followed by a step of Adam (restarted in
every round, at its default rate of 0.001) that trains the classifier alone to tell the anchors
apart. After each local epoch a_c becomes mu * a_c + (1 - mu) * (the mean of its features) for
classes that the client has. The server averages anchors like models.

An epoch's mean of a class is the sum of the mini-batches' means divided by the number of all
mini-batches, where mini-batches without the class count as zero, as in the released code
(discrepancy B12). Features are those before the step. mu is 0.9 in IMA's Table V, 0.5 in its script
for label skew (B11). Anchors start as rows of the identity: here the first ones, in the code random
ones, which makes no difference because the features of new weights are exchangeable. With more
classes than features they start as random directions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import NonNegative, Share
from fedrepro.engine.method import Context, Method, Tree, deviation, require_classification, tree
from fedrepro.engine.net import differentiate
from fedrepro.engine.optim import Optimizer, Rate
from fedrepro.engine.steps import Steps, count, some_epochs
from fedrepro.support.errors import refusal
from fedrepro.support.rng import stream

WEIGHT, BIAS = "head.weight", "head.bias"
ADAM_RATE, BETA1, BETA2, ADAM_EPSILON = 1e-3, 0.9, 0.999, 1e-8  # torch's defaults


@dataclass(frozen=True)
class FedFA(Method):
    """FedFA, feature anchors (Zhou et al., IEEE Transactions on Mobile Computing 2023)."""

    decay_restarts: ClassVar[bool] = False  # as in IMA's released code (B2)

    pull: NonNegative = 0.1  # lambda: weight of the distance to the anchors
    momentum: Share = deviation(0.9, released=0.5, item="B11", why="mu of the anchors is 0.5")
    calibration: NonNegative = 0.25  # share of all rounds after which the classifier is calibrated

    def check(self, ctx: Context) -> None:
        ctx.net.require_chain()
        ctx.net.refuse_running_statistics("fedfa")
        require_classification(self, ctx, "each class has an anchor")
        heads = {name for name in ctx.net.trained if name.startswith("head.")}
        if not {WEIGHT} <= heads <= {WEIGHT, BIAS}:
            why = "expected one whose head is one linear layer: anchors are among the head's inputs"
            raise refusal("method fedfa", f"model: {why}", "model")

    # --- server ---------------------------------------------------------------------------------
    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "anchors": first_anchors(params[WEIGHT])}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        message = {**super().broadcast(ctx, server), "anchors": server["anchors"]}
        # The keys carry what depends on the round, so that no round is recompiled.
        if ctx.round > 0:
            message["pulls"] = {}
        # Up to rounding: .29 of 100 rounds are 28.999999999999996.
        if ctx.round > self.calibration * ctx.rounds + 1e-9:
            message["calibrates"] = {}
        return message

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = super().server_update(ctx, server, updates, weights)
        return {**moved, "anchors": tree.weighted_sum(updates["anchors"], weights)}

    # --- client ---------------------------------------------------------------------------------
    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """The parameters' gradient, and each class's mean feature and count in the mini-batch."""
        anchors: Tensor = message["anchors"]
        classes = torch.arange(len(anchors), device=anchors.device)
        members = (batch["y"][:, None] == classes).to(anchors.dtype)  # [n, C]
        if "real" in batch:  # the other samples pad a short mini-batch
            members = members * batch["real"][:, None]
        numbers = members.sum(0)
        share = members / numbers.clamp(min=1)

        def objective(both: Tree) -> Tensor:
            features = ctx.net.features(both["theta"], batch["x"])
            logits = functional.linear(features, both["theta"][WEIGHT], both["theta"].get(BIAS))
            loss = ctx.task.loss(logits, batch)
            if "pulls" in message:
                away = (features - members @ anchors).square().sum(1)
                loss = loss + self.pull / len(anchors) * (share.sum(1) * away).sum()
            # A zero term whose gradient is the means: this returns a value from inside the function
            # that is differentiated, without a second pass through the body.
            whole: Tensor = loss + (both["zero"] * (share.T @ features)).sum()
            return whole

        zero = torch.zeros_like(anchors)
        if any(leaf.requires_grad for leaf in tree.leaves(params)):
            zero.requires_grad_()
        gradients: Tree = differentiate(objective, {"theta": params, "zero": zero})
        return {**gradients["theta"], "means": gradients["zero"], "numbers": numbers}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        params, anchors = message["params"], message["anchors"]
        optimizer = _observing(
            ctx.optimizer, tuple(ctx.net.ordered(params)), "calibrates" in message
        )
        ctx = replace(ctx, optimizer=optimizer)
        state = {**optimizer.init(params), "anchors": anchors}
        state["means"], state["numbers"] = (
            torch.zeros_like(anchors),
            torch.zeros_like(anchors[:, 0]),
        )
        for epoch in range(ctx.epochs):
            some = some_epochs(steps, ctx.epochs, epoch, epoch + 1)
            params, state = descend(ctx, self.gradient, message, client_state, params, some, state)
            mean = state["means"] / count(some)
            moved = tree.mix(mean, anchors, self.momentum)
            anchors = torch.where((state["numbers"] > 0)[:, None], moved, anchors)
            state = {**state, "means": tree.zeros(mean), "numbers": tree.zeros(state["numbers"])}
        return {"delta": tree.subtract(message["params"], params), "anchors": anchors}, client_state


def first_anchors(weight: Tensor) -> Tensor:
    """[C, d], distinct and of length 1, for the head's ``weight`` [C, d]."""
    classes, features = weight.shape
    if classes <= features:
        return torch.eye(classes, features, dtype=weight.dtype, device=weight.device)
    drawn = torch.randn(classes, features, generator=stream(0, "fedfa", "anchors"))
    return functional.normalize(drawn).to(weight)


@lru_cache(maxsize=8)  # the same object in every round, or each would be recompiled
def _observing(inner: Optimizer, names: tuple[str, ...], calibrates: bool) -> Optimizer:
    """``inner`` that also accumulates class statistics (:meth:`FedFA.gradient`) and calibrates.

    Its state is ``{"inner", "adam", "anchors", "means", "numbers"}``; the last three are set by
    :meth:`FedFA.client_update`.
    """
    head = [name for name in (WEIGHT, BIAS) if name in names]

    def init(params: Tree) -> Tree:
        moments = {name: params[name] for name in head}
        adam = {"m": tree.zeros(moments), "v": tree.zeros(moments)}
        steps = torch.zeros((), dtype=torch.float64, device=params[WEIGHT].device)
        return {
            "inner": inner.init(params),
            "adam": {**adam, "steps": steps} if calibrates else {},
        }

    def update(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        whole = {name: gradient[name] for name in names}
        change, after = inner.update(whole, state["inner"], params, rate)
        seen = {name: state[name] + gradient[name] for name in ("means", "numbers")}
        adam = state["adam"]
        if calibrates:
            moved = {name: params[name].detach() + change[name] for name in head}
            more, adam = _calibration(moved, state["anchors"], adam)
            change = {**change, **{name: change[name] + more[name] for name in head}}
        return change, {**state, "inner": after, "adam": adam, **seen}

    def stepping(
        params: list[Tensor], state: list[Tensor]
    ) -> Callable[[list[Tensor], float], None]:
        assert inner.in_place is not None
        *state, anchors, means, numbers = state
        whole = dict(zip(names, params, strict=True))
        init_of_adam = init(whole)["adam"]
        first = len(state) - len(tree.leaves(init_of_adam))
        step_of_inner = inner.in_place(params, state[:first])
        adam = tree.rebuild(init_of_adam, iter(state[first:]))

        def step(gradients: list[Tensor], rate: float) -> None:
            *gradients, mean, number = gradients
            step_of_inner(gradients, rate)
            means.add_(mean)
            numbers.add_(number)
            if calibrates:
                change, after = _calibration({name: whole[name] for name in head}, anchors, adam)
                for name in head:
                    whole[name].add_(change[name])
                for old, new in zip(tree.leaves(adam), tree.leaves(after), strict=True):
                    old.copy_(new)

        return step

    in_place = stepping if inner.in_place else None
    return Optimizer(init, update, in_place, inner.momentum, inner.weight_decay)


def _calibration(head: Tree, anchors: Tensor, adam: Tree) -> tuple[Tree, Tree]:
    """One step of Adam on the cross-entropy of ``head`` at the anchors, one of each class."""
    logits = functional.linear(anchors, head[WEIGHT], head.get(BIAS))
    away = logits.softmax(1) - torch.eye(len(logits), dtype=logits.dtype, device=logits.device)
    away = away / len(logits)
    every = {WEIGHT: away.T @ anchors, BIAS: away.sum(0)}
    gradient = {name: every[name] for name in head}
    steps = adam["steps"] + 1
    m = tree.mix(gradient, adam["m"], BETA1)
    v = tree.mix(tree.apply(torch.square, gradient), adam["v"], BETA2)
    one, two = ((1 - beta**steps).to(logits.dtype) for beta in (BETA1, BETA2))

    change = tree.apply(
        lambda m, v: -ADAM_RATE * (m / one) / ((v / two).sqrt() + ADAM_EPSILON), m, v
    )
    return change, {"m": m, "v": v, "steps": steps}
