"""The schemas in config/schema, from which editors and the documentation take what a key means."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedrepro.cli import configuration
from fedrepro.support.typed_yaml import Typed


def keys(model: type[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = model.model_json_schema()
    for name, part in {model.__name__: whole, **whole["$defs"]}.items():
        for key, value in part.get("properties", {}).items():
            yield f"{name}.{key}", value


@pytest.mark.parametrize("file", configuration.SCHEMAS)
def test_every_key_says_what_it_means(file: str) -> None:
    said = {key: value.get("description", "") for key, value in keys(configuration.SCHEMAS[file])}
    assert len(said) > 20
    assert not [key for key, text in said.items() if not text.endswith((".", ".)"))]


class Base(Typed):
    """A base.

    Attributes:
        kind: which kind,
            said in two lines.
        size: of the base.
    """

    kind: str
    size: int = 1


class Special(Base):
    """Special.

    Attributes:
        size: of the special one.
    """

    size: int = 2


def test_a_docstring_describes_its_own_keys_and_inherited_ones() -> None:
    found = Special.model_json_schema()
    assert found["description"] == "Special."
    assert {name: key["description"] for name, key in found["properties"].items()} == {
        "kind": "Which kind, said in two lines.",
        "size": "Of the special one.",
    }
