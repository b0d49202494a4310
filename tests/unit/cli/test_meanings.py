"""Every hyperparameter of the package says what it means."""

import re
from dataclasses import dataclass

import pytest

from fedrepro.cli.listing import meanings_of
from fedrepro.engine.method import Method
from fedrepro.methods import registry


@pytest.mark.parametrize("name", sorted(registry.parts()))
def test_every_hyperparameter_has_a_meaning(name: str) -> None:
    part = registry.parts()[name]
    meanings = meanings_of(part.cls)
    for field in registry.describe(part)["hyperparameters"]:
        # A symbol of the paper alone is no meaning.
        assert re.search(r"[a-z]{4}", re.sub("lambda|gamma|alpha|beta", "", meanings[field])), field


@dataclass(frozen=True)
class Above(Method):
    """A method.

    Attributes:
        first, second: one of
            two.
        last: what is `said: here`.
    """

    first: int = 1
    second: int = 2
    last: int = 3
    mute: int = 4


@dataclass(frozen=True)
class Below(Above):
    second: int = 5  # another


def test_meanings_are_read_off_comments_and_docstrings_wherever_a_field_comes_from() -> None:
    assert meanings_of(Below) == {
        "first": "one of two.", "second": "another", "last": "what is `said: here`.", "mute": "",
    }  # fmt: skip
