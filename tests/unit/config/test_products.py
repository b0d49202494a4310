"""What ``for`` and ``each`` write out, and what is refused in them, in one line."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from fedrepro.cli.schema import SCHEMAS, text_of
from fedrepro.config.products import expand, merged
from fedrepro.config.shorthand import write_out
from fedrepro.support.errors import UserError
from fedrepro.support.typed_yaml import read_yaml
from support.places import ROOT

SCHEMA = jsonschema.Draft202012Validator(json.loads(text_of(SCHEMAS["experiment.json"])))


def made(text: str) -> Any:
    return expand(yaml.safe_load(text), "e.yaml")


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        write_out(made(text), "e.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_either_all_stays_as_it_is() -> None:
    text = 'a: ["{x}", {b: 1, c: null}]\n"{y}": {}\n'
    assert made(text) == yaml.safe_load(text)


def test_lists_make_every_combination_the_first_slowest() -> None:
    found = made('"{a}{b}": {for: {a: [x, y], b: [1, 2.0]}, value: "{b}", text: "<{a}-{b}>"}')
    assert list(found) == ["x1", "x2.0", "y1", "y2.0"]
    assert found["y2.0"] == {"value": 2.0, "text": "<y-2.0>"}
    assert isinstance(found["x1"]["value"], int)


def test_mappings_vary_together_and_values_may_be_anything() -> None:
    found = made('"m{a}": {for: [{a: true, b: [1]}, {a: no, b: {c: 2}}], value: "{b}"}')
    assert found == {"mtrue": {"value": [1]}, "mfalse": {"value": {"c": 2}}}
    assert made('r: [{for: {1: [[x]]}, label: "{1}"}]') == {"r": [{"label": ["x"]}]}
    inner = made('"{a}": {for: {a: [1, 2]}, r: [{for: {a: [x, y]}, label: "{a}"}], s: "{a}"}')
    rows = [{"label": "x"}, {"label": "y"}]
    assert inner == {"1": {"r": rows, "s": 1}, "2": {"r": rows, "s": 2}}


def test_each_is_a_second_factor_that_is_merged() -> None:
    found = made("""
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
    ("text", "line"),
    [
        ('m: {"{a}": {for: {a: []}}}', "m.{a}.for.a: []: expected a list of values"),
        ('m: {"{a}": {for: {a: x}}}', "m.{a}.for.a: 'x': expected a list of values"),
        ('m: {"{a}": {for: []}}', "m.{a}.for: []: expected lists of values by name, or a list of"),
        ('m: {"{a}": {for: [{a: 1}, {b: 1}]}}', "m.{a}.for.1: {'b': 1}: expected lists of"),
        ("r: [{label: x, each: [{a: 1}, y]}]", "r.0.each: 'y': expected keys with values"),
        ("r: [{each: []}]", "r.0.each: []: expected a list of at least one row"),
        (
            'm: {"a{cdf}": {for: {cdf: [x]}, b: "{cfd}"}}',
            "m.ax.b: '{cfd}': expected a name from `for`: cdf; did you mean 'cdf'?",
        ),
        ('m: {"{a}": {for: {a: [1], b: [1]}}}', "m.{a}.for: 'b': expected {b} somewhere in the"),
        ('m: {x1: {}, "x{a}": {for: {a: [1]}}}', "m: 'x1': expected a different key for each"),
        ("m: {x: {for: {a: [1, 2]}, b: '{a}'}}", "m: 'x': expected a different key for each"),
        (
            "r: [{for: {a: [1, 2]}, label: x, b: '{a}'}]",
            "r.0.label: 'x': expected a different label",
        ),
        ('m: {"{a}": {for: {a: [1]}, each: [{}]}}', "m.{a}: 'each': expected `each` in lists only"),
        ('m: {"{a}": {for: {a: [1]}, b: {a}}}', "m.1.b: '{a}': expected it in quotes: "),
        ('m: {"{a}": {for: {a: [[1]]}}}', "m.{a}: '{a}': expected {a} alone: its value is"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, line: str) -> None:
    assert refused(text).startswith(f"e.yaml: {line}")


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
    found = write_out(made(heat_map("fedprox: {mu: 1}")), "e.yaml")
    assert found["methods"]["p3_1.0"] == {"variant_of": "fedprox", "nu": 3, "mu": 1.0}
    assert found["methods"]["fedprox"] == {"mu": 1}
    (panel,) = found["figures"]["grid"]["panels"]
    rows = [["p2_0", "p2_1.0"], ["p3_0", "p3_1.0"], ["p4_0", "p4_1.0"]]
    assert panel == {"label": "One", "methods": rows}


def test_wrong_names_of_a_heat_map() -> None:
    where = "e.yaml: figures.grid.panels"
    assert refused(heat_map(name="p{mu}")) == (
        f"{where}.One: 'p0': expected a different key for each entry: put a {{name}} in it"
    )
    assert refused(heat_map(name="p{mu}{xi}")).startswith(f"{where}.One.p{{mu}}{{xi}}: '{{xi}}'")
    assert refused(heat_map("p3_0: {}")).startswith(f"{where}: 'p3_0': expected names that are not")


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
    figures = write_out(made(text.replace("tables", "figures").replace("MORE", "")), "e.yaml")
    assert figures == {"figures": {"t": {"rows": [{"metric": {"of": "top5", "mix": "fixed"}}]}}}
    table = write_out(made(text.replace("MORE", ", {}")), "e.yaml")["tables"]["t"]
    assert table["rows"] == [{"metric": {"of": "top5", "mix": "fixed"}}, {}]
    assert table["metric"] == {"of": "top5", "mix": "best"}
    table = write_out(made(text.replace("MORE", ", {metric: loss}")), "e.yaml")["tables"]["t"]
    assert table == {"rows": [{"metric": {"of": "top5", "mix": "fixed"}}, {"metric": "loss"}]}


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
