"""The reference of all configuration keys as Markdown, from the schemas of the typed models."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from fedrepro.cli.configuration import SCHEMAS

Node = dict[str, Any]

# By schema: the file that it describes, and what stands above its keys.
FILES = {
    "config": (
        "config/config.yaml",
        "`--config KEY=VALUE` after a Snakemake command replaces a key for one call.",
    ),
    "experiment": (
        "config/experiments/SYSTEM.yaml",
        "[Experiment files](../experiments.md) explains them by example. An entry with `for` or "
        "`each` expands to several. `config/compact/SYSTEM.yaml` has the same keys `methods`, "
        "`settings` and `tables`.",
    ),
    "datasets": ("config/datasets.yaml", "[Data](../data.md) explains them by example."),
}


class Place(NamedTuple):
    """Where a model is first used.

    Attributes:
        path: the keys that lead to it.
        telling: what tells it from its alternatives there, or "".
        alternatives: the models that are possible there.
        parent: what tells the model that has its key from alternatives, or "".
    """

    path: str
    telling: str
    alternatives: tuple[str, ...]
    parent: str


Places = dict[str, Place]


def page(name: str) -> str:
    """All keys of a configuration file, those of the outermost level first."""
    whole = SCHEMAS[f"{name}.json"].model_json_schema()
    models = whole.pop("$defs")
    places = places_of(whole, models)
    file, about = FILES[name]
    title = "Experiment files" if name == "experiment" else file.rpartition("/")[2]
    parts = [f"# {title}", f"Every key of `{file}`. {about}", *keys_of(whole, places)]
    begun: set[str] = set()
    for model, (path, telling, alternatives, parent) in places.items():
        shared = shared_keys([models[each] for each in alternatives]) if telling else []
        if telling and path not in begun:
            parts += [f"## `{path}`", *keys_of(models[model], places, only=shared)]
        again = path in begun or any(
            path == each.path for each in places.values() if each.parent != parent
        )
        begun.add(path)
        if telling:
            heading = f"### {telling}" if ":" in telling else f"### With {telling}"
        else:
            heading = f"## `{path}`" + (f" of {parent}" if again and parent else "")
        parts += [f"{heading} {{#{model.lower()}}}", as_markdown(models[model]["description"])]
        own = [key for key in models[model].get("properties", {}) if key not in shared]
        parts += keys_of(models[model], places, only=own)
    return "\n\n".join(parts) + "\n"


def keys_of(model: Node, places: Places, only: list[str] | None = None) -> Iterator[str]:
    """An entry for each key, or some of them: its values, its default, what it means."""
    for key, value in model.get("properties", {}).items():
        if only is None or key in only:
            needed = "required" if key in model.get("required", []) else default_of(value)
            values = ", ".join(filter(None, (words(value, places), needed)))
            yield f"`{key}`: {values}\n:   {as_markdown(value['description'])}"


def default_of(value: Node) -> str:
    """Its default, in words; "" if that is not a plain value."""
    default = value.get("default")
    if default in (None, [], "") or isinstance(default, dict):
        return ""
    return f"default `{json.dumps(default)}`".replace('"', "")


def words(node: Node, places: Places) -> str:
    """The values that a node of a schema allows."""
    among = partial(words, places=places)
    match node:
        case {"$ref": ref}:
            name = name_in(ref)
            return f"[{places[name].telling or 'keys'}](#{name.lower()})"
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return listed([f"`{value}`" for value in values])
        case {"anyOf": nodes} | {"oneOf": nodes}:
            return listed([among(each) for each in nodes if each.get("type") != "null"])
        case {"type": "array", "prefixItems": items}:
            return f"a list of {len(items)}: {among(items[0])}"
        case {"type": "array", "items": items}:
            return f"a list of: {among(items)}"
        case {"type": "object"}:
            entry = among(next(entries_of(node)))
            return f"for each name{', ' if entry.startswith('for each') else ': '}{entry}"
        case {"type": "integer"}:
            return f"a whole number{bounds(node)}"
        case {"type": "number"}:
            return f"a number{bounds(node)}"
        case {"type": "boolean"}:
            return "true or false"
        case {"format": "path"}:
            return "a path"
    return "text"


BOUNDS = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def bounds(node: Node) -> str:
    return " and".join(f" {text} {node[key]}" for key, text in BOUNDS.items() if key in node)


def listed(texts: Iterable[str]) -> str:
    *most, last = dict.fromkeys(texts)
    return f"{', '.join(most)} or {last}" if most else last


def name_in(ref: str) -> str:
    return ref.rpartition("/")[2]


def entries_of(node: Node) -> Iterator[Node]:
    """The schemas of a mapping's values, whatever their keys."""
    yield from node.get("patternProperties", {}).values()
    if isinstance(node.get("additionalProperties"), dict):
        yield node["additionalProperties"]


def references(node: Node, path: str) -> Iterator[tuple[str, list[str]]]:
    """The places in a schema where models are used, and the models that are possible there."""
    options = node.get("anyOf") or node.get("oneOf") or [node]
    if here := [name_in(each["$ref"]) for each in options if "$ref" in each]:
        yield path, here
    for option in options:
        if "items" in option:
            yield from references(option["items"], f"{path}[]")
        for entry in entries_of(option):
            yield from references(entry, f"{path}.NAME")
        for key, value in option.get("properties", {}).items():
            yield from references(value, f"{path}.{key}".lstrip("."))


def places_of(whole: Node, models: Node) -> Places:
    """Where each model is first used, those of the outermost level first."""
    found: Places = {}
    waiting = [("", "", whole)]
    for path, parent, model in waiting:
        for where, names in references(model, path):
            for name in names:
                if name not in found:
                    telling = telling_of(models[name], [models[each] for each in names])
                    found[name] = Place(where, telling, tuple(names), parent)
                    waiting.append((where, telling or parent, models[name]))
    return found


def telling_of(model: Node, alternatives: list[Node]) -> str:
    """The key, and maybe its value, by which a mapping is known among alternatives."""
    if len(alternatives) == 1:
        return ""
    keys = model["properties"]
    for key in ("kind", "scheme"):
        if key in keys:
            return f"`{key}: {' or '.join(keys[key].get('enum') or [keys[key]['const']])}`"
    others = [each["properties"] for each in alternatives if each is not model]
    own = [key for key in model["required"] if not any(key in other for other in others)]
    return f"`{(own or model['required'])[0]}`"


def shared_keys(models: list[Node]) -> list[str]:
    """The keys that are the same in all models."""
    first, *others = (model["properties"] for model in models)
    return [key for key in first if all(other.get(key) == first[key] for other in others)]


def as_markdown(text: str) -> str:
    """A docstring, in which code has double backticks and roles."""
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text).replace("``", "`")
    return re.sub("(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)
