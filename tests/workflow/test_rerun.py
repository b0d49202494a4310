"""What Snakemake does again after a change, and what it leaves alone."""

import json
import shutil
import time
from pathlib import Path

from support.project import Project

TABLE_1 = {"results/tables/demo/ima/table_1.json", "reports/site/ima/table_1.html"}
TABLE_2 = {"results/tables/demo/ima/table_2.json", "reports/site/ima/table_2.html"}
INDEX = {"reports/site/index.html"}
FEDAVG = "results/runs/ima/tiny/fedavg/seed1/manifest.json"
FEDPROX = "results/runs/ima/tiny/fedprox/seed1/manifest.json"


def partition_of(project: Project) -> Path:
    (path,) = (project.root / "results/partitions").rglob("seed1.npz")
    return path


def test_everything_is_made_and_runs_are_shared(finished: Project) -> None:
    for path in (*TABLE_1, *TABLE_2, *INDEX):
        assert (finished.root / path).is_file()
    runs = (finished.root / "results/runs").rglob("manifest.json")
    assert {str(path.relative_to(finished.root)) for path in runs} == {FEDAVG, FEDPROX}
    assert json.loads((finished.root / FEDPROX).read_text())["status"] == "finished"


def test_a_second_call_does_nothing(finished: Project) -> None:
    called = finished.snakemake()
    assert called.returncode == 0
    assert "Nothing to be done" in called.stdout


def test_a_copy_elsewhere_whose_files_are_all_newer_is_not_made_again(project: Project) -> None:
    """The fixture has moved it, package and all; a checkout or an archive gives new times."""
    for path in sorted(project.root.rglob("*")):
        if path.is_file() and ".snakemake" not in path.parts:
            path.touch()
    assert project.due() == set()


def test_a_copy_without_records_keeps_its_runs_whatever_their_times(project: Project) -> None:
    """`cp -r` and archives give new times, in any order: here every input is newer."""
    shutil.rmtree(project.root / ".snakemake")
    for folder in ("runs", "partitions", "data", "downloads"):
        time.sleep(0.02)
        for path in (project.root / "results" / folder).rglob("*"):
            path.touch()
    assert project.due() == TABLE_1 | TABLE_2 | INDEX


def test_a_change_of_a_method_redoes_its_runs_and_their_tables(project: Project) -> None:
    project.add_code("methods/fedprox.py")
    assert project.due() == {FEDPROX} | TABLE_1 | INDEX


def test_a_change_of_the_engine_redoes_all_runs(project: Project) -> None:
    """Which files those are, tests/unit/run/test_fingerprint.py goes over."""
    project.add_code("engine/descent.py")
    assert project.due() == {FEDAVG, FEDPROX} | TABLE_1 | TABLE_2 | INDEX


def test_what_carries_out_or_describes_redoes_nothing(project: Project) -> None:
    """Nor does a part that no run uses, or a partition that is written again as it was."""
    project.add_code(
        "support/errors.py",
        "support/typed_yaml.py",
        "run/manifest.py",
        "run/runner.py",
        "run/checkpoint.py",
        "run/store.py",
        "cli/run.py",
        "models/registry.py",
        "methods/server/fedadam.py",
    )
    project.reword_errors("engine/executors.py", "run/assembly.py", "data/partition/partition.py")
    partition_of(project).touch()
    assert project.due() == INDEX  # shows the sources of methods and server optimizers


def test_comments_formatting_and_ways_of_running_redo_only_what_shows_the_source(
    project: Project,
) -> None:
    for name in ("methods/fedprox.py", "engine/method.py", "data/partition/partition.py"):
        path = project.root / "src/fedrepro" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(f'"""Other words."""\n# A remark.\n\n\n{text}  # the end\n')
    asked = "    resources: {mem_mb: 900, runtime: 5, partition: far, cpus: 2}\n"
    project.edit(project.experiment, "rounds: 2\n", f"rounds:  2 # a remark\n{asked}")
    project.edit("config/config.yaml", "scale: demo", "scale: demo\ncheckpoint_every: 1")
    assert project.due("--config", "executor=sequential") == INDEX  # methods' sources


def test_a_deleted_table_is_made_again_alone(project: Project) -> None:
    table = project.root / "results/tables/demo/ima/table_2.json"
    before = table.read_text(encoding="utf-8")
    table.unlink()
    called = project.snakemake(str(table.relative_to(project.root)))
    assert called.returncode == 0, called.stdout
    assert table.read_text(encoding="utf-8") == before
    assert "1 of 1 steps" in called.stdout


def test_why_says_what_snakemake_does(project: Project) -> None:
    """With the records that Snakemake itself has written."""
    arguments = ("explain", "ima/tiny", "fedprox", "--seed", "1")
    said = project.fedrepro(*arguments).stdout
    assert project.due(FEDPROX) == set()
    assert said.startswith("Snakemake would not make it again, unless")
    assert "has no record" not in said and said.endswith("nothing differs\n")
    project.edit(
        "src/fedrepro/methods/fedprox.py", 'message["params"], mu,', 'message["params"], 2 * mu,'
    )
    project.edit(project.experiment, "rounds: 2", "rounds: 3")
    said = project.fedrepro(*arguments).stdout
    assert project.due(FEDPROX) == {FEDPROX}
    assert said.startswith("Snakemake would make it again because\n")
    assert "    changed: methods/fedprox.py\n" in said and "    rounds: 2 -> 3\n" in said
    listed = project.snakemake("-n", FEDPROX).stdout
    # The check's reason, instead of Snakemake's.
    (line,) = (line for line in listed.splitlines() if "run ima/tiny fedprox 1: " in line)
    assert "rounds was 2, is 3" in line and "method fedprox" in line
    assert line.endswith(f": fedrepro {' '.join(arguments)}")


def test_the_command_writes_the_files_that_the_rule_writes(project: Project) -> None:
    folder = (project.root / FEDPROX).parent
    names = ("rounds.parquet", "clients.parquet", "model.safetensors", "manifest.json")
    before = {name: (folder / name).read_bytes() for name in names}
    for path in folder.iterdir():
        path.unlink()
    called = project.fedrepro("run", "ima/tiny", "fedprox", "--seed", "1")
    assert called.returncode == 0, called.stdout
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert "round 2 of 2" in called.stdout


def test_another_class_of_arithmetic_redoes_its_runs_and_says_so(project: Project) -> None:
    """Snakemake with a reason; by hand it is refused, because the result would be replaced."""
    assert project.due("--config", "executor=parallel") <= INDEX
    project.edit("config/config.yaml", "scale: demo", "scale: demo\nexecutor: vectorised")
    assert project.due() == {FEDAVG, FEDPROX} | TABLE_1 | TABLE_2 | INDEX
    said = project.fedrepro("explain", "ima/tiny", "fedprox", "--seed", "1").stdout
    assert (
        "arithmetic was 'per client', is 'stacked'" in said
        and "configuration" not in said.split("From")[0]
    )
    assert "    arithmetic: per client -> stacked\n" in said
    refused = project.fedrepro("run", "ima/tiny", "fedprox", "--seed", "1")
    assert refused.returncode == 2
    assert "is finished with arithmetic 'per client', and 'stacked' is asked for" in refused.stdout


def test_jobs_that_fail_at_once_cost_no_finished_run(project: Project) -> None:
    """With a device that is not there, given once: what was trained comes back."""
    folder = (project.root / FEDPROX).parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    no_gpu = ("--config", "device=cuda")
    assert project.snakemake(FEDPROX, *no_gpu, CUDA_VISIBLE_DEVICES="").returncode == 1
    assert not (project.root / FEDPROX).exists()  # it is made again, and is no number of this call
    called = project.snakemake(FEDPROX)
    assert called.returncode == 0, called.stdout
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.pop("notes.txt") == b"mine" and after == before


def test_without_records_the_files_themselves_are_asked(project: Project) -> None:
    """Where ``.snakemake`` is gone, runs say in their manifests what they are; pages do not."""
    shutil.rmtree(project.root / ".snakemake")
    assert project.due() == TABLE_1 | TABLE_2 | INDEX
    project.edit(project.experiment, "rounds: 2", "rounds: 3")
    assert project.due() == {FEDAVG, FEDPROX} | TABLE_1 | TABLE_2 | INDEX
    listed = project.snakemake("-n", FEDPROX).stdout
    assert "run ima/tiny fedprox 1: made with another configuration: rounds" in listed
    said = project.fedrepro("verify").stdout
    assert "2 runs would be made again" in said
    called = project.snakemake()
    assert called.returncode == 0, called.stdout
    assert json.loads((project.root / FEDPROX).read_text())["run"]["rounds"] == 3
    assert project.due() == set()


def test_records_are_not_believed_where_a_manifest_says_otherwise(project: Project) -> None:
    """As where results of another day, or of another run, are copied over those that are there."""
    folder = (project.root / FEDPROX).parent
    shutil.rmtree(folder)
    shutil.copytree((project.root / FEDAVG).parent, folder)
    assert project.due(FEDPROX) == {FEDPROX}
    listed = project.snakemake("-n", FEDPROX).stdout
    assert "the folder holds another run: ima/tiny fedavg seed 1" in listed
    said = project.fedrepro("explain", "ima/tiny", "fedprox", "--seed", "1").stdout
    assert "the folder holds another run: ima/tiny fedavg seed 1" in said


def test_a_table_of_another_definition_from_elsewhere_is_made_again(project: Project) -> None:
    """As results merged from a colleague's workbench, or from a backup."""
    path = "results/tables/demo/ima/table_1.json"
    mine = (project.root / path).read_bytes()
    project.edit("config/experiments/ima.yaml", "title: First", "title: Another")
    assert project.fedrepro("table", "ima", "table_1").returncode == 0
    assert (project.root / path).read_bytes() != mine
    project.edit("config/experiments/ima.yaml", "title: Another", "title: First")
    called = project.fedrepro("page", "ima", "table_1")
    assert path in called.stdout
    assert path in project.fedrepro("verify").stdout
    assert project.due() == TABLE_1 | INDEX


def test_data_of_another_entry_are_prepared_again(project: Project) -> None:
    shutil.rmtree(project.root / ".snakemake")
    project.edit("config/datasets.yaml", "mean: [0.1307]", "mean: [0.5]")
    assert "results/data/mnist5k/meta.json" in project.due(FEDPROX)
