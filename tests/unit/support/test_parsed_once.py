"""YAML text is parsed once in a process, so nobody may change what is in it."""

import copy
from pathlib import Path

import pytest

from fedrepro.config import loading
from fedrepro.config.loading import load, parse_all
from fedrepro.report.papers import published
from fedrepro.support import typed_yaml
from fedrepro.support.typed_yaml import read_yaml
from support.places import ROOT
from support.refusals import refused


def test_loading_changes_nothing_of_what_was_parsed() -> None:
    files = [*(ROOT / "config").rglob("*.yaml"), *(ROOT / "reports/papers").glob("**/*.yaml")]
    assert len(files) > 20
    before = {file: copy.deepcopy(read_yaml(file)) for file in files}
    load(ROOT)
    written = [*(ROOT / loading.EXPERIMENTS).glob("*.yaml"), *(ROOT / loading.COMPACT).glob("*")]
    out = {file: loading._written_out(file, file.relative_to(ROOT)) for file in written}
    kept = copy.deepcopy(out)
    bench = load(ROOT)
    published.load(ROOT)
    bench.targets("demo")
    assert {file: read_yaml(file) for file in files} == before and out == kept
    again = {file: loading._written_out(file, file.relative_to(ROOT)) for file in written}
    assert all(again[file] is out[file] for file in written)


def test_a_changed_file_is_read_anew_and_a_fault_is_told_each_time(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a: 1", encoding="utf-8")
    assert read_yaml(file) == {"a": 1}
    file.write_text("a: 2", encoding="utf-8")
    assert read_yaml(file) == {"a": 2}
    file.write_text("a: 1\na: 2", encoding="utf-8")
    for shown in (Path("one.yaml"), Path("other.yaml")):
        with refused("invalid_yaml", file=str(shown), names=(f"{shown}:2:1", "'a'")):
            read_yaml(file, shown)


def test_what_is_parsed_ahead_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, text in {loading.EXPERIMENTS: "system: ahead", loading.COMPACT: "{"}.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "ahead.yaml").write_text(text, encoding="utf-8")
    parse_all(tmp_path)  # the fault of one file is told by who loads it
    monkeypatch.setattr(typed_yaml.yaml, "load", lambda *arguments, **named: pytest.fail("parsed"))
    shown = loading.EXPERIMENTS / "ahead.yaml"
    assert loading._written_out(tmp_path / shown, shown) == {"system": "ahead"}
