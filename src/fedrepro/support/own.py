"""Files of one's own: methods, models and partition schemes, which are found by their file's name.

config/config.yaml names a folder of each (``own``); they travel with the workbench that was loaded
and the runs that it describes, so that two workbenches in one process each have their own.
The environment variable FEDREPRO_METHODS names one folder of methods instead.
"""

import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from fedrepro.support.errors import UserError, bad_value

Kind = Literal["methods", "models", "partitions"]
VARIABLE = "FEDREPRO_METHODS"


@dataclass(frozen=True)
class Folders:
    """Where a workbench has files of its own; None: nowhere.

    Attributes:
        root: the workbench.
    """

    root: Path | None = None
    methods: Path | None = None
    models: Path | None = None
    partitions: Path | None = None

    def of(self, kind: Kind) -> Path | None:
        """The folder of one's own methods, models or partition schemes, if there is one.

        Raises:
            UserError: when the environment names a folder of methods that is not there.
        """
        extra = os.environ.get(VARIABLE) if kind == "methods" else None
        if not extra:
            return {"methods": self.methods, "models": self.models, "partitions": self.partitions}[
                kind
            ]
        if not Path(extra).is_dir():
            raise bad_value("environment", VARIABLE, extra, "a folder of method files")
        return Path(extra)

    def files(self, kind: Kind) -> dict[str, Path]:
        """Name -> file of what is one's own; files whose names begin with ``_`` are none."""
        folder = self.of(kind)
        if folder is None:
            return {}
        return {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem[0] != "_"}


NONE = Folders()


@lru_cache
def import_file(kind: Kind, file: Path) -> ModuleType:
    """The module in a file of one's own.

    Raises:
        UserError: for one that can't be imported.
    """
    # Two workbenches may each have a file of the same name.
    place = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]
    name = f"fedrepro_user_{kind}_{place}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(
            f"{file}: could not be imported: {type(error).__name__}: {error}"
        ) from error
    return module
