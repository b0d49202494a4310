"""``fedrepro regret``: the regret of AAggFF's decisions in a finished run."""

import argparse

from fedrepro.cli.analysis import write_found
from fedrepro.cli.run import add_run, requested


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "regret",
        help="the regret of a finished run's decisions and its proven bound",
        description="Replay the recorded losses of a finished run through its rule. "
        "Writes results/regrets/SETTING/METHOD/seedSEED.json: clients, linearised (whether the "
        "regret is that of the linearised losses), and round, regret and bound of every round.",
        epilog="Example: fedrepro regret aaggff/heart aaggff+fedavg --seed 2",
    )
    add_run(parser)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> None:
    from fedrepro.papers.aaggff.regret_of_run import regret_as_json

    workbench, run = requested(arguments)
    content = regret_as_json(workbench.root, run, workbench.plugins)
    write_found(workbench.root, run.analysis("regrets"), content)
