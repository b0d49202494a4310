"""``fedrepro decompose``: IMA's Theorem 1 after rounds of finished runs."""

import argparse

from fedrepro.cli.analysis import require_at_least, write_found
from fedrepro.cli.console import progress_bar
from fedrepro.cli.run import require_seed
from fedrepro.config.loading import load
from fedrepro.config.targets import joint_analysis


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "decompose",
        help="why averaging works: five terms of the expected loss, over several seeds",
        description="The expected loss of the clients' averaged model in the five terms of IMA's "
        "Theorem 1, after every round whose models all runs kept (`keep` in the setting): "
        "training and heterogeneous bias, variance, covariance, locality; the ensemble compared "
        "with the average (Lemma 1), and the similarity of the clients' outputs (CKA). The runs "
        "differ in their seed and share clients: `partition: { ..., seed: 1 }` in the setting. "
        "Writes results/decompositions/SETTING/METHOD/seedsSEEDS_SAMPLES.json.",
        epilog="Example: fedrepro decompose ima/silo-demo fedavg --seeds 1 2",
    )
    parser.add_argument("setting", metavar="SETTING", help="such as ima/silo-demo")
    parser.add_argument("method", metavar="METHOD", help="such as fedavg")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="two or more")
    parser.add_argument(
        "--samples", type=int, default=2000, metavar="N", help="at most so many (default: 2000)"
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> None:
    from fedrepro.papers.ima.decomposition_of_runs import decomposition_of

    require_at_least("--samples", arguments.samples, 1)
    workbench = load()
    setting, method, seeds = (
        workbench.setting(arguments.setting).name,
        arguments.method,
        arguments.seeds,
    )
    for seed in seeds:
        require_seed("--seeds", seed)
    with progress_bar(f"{setting} {method}") as progress:
        content = decomposition_of(workbench, setting, method, seeds, arguments.samples, progress)
    samples = str(arguments.samples)
    path = joint_analysis("decompositions", setting, method, seeds, samples)
    write_found(workbench.root, path, content)
