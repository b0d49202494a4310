"""``fedrepro settings``: what experiment files have."""

import argparse

from fedrepro.cli.console import print_rows
from fedrepro.config.loading import load
from fedrepro.data.partition.schemes import Scheme
from fedrepro.support.names import SettingName
from fedrepro.support.typed_yaml import written


def list_settings(arguments: argparse.Namespace) -> None:
    bench = load()
    if arguments.name is not None and arguments.name not in bench.experiments:
        setting = bench.setting(arguments.name)
        content = setting.model_dump(mode="json", by_alias=False, exclude_defaults=True)
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
