"""Repeat the first rounds of every reference result, and record which give the same numbers.

Runs up to the first evaluated round, with the current code and the result's executor. Compares
bits if the kind of machine and PyTorch are the result's. Elsewhere rounding differs in the last
bits, and training amplifies it: after 50 rounds with 500 clients, losses were seen to differ by
2 %. There, shares must agree within 1 point, and losses within 5 % or 0.01.
Skips results already replayed with the current numerics ids. Makes missing data and partitions
first.
"""

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedrepro.cli.run import _dataset, _partition
from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.engine.round import play_round
from fedrepro.run import given, manifest, numerics, scoring
from fedrepro.run.assembly import make_plan
from fedrepro.run.replayed import RECORD, Replay, place_of, read_replays, replay_of, written
from fedrepro.run.results import RunRecord, reference_runs
from fedrepro.run.runner import data_of
from fedrepro.run.state import first_state
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically

SHARE, LOSS, LEAST = 0.01, 0.05, 0.01  # tolerances on another kind of machine


def main(arguments: argparse.Namespace) -> None:
    os.nice(19)
    with suppress(OSError):  # where Linux schedules by terminal session first
        Path("/proc/self/autogroup").write_text("19", encoding="utf-8")
    torch.set_num_threads(1)
    bench = load()
    left = [
        record for record in reference_runs(Path()) if _is_wanted(bench, record, arguments.only)
    ]
    left.sort(key=_cost)
    print(f"{len(left)} to replay, about {sum(map(_cost, left)) / 60:.0f} minutes of one core")
    if arguments.plan:
        return
    for record in left:
        run = record.run
        name = f"{run.setting} {run.method} seed {run.seed}"
        try:
            found = replay(bench, record)
        except UserError as error:
            print(f"{name}: not replayed: {error}", flush=True)
            continue
        file, key = place_of(run)
        replays = read_replays(file) | {key: found}
        with write_atomically(file) as temporary:
            temporary.write_text(written(replays), encoding="utf-8")
        print(f"{name}: {found.rounds} rounds: {found.outcome}", flush=True)


def _is_wanted(bench: Workbench, record: RunRecord, only: str) -> bool:
    """Whether a result has the current configuration and was not replayed with the current code."""
    run = record.run
    if record.state != "finished" or only not in f"{run.setting}/{run.method}":
        return False
    spec = bench.run_spec(run.setting, run.method, run.seed)
    if record.manifest.get("config_hash") != spec.digest:
        return False
    before = replay_of(record)
    return before is None or before.numerics != numerics.of_run(spec)


def _cost(record: RunRecord) -> float:
    """CPU seconds of the rounds to replay, from the result's own time."""
    done = record.manifest["rounds_done"] - record.manifest.get("went_on_from", {}).get("round", 0)
    return float(record.timing.get("cpu_seconds", 0.0) / done * record.rounds["round"][0])


def replay(bench: Workbench, record: RunRecord) -> Replay:
    """Replay and compare.

    Raises:
        UserError: if data are missing or have changed.
    """
    run, recorded = record.run, record.rounds
    rounds = int(recorded["round"][0])
    spec = bench.run_spec(run.setting, run.method, run.seed)
    execution = replace(spec.execution, executor=record.manifest["executor"], threads=1)
    spec = replace(spec, execution=execution)
    dataset = _dataset(bench, spec.setting.dataset)
    partition = _partition(bench, run, dataset)
    loaded = given.load(bench.root, spec, dataset, partition)
    plan = make_plan(spec, dataset, partition, loaded)
    data = data_of(plan, dataset, partition, loaded)
    then_data = record.manifest.get("data", {})  # some results are older than some keys
    differing = [key for key in data if key in then_data and data[key] != then_data[key]]
    if differing:
        raise UserError(f"its data differ in {', '.join(differing)}")
    with tempfile.TemporaryDirectory() as folder:
        state = first_state(plan, ClientStore(Path(folder)))
        for _ in range(rounds):
            before = state.server
            state.server, played = play_round(
                plan.federation, before, state.client_states, state.done
            )
            state.done += 1
            scoring.record(plan, state, before, played)
    row = dict(zip(state.rounds.columns, state.rounds.rows[0], strict=True))
    then = {name: values[0] for name, values in recorded.items()}
    outcome, agrees = compare(then, row, _same_machine(record))
    sha256 = record.manifest["files"][RECORD]
    return Replay(sha256, numerics.of_run(spec), rounds, outcome, agrees)


def _same_machine(record: RunRecord) -> bool:
    """Whether this kind of machine gives the same bits."""
    here, there = manifest.hardware("cpu"), record.manifest["hardware"]
    keys = ("machine", "processor", "vector_instructions")
    same = all(here[key] == there.get(key) for key in keys)
    return same and record.manifest["packages"].get("torch") == torch.__version__.partition("+")[0]


def compare(then: Mapping[str, Any], now: Mapping[str, float], bits: bool) -> tuple[str, bool]:
    """How two rows of a record differ, in words, and whether they count as the same."""
    missing = then.keys() - now.keys()  # columns that came later are not in older results
    if missing:
        return f"no longer recorded: {', '.join(sorted(missing))}", False
    pairs = {name: (float(then[name]), float(now[name])) for name in then}
    differing = {
        name: pair
        for name, pair in pairs.items()
        if pair[0] != pair[1] and not all(map(math.isnan, pair))
    }
    if not differing:
        return "same bits", True
    worst, (a, b) = max(differing.items(), key=lambda each: abs(each[1][0] - each[1][1]))
    words = f"{worst} {b:.6g} instead of {a:.6g}"
    near = all(
        abs(a - b) <= (max(LEAST, LOSS * abs(a)) if "loss" in name else SHARE)
        for name, (a, b) in differing.items()
    )
    if bits or not near:
        return words, False
    return f"within tolerance, on another kind of machine: {words}", True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plan", action="store_true", help="print what is left and stop")
    parser.add_argument("--only", default="", help="those whose setting and method contain this")
    try:
        main(parser.parse_args())
    except UserError as error:
        sys.exit(f"replay: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # the record is kept
