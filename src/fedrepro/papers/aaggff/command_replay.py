"""``fedrepro replay``: replay a log of losses through an aggregation rule, without training."""

import argparse
from pathlib import Path

import pandas as pd

from fedrepro.cli.console import print_rows
from fedrepro.cli.requested import values_of
from fedrepro.papers.aaggff.loss_log import read_log
from fedrepro.papers.aaggff.replay import Replay, replay, rule_of
from fedrepro.support.files import write_atomically
from fedrepro.support.terminal import say

SHOWN = 12  # rows of the printed table


def handle(arguments: argparse.Namespace) -> None:
    values: dict[str, object] = {} if arguments.cdf is None else {"cdf": arguments.cdf}
    values |= values_of(arguments.set)
    rule = rule_of(arguments.rule, arguments.fidelity, values)
    log = read_log(arguments.losses, arguments.participants, arguments.sizes, arguments.clients)
    result = replay(rule, log.clients, log.observed())
    if arguments.out is not None:
        for name, table in (("clients", result.clients), ("rounds", result.rounds)):
            path = arguments.out / f"{name}.{arguments.format}"
            _write(table, path, arguments.format)
            say(path)
    _show(result, log.clients)


def _write(table: "pd.DataFrame", path: Path, kind: str) -> None:
    with write_atomically(path) as temporary:
        if kind == "csv":
            table.to_csv(temporary, index=False)
        else:
            table.to_parquet(temporary, index=False)


def _show(result: "Replay", clients: int) -> None:
    header = ("round", "participants", "decision loss", "regret", "bound", "largest weights")
    rows = []
    for row in result.rounds.tail(SHOWN).itertuples():
        weights = result.clients[result.clients["round"] == row.round]
        largest = weights.nlargest(3, "weight")
        shares = ", ".join(
            f"{client}: {weight:.4f}"
            for client, weight in zip(largest["client"], largest["weight"], strict=True)
        )
        numbers = (_number(each) for each in (row.decision_loss, row.regret, row.bound))
        rows.append((str(row.round), str(row.participants), *numbers, shares))
    print_rows(header, rows)
    if result.linearised and result.rounds["regret"].notna().any():
        print(f"{clients} clients: the regret is that of the linearised decision losses")


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) and value == value else "–"
