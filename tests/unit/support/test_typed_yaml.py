"""YAML as version 1.2 has it, JSON, and texts made to end the process."""

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.cli.main import main
from fedrepro.data.readers.leaf import parts
from fedrepro.support import checksummed_json, typed_yaml
from fedrepro.support.errors import UserError
from fedrepro.support.files import parse_json, read_json
from support.places import ROOT

HERE = Path("some.yaml")


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
    with pytest.raises(UserError, match=r"some.yaml:2:1: .* is given twice: .* in line 1"):
        typed_yaml.parsed(text, HERE)


def test_different_words_are_different_keys() -> None:
    words = ["yes", "on", "y", "true", "0100", "64", "1:30", "90"]
    text = "".join(f"{word}: {word}\n" for word in words)
    assert len(typed_yaml.parsed(text, HERE)) == len(words)


@pytest.mark.parametrize("start", ["[", "- ", "? ", "{a: ", "a: {b: [", "&a [", "!!seq ["])
def test_deep_yaml_is_one_line(start: str) -> None:
    for times in (101, 100_000):
        with pytest.raises(UserError, match=r"not valid YAML|expected a number"):
            typed_yaml.parsed(start * times, HERE)
        with pytest.raises(UserError, match="expected a number, a word"):
            typed_yaml.read_value(start * times, "here", "key")
    assert typed_yaml.parsed("[" * 50 + "]" * 50, HERE)


@pytest.mark.parametrize("start", ["[", '{"a":'])
def test_deep_json_is_one_line(start: str, tmp_path: Path) -> None:
    deep = start * 100_000
    for text in (deep, deep + "1" + ("]" if start == "[" else "}") * 100_000):
        with pytest.raises(ValueError, match=r"nested too deeply|Expecting"):
            parse_json(text)
        file = tmp_path / "train" / "users.json"
        file.parent.mkdir(exist_ok=True)
        (tmp_path / "test").mkdir(exist_ok=True)
        file.write_text(text)
        with pytest.raises(ValueError, match=r"nested too deeply|Expecting"):
            read_json(file)
        with pytest.raises(ValueError, match=r"nested too deeply|Expecting"):
            checksummed_json.parsed(file)
        with pytest.raises(UserError, match="not in LEAF's format"):
            list(parts(tmp_path, tmp_path / "scratch", lambda x, y: (x, y))["train"])


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for read in (read_json, checksummed_json.parsed):
        with pytest.raises((OSError, ValueError), match="it is not a file"):
            read(pipe)
    assert main(["check-data", str(pipe)]) == 2
    assert "it is neither a file nor a folder" in capsys.readouterr().err
