"""``fedrepro replay``: replay a log of losses through an aggregation rule, without training."""

import argparse
from pathlib import Path

from fedrepro.cli.arguments import new_folder, refuse_existing, values_of
from fedrepro.cli.console import print_rows
from fedrepro.papers.aaggff.loss_log import read_log
from fedrepro.papers.aaggff.replay import Replay, replay, rule_of
from fedrepro.support.terminal import say

SHOWN = 12  # rows of the printed table


def handle(arguments: argparse.Namespace) -> None:
    cdf = [] if arguments.cdf is None else [f"cdf={arguments.cdf}"]
    values = values_of([*cdf, *arguments.set])
    folder: Path | None = arguments.out
    if folder is not None:
        refuse_existing("--out", folder)
    rule = rule_of(arguments.rule, arguments.fidelity, values)
    log = read_log(arguments.losses, arguments.participants, arguments.sizes, arguments.clients)
    result = replay(rule, log.clients, log.observed())
    if folder is not None:
        names = [f"{name}.{arguments.format}" for name in ("clients", "rounds")]
        with new_folder("--out", folder) as made:
            for name, table in zip(names, (result.clients, result.rounds), strict=True):
                write = table.to_csv if name.endswith(".csv") else table.to_parquet
                write(made / name, index=False)
        for name in names:
            say(str(folder / name))
    _show(result, log.clients)


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
