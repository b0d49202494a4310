"""Berka: loans of a Czech bank, joined from five tables; regions are the natural clients."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedrepro.data.catalogue.kinds import Berka
from fedrepro.data.fetching.archives import lacking, opened
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.data.readers.csv_tables import read_table
from fedrepro.support.errors import bad_value, refusal, refuse_unknown

TABLES = {
    "loan": ("account_id", "date", "amount", "duration", "payments", "status"),
    "account": ("account_id", "district_id", "frequency", "date"),
    "district": ("A1", "A3", "A4", "A11", "A12", "A13", "A14", "A15", "A16"),
    "order": ("account_id", "amount"),
    "trans": ("account_id", "amount", "balance"),
}
BAD_LOANS = {"A": 0, "B": 1, "C": 0, "D": 1}  # B: finished, not paid; D: running, in debt
STATEMENTS = ("POPLATEK MESICNE", "POPLATEK TYDNE", "POPLATEK PO OBRATU")
FEATURES = (
    "amount", "duration", "payments", "days_between", "inhabitants", "average_salary",
    "entrepreneurs", "unemployment", "crimes", "order_amount", "transactions", "trans_amount",
    "trans_balance",
)  # fmt: skip


def read_berka(spec: Berka, folder: Path, scratch: Path, _progress: Progress) -> Content:
    """The 682 loans, without those of excluded regions: 13 numeric and 2 binary features.

    Each client standardises the numeric features; the binary ones (how often a statement is sent)
    are unchanged.

    Raises:
        UserError: if a table or a column is missing, or a value is invalid.
    """
    archive = folder / spec.archive.name
    root = opened(archive, scratch)
    tables = {name: _table(archive, root, name) for name in TABLES}
    for column in ("A12", "A15"):  # two districts have no numbers of 1995: "?"
        tables["district"][column] = pd.to_numeric(tables["district"][column], errors="coerce")
    orders = tables["order"].groupby("account_id")["amount"].mean().rename("order_amount")
    moved = (
        tables["trans"]
        .groupby("account_id")
        .agg(
            transactions=("amount", "size"),
            trans_amount=("amount", "mean"),
            trans_balance=("balance", "mean"),
        )
    )
    joined = (
        tables["loan"]
        .merge(tables["account"], on="account_id", suffixes=("", "_account"))
        .merge(tables["district"], left_on="district_id", right_on="A1")
        .join(orders, on="account_id")
        .join(moved, on="account_id")
    )
    if len(joined) != len(tables["loan"]) or joined[[*orders.to_frame(), *moved]].isna().any(
        axis=None
    ):
        why = "a loan has no account, district, order or transaction"
        raise refusal(archive, why, code="damaged")
    joined["days_between"] = (
        _dates(joined["date"], archive) - _dates(joined["date_account"], archive)
    ).dt.days
    joined = joined.assign(
        unemployment=joined[["A12", "A13"]].mean(axis=1),
        crimes=joined[["A15", "A16"]].mean(axis=1),
    ).rename(columns={"A4": "inhabitants", "A11": "average_salary", "A14": "entrepreneurs"})
    for column, known in (("status", tuple(BAD_LOANS)), ("frequency", STATEMENTS)):
        refuse_unknown(archive, column, sorted(set(joined[column].astype(str))), known)
    regions = sorted(set(joined["A3"]))
    refuse_unknown(archive, "leave_out", spec.leave_out, regions, "a region of the data")
    joined = joined[~joined["A3"].isin(spec.leave_out)]
    kept = [region for region in regions if region not in spec.leave_out]
    dummies = [(joined["frequency"] == name).to_numpy(np.float64) for name in STATEMENTS[1:]]
    return Content(
        train=Split(
            np.column_stack([joined[list(FEATURES)].to_numpy(np.float64), *dummies]),
            joined["status"].map(BAD_LOANS).to_numpy(np.int64),
            joined["A3"].map({name: at for at, name in enumerate(kept)}).to_numpy(np.int64),
        ),
        class_names=["good", "bad"],
        notes={
            "features": [*FEATURES, "weekly", "after_transaction"],
            "groups": kept,
            "client_standardised": list(range(len(FEATURES))),
        },
    )


def _table(archive: Path, folder: Path, name: str) -> pd.DataFrame:
    path = next(iter(sorted(folder.rglob(f"{name}.asc"))), None)
    if path is None:
        raise lacking(archive, f"{name}.asc")
    where = f"{archive}: {name}.asc"
    return read_table(path, TABLES[name], where, sep=";", low_memory=False)[list(TABLES[name])]


def _dates(column: "pd.Series[int]", archive: Path) -> "pd.Series[pd.Timestamp]":
    dates = pd.to_datetime(column.astype(str), format="%y%m%d", errors="coerce")
    if dates.isna().any():
        raise bad_value(archive, "date", int(column[dates.isna()].iloc[0]), "YYMMDD")
    return dates
