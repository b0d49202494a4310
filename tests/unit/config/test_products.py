"""What ``for`` and ``each`` write out, and what is refused in them, in one line."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from fedrepro.cli.configuration import SCHEMAS, text_of
from fedrepro.config.expansion import expand, merged
from fedrepro.config.expansion import written_out as write_out
from fedrepro.support.typed_yaml import read_yaml
from support.places import ROOT
from support.refusals import Fault, refused

SCHEMA = jsonschema.Draft202012Validator(json.loads(text_of(SCHEMAS["experiment.json"])))


def expanded(text: str) -> Any:
    return expand(yaml.safe_load(text), "e.yaml")


def test_without_either_all_stays_as_it_is() -> None:
    text = 'a: ["{x}", {b: 1, c: null}]\n"{y}": {}\n'
    assert expanded(text) == yaml.safe_load(text)


def test_lists_make_every_combination_the_first_slowest() -> None:
    found = expanded('"{a}{b}": {for: {a: [x, y], b: [1, 2.0]}, value: "{b}", text: "<{a}-{b}>"}')
    assert list(found) == ["x1", "x2.0", "y1", "y2.0"]
    assert found["y2.0"] == {"value": 2.0, "text": "<y-2.0>"}
    assert isinstance(found["x1"]["value"], int)


def test_a_small_number_is_written_out_in_a_name() -> None:
    """`prox_1e-05` is no name of a method, and `prox_1e+16` two."""
    rates = "for: {v: [0.00001, 1.0e-4, 0.1, 1.0e+16]}"
    made = expanded(f'methods: {{"p{{v}}": {{{rates}, mu: "{{v}}"}}}}')["methods"]
    assert list(made) == ["p0.00001", "p0.0001", "p0.1", "p10000000000000000"]
    assert [each["mu"] for each in made.values()] == [1e-5, 1e-4, 0.1, 1e16]
    row = f'columns: [{{{rates}, label: "<{{v}}>", method: "p{{v}}"}}]'
    columns = [(each["label"], each["method"]) for each in expanded(row)["columns"]]
    assert columns[0] == ("<1e-05>", "p0.00001") and columns[2] == ("<0.1>", "p0.1")
    for key, made in (("wrapper", "p0.00001"), ("demo", "p0.00001"), ("setting", "p1e-05")):
        row = f'columns: [{{{rates}, label: "<{{v}}>", {key}: "p{{v}}"}}]'
        assert expanded(row)["columns"][0][key] == made
    settings = expanded(f'settings: {{"s-{{v}}": {{{rates}, lr: "{{v}}"}}}}')["settings"]
    assert [*settings] == ["s-1e-05", "s-0.0001", "s-0.1", "s-1e+16"]  # as their runs are called


def test_mappings_vary_together_and_values_may_be_anything() -> None:
    found = expanded('"m{a}": {for: [{a: true, b: [1]}, {a: no, b: {c: 2}}], value: "{b}"}')
    assert found == {"mtrue": {"value": [1]}, "mfalse": {"value": {"c": 2}}}
    assert expanded('r: [{for: {1: [[x]]}, label: "{1}"}]') == {"r": [{"label": ["x"]}]}
    inner = expanded('"{a}": {for: {a: [1, 2]}, r: [{for: {a: [x, y]}, label: "{a}"}], s: "{a}"}')
    rows = [{"label": "x"}, {"label": "y"}]
    assert inner == {"1": {"r": rows, "s": 1}, "2": {"r": rows, "s": 2}}


def test_each_is_a_second_factor_that_is_merged() -> None:
    found = expanded("""
- {label: first}
- for: {n: [A, B]}
  published: {data: "{n}"}
  each:
    - {label: "{n} x", published: {metric: x}}
    - {for: {k: [1, 2]}, label: "{n} y{k}"}
""")
    assert [row["label"] for row in found] == [
        "first",
        "A x",
        "A y1",
        "A y2",
        "B x",
        "B y1",
        "B y2",
    ]
    assert found[4]["published"] == {"data": "B", "metric": "x"}
    assert found[5]["published"] == {"data": "B"}


def test_merging_changes_neither_side() -> None:
    base, more = {"a": {"b": 1}, "c": 2}, {"a": {"d": 3}, "c": {"e": 4}}
    assert merged(base, more) == {"a": {"b": 1, "d": 3}, "c": {"e": 4}}
    assert (base, more) == ({"a": {"b": 1}, "c": 2}, {"a": {"d": 3}, "c": {"e": 4}})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('m: {"{a}": {for: {a: []}}}', Fault(key="m.{a}.for.a", value=[])),
        ('m: {"{a}": {for: {a: x}}}', Fault(key="m.{a}.for.a", value="x")),
        ('m: {"{a}": {for: []}}', Fault(key="m.{a}.for", value=[])),
        ('m: {"{a}": {for: [{a: 1}, {b: 1}]}}', Fault(key="m.{a}.for.1", value={"b": 1})),
        ("r: [{label: x, each: [{a: 1}, y]}]", Fault(key="r.0.each", value="y")),
        ("r: [{each: []}]", Fault(key="r.0.each", value=[])),
        (
            'm: {"a{cdf}": {for: {cdf: [x]}, b: "{cfd}"}}',
            Fault(key="m.ax.b", value="{cfd}", near="cdf"),
        ),
        ('m: {"{a}": {for: {a: [1], b: [1]}}}', Fault(key="m.{a}.for", value="b", names="{b}")),
        ('m: {x1: {}, "x{a}": {for: {a: [1]}}}', Fault(key="m", value="x1")),
        ("m: {x: {for: {a: [1, 2]}, b: '{a}'}}", Fault(key="m", value="x")),
        ("r: [{for: {a: [1, 2]}, label: x, b: '{a}'}]", Fault(key="r.0.label", value="x")),
        ('m: {"{a}": {for: {a: [1]}, each: [{}]}}', Fault(key="m.{a}", value="each")),
        ('m: {"{a}": {for: {a: [1]}, b: {a}}}', Fault(key="m.1.b", value="{a}")),
        ('m: {"{a}": {for: {a: [[1]]}}}', Fault(key="m.{a}", value="{a}")),
    ],
)
def test_what_is_wrong_is_one_line(text: str, fault: Fault) -> None:
    with refused("value", file="e.yaml", **fault):
        write_out(expanded(text), "e.yaml")


HEAT_MAP = """
methods: {METHODS}
figures:
  grid:
    kind: heat_map
    x: {label: mu, values: [0, 1.0]}
    y: {label: nu, values: [2, 3, 4]}
    panels: [{label: One, variant_of: fedprox, methods: "NAME"}]
"""


def heat_map(methods: str = "", name: str = "p{nu}_{mu}") -> str:
    return HEAT_MAP.replace("METHODS", methods).replace("NAME", name)


def test_a_heat_map_makes_its_methods() -> None:
    found = write_out(expanded(heat_map("fedprox: {mu: 1}")), "e.yaml")
    assert found["methods"]["p3_1.0"] == {"variant_of": "fedprox", "nu": 3, "mu": 1.0}
    assert found["methods"]["fedprox"] == {"mu": 1}
    (panel,) = found["figures"]["grid"]["panels"]
    rows = [["p2_0", "p2_1.0"], ["p3_0", "p3_1.0"], ["p4_0", "p4_1.0"]]
    assert panel == {"label": "One", "methods": rows}


def test_wrong_names_of_a_heat_map() -> None:
    for text, key, value in (
        (heat_map(name="p{mu}"), "One.methods", "p0"),
        (heat_map(name="p{mu}{xi}"), "One.methods.p{mu}{xi}", "{xi}"),
        (heat_map("p3_0: {}"), "panels", "p3_0"),
    ):
        with refused("value", file="e.yaml", key=key, value=value, names="figures.grid.panels"):
            write_out(expanded(text), "e.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "figures: [1]",
        "figures: {f: 3, g: {kind: heat_map}, h: {kind: heat_map, x: 1, panels: 2}}",
        "tables: {t: {rows: 3, metric: {}}, u: {rows: [3], metric: {}}}",
        "methods: 3\nfigures: {g: {kind: heat_map}}",
    ],
)
def test_what_has_another_form_is_left_to_the_check(text: str) -> None:
    data = yaml.safe_load(text)
    assert write_out(expand(data, "e.yaml"), "e.yaml") == data


def test_a_rows_metric_says_what_differs() -> None:
    text = "tables: {t: {metric: {of: top5, mix: best}, rows: [{metric: {mix: fixed}}MORE]}}"
    figures = write_out(expanded(text.replace("tables", "figures").replace("MORE", "")), "e.yaml")
    assert figures == {"figures": {"t": {"rows": [{"metric": {"of": "top5", "mix": "fixed"}}]}}}
    table = write_out(expanded(text.replace("MORE", ", {}")), "e.yaml")["tables"]["t"]
    assert table["rows"] == [{"metric": {"of": "top5", "mix": "fixed"}}, {}]
    assert table["metric"] == {"of": "top5", "mix": "best"}
    table = write_out(expanded(text.replace("MORE", ", {metric: loss}")), "e.yaml")["tables"]["t"]
    assert table == {"rows": [{"metric": {"of": "top5", "mix": "fixed"}}, {"metric": "loss"}]}


@pytest.mark.parametrize(
    ("shared", "own", "inherits"),
    [
        ({"of": "top5", "mix": "best"}, {"least": "loss"}, False),
        ({"quality": "fid", "more": 1}, {"of": "accuracy"}, False),
        ({"quality": "fid", "more": 1}, {"least": "loss"}, False),
        ({"quality": "fid", "more": 1}, {"quality": "accuracy"}, True),
        ({"quality": "fid"}, {"more": 1}, True),
        ({"over_clients": "worst"}, {"of": "accuracy"}, True),
    ],
)
def test_a_rows_metric_of_another_kind_inherits_nothing(
    shared: dict[str, Any], own: dict[str, Any], inherits: bool
) -> None:
    table = {"metric": shared, "rows": [{"metric": own}, {}]}
    written = write_out({"tables": {"t": table}}, "e.yaml")["tables"]["t"]
    assert written["rows"][0]["metric"] == (shared | own if inherits else own)
    assert written["metric"] == shared


@pytest.mark.parametrize("path", sorted((ROOT / "config/experiments").glob("*.yaml")))
def test_editors_find_nothing_wrong_in_our_files(path: Any) -> None:
    assert [error.message for error in SCHEMA.iter_errors(read_yaml(path))] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        each:", "        eech:"),  # not a key of rows
        ("for: { cdf: [weibull,", "for: { cdf: weibull, x: [weibull,"),  # not a list
        ("        setting: heart", "        setting: [heart]\n      - setting: [heart]"),
    ],
)
def test_editors_find_what_is_wrong_in_products(old: str, new: str) -> None:
    text = (ROOT / "config/experiments/aaggff.yaml").read_text(encoding="utf-8")
    assert old in text
    assert list(SCHEMA.iter_errors(yaml.safe_load(text.replace(old, new, 1))))
