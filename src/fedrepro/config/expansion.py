"""Expand the shorthands of experiment files before they are validated.

``for`` and ``each`` make several entries of one. ``for`` gives values to names: either a list for
each name, which yields every combination, the first name varying slowest; or a list of mappings,
which are used one by one. The entry is repeated for each of them, with ``{name}`` replaced in all
text and, in a mapping, in its key. ``each``, for entries of lists only, is a second factor: rows to
merge into the entry, one by one.

Rows inherit the metric of their table, panels of heat maps may name their methods by a pattern, and
settings may extend others. What has an unexpected form is left unchanged; validation rejects it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

from fedrepro.config.experiment import how_to_add
from fedrepro.config.metrics import KINDS
from fedrepro.support.errors import bad_value
from fedrepro.support.old_names import with_new_keys

NAME = re.compile(r"\{(\w+)\}")


def written_out(data: object, file: object) -> Any:
    """The content of an experiment file with old keys renamed and all but ``extends`` expanded.

    Raises:
        UserError: for wrong products, and for methods of a heat map whose names are taken or not
            unique.
    """
    return _with_shorthands(with_new_keys("experiment", expand(data, file), file), file)


def expand(data: object, file: object) -> Any:
    """The content of ``file`` with every product expanded.

    Raises:
        UserError: for an empty list, an unknown or unused name, and entries that would get the same
            key or label.
    """
    return _Expansion(file)._of(data, {}, "")


def merged(base: object, more: object) -> Any:
    """Two mappings merged recursively, where ``more`` wins; ``more`` if one is not a mapping."""
    if not isinstance(base, Mapping) or not isinstance(more, Mapping):
        return more
    both = {key: merged(base[key], more[key]) for key in base.keys() & more.keys()}
    return {**base, **more, **both}


def _with_shorthands(data: object, file: object) -> Any:
    """The content of an experiment file with all metrics of rows and all methods of heat maps."""
    if not isinstance(data, Mapping):
        return data
    done = {
        key: {name: _with_metrics(item) for name, item in value.items()}
        if key in ("tables", "figures") and isinstance(value, Mapping)
        else value
        for key, value in data.items()
    }
    figures, methods = done.get("figures"), done.get("methods", {})
    if isinstance(figures, dict) and isinstance(methods, Mapping):
        for name, figure in figures.items():
            figures[name], made = _with_grids(figure, f"figures.{name}.panels", file)
            for method in sorted(made.keys() & methods.keys()):
                wanted = "names that are not among `methods`"
                raise bad_value(file, f"figures.{name}.panels", method, wanted)
            if made:
                done["methods"] = methods = {**methods, **made}
    return done


def _with_metrics(item: Any) -> Any:
    """A table or figure whose rows' metrics inherit missing keys from its own metric of their kind.

    Its own is dropped if every row has one: then it only held what they have in common.
    """
    match item:
        case {"rows": list(rows), "metric": Mapping() as shared, **rest}:
            with_metric = [isinstance(row, Mapping) and "metric" in row for row in rows]
            rest["rows"] = [
                {**row, "metric": merged(_common(shared, row["metric"]), row["metric"])}
                if has
                else row
                for row, has in zip(rows, with_metric, strict=True)
            ]
            return rest if all(with_metric) else {**rest, "metric": shared}
    return item


def _common(shared: Mapping[str, Any], of_row: Any) -> Mapping[str, Any]:
    """The keys that a row's metric inherits: none if it is of another kind, such as `quality`."""
    theirs, its = (
        next((kind.key for kind in KINDS if kind.key in each), None)
        for each in (shared, of_row if isinstance(of_row, Mapping) else {})
    )
    return {} if its != theirs and (its or "of" in of_row) else shared


def _with_grids(figure: Any, at: str, file: object) -> tuple[Any, dict[str, Any]]:
    """A heat map with the methods of its panels by name, and those methods.

    A panel with ``variant_of``, and as ``methods`` a name with both axes' labels in braces, expands
    to one method for each pair of values. The axes' labels are the hyperparameters' names.
    """
    methods: dict[str, Any] = {}
    match figure:
        case {
            "kind": "heat_map",
            "y": {"label": str(y), "values": down},
            "x": {"label": str(x), "values": across},
            "panels": list(panels),
        }:
            values = {"for": {y: down, x: across}, y: f"{{{y}}}", x: f"{{{x}}}"}
        case _:
            return figure, methods
    written: list[Any] = []
    for panel in panels:
        match panel:
            case {"variant_of": part, "methods": str(name), **kept}:
                where = f"{at}.{panel.get('label')}.methods"
                made = expand({where: {name: {**values, "variant_of": part}}}, file)[where]
                names, wide = list(made), len(across)
                rows = [names[start : start + wide] for start in range(0, len(names), wide)]
                written.append({**kept, "methods": rows})
                methods |= made
            case _:
                written.append(panel)
    return {**figure, "panels": written}, methods


def extend_all(raw: Mapping[object, object], shown: Path, root: Path) -> dict[object, object]:
    """Settings with ``extends`` resolved: a missing key is inherited as a whole.

    Settings that others extend come first, so that errors name the setting with the wrong value.
    """
    done: dict[object, object] = {}

    def extend(name: object, above: tuple[object, ...]) -> object:
        if name in done:
            return done[name]
        own = raw[name]
        if isinstance(own, dict) and "extends" in own:
            parent = own["extends"]
            key = f"settings.{name}.extends"
            if not isinstance(parent, str) or parent not in raw:
                choices, wanted = [str(choice) for choice in raw], "a setting of this file"
                if isinstance(parent, str) and "/" in parent:
                    wanted += f"; copy another file's here: `fedrepro settings {parent}` prints it"
                    wanted += how_to_add(parent, root)
                raise bad_value(shown, key, parent, wanted, choices)
            if parent in (*above, name):
                raise bad_value(shown, key, parent, "a setting that does not extend this one")
            inherited = extend(parent, (*above, name))
            own = {**inherited, **own} if isinstance(inherited, dict) else inherited
        done[name] = own
        return own

    for name in raw:
        extend(name, ())
    return done


# Keys of methods' names.
OF_METHODS = re.compile(
    r"(^|\.)(methods?|save_models_at|variant_of|wrapper|around|columns\..*\.demo)(\.|$)"
)
# The value of each name, and which names of its `for` have been used.
Names = Mapping[str, tuple[object, set[str]]]


@dataclass(frozen=True)
class _Expansion:
    """The expansion of one file. In its methods, ``at`` is the key that errors name."""

    file: object

    def _of(self, node: object, names: Names, at: str) -> Any:
        if isinstance(node, str):
            return self._filled(node, names, at)
        if isinstance(node, list):
            return [
                made
                for number, item in enumerate(node)
                for made in self._rows(item, names, _under(at, number))
            ]
        if not isinstance(node, Mapping):
            return node
        entries: dict[object, Any] = {}
        for key, value in node.items():
            if value is None and len(node) == 1 and key in names:
                raise bad_value(
                    self.file, at, f"{{{key}}}", "it in quotes: YAML reads it as a mapping"
                )
            for made, entry in self._entries(key, value, names, at):
                if made in entries:
                    wanted = "a different key for each entry: put a {name} in it"
                    raise bad_value(self.file, at or str(made), made, wanted)
                entries[made] = entry
        return entries

    def _entries(
        self, key: object, value: object, names: Names, at: str
    ) -> Iterator[tuple[object, Any]]:
        """The entries that one entry of a mapping expands to."""
        place = _under(at, key)
        if not isinstance(value, Mapping) or not value.keys() & {"for", "each"}:
            made = self._text(key, names, place) if isinstance(key, str) else key
            yield made, self._of(value, names, _under(at, made))
            return
        if "each" in value:
            raise bad_value(self.file, place, "each", "`each` in lists only: this entry has a key")
        body = {name: inner for name, inner in value.items() if name != "for"}
        for more in self._combinations(value["for"], names, place):
            made = self._text(str(key), more, place)
            yield made, self._of(body, more, _under(at, made))

    def _rows(self, item: object, names: Names, at: str) -> Iterator[Any]:
        """The entries that one entry of a list expands to."""
        if not isinstance(item, Mapping) or not item.keys() & {"for", "each"}:
            yield self._of(item, names, at)
            return
        body = {key: value for key, value in item.items() if key not in ("for", "each")}
        each = item.get("each", [{}])
        if not isinstance(each, list) or not each:
            raise bad_value(self.file, f"{at}.each", each, "a list of at least one row")
        seen: set[str] = set()
        for more in self._combinations(item["for"], names, at) if "for" in item else [names]:
            entry = self._of(body, more, at)
            for row in self._of(each, more, f"{at}.each"):
                if not isinstance(row, Mapping):
                    raise bad_value(self.file, f"{at}.each", row, "keys with values")
                made = merged(entry, row)
                if isinstance(label := made.get("label"), str):
                    if label in seen:
                        wanted = "a different label for each entry: put a {name} in it"
                        raise bad_value(self.file, f"{at}.label", label, wanted)
                    seen.add(label)
                yield made

    def _combinations(self, given: object, names: Names, at: str) -> Iterator[Names]:
        """The names with those of a ``for`` added, once for each combination of values.

        After the last one, every name must have been used.
        """
        at = f"{at}.for"
        given = self._of(given, names, at)
        wanted = "lists of values by name, or a list of mappings with the same names"
        if isinstance(given, Mapping) and given:
            for name, values in given.items():
                if not isinstance(values, list) or not values:
                    raise bad_value(self.file, f"{at}.{name}", values, "a list of values")
            rows = [dict(zip(given, row, strict=True)) for row in product(*given.values())]
        elif isinstance(given, list) and given:
            for number, row in enumerate(given):
                if not isinstance(row, Mapping) or not row or row.keys() != given[0].keys():
                    raise bad_value(self.file, f"{at}.{number}", row, wanted)
            rows = given
        else:
            raise bad_value(self.file, at, given, wanted)
        used: set[str] = set()
        for row in rows:
            yield {**names, **{str(name): (value, used) for name, value in row.items()}}
        for name in map(str, rows[0]):
            if name not in used:
                raise bad_value(self.file, at, name, f"{{{name}}} somewhere in the entry")

    def _filled(self, text: str, names: Names, at: str) -> Any:
        """A text with names replaced; a text that is only a {name} becomes its value."""
        alone = NAME.fullmatch(text)
        return self._value(alone[1], names, at) if names and alone else self._text(text, names, at)

    def _text(self, text: str, names: Names, at: str) -> str:
        if not names:
            return text  # braces mean nothing outside a product

        def written(match: re.Match[str]) -> str:
            value = self._value(match[1], names, at)
            if isinstance(value, list | Mapping):
                raise bad_value(
                    self.file, at, text, f"{match[0]} alone: its value is a list or mapping"
                )
            small = isinstance(value, float) and math.isfinite(value) and "e" in str(value)
            if small and OF_METHODS.search(at):
                return format(Decimal(str(value)), "f")  # 1e-05 can be no part of a method's name
            return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)

        return NAME.sub(written, text)

    def _value(self, name: str, names: Names, at: str) -> object:
        if name not in names:
            known = f"a name from `for`: {', '.join(names)}"
            raise bad_value(self.file, at, f"{{{name}}}", known, names)
        value, used = names[name]
        used.add(name)
        return value


def _under(at: str, key: object) -> str:
    return f"{at}.{key}" if at else str(key)
