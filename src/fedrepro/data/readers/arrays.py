"""Read arrays of npz archives; reject pickled ones."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.support.errors import UserError
from fedrepro.support.files import plain


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """The named arrays of an archive.

    Raises:
        UserError: if the file or one of them is missing, damaged or pickled.
    """
    try:
        with plain(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        reason = str(error).strip("\"'").partition("\n")[0]
        raise UserError(f"{path}: can't be read as an npz archive: {reason}") from None
