"""The limits of hyperparameters: their ends, that every part has them, and who inherits them."""

import math
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from fedrepro.engine import fidelity
from fedrepro.engine.fidelity import Faithful, Limit, NonNegative, PositiveWhole, one_of, whole
from fedrepro.methods.fedprox import FedProx
from fedrepro.methods.registry import compose
from fedrepro.support.plugins import Folders
from support.refusals import refused


@pytest.mark.parametrize(
    ("kind", "taken", "not_taken"),
    [
        ("NonNegative", [0, 0.1, 1e9], [-0.001, -3, math.inf, math.nan]),
        ("Positive", [0.001, 1e9], [0, -3, math.inf, math.nan]),
        ("Share", [0, 0.5, 1], [-0.001, 1.001, math.inf, math.nan]),
        ("PositiveShare", [0.001, 1], [0, 1.001, math.nan]),
        ("BelowOne", [0, 0.999], [-0.001, 1, math.inf, math.nan]),
        ("NonNegativeWhole", [0, 7], [-1, 1.5, 2.0, math.inf, math.nan]),
        ("PositiveWhole", [1, 7], [0, -1, 1.5, 2.0, math.inf, math.nan]),
    ],
)
def test_a_range_has_these_ends(kind: str, taken: list[float], not_taken: list[float]) -> None:
    (limit,) = getattr(fidelity, kind).__metadata__
    assert all(map(limit.fits, taken)) and not any(map(limit.fits, not_taken))


@dataclass(frozen=True)
class Part(Faithful):
    number: PositiveWhole | None = None
    mode: Annotated[str, one_of("fast", "slow")] = "fast"


def test_none_is_within_all_limits_and_a_name_is_suggested() -> None:
    assert Part().number is None and Part(3).number == 3
    with refused("value", key="number", value=0, names="null"):
        Part(0)
    with refused("value", key="mode", value="slov", near="slow"):
        Part(mode="slov")


@dataclass(frozen=True)
class Loose(FedProx):
    mu: float = 0.5


def test_a_field_that_is_declared_again_keeps_its_limits() -> None:
    with refused("value", key="mu", value=-1.0):
        Loose(mu=-1.0)


@dataclass(frozen=True)
class Wide(FedProx):
    mu: Annotated[float, Limit(lambda n: n >= -1, "a number of at least -1")] = 0.5


@dataclass(frozen=True)
class Many(Faithful):
    rates: tuple[NonNegative, ...] = ()
    count: Annotated[int | None, whole(1)] = None
    given: InitVar[int] = 0


def test_the_nearest_limit_counts() -> None:
    assert Wide(mu=-0.5).mu == -0.5
    with refused("value", key="mu", value=-2.0):
        Wide(mu=-2.0)


def test_a_limit_is_of_the_value_and_not_of_what_is_in_it() -> None:
    assert Many((1.0, 2.0), given=3).count is None
    with refused("value", key="count", value=0, names="null"):
        Many(count=0)


@dataclass(frozen=True)
class Worded(Faithful):
    shape: Literal["linear", "cosine"] = "linear"
    again: "Literal['linear', 'cosine'] | None" = None
    either: Annotated[Literal["a"] | Literal["b", 3], "noted"] = "a"
    free: Literal["auto"] | float = "auto"
    listed: tuple[Literal["a"], ...] = ()


def test_a_word_is_one_of_those_in_its_annotation() -> None:
    Worded("cosine", "linear", "b", 0.5, ("a",))
    Worded(again=None, either=3)
    for key in ("shape", "again"):
        with refused("value", key=key, value="cosin", near="cosine"):
            Worded(**{key: "cosin"})
    with refused("value", key="either", value="c"):
        Worded(either="c")  # type: ignore[arg-type]


POSTPONED = '''"""A plug-in."""
from __future__ import annotations
from dataclasses import dataclass
{imports}
from fedrepro.engine.fidelity import NonNegative
from fedrepro.methods.fedprox import FedProx


@dataclass(frozen=True)
class Own(FedProx):
    strength: NonNegative = 1.0
    {field}
'''


def test_postponed_annotations_have_limits(tmp_path: Path) -> None:
    """Those of a class that names what only type checkers import cannot be read: of its base."""
    (tmp_path / "own.py").write_text(POSTPONED.format(imports="", field=""))
    unknown = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nowhere import Some"
    field = "other: Some | None = None"
    (tmp_path / "vague.py").write_text(POSTPONED.format(imports=unknown, field=field))
    folders = Folders(methods=tmp_path)
    with refused("value", key="strength", value=-1.0):
        compose("own", {"own": {"strength": -1.0}}, folders)
    with refused("value", key="mu", value=-1.0):
        compose("vague", {"vague": {"mu": -1.0}}, folders)
