"""Read what was made from runs, analyses and tables, and compare it with those runs as they are."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.run.results import seal_of_run
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError

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
        raise UserError(f"{path}: {REPLACED.format(name)}; {checksummed_json.AGAIN}")
    return content


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
