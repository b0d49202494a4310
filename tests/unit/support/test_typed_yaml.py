"""YAML as version 1.2 has it, JSON, and texts made to end the process."""

import math
import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, Tag

from fedrepro.cli.main import main
from fedrepro.data.readers.content import Source
from fedrepro.data.readers.leaf import parts
from fedrepro.support import checksummed_json, typed_yaml
from fedrepro.support.errors import UserError
from fedrepro.support.files import parse_json, read_json
from fedrepro.support.typed_yaml import Typed, plain_or, validate
from support.places import ROOT
from support.refusals import refused

HERE = Path("some.yaml")


class Alpha(Typed):
    """One of two.

    Further words.

    Attributes:
        kind: the choice.
        x: what it is,
            in two lines.
    """

    kind: Literal["alpha"]
    x: int
    y: int = Field(default=1, description="Its own.")


class Beta(Typed):
    kind: Literal["beta"]
    y: Annotated[float, Field(gt=0, le=2)]


class Row(Typed):
    label: str
    value: Annotated[int, Field(ge=1, lt=9)]
    how: Literal["mean", "max"] = "mean"
    part: Annotated[Alpha | Beta, Field(discriminator="kind")] = Alpha(kind="alpha", x=1)


class Lists(Typed):
    any: tuple[int, ...] = ()
    two: tuple[int, int] = (1, 2)
    some: list[int] = Field(default=[], max_length=2)
    each: frozenset[str] = frozenset()
    on: bool = False
    where: Path | None = None
    word: str = ""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("any", 1, "a list"), ("two", 3, "a list"), ("two", [1, 2, 3], "at most 2 entries"),
        ("some", 1, "a list"), ("some", [1, 2, 3], "at most 2 entries"), ("each", 1, "a list"),
        ("on", "maybe", "true or false"), ("word", None, "text"), ("word", ["x"], "text"),
        ("where", ["x"], "one path, of a file or folder"),
    ],
)  # fmt: skip
def test_no_name_of_python_s_is_expected(key: str, value: object, expected: str) -> None:
    with pytest.raises(UserError) as raised:
        typed_yaml.validate(Lists, {key: value}, "some.yaml")
    assert (raised.value.key, raised.value.expected) == (key, expected)


class Whole(Typed):
    rows: Annotated[list[Row], Field(min_length=1)]
    either: Annotated[
        Annotated[int, Tag("plain")] | Annotated[Alpha, Tag("Alpha")], plain_or(Alpha)
    ] = 1


def rows(**changes: Any) -> dict[str, Any]:
    """Two rows, of which the second has other values."""
    return {"rows": [{"label": "One", "value": 2}, {"label": "Two", "value": 3, **changes}]}


@pytest.mark.parametrize(
    ("content", "code", "key", "value", "names"),
    [
        (rows(value=0), "value", "rows.Two.value", 0, "1"),
        (rows(value=9), "value", "rows.Two.value", 9, ("below", "9")),
        (rows(value=1.5), "value", "rows.Two.value", 1.5, "whole"),
        (rows(value=0, label=7), "value", "rows.1.label", 7, "text"),
        (rows(how="men"), "value", "rows.Two.how", "men", ("max", "'mean'")),
        (rows(part={"kind": "gamma"}), "value", "rows.Two.part.kind", "gamma", ("alpha", "beta")),
        (rows(part={}), "missing", "rows.Two.part.kind", None, "value"),
        (rows(part={"kind": "beta"}), "missing", "rows.Two.part.y", None, "value"),
        (rows(part={"kind": "beta", "y": 0.0}), "value", "rows.Two.part.y", 0.0, ("above", "0")),
        (rows(part={"kind": "beta", "y": 3}), "value", "rows.Two.part.y", 3, ("most", "2")),
        (
            rows(part={"kind": "beta", "x": 1}),
            "unknown_key",
            "rows.Two.part.x",
            None,
            ("kind", "y"),
        ),
        (rows(valeu=1), "unknown_key", "rows.Two.valeu", None, "'value'"),
        ({"rows": [{"lable": "x"}]}, "unknown_key", "rows.0.lable", None, "'label'"),
        ({"rows": [{}]}, "missing", "rows.0.label, rows.0.value", None, "values"),
        ({"rows": []}, "value", "rows", [], "one"),
        ({"rows": 3}, "value", "rows", 3, "list"),
        (rows() | {"either": "x"}, "value", "either", "x", "whole"),
        (rows() | {"either": {"kind": "alpha"}}, "missing", "either.x", None, "value"),
        (rows() | {"either": [1]}, "value", "either", [1], ()),
        ([], "value", typed_yaml.WHOLE_FILE, [], ("rows", "either")),
    ],
)
def test_a_fault_is_told_by_its_place(
    content: Any, code: str, key: str, value: Any, names: str | tuple[str, ...]
) -> None:
    with refused(code, key=key, value=value, file="some.yaml", names=names):
        validate(Whole, content, HERE)


def test_what_is_valid_is_read() -> None:
    made = validate(Whole, rows(value=8, how="max") | {"either": {"kind": "alpha", "x": 2}}, HERE)
    assert [row.value for row in made.rows] == [2, 8] and made.rows[1].how == "max"
    assert made.either == Alpha(kind="alpha", x=2) and made.model_dump()["either"]["y"] == 1


def test_keys_have_the_descriptions_of_their_class() -> None:
    schema = Alpha.model_json_schema()
    assert schema["description"] == "One of two.\n\nFurther words."
    described = {name: key.get("description") for name, key in schema["properties"].items()}
    assert described == {"kind": "The choice.", "x": "What it is, in two lines.", "y": "Its own."}


def test_what_is_too_much_is_refused_and_a_little_less_is_not(tmp_path: Path) -> None:
    for digits, fault in ((1000, False), (1001, True)):
        with refused("invalid_yaml", file="some.yaml") if fault else nullcontext():
            assert typed_yaml.parsed(f"a: {'9' * digits}", HERE)["a"] == 10**digits - 1
    file = tmp_path / "a.yaml"
    for size, fault in ((2**21, False), (2**21 + 1, True)):
        file.write_text("a: 1\n#".ljust(size, "x"), encoding="utf-8")
        with refused("unreadable", file="shown.yaml") if fault else nullcontext():
            assert typed_yaml.read_text(file, Path("shown.yaml"))[:4] == "a: 1"
    for values, fault in ((99_999, False), (100_000, True)):  # and their list's places
        for many in ([0] * values, dict.fromkeys(range(values), 0)):
            with pytest.raises(ValueError, match="aliases") if fault else nullcontext():
                typed_yaml._refuse_bomb(many)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="aliases"):
        typed_yaml._refuse_bomb(endless)
    for name, code in ((tmp_path / "none.yaml", "missing"), (tmp_path, "unreadable")):
        with refused(code, file=str(name)):
            typed_yaml.read_yaml(name)


def test_keys_are_written_in_their_order() -> None:
    assert list(typed_yaml.parsed(typed_yaml.written({"b": 1, "a": 2}), HERE)) == ["b", "a"]


def by_the_specification(word: str) -> Any:
    """A plain scalar by the table of YAML 1.2.2, section 10.3.2."""
    for pattern, value in (
        (r"null|Null|NULL|~|", lambda _: None),
        (r"true|True|TRUE", lambda _: True),
        (r"false|False|FALSE", lambda _: False),
        (r"[-+]?[0-9]+", int),
        (r"0o[0-7]+", lambda text: int(text[2:], 8)),
        (r"0x[0-9a-fA-F]+", lambda text: int(text[2:], 16)),
        (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
        (r"[-+]?\.(inf|Inf|INF)", lambda text: -math.inf if text[0] == "-" else math.inf),
        (r"\.(nan|NaN|NAN)", lambda _: math.nan),
    ):
        if re.fullmatch(pattern, word):
            return value(word)
    return word


WORDS = (
    "0100", "1:30", "1:30:00", "190:20:30.15", "yes", "no", "on", "off", "y", "n", "Yes", "ON",
    "1_000", "0b101", "0o17", "0x1F", "017", "08", "1e3", "1e-3", "1.5e3", "12e03", ".5", "1.",
    "-0", "+1", "-.inf", ".NaN", "2026-01-01", "2026-01-01T10:00:00", "=", "~", "", "Null", "TRUE",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_words_are_what_yaml_1_2_says(word: str) -> None:
    wanted = by_the_specification(word)
    (read,) = typed_yaml.parsed(f"- {word}", HERE)
    assert (type(read), repr(read)) == (type(wanted), repr(wanted))
    if word:
        assert repr(typed_yaml.read_value(word, "here", "key")) == repr(wanted)


@settings(deadline=None, max_examples=300)
@given(st.from_regex(r"[-+.:_0-9eExobaAfFnNyYtTrRuUlLsSiI~]{1,12}", fullmatch=True))
def test_any_word_is_what_yaml_1_2_says(word: str) -> None:
    try:
        (read,) = typed_yaml.parsed(f"- {word}\n", HERE)
    except UserError:  # not a plain scalar, such as ": a" or "-"
        return
    if isinstance(read, dict | list):
        return
    wanted = by_the_specification(word)
    assert (type(read), repr(read)) == (type(wanted), repr(wanted))


def test_what_is_written_is_read_again() -> None:
    for word in WORDS:
        content = {"a": word, "b": [by_the_specification(word)]}
        assert repr(typed_yaml.parsed(typed_yaml.written(content), HERE)) == repr(content)


class Former(yaml.CSafeLoader):
    """PyYAML's, for YAML 1.1, which also took 1e-3 for a number."""


Former.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def test_our_own_files_read_as_they_did() -> None:
    files = [*ROOT.glob("config/**/*.yaml"), *ROOT.glob("reports/**/*.yaml")]
    assert len(files) > 30
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert typed_yaml.parsed(text, file) == yaml.load(text, Loader=Former), file


@pytest.mark.parametrize(
    "keys",
    [
        ("a", "a"),
        ("1", "01"),
        ("1", "0x1"),
        ("1", "1.0"),
        ("1", "true"),
        ("~", "null"),
        ("'1'", "1"),
    ],
)
def test_equal_keys_are_refused(keys: tuple[str, str]) -> None:
    text = "".join(f"{key}: {at}\n" for at, key in enumerate(keys))
    with refused("invalid_yaml", names="some.yaml:2:1") as raised:
        typed_yaml.parsed(text, HERE)
    assert str(raised.value).endswith(" line 1")


@pytest.mark.parametrize("depths", [(0, 0), (1, 0), (0, 1), (2, 1)])
def test_what_is_merged_may_have_merged_others(depths: tuple[int, int]) -> None:
    """At any depth: PyYAML changes it in place, and its own keys then stand beside the merged."""

    def at(depth: int, name: str, value: str) -> str:
        lines = [f"{'  ' * each}{name}{each}:" for each in range(depth)]
        return "\n".join([*lines, f"{'  ' * depth}{name}: {value}"]) + "\n"

    text = "base: &base {lr: 0.1, mu: 1}\n" + at(depths[0], "own", "&own {<<: *base, lr: 0.2}")
    found = typed_yaml.parsed(text + at(depths[1], "last", "{<<: *own, mu: 3}"), HERE)
    for name, depth in (("own", depths[0]), ("last", depths[1])):
        inner = found
        for each in range(depth):
            inner = inner[f"{name}{each}"]
        assert inner[name] == {"lr": 0.2, "mu": 1 if name == "own" else 3}
    with refused("invalid_yaml", names="lr"):
        typed_yaml.parsed(text + "last: {<<: *own, lr: 1, lr: 2}\n", HERE)


def test_different_words_are_different_keys() -> None:
    words = ["yes", "on", "y", "true", "0100", "64", "1:30", "90"]
    text = "".join(f"{word}: {word}\n" for word in words)
    assert len(typed_yaml.parsed(text, HERE)) == len(words)


@pytest.mark.parametrize("start", ["[", "- ", "? ", "{a: ", "a: {b: [", "&a [", "!!seq ["])
def test_deep_yaml_is_one_line(start: str) -> None:
    for times in (101, 100_000):
        with refused() as raised:
            typed_yaml.parsed(start * times, HERE)
        assert raised.value.code in ("invalid_yaml", "value")
        with refused("value", file="here", key="key"):
            typed_yaml.read_value(start * times, "here", "key")
    assert typed_yaml.parsed("[" * 50 + "]" * 50, HERE)


@pytest.mark.parametrize("half", [r"\ud83d", r"\uDE00", r"\ud83d x", r"\ude00\ud83d"])
def test_half_of_a_character_is_refused(half: str) -> None:
    """As texts that were cut have it, in a value or a key; nothing could write it again."""
    for text in (f'{{"a": "{half}"}}', f'{{"{half}": 1}}', f'["b", ["{half}"]]'):
        for form in (text, text.encode()):
            with pytest.raises(ValueError, match="half"):
                parse_json(form)
    whole = r'["\ud83d\ude00 \\ud83d"]'
    assert parse_json(whole) == ["\U0001f600 \\ud83d"]


@pytest.mark.parametrize("start", ["[", '{"a":'])
def test_deep_json_is_one_line(start: str, tmp_path: Path) -> None:
    deep = start * 100_000
    for text in (deep, deep + "1" + ("]" if start == "[" else "}") * 100_000):
        with pytest.raises(ValueError, match=r"deeply|Expecting"):
            parse_json(text)
        file = tmp_path / "train" / "users.json"
        file.parent.mkdir(exist_ok=True)
        (tmp_path / "test").mkdir(exist_ok=True)
        file.write_text(text)
        with pytest.raises(ValueError, match=r"deeply|Expecting"):
            read_json(file)
        with pytest.raises(ValueError, match=r"deeply|Expecting"):
            checksummed_json.parsed(file)
        source = Source(tmp_path, tmp_path / "scratch")
        with refused("damaged", file="train/users.json"):
            list(parts(source, lambda x, y: (x, y))["train"])


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for read in (read_json, checksummed_json.parsed):
        with pytest.raises((OSError, ValueError), match="not a file"):
            read(pipe)
    assert main(["check-data", str(pipe)]) == 2
    err = capsys.readouterr().err
    assert f"{pipe}: " in err and err.count("\n") == 1
