"""Runs: what they leave, how they resume, how they end when something is wrong."""

import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

from fedrepro.cli.run import progress_lines
from fedrepro.engine.executors import EXECUTORS, eager
from fedrepro.engine.round import play_round
from fedrepro.methods.adaptive_weighting.rule import Observed
from fedrepro.papers.aaggff.replay import replay, rule_of
from fedrepro.run import checkpoint, devices, results, runner, store
from fedrepro.run.results import FINISHED
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support import checksummed_json, interruption, terminal
from fedrepro.support.errors import Interrupted, UserError
from fedrepro.support.files import sha256_of
from fedrepro.support.terminal import ASKED_TO_END
from support.killed import kill_after
from support.numbers_in_text import numbers_in
from support.refusals import refused
from support.tiny_disk import tiny_disk
from support.tiny_run import SIZES, Stop, carry_out, dataset, partition, run_spec, stop_after

SAME = ("rounds.parquet", "clients.parquet", "model.safetensors", "manifest.json")


def test_a_run_leaves_five_files_that_fit_together(tmp_path: Path) -> None:
    folder = tmp_path / "seed1"
    seen: list[runner.Progress] = []
    manifest = carry_out(folder, run_spec("ima+fedprox"), seen.append)
    assert sorted(file.name for file in folder.iterdir()) == sorted((*SAME, "timing.json"))
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    assert list(tmp_path.iterdir()) == [folder]
    for name, digest in manifest["files"].items():
        assert sha256_of(folder / name) == digest
    rounds = pd.read_parquet(folder / "rounds.parquet")
    assert rounds["round"].tolist() == list(range(1, 13))
    assert rounds["test_loss"].iloc[-1] < rounds["test_loss"].iloc[0]
    assert [progress.round for progress in seen] == list(range(1, 13))
    assert seen[-1].accuracy == rounds["test_accuracy"].iloc[-1]
    # 3 of 6 clients; 4 x 3 weights and 3 biases of 4 bytes, down and up, in each of 12 rounds.
    assert manifest["bytes_down"] == manifest["bytes_up"] == 12 * 3 * 15 * 4
    assert manifest["parameters"] == 15
    clients = pd.read_parquet(folder / "clients.parquet")
    assert len(clients) == 36 and set(clients["train_samples"]) == set(SIZES)
    assert (clients["update_norm"] > 0).all()
    model, _ = load_tree(folder / "model.safetensors")
    assert model["head.weight"].shape == (3, 4)


def test_decisions_are_recorded_with_what_they_follow_from(tmp_path: Path) -> None:
    """And the recorded losses, replayed, give the recorded coefficients."""
    carry_out(tmp_path / "x", run_spec("aaggff_d+fedavg"))
    table = pd.read_parquet(tmp_path / "x" / "decisions.parquet")
    assert table.columns.tolist() == ["round", "client", "loss", "weight"]
    assert table.groupby("round").size().tolist() == [3] * 12
    cohorts = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    assert table[["round", "client"]].equals(cohorts[["round", "client"]])
    rounds = [
        Observed(number - 1, 6, group["client"].to_numpy(), group["loss"].to_numpy(), np.ones(3))
        for number, group in table.groupby("round")
    ]
    again = replay(rule_of("aaggff_d"), 6, rounds).clients
    assert table["weight"].to_numpy() == pytest.approx(again["weight"].to_numpy(), rel=1e-6)
    assert table["weight"].nunique() > 12


def test_equal_runs_are_equal_to_the_byte(tmp_path: Path) -> None:
    for name in ("a", "b"):
        carry_out(tmp_path / name, run_spec("scaffold"))
    for file in SAME:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_finished_run_is_not_played_again(tmp_path: Path) -> None:
    """Only if nothing is another: configuration, code, data, or a file of the folder."""
    folder = tmp_path / "x"
    first = carry_out(folder, run_spec())

    def rounds_of(**changes: object) -> int:
        played: list[int] = []
        data = changes.pop("data", None)
        again = carry_out(
            folder, run_spec(**changes), lambda progress: played.append(progress.round), data
        )
        assert played or again == first
        assert list(tmp_path.iterdir()) == [folder]
        return len(played)

    assert rounds_of() == 0
    for name in (*first["files"], "timing.json"):
        (folder / name).write_bytes(b"edited")
        assert rounds_of() == 12, name
        assert rounds_of() == 0
        (folder / name).unlink()
        assert rounds_of() == 12, name
    assert rounds_of(data=replace(dataset(), meta={"content_sha256": "another"})) == 12
    assert rounds_of() == 12
    assert rounds_of(rounds=11) == 11


def test_evaluation_on_each_clients_own_test_samples(tmp_path: Path) -> None:
    config = run_spec(evaluate={"every": 5, "clients": True})
    seen: list[runner.Progress] = []
    carry_out(tmp_path / "x", config, seen.append)
    rounds = pd.read_parquet(tmp_path / "x" / "rounds.parquet")
    assert rounds["round"].tolist() == [5, 10, 12]  # the last round always
    assert [each.round for each in seen if each.scores] == [5, 10, 12]
    told = {each.round: each for each in seen}
    for row in rounds.to_dict("records"):
        assert told[row["round"]].accuracy == row["client_accuracy"] != row["test_accuracy"]
        assert told[row["round"]].scores == row
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    assert len(clients) == 3 * 6 and set(clients["test_samples"]) == {size // 5 for size in SIZES}
    last = clients[clients["round"] == 12]["accuracy"]
    assert rounds["client_accuracy"].iloc[-1] == pytest.approx(last.mean())
    assert rounds["client_accuracy_std"].iloc[-1] == pytest.approx(last.std(ddof=0))


@pytest.mark.parametrize("last", [1, 6, 9])
@pytest.mark.parametrize("composition", ["ima+scaffold+fedadam", "aaggff_d+fedavg"])
def test_killed_and_called_again_ends_with_the_same_bytes(
    tmp_path: Path, composition: str, last: int
) -> None:
    """kill -9 after any round, then the same command."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    carry_out(whole, run_spec(composition))
    kill_after(last, lambda report: carry_out(broken, run_spec(composition), report))
    assert not broken.exists()
    rounds: list[int] = []
    carry_out(broken, run_spec(composition), lambda progress: rounds.append(progress.round))
    last_checkpoint = (last - 1) // 2 * 2  # a round is reported before its checkpoint
    assert rounds[0] == last_checkpoint + 1
    decides = "aaggff" in composition
    assert (whole / "decisions.parquet").exists() == decides
    for file in (*SAME, "decisions.parquet") if decides else SAME:
        assert (whole / file).read_bytes() == (broken / file).read_bytes()
    resumed = json.loads((broken / "timing.json").read_text())["resumed"]
    assert resumed == (1 if last_checkpoint else 0)


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        (
            {"optimizer": {"lr": 0.05, "momentum": 0.9}, "epochs": 3, "rounds": 9},
            "code",
            "made with another configuration: rounds was 12, is 9; epochs was 2, is 3; "
            "optimizer.lr was 0.1, is 0.05; and 1 more",
        ),
        ({}, "code2", "made by other code"),
        ({"executor": "vectorised"}, "code", "made with other arithmetic"),
    ],
)
def test_a_checkpoint_of_another_run_is_moved_aside_and_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    code: str,
    why: str,
) -> None:
    monkeypatch.setitem(
        EXECUTORS, "vectorised", lambda workers, device: eager
    )  # not compiled: faster
    folder, seen, notes = tmp_path / "seed1", list[int](), list[str]()
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    runner.run(
        run_spec(**changes), dataset(), partition(), folder, code,
        lambda progress: seen.append(progress.round), note=notes.append,
    )  # fmt: skip
    assert seen[0] == 1
    (note,) = notes
    assert "up to 6 " in note and f": {why}" in note
    # The run that it is of continues it, also from there.
    seen.clear()
    shutil.rmtree(folder)
    carry_out(folder, run_spec(), lambda progress: seen.append(progress.round))
    assert seen[0] == 7
    assert not [*tmp_path.glob("*aside*")]


def test_runs_that_stop_in_turns_go_on_in_turns(tmp_path: Path) -> None:
    """Each finds the other's checkpoint in its place, and its own moved aside."""
    folder, seen = tmp_path / "seed1", list[int]()

    def play(rate: float, until: int) -> None:
        seen.clear()
        stop = stop_after(until)

        def told(progress: runner.Progress) -> None:
            seen.append(progress.round)
            stop(progress)

        with pytest.raises(Stop):
            carry_out(folder, run_spec(optimizer={"lr": rate}, rounds=9), told)

    for rate, until, first in ((0.1, 3, 1), (0.2, 5, 1), (0.1, 7, 3), (0.2, 7, 5)):
        play(rate, until)
        assert seen[0] == first
    assert len([*tmp_path.glob("seed1.aside-*")]) == 1


def test_each_of_several_checkpoints_moved_aside_is_continued_by_its_run(tmp_path: Path) -> None:
    """Though one that came first is damaged by now."""
    folder = tmp_path / "seed1"
    rates = (0.1, 0.2, 0.3, 0.4)
    for rate in rates:
        with pytest.raises(Stop):
            carry_out(folder, run_spec(optimizer={"lr": rate}, rounds=4), stop_after(3))
    asides = [*tmp_path.glob("seed1.aside-*")]
    assert len(asides) == 3
    others: dict[float, Path] = {}
    for aside in asides:
        _, facts = load_tree(aside / checkpoint.CHECKPOINT)
        others[facts["subject"]["run"]["optimizer"]["lr"]] = aside
    first = min(others.values())
    broken = next(rate for rate, aside in others.items() if aside == first)
    (first / checkpoint.CHECKPOINT).write_bytes(b"")
    seen: list[int] = []
    for rate in reversed(rates):
        if rate != broken:
            seen.clear()
            spec = run_spec(optimizer={"lr": rate}, rounds=4)
            carry_out(folder, spec, lambda progress: seen.append(progress.round))
            assert seen == [3, 4]
            shutil.rmtree(folder)
    assert [*tmp_path.glob("seed1.aside-*")] == [first]


@pytest.mark.parametrize("name", ["notes.txt", "clients/notes.txt", "own/round1.safetensors"])
def test_a_file_that_someone_put_into_a_folder_moved_aside_stays(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "seed1"
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    carry_out(folder, run_spec(rounds=9))
    (aside,) = tmp_path.glob("seed1.aside-*")
    (aside / name).parent.mkdir(exist_ok=True)
    (aside / name).write_text("mine", encoding="utf-8")
    shutil.rmtree(folder)
    carry_out(folder, run_spec())
    assert (aside / name).read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("part", "key", "value", "continued"),
    [
        ("packages", "torch", "2.0.0", False),
        ("packages", "numpy", "1.0.0", False),
        ("packages", "fedrepro", "0.0.1", True),  # code counts by its numerics ids
        ("hardware", "processor", "another", False),
        ("hardware", "machine", "another", False),
        ("hardware", "vector_instructions", "another", False),
        ("hardware", "cores", 1000, True),
        ("hardware", "python", "3.0", True),
    ],
)
def test_a_checkpoint_is_continued_on_the_same_packages_and_kind_of_machine(
    tmp_path: Path, part: str, key: str, value: object, continued: bool
) -> None:
    folder, seen = tmp_path / "seed1", list[int]()
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    (file,) = tmp_path.rglob(checkpoint.CHECKPOINT)
    saved, facts = load_tree(file)
    subject = facts["subject"]
    changed = {**subject, part: {**subject[part], key: value}}
    save_tree(file, saved, {**facts, "subject": changed}, checksummed=True)
    carry_out(folder, run_spec(), lambda progress: seen.append(progress.round))
    assert seen[0] == (7 if continued else 1)
    assert len([*tmp_path.glob("seed1.aside-*")]) == (not continued)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [("packages", "torch", "2.0.0"), ("packages", "pandas", "1.0"), ("hardware", "cores", 1000),
     ("hardware", "processor", "another"), ("hardware", "machine", "another")],
)  # fmt: skip
def test_a_finished_run_of_another_machine_or_version_is_kept(
    tmp_path: Path, part: str, key: str, value: object
) -> None:
    folder, played = tmp_path / "seed1", list[int]()
    made = carry_out(folder, run_spec())
    changed = {**made, part: {**made[part], key: value}}
    changed["seal"] = checksummed_json.seal_of(changed)
    (folder / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
    timing = json.loads((folder / "timing.json").read_bytes())
    checksummed_json.write(folder / "timing.json", timing, results.timing_of(changed))
    assert carry_out(folder, run_spec(), lambda each: played.append(each.round)) == changed
    assert not played


def test_a_checkpoint_that_does_not_say_what_it_is_of_is_moved_aside(tmp_path: Path) -> None:
    folder, notes, seen = tmp_path / "seed1", list[str](), list[int]()
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    (file,) = tmp_path.rglob(checkpoint.CHECKPOINT)
    saved, facts = load_tree(file)
    del facts["subject"]
    save_tree(file, saved, facts, checksummed=True)
    runner.run(run_spec(), dataset(), partition(), folder, "code",
               lambda progress: seen.append(progress.round), note=notes.append)  # fmt: skip
    assert seen[0] == 1 and len(notes) == 1
    assert [*tmp_path.glob("seed1.aside-*")]


@pytest.mark.parametrize(
    "refusal", [MemoryError("no memory"), PermissionError(errno.EACCES, "Permission denied")]
)
def test_a_checkpoint_that_cannot_be_read_now_is_continued_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """It was called damaged and moved aside, and the run began anew."""
    folder, seen = tmp_path / "seed1", list[int]()
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    with monkeypatch.context() as now:
        now.setattr(store, "safe_open", Mock(side_effect=refusal))
        with pytest.raises((UserError, MemoryError)) as failed:
            carry_out(folder, run_spec())
        assert getattr(failed.value, "code", "unreadable") == "unreadable"
    carry_out(folder, run_spec(), lambda progress: seen.append(progress.round))
    assert seen[0] == 7 and not [*tmp_path.glob("seed1.aside-*")]


def test_a_checkpoint_of_the_version_before_is_continued(tmp_path: Path) -> None:
    """It states no layout, and a key where this version compares what it was made with."""
    folder, seen = tmp_path / "seed1", list[int]()
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    (file,) = tmp_path.rglob(checkpoint.CHECKPOINT)
    saved, facts = load_tree(file)
    del facts["layout"]
    save_tree(file, saved, {**facts, "identity": "a hash"}, checksummed=True)
    carry_out(folder, run_spec(), lambda progress: seen.append(progress.round))
    assert seen[0] == 7


def test_how_often_checkpoints_are_written_changes_nothing(tmp_path: Path) -> None:
    carry_out(tmp_path / "a", run_spec(checkpoint_every=1))
    carry_out(tmp_path / "b", run_spec(checkpoint_every=100))
    for file in SAME:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_second_process_on_a_run_waits_for_the_first_and_takes_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, played = tmp_path / "seed1", list[int]()
    said = StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with ThreadPoolExecutor(1) as pool:

        def second() -> dict[str, Any]:
            arguments = run_spec(), dataset(), partition(), folder, "code"
            return runner.run(*arguments, lambda each: played.append(each.round))

        def first(progress: runner.Progress) -> None:
            if progress.round == 2:
                waiting.append(pool.submit(second))
                end = time.monotonic() + 60
                while f" {os.getpid()} on " not in said.getvalue():
                    assert time.monotonic() < end
                    time.sleep(0.02)

        waiting: list[Future[dict[str, Any]]] = []
        made = carry_out(folder, run_spec(), first)
        assert waiting[0].result(timeout=60) == made
    assert not played


def test_a_finished_result_that_is_not_in_its_place_is_put_there(tmp_path: Path) -> None:
    folder, played = tmp_path / "seed1", list[int]()
    made, aside = carry_out(folder, run_spec()), tmp_path / "seed1.partial" / FINISHED
    timing = (folder / "timing.json").read_bytes()
    for damaged in (False, True):
        aside.parent.mkdir()
        folder.rename(aside)
        if damaged:
            (aside / "rounds.parquet").write_bytes(b"")
        assert carry_out(folder, run_spec(), lambda each: played.append(each.round)) == made
        assert bool(played) == damaged
        assert ((folder / "timing.json").read_bytes() == timing) == (not damaged)
        assert not aside.parent.exists()


@pytest.mark.parametrize("ended", [False, True])
def test_what_a_run_by_other_code_left_is_not_used(tmp_path: Path, ended: bool) -> None:
    """A checkpoint after Ctrl-C, or the result of a run that outlived its Snakemake's kill -9."""
    folder, played = tmp_path / "seed1", list[int]()

    def go(code: str, report: runner.Report) -> None:
        runner.run(run_spec(), dataset(), partition(), folder, code, report)

    if ended:
        go("before the edit", lambda each: None)
        (tmp_path / "seed1.partial").mkdir()
        folder.rename(tmp_path / "seed1.partial" / FINISHED)
    else:
        with pytest.raises(Stop):
            go("before the edit", stop_after(7))
    go("after the edit", lambda each: played.append(each.round))
    assert played == list(range(1, 13))


@pytest.mark.parametrize(
    "change",
    [
        {"mean": (0.5,), "std": (0.25,)},
        {"mean": (0.4,), "std": (0.5,)},
        {"client_standardised": (0,)},
    ],
)
def test_how_data_are_read_is_part_of_what_a_run_is(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """Finished runs and checkpoints of the same arrays, read otherwise, do not stand."""
    base = replace(dataset(), mean=(0.4,), std=(0.25,), test=None)
    config = run_spec(rounds=4, evaluate={"every": 1, "clients": True})
    changed = replace(base, **change)
    if "client_standardised" in change:  # of features, which are floats
        flat = replace(base.train, x=base.train.x.reshape(-1, 4).astype(np.float32))
        base = replace(base, train=flat, input_shape=(4,), mean=None, std=None)
        changed = replace(base, client_standardised=(0,))
    folder = tmp_path / "seed1"
    carry_out(folder, config, data=base)
    before = (folder / "model.safetensors").read_bytes()
    seen: list[int] = []
    carry_out(folder, config, lambda progress: seen.append(progress.round), changed)
    assert seen[0] == 1
    assert (folder / "model.safetensors").read_bytes() != before
    with pytest.raises(Stop):
        carry_out(tmp_path / "other", config, stop_after(3), base)
    seen.clear()
    carry_out(tmp_path / "other", config, lambda progress: seen.append(progress.round), changed)
    assert seen[0] == 1


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C as at a terminal: the background of a shell, which ignores it, is handed on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize("number", ASKED_TO_END)
def test_a_signal_keeps_the_round_and_the_same_call_goes_on(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tmp_path / "whole", run_spec("scaffold", checkpoint_every=100))
    folder = tmp_path / "seed1"
    handlers = [signal.getsignal(each) for each in ASKED_TO_END]

    def send(progress: runner.Progress) -> None:
        if progress.round == 5:
            signal.raise_signal(number)

    with pytest.raises(Interrupted, match=" 5 of 12") as caught:
        carry_out(folder, run_spec("scaffold", checkpoint_every=100), send)
    assert caught.value.status == 128 + number
    assert capsys.readouterr().err.count("\n") == 1  # that it stops after this round
    assert [signal.getsignal(each) for each in ASKED_TO_END] == handlers
    seen: list[int] = []
    config = run_spec("scaffold", checkpoint_every=100)
    carry_out(folder, config, lambda progress: seen.append(progress.round))
    assert seen[0] == 6
    for file in SAME:
        assert (tmp_path / "whole" / file).read_bytes() == (folder / file).read_bytes()


@pytest.mark.parametrize("again", ASKED_TO_END)
def test_signals_that_come_together_count_as_one(tmp_path: Path, again: signal.Signals) -> None:
    """`timeout` sends to the process and to its group, systemd SIGHUP after SIGTERM."""

    def send(progress: runner.Progress) -> None:
        if progress.round == 5:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(again)

    with pytest.raises(Interrupted, match="after round 5"):
        carry_out(tmp_path / "seed1", run_spec(checkpoint_every=100), send)


def test_a_notice_that_is_repeated_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel sends SIGXCPU every second."""
    monkeypatch.setattr(interruption, "TOGETHER", 0.0)

    def send(progress: runner.Progress) -> None:
        if progress.round == 5:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU):
                signal.raise_signal(number)

    with pytest.raises(Interrupted, match="after round 5") as caught:
        carry_out(tmp_path / "seed1", run_spec(checkpoint_every=100), send)
    assert caught.value.status == 128 + signal.SIGTERM


def test_a_program_that_handles_a_signal_itself_still_does(tmp_path: Path) -> None:
    taken: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: taken.append(number))
    try:
        carry_out(tmp_path / "seed1", run_spec(), lambda _: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(taken) == 12


@pytest.mark.parametrize("number", ASKED_TO_END, ids=str)
def test_a_signal_that_the_caller_ignores_stays_ignored(
    tmp_path: Path, number: signal.Signals
) -> None:
    """As Ctrl-C by a job that a shell has in its background, and SIGHUP under nohup."""

    def send(progress: runner.Progress) -> None:
        if progress.round == 1:
            signal.raise_signal(number)

    before = signal.signal(number, signal.SIG_IGN)
    try:
        manifest = carry_out(tmp_path / "seed1", run_spec(rounds=2), send)
    except Interrupted:  # which pytest takes for its own
        pytest.fail("it was obeyed")
    finally:
        signal.signal(number, before)
    assert manifest["rounds_done"] == 2


@pytest.mark.parametrize("where", [None, "/dev/full", "nobody reads"])
def test_a_signal_is_obeyed_if_nothing_can_be_printed(
    tmp_path: Path, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe, Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", {None: None, "/dev/full": full}.get(where, pipe))

        def send(progress: runner.Progress) -> None:
            if progress.round == 5:
                signal.raise_signal(signal.SIGTERM)

        with pytest.raises(Interrupted, match="after round 5"):
            carry_out(tmp_path / "seed1", run_spec(checkpoint_every=100), send)
        monkeypatch.undo()
        terminal.let_go(pipe, full)  # else they fail when they are closed


def test_a_signal_that_ends_a_compiler_is_no_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> NoReturn:
        signal.raise_signal(signal.SIGTERM)
        raise RuntimeError("g++: fatal error: Terminated signal terminated program cc1plus")

    monkeypatch.setattr(runner, "play_round", interrupted)
    with pytest.raises(Interrupted, match="in round 1 of 12") as caught:
        carry_out(tmp_path / "seed1", run_spec())
    assert caught.value.status == 128 + signal.SIGTERM


@pytest.mark.parametrize("end", [lambda: os._exit(0), lambda: sys.exit(0), lambda: sys.exit()])
def test_a_run_does_not_end_with_status_0_before_it_is_done(
    tmp_path: Path, end: Callable[[], object]
) -> None:
    """Where a hook, a model or a library ends the process."""

    def leave(progress: runner.Progress) -> None:
        if progress.round == 5:
            end()

    with pytest.raises(UserError, match="SystemExit"):
        carry_out(tmp_path / "seed1", run_spec(), leave)
    assert not (tmp_path / "seed1").exists()


def test_the_time_left_is_by_the_rounds_of_this_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round takes two seconds, but the first one, also after a resume, a minute."""
    now, calls_first = [100.0], [True]

    def slow(*given: Any) -> Any:
        now[0] += 60 if calls_first[0] else 2
        calls_first[0] = False
        return play_round(*given)

    def report(progress: runner.Progress) -> None:
        seen.append((progress.rounds_per_second, progress.seconds_left))
        if len(seen) == 8:
            raise StopIteration

    monkeypatch.setattr(runner, "play_round", slow)
    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=time.process_time)
    monkeypatch.setattr(runner, "time", clock)
    seen: list[tuple[float, float | None]] = []
    with pytest.raises(StopIteration):
        carry_out(tmp_path / "x", run_spec(checkpoint_every=5), report)
    calls_first[0] = True
    carry_out(tmp_path / "x", run_spec(checkpoint_every=5), report)
    first = (1 / 60, None)
    before, after = range(20, 6, -2), range(10, -2, -2)
    assert seen == [
        first,
        *((0.5, left) for left in before),
        first,
        *((0.5, left) for left in after),
    ]
    assert json.loads((tmp_path / "x/timing.json").read_text())["wall_seconds"] == 2 * 60 + 10 * 2


@pytest.mark.usefixtures("_ctrl_c")
def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "TOGETHER", 0.0)

    def twice(progress: runner.Progress) -> None:
        if progress.round == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        carry_out(tmp_path / "seed1", run_spec(), twice)
    assert not isinstance(caught.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) == handler
    seen: list[int] = []
    carry_out(tmp_path / "seed1", run_spec(), lambda progress: seen.append(progress.round))
    assert seen[0] == 5  # the checkpoint of round 4


def test_a_loss_that_is_not_a_number_is_recorded(tmp_path: Path) -> None:
    config = run_spec(optimizer={"lr": 1e38, "momentum": 0.9, "weight_decay": 1.0})
    manifest = carry_out(tmp_path / "x", config)
    assert manifest["status"] == "diverged"
    assert manifest["diverged_at"] == manifest["rounds_done"] <= 12
    rounds = pd.read_parquet(tmp_path / "x" / "rounds.parquet")
    assert rounds["round"].iloc[-1] == manifest["diverged_at"]


def test_divergence_is_seen_between_evaluations(tmp_path: Path) -> None:
    config = run_spec(
        optimizer={"lr": 1e38, "momentum": 0.9, "weight_decay": 1.0},
        evaluate={"every": 12, "clients": False},
    )
    manifest = carry_out(tmp_path / "x", config)
    assert manifest["status"] == "diverged" and manifest["diverged_at"] < 12


def test_full_disk_at_a_checkpoint(tmp_path: Path) -> None:
    """One line; no run folder; with room again the same command goes on and agrees."""
    carry_out(tmp_path / "whole", run_spec("scaffold"))
    disk = tmp_path / "disk"
    with tiny_disk(disk, 1024) as resize:
        folder = disk / "seed1"

        def fill(progress: runner.Progress) -> None:
            if progress.round == 5:  # a checkpoint of round 4 is there, that of round 6 is next
                used = sum(file.stat().st_blocks // 2 for file in disk.rglob("*"))
                resize(used + 4)

        with refused(names=("written", "could")) as caught:
            carry_out(folder, run_spec("scaffold"), fill)
        assert "\n" not in str(caught.value)
        assert not folder.exists()
        resize(4096)
        seen: list[int] = []
        carry_out(folder, run_spec("scaffold"), lambda progress: seen.append(progress.round))
        assert seen[0] > 1
        for file in SAME:
            assert (tmp_path / "whole" / file).read_bytes() == (folder / file).read_bytes()


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "clients/*.safetensors"])
@pytest.mark.parametrize("place", [100, -1, None])
def test_a_damaged_checkpoint_only_costs_time(tmp_path: Path, name: str, place: int | None) -> None:
    """Cut, or a bit of it is another: noted in one line, and to the same bytes."""
    carry_out(tmp_path / "whole", run_spec("scaffold"))
    folder = tmp_path / "seed1"
    with pytest.raises(Stop):
        carry_out(folder, run_spec("scaffold"), stop_after(7))
    file = next((tmp_path / "seed1.partial").glob(f"*/{name}"))
    content = bytearray(file.read_bytes())
    if place is None:
        content = content[: len(content) // 2]
    else:
        content[place] ^= 1
    file.write_bytes(content)
    seen: list[int] = []
    notes: list[str] = []
    runner.run(
        run_spec("scaffold"), dataset(), partition(), folder, "code",
        lambda progress: seen.append(progress.round), note=notes.append,
    )  # fmt: skip
    assert seen[0] == 1
    (line,) = notes
    assert f"/{file.name}: " in line and "damaged" in line
    for each in SAME:
        assert (tmp_path / "whole" / each).read_bytes() == (folder / each).read_bytes()


def test_pooled_training_sends_nothing(tmp_path: Path) -> None:
    manifest = carry_out(tmp_path / "x", run_spec("central", participation=1.0))
    assert manifest["bytes_down"] == manifest["bytes_up"] == 0
    assert set(pd.read_parquet(tmp_path / "x" / "clients.parquet")["train_samples"]) == {150}


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with refused(key="device", value="cuda", names="cpu"):
        carry_out(tmp_path / "x", run_spec(device="cuda"))


def test_a_number_of_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    devices.require("cuda")
    devices.require("cuda:1")
    with refused(key="device", value="cuda:2", names=("cuda:0", "cuda:1")):
        devices.require("cuda:2")


def test_tf32_is_refused_without_a_gpu_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused("value", key="precision", value="tf32", names=("cpu", "cuda")):
        carry_out(tmp_path / "x", run_spec(model="mcmahan_cnn", precision="tf32"))
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    for capability in ((7, 0), (8, 0), (9, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        if capability >= (8, 0):
            devices.require_tf32("cuda")
            continue
        with refused(file="device cuda", key="precision", value="tf32"):
            devices.require_tf32("cuda")


def test_vectorised_and_sequential_runs_agree(tmp_path: Path) -> None:
    """Through the C++ compiler, in float32: the curves agree to rounding.

    Clients take one or two steps, of which none to 15 samples are padding: one kernel for all.
    """
    for executor in ("sequential", "vectorised"):
        spec = run_spec(rounds=3, executor=executor, participation=1.0, epochs=1, batch_size=20)
        manifest = carry_out(tmp_path / executor, spec)
        assert manifest["executor"] == executor
    ours = pd.read_parquet(tmp_path / "vectorised" / "rounds.parquet")
    theirs = pd.read_parquet(tmp_path / "sequential" / "rounds.parquet")
    assert ours["test_loss"].to_numpy() == pytest.approx(theirs["test_loss"].to_numpy(), rel=1e-4)


def test_a_checkpoint_of_other_data_is_not_gone_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "seed1"
    with pytest.raises(Stop):
        carry_out(folder, run_spec(), stop_after(7))
    other = replace(dataset(), meta={"content_sha256": "another"})
    seen: list[int] = []
    manifest = carry_out(folder, run_spec(), lambda p: seen.append(p.round), other)
    assert seen[0] == 1
    assert manifest["data"]["content_sha256"] == "another"


def test_a_partition_of_other_data_is_one_line(tmp_path: Path) -> None:
    other = dataset()
    other = replace(other, train=replace(other.train, y=other.train.y[::-1].copy()))
    with refused("damaged", file=partition().name, names=("data set", run_spec().setting.name)):
        carry_out(tmp_path / "x", run_spec(), data=other)


def test_pooled_training_is_tested_on_every_client(tmp_path: Path) -> None:
    config = run_spec("central", evaluate={"every": 12, "clients": True})
    carry_out(tmp_path / "x", config)
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    assert clients["client"].tolist() == list(range(6))
    assert set(clients["train_samples"]) == {size - size // 5 for size in SIZES}


def test_no_accuracy_is_shown_before_the_first_evaluation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for accuracy in (float("nan"), 0.5):
        progress_lines("x")(runner.Progress(3, 9, 2.0, 3.0, accuracy))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("x: ") and numbers_in(first) == [3, 9, 2, 3] and "acc" not in first
    assert second == f"{first}, accuracy 50.00%"
