"""``fedrepro settings`` and ``schema``: what experiment files have, and what they may have."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedrepro.cli.console import print_rows
from fedrepro.config.config_file import Config
from fedrepro.config.experiment import CompactFile, Experiment
from fedrepro.config.loading import load
from fedrepro.data.catalogue.catalogue import Catalogue
from fedrepro.data.partition.schemes import Scheme
from fedrepro.support.files import write_atomically
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


def _partition(scheme: Scheme) -> str:
    return scheme.scheme + (f", {scheme.clients} clients" if scheme.clients else "")


SCHEMAS: dict[str, type[BaseModel]] = {
    "config.json": Config,
    "experiment.json": Experiment,
    "compact.json": CompactFile,
    "datasets.json": Catalogue,
}

Schema = dict[str, Any]

NAMED = r"\{\w+\}"  # a key with a {name} expands to several entries
FOR: Schema = {
    "description": "Values for each {name}: the entry is repeated for each combination of the "
    "lists, or for each of the mappings.",
    "anyOf": [
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": "array", "minItems": 1},
        },
        {"type": "array", "minItems": 1, "items": {"type": "object", "minProperties": 1}},
    ],
}
EACH: Schema = {
    "description": "Rows to merge into the entry, which is repeated for each of them.",
    "type": "array",
    "minItems": 1,
    "items": {"type": "object"},
}


def write_schemas(arguments: argparse.Namespace) -> None:
    for name, model in SCHEMAS.items():
        path = Path("config/schema") / name
        with write_atomically(path) as temporary:
            temporary.write_text(text_of(model), encoding="utf-8")
        print(path)


def text_of(model: type[BaseModel]) -> str:
    """The JSON schema of a configuration file, as text."""
    schema = model.model_json_schema()
    if model in (Experiment, CompactFile):
        _as_written(schema)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _as_written(schema: Schema) -> None:
    """Allow the shorthands that are expanded when experiment files are read."""
    models = schema["$defs"]
    # A setting that extends another one inherits its required keys.
    setting = models["Setting"]
    setting["anyOf"] = [{"required": ["extends"]}, {"required": setting.pop("required")}]
    # A metric may be split between a table and its rows.
    del models["OverClients"]["required"]
    if "MethodGrid" in models:
        grid = models["MethodGrid"]["properties"]
        grid["variant_of"] = {"type": "string", "description": "The method to vary."}
        named = {"type": "string", "description": "Their name, with both axes' labels in braces."}
        grid["methods"] = {"anyOf": [grid["methods"], named]}
    for node in list(_nodes(schema)):
        if node.get("type") == "array" and _keys(node.get("items"), models) is not None:
            node["items"] = {
                "anyOf": [node["items"], _product(node["items"], models, "for", "each")]
            }
        (entry,) = node.get("patternProperties", {"": node.get("additionalProperties")}).values()
        if _keys(entry, models) is not None:
            node.setdefault("patternProperties", {})[NAMED] = _product(entry, models, "for")
    models |= {"for": FOR, "each": EACH}


def _product(entry: Schema, models: Schema, *given: str) -> Schema:
    """An entry that expands to several. Its values are not checked: any may contain a {name}."""
    keys = _keys(entry, models)
    known = {key: {"$ref": f"#/$defs/{key}"} for key in given}
    return {
        "type": "object",
        "properties": {**known, **dict.fromkeys(sorted(keys or ()), True)},
        "additionalProperties": not keys,
        "anyOf": [{"required": [key]} for key in given],
    }


def _keys(entry: Any, models: Schema) -> set[str] | None:
    """The keys that an entry may have: an empty set if any key, None if it is not a mapping."""
    if not isinstance(entry, dict):
        return None
    chosen = [models[part["$ref"].rpartition("/")[2]] for part in _parts(entry)] or [entry]
    if any(model.get("type") != "object" for model in chosen):
        return None
    return {key for model in chosen for key in model.get("properties", {})}


def _parts(entry: Schema) -> list[Schema]:
    return [part for part in entry.get("oneOf", [entry]) if "$ref" in part]


def _nodes(node: Any) -> Iterator[Schema]:
    """A schema and all schemas nested in it."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if type(node) is list else ():
        yield from _nodes(inner)
