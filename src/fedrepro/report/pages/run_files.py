"""The files that a run's page links to: manifest, setting, records and log.

They are copied to a folder beside the page, so that a moved or published site keeps them. Paths and
names of machines are removed from the log.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.pages.downloads import rows_as_csv
from fedrepro.report.pages.templates import Renderer, repository
from fedrepro.run.landed_runs import folder_of
from fedrepro.run.results import LOGS, RunRecord, read_run
from fedrepro.support.checkout import COMMIT
from fedrepro.support.packaged import PACKAGE
from fedrepro.support.printing import redact
from fedrepro.support.typed_yaml import written

LARGEST = 20_000_000  # largest file to copy, in bytes; some web hosts accept no larger ones
SETTING = "setting.yaml"
OURS = re.compile(
    rf"manifest\.json|log\.txt|{re.escape(SETTING)}|(rounds|clients|decisions|mixtures)\.parquet"
)
RUNS_HEADER = (
    "setting", "method", "seed", "state", "rounds", "commit", "dirty", "code", "numerics",
    "configuration", "data_sha256", "partition_sha256", "arithmetic", "processor",
    "vector_instructions", "python", "torch", "cpu_seconds",
)  # fmt: skip
WORDS = {
    "manifest.json": "manifest",
    SETTING: "YAML, its setting fully resolved",
    "log.txt": "log",
}


def write_files(renderer: Renderer, record: RunRecord) -> list[SimpleNamespace]:
    """Copy a run's files beside its page, and remove those of an earlier run of the same name.

    Their ``href`` is from the page; None of a file that is too large to copy.
    """
    folder, entries = record.page.with_suffix(""), []
    for name, source in _files(renderer.root, record):
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        copied = size <= LARGEST
        if copied:
            content = source if isinstance(source, bytes) else source.read_bytes()
            renderer.write_file(folder / name, content)
        href = f"{folder.name}/{name}" if copied else None
        entries.append(
            SimpleNamespace(name=name, words=WORDS.get(name, name), href=href, size=size)
        )
    renderer.remove_others(folder, {entry.name for entry in entries if entry.href}, OURS)
    return entries


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
    log = root / LOGS / f"{record.run.name}.log"
    if not record.reference and log.is_file():
        text = log.read_text(encoding="utf-8", errors="replace")
        yield "log.txt", redact(text, root).encode()


def setting_of(record: RunRecord) -> bytes:
    """A run's setting as YAML, fully resolved."""
    described = record.manifest.get("run", {})
    if not described:
        return b"{}\n"
    return b"".join(_as_yaml(key, json.dumps(value)) for key, value in described.items())


@cache  # most keys are the same in all runs of a table, and YAML is written slowly
def _as_yaml(key: str, value: str) -> bytes:
    """A key with its JSON value as YAML."""
    return written({key: json.loads(value)}, allow_unicode=True).encode(errors="replace")


def setting_beside(system: str, item: str, run: RunKey, page: str | None) -> str:
    """Where a run's setting is in the site: beside its page or, without one, beside its table's."""
    if page:
        return f"{page.removesuffix('.html')}/{SETTING}"
    return f"{system}/{item}/{run.setting.partition('/')[2]}/{run.method}.yaml"


def write_unpaged(renderer: Renderer, table: ComputedTable) -> None:
    """Write the files for runs that have no page of their own.

    Their settings, one file for each setting and method of the table; a CSV of what they are; and
    the records of those that are landed.
    """
    keys = unpaged(table)
    if not keys:
        return
    records = [read_run(renderer.root, key, reference=keys[key]) for key in keys]
    for record in {(record.run.setting, record.run.method): record for record in records}.values():
        path = Path(setting_beside(table.system, table.item, record.run, None))
        renderer.write_file(path, setting_of(record))
    for setting in {record.run.setting for record in records if record.landed}:
        for href, file in landed_files(renderer.root, setting).items():
            renderer.write_file(Path(href), file.read_bytes())
    text = rows_as_csv(RUNS_HEADER, map(identity_of, records))
    renderer.write_file(Path(table.system, f"{table.item}-runs.csv"), text)


def landed_files(root: Path, setting: str) -> dict[str, Path]:
    """The Parquet files with a setting's landed results, by their place in the site."""
    files = sorted((root / folder_of(setting)).glob("*.parquet"))
    system, _, name = setting.partition("/")
    return {f"{system}/compact/{name}/{file.name}": file for file in files}


def unpaged(table: ComputedTable) -> dict[RunKey, bool]:
    """The runs of a table that are over but have no page; whether each is a reference result."""
    entries = {
        key: run.reference
        for cell in table.cells
        for key, run in cell.result.by_key
        if run.page is None and run.state in ("finished", "diverged")
    }
    return dict(sorted(entries.items(), key=lambda each: astuple(each[0])))


def identity_of(record: RunRecord) -> list[str]:
    """The values of :data:`RUNS_HEADER`; empty where its manifest has none."""
    manifest = record.manifest
    commits = commits_of(manifest)
    data, machine = manifest.get("data", {}), manifest.get("hardware", {})
    numerics = manifest.get("numerics", {})
    entries = [
        record.run.setting,
        record.run.method,
        record.run.seed,
        record.state,
        manifest.get("rounds_done"),
        " ".join(commit.name for commit in commits),
        any(commit.dirty for commit in commits),
        manifest.get("code"),
        "; ".join(f"{part} {name}" for part, name in numerics.items()),
        manifest.get("config_hash"),
        data.get("content_sha256"),
        data.get("partition_sha256"),
        manifest.get("arithmetic"),
        machine.get("processor"),
        machine.get("vector_instructions"),
        machine.get("python"),
        manifest.get("packages", {}).get("torch"),
        record.timing.get("cpu_seconds"),
    ]
    return ["" if value is None else str(value) for value in entries]


def commits_of(manifest: Mapping[str, Any]) -> list[SimpleNamespace]:
    """The valid commits that a manifest names, by part of the code; older manifests name none.

    A part is "fedrepro" or a kind of plug-ins, such as "plugins/methods"; ``dirty`` says whether it
    had uncommitted changes; ``href`` is the commit's page in the repository, if known.
    """
    entries = manifest.get("git")
    commits = []
    for part, state in (entries if isinstance(entries, Mapping) else {}).items():
        name = state.get("commit") if isinstance(state, Mapping) else None
        if isinstance(name, str) and COMMIT.fullmatch(name):
            known = repository() if part == PACKAGE.name else None
            href = f"{known}/commit/{name}" if known else None
            dirty = bool(state.get("dirty"))
            commits.append(SimpleNamespace(part=part, name=name, dirty=dirty, href=href))
    return commits
