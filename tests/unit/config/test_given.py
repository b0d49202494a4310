"""What settings give is resolved, or refused in one line, before anything runs."""

import shutil
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.support.errors import UserError
from fedrepro.workflow.checks import check_given
from support.given_experiment import EXPERIMENT
from support.given_run import METHODS
from support.places import ROOT


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDREPRO_METHODS", str(METHODS))
    (tmp_path / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", tmp_path / "config")
    (tmp_path / "config/config.yaml").write_text("scale: demo\n")
    (tmp_path / "config/experiments/ima.yaml").write_text(EXPERIMENT)
    return tmp_path


def test_a_description_has_what_its_method_needs_and_nothing_else(root: Path) -> None:
    bench = load(root)
    taught = bench.run_spec("ima/taught", "taught", 3)
    judges = taught.given["judges"]
    assert isinstance(judges, RunSpec) and judges.seed == 3
    maker = judges.given["maker"]
    assert isinstance(maker, RunSpec) and maker.seed == 0
    given = {"unlabelled": "server", "judges": f"run {judges.digest}"}
    assert taught.description()["given"] == given
    assert "given" not in bench.run_spec("ima/taught", "fedavg", 3).description()
    check_given(bench)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "unlabelled: server",
            "unlabeled: server",
            "config/experiments/ima.yaml: settings.taught.given.unlabelled: missing: "
            "expected what method taught needs: 'server', a run or a file; did you mean "
            "'unlabeled'?",
        ),
        (
            "iid, clients: 4, server: 0.1",
            "iid, clients: 4",
            "settings.taught.given.unlabelled: 'server': expected a partition with `server: share`",
        ),
        (
            "{setting: judges, method",
            "{setting: judge, method",
            "settings.taught.given.judges.setting: 'judge': expected a setting of this file; did "
            "you mean 'judges'?",
        ),
        (
            "{setting: maker, method: maker, seed: 0}",
            "{setting: judges, method: judges}",
            "a run can't be given itself",
        ),
        (
            "    given:\n",
            "    keep: {taught: [1, 2]}\n    given:\n",
            "settings.taught.keep.taught: 2: expected a round that is played, up to 1",
        ),
    ],
)
def test_what_is_not_given_is_one_line(root: Path, old: str, new: str, line: str) -> None:
    assert old in EXPERIMENT
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(UserError) as caught:
        check_given(load(root))
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("name: adam, lr: 0.02", "lr: 0.02, betas: [0.5, 0.9]", "expected `betas` with adam only"),
        ("lr: 0.02", "lr: 0.02, momentum: 0.9", "expected `betas` with adam, not `momentum`"),
        ("seed: 0", "seeds: 0", "settings.taught.given.maker.seeds: unknown key"),
        ("server\n", "{file: x, sha256: ab}\n", "sha256: 'ab': expected the SHA-256 of the file"),
    ],
)
def test_wrong_values_of_new_keys_are_one_line(root: Path, old: str, new: str, line: str) -> None:
    assert old in EXPERIMENT
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(UserError) as caught:
        load(root)
    assert line in str(caught.value) and "\n" not in str(caught.value)
