"""The federation of `fedrepro check`, of compositions by name or of a method."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedrepro.check import suite, world
from fedrepro.engine.method import Method
from fedrepro.engine.round import Federation
from fedrepro.methods import registry
from fedrepro.run.store import stored
from fedrepro.support.names import Composition

# Beside `world.quick`: what would take too many rounds.
QUICK: dict[str, dict[str, object]] = {"pfedme": {"mu": 1.0}, "fedtgp": {"server_epochs": 5}}


def federation(
    composition: str = "fedavg",
    hyperparameters: Mapping[str, Mapping[str, object]] | None = None,
    *,
    method: Method | None = None,
    **options: Any,
) -> Federation:
    """A small federation in float64, with options of :func:`fedrepro.check.world.federation`.

    Args:
        method: takes the place of the composition's.
    """
    names, given = {*Composition.parse(composition).names, "fedavg"}, hyperparameters or {}
    parts = {name: part for name in names if (part := registry.part(name))}
    values = {
        name: {
            **world.quick(registry.hyperparameters_of(part.cls)),
            **QUICK.get(name, {}),
            **given.get(name, {}),
        }
        for name, part in parts.items()
    }
    composed, optimizer = registry.compose(composition, values)
    return world.federation(method or composed, optimizer.build(), optimizer.lr, **options)


def trial_of(composition: str) -> suite.Trial:
    """The composition, to be checked."""
    single = not {"+", "@"} & set(composition)
    return suite.Trial(partial(federation, composition), stored, single)
