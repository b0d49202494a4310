"""A plug-in that overrides nothing is what it wraps, hook by hook."""

import inspect
from unittest.mock import create_autospec, sentinel

import pytest

from fedrepro.engine.method import Method, Wrapper

# `layers` adds the wrapper itself, and so has a test of its own. What the inner method begins as,
# the wrapped one need not.
HOOKS = [
    name
    for name, value in vars(Method).items()
    if inspect.isfunction(value)
    and not name.startswith("_")
    and name not in ("layers", "shared_prefix", "from_parent")
]


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_is_forwarded_with_its_arguments(name: str) -> None:
    inner = create_autospec(Method, instance=True)
    parameters = list(inspect.signature(getattr(Method, name)).parameters)[1:]
    arguments = [getattr(sentinel, each) for each in parameters]
    returned = getattr(Wrapper(inner=inner), name)(*arguments)
    hook = getattr(inner, name)
    hook.assert_called_once_with(*arguments)
    if name != "check":  # it only ever raises
        assert returned is hook.return_value


def test_layers_are_named_from_the_outside_in() -> None:
    inner = Method()
    wrapper = Wrapper(inner=inner)
    outer = Wrapper(inner=wrapper)
    assert outer.layers() == [outer, wrapper, inner]
