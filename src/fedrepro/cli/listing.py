"""``fedrepro methods`` and ``coverage``: tables for people, ``--json`` for scripts."""

import argparse
import json
from pathlib import Path

from fedrepro.cli.console import print_table


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    methods = subparsers.add_parser(
        "methods",
        help="list methods, wrappers and server optimizers",
        description="List what a composition such as ima+fedprox+fedadam can be made of.",
    )
    methods.add_argument("--json", action="store_true", help="print JSON")
    methods.set_defaults(handler=list_methods)
    coverage = subparsers.add_parser(
        "coverage",
        help="how many published cells have a target, are computed, agree",
        description="Of the published cells: how many have a target in the workflow, how many are "
        "computed at scale paper, how many agree; per system and table.",
    )
    coverage.add_argument("--json", action="store_true", help="print JSON")
    coverage.set_defaults(handler=show_coverage)
    schema = subparsers.add_parser(
        "schema",
        help="write the JSON schemas that editors check config/ with",
        description="Write config/schema/*.json from the typed models of the files in config/.",
    )
    schema.set_defaults(handler=write_schemas)


def list_methods(arguments: argparse.Namespace) -> None:
    from fedrepro.methods import _registry as registry

    rows = [registry.describe(part) for part in registry.parts().values()]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    cells = [
        (
            row["name"],
            row["kind"],
            row["paper"],
            "\n".join(f"{name} = {value}" for name, value in row["hyperparameters"].items()),
            ", ".join(row["hooks"]),
            "\n".join(
                f"{each['item']}: {each['why']}; @released: {each['field']} = {each['released']}"
                for each in row["divergences"]
            ),
        )
        for row in sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["name"]))
    ]
    header = ("name", "kind", "paper", "hyperparameters", "hooks overridden", "divergences")
    print_table(header, cells)


KINDS = ("method", "wrapper", "server optimizer")


def show_coverage(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.report.cells import coverage

    rows = coverage.coverage(load())
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print_table(tuple(rows[0]), [tuple(str(value) for value in row.values()) for row in rows])


def write_schemas(arguments: argparse.Namespace) -> None:
    from fedrepro.cli.schema import SCHEMAS, text_of

    for name, model in SCHEMAS.items():
        path = Path("config/schema") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(model), encoding="utf-8")
        print(path)
