"""What a program gives :func:`fedrepro.train` as objects in place of plug-ins' files."""

from collections.abc import Mapping
from typing import Any

from fedrepro.support.errors import bad_value
from fedrepro.support.plugins import Kind

PART: Mapping[Kind, str] = {"losses": "loss"}  # how the parts of a run's code are called
WHERE = "fedrepro.train"


def name_of(what: Any, otherwise: str) -> str:
    """The name of an object, or of its class."""
    name = getattr(what, "__name__", type(what).__name__)
    return name if name.isidentifier() else otherwise


def listed(values: Any) -> Any:
    """An array or a tensor as a list."""
    return values.tolist() if hasattr(values, "tolist") else values


def objects_of(loss: Any) -> tuple[tuple[Kind, str, Any], ...]:
    """The objects in place of plug-ins: kind, name, object."""
    if loss is None:
        return ()
    if not callable(loss):
        wanted = "a function of outputs and targets, such as torch.nn.functional.huber_loss"
        raise bad_value(WHERE, "loss", loss, wanted)
    return (("losses", name_of(getattr(loss, "func", loss), "loss"), loss),)
