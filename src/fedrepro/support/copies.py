"""Copies of torch modules."""

import copy

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedrepro.support.errors import bad_value, refusal


def copied(module: nn.Module) -> nn.Module:
    """A copy, also of layers that hold tensors computed from their parameters (old weight norm).

    Raises:
        UserError: if two parameters share memory, which their copies would not, or one has a hook,
            which its copy would lose, or no numbers.
    """
    seen: dict[int, str] = {}
    where = f"model {type(module).__name__}"
    for name, leaf in module.named_parameters():
        if leaf.is_meta:
            wanted = "a device with numbers: call module.to_empty(device='cpu') and fill it"
            raise bad_value(where, f"{name}: device", "meta", wanted)
        if leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None):
            why = (
                f"{name}: has a hook, which training on copies would not call: change the weight "
                "in `forward`, or register a hook of the layer"
            )
            raise refusal(where, why, name)
        if (
            not is_lazy(leaf)
            and leaf.data_ptr()
            and (other := seen.setdefault(leaf.data_ptr(), name)) != name
        ):
            why = (
                f"{other} and {name}: two parameters in the same memory: use one, transposed in "
                "`forward` if need be, as in F.linear(x, weight.T)"
            )
            raise refusal(where, why, name)
    computed = (
        leaf
        for layer in module.modules()
        for leaf in vars(layer).values()
        if isinstance(leaf, Tensor) and not leaf.is_leaf
    )
    return copy.deepcopy(module, {id(leaf): leaf.detach().clone() for leaf in computed})
