"""What is no value, and what an error says of it in fields."""

import ast
import copy
import math
import signal
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import Field

from fedrepro.support.errors import (
    Interrupted,
    UserError,
    at_least,
    bad_value,
    cannot_write,
    damaged,
    missing_value,
    nobody,
    unreadable,
    whole_or_none,
)
from fedrepro.support.typed_yaml import Typed, validate
from support.places import ROOT
from support.refusals import refused


class Two(Typed):
    a: Annotated[int, Field(gt=0)]
    b: int


@pytest.mark.parametrize("value", [-0.1, 0.0, math.inf, -math.inf])
def test_plug_ins_of_earlier_versions_state_limits_by_a_call(value: float) -> None:
    at_least(SimpleNamespace(mu=1.0, nu=None), 1, "mu", "nu")
    whole_or_none("own", "mu", None)
    for check in (
        lambda: at_least(SimpleNamespace(nu=1.0, mu=value), 1, "nu", "mu"),
        lambda: whole_or_none("own", "mu", value),
    ):
        with refused("value", key="mu", value=value):
            check()


def test_an_error_has_its_fields() -> None:
    error = bad_value("a.yaml", "own.lr", -1.0, "a number above 0")
    assert (error.code, error.file, error.key) == ("value", "a.yaml", "own.lr")
    assert (error.value, error.expected) == (-1.0, "a number above 0")
    missing = missing_value("a.yaml", "own.lr", "a value")
    assert (missing.code, missing.key, missing.expected) == ("missing", "own.lr", "a value")
    none = nobody("a.yaml", "share", 0.1, 7)
    assert (none.file, none.key, none.value) == ("a.yaml", "share", 0.1)
    for error, code in (
        (damaged("a.json", "short"), "damaged"),
        (unreadable("a.json", "gone"), "unreadable"),
        (cannot_write("a.json", OSError(28, "full")), "unwritable"),
    ):
        assert (error.code, error.file) == (code, "a.json")


@pytest.mark.parametrize(
    ("content", "code", "key"),
    [
        ({"c": 1}, "unknown_key", "c"),
        ({}, "missing", "a, b"),
        ({"a": 1}, "missing", "b"),
        ({"a": 1, "b": "x"}, "value", "b"),
        ({"a": 0, "b": 1}, "value", "a"),
    ],
)
def test_an_error_of_a_file_has_them(content: dict[str, object], code: str, key: str) -> None:
    with pytest.raises(UserError) as raised:
        validate(Two, content, "f.yaml")
    assert (raised.value.code, raised.value.file, raised.value.key) == (code, "f.yaml", key)


def test_an_interrupt_survives_the_way_from_another_process() -> None:
    there = copy.copy(Interrupted("stopped", signal.SIGTERM))  # takes pickle's way
    assert str(there) == "stopped" and there.status == 143


def test_every_refusal_in_the_package_has_fields() -> None:
    """No `UserError("...")` but through a function of errors.py, or with its code."""
    bare = []
    for file in (ROOT / "src/fedrepro").rglob("*.py"):
        # A pattern such as `case UserError():` is no call.
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "UserError"
                and not {"code", None} & {keyword.arg for keyword in node.keywords}
            ):
                bare.append(f"{file.name}:{node.lineno}")
    assert [place for place in bare if not place.startswith("errors.py")] == []
