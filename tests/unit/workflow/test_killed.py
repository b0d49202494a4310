"""Locks that a killed call of Snakemake has left."""

from pathlib import Path

import pytest

from fedrepro.support import locks
from fedrepro.support.locks import only_one
from fedrepro.workflow.killed import CALLS, LOCKS, forget_dead_calls

call = forget_dead_calls.__wrapped__


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
    with only_one(CALLS / "node-4712"):
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
