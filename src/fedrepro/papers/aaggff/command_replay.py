"""``fedrepro replay``: replay a log of losses through an aggregation rule, without training."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro.support.errors import bad_value
from fedrepro.support.terminal import say

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.papers.aaggff.replay import Replay

SHOWN = 12  # rows of the printed table


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "replay",
        help="replay a log of losses through an adaptive weighting rule",
        description="Replay a log of losses through a rule such as aaggff_s, aaggff_d, afl, term "
        "or qfedavg; nothing is trained. FILEs are CSV, Parquet or npy. LOSSES has one row per "
        "round and one column per client, or columns round (from 1), client (from 0) and loss.",
        epilog="Example: fedrepro replay aaggff_s --losses losses.csv --cdf gumbel --out replayed",
    )
    parser.add_argument("rule", metavar="RULE", help="such as aaggff_s or aaggff_d@released")
    parser.add_argument("--losses", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--participants",
        type=Path,
        metavar="FILE",
        help="one row per round, the ids of the clients that took part (default: all)",
    )
    parser.add_argument(
        "--sizes", type=Path, metavar="FILE", help="training samples per client (default: equal)"
    )
    parser.add_argument(
        "--clients", type=int, metavar="K", help="number of clients, if the log does not name all"
    )
    parser.add_argument("--cdf", help="distribution function of aaggff_s and aaggff_d")
    parser.add_argument("--fidelity", default="paper", choices=("paper", "released"))
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="a hyperparameter of the rule, such as tilt=0.1; may be repeated",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="write clients and rounds there (default: print the last rounds only)",
    )
    parser.add_argument("--format", default="parquet", choices=("parquet", "csv"))
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> None:
    from fedrepro.papers.aaggff.loss_log import read_log
    from fedrepro.papers.aaggff.replay import replay, rule_of

    values: dict[str, object] = {} if arguments.cdf is None else {"cdf": arguments.cdf}
    for text in arguments.set:
        name, value = _hyperparameter(text)
        values[name] = value
    rule = rule_of(arguments.rule, arguments.fidelity, values)
    log = read_log(arguments.losses, arguments.participants, arguments.sizes, arguments.clients)
    result = replay(rule, log.clients, log.observed())
    if arguments.out is not None:
        for name, table in (("clients", result.clients), ("rounds", result.rounds)):
            path = arguments.out / f"{name}.{arguments.format}"
            _write(table, path, arguments.format)
            say(path)
    _show(result, log.clients)


def _hyperparameter(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = None
    if not name or not equals or number is None:
        raise bad_value("the command line", "--set", text, "NAME=NUMBER")
    return name, number


def _write(table: "pd.DataFrame", path: Path, kind: str) -> None:
    from fedrepro.support.files import write_atomically

    with write_atomically(path) as temporary:
        if kind == "csv":
            table.to_csv(temporary, index=False)
        else:
            table.to_parquet(temporary, index=False)


def _show(result: "Replay", clients: int) -> None:
    from fedrepro.cli.console import print_rows

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
