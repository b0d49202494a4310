"""``fedrepro methods``: list and describe methods, wrappers and server optimizers.

Without a name, a short list; with one, all details. ``--json`` and tab-separated lines are for
scripts.
"""

import argparse
import json
from typing import Any

from fedrepro.cli.console import print_facts, print_rows
from fedrepro.cli.meanings import meanings_of
from fedrepro.config.loading import folders_here
from fedrepro.methods import registry
from fedrepro.methods.files import part_files
from fedrepro.report.pages.equations import without_equations
from fedrepro.support.errors import bad_argument

KINDS = ("method", "pre-training", "wrapper", "server optimizer")


def list_methods(arguments: argparse.Namespace) -> None:
    folders = folders_here()
    if arguments.name is not None:
        part = registry.part(arguments.name, folders)
        if part is None:
            known = part_files(folders)
            raise bad_argument("NAME", arguments.name, "a method", known)
        row, said = registry.describe(part), meanings_of(part.cls)
        meanings = {name: said[name] for name in row["hyperparameters"]}
        if arguments.json:
            print(json.dumps({**row, "meanings": meanings}, indent=2))
        else:
            said_of_it = "\n\n".join(without_equations(part.documentation))
            print_facts([*_about(row, meanings), ("file", part.shown_file), ("", said_of_it)])
        return
    rows = [registry.describe(part) for part in registry.parts(folders).values()]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    rows.sort(key=lambda row: (KINDS.index(row["kind"]), row["name"]))
    cells = [
        (row["name"], row["kind"], row["paper"], ", ".join(_values(row).values())) for row in rows
    ]
    print_rows(("name", "kind", "paper", "hyperparameters"), cells)


def _values(row: dict[str, Any]) -> dict[str, str]:
    return {name: f"{name} = {value}" for name, value in row["hyperparameters"].items()}


def _about(row: dict[str, Any], meanings: dict[str, str]) -> list[tuple[str, str]]:
    """The facts of a method's description, as names and texts."""
    values = [
        f"{text}: {meanings[name]}" if meanings[name] else text
        for name, text in _values(row).items()
    ]
    deviations = "\n".join(
        f"{item['item']}: {item['why']}; @released: {item['field']} = {item['released']}"
        for item in row["deviations"]
    )
    return [
        ("name", row["name"]),
        ("kind", row["kind"]),
        ("paper", row["paper"]),
        ("hyperparameters", "\n".join(values)),
        ("hooks overridden", ", ".join(row["hooks"])),
        ("deviations", deviations),
    ]
