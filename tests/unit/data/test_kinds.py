"""A kind of data set and its reader, a scheme and how it assigns samples: two places each."""

import inspect
from importlib import import_module
from typing import Any, Literal, get_args, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined

from fedrepro.data.catalogue.entries import Described, RawFile
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.partition import assigning
from fedrepro.data.partition.schemes import PartitionSpec, Scheme
from fedrepro.data.readers.content import Content, Source
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
    "isic2019": {"shorter": 224, "side": 200, "leave_out": ()},
    "speech_commands": {"samples": 16_000},
    "heart_disease": {"missing": "mean"},
    "tiny_imagenet": {"side": 64},
    "downsampled_imagenet": {"side": 32, "classes": ()},
    "berka": {"leave_out": ()},
    "digit_five": {"parts": 10},  # FedBN's authors: all of a domain
    # As the files are, unless an entry asks for something else.
    "cifar10_binary": {"side": None},
    "cifar100_binary": {"side": None, "superclasses": False},
    "idx": {"side": None},
    "digit_styles": {}, "leaf_femnist": {}, "medmnist": {}, "pacs": {}, "pixel_csv": {},
    "question_pairs": {},
}  # fmt: skip
# Of one's own data, whose entries were written in the knowledge of these.
OF_OWN = {
    "arrays": {"test_fraction": None},
    "image_folder": {"channels": 3, "layout": None, "background": "white"},
    "jpeg_parquet": {"sha256": None, "group": None, "side": None, "background": "white"},
    "plugin": {"path": "", "arguments": {}, "test_fraction": None},
    "synthetic": {"test_fraction": 0.2},
    "tabular_csv": {"group": None, "split": None, "drop": (), "missing": (), "standardise": True},
    "text": {
        "label": None, "group": None, "split": None, "tokenizer": "words", "words": 10_000,
        "test_fraction": None,
    },
}  # fmt: skip
EVERYWHERE = {"task": "classification", "mean": None, "std": None, "mirrors": ()} | dict.fromkeys(
    ("homepage", "surrogate_for", "size", "only_classes")
)
# What is read otherwise than once, and so is read again where it was read before.
REVISED = {"tabular_csv": 2, "jpeg_parquet": 2, "image_folder": 2}


def in_module(name: str, base: type) -> set[type]:
    """The classes under a base that a module itself defines."""
    found = [it for it in vars(import_module(name)).values() if isinstance(it, type)]
    return {it for it in found if it.__module__ == name and base in it.__mro__[1:]}


def test_a_kinds_defaults_are_those_of_its_source() -> None:
    known = {**CHOICES, **OF_OWN}
    for model in KINDS:
        (kind,) = get_args(model.model_fields["kind"].annotation)
        fields = model.model_fields.items()
        given = {name: field.default for name, field in fields if field.default_factory is None}
        given = {name: each for name, each in given.items() if each is not PydanticUndefined}
        own = {name: each for name, each in given.items() if name not in EVERYWHERE}
        assert own == known.pop(kind), kind
        assert {**EVERYWHERE, **given} == {**given, **EVERYWHERE}, kind
        assert issubclass(model, Described)
        assert model.revision == REVISED.get(kind, 1), kind
        assert model.every_class == (kind in OF_OWN and kind != "synthetic"), kind
    assert not known


@pytest.mark.parametrize(
    ("kind", "keys", "share"),
    [
        ("tabular_csv", {"label": "y"}, 0.2),
        ("tabular_csv", {"label": "y", "group": "g"}, 0.0),
        ("image_folder", {"height": 1, "width": 1}, 0.2),
        ("image_folder", {"height": 1, "width": 1, "layout": "class"}, 0.2),
        ("image_folder", {"height": 1, "width": 1, "layout": "client/class"}, 0.0),
    ],
)
def test_who_has_clients_holds_out_with_them(kind: str, keys: dict[str, Any], share: float) -> None:
    texts = dict.fromkeys(("title", "licence", "citation", "path"), "x")
    entry = TypeAdapter(DatasetSpec).validate_python({"kind": kind, **texts, **keys})
    assert entry.test_fraction == share


TEXTS = dict.fromkeys(("title", "licence", "citation", "path"), "x")
SHA = {"name": "x", "sha256": "0" * 64}
OWN = {
    "tabular_csv": {"label": "y"},
    "image_folder": {"height": 1, "width": 1},
    "text": {"text": "t", "label": "y", "length": 1},
    "arrays": {},
    "digit_five": {},
    "downsampled_imagenet": {},
    "plugin": {"function": "f"},
}
FEW = {"class_names": ["a"]}
FETCHED = {
    "question_pairs": {"file": SHA, "tokenizer": "x", "length": 8},
    "plays": {"archive": SHA, "folder": "a/b"},
    "pixel_csv": {"file": SHA, "height": 1, "width": 1, "test_fraction": 0.5, **FEW},
}


@pytest.mark.parametrize(
    ("kind", "key", "fitting", "others"),
    [
        ("image_folder", "height", (1, 4096), (0, 4097, 1.5)),
        ("image_folder", "test_fraction", (0, 0.999), (1, -0.001, ".5")),
        ("image_folder", "channels", (1, 3), (2, 4)),
        ("arrays", "test_fraction", (0, 0.999, None), (1, -0.001)),
        ("text", "length", (1, 10**6), (0,)),
        ("text", "words", (5, 10**6), (4,)),
        ("text", "label", ("y",), (None, ["y"])),
        ("tabular_csv", "label", ("y",), (["y"], ["y", "z"], [])),
        ("question_pairs", "length", (8, 512), (7,)),
        ("digit_five", "parts", (1, 10), (0, 11)),
        ("downsampled_imagenet", "classes", (["n00000001"],), (["n0000001"], ["N00000001"])),
        ("plugin", "function", ("f", "Waves_2"), ("2f", "a-b", "", "a.b")),
        ("plays", "most", (1, None), (0,)),
        ("plays", "folder", ("a", "a/b-c_d"), ("/a", "../a", "a b", "")),
        ("pixel_csv", "mean", (None,), ([0.5],)),
        ("pixel_csv", "std", (None,), ([0.5],)),
        ("pixel_csv", "homepage", ("http://x", "https://x"), ("ftp://x", "x", "http:// x")),
        ("pixel_csv", "surrogate_for", ("a_b.c-1",), ("A", "-a", "a b")),
        ("pixel_csv", "file", (SHA,), ({**SHA, "sha256": "A" * 64}, {**SHA, "sha256": "0" * 63})),
        ("pixel_csv", "file", ({**SHA, "size": 1},), ({**SHA, "size": 0}, {**SHA, "name": ".x"})),
    ],
)
def test_each_key_takes_what_fits_and_nothing_beyond(
    kind: str, key: str, fitting: tuple[Any, ...], others: tuple[Any, ...]
) -> None:
    about = {name: text for name, text in TEXTS.items() if kind in OWN or name != "path"}
    keys = {"kind": kind, **about, **{**OWN, **FETCHED}[kind]}
    read = TypeAdapter(DatasetSpec).validate_python
    for value in fitting:
        got = getattr(read({**keys, key: value}), key)
        assert (list(got) if isinstance(got, tuple) else got) == value or key == "file"
    for value in others:
        with pytest.raises(ValidationError):
            read({**keys, key: value})


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        ({"label": ["y"], "task": "regression"}, True),
        ({"label": ["y", "z"], "task": "multi_label"}, True),
        ({"label": "y", "task": "next_word"}, False),
        ({"label": None, "task": "next_word"}, True),
        ({"label": ["y"], "task": "binary"}, False),
        ({"label": [], "task": "regression"}, False),
        ({"mean": [0.5, 0.5], "std": [0.5]}, False),
        ({"mean": [0.5], "std": [0.5, 0.5]}, False),
        ({"mean": [0.5, 0.5], "std": [0.5, 0.5]}, True),
    ],
)
def test_keys_that_go_together(keys: dict[str, Any], fits: bool) -> None:
    entry = {"kind": "text", **TEXTS, **OWN["text"], **keys}
    if fits:
        TypeAdapter(DatasetSpec).validate_python(entry)
    else:
        with pytest.raises(ValidationError):
            TypeAdapter(DatasetSpec).validate_python(entry)


PACKED = {"name": "x.gz", "size": 1, "sha256": "0" * 64}


def test_the_size_of_what_is_unpacked_is_stated() -> None:
    """Whatever hash it has: without it an archive could hold any number of bytes."""
    for name in ("sha256", "md5"):
        keys = {"name": "x", name: HASHES[name], "packed": PACKED}
        assert RawFile.model_validate({**keys, "size": 1}).size == 1
        with pytest.raises(ValidationError, match="`size`"):
            RawFile.model_validate(keys)


@pytest.mark.parametrize(
    ("key", "fitting", "others"),
    [
        ("clients", (1, 10**6), (0, -1)),
        ("alpha", (1e-9, 1e9), (0, -1, float("inf"), float("nan"))),
        ("minimum", (1,), (0,)),
        ("test_fraction", (0, 0.999), (1, -0.1)),
        ("validation", (0, 0.999), (1, -0.1)),
        ("server", (0, 0.999), (1, -0.1)),
        ("seed", (None, 0, 2**32 - 1), (-1, 2**32)),
    ],
)
def test_each_key_of_a_scheme_takes_what_fits(
    key: str, fitting: tuple[Any, ...], others: tuple[Any, ...]
) -> None:
    keys = {"scheme": "dirichlet", "clients": 2, "alpha": 1.0}
    read = TypeAdapter(PartitionSpec).validate_python
    for value in fitting:
        assert getattr(read({**keys, key: value}), key) == value
    for value in others:
        with pytest.raises(ValidationError):
            read({**keys, key: value})
    for share, fits in ((1e-9, True), (1.0, True), (0, False), (1.001, False)):
        if fits:
            assert read({"scheme": "at_server", "share": share}).clients == 1
        else:
            with pytest.raises(ValidationError):
                read({"scheme": "at_server", "share": share})


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
    assert list(hints.values()) == [kind, Source]
    assert len(inspect.signature(read).parameters) == 2


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.__name__)
def test_a_scheme_assigns(scheme: type[Scheme]) -> None:
    name = get_args(scheme.model_fields["scheme"].annotation)[0]
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
