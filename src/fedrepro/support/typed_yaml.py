"""Validate YAML files with pydantic models; each error is one line that names file and key."""

import inspect
import re
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Strict,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from fedrepro.support.errors import (
    UserError,
    bad_value,
    brief,
    missing_value,
    nearest,
    refusal,
    unreadable,
)

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[int | str, ...]


class Typed(BaseModel):
    """The base of all models of files: unknown keys are rejected, values are immutable.

    A class's docstring describes its keys in a section ``Attributes``, which the schema shows.
    A renamed key keeps its first name, its ``serialization_alias``, in dumps, and so in what
    identifies results; ``model_dump(by_alias=False)`` has the keys of today.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, content: Any) -> Any:
        """Reject an unknown key, and what has no keys, with the known ones, unlike pydantic."""
        if not isinstance(content, Mapping | BaseModel):
            text = f"keys with values: {', '.join(cls.model_fields)}"
            raise PydanticCustomError("expected", "{text}", {"text": text})
        for key in content if isinstance(content, Mapping) else ():
            if key not in cls.model_fields:
                known = f"{_one_of(cls.model_fields)}{nearest(key, cls.model_fields)}"
                raise PydanticCustomError("unknown_key", "{known}", {"key": key, "known": known})
        return content

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The model's schema, in which the docstring's section ``Attributes`` describes keys."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        resolved["description"] = _sections(cls)[0]
        described = {name: text for each in cls.__mro__[::-1] for name, text in _attributes(each)}
        for name, key in resolved.get("properties", {}).items():
            if name in described:
                key.setdefault("description", described[name])
        return schema


def _sections(cls: type) -> tuple[str, str]:
    """A class's docstring up to the section ``Attributes``, and that section."""
    text, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:\n")
    return text, attributes


def _attributes(cls: type) -> Iterable[tuple[str, str]]:
    """The attributes that a class's docstring describes, and what it says of each."""
    for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", _sections(cls)[1], re.MULTILINE):
        yield name, " ".join(f"{text[:1].upper()}{text[1:]}".split())


def later(default: Any, description: str | None = None, first_name: str | None = None) -> Any:
    """A field added to a setting, or to one of its parts, after the first results were published.

    At its default it is left out of a run's description (and of every dump), so that adding it does
    not invalidate older runs. Define every new key of a setting with it:
    ``noise: Noise | None = later(None)``.

    Args:
        first_name: of a renamed key, in descriptions and dumps.
    """
    return Field(
        default=default,
        description=description,
        serialization_alias=first_name,
        exclude_if=lambda value: bool(value == default),
    )


def expected(text: str) -> WrapValidator:
    """Use ``text`` instead of pydantic's message when the annotated value is wrong."""

    def check(value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("expected", "{text}", {"text": text}) from None

    return WrapValidator(check)


def like(pattern: str, text: str, most: int | None = None) -> tuple[FieldInfo, WrapValidator]:
    """Accept texts of a pattern, of at most so many characters; else ``text`` is expected."""
    field: FieldInfo = Field(pattern=pattern, max_length=most)
    return field, expected(text)


def plain_or(model: type[BaseModel], **marked: type[BaseModel]) -> Discriminator:
    """Distinguish a plain value (tag "plain") from a mapping (tag: the model's name).

    Errors then refer to the alternative that was meant.

    Args:
        marked: models of mappings by a key that no others have.
    """

    def tag(value: object) -> str:
        for key, other in marked.items():
            if isinstance(value, other) or (isinstance(value, Mapping) and key in value):
                return other.__name__
        return model.__name__ if isinstance(value, Mapping | model) else "plain"

    return Discriminator(tag)


def any_of(base: type[BaseModel], tag: str) -> Any:
    """The union of all models defined so far under ``base``, discriminated by their key ``tag``.

    Adding an alternative takes only a new class. Type checkers cannot evaluate this, so callers
    give them the base instead.
    """
    models = [model for model in under(base) if _is_literal(model.model_fields.get(tag))]
    models.sort(key=lambda model: model.__name__)  # independent of the order of imports
    return Annotated[reduce(or_, models), Field(discriminator=tag)]


def under(base: type[Model]) -> list[type[Model]]:
    """All classes defined so far that extend ``base``."""
    return [model for child in base.__subclasses__() for model in (child, *under(child))]


def _is_literal(field: FieldInfo | None) -> bool:
    return field is not None and get_origin(field.annotation) is Literal


MOST_BYTES = 2**21  # of a file; our longest has 40 KB
MOST_NODES = 2 * 10**5  # values in a file
MOST_DEPTH = 100  # of values in values
MOST_DIGITS = 1000  # of an int; Python prints at most 4,300

# Whole numbers and fractions as they appear in files. Strict: `true` is not 1 and "3" is not 3.
Whole = Annotated[int, Strict()]
Real = Annotated[float, Strict()]
PositiveWhole = Annotated[Whole, Field(ge=1), expected("a whole number of at least 1")]
TwoOrMore = Annotated[Whole, Field(ge=2), expected("a whole number of at least 2")]
PositiveReal = Annotated[
    Real, Field(gt=0, allow_inf_nan=False), expected("a finite number above 0")
]
Fraction = Annotated[Real, Field(gt=0, le=1), expected("a number above 0 and at most 1")]
Share = Annotated[Real, Field(ge=0, lt=1), expected("a number of at least 0 and below 1")]
Seed = Annotated[Whole, Field(ge=0, lt=2**32), expected("a whole number from 0 to 4294967295")]

if TYPE_CHECKING or not yaml.__with_libyaml__:
    from yaml import SafeLoader
else:
    from yaml import CSafeLoader as SafeLoader  # ten times faster

_TAG = "tag:yaml.org,2002:"
# Plain scalars of YAML 1.2's core schema, with the characters that they begin with. In YAML 1.1,
# PyYAML's, 0100 is 64, 1:30 is 90, and yes, on and true are one key.
_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", "<<", ["<"]),
)


class _Loader(SafeLoader):
    """A safe loader of YAML 1.2's core schema that rejects equal keys."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - as in its base, whose YAML 1.1 they replace

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._known = set[yaml.MappingNode]()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Before its first merge, which puts the merged keys beside its own; it may be merged again.
        if node not in self._known:
            self._refuse_equal_keys(node)
            self._known.add(node)
        super().flatten_mapping(node)

    def _refuse_equal_keys(self, node: yaml.MappingNode) -> None:
        first: dict[Hashable, yaml.ScalarNode] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                # The text as well: "1" and 1 are different keys that look the same.
                for name in {key.value, self.construct_object(key)}:
                    if (before := first.setdefault(name, key)) is not key:
                        raise yaml.MarkedYAMLError(
                            problem=f"the key {key.value!r} is given twice: expected it once: put "
                            f"what is below it under that in line {before.start_mark.line + 1}",
                            problem_mark=key.start_mark,
                        )

    def construct_scalar_of(self, node: yaml.ScalarNode) -> Any:
        """A number, true or false, also with an explicit tag."""
        kind, text = node.tag.removeprefix(_TAG), node.value
        problem = None
        if not _PLAIN[kind].fullmatch(text):
            problem = f"{brief(text)} is no {kind}"
        elif kind == "int" and len(text) > MOST_DIGITS:
            problem = f"a whole number of more than {MOST_DIGITS} digits"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        if kind == "bool":
            return text.lower() == "true"
        if kind == "float":
            return float(re.sub(r"\.(?=[a-zA-Z])", "", text))
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base)


_PLAIN = {kind: re.compile(pattern) for kind, pattern, _ in _SCALARS}
for _kind, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})$"), _first)
for _kind in ("bool", "int", "float"):
    _Loader.add_constructor(_TAG + _kind, _Loader.construct_scalar_of)


def _loaded(text: str) -> Any:
    """The content of YAML text.

    Raises:
        yaml.YAMLError: if it is not YAML, or nested too deeply: the C library would exhaust the
            stack, which ends the process.
    """
    depth = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH:
            place = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
            raise yaml.YAMLError(f"{place}more than {MOST_DEPTH} lists or keys in one another")
    return yaml.load(text, Loader=_Loader)


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes what is no text for `_Loader`, as 1e3, or for readers of YAML 1.1."""


for _kind, _pattern, _first in _SCALARS:
    _Dumper.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})$"), _first)


def written(content: object, **keys: Any) -> str:
    """Content as YAML text, its keys in their order."""
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, **keys))


def read_yaml(path: Path, shown: Path | None = None) -> Any:
    """The content of a YAML file, not to be changed; errors use the path ``shown``.

    Raises:
        UserError: if the file can't be read or is not YAML, or for a duplicate key, with its line.
    """
    return parsed(read_text(path, shown), shown or path)


def read_text(path: Path, shown: Path | None = None) -> str:
    """The text of a small file, such as one of YAML, without the mark that Windows begins it with.

    Raises:
        UserError: if the file can't be read.
    """
    shown = shown or path
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise unreadable(shown, "it is not a file")
        if path.stat().st_size > MOST_BYTES:
            raise unreadable(shown, f"it has more than {MOST_BYTES} bytes")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise refusal(shown, "there is no such file", code="missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(shown, error) from None


def parsed(text: str, shown: Path) -> Any:
    """The content of YAML text, not to be changed.

    Raises:
        UserError: if it is not YAML, or for a duplicate key, with its line.
    """
    try:
        return _content_of(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise _not_yaml(shown, error.problem, place) from None
    except RecursionError:
        raise _not_yaml(shown, "nested too deeply") from None
    except (yaml.YAMLError, ValueError, ArithmeticError, TypeError, AttributeError) as error:
        first_line = str(error).partition("\n")[0]
        raise _not_yaml(shown, first_line) from None


def _not_yaml(shown: Path, why: object, place: str = "") -> UserError:
    return UserError(f"{shown}{place}: not valid YAML: {why}", code="invalid_yaml", file=shown)


@lru_cache(maxsize=128)  # a process, and those forked from it, read the same text many times
def _content_of(text: str) -> Any:
    content = _loaded(text)
    _refuse_bomb(content)
    return content


def read_value(text: str, where: object, key: str) -> bool | int | float | str | None:
    """A single value, parsed as in an experiment file.

    Raises:
        UserError: unless it is a number, a word, true, false or null.
    """
    try:
        value = _loaded(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        value = {}
    if not isinstance(value, bool | int | float | str | None):
        raise bad_value(where, key, text, "a number, a word, true, false or null")
    return value


def _refuse_bomb(content: Any) -> None:
    """Raise ValueError if aliases expand to too many values, or to infinitely many."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if not isinstance(node, dict | list | tuple | set):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = MOST_NODES  # if met again meanwhile, it contains itself
            below = node.values() if isinstance(node, dict) else node
            sizes[id(node)] = 1 + len(node) + sum(size(part) for part in below)
        return sizes[id(node)]

    if size(content) > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} values with aliases expanded")


def validate(model: type[Model], data: object, where: object, context: object = None) -> Model:
    """Validate ``data``, the content of the file ``where``, as a ``model``.

    Args:
        context: passed to validators as ``info.context``.

    Raises:
        UserError: for the first wrong value, or for all missing keys. Unknown keys come first:
            a misspelt key would otherwise be reported as missing.
    """
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        details = sorted(error.errors(), key=lambda detail: detail["type"] != "unknown_key")
        missing = [_with_tag(detail, data) for detail in details if detail["type"] in MISSING]
        if details[0]["type"] in MISSING and len(missing) > 1:
            keys = ", ".join(dict.fromkeys(missing))
            raise missing_value(where, keys, "values") from None
        raise _error(where, details[0], data) from None


WHOLE_FILE = "(the whole file)"  # the key of a fault in no single one
MISSING = ("missing", "union_tag_not_found")
WORDS = {  # by pydantic's kind of error: what is expected
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), "keys with values"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text",
    "path_type": "one path, of a file or folder",
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number of at most {le}",
    "less_than": "a number below {lt}",
    "too_short": "at least one entry",
    "too_long": "at most {max_length} entries",
}


def _with_tag(detail: ErrorDetails, data: object) -> str:
    """The wrong key; for a choice such as a partition, the key that selects it."""
    tag = str(detail.get("ctx", {}).get("discriminator", "")).strip("'")
    return ".".join(filter(None, (_key(detail["loc"], data), tag)))


def _error(where: object, detail: ErrorDetails, data: object) -> UserError:
    key, value = _key(detail["loc"], data), detail["input"]
    context = detail.get("ctx", {})
    choices: list[str] = []
    match detail["type"]:
        case "unknown_key":
            key, text = _key((*detail["loc"], context["key"]), data), context["known"]
            line = f"{where}: {key}: unknown key: expected {text}"
            return UserError(line, code="unknown_key", file=where, key=key, expected=text)
        case "missing" | "union_tag_not_found":
            return missing_value(where, _with_tag(detail, data), "a value")
        case "union_tag_invalid" | "literal_error":
            key, value = _with_tag(detail, data), context.get("tag", value)
            choices = _quoted(context.get("expected_tags", context.get("expected")))
            text = _one_of(choices)
        case kind if kind in WORDS:
            text = WORDS[kind].format(**context)
        case _:
            text = re.sub(r"^(Input should be|Value error,|Assertion failed,) ", "", detail["msg"])
            about = re.match(r"`(\w+)`", text)  # of keys that must go together: the first of them
            if about and isinstance(value, Mapping) and about[1] in value:
                key, value = _key((*detail["loc"], about[1]), data), value[about[1]]
    return bad_value(where, key, value, text, choices)


def _key(location: Location, data: object) -> str:
    return ".".join(str(step) for step in _in_data(location, data)) or WHOLE_FILE


def _quoted(text: object) -> list[str]:
    """The choices in a list of pydantic's: words in quotes, or numbers."""
    return re.findall(r"'([^']*)'", str(text)) or re.findall(
        r"[^\s,]+", str(text).replace(" or ", " ")
    )


def _one_of(choices: Iterable[str]) -> str:
    names = sorted(choices)
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _in_data(location: Location, data: object) -> Location:
    """A pydantic location without steps that are not keys, such as a union's tag.

    Labelled list items appear by label: after products are expanded, their index is not the file's.
    """
    kept: list[int | str] = []
    for position, step in enumerate(location):
        last = position == len(location) - 1
        if isinstance(data, Mapping) and (step in data or last):
            kept.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
            kept.append(_label(data) or step)
    return tuple(kept)


def _label(item: object) -> str | None:
    label = item.get("label") if isinstance(item, Mapping) else None
    return label if isinstance(label, str) else None
