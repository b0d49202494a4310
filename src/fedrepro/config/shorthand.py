"""Expand the shorthands of tables and figures before they are validated.

Entries of an unexpected form are left unchanged; validation then rejects them.
"""

from collections.abc import Mapping
from typing import Any

from fedrepro.config.products import expand, merged
from fedrepro.support.errors import bad_value


def write_out(data: object, file: object) -> Any:
    """The content of an experiment file with all metrics of rows and all methods of heat maps.

    Raises:
        UserError: for methods of a heat map whose names are taken or not unique.
    """
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
    """A table or figure whose rows' metrics inherit missing keys from its own metric.

    Its own is dropped if every row has one: then it only held what they have in common.
    """
    match item:
        case {"rows": list(rows), "metric": Mapping() as shared, **rest}:
            own = [isinstance(row, Mapping) and "metric" in row for row in rows]
            rest["rows"] = [
                {**row, "metric": merged(shared, row["metric"])} if has else row
                for row, has in zip(rows, own, strict=True)
            ]
            return rest if all(own) else {**rest, "metric": shared}
    return item


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
            own = {"for": {y: down, x: across}, y: f"{{{y}}}", x: f"{{{x}}}"}
        case _:
            return figure, methods
    written: list[Any] = []
    for panel in panels:
        match panel:
            case {"variant_of": part, "methods": str(name), **kept}:
                where = f"{at}.{panel.get('label')}"
                made = expand({where: {name: {**own, "variant_of": part}}}, file)[where]
                names, wide = list(made), len(across)
                rows = [names[start : start + wide] for start in range(0, len(names), wide)]
                written.append({**kept, "methods": rows})
                methods |= made
            case _:
                written.append(panel)
    return {**figure, "panels": written}, methods
