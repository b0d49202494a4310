"""``fedrepro methods`` and ``models``: list and describe parts of compositions, and models.

Without a name, a short list; with one, all details. ``--json`` and tab-separated lines are for
scripts. What hyperparameters mean is read from the code that defines them.
"""

import argparse
import inspect
import re
from typing import Any

from fedrepro.cli.console import print_facts, print_rows, printed_as_json
from fedrepro.config.experiment import without_values
from fedrepro.config.loading import folders_here
from fedrepro.methods import registry
from fedrepro.methods.files import part_files
from fedrepro.models import registry as models
from fedrepro.report.pages.equations import without_equations
from fedrepro.support.errors import bad_argument

KINDS = ("method", "pre-training", "wrapper", "server optimizer")


def list_methods(arguments: argparse.Namespace) -> None:
    folders = folders_here()
    if arguments.name is not None:
        name, values = without_values(arguments.name, folders)
        part = registry.part(name, folders)
        if part is None:
            known = part_files(folders)
            raise bad_argument("NAME", arguments.name, "a method", known)
        row, said = registry.describe(part), meanings_of(part.cls)
        row["hyperparameters"] |= values.get(name, {})
        meanings = {name: said[name] for name in row["hyperparameters"]}
        if not printed_as_json(arguments, {**row, "meanings": meanings}):
            said_of_it = "\n\n".join(without_equations(part.documentation))
            print_facts([*_about(row, meanings), ("file", part.shown_file), ("", said_of_it)])
        return
    rows = [registry.describe(part) for part in registry.parts(folders).values()]
    if printed_as_json(arguments, rows):
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
        *((key, row[key]) for key in ("name", "kind", "paper")),
        ("hyperparameters", "\n".join(values)),
        ("hooks overridden", ", ".join(row["hooks"])),
        ("deviations", deviations),
    ]


def meanings_of(cls: type[Any]) -> dict[str, str]:
    """Hyperparameter -> its meaning, or "", wherever a part's class has it from."""
    meanings = {}
    for name in registry.hyperparameters_of(cls):
        owners = [owner for owner in cls.__mro__ if name in inspect.get_annotations(owner)]
        meanings[name] = next((said for owner in owners if (said := _said_of(owner, name))), "")
    return meanings


_SOURCES: dict[type[Any], str] = {}  # as Python parses the whole file to find one


def _said_of(cls: type[Any], name: str) -> str:
    """The comment on a field's line, or its entry among the attributes of the docstring."""
    if cls not in _SOURCES:
        _SOURCES[cls] = inspect.getsource(cls)
    comment = re.search(rf"^    {name}\s*:[^#\n]*#\s*(.+)$", _SOURCES[cls], re.MULTILINE)
    if comment:
        return comment[1].strip()
    attributes = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[2]
    for entry in re.split(r"\n(?= {4}\S)", attributes):
        names, _, text = entry.strip().partition(": ")
        if name in names.split(", "):
            return " ".join(text.split())
    return ""


def list_models(arguments: argparse.Namespace) -> None:
    folders = folders_here()
    if arguments.name is None:
        known = models.known(folders)
        cells = [(name, model.family, model.source) for name, model in known.items()]
        print_rows(("name", "family", "source"), cells)
        return
    model = models.find(arguments.name, folders)
    file = model.file or f"src/fedrepro/models/{model.module}.py"
    facts = {
        "name": arguments.name,
        "family": model.family,
        "source": model.source,
        "weights": model.weights or "",
        "file": f"{file}, {model.function}",
    }
    print_facts(list(facts.items()))
