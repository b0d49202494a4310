"""``fedrepro decompose``: IMA's Theorem 1 after rounds of finished runs."""

import argparse

from fedrepro.cli.analysis import write_found
from fedrepro.cli.arguments import require_at_least, require_seed
from fedrepro.cli.console import progress_bar
from fedrepro.config.loading import load
from fedrepro.config.targets import joint_analysis
from fedrepro.papers.ima.decomposition_of_runs import decomposition_of


def handle(arguments: argparse.Namespace) -> None:
    require_at_least("--samples", arguments.samples, 1)
    workbench = load()
    setting = workbench.setting(arguments.setting).name
    method, seeds = arguments.method, arguments.seeds
    for seed in seeds:
        require_seed("--seeds", seed)
    with progress_bar(f"{setting} {method}") as progress:
        content = decomposition_of(workbench, setting, method, seeds, arguments.samples, progress)
    samples = str(arguments.samples)
    path = joint_analysis("decompositions", setting, method, seeds, samples)
    write_found(workbench.root, path, content)
