"""A workbench that an older version made is opened by this one: nothing is made again.

tests/fixtures/README.md says how the fixture was made.
"""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from fedrepro import __version__
from fedrepro.support import checksummed_json
from support.places import TESTS
from support.project import Project

FIXTURE = TESTS / "fixtures/workbench_f2fc93d0.tar.xz"


class Workbench(Project):
    """A folder without a package of its own: it uses the repository's, as if installed."""

    @property
    def path(self) -> str:
        return str(TESTS.parent / "src")


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Workbench(tmp_path / "bench")


def test_nothing_is_made_again(workbench: Workbench) -> None:
    """Though each manifest names the version of fedrepro that made the run."""
    manifests = [*workbench.root.glob("results/runs/*/*/*/*/manifest.json")]
    made_by = {json.loads(path.read_bytes())["packages"]["fedrepro"] for path in manifests}
    assert manifests and __version__ not in made_by
    called = workbench.snakemake("-n")
    assert called.returncode == 0 and "Nothing to be done" in called.stdout, called.stdout
    lines = [line for line in called.stdout.splitlines() if line.startswith("fedrepro: ")]
    older = [line for line in lines if "'rising'" not in line]  # the old name in a plug-in
    assert len(older) == 1 and "another version" in older[0]


def test_nothing_is_wrong(workbench: Workbench) -> None:
    checked = workbench.fedrepro("verify")
    assert checked.returncode == 0 and "nothing is wrong" in checked.stdout
    assert "would be made again" not in checked.stdout, checked.stdout


def test_a_finished_run_is_kept(workbench: Workbench) -> None:
    run = ("mine/skewed", "my_prox", "--seed", "1")
    explained = workbench.fedrepro("explain", *run)
    assert "would not make it again" in explained.stdout
    again = workbench.fedrepro("run", *run)
    assert again.returncode == 0 and "done before" in again.stdout, again.stdout


def test_what_a_user_changes_is_made_again(workbench: Workbench) -> None:
    workbench.edit("methods/my_prox.py", "self.mu / 2", "self.mu / 3")
    due = workbench.due()
    runs = {name for name in due if name.startswith("results/runs/")}
    assert runs and all("my_prox" in name for name in runs)


def test_preparing_the_same_data_again_makes_nothing_again(workbench: Workbench) -> None:
    """The reader has learnt to say more of a table, whose samples are the same."""
    prepared = workbench.fedrepro("prepare", "patients")
    assert prepared.returncode == 0, prepared.stdout
    called = workbench.snakemake("-n")
    assert called.returncode == 0 and "Nothing to be done" in called.stdout, called.stdout


def test_of_rows_held_out_an_older_result_knows(workbench: Workbench) -> None:
    """Its table was standardised with all rows, also those that clients now hold out."""
    run, folder = ("mine/held", "fedavg", "--seed", "1"), "results/runs/mine/held/fedavg/seed1"
    workbench.edit(
        "config/experiments/mine.yaml", "  skewed:\n",
        "  held:\n    extends: even\n"
        "    partition: { scheme: iid, clients: 4, validation: 0.2 }\n  skewed:\n",
    )  # fmt: skip
    data = workbench.root / "results/data"
    shutil.copytree(data, workbench.root / "older")
    made = workbench.fedrepro("run", *run)
    assert made.returncode == 0, made.stdout
    shutil.rmtree(data)
    shutil.move(workbench.root / "older", data)
    forget(workbench.root / folder, "missing_sha256")
    assert f"{folder}/manifest.json" in workbench.due(f"{folder}/manifest.json")
    explained = workbench.fedrepro("explain", *run)
    assert "would not make it again" not in explained.stdout
    checked = workbench.fedrepro("verify")
    assert "1 run would be made again" in checked.stdout, checked.stdout
    again = workbench.fedrepro("run", *run)
    assert again.returncode == 0 and "done before" not in again.stdout, again.stdout


def forget(folder: Path, key: str) -> None:
    """Let a finished run say nothing of one of its data's facts, as one of an older version."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    timing = json.loads((folder / "timing.json").read_bytes())
    del manifest["data"][key]
    manifest["seal"] = checksummed_json.seal_of(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    checksummed_json.write(folder / "timing.json", timing, f"timing of {manifest['seal']}")
