"""What became of runs, as their folders say."""

import shutil
from pathlib import Path

from fedrepro.config.targets import RunKey
from fedrepro.run.results import PAPERS, reference_runs
from support.manifests import write_bare


def test_committed_reference_results_are_found_as_such(tmp_path: Path) -> None:
    folder = PAPERS / "ima/reference/tiny/fedavg/seed3"
    made = write_bare(tmp_path, RunKey("ima/tiny", "fedavg", 3))
    for path in (folder, folder.with_name("seeds")):
        shutil.copytree(made, tmp_path / path)
    (found,) = reference_runs(tmp_path)
    assert (found.run.setting, found.run.method, found.run.seed) == ("ima/tiny", "fedavg", 3)
    assert (found.reference, found.folder, found.state) == (True, folder, "finished")
