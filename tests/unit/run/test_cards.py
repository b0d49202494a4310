"""Two pretend cards: never two holders of a place, whatever dies in between."""

import fcntl
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.run import cards
from support.numbers_in_text import numbers_in
from support.places import ROOT
from support.project import CONFIG, EXPERIMENT
from support.refusals import refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")

FORK = multiprocessing.get_context("fork")
CARDS = ["GPU-11111111-aaaa", "GPU-22222222-bbbb"]


class Machine:
    """A machine with a pretend nvidia-smi."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.program = root, root / "bin/nvidia-smi"
        self.program.parent.mkdir()
        monkeypatch.setenv("PATH", f"{self.program.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(cards, "FOLDER", root / "cards")
        monkeypatch.setattr(cards, "_held", [])
        monkeypatch.setattr(cards, "BETWEEN_LOOKS", 0.01)
        for name in (cards.VISIBLE, "SLURM_JOB_ID"):
            monkeypatch.setenv(name, "")  # so that it is put back after the test
            monkeypatch.delenv(name)
        self.has(CARDS)

    def has(self, keys: list[str], status: int = 0) -> None:
        lines = "".join(f"echo '{key}, Pretend {key[4]}'\n" for key in keys)
        self.program.write_text(f"#!/bin/sh\n{lines}exit {status}\n", encoding="utf-8")
        self.program.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield Machine(tmp_path, monkeypatch)
    cards._forget()


def taken(device: str, places: int = 1) -> str:
    """The card that a new process would get; it is held by this one until the test ends."""
    card, lock = cards._place(cards._wanted(device), places)
    cards._held.append(lock)
    return card.key


def hold(root: Path, places: int, seconds: float) -> None:
    """Take a place, and a lock of the test's own for it: a line says whether that was free."""
    own = {key: [(root / f"{key}.{number}").open("w") for number in range(places)] for key in CARDS}
    assert cards.take("cuda", places) == "cuda"
    key = os.environ[cards.VISIBLE]
    free = any(is_free(file) for file in own[key])
    with (root / "seen").open("a", encoding="utf-8") as seen:
        seen.write(f"{key} {free}\n")
    time.sleep(seconds)


def is_free(file: IO[str]) -> bool:
    """By a lock that the kernel frees before any ``flock`` of the process when that dies."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("kill", [False, True])
def test_twelve_runs_share_two_cards(machine: Machine, places: int, kill: bool) -> None:
    folder, chance = machine.root / "holders", random.Random(places)
    folder.mkdir()
    runs = [FORK.Process(target=hold, args=(folder, places, 0.1)) for _ in range(12)]
    for run in runs:
        run.start()
    victims = chance.sample(runs, 5) if kill else []
    for run in victims:
        time.sleep(0.05)
        run.kill()
    for run in runs:
        run.join(60)
    assert all(run.exitcode == 0 for run in runs if run not in victims)
    seen = [line.split() for line in (folder / "seen").read_text(encoding="utf-8").splitlines()]
    assert len(seen) >= 12 - len(victims)
    assert {key for key, _ in seen} == {*CARDS}
    assert {free for _, free in seen} == {"True"}


def test_every_first_place_comes_before_a_second(machine: Machine) -> None:
    assert [taken("cuda", 2) for _ in range(4)] == [*CARDS, *CARDS]


def test_without_a_place_it_waits_with_one_line(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    (machine.root / "holders").mkdir()
    others = [taken("cuda"), taken("cuda")]
    run = FORK.Process(target=hold, args=(machine.root / "holders", 1, 0.0))
    run.start()
    time.sleep(0.2)
    assert run.is_alive()
    os.close(cards._held.pop())
    run.join(60)
    assert run.exitcode == 0
    assert (machine.root / "holders/seen").read_text(encoding="utf-8") == f"{others[1]} True\n"
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "GPU" in said and numbers_in(said) == [2]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, CARDS),
        ("1,0", CARDS[::-1]),
        ("1", CARDS[1:]),
        ("GPU-2222", CARDS[1:]),
        ("MIG-3/1/0", ["MIG-3/1/0"]),
        ("", []),
        ("0,-1,1", CARDS[:1]),
        ("0,7,1", CARDS[:1]),
    ],
)
def test_visible_cards_are_the_pool(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, visible: str | None, found: list[str]
) -> None:
    """As CUDA reads the variable, but every card by its UUID."""
    if visible is not None:
        monkeypatch.setenv(cards.VISIBLE, visible)
    assert [card.key for card in cards.pool()] == found


def test_a_number_is_that_card_of_the_pool(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [card.key for card in cards._wanted("cuda:1")] == CARDS[1:]
    monkeypatch.setenv(cards.VISIBLE, "1")
    with refused(key="device", value="cuda:1", names="0"):
        cards.take("cuda:1", 1)


def test_a_process_takes_one_place(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cards.VISIBLE, "1,0")
    for device in ("cuda:1", "cuda:1", "cuda", "cuda:0"):
        assert cards.take(device, 1) == "cuda" and len(cards._held) == 1
        assert os.environ[cards.VISIBLE] == CARDS[0]
    assert cards.take("cpu", 1) == "cpu"


def test_cards_are_known_by_their_kind(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cards.VISIBLE, "MIG-3/1/0,0")
    kinds = [cards.Card(CARDS[0], f"Pretend {CARDS[0][4]}")]
    devices = ("cuda", "cuda:0", "cuda:1", "cuda:2", "cpu")
    assert [cards.known(device) for device in devices] == [kinds, [], kinds, [], []]


def test_places_in_somebody_else_s_folder_are_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards.FOLDER.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with refused("unwritable", file=str(cards.FOLDER), names="user"):
        cards.take("cuda", 1)


def test_a_failing_nvidia_smi_is_one_line(machine: Machine) -> None:
    machine.program.write_text("#!/bin/sh\necho 'no driver' >&2\nexit 9\n", encoding="utf-8")
    with refused("unreadable", file="nvidia-smi", names="driver"):
        cards.take("cuda", 1)


def test_jobs_of_slurm_with_numbers_of_their_own_do_not_wait(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job's only card is number 0; without nvidia-smi nobody knows which one that is."""
    machine.has([])
    monkeypatch.setenv(cards.VISIBLE, "0")
    for job in ("17", "18"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        assert cards._lock_of(cards.pool()[0], 0) is not None
        assert cards._lock_of(cards.pool()[0], 0) is None


def test_without_a_known_card_pytorch_decides(machine: Machine) -> None:
    machine.has([])
    assert cards.take("cuda:3", 1) == "cuda:3"
    assert cards.take("cpu", 1) == "cpu"
    assert cards.VISIBLE not in os.environ and not cards.FOLDER.exists()


def test_a_child_keeps_no_place(machine: Machine) -> None:
    """It may outlive the run that started it."""
    cards.take("cuda:0", 1)
    child, started = FORK.Process(target=time.sleep, args=(60,)), time.monotonic()
    program = subprocess.Popen(["sleep", "60"], close_fds=False)
    child.start()
    cards._forget()
    assert taken("cuda:0") == CARDS[0] and time.monotonic() - started < 30
    for each in (child, program):
        each.kill()
    child.join()
    program.wait()


def test_a_run_takes_a_place_before_cuda_starts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no CUDA here, which the run says in the end; which card is not part of it."""
    (machine.root / "config/experiments").mkdir(parents=True)
    catalogue = (ROOT / "config/datasets.yaml").read_text(encoding="utf-8")
    (machine.root / "config/datasets.yaml").write_text(catalogue, encoding="utf-8")
    (machine.root / "config/experiments/ima.yaml").write_text(EXPERIMENT, encoding="utf-8")
    config = f"{CONFIG}device: 'cuda:1'\nruns_per_gpu: 2\n"
    (machine.root / "config/config.yaml").write_text(config, encoding="utf-8")
    bench = load(machine.root)
    first = cards._lock_of(cards._wanted("cuda:1")[0], 0)
    monkeypatch.setattr(cards, "BETWEEN_LOOKS", -1)  # it need not wait: the card has two places
    placed = cards.with_place(bench)
    assert first is not None
    os.close(first)
    assert placed.config.device == "cuda" and os.environ[cards.VISIBLE] == CARDS[1]
    before, after = (each.run_spec("ima/tiny", "fedavg", 1) for each in (bench, placed))
    assert before.digest == after.digest
    assert replace(before, execution=after.execution) == after
    assert cards.with_place(placed) is placed
    if not Path("/dev/nvidiactl").exists():
        monkeypatch.chdir(machine.root)
        assert main(["landscape", "ima/tiny", "fedavg", "--seed", "1"]) == 2
        assert "fedrepro: " in capsys.readouterr().err


def test_config_says_how_many_runs_a_card_has(machine: Machine) -> None:
    (machine.root / "config").mkdir()
    (machine.root / "config/config.yaml").write_text(f"{CONFIG}runs_per_gpu: 0\n", encoding="utf-8")
    with refused(key="runs_per_gpu", value=0, names="1"):
        load(machine.root)


FORBIDDEN = """\
import torch
def never(*arguments):
    raise SystemExit("CUDA was started")
for name in ("_cuda_init", "_cuda_getDeviceCount", "_cuda_setDevice", "_cuda_getDevice"):
    setattr(torch._C, name, never)
from fedrepro.cli import warm_server
warm_server._import_everything()
assert not torch.cuda.is_initialized()
"""


def test_the_warm_server_never_starts_cuda() -> None:
    """Its forks could not use it, nor be told which card is theirs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    called = subprocess.run(
        [sys.executable, "-c", FORBIDDEN],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert called.returncode == 0, called.stderr
