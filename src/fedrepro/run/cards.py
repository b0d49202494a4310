"""The cards of this machine: each run on a GPU takes a place on one, before CUDA starts.

Snakemake counts GPUs on one machine but does not say which one a job may use, so without this every
run would start on the first. A place is a lock that the kernel releases when its process ends, also
by kill -9. It counts for one user's processes; a job of SLURM sees its own cards only.
"""

import fcntl
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError, refusal, writing
from fedrepro.support.terminal import say

VISIBLE = "CUDA_VISIBLE_DEVICES"
# On the machine's own disk, and the same for all of a user's processes. Neither TMPDIR nor the
# session's folder is: jobs have their own, and that of a session goes when it ends, with its locks.
FOLDER = Path(f"/tmp/fedrepro-cards-{os.getuid()}")
BETWEEN_LOOKS = 1.0  # seconds
ANSWER = 60.0  # seconds for nvidia-smi, which loads the driver on its first call
QUERY = ("nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader")


@dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        key: what CUDA_VISIBLE_DEVICES calls it, by UUID where that is known.
        name: of its kind, such as "NVIDIA H100 80GB HBM3"; "" if unknown.
    """

    key: str
    name: str = ""


_held: list[int] = []  # the open lock of this process's place


def _forget() -> None:
    """Let go of the place, in a child of this process: it might outlive the run."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget)


def take(device: str, runs_per_gpu: int) -> str:
    """Take a place on a card, for the rest of this process, and hide the other cards from CUDA.

    The first places of all cards are taken before any second. Without a free place this waits,
    after one line.

    Args:
        device: "cuda": any card of the pool; "cuda:1": the second; "cpu": none.
        runs_per_gpu: places of each card.

    Returns:
        The device's name from now on, in which cards have no number.

    Raises:
        UserError: if there is no such card.
    """
    if _held and device.startswith("cuda"):
        return "cuda"
    wanted = _wanted(device)
    if not wanted:  # PyTorch has the last word
        return device
    card, lock = _place(wanted, runs_per_gpu)
    _held.append(lock)
    os.environ[VISIBLE] = card.key
    return "cuda"


def with_place(workbench: Workbench) -> Workbench:
    """A workbench whose device is the card on which this process has taken a place.

    Raises:
        UserError: if there is no such card.
    """
    config = workbench.config
    device = take(config.device, config.runs_per_gpu)
    if device == config.device:
        return workbench
    return replace(workbench, config=config.model_copy(update={"device": device}))


def known(device: str) -> list[Card]:
    """The cards that a device means, whose kind is known; empty if they are not here."""
    try:
        return [card for card in _wanted(device) if card.name]
    except UserError:
        return []


def pool() -> list[Card]:
    """The cards that this process may use: those of CUDA_VISIBLE_DEVICES, else all.

    Raises:
        UserError: if nvidia-smi is there but fails.
    """
    there = _of_nvidia_smi()
    named = os.environ.get(VISIBLE)
    if named is None:
        return there
    cards: list[Card] = []
    for name in filter(None, map(str.strip, named.split(","))):
        if name.isdigit() and there:
            matching = there[int(name) : int(name) + 1]
        elif name.startswith("-"):
            matching = []
        else:  # CUDA takes the beginning of a UUID; parts of a card (MIG) are not listed
            matching = [card for card in there if card.key.startswith(name)] or [Card(name)]
        if not matching:  # as CUDA does: it hides all that follows
            break
        cards += matching[:1]
    return cards


def _of_nvidia_smi() -> list[Card]:
    """All cards of this machine or, in a job of SLURM, those that it has; none without the program.

    It starts no CUDA, after which a process could neither fork nor be told which card to use.
    """
    try:
        asked = subprocess.run(QUERY, capture_output=True, text=True, timeout=ANSWER, check=False)
    except FileNotFoundError:
        return []
    except (OSError, subprocess.TimeoutExpired) as error:
        raise refusal("nvidia-smi", str(error), code="unreadable") from None
    if asked.returncode:
        said = asked.stderr.strip() or asked.stdout.strip() or f"exit status {asked.returncode}"
        raise refusal("nvidia-smi", said, code="unreadable")
    fields = (line.partition(",") for line in asked.stdout.splitlines() if line.strip())
    return [Card(key.strip(), name.strip()) for key, _, name in fields]


def _wanted(device: str) -> Sequence[Card]:
    """The cards that a device means; empty for the CPU, and if no card is known here.

    Raises:
        UserError: if there are cards but not this one.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return []
    cards = pool()
    if not number or not cards:
        return cards
    if int(number) >= len(cards):
        why = f"{device!r}: expected cuda:0 to cuda:{len(cards) - 1}, which are here"
        raise refusal("device", why, "device", device)
    return cards[int(number) :][:1]


def _place(cards: Sequence[Card], runs_per_gpu: int) -> tuple[Card, int]:
    """A card with a free place, and its lock; waits for one."""
    waits = False
    while True:
        for number in range(runs_per_gpu):
            for card in cards:
                if (lock := _lock_of(card, number)) is not None:
                    return card, lock
        if not waits:
            waits = True
            each = "" if runs_per_gpu == 1 else f", {runs_per_gpu} on each"
            say(f"fedrepro: waiting for a GPU: all {len(cards)} have runs{each}")
        time.sleep(BETWEEN_LOOKS)


def _lock_of(card: Card, number: int) -> int | None:
    """An open lock of a place; None if another process holds it.

    It is a folder, because what cleans old temporary files passes over locked folders; nothing else
    removes it, so two processes never lock two places of the same name.
    """
    # Within a job of SLURM, a card without a UUID may have the number of another job's card.
    job = os.environ.get("SLURM_JOB_ID", "")
    name = card.key if card.name or not job else f"job{job}-{card.key}"
    place = FOLDER / f"{name.replace('/', '-')}.{number}"
    with writing(place):
        FOLDER.mkdir(0o700, exist_ok=True)
        if FOLDER.lstat().st_uid != os.getuid():
            why = "belongs to another user; remove it to use a GPU"
            raise refusal(FOLDER, why, code="unwritable")
        place.mkdir(0o700, exist_ok=True)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # not inherited
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
