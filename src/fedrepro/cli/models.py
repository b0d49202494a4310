"""``fedrepro models``: list and describe models."""

import argparse

from fedrepro.cli.console import print_facts, print_rows
from fedrepro.config.loading import folders_here
from fedrepro.models import registry as models


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
