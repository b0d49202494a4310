"""What every page says at its foot: version, commit, licence, repository, how to cite."""

from dataclasses import dataclass
from functools import cache

import fedrepro
from fedrepro.report.pages.run_files import repository
from fedrepro.support import checkout


@dataclass(frozen=True)
class Software:
    """What rendered a page.

    Attributes:
        commit: of the checkout; "" without one.
        dirty: whether its code had uncommitted changes.
        repository: its address, or None.
    """

    version: str
    commit: str
    dirty: bool
    repository: str | None


@cache
def software() -> Software:
    """This package."""
    found = checkout.of_package() or {"commit": "", "dirty": False}
    return Software(fedrepro.__version__, found["commit"], found["dirty"], repository())
