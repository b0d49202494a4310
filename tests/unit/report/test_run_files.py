"""What lies beside a run's page: links that hold, and nothing of the machine."""

import json
import re
import socket
from pathlib import Path

import pytest
import yaml

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.pages import run_files, templates
from fedrepro.report.pages.templates import SITE
from fedrepro.report.papers import published
from fedrepro.run.results import LOGS, read_run
from support.manifests import write_manifest
from support.report_world import make_system, write_run

RUN = RunKey("fedgo/digits-demo", "fedavg", 1)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_system(tmp_path, "fedgo"))


def page_of(bench: Workbench, reference: bool = False) -> tuple[Path, str]:
    """A run's page, and its text."""
    record = read_run(bench.root, RUN, reference)
    site.Writer(bench, published.load(bench.root)).runs([record])
    path = bench.root / SITE / record.page
    return path, path.read_text(encoding="utf-8")


def linked(path: Path, text: str) -> dict[str, Path]:
    """Name -> file, of the section that says where numbers come from."""
    section = text.partition('id="made-by"')[2].partition("</section>")[0]
    found = re.findall(r'<a href="([^"]+)">([^<]+)</a>', section)
    assert all(words for _, words in found)
    return {Path(href).name: path.parent / href for href, _ in found}


def change(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    write_manifest(folder, manifest | changes)


def write_log(bench: Workbench, text: str) -> None:
    path = bench.root / LOGS / RUN.setting / RUN.method / "seed1.log"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")


def test_a_page_links_to_copies_inside_of_the_site(bench: Workbench) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    write_log(bench, "round 1 of 2\n")
    found = linked(*page_of(bench))
    assert [*found] == ["manifest.json", run_files.SETTING, "rounds.parquet", "log.txt"]
    assert all((bench.root / SITE) in path.resolve().parents for path in found.values())
    for name in ("manifest.json", "rounds.parquet"):
        assert found[name].read_bytes() == (folder / name).read_bytes()
    setting = yaml.safe_load(found[run_files.SETTING].read_text(encoding="utf-8"))
    assert setting == bench.run_spec(RUN.setting, RUN.method, 1).description()
    assert found["log.txt"].read_text(encoding="utf-8") == "round 1 of 2\n"


def test_a_reference_result_links_to_its_own(bench: Workbench) -> None:
    write_run(bench, RUN, [0.5, 0.75], reference=True)
    write_log(bench, "of another run\n")
    path, text = page_of(bench, reference=True)
    assert [*linked(path, text)] == ["manifest.json", run_files.SETTING, "rounds.parquet"]
    assert f"<code>{COMMIT}</code>" not in text


def test_files_of_the_run_before_go(bench: Workbench) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    path, _ = page_of(bench)
    stale = path.with_suffix("") / "decisions.parquet"
    stale.write_bytes(b"of another run")
    change(folder, files={"../../x.parquet": "1", "gone.parquet": "2", "model.safetensors": "3"})
    path, _ = page_of(bench)
    assert {file.name for file in path.with_suffix("").iterdir()} == {
        "manifest.json", "setting.yaml"
    }  # fmt: skip


def test_a_large_file_is_named_and_not_copied(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    size = (folder / "rounds.parquet").stat().st_size
    monkeypatch.setattr(run_files, "LARGEST", size - 1)
    path, text = page_of(bench)
    assert "rounds.parquet" not in linked(path, text)
    assert re.search(r"rounds\.parquet,\s+too large", text)
    assert not (path.with_suffix("") / "rounds.parquet").exists()


def test_no_page_and_no_log_says_anything_of_the_machine(bench: Workbench) -> None:
    write_run(bench, RUN, [0.5, 0.75])
    log = (
        f"x: waiting for process 12 on node-7.example, which is working on this run\n"
        f"{bench.root}/results/runs: read on {socket.gethostname()}, of 1 rounds/s\n"
        '  File "/home/somebody/lib/torch/nn.py", line 3, in f\n'
        "/tmp/x: /home/somebody: https://example.org/a/b and/or 1/2\n"
    )
    write_log(bench, log)
    path, text = page_of(bench)
    found = linked(path, text)["log.txt"].read_text(encoding="utf-8")
    for private in (str(bench.root), "somebody", "node-7", socket.gethostname(), "/tmp"):
        assert private not in found + text
    shown = log
    for private, public in (
        (str(bench.root), "."), ("node-7.example", "a machine"),
        (socket.gethostname(), "a machine"), ("/home/somebody/lib/torch/nn.py", "…"),
        ("/tmp/x", "…"), ("/home/somebody", "…"),
    ):  # fmt: skip
        shown = shown.replace(private, public)
    assert found == shown


def test_the_commit_is_text_or_a_link_where_the_repository_is_known(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    git = {
        "fedrepro": {"commit": COMMIT, "dirty": True},
        "plugins/methods": {"commit": COMMIT[::-1], "dirty": False},
        "plugins/models": None,
        "<b>": {"commit": "<i>"},
    }
    change(folder, git=git, code_files={"engine/net.py": "1"})
    monkeypatch.setattr(run_files, "repository", lambda: None)
    text = " ".join(page_of(bench)[1].split())
    assert re.search(rf"<code>{COMMIT}</code> of fedrepro\b[^.]*\bchanges\b", text)
    assert re.search(rf"<code>{COMMIT[::-1]}</code> [^<]*\bplugins/methods\.", text)
    assert "1 files" in text and "<i>" not in text and "<b>" not in text
    monkeypatch.setattr(run_files, "repository", lambda: "https://example.org/fedrepro")
    text = page_of(bench)[1]
    assert f'<a href="https://example.org/fedrepro/commit/{COMMIT}"><code>' in text
    assert f"commit/{COMMIT[::-1]}" not in text  # which repository that is nobody says


@pytest.mark.parametrize(
    ("states", "dirty"),
    [
        ([False], "False"),
        ([True], "True"),
        ([False, False], "False"),
        ([True, False], "True"),
        ([False, True], "True"),
    ],
)
def test_a_listed_run_is_dirty_if_any_of_its_checkouts_was(
    bench: Workbench, states: list[bool], dirty: str
) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    parts = ("fedrepro", "plugins/methods")
    commits = [COMMIT, COMMIT[::-1]][: len(states)]
    change(folder, git={
        part: {"commit": commit, "dirty": state}
        for part, commit, state in zip(parts, commits, states, strict=False)
    })  # fmt: skip
    values = run_files.identity_of(read_run(bench.root, RUN))
    row = dict(zip(run_files.RUNS_HEADER, values, strict=True))
    assert (row["commit"], row["dirty"]) == (" ".join(commits), dirty)


@pytest.mark.parametrize(
    ("urls", "cited", "found"),
    [
        (["Homepage, https://a.example", "Repository, https://b.example/"], None, "https://b.example"),
        (["Homepage, https://a.example"], "https://c.example", "https://c.example"),
        (None, "javascript:alert(1)", None),
        (None, None, None),
    ],
)  # fmt: skip
def test_the_repository_is_what_metadata_or_the_citation_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    urls: list[str] | None,
    cited: str | None,
    found: str | None,
) -> None:
    class Metadata:
        def get_all(self, name: str) -> list[str] | None:
            return urls

    monkeypatch.setattr(templates, "metadata", lambda package: Metadata())
    monkeypatch.setattr(templates, "ORIGIN", tmp_path)
    if cited:
        text = yaml.safe_dump({"title": "x", "repository-code": cited})
        (tmp_path / templates.CITATION).write_text(text, encoding="utf-8")
    templates.repository.cache_clear()
    assert templates.repository() == found
    templates.repository.cache_clear()
