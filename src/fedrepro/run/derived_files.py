"""Compare files made from runs (analyses, tables, pages) with those runs as they are now."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedrepro.config.targets import RunKey
from fedrepro.run.results import seal_of_run
from fedrepro.support import checksummed_json, errors
from fedrepro.support.errors import UserError, refusal

Content = TypeVar("Content", bound=Hashable)
REPLACED = "made from a result of {} that was replaced or deleted since"


def read_derived(root: Path, path: Path) -> dict[str, Any] | None:
    """The content of a sealed file of ``results``; None if it does not exist.

    Args:
        path: relative to the root.

    Raises:
        UserError: if it is damaged, or was made from other results than there are now.
    """
    try:
        content = checksummed_json.read(root / path, checksummed_json.of_results(path), path)
    except FileNotFoundError:
        return None
    for name in changed_sources(content, lambda run: seal_of_run(root, run)):
        why = f"{REPLACED.format(name)}; {checksummed_json.AGAIN}"
        raise refusal(path, why, value=name, code="damaged")
    return content


def read_as(kind: type[Content], root: Path, path: Path) -> Content | None:
    """The same as a dataclass, with a file's content checked.

    Raises:
        UserError: as :func:`read_derived`, or if the content is not of this kind.
    """
    content = read_derived(root, path)
    return None if content is None else parsed(kind, content, path)


def parsed(kind: type[Content], content: Mapping[str, Any], path: Path) -> Content:
    """The content of a file of ``results`` as a dataclass.

    Raises:
        UserError: if it is not of this kind.
    """
    try:
        whole: Content = adapter(kind).validate_python(content)
        return whole
    except ValidationError as error:
        fault = error.errors()[0]
        raise damaged(path, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def damaged(path: Path, why: object) -> UserError:
    return errors.damaged(path, f"{why}; {checksummed_json.AGAIN}")


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """How pydantic reads and writes a dataclass."""
    return TypeAdapter(kind)


def changed_sources(
    content: Mapping[str, Any], seal_of: Callable[[RunKey], str | None]
) -> Iterator[str]:
    """The names of the runs that a file was made from and that have another result now.

    Args:
        seal_of: the seal of a run's result now; None if it cannot be told.
    """
    for name, seal in content.get("of", {}).items():
        if seal_of(RunKey.parse(name)) not in (seal, None):
            yield name
