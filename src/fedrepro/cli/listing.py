"""``fedrepro methods``, ``models``, ``settings``, ``coverage``, ``claims``: list and describe.

Without a name, a short list; with one, all details. ``--json`` and tab-separated lines are for
scripts.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.cli.console import print_facts, print_rows
from fedrepro.support.errors import bad_value
from fedrepro.support.terminal import say

if TYPE_CHECKING:
    from fedrepro.data.partition.schemes import Scheme


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    methods = subparsers.add_parser(
        "methods",
        help="list methods, wrappers and server optimizers",
        description="List the parts that a composition such as ima+fedprox+fedadam can use, "
        "plug-ins included; with NAME, describe one part.",
    )
    methods.add_argument("name", metavar="NAME", nargs="?", help="a method, such as fedprox")
    methods.add_argument("--json", action="store_true", help="print JSON")
    methods.set_defaults(handler=list_methods)
    models = subparsers.add_parser(
        "models",
        help="list models",
        description="List the models that a setting can name, plug-ins included; with NAME, "
        "describe one model.",
    )
    models.add_argument("name", metavar="NAME", nargs="?", help="a model, such as twonn")
    models.set_defaults(handler=list_models)
    settings = subparsers.add_parser(
        "settings",
        help="list the settings of the experiment files",
        description="List the settings of all experiment files, or of one system; with a setting's "
        "name, print it as YAML.",
    )
    settings.add_argument(
        "name", metavar="NAME", nargs="?", help="a system such as ima, or ima/fmnist-shards2"
    )
    settings.set_defaults(handler=list_settings)
    coverage = subparsers.add_parser(
        "coverage",
        help="count published cells and figures: with a target, computed, in agreement",
        description="For each system and table, count the published cells that have a target in "
        "the workflow, that are computed at scale paper, and that agree.",
    )
    coverage.add_argument(
        "--figures",
        action="store_true",
        help="count published figures instead: drawn as printed, in part or otherwise, and "
        "computed at each scale",
    )
    coverage.add_argument("--json", action="store_true", help="print JSON")
    coverage.set_defaults(handler=show_coverage)
    claims = subparsers.add_parser(
        "claims",
        help="list the papers' claims, and whether the printed numbers and our runs support them",
        description="List every claim of the papers: whether the printed numbers support it, and "
        "whether runs at scale paper do, as the text says and as the released code does.",
    )
    claims.add_argument("--json", action="store_true", help="print JSON")
    claims.set_defaults(handler=show_claims)
    schema = subparsers.add_parser(
        "schema",
        help="write the JSON schemas that editors check config/ with",
        description="Write config/schema/*.json from the typed models of the files in config/.",
    )
    schema.set_defaults(handler=write_schemas)


KINDS = ("method", "pre-training", "wrapper", "server optimizer")


def list_methods(arguments: argparse.Namespace) -> None:
    from fedrepro.cli.meanings import meanings_of
    from fedrepro.config.loading import folders_here
    from fedrepro.methods import registry
    from fedrepro.methods.files import part_files

    folders = folders_here()
    if arguments.name is not None:
        part = registry.part(arguments.name, folders)
        if part is None:
            known = part_files(folders)
            raise bad_value("the command line", "NAME", arguments.name, "a method", known)
        row, said = registry.describe(part), meanings_of(part.cls)
        meanings = {name: said[name] for name in row["hyperparameters"]}
        if arguments.json:
            print(json.dumps({**row, "meanings": meanings}, indent=2))
        else:
            from fedrepro.report.pages.equations import without_equations

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
        f"{each['item']}: {each['why']}; @released: {each['field']} = {each['released']}"
        for each in row["deviations"]
    )
    return [
        ("name", row["name"]),
        ("kind", row["kind"]),
        ("paper", row["paper"]),
        ("hyperparameters", "\n".join(values)),
        ("hooks overridden", ", ".join(row["hooks"])),
        ("deviations", deviations),
    ]


def list_models(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import folders_here
    from fedrepro.models import registry as models

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


def list_settings(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.support.names import SettingName

    bench = load()
    if arguments.name is not None and arguments.name not in bench.experiments:
        from fedrepro.support.typed_yaml import written

        content = bench.setting(arguments.name).model_dump(mode="json", exclude_defaults=True)
        content.pop("extends", None)
        print(written({arguments.name: content}), end="")
        return
    cells = [
        (name, each.dataset, _partition(each.partition), each.model, str(each.rounds))
        for name, each in bench.settings.items()
        if arguments.name in (None, each.system)
        and "_" not in SettingName.parse(name).validation  # a candidate's of a search
    ]
    print_rows(("name", "dataset", "partition", "model", "rounds"), cells)


def _partition(scheme: "Scheme") -> str:
    return scheme.scheme + (f", {scheme.clients} clients" if scheme.clients else "")


def show_coverage(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.report.cells import coverage

    bench = load()
    for study in () if arguments.figures else coverage.missing_studies(bench):
        say(f"fedrepro: some cells need no run but are not computed yet: `fedrepro study {study}`")
    rows = (coverage.figures if arguments.figures else coverage.coverage)(bench)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    keys = [key for key in rows[0] if not sys.stdout.isatty() or any(row[key] for row in rows)]
    header = [SHORT.get(key, key) if sys.stdout.isatty() else key for key in keys]
    print_rows(header, [[str(row[key]) for key in keys] for row in rows])


# Short headers, so that nine columns of numbers fit on a terminal.
SHORT = {
    "targets": "target",
    "computed": "done",
    "not_comparable": "not comparable",
    "arithmetic_agree": "sums_agree",
    "arithmetic_differ": "sums_differ",
}


def show_claims(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.report.cells import tables
    from fedrepro.report.pages.claims import views_of
    from fedrepro.report.papers import published
    from fedrepro.run.results import REFERENCE
    from fedrepro.run.run_archive import PAPERS

    bench = load()
    papers = published.load(bench.root)
    targets = bench.tables("paper")
    with tables.computed_once():
        found = {key: tables.compute(bench, target, papers) for key, target in targets.items()}
        rows = [view.facts for view in views_of(bench, papers, found)]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    diverged = ["compact_diverged"] if any(row["compact_diverged"] for row in rows) else []
    header = (
        "claim", "says", "printed", "compact", "compact_lead", "compact_seeds", *diverged, "ours",
        "released", "lead", "seeds",
    )  # fmt: skip
    print_rows(header, [[str(row[key]) for key in header] for row in rows])
    if not rows:
        line = "no paper is in this workbench: `fedrepro init --with SYSTEM` brings its claims"
        say(f"fedrepro: {line}")
    elif not any((bench.root / PAPERS).glob(f"*/{REFERENCE}")):
        line = "results at scale paper that come with fedrepro are only in a clone of it"
        say(f"fedrepro: {line}")


def write_schemas(arguments: argparse.Namespace) -> None:
    from fedrepro.cli.schema import SCHEMAS, text_of

    for name, model in SCHEMAS.items():
        path = Path("config/schema") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(model), encoding="utf-8")
        print(path)
