"""What is computed for a paper without a run, by name: ``results/studies/<name>.json``.

Each is a module of this folder whose function ``study`` makes all of it, from its own seeds.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fedrepro.support.errors import bad_value

STUDIES: Mapping[str, str] = {
    "fedevg_assumption": "fedrepro.analysis.energy_mixture",
    "fedgo_cost": "fedrepro.analysis.cost",
    "fedgo_toy": "fedrepro.analysis.toy",
}


def module_of(name: str) -> str:
    """The module that makes a study.

    Raises:
        UserError: when there is no such study, with the nearest name.
    """
    if name not in STUDIES:
        raise bad_value("the command line", "study", name, "the name of a study", STUDIES)
    return STUDIES[name]


def make(name: str) -> dict[str, Any]:
    """A study, as what JSON can hold.

    Raises:
        UserError: when there is no such study.
    """
    found: dict[str, Any] = import_module(module_of(name)).study()
    return found
