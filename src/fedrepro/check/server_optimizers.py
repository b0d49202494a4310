"""The contract of a server optimizer, and of those who should follow it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from fedrepro.check.contract import Mistake, Purity, require_like, require_pair, require_tree
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.fidelity import Faithful
from fedrepro.engine.optim import Rate
from fedrepro.engine.tree import Tree
from fedrepro.support import plugins
from fedrepro.support.errors import refusal

CALLS = 2  # of each function that are checked: in the second, there is a state
FOLLOW = (
    "let apply_server_optimizer(ctx, server, delta) move the model, or name no server optimizer, "
    "with `uses_server_optimizer: ClassVar[bool] = False` in the class"
)
WEIGH = "sum the updates with `weights`, or leave out the wrapper that sets them"


class OptimizerChecks(Purity):
    """Checks the functions of a server optimizer."""

    keep: ClassVar[str] = "return what must survive a round as the optimizer's state"
    draw: ClassVar[str] = "let a method's server_update draw, from ctx.stream(purpose)"

    def __init__(self, part: Faithful, ctx: Context) -> None:
        self.optimizer, self.ctx = ctx.server_optimizer, ctx
        self.calls: Counter[str] = Counter()
        super().__init__(part, (self.optimizer.init, self.optimizer.update))

    def init(self, params: Tree) -> Tree:
        state: Tree = self._called("init", {"params": params})
        return state

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        given = {"gradient": gradient, "state": state, "params": params, "rate": rate}
        moved: tuple[Tree, Tree] = self._called("update", given)
        return moved

    def _called(self, name: str, given: Mapping[str, Any]) -> Any:
        call = partial(getattr(self.optimizer, name), *given.values())
        self.calls[name] += 1
        with plugins.blamed():
            if self.calls[name] > CALLS:
                return call()
            try:
                with self._unchanged(self.ctx, given):
                    result = call()
                self._require_form(name, given, result)
            except Mistake as mistake:
                raise refusal(self._where("build"), f"{name}: {mistake}", name) from None
        return result

    def _require_form(self, name: str, given: Mapping[str, Any], result: Any) -> None:
        if name == "init":
            require_tree(result, "the optimizer's state")
            return
        change, after = require_pair(result, "two trees: the change of `params`, and the state")
        require_tree(change, "the change")
        require_tree(after, "the optimizer's state")
        remedy = "return one tensor for each of `gradient`, of its shape and dtype"
        require_like(change, given["gradient"], "the change", remedy)
        remedy = "keep the names, shapes and dtypes of what `init` returns"
        require_like(after, given["state"], "the optimizer's state", remedy)


def checked_optimizer(server_optimizer: Any, ctx: Context) -> Context:
    """The context with its server optimizer under checks, which the composition's part made."""
    checks = OptimizerChecks(server_optimizer, ctx)
    watched = ctx.server_optimizer._replace(init=checks.init, update=checks.update)
    return replace(ctx, server_optimizer=watched)


def require_effects(
    ctx: Context,
    hook: Callable[..., Tree],
    given: Mapping[str, Any],
    after: Tree,
    followed: bool,
    weighed: bool,
) -> None:
    """Raise Mistake if a server's model moves, but without regard to what should move it.

    It would be the same with an optimizer that moves twice as far, or with other weights.
    """
    optimizer, weights = ctx.server_optimizer, given["weights"]

    steps: list[bool] = []  # whether each moves anything: a warm-up may begin at 0

    def twice(gradient: Tree, state: Tree, params: Tree, rate: Rate) -> tuple[Tree, Tree]:
        change, state = optimizer.update(gradient, state, params, rate)
        steps.append(any(bool(leaf.any()) for leaf in tree.leaves(change)))
        return tree.scale(change, 2.0), state

    def leaves(state: Tree) -> list[Tensor]:
        return tree.leaves(ctx.net.trainable(state["params"]) if "params" in state else state)

    def same(one: Tree, other: Tree) -> bool:
        return all(map(Tensor.equal, leaves(one), leaves(other)))

    if same(given["server"], after):
        return
    if followed:
        other = replace(ctx, server_optimizer=optimizer._replace(update=twice))
        unmoved = same(after, hook(other, given["server"], given["updates"], weights))
        if unmoved and (any(steps) or not steps):
            raise Mistake("moves the model without regard to the server optimizer", FOLLOW)
    moving = any(bool(leaf.any()) for leaf in tree.leaves(given["updates"].get("delta", {})))
    if weighed and moving and len(weights) > 1 and weights.min() < weights.max():
        others = weights * (1 + weights.new_ones(len(weights)).cumsum(0))
        if same(after, hook(ctx, given["server"], given["updates"], others)):
            raise Mistake("moves the model without regard to `weights`", WEIGH)
