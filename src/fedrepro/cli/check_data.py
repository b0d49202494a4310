"""``fedrepro check-data``: what was understood of your own data, before anything trains."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any

import numpy as np

from fedrepro.cli.arguments import values_of
from fedrepro.cli.console import print_facts, progress_bar
from fedrepro.cli.data import words_of_test
from fedrepro.config.loading import folders_here, load_config
from fedrepro.data.catalogue.catalogue import CATALOGUE, Catalogue, load_catalogue
from fedrepro.data.catalogue.entries import Own
from fedrepro.data.catalogue.kinds import DatasetSpec, Plugin
from fedrepro.data.fetching.own_files import find_own
from fedrepro.data.prepare import read_checked
from fedrepro.data.readers.content import FIRST, Content, Source
from fedrepro.data.readers.packing import Packing
from fedrepro.data.readers.tables import header_of
from fedrepro.support.errors import COMMAND_LINE, bad_argument, bad_value, listed, unreadable
from fedrepro.support.packaged import CONFIG
from fedrepro.support.typed_yaml import read_value, validate, written

EXPORT = "images.npz"  # in a folder of `fedrepro synth export`
LISTS = ("drop", "missing")  # keys whose values are separated by commas
NUMBERS = ("mean", "std")  # and those whose are numbers
ABOUT = ("title", "licence", "citation")  # keys that all kinds have


def handle(arguments: argparse.Namespace) -> None:
    here = CONFIG.exists()  # a file can be checked anywhere
    known = load_catalogue(folders=folders_here()).datasets if here else {}
    name, spec = _entry(arguments.data, arguments.set, known)
    spec = spec.found_in(folders_here(), name) if isinstance(spec, Plugin) else spec
    path = find_own(spec.path, load_config().data.archives if here else None)
    if path is None:
        raise bad_value(name, "path", spec.path, "a file or folder that exists")
    with TemporaryDirectory() as scratch, progress_bar(f"{name}: reading") as progress:
        try:
            content = read_checked(name, spec, Source(path, Path(scratch), progress))
        except OSError as error:
            raise unreadable(error.filename or path, error.strerror or error) from error
    print_facts([("data", f"{path}, {spec.kind}"), *_facts(content)])
    if name not in known:
        keys = spec.model_dump(mode="json", by_alias=False, exclude_unset=True)
        print(f"\nIts entry, right below the line `datasets:` in {CATALOGUE}:\n")
        print(indent(written({name: keys}), "  "), end="")


def _entry(data: str, changes: list[str], known: "Mapping[str, DatasetSpec]") -> "tuple[str, Own]":
    """The name and the entry for a data set's name or a path, with changed keys."""
    own = {name: spec for name, spec in known.items() if isinstance(spec, Own)}
    path = Path(data)
    name = next((name for name, spec in own.items() if data in (name, spec.path)), None)
    if name is not None:
        keys = own[name].model_dump(mode="json", by_alias=False, exclude_unset=True)
    elif data in known:
        expected = "your own data: `fedrepro prepare` checks the files of others"
        raise bad_argument("DATA", data, expected)
    elif path.exists():
        name = re.sub("[^a-z0-9]+", "_", path.resolve().stem.lower()).strip("_") or "mine"
        keys = _guessed(path)
        kinds = {text for text in changes if text.startswith("kind=")}
        if kinds - {f"kind={keys['kind']}"}:  # another one has other keys
            keys = {key: keys[key] for key in (*ABOUT, "path")}
    else:
        expected = f"a file or folder that exists, or your own data set of {CATALOGUE}"
        raise bad_argument("DATA", data, expected, own)
    in_brackets = [match for text in changes if (match := re.fullmatch(r"(\w+)=\[(.+)\]", text))]
    for key, value in values_of([*{*changes} - {match[0] for match in in_brackets}]).items():
        keys[key] = str(value).split(",") if key in LISTS else value
    for _, key, values in (match.group(0, 1, 2) for match in in_brackets):
        texts = [each.strip(" \"'") for each in values.split(",")]
        where = f"--set {key}"
        keys[key] = [
            read_value(text, COMMAND_LINE, where) if key in NUMBERS else text for text in texts
        ]
    content = {"datasets": {name: keys}}
    spec = validate(Catalogue, content, COMMAND_LINE).datasets[name]
    assert isinstance(spec, Own)
    return name, spec


def _guessed(path: Path) -> dict[str, Any]:
    """An entry's keys for a file or folder."""
    find_own(str(path), None)  # refuses a pipe
    about = {"title": path.name, "licence": "mine", "citation": "none", "path": str(path)}
    if path.is_dir() and (path / EXPORT).is_file():
        return {"kind": "synthetic", **about}
    if path.name == EXPORT:
        return {"kind": "synthetic", **about, "path": str(path.parent)}
    suffix = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    if suffix in (".csv", ".tsv", ".txt"):
        return {"kind": "tabular_csv", **about, "label": header_of(path)[-1]}
    if suffix in (".jsonl", ".ndjson"):
        return {"kind": "text", **about, "text": "text", "label": "label", "length": 64}
    if suffix in (".npz", ".parquet", ".pq"):
        return {"kind": "arrays", **about}
    if path.is_dir() or suffix in (".zip", ".tar", ".tgz"):
        return {"kind": "image_folder", **about, "height": 32, "width": 32}
    expected = (
        "a CSV file, images in folders train/CLASS, arrays in an npz or Parquet file, texts in "
        "JSON Lines, or a folder of `fedrepro synth export`"
    )
    raise bad_argument("DATA", str(path), expected)


def _facts(content: "Content") -> list[tuple[str, str]]:
    """What was read, and what all kinds of data have: samples, classes, natural clients."""
    train, test = content.train, content.test
    shape = "x".join(map(str, train.x.shape[1:]))
    if "packing" in content.notes:
        shape = str(Packing.of(content.notes["packing"]))
    clients = "none: the partition makes them"
    if train.group is not None:
        numbers, counts = np.unique(train.group, return_counts=True)
        known = content.notes.get("groups")
        called = known if isinstance(known, list) else range(int(numbers.max()) + 1)
        per_client = [f"{called[at]} ({count})" for at, count in zip(numbers, counts, strict=True)]
        span = " to ".join(f"{size:,}" for size in sorted({counts.min(), counts.max()}))
        clients = f"{len(counts):,} natural ones with {span} training samples: {listed(per_client)}"
    names = content.class_names
    if train.y.dtype.kind == "f":
        first, span = [], f"{train.y.min():g} to {train.y.max():g} in training"
        targets = ("targets", f"{listed(names)}, {span}")
    else:
        sizes = np.bincount(train.y.ravel(), minlength=len(names))
        per_class = [f"{name} ({size})" for name, size in zip(names, sizes, strict=True)]
        labels = train.y[: FIRST if train.y.ndim == 1 else 0]  # a text has one at every word
        first = [(f"sample {at}", names[label]) for at, label in enumerate(labels, 1)]
        text = f"{len(per_class):,} with training samples: {listed(per_class)}"
        targets = ("classes", text)
    return [
        *(content.understood or first),
        ("features", listed(content.notes.get("features", []))),
        ("shape", shape),
        ("training", f"{len(train.y):,} samples"),
        ("test", words_of_test(content.notes, 0 if test is None else len(test.y))),
        targets,
        ("clients", clients),
    ]
