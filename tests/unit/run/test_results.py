"""What became of runs, as their folders say."""

from pathlib import Path

from fedrepro.run.results import PAPERS, reference_runs


def test_committed_reference_results_are_found_as_such(tmp_path: Path) -> None:
    folder = PAPERS / "ima/reference/tiny/fedavg/seed3"
    for path in (folder, folder.with_name("seeds"), Path("results/runs/ima/tiny/fedavg/seed4")):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "manifest.json").write_text('{"status": "finished"}', encoding="utf-8")
    (found,) = reference_runs(tmp_path)
    assert (found.run.setting, found.run.method, found.run.seed) == ("ima/tiny", "fedavg", 3)
    assert (found.reference, found.folder, found.state) == (True, folder, "finished")
