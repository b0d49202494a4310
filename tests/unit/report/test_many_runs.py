"""What a page of many runs reads, imports and waits for: counted, as seconds depend on machines."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml

from fedrepro.config.loading import load
from fedrepro.config.targets import TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.methods import facts
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.pages import run_files
from fedrepro.report.papers import published
from fedrepro.run.results import RunRecord, read_run, run_of
from fedrepro.support import files
from support.places import ROOT
from support.report_world import fill, make_world


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A table of three columns with its runs, computed."""
    found = load(make_world(tmp_path, rows=2, columns=3))
    fill(found, demo(found))
    tables.write(found, demo(found), published.load(tmp_path))
    return found


def demo(bench: Workbench) -> TableTarget:
    return bench.table("ima", "table_1", "demo")


def render(bench: Workbench) -> None:
    site.write_page(bench, demo(bench), published.load(bench.root))


@contextmanager
def counted(names: dict[str, Callable[[Any], str]]) -> Iterator[dict[str, Counter[str]]]:
    """Calls of functions by name and by what is called with: ``module:function`` -> argument."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}

    def counting(name: str, before: Any) -> Any:
        def call(what: Any, *more: Any, **named: Any) -> Any:
            found[name][names[name](what)] += 1
            return before(what, *more, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            module, _, attribute = name.partition(":")
            place = sys.modules[module]
            patch.setattr(place, attribute, counting(name, getattr(place, attribute)))
        yield found


READS: dict[str, Callable[[Any], str]] = {
    "fedrepro.support.checksummed_json:parsed": str,
    "fedrepro.run.results:sha256_of": str,
    "pyarrow.parquet:ParquetFile": str,
    "fedrepro.support.checksummed_json:seal_of": lambda content: (
        run_of(content).name if "run" in content else "no manifest"
    ),
}


@pytest.mark.parametrize("make", ["table", "page", "site"])
def test_each_file_of_a_run_is_read_hashed_and_checked_once(bench: Workbench, make: str) -> None:
    papers, target = published.load(bench.root), demo(bench)
    calls: dict[str, Callable[[], object]] = {
        "table": lambda: tables.write(bench, target, papers),
        "page": lambda: site.write_page(bench, target, papers),
        "site": lambda: site.write_site(bench, papers, [], "demo"),
    }
    with counted(READS) as reads:
        calls[make]()
    runs = target.runs
    for name, file in zip(READS, ("manifest.json", *["rounds.parquet"] * 2, ""), strict=True):
        wanted = {str(bench.root / run.folder / file) if file else run.name for run in runs}
        of_runs = {path: times for path, times in reads[name].items() if path in wanted}
        assert [path for path, times in of_runs.items() if times > 1] == [], name
        if not (make == "site" and name == "pyarrow.parquet:ParquetFile"):
            assert of_runs.keys() == wanted


def test_a_page_flushes_no_file_of_its_own(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them would take minutes: one call settles all, after the last is written."""
    events: list[str] = []
    replace = os.replace
    monkeypatch.setattr(files, "flush", lambda path: events.append(f"flush {path}"))
    monkeypatch.setattr(os, "sync", lambda: events.append("sync"))

    def noted(source: Any, target: Any) -> None:
        events.append("write")
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    render(bench)
    assert events == ["write"] * (len(events) - 1) + ["sync"] and len(events) > 10
    events.clear()
    site.write_site(bench, published.load(bench.root), [], "demo")
    assert set(events[:-1]) == {"write"} and events[-1] == "sync"


def test_the_pages_of_many_runs_come_with_the_site(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    render(bench)
    folder = bench.root / "reports/site/runs"
    there = {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
    assert len(list(folder.rglob("seed*.html"))) == len(demo(bench).runs)
    assert "`fedrepro site`" not in capsys.readouterr().err
    for file in there:
        file.unlink()
    monkeypatch.setattr(site, "MANY", len(demo(bench).runs) - 1)
    render(bench)
    assert not any(file.exists() for file in there)
    said = capsys.readouterr().err
    assert f" {len(demo(bench).runs)} runs " in said and "`fedrepro site`" in said
    papers = published.load(bench.root)
    site.write_site(bench, papers, [], "demo")
    assert {file: file.read_bytes() for file in there} == there
    # And again if a run has changed since.
    page = next(file for file in there if file.suffix == ".html")
    page.write_text("old", encoding="utf-8")
    site.write_site(bench, papers, [], "demo")
    assert page.read_bytes() == there[page]


def test_the_whole_site_renders_each_run_once(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    run_page = site.run_page

    def counting(record: RunRecord, *more: Any) -> dict[str, Any]:
        seen[str(record.folder)] += 1
        return run_page(record, *more)

    monkeypatch.setattr(site, "run_page", counting)
    for many in (site.MANY, 1):
        monkeypatch.setattr(site, "MANY", many)
        seen.clear()
        site.write_whole_site(bench, published.load(bench.root), [], "demo")
        assert len(seen) == len(demo(bench).runs) and set(seen.values()) == {1}


def test_settings_are_the_yaml_that_the_whole_would_be(bench: Workbench) -> None:
    run = demo(bench).runs[0]
    record = read_run(bench.root, run)
    described = record.manifest["run"]
    wanted = yaml.safe_dump(described, sort_keys=False, allow_unicode=True).encode()
    assert run_files.setting_of(record) == wanted and len(described) > 10
    nothing = RunRecord(bench.root, run, run.folder, False, "damaged")
    assert run_files.setting_of(nothing) == b"{}\n"


def test_a_table_imports_neither_torch_nor_pandas(bench: Workbench) -> None:
    """But once, to ask what methods declare; this is then written down."""
    program = (
        "import sys; from fedrepro.cli.main import main; "
        "main(['table', 'ima', 'table_1', '--scale', 'demo']); "
        "print([name for name in ('torch', 'pandas') if name in sys.modules])"
    )
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=bench.root,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout.strip())
    assert said == ["['torch']", "[]"] and facts.are_written(bench.plugins)


def test_numbers_in_columns_are_read_as_they_are(tmp_path: Path) -> None:
    from fedrepro.run.results import _numbers_in

    columns = {
        "whole": [1, 2**53, -3], "number": [0.1, float("inf"), -0.0], "some": [1, None, 3],
        "flag": [True, False, True],
    }  # fmt: skip
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, tmp_path / "file.parquet", row_group_size=2)
    read = pyarrow.parquet.ParquetFile(tmp_path / "file.parquet").read()
    found = {name: _numbers_in(read[name]) for name in read.column_names}
    assert found["whole"] == [1.0, 2.0**53, -3.0] and found["number"] == columns["number"]
    assert found["some"][::2] == [1.0, 3.0] and found["some"][1] != found["some"][1]
    assert found["flag"] == [1.0, 0.0, 1.0]
    assert _numbers_in(read["number"].slice(1)) == [float("inf"), 0.0]
