"""Play the first rounds of every reference result again, and write down which come out the same.

Up to the first evaluated round, with today's code, in the executor that the result was made with.
Bits are compared where the machine and PyTorch are those of the result, else numbers to 1e-6 (of
shares) and 1e-4 (of losses, relative). What was played with the code of today's ids is not played
again. Data and partitions are made first if they are missing.
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

SHARE, LOSS = 1e-6, 1e-4


def main(arguments: argparse.Namespace) -> None:
    os.nice(19)
    with suppress(OSError):  # where Linux shares out time by terminal first
        Path("/proc/self/autogroup").write_text("19", encoding="utf-8")
    torch.set_num_threads(1)
    bench = load()
    left = [
        record for record in reference_runs(Path()) if _is_wanted(bench, record, arguments.only)
    ]
    left.sort(key=_cost)
    print(f"{len(left)} to play, some {sum(map(_cost, left)) / 60:.0f} minutes of one core")
    if arguments.plan:
        return
    for record in left:
        run = record.run
        name = f"{run.setting} {run.method} seed {run.seed}"
        try:
            found = replay(bench, record)
        except UserError as error:
            print(f"{name}: not played: {error}", flush=True)
            continue
        file, key = place_of(run)
        replays = read_replays(file) | {key: found}
        with write_atomically(file) as temporary:
            temporary.write_text(written(replays), encoding="utf-8")
        print(f"{name}: {found.rounds} rounds: {found.outcome}", flush=True)


def _is_wanted(bench: Workbench, record: RunRecord, only: str) -> bool:
    """Whether a result is of today's configuration, and not yet played with today's code."""
    run = record.run
    if record.state != "finished" or only not in f"{run.setting}/{run.method}":
        return False
    spec = bench.run_spec(run.setting, run.method, run.seed)
    if record.manifest.get("config_hash") != spec.digest:
        return False
    before = replay_of(record)
    return before is None or before.numerics != numerics.of_run(spec)


def _cost(record: RunRecord) -> float:
    """CPU seconds of the rounds that are played, by what the result took."""
    done = record.manifest["rounds_done"] - record.manifest.get("went_on_from", {}).get("round", 0)
    return float(record.timing.get("cpu_seconds", 0.0) / done * record.rounds["round"][0])


def replay(bench: Workbench, record: RunRecord) -> Replay:
    """Play and compare.

    Raises:
        UserError: when data are missing or other data.
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
    """Whether this machine is one of the kind that gives the same bits."""
    here, there = manifest.hardware("cpu"), record.manifest["hardware"]
    keys = ("machine", "processor", "vector_instructions")
    same = all(here[key] == there.get(key) for key in keys)
    return same and record.manifest["packages"].get("torch") == torch.__version__.partition("+")[0]


def compare(then: Mapping[str, Any], now: Mapping[str, float], bits: bool) -> tuple[str, bool]:
    """In words how two rows of a record differ, and whether they count as the same."""
    missing = then.keys() ^ now.keys()
    if missing:
        return f"columns {', '.join(sorted(missing))} are in one of them only", False
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
        abs(a - b) <= (SHARE if "accuracy" in name else LOSS * max(abs(a), 1e-12))
        for name, (a, b) in differing.items()
    )
    if bits or not near:
        return words, False
    return f"within tolerance on another machine: {words}", True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plan", action="store_true", help="say what is left, and stop")
    parser.add_argument("--only", default="", help="those whose setting and method have this in it")
    try:
        main(parser.parse_args())
    except UserError as error:
        sys.exit(f"replay: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # what is written down stays
