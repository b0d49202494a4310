"""The profile for SLURM against a real slurmctld and slurmd: `make test-slurm`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cluster
import pytest

from fedrepro.cli.main import main
from support.project import Project

PROFILE = ("--workflow-profile", "profiles/slurm")
# As often as on a cluster of one's own.
QUICK = ("--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1")
PARTITION = ("--default-resources", "slurm_partition=cpu", "slurm_account=none", "mem_mb=1500")
SHARED = (
    *("--groups", "run=shared", "--group-components", "shared=3"),
    *("--resources", "slot=1", "--set-resource-scopes", "slot=local"),
)
PAGE = "reports/site/ima/table_1.html"
RUN = "results/runs/ima/tiny/{}/seed1/manifest.json"

METHOD = '''\
"""A method for these tests."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from fedrepro.engine.method import Method


@dataclass(frozen=True)
class {name}(Method):
    """Nobody's."""

    def broadcast(self, ctx, server):
        {does}
        return super().broadcast(ctx, server)
'''


def arguments(*targets: str) -> list[str]:
    return [*targets, *PROFILE, *QUICK, *PARTITION, "--jobs", "8"]


def with_method(project: Project, name: str, does: str) -> dict[str, str]:
    """A third column with a method of one's own. Returns the environment that finds it."""
    folder = project.root / "mine"
    folder.mkdir()
    text = METHOD.format(name=name.title(), does=does)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    project.edit(
        project.experiment,
        "{label: FedProx, method: fedprox}",
        f"{{label: FedProx, method: fedprox}}\n      - {{label: Mine, method: {name}}}",
    )
    return {"FEDREPRO_METHODS": str(folder)}


def started(project: Project, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Snakemake in a process group of its own, as a terminal has it."""
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": project.path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Ctrl-C as at a terminal: the background of a shell, which ignores it, is handed on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(
    true: Callable[[], bool], process: "subprocess.Popen[str] | None" = None, seconds: float = 300
) -> None:
    """Fails with what the process has said, where it ends too early or nothing happens in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end or (process and process.poll() is not None):
            if process is None:
                pytest.fail(f"{seconds} s passed")
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(process.communicate(timeout=60)[0])
        time.sleep(0.2)


def manifest(project: Project, method: str) -> dict[str, Any]:
    path = project.root / RUN.format(method)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def jobs(project: Project, states: str = "all") -> list[cluster.Job]:
    return cluster.jobs(project.root, states)


UNFINISHED = "pending,running,completing"


def test_a_table_goes_through_the_cluster(project: Project) -> None:
    """And its runs ask for what the experiment states."""
    stated = "    resources: {partition: gpu, mem_mb: 1600, runtime: 7, cpus: 2}\n"
    project.edit(project.experiment, "    epochs: 1\n", f"    epochs: 1\n{stated}")
    called = project.snakemake(*arguments(PAGE))
    assert called.returncode == 0, called.stdout
    assert (project.root / PAGE).is_file()
    done = jobs(project)
    # The two runs; table and page are made where one sits.
    assert [job.state for job in done] == ["COMPLETED"] * 2
    for job in done:
        asked = cluster.asked(job)
        assert (asked["Partition"], asked["TimeLimit"]) == ("gpu", "00:07:00")
        assert (asked["MinMemoryNode"], asked["CPUs/Task"]) == ("1600M", "2")


def test_a_job_that_runs_out_of_memory_is_given_twice_as_much(project: Project) -> None:
    target = RUN.format("fedavg")
    stated = "    resources: {mem_mb: 300}\n"
    project.edit(project.experiment, "    epochs: 1\n", f"    epochs: 1\n{stated}")
    called = project.snakemake(*arguments(target))
    assert called.returncode == 0, called.stdout
    done = sorted(jobs(project), key=lambda job: int(job.number))
    assert len(done) > 1 and [job.state for job in done].count("COMPLETED") == 1
    memory = [cluster.asked(job)["MinMemoryNode"] for job in done]
    assert memory == ["300M", "600M", "1200M"][: len(done)]
    assert manifest(project, "fedavg")["status"] == "finished"


def test_a_job_that_fails_for_good_leaves_a_hole(project: Project) -> None:
    variables = with_method(project, "broken", 'raise ArithmeticError("on purpose")')
    called = project.snakemake(*arguments(PAGE), "--retries", "1", **variables)
    assert called.returncode != 0
    for name in ("fedavg", "fedprox"):
        assert manifest(project, name)["status"] == "finished"
    table = project.root / "results/tables/demo/ima/table_1.json"
    *good, hole = json.loads(table.read_text(encoding="utf-8"))["cells"]
    assert [cell["paper"]["hole"] for cell in good] == [None, None]
    assert "ArithmeticError: on purpose" in hole["paper"]["hole"]
    log = "results/logs/run/ima/tiny/broken/seed1.log"
    assert f"see {log}" in called.stdout


def test_ctrl_c_cancels_all_jobs_and_leaves_no_lock(project: Project) -> None:
    calls = project.root / "calls"
    variables = with_method(project, "slow", f"Path({str(calls)!r}).touch(); time.sleep(300)")
    target = RUN.format("slow")
    process = started(project, *arguments(target), **variables)
    # A job may run before Snakemake has read its number, and is not known to it until then.
    wait_for(calls.exists, process)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode != 0, said
    wait_for(lambda: not jobs(project, UNFINISHED), seconds=30)
    assert project.due(target, **variables) >= {target}


def test_after_kill_9_the_jobs_are_cancelled_by_hand_and_no_run_has_two_writers(
    project: Project,
) -> None:
    """As docs/cluster.md says: scancel by the run's name, the same command again."""
    calls = project.root / "calls"
    does = f"""with Path({str(calls)!r}).open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        time.sleep(1 if ctx.round or calls_before > 1 else 300)"""
    does = does.replace("calls_before", f"len(set(Path({str(calls)!r}).read_text().split()))")
    variables = with_method(project, "slow", does)
    target = RUN.format("slow")
    process = started(project, *arguments(target), **variables)
    wait_for(calls.exists, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (name,) = {job.name for job in jobs(project, "running")}

    with subprocess.Popen(
        [sys.executable, "-m", "fedrepro", "run", "ima/tiny", "slow", "--seed", "1"],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": project.path, **variables},
        stderr=subprocess.PIPE,
        text=True,
    ) as twice:
        assert twice.stderr
        assert any("waiting for process" in line for line in twice.stderr)
        twice.kill()

    subprocess.run(["scancel", "--me", "--name", name], check=True, timeout=60)
    wait_for(lambda: not jobs(project, UNFINISHED), seconds=30)
    called = project.snakemake(*arguments(target), **variables)
    assert called.returncode == 0, called.stdout
    assert manifest(project, "slow")["status"] == "finished"


def test_seeds_can_go_as_one_array(project: Project) -> None:
    project.edit("config/config.yaml", "demo: [1]", "demo: [1, 2, 3]")
    targets = [f"results/runs/ima/tiny/fedavg/seed{seed}/manifest.json" for seed in (1, 2, 3)]
    called = project.snakemake(*arguments(*targets), "--slurm-array-jobs", "run")
    assert called.returncode == 0, called.stdout
    assert all((project.root / target).is_file() for target in targets)
    arrays = {job.number.partition("_")[0] for job in jobs(project) if "_" in job.number}
    assert len(arrays) == 1, (called.stdout, jobs(project))


@pytest.mark.parametrize("stated", [True, False])
def test_a_wrong_partition_is_one_clear_line(project: Project, stated: bool) -> None:
    """In an experiment or on the command line."""
    target = RUN.format("fedavg")
    wrong = arguments(target)
    if stated:
        line = "    resources: {partition: nowhere}\n"
        project.edit(project.experiment, "    epochs: 1\n", f"    epochs: 1\n{line}")
    else:
        wrong[wrong.index("slurm_partition=cpu")] = "slurm_partition=nowhere"
    called = project.snakemake(*wrong, "--retries", "0")
    assert called.returncode != 0
    said = [line for line in called.stdout.splitlines() if "partition specified" in line]
    assert len(said) == 1 and "invalid partition specified: nowhere" in said[0], called.stdout
    assert "Traceback" not in called.stdout


def test_small_runs_share_an_allocation(project: Project) -> None:
    """And its one GPU: they take turns."""
    project.edit("config/config.yaml", "demo: [1]", "demo: [1, 2, 3]")
    targets = [f"results/runs/ima/tiny/fedavg/seed{seed}/manifest.json" for seed in (1, 2, 3)]
    called = project.snakemake(*arguments(*targets), *SHARED)
    assert called.returncode == 0, called.stdout
    assert all((project.root / target).is_file() for target in targets)
    assert [job.state for job in jobs(project)] == ["COMPLETED"], called.stdout


@pytest.mark.parametrize("away", ["refuses", "has forgotten"])
def test_a_controller_that_goes_away_and_comes_back_stops_nothing(
    project: Project, away: str
) -> None:
    """It refuses all questions while the job ends; or it has lost the job, whose files decide.

    In front of the commands, so that the other tests' controller stays.
    """
    folder, asked = project.root / "bin", project.root / "asked"
    folder.mkdir()
    refuses = f"echo $0 >> {asked}; [ {away[0]} = h ] || exit 1"
    for name in ("squeue", "scontrol"):
        does = "exit 0" if name == "squeue" else "true"
        (folder / name).write_text(
            f"#!/bin/sh\nif [ -e {project.root}/away ]; then {refuses}; {does}; fi\n"
            f'exec {shutil.which(name)} "$@"\n'
        )
        (folder / name).chmod(0o755)
    variables = with_method(project, "slow", "time.sleep(2)")
    variables["PATH"] = f"{folder}:{os.environ['PATH']}"
    target = RUN.format("slow")
    process = started(project, *arguments(target), **variables)
    wait_for(lambda: any("slow" in job.comment for job in jobs(project, "running")), process)
    (project.root / "away").touch()
    wait_for(lambda: [job.state for job in jobs(project)] == ["COMPLETED"])
    wait_for(asked.exists)
    if away == "refuses":
        (project.root / "away").unlink()
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert ("SLURM no longer lists job" in said) == (away == "has forgotten")
    assert manifest(project, "slow")["status"] == "finished"


@pytest.mark.usefixtures("project")  # for its cluster
def test_a_new_workbench_brings_the_profile(tmp_path: Path) -> None:
    mine = Project(tmp_path / "mine")
    assert main(["init", str(mine.root)]) == 0
    target = "results/runs/mine/skewed/my_prox/seed1/manifest.json"
    called = mine.snakemake(*arguments(target))
    assert called.returncode == 0, called.stdout
    assert (mine.root / target).exists()
    assert {job.state for job in jobs(mine)} == {"COMPLETED"}
