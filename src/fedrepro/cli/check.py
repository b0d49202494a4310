"""``fedrepro check``: test one method for the properties that every method must have."""

import argparse
from collections.abc import Callable
from functools import partial

from fedrepro.check import suite, world
from fedrepro.check.suite import Trial
from fedrepro.config.experiment import without_values
from fedrepro.config.loading import folders_here
from fedrepro.methods import registry
from fedrepro.methods.server.base import ServerOptimizer, built
from fedrepro.run.store import stored
from fedrepro.support import plugins
from fedrepro.support.errors import UserError, bad_argument
from fedrepro.support.names import Composition


def handle(arguments: argparse.Namespace) -> int:
    name, folders = arguments.method, folders_here()
    method, _ = registry.compose(*without_values(name, folders), folders)
    if not all(layer.classifies for layer in method.layers()):
        expectation = "a method that trains a classifier: the check's samples are for classifiers"
        raise bad_argument("METHOD", name, expectation)
    names = Composition.parse(without_values(name, folders)[0]).names
    kinds = {part.kind for each in names if (part := registry.part(each, folders))}
    name = name if kinds & {"method", "wrapper"} else f"fedavg+{name}"
    others = [] if "server optimizer" in kinds else [f"{name}+fedadam"]
    others += [] if "ima" in names else [f"ima+{name}"]
    trial = trial_of(name, folders)
    checks: list[tuple[str, Callable[[], None]]] = [
        *((words, partial(check, trial)) for words, check in suite.ALL_OF.items()),
        *((f"{other} has no side effects either", partial(_composes, other, folders))
          for other in others),
    ]  # fmt: skip
    failed = 0
    with world.in_float64():
        for words, check in checks:
            outcome, why = _outcome(check)
            print(f"{outcome:8}{words}{f': {why}' if why else ''}", flush=True)
            failed += outcome == FAILED
            if failed and check is checks[0][1]:
                print("the other checks were skipped: they need hooks that pass this one")
                return 1
    print(f"{arguments.method}: {failed} of {len(checks)} failed" if failed else "all checks pass")
    return 1 if failed else 0


PASSED, FAILED, NOTHING = "passed", "FAILED", "-"


def trial_of(composition: str, folders: plugins.Folders = plugins.NONE) -> "Trial":
    """A composition to be checked.

    Raises:
        UserError: if its parts cannot be composed.
    """
    plain, said = without_values(composition, folders)
    names = Composition.parse(plain).names
    parts = {name: part for name in names if (part := registry.part(name, folders))}
    quick = {name: world.quick(registry.hyperparameters_of(parts[name].cls)) for name in parts}
    values = {name: {**quick[name], **said.get(name, {})} for name in parts}
    method, optimizer = registry.compose(plain, values, folders)
    make = partial(world.federation, method, built(optimizer), optimizer.lr)
    given = optimizer if type(optimizer) is not ServerOptimizer else None
    return suite.Trial(make, stored, not {"+", "@"} & set(composition), given)


def _composes(composition: str, folders: plugins.Folders) -> None:
    try:
        trial = trial_of(composition, folders)
    except UserError as error:
        raise suite.NotApplicable(str(error)) from None
    suite.composes(trial)


def _outcome(check: Callable[[], None]) -> tuple[str, str]:
    """How a check ended, and why."""
    try:
        with plugins.blamed():
            check()
    except suite.NotApplicable as reason:
        return NOTHING, str(reason)
    except (suite.Failed, UserError) as error:
        return FAILED, str(error)
    except Exception as error:  # raised by a packaged part, because of what the method gave it
        return FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}"
    return PASSED, ""
