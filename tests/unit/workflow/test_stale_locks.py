"""Locks that a killed call of Snakemake has left."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake import api
from snakemake.iocontainers import Namedlist
from snakemake.jobs import Job

from fedrepro.run.replacement import move_result
from fedrepro.run.results import FINISHED, partial_of
from fedrepro.support import locks
from fedrepro.support.locks import exclusive_lock
from fedrepro.workflow import snakemake_patches
from fedrepro.workflow.snakemake_patches import (
    CALLS,
    LOCKS,
    forget_dead_calls,
    keep_finished_results,
    keep_outlived,
)

assert api  # which has to be imported before `jobs`
call = forget_dead_calls.__wrapped__
A_MANIFEST = '{"run": {}, "files": {"rounds.parquet": {}}}'


def apart(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Its result, by a loop in a thread of its own: in this one a browser's may be running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    LOCKS.mkdir(parents=True)
    CALLS.mkdir()
    # What a process leaves that was killed.
    (CALLS / ".node-4711.lock").write_text(f"node\t4711\t{locks._machine()}\t1\n")
    made = tmp_path / LOCKS / "0.output.lock"
    made.write_text("results/x\n")
    return made


def test_what_a_dead_call_has_locked_is_free(lock: Path) -> None:
    call()
    assert not lock.exists()
    assert not (CALLS / ".node-4711.lock").exists()


def test_what_a_living_call_has_locked_is_not(lock: Path) -> None:
    with exclusive_lock(CALLS / "node-4712"):
        call()
        assert lock.exists()


def test_a_disk_that_refuses_is_one_line(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for left in CALLS.iterdir():
        left.unlink()
    CALLS.rmdir()
    CALLS.write_text("")
    with pytest.raises(SystemExit) as ended:
        call()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("fedrepro: ")


def test_a_run_that_a_process_is_leaving_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not waited for: Snakemake would stand still. Without one it is put aside."""
    monkeypatch.chdir(tmp_path)
    folder = Path("results/runs/ima/tiny/fedavg/seed1")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(A_MANIFEST, encoding="utf-8")
    output = SimpleNamespace(manifest=str(folder / "manifest.json"))
    job = SimpleNamespace(log=["results/logs/run/ima/tiny/fedavg/seed1.log"], output=output)

    async def incomplete(job: object) -> bool:
        return True

    workflow = SimpleNamespace(
        dag=SimpleNamespace(needrun_jobs=lambda: [job]),
        persistence=SimpleNamespace(incomplete=incomplete),
        async_run=apart,
    )
    with exclusive_lock(partial_of(folder)):
        other = Thread(target=keep_outlived, args=(workflow,))
        other.start()
        other.join(timeout=10)
        waits = other.is_alive()
        assert folder.exists()
    other.join()
    assert not waits
    of_another = SimpleNamespace(log=["results/logs/table/demo/ima/x.log"], output=output)
    workflow.dag.needrun_jobs = lambda: [of_another]
    keep_outlived(workflow)

    async def complete(job: object) -> bool:
        return False

    workflow.dag.needrun_jobs, workflow.persistence.incomplete = (lambda: [job]), complete
    keep_outlived(workflow)
    assert folder.exists()
    workflow.persistence.incomplete = incomplete
    keep_outlived(workflow)
    assert not any(folder.iterdir())
    assert (partial_of(folder) / FINISHED / "manifest.json").exists()


@pytest.mark.parametrize(
    ("removes", "forced", "current", "kept"),
    [
        ("remove_existing_output", False, True, True),  # its parent is made again, for one
        ("remove_existing_output", True, False, True),  # the new one may fail at once
        ("remove_existing_output", True, True, False),  # `--forcerun`: it is to be made again
        ("cleanup", False, True, True),  # of a job that failed after its run had ended
        ("cleanup", True, True, True),
    ],
)
def test_a_finished_run_is_put_aside_before_snakemake_removes_it(
    removes: str,
    forced: bool,
    current: bool,
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the one that its command would make, or all that there is if its command fails."""
    monkeypatch.chdir(tmp_path)
    folder = Path("results/runs/ima/tiny/fedavg/seed1")
    folder.mkdir(parents=True)
    manifest, older = folder / "manifest.json", partial_of(folder) / FINISHED
    older.mkdir(parents=True)
    for place in (folder, older):
        (place / "manifest.json").write_text(A_MANIFEST, encoding="utf-8")
        (place / "rounds.parquet").write_text(str(place), encoding="utf-8")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    removed: list[bool] = []

    async def remove(job: object, *arguments: object) -> None:
        removed.append(manifest.exists())

    for name in ("remove_existing_output", "cleanup"):
        monkeypatch.setattr(Job, name, remove)
    for _ in range(2):  # two workflows of a process
        keep_finished_results()
    monkeypatch.setattr(snakemake_patches, "_kept", {str(manifest)} if current else set())
    reason, output = SimpleNamespace(forced=forced), Namedlist(fromdict={"manifest": str(manifest)})
    job = SimpleNamespace(
        log=["results/logs/run/ima/tiny/fedavg/seed1.log"],
        output=output,
        dag=SimpleNamespace(reason=lambda job: reason),
    )
    with pytest.raises(StopIteration):  # it waits for nothing; another test's loop may run
        getattr(Job, removes)(job).send(None)
    assert removed == [not kept]
    assert (older / "rounds.parquet").read_text(encoding="utf-8") == str(folder if kept else older)
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_what_no_manifest_lists_is_not_put_aside(tmp_path: Path) -> None:
    """Nobody would bring it back: Snakemake removes its own files, and someone's notes stay."""
    for damaged in ("", "{", "{}"):
        (tmp_path / "manifest.json").write_text(damaged, encoding="utf-8")
        move_result(tmp_path, tmp_path / "aside")
        assert not (tmp_path / "aside").exists()
