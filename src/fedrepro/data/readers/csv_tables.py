"""Tables as data frames."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.support.errors import refusal, refuse_unknown, unreadable
from fedrepro.support.files import plain


def read_table(
    path: Path, columns: Sequence[str] = (), where: object = None, **options: Any
) -> pd.DataFrame:
    """A CSV file.

    Args:
        columns: names that it must have.
        where: its place in errors; by default the path.
        options: of ``pandas.read_csv``.

    Raises:
        UserError: if it cannot be read, or lacks a column.
    """
    where = where or path
    try:
        table: pd.DataFrame = pd.read_csv(plain(path), **options)
    except UnicodeDecodeError:
        why = "expected text in UTF-8: save the table as CSV UTF-8"
        raise refusal(where, why, code="unreadable") from None
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise unreadable(where, reason, "CSV") from None
    refuse_unknown(where, "column", columns, table.columns, "in the file")
    return table
