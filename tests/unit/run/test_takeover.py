"""A run that stalled loses its lock, and wakes up at any moment: what another made stays whole."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fedrepro.run import checkpoint
from fedrepro.run.results import partial_of
from fedrepro.run.runner import Progress
from fedrepro.support.errors import UserError
from fedrepro.support.locks import lock_of
from support.tiny_run import Stop, carry_out, run_spec

SAME = ("rounds.parquet", "clients.parquet", "model.safetensors", "manifest.json")
# Every client has a state, and each round removes those of the round before.
CONFIG = run_spec("scaffold", rounds=4, checkpoint_every=1)
CALLS = ("replace", "rename", "unlink", "mkdir", "rmdir", "fsync")


@contextmanager
def before_call(happens: Callable[[int], None]) -> Iterator[None]:
    """Call ``happens`` with its number before each call that changes names or flushes."""
    number = 0

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keys: Any) -> Any:
            nonlocal number
            number += 1
            happens(number)
            return real(*arguments, **keys)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, noting(getattr(os, name)))
        yield


def take_over(folder: Path, seen: list[int]) -> None:
    """As another machine does it after a silence; it ends in its third round."""
    lock_of(partial_of(folder)).unlink()

    def report(progress: Progress) -> None:
        seen.append(progress.round)
        if progress.round == 3:
            raise Stop

    with suppress(Stop):
        carry_out(folder, CONFIG, report)


def ending(folder: Path) -> str | None:
    """How a run ended that another took over in its midst: its error's kind, if any."""
    try:
        carry_out(folder, CONFIG)
    except UserError as error:
        return error.code
    return None


def test_who_wakes_up_changes_nothing_of_who_took_over(tmp_path: Path) -> None:
    carry_out(tmp_path / "whole", CONFIG)
    moments: list[int] = []
    with before_call(moments.append):
        carry_out(tmp_path / "counted", CONFIG)
    assert len(moments) > 60
    lost = 0
    for moment in moments[8 :: len(moments) // 15]:
        folder, taken = tmp_path / f"{moment}", list[int]()

        def happens(number: int, moment: int = moment, folder: Path = folder) -> None:
            if number == moment:
                take_over(folder, taken)  # noqa: B023 - called at once

        with before_call(happens):
            ended = ending(folder)
        assert ended in (None, "locked")
        lost += ended is not None
        again: list[int] = []
        carry_out(folder, CONFIG, lambda each, again=again: again.append(each.round))  # type: ignore[misc]
        # Who took over saved its rounds but the one in which it ended.
        assert not again or again[0] == (taken[-1] if taken else 1), (moment, taken, again)
        for file in SAME:
            assert (tmp_path / "whole" / file).read_bytes() == (folder / file).read_bytes()
        assert not partial_of(folder).exists()
    assert lost > 5


def test_what_no_holder_of_the_lock_left_stays(tmp_path: Path) -> None:
    """The folder of checkpoints may have been someone's own before."""
    partial = partial_of(tmp_path / "seed1")
    mine = {f"{name}/note.txt" for name in (checkpoint.CLIENTS, "finished", "holder-of-keys")}
    for name in mine:
        (partial / name).parent.mkdir(parents=True)
        (partial / name).touch()
    carry_out(tmp_path / "seed1", CONFIG)
    files = [path for path in partial.rglob("*") if path.is_file()]
    assert {str(path.relative_to(partial)) for path in files} == mine
