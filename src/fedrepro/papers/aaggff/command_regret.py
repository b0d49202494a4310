"""``fedrepro regret``: the regret of AAggFF's decisions in a finished run."""

import argparse

from fedrepro.cli.analysis import write_found
from fedrepro.cli.requested import requested
from fedrepro.papers.aaggff.regret_of_run import regret_as_json


def handle(arguments: argparse.Namespace) -> None:
    workbench, run = requested(arguments)
    content = regret_as_json(workbench.root, run, workbench.plugins)
    write_found(workbench.root, run.analysis("regrets"), content)
