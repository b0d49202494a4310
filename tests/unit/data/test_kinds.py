"""A kind of data set and its reader, a scheme and how it assigns samples: two places each."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from fedrepro.data.catalogue.entries import Described, RawFile
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.partition import assigning
from fedrepro.data.partition.schemes import PartitionSpec, Scheme
from fedrepro.data.readers.content import Content, Progress
from fedrepro.support.typed_yaml import Typed, any_of


def alternatives(spec: object) -> tuple[type[BaseModel], ...]:
    """Those of an annotated union."""
    models: tuple[type[BaseModel], ...] = get_args(get_args(spec)[0])
    return models


KINDS = alternatives(DatasetSpec)
SCHEMES = alternatives(PartitionSpec)


# Defaults that are another paper's choice, whose numbers an entry without them repeats: LEAF
# (Caldas et al., 2018) keeps celebrities of five images or more, at 84 x 84, and texts of 80
# characters and the 10,000 words that are most frequent; FLamby scales ISIC 2019 to 224 pixels and
# cuts 200 out; Speech Commands are seconds of 16,000 samples.
CHOICES = {
    "celeba": {"attribute": "Smiling", "minimum": 5, "side": 84},
    "leaf_shakespeare": {"length": 80},
    "plays": {"length": 80, "most": None},
    "leaf_reddit": {"words": 10_000},
    "isic2019": {"shorter": 224, "side": 200},
    "speech_commands": {"samples": 16_000},
    "heart_disease": {"missing": "mean"},
    "tiny_imagenet": {"side": 64},
    "downsampled_imagenet": {"side": 32},
}


def in_module(name: str, base: type) -> set[type]:
    """The classes under a base that a module itself defines."""
    found = [it for it in vars(import_module(name)).values() if isinstance(it, type)]
    return {it for it in found if it.__module__ == name and base in it.__mro__[1:]}


@pytest.mark.parametrize("kind", CHOICES)
def test_a_kinds_defaults_are_those_of_its_source(kind: str) -> None:
    (model,) = (each for each in KINDS if get_args(each.model_fields["kind"].annotation) == (kind,))
    fields = model.model_fields
    assert {name: fields[name].default for name in CHOICES[kind]} == CHOICES[kind]


HASHES = {"sha256": "0" * 64, "md5": "0" * 32}


@pytest.mark.parametrize("given", [(), ("sha256",), ("md5",), ("sha256", "md5")], ids=str)
def test_a_raw_file_has_one_hash_by_which_it_is_checked(given: tuple[str, ...]) -> None:
    keys = {"name": "x", **{name: HASHES[name] for name in given}}
    if len(given) == 1:
        assert RawFile.model_validate(keys).name == "x"
    else:
        with pytest.raises(ValidationError, match="either `sha256` or `md5`"):
            RawFile.model_validate(keys)


def test_all_kinds_and_schemes_are_found() -> None:
    assert set(KINDS) == in_module("fedrepro.data.catalogue.kinds", Described)
    assert set(SCHEMES) == in_module("fedrepro.data.partition.schemes", Scheme)
    assert len(KINDS) >= 18
    assert len(SCHEMES) >= 8


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_reader_takes_its_kind(kind: type[Described]) -> None:
    module, _, function = kind.reader.partition(":")
    read = getattr(import_module(f"fedrepro.data.readers.{module}"), function)
    hints = get_type_hints(read)
    assert hints.pop("return") is Content
    assert list(hints.values()) == [kind, Path, Path, Progress]
    assert len(inspect.signature(read).parameters) == 4


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.__name__)
def test_a_scheme_assigns_and_has_a_name(scheme: type[Scheme]) -> None:
    name = get_args(scheme.model_fields["scheme"].annotation)[0]
    assert "_parts" in vars(scheme)
    assert "assign" in vars(scheme) or callable(getattr(assigning, name))


def test_a_further_alternative_is_a_class() -> None:
    class Base(Typed):
        kind: str

    class Between(Base):
        """Not an alternative: its kind can be anything."""

    class New(Between):
        kind: Literal["new"]

    class Old(Base):
        kind: Literal["old"]

    adapter: TypeAdapter[Base] = TypeAdapter(any_of(Base, "kind"))
    assert isinstance(adapter.validate_python({"kind": "new"}), New)
    assert isinstance(adapter.validate_python({"kind": "old"}), Old)
