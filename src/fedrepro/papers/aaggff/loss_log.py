"""Logs of losses in files: CSV, Parquet, or numpy's npy without pickle.

A log has one row per round and one column per client, or the columns ``round`` (from 1),
``client`` (from 0) and ``loss``, one row per client that took part. Columns of clients are named by
their ids from 0, such as ``0`` or ``client_0``, or by other words in the order of the ids.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.rule import Observed
from fedrepro.support.errors import UserError, bad_value, refusal, unreadable

MOST_CLIENTS = 10**6
LONG = ("round", "client", "loss")
# Names of a row's number, or of a column of the other kind of log.
NO_CLIENT = re.compile(r"unnamed: .*|index|level_\d+|round|client|loss|")


def _read_csv(path: Path) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more cells than names
        return pd.read_csv(path, index_col=False)


def _read_parquet(path: Path) -> pd.DataFrame:
    table = pd.read_parquet(path)
    return table if table.index.names == [None] else table.reset_index()


READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npy": partial(np.load, allow_pickle=False),
}


@dataclass(frozen=True)
class Log:
    """Observed losses by round.

    Attributes:
        clients: their number, K.
        rounds: for every round, the participants' ids in ascending order [m] and their losses [m].
        sizes: numbers of training samples [K].
    """

    clients: int
    rounds: list[tuple[NDArray[np.int64], Array]]
    sizes: Array

    def observed(self) -> Iterator[Observed]:
        for number, (cohort, losses) in enumerate(self.rounds):
            yield Observed(number, self.clients, cohort, losses, self.sizes[cohort])


def read_table(path: Path, losses: bool = False) -> pd.DataFrame:
    """A table of numbers, with the columns of clients in the order of their ids.

    Args:
        losses: whether it is a log of losses, which may have columns ``LONG`` instead.

    Raises:
        UserError: for a file that is missing, damaged, of another kind, or not numeric, and for
            columns whose names are row numbers, or other numbers than the ids.
    """
    if path.suffix not in READERS:
        raise bad_value(path, "name", path.name, f"one that ends in {', '.join(READERS)}")
    try:
        content = READERS[path.suffix](path)
        if losses and isinstance(content, np.ndarray) and content.ndim == 1 > len(content.dtype):
            raise ValueError("it has one axis: expected rounds and clients")
        table = _ordered(path, pd.DataFrame(content), losses)
        words = table.select_dtypes("object").items()
        kinds = {dtype.kind for dtype in table.dtypes} - set("iufO")
        if kinds or any(pd.api.types.infer_dtype(column) == "boolean" for _, column in words):
            raise ValueError("expected real numbers")
        return table.astype(np.float64)
    except FileNotFoundError:
        raise refusal(path, "there is no such file", code="missing") from None
    except UserError:
        raise
    except Exception as error:  # any error of pandas, pyarrow or numpy for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise unreadable(path, reason, "a table of numbers") from None


def _ordered(path: Path, table: pd.DataFrame, losses: bool) -> pd.DataFrame:
    names = [str(name).strip("# ").lower() for name in table.columns]
    if losses and set(LONG) <= set(names):
        if any(names.count(name) > 1 for name in LONG):
            raise refusal(path, f"expected each of the columns {', '.join(LONG)} once", "columns")
        return table.set_axis(names, axis=1)[[*LONG]]
    bare = [name if _is_number(name) else re.sub(r"^\D+", "", name) for name in names]
    by_id = set(bare) == {str(client) for client in range(len(names))}
    for given, name in zip(table.columns, names, strict=True):
        if NO_CLIENT.fullmatch(name) or (_is_number(name) and not by_id):
            wanted = "a first line (header) with words, and no column of row numbers"
            if losses:
                wanted = f"{wanted}: names of clients, or their ids from 0 to {len(names) - 1}; or"
                wanted = f"{wanted} columns {', '.join(LONG)}"
            raise bad_value(path, "columns", str(given), wanted)
    return table.iloc[:, np.argsort([int(number) for number in bare])] if by_id else table


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def read_log(
    losses: Path,
    participants: Path | None = None,
    sizes: Path | None = None,
    clients: int | None = None,
) -> Log:
    """Read a log from its files.

    Args:
        participants: one row per round with the ids of those that took part (empty cells if fewer
            did); None: all, or those that the log names.
        sizes: one number per client; None: all equal.
        clients: K, if the log does not show it; None: as many as are named.

    Raises:
        UserError: one line naming file, row and what was expected.
    """
    table = read_table(losses, losses=True)
    if set(LONG) <= set(table.columns):
        if participants is not None:
            raise refusal(participants, f"not needed: {losses} names the clients; leave it out")
        rounds = _long(losses, table)
        named = 1 + max((int(cohort[-1]) for cohort, _ in rounds), default=-1)
    else:
        rounds, named = _wide(losses, table, participants), table.shape[1]
    total = named if clients is None else clients
    if not 0 < max(named, total) <= MOST_CLIENTS:
        raise bad_value(losses, "clients", max(named, total), f"1 to {MOST_CLIENTS}")
    if named > total:
        raise bad_value(losses, "clients", total, f"at least {named}, as the log names so many")
    if not rounds or not total:
        raise refusal(losses, "expected at least one round and one client")
    return Log(total, rounds, _sizes(sizes, total))


def _long(path: Path, table: pd.DataFrame) -> list[tuple[NDArray[np.int64], Array]]:
    for column in LONG[:2]:
        values = table[column].to_numpy()
        whole = np.isfinite(values) & (values >= 0) & (values == np.floor(values))
        if not (whole & (values < 2**53)).all():
            raise refusal(path, f"{column}: expected whole numbers of at least 0", column)
    rounds = []
    for number, (label, rows) in enumerate(table.groupby("round", sort=True), start=1):
        if label != number:
            raise refusal(path, f"round {number}: expected every round from 1 on", "round", number)
        rows = rows.sort_values("client", kind="stable")
        cohort = rows["client"].to_numpy().astype(np.int64)
        if len(np.unique(cohort)) < len(cohort):
            raise refusal(path, f"round {number}: expected every client once", "client")
        rounds.append((cohort, rows["loss"].to_numpy()))
    return rounds


def _wide(
    path: Path, table: pd.DataFrame, participants: Path | None
) -> list[tuple[NDArray[np.int64], Array]]:
    values, clients = table.to_numpy(), table.shape[1]
    if participants is None:
        return [(np.arange(clients), row) for row in values]
    chosen = read_table(participants).to_numpy()
    if len(chosen) != len(values):
        raise bad_value(participants, "rounds", len(chosen), f"{len(values)}, as in {path}")
    rounds = []
    for number, (row, ids) in enumerate(zip(values, chosen, strict=True), start=1):
        cohort = np.unique(ids[~np.isnan(ids)])
        if not ((cohort >= 0) & (cohort < clients) & (cohort == np.floor(cohort))).all():
            why = f"round {number}: expected client numbers from 0 to {clients - 1}"
            raise refusal(participants, why, "client")
        whole = cohort.astype(np.int64)
        rounds.append((whole, row[whole]))
    return rounds


def _sizes(path: Path | None, clients: int) -> Array:
    if path is None:
        return np.ones(clients)
    table = read_table(path)
    values = table.to_numpy().ravel()
    if len(values) != clients or 1 not in table.shape:
        why = f"{len(values)} numbers: expected a row or a column, one for each client, {clients}"
        raise refusal(path, why, "sizes", len(values))
    if not (np.isfinite(values) & (values > 0)).all():
        raise refusal(path, "expected positive numbers of training samples", "sizes")
    return values
