"""``fedrepro rank``: rank your own method in the league of scale compact."""

import argparse


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "rank",
        help="rank your own method beside all others in the small settings of scale compact",
        description="Train a method in the settings of the league, and rank it beside the methods "
        "whose results are there. Only this method trains, and what its runs start from. The cost "
        "is printed first. Finished runs are kept, so the same command resumes. Writes "
        "reports/site/league.html, .csv and .tex.",
        epilog="Example: fedrepro rank ima+my_method --on label-skew --grid mu=0.01,0.1,1",
    )
    parser.add_argument("method", metavar="METHOD", help="such as my_method or ima+my_method")
    parser.add_argument("--on", metavar="GROUP", help="one group of settings (default: all)")
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="values of a hyperparameter to try on clients' validation samples; may be repeated, "
        "then all combinations are tried",
    )
    parser.add_argument("--seeds", type=int, help="how many seeds (default: those of the scale)")
    parser.add_argument("--cores", type=int, help="how many runs at a time (default: all cores)")
    parser.add_argument("--plan", action="store_true", help="print the cost and stop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from fedrepro.cli.ranking import rank

    return rank(arguments)
