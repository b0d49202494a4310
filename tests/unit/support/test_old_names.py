"""Files from before the names of today: old keys are read."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedrepro as fr
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.support.old_names import OLD_KEYS, warn_of_old_name, with_new_keys
from fedrepro.support.typed_yaml import read_yaml, written
from support.project import ROOT
from support.refusals import refused

KINDS = {"config.yaml": "config", "datasets.yaml": "datasets"}  # others are experiment files
BENCHES = (ROOT, *(path.parent for path in sorted(ROOT.glob("examples/*/config"))))
RENAMED = [(kind, path, new) for kind, keys in OLD_KEYS.items() for path, new in keys.items()]


def with_old_keys(kind: str, node: Any, above: tuple[str, ...] = ()) -> Any:
    """The content of a file with the old name of each key that has one."""
    if isinstance(node, list):
        return [with_old_keys(kind, item, above) for item in node]
    if not isinstance(node, dict):
        return node
    renamed = {}
    for key, value in node.items():
        path = above if key == "each" else (*above, str(key))
        ends = ((old[-1], (*old[:-1], new)) for old, new in OLD_KEYS[kind].items())
        names = [
            old
            for old, end in ends
            if key != "each"
            and len(path) >= len(end)
            and all(part in ("*", own) for part, own in zip(end[::-1], path[::-1], strict=False))
        ]
        renamed[(names or [key])[0]] = value if key == "for" else with_old_keys(kind, value, path)
    return renamed


def files_of(bench: Workbench) -> dict[str, str]:
    """All that files of results have of a configuration: runs, tables, figures and data sets."""
    texts = {name: spec.model_dump_json() for name, spec in bench.datasets.items()}
    for system, experiment in bench.experiments.items():
        texts[system] = experiment.model_dump_json(exclude={"methods": True})
    runs = {
        (run.setting, run.method): run
        for scale in SCALES
        for target in bench.targets(scale).values()
        for run in target.runs
    }
    for run in runs.values():
        spec = bench.run_spec(run.setting, run.method, run.seed)
        texts[str(run.folder)] = json.dumps(spec.description())
    return texts


@pytest.mark.parametrize("root", BENCHES, ids=lambda root: root.name)
def test_with_old_keys_each_run_and_table_is_the_same(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of their bytes, too, by which results that are there already are found."""
    warn_of_old_name.cache_clear()
    for folder in ("methods", "models", "partitions"):
        if (root / folder).exists() and root != ROOT:
            shutil.copytree(root / folder, tmp_path / folder)
    changed = set()
    for path in (root / "config").rglob("*.yaml"):
        kind, content = KINDS.get(path.name, "experiment"), read_yaml(path)
        there = tmp_path / path.relative_to(root)
        there.parent.mkdir(parents=True, exist_ok=True)
        renamed = with_old_keys(kind, content)
        there.write_text(written(renamed), encoding="utf-8")
        if renamed != content:
            changed.add(str(there.relative_to(tmp_path)))
    new = files_of(load(root))
    assert capsys.readouterr().err == ""  # nothing that comes with the package has an old key
    old = files_of(load(tmp_path))
    assert old.keys() == new.keys()
    assert [name for name in new if new[name] != old[name]] == []
    told = capsys.readouterr().err.splitlines()
    assert {line.split(": ")[1].removeprefix(f"{tmp_path}/") for line in told} == changed


@pytest.mark.parametrize(("kind", "path", "new"), RENAMED, ids=lambda name: str(name))
def test_an_old_key_is_told_of_once_and_refused_beside_the_new_one(
    kind: str, path: tuple[str, ...], new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_old_name.cache_clear()

    def nested(content: Any) -> Any:
        for key in reversed(path[:-1]):
            content = {key.replace("*", "x"): content}
        return [content, content] if kind == "claims" else content

    value = {"a": 1}
    for _ in range(2):
        content = with_new_keys(kind, nested({path[-1]: value, "mine": 2}), "f.yaml")
    assert content == nested({new: value, "mine": 2})
    (line,) = capsys.readouterr().err.splitlines()
    assert f" {new!r} " in line and repr(path[-1]) in line
    with refused("value", file="f.yaml", key=path[-1], names=f"{new!r}"):
        with_new_keys(kind, nested({path[-1]: value, new: value}), "f.yaml")


def test_a_name_like_an_old_key_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting, a method or a value of `for` may have any name."""
    content = {
        "settings": {"given": {"inputs": {"given": "server"}, "methods": {"keep": {"keep": 1}}}},
        "methods": {"trunk": {"given": 1}},
    }
    assert with_new_keys("experiment", content, "f.yaml") == content
    assert capsys.readouterr().err == ""


def test_both_keys_end_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("own: {}\nplugins: {}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["settings"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "config/config.yaml: own: " in line


def test_a_run_with_another_value_of_a_renamed_key_keeps_its_name() -> None:
    """So that it is found where it is."""
    bench = load(ROOT)
    setting = bench.setting("superfed/mnist5k-demo")
    named = {
        bench.with_variant(setting, "fedavg", {key: 4, "availability.dropout": 0.5})[1]
        for key in ("availability.day", "day", "availability.period", "period")
    }
    name = f"{setting.name}_availability.day4_availability.dropout0.5"
    assert named == {name}
    found = bench.setting(name)
    assert found.availability is not None and found.availability.period == 4


def test_an_old_key_is_read_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_old_name.cache_clear()
    clients = [(np.eye(3, dtype="float32"), np.arange(3))] * 3
    made = [
        fr.train("fedavg", "logistic", clients, rounds=1, test=clients[0], availability=each)
        for each in ({"day": 4}, {"period": 4})
    ]
    assert made[0].manifest["run"] == made[1].manifest["run"]
    assert made[0].manifest["run"]["availability"]["day"] == 4
    assert "availability.day: is called 'period' now" in capsys.readouterr().err
