"""The files that a run's page links to: manifest, setting, records and log.

They are copied to a folder beside the page, so that a moved or published site keeps them. Paths and
names of machines are removed from the log.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedrepro.config.targets import RunKey
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.pages.foot import repository
from fedrepro.report.pages.templates import Renderer
from fedrepro.run.results import LOGS, RunRecord, read_run
from fedrepro.support.checkout import COMMIT
from fedrepro.support.packaged import PACKAGE
from fedrepro.support.printing import publishable

LARGEST = 20_000_000  # largest file to copy, in bytes; some web hosts accept no larger ones
SETTING = "setting.yaml"
WORDS = {
    "manifest.json": "manifest",
    SETTING: "YAML, its setting fully resolved",
    "log.txt": "log",
}


@dataclass(frozen=True)
class RunFile:
    """A file on a run's page.

    Attributes:
        href: from the page; None if the file is too large to copy.
        size: in bytes.
    """

    name: str
    words: str
    href: str | None
    size: int


@dataclass(frozen=True)
class Commit:
    """The commit of a part of the code.

    Attributes:
        part: "fedrepro", or a kind of plug-ins as "plugins/methods".
        dirty: whether its code had uncommitted changes.
        href: the commit's page in the repository, if known.
    """

    part: str
    name: str
    dirty: bool
    href: str | None


def write_files(renderer: Renderer, record: RunRecord) -> list[RunFile]:
    """Copy a run's files beside its page, and remove those of an earlier run of the same name."""
    folder, found = record.page.with_suffix(""), []
    for name, source in _files(renderer.root, record):
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        copied = size <= LARGEST
        if copied:
            content = source if isinstance(source, bytes) else source.read_bytes()
            renderer.write_changed(folder / name, content)
        href = f"{folder.name}/{name}" if copied else None
        found.append(RunFile(name, WORDS.get(name, name), href, size))
    renderer.remove_others(folder, {each.name for each in found if each.href})
    return found


def _files(root: Path, record: RunRecord) -> Iterator[tuple[str, Path | bytes]]:
    """Names beside the page, each with its source file or content."""
    folder = root / record.folder
    if (folder / "manifest.json").is_file():
        yield "manifest.json", folder / "manifest.json"
    yield SETTING, setting_of(record)
    # Files that its manifest does not list are not the run's.
    for name in sorted(record.manifest.get("files", {})):
        if re.fullmatch(r"[\w-]+\.parquet", name) and (folder / name).is_file():
            yield name, folder / name
    log = root / LOGS / record.run.setting / record.run.method / f"seed{record.run.seed}.log"
    if not record.reference and log.is_file():
        text = log.read_text(encoding="utf-8", errors="replace")
        yield "log.txt", publishable(text, root).encode()


def setting_of(record: RunRecord) -> bytes:
    """A run's setting as YAML, fully resolved."""
    described = record.manifest.get("run", {})
    return yaml.safe_dump(described, sort_keys=False, allow_unicode=True).encode(errors="replace")


def setting_beside(system: str, item: str, run: RunKey, page: str | None) -> str:
    """Where a run's setting is in the site: beside its page or, without one, beside its table's."""
    if page:
        return f"{page.removesuffix('.html')}/{SETTING}"
    return f"{system}/{item}/{run.setting.partition('/')[2]}/{run.method}.yaml"


def write_settings(renderer: Renderer, table: ComputedTable) -> None:
    """The settings of runs that have no page, one for each setting and method of a table."""
    done = set()
    for cell in table.cells:
        for run in cell.paper.runs:
            place = cell.paper.setting, run.method
            if run.page is None and run.value is not None and place not in done:
                done.add(place)
                key = cell.paper.run_of(run)
                record = read_run(renderer.root, key, reference=run.reference)
                path = Path(setting_beside(table.system, table.item, key, None))
                renderer.write_changed(path, setting_of(record))


def commits_of(manifest: Mapping[str, Any]) -> list[Commit]:
    """The valid commits that a manifest names; older manifests name none."""
    found = manifest.get("git")
    commits = []
    for part, state in (found if isinstance(found, Mapping) else {}).items():
        name = state.get("commit") if isinstance(state, Mapping) else None
        if isinstance(name, str) and COMMIT.fullmatch(name):
            known = repository() if part == PACKAGE.name else None
            href = f"{known}/commit/{name}" if known else None
            commits.append(Commit(part, name, bool(state.get("dirty")), href))
    return commits
