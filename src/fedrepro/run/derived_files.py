"""Read what was made from runs, analyses and tables, and compare it with those runs as they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.run.results import manifest_in, reference_folder
from fedrepro.run.run_archive import archived_run
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.scoped_cache import ScopedCache

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


_seals = ScopedCache[tuple[Path, RunKey, Path], str]("_seals")
seals_once = _seals.within  # as results.read_once


def seal_of_run(root: Path, run: RunKey, runs: Path = Path("results/runs")) -> str:
    """The seal in the manifest of this machine's result or else the reference result, or "".

    Args:
        runs: the folder of this machine's results, relative to the root.
    """
    return _seals.of((root, run, runs), lambda: _seal_of_run(root, run, runs))


def _seal_of_run(root: Path, run: RunKey, runs: Path) -> str:
    for folder in (runs / run.name, reference_folder(run)):
        try:
            return str(manifest_in(root / folder).get("seal"))
        except FileNotFoundError:
            continue
        except ValueError:
            return "damaged"
    try:
        landed = archived_run(root, run)
    except UserError:
        return "damaged"
    return str(landed.manifest.get("seal")) if landed else ""


def seals_of(root: Path, runs: Iterable[RunKey]) -> dict[str, str]:
    """The key ``of`` of a file made from those of these runs that have a result."""
    seals = {run.name: seal_of_run(root, run) for run in runs}
    return {name: seal for name, seal in seals.items() if seal}
