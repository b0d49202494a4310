"""What a manifest says of where its code came from, which decides nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.models import registry as models
from fedrepro.provenance import fingerprint
from fedrepro.provenance.syntax import syntax_of
from fedrepro.support import checkout, plugins
from support.git import commit_all
from support.manifests import write_manifest
from support.tiny_run import carry_out, run_spec

STATE = {"commit": "1" * 40, "dirty": False}


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What git says of the package, to be changed."""
    state = dict(STATE)
    monkeypatch.setattr(checkout, "of_package", lambda: dict(state))
    return state


def played(folder: Path) -> int:
    rounds: list[int] = []
    carry_out(folder, run_spec(), lambda progress: rounds.append(progress.round))
    return len(rounds)


def test_a_manifest_names_the_commit_and_every_file_that_counted(
    tmp_path: Path, at_commit: dict[str, Any]
) -> None:
    manifest = carry_out(tmp_path / "x", run_spec("ima+fedprox"))
    assert manifest["git"] == {"fedrepro": STATE}
    files = manifest["code_files"]
    assert {"methods/ima.py", "methods/fedprox.py", "models/mlp.py", "engine/round.py"} <= {*files}
    assert "methods/scaffold.py" not in files and "run/manifest.py" not in files
    digest = syntax_of(fingerprint.PACKAGE / "engine/round.py").digest
    assert files["engine/round.py"] == digest


def test_runs_in_equal_circumstances_have_equal_manifests(
    tmp_path: Path, at_commit: dict[str, Any]
) -> None:
    for name in ("a", "b"):
        carry_out(tmp_path / name, run_spec())
    at_commit["dirty"] = True
    carry_out(tmp_path / "c", run_spec())
    one, same, other = ((tmp_path / name / "manifest.json").read_bytes() for name in "abc")
    assert one == same != other


def test_another_commit_plays_nothing_again(tmp_path: Path, at_commit: dict[str, Any]) -> None:
    carry_out(tmp_path / "x", run_spec())
    at_commit["commit"] = "2" * 40
    assert played(tmp_path / "x") == 0


def test_a_manifest_from_before_stays_valid(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    manifest = carry_out(folder, run_spec())
    del manifest["git"], manifest["code_files"]
    write_manifest(folder, manifest)
    assert played(folder) == 0


def test_where_git_fails_a_run_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    checkout.of_folder.cache_clear()
    assert carry_out(tmp_path / "x", run_spec())["git"] == {"fedrepro": None}
    checkout.of_folder.cache_clear()


def test_plug_ins_are_named_without_their_folder_and_have_their_own_commit(
    workbench: Path, at_commit: dict[str, Any]
) -> None:
    commit = commit_all(workbench)
    spec = load(workbench).run_spec("mine/skewed", "my_prox", 1)
    files = fingerprint.files_of_code(spec)
    assert {"plugins/methods/my_prox.py", "plugins/models/small_mlp.py"} <= {*files}
    assert str(workbench) not in json.dumps(files)
    theirs = {"commit": commit, "dirty": False}
    assert fingerprint.checkouts_of(files, spec.plugins) == {
        "fedrepro": STATE, "plugins/methods": theirs, "plugins/models": theirs,
        "plugins/measures": theirs,
    }  # fmt: skip
    place = fingerprint.file_of_code("plugins/methods/my_prox.py", spec.plugins)
    assert place == (workbench / "methods", "my_prox.py")
    assert fingerprint.file_of_code("plugins/methods/my_prox.py", plugins.NONE) is None


def test_a_model_that_is_an_object_has_no_file() -> None:
    spec = run_spec(model="logistic")
    assert "models/mlp.py" in fingerprint.files_of_code(spec)
    with models.given("logistic", lambda shape, outputs: pytest.fail("built")):
        assert "models/mlp.py" not in fingerprint.files_of_code(spec)
