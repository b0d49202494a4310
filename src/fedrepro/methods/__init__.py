"""What compositions are made of: methods, wrappers and, in `server`, server optimizers.

``fedrepro.methods`` is this room, and ``fedrepro.methods()`` the table of what is in it.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self) -> Any:
        from fedrepro.api.methods import methods

        return methods()


sys.modules[__name__].__class__ = _Room
