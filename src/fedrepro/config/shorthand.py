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
            if isinstance(figure, Mapping) and figure.get("kind") == "heat_map":
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
    rows = item.get("rows") if isinstance(item, Mapping) else None
    if not isinstance(rows, list) or not isinstance(item.get("metric"), Mapping):
        return item
    own = [isinstance(row, Mapping) and "metric" in row for row in rows]
    rows = [
        {**row, "metric": merged(item["metric"], row["metric"])} if has else row
        for row, has in zip(rows, own, strict=True)
    ]
    kept = {key: value for key, value in item.items() if key != "metric" or not all(own)}
    return {**kept, "rows": rows}


def _with_grids(
    figure: Mapping[Any, Any], at: str, file: object
) -> tuple[dict[Any, Any], dict[str, Any]]:
    """A heat map with the methods of its panels by name, and those methods.

    A panel with ``use``, and as ``methods`` a name with both axes' labels in braces, expands to one
    method for each pair of values. The axes' labels are the hyperparameters' names.
    """
    axes = [figure.get("y"), figure.get("x")]
    panels, methods = figure.get("panels"), dict[str, Any]()
    if not isinstance(panels, list) or not all(
        isinstance(axis, Mapping) and isinstance(axis.get("label"), str) for axis in axes
    ):
        return dict(figure), methods
    values = {axis["label"]: axis.get("values") for axis in axes if axis}
    written: list[Any] = []
    for panel in panels:
        if isinstance(panel, Mapping) and "use" in panel and isinstance(panel.get("methods"), str):
            own = {"for": values, "use": panel["use"], **{name: f"{{{name}}}" for name in values}}
            where = f"{at}.{panel.get('label')}"
            made = expand({where: {panel["methods"]: own}}, file)[where]
            names, wide = list(made), len(figure["x"]["values"])
            rows = [names[start : start + wide] for start in range(0, len(names), wide)]
            kept = {key: value for key, value in panel.items() if key != "use"}
            written.append({**kept, "methods": rows})
            methods |= made
        else:
            written.append(panel)
    return {**figure, "panels": written}, methods
