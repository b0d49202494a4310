"""The commands about data: download, prepare, partition, datasets."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from fedrepro.cli.arguments import require_seed
from fedrepro.cli.console import print_facts, print_rows, printed_as_json, progress_bar
from fedrepro.config.loading import folders_here, load, load_config
from fedrepro.data.catalogue.catalogue import find_dataset, load_catalogue
from fedrepro.data.dataset import PREPARED, open_dataset, read_meta, refuse_damage
from fedrepro.data.fetching.raw_files import DOWNLOADS, RECORD, download, what_is
from fedrepro.data.fetching.weights import fetch_weights
from fedrepro.data.prepare import prepare
from fedrepro.provenance import inputs
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of
from fedrepro.support.terminal import say


def _download(arguments: argparse.Namespace) -> None:
    # Not all of config/: a broken experiment file does not matter here.
    archives, catalogue = load_config().data.archives, load_catalogue(folders=folders_here())
    if arguments.name in catalogue.weights:
        path = fetch_weights(arguments.name, catalogue.weights[arguments.name], archives)
        print(f"{path}  sha256 {sha256_of(path)}")
        return
    spec = find_dataset(arguments.name, catalogue.datasets)
    download(arguments.name, spec, archives)
    record = DOWNLOADS / arguments.name / RECORD
    for name, about in checksummed_json.read(record, what_is(arguments.name))["files"].items():
        print(f"{name}  sha256 {about['sha256']}  from {about['from']}")


def _prepare(arguments: argparse.Namespace) -> None:
    archives = load_config().data.archives
    spec = find_dataset(arguments.name, load_catalogue(folders=folders_here()).datasets)
    with progress_bar(f"{arguments.name}: reading") as progress:
        folder = prepare(arguments.name, spec, archives, again=arguments.again, progress=progress)
    dataset = open_dataset(arguments.name)
    test = len(dataset.test) if dataset.test else 0
    what = {"regression": "targets", "multi_label": "labels"}.get(dataset.task, "classes")
    print(
        f"{folder}: {len(dataset.train):,} training and {test:,} test samples, "
        f"{dataset.classes} {what}, each {'x'.join(map(str, dataset.input_shape))}"
    )
    print(f"test samples: {words_of_test(dataset.meta, test)}")


def words_of_test(notes: Mapping[str, Any], test: int) -> str:
    """How many test samples a data set has that belong to no client, and where they are from."""
    if not test:
        return "none, unless clients hold out their own: `test_fraction` in the partition"
    share = notes.get("test_fraction")
    origin = "" if share is None else f", test_fraction {share:g} of each class"
    return f"{test:,} that belong to no client{origin}"


def _partition(arguments: argparse.Namespace) -> None:
    require_seed("--seed", arguments.seed)
    bench = load()
    setting = bench.setting(arguments.setting)
    refuse_damage(setting.dataset)
    dataset = open_dataset(setting.dataset)
    partition = inputs.make_partition_of(setting, arguments.seed, dataset, bench.plugins)
    path = setting.partition_path(arguments.seed)
    partition.save(path)
    sizes = partition.train_counts.sum(axis=1)
    held = (partition.train_counts > 0).sum(axis=1)
    train = dataset.train
    unused = len(train) - partition.samples
    print(
        f"{path}: {len(sizes)} clients with {sizes.min()} to {sizes.max()} training samples "
        f"of {held.min()} to {held.max()} classes"
        + (f"; {unused:,} of {len(train):,} samples are not used" if unused else "")
    )
    if partition.test_counts is not None:
        tested = partition.test_counts.sum(axis=1)
        chosen = f"test_fraction {setting.partition.test_fraction:g}"
        origin = chosen if setting.partition.test_fraction else "given by the data"
        print(f"test samples: {tested.min()} to {tested.max()} of each client, {origin}")
    else:
        test = 0 if dataset.test is None else len(dataset.test)
        print(f"test samples: {words_of_test(dataset.meta, test)}")
    if warning := partition.warning(dataset.meta.get("class_names", ())):
        say(warning)


def _datasets(arguments: argparse.Namespace) -> None:
    load_config()  # which says so where there is no workbench
    known = load_catalogue(folders=folders_here()).datasets
    if arguments.name is not None:
        row = _state(arguments.name, find_dataset(arguments.name, known))
        if not printed_as_json(arguments, row):
            print_facts([(key, _shown(value)) for key, value in row.items()])
        return
    rows = [_state(name, spec) for name, spec in known.items()]
    if printed_as_json(arguments, rows):
        return
    keys = ("name", "state", "train", "test", "classes", "input_shape", "title")
    header = ("name", "state", "train", "test", "classes", "shape", "what")
    print_rows(header, [tuple(_shown(row[key]) for key in keys) for row in rows])
    if sys.stdout.isatty():
        print("`fedrepro prepare NAME` prepares one; add your own in config/datasets.yaml.")


def _shown(value: Any) -> str:
    """A value of a row as text."""
    if isinstance(value, list):
        return "x".join(map(str, value))
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


OF_ENTRY = ("kind", "title", "licence", "citation", "homepage")  # its keys in a row
OF_DATA = ("classes", "input_shape", "content_sha256")  # the keys of prepared data in it


def _state(name: str, spec: Any) -> dict[str, Any]:
    """One row: a data set's catalogue entry, and its state on disk."""
    row: dict[str, Any] = {
        "name": name,
        **{key: getattr(spec, key) for key in OF_ENTRY},
        "state": "downloaded" if (DOWNLOADS / name / RECORD).is_file() else "absent",
        **dict.fromkeys(("train", "test", *OF_DATA)),
    }
    try:
        meta = read_meta(PREPARED / name)
    except UserError:
        return {**row, "state": "damaged"}
    if meta is None:
        return row
    samples = {split: about["samples"] for split, about in meta["splits"].items()}
    known = {key: meta[key] for key in OF_DATA}
    return {**row, "state": "prepared", "test": 0, **samples, **known}
