"""Find out which reference results today's code would give, and record it in replayed.json.

If git has the commit whose code made a result, that code and today's make the same run of a few
rounds on this machine, which must agree in every bit (:mod:`old_code`). Seeds that the same code
made need one such run. Otherwise today's code repeats the result's rounds up to the first evaluated
one, with its executor: their bits must agree if the kind of machine and PyTorch are the result's.
Elsewhere rounding differs in the last bits, and training amplifies it: after 50 rounds with 500
clients, losses were seen to differ by 2 %. There, shares must agree within 1 point, and losses
within 5 % or 0.01.
Skips results already replayed with the current numerics ids. Makes missing data and partitions
first.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import old_code
import torch
from old_code import ROOT, Short

from fedrepro.cli.run import _dataset, _partition
from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.engine.round import play_round
from fedrepro.provenance import numerics
from fedrepro.run import digests, input_artifacts, scoring
from fedrepro.run.assembly import make_plan
from fedrepro.run.manifest import is_of_this_kind
from fedrepro.run.replayed import RECORD, Replay, place_of, read_replays, replay_of, written
from fedrepro.run.results import RunRecord, reference_runs
from fedrepro.run.run_comparison import SAME, Number, numbers
from fedrepro.run.state import first_state
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically

SHARE, LOSS, LEAST = 0.01, 0.05, 0.01  # tolerances on another kind of machine


def main(arguments: argparse.Namespace) -> None:
    os.nice(19)
    torch.set_num_threads(1)
    bench = load()
    left = [
        record for record in reference_runs(Path()) if _is_wanted(bench, record, arguments.only)
    ]
    commits = commits_of(left)
    compared = [record for record in left if commits.get(record.manifest["code"])]
    repeated = [record for record in left if record not in compared]
    repeated = sorted((each for each in repeated if not _is_current(bench, each)), key=_cost)
    minutes = sum(map(_cost, repeated)) / 60
    print(f"{len(compared)} to compare with the code of {len({*commits.values()})} commits,")
    print(
        f"{len(repeated)} others to repeat in about {minutes:.0f} minutes of one core", flush=True
    )
    if arguments.plan:
        return
    with tempfile.TemporaryDirectory() as folder:
        for commit in sorted({*commits.values()}):
            theirs = [each for each in compared if commits[each.manifest["code"]] == commit]
            for record, found in compare_with(bench, commit, theirs, Path(folder)):
                _keep(record, found)
    for record in repeated:
        try:
            _keep(record, repeat(bench, record))
        except UserError as error:
            print(f"{_name(record)}: not replayed: {error}", flush=True)


def _name(record: RunRecord) -> str:
    return f"{record.run.setting} {record.run.method} seed {record.run.seed}"


def _keep(record: RunRecord, found: Replay) -> None:
    file, key = place_of(record.run)
    replays = read_replays(file) | {key: found}
    digests.record_replay(record.run, found._asdict())
    with write_atomically(file) as temporary:
        temporary.write_text(written(replays), encoding="utf-8")
    by = f" ({found.commit[:7]}'s code)" if found.commit else ""
    print(f"{_name(record)}: {found.rounds} rounds{by}: {found.outcome}", flush=True)


def _is_wanted(bench: Workbench, record: RunRecord, only: str) -> bool:
    """Whether a result has the current configuration and was not compared with its own code."""
    run = record.run
    if record.state != "finished" or only not in f"{run.setting}/{run.method}":
        return False
    spec = bench.run_spec(run.setting, run.method, run.seed)
    if record.manifest.get("config_hash") != spec.digest:
        return False
    before = replay_of(record)
    return not (before and before.commit and _is_current(bench, record))


def _is_current(bench: Workbench, record: RunRecord) -> bool:
    """Whether a result was replayed with today's code."""
    run, before = record.run, replay_of(record)
    now = numerics.of_run(bench.run_spec(run.setting, run.method, run.seed))
    return before is not None and before.numerics == now


def commits_of(records: Iterable[RunRecord]) -> dict[str, str]:
    """The commit of the code that made each result, by the code's fingerprint."""
    found: dict[str, str] = {}
    unknown: dict[str, Short] = {}
    for record in records:
        code, before = record.manifest["code"], replay_of(record)
        commit = old_code.named_commit(record.manifest) or (before.commit if before else "")
        if commit:
            found[code] = commit
        else:
            unknown[code] = _short(record)
    left = {code: run for code, run in unknown.items() if code not in found}
    return found | old_code.find_commits(left)


def _short(record: RunRecord) -> Short:
    run = record.run
    return Short(run.setting, run.method, run.seed, record.manifest["executor"])


def compare_with(
    bench: Workbench, commit: str, records: list[RunRecord], folder: Path
) -> list[tuple[RunRecord, Replay]]:
    """Compare the code of a commit, which made the results, with today's.

    Args:
        folder: keeps the short runs of today's code for other commits.
    """
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        run = _short(record)
        groups.setdefault((run.setting, run.method, run.executor), []).append(record)
    for setting, _, _ in groups:
        _dataset(bench, bench.setting(setting).dataset)  # downloads what both will prepare
    then, now = folder / commit, folder / "today"
    then.mkdir()
    now.mkdir(exist_ok=True)
    runs = [_short(group[0]) for group in groups.values()]
    with old_code.old_tree(commit, folder) as tree:
        played = old_code.play(tree, runs, then)
    again = old_code.play(ROOT, runs, now)
    found = []
    for run, group, one, two in zip(runs, groups.values(), played, again, strict=True):
        if one is None or two is None:
            continue  # why has been printed
        outcome = _outcome(then / run.folder, now / run.folder, group[0])
        for record in group:
            key = record.run
            ids = numerics.of_run(bench.run_spec(key.setting, key.method, key.seed))
            sha256, same = record.manifest["files"][RECORD], outcome == SAME
            replay = Replay(sha256, ids, old_code.ROUNDS, outcome, same, commit, run.seed)
            found.append((record, replay))
    return found


def _outcome(then: Path, now: Path, record: RunRecord) -> str:
    """What two short runs that stand for a result have in common, in words."""
    old, new = (
        json.loads((folder / "manifest.json").read_text(encoding="utf-8")) for folder in (then, now)
    )
    if old["code"] != record.manifest["code"]:
        raise UserError(f"{record.folder}: its code is not that of the commit")
    theirs = record.manifest.get("data", {})  # some results are older than some keys
    for key, value in new["data"].items():
        if old.get("data", {}).get(key, value) != value or theirs.get(key, value) != value:
            return f"its data differ in {key}"
    return old_code.difference(then, now) or SAME


def _cost(record: RunRecord) -> float:
    """CPU seconds of the rounds to replay, from the result's own time."""
    done = record.manifest["rounds_done"] - record.manifest.get("went_on_from", {}).get("round", 0)
    return float(record.timing.get("cpu_seconds", 0.0) / done * record.rounds["round"][0])


def repeat(bench: Workbench, record: RunRecord) -> Replay:
    """Repeat a result's first rounds with today's code and compare.

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
    loaded = input_artifacts.load(bench.root, spec, dataset, partition)
    plan = make_plan(spec, dataset, partition, loaded)
    data = input_artifacts.data_of_plan(plan, dataset, partition, loaded)
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
    row = {name: float(column[0]) for name, column in state.rounds.as_tree().items()}
    then = {name: values[0] for name, values in recorded.items()}
    outcome, agrees = compare(then, row, is_of_this_kind(record.manifest))
    sha256 = record.manifest["files"][RECORD]
    return Replay(sha256, numerics.of_run(spec), rounds, outcome, agrees)


def compare(then: Mapping[str, Any], now: Mapping[str, float], bits: bool) -> tuple[str, bool]:
    """How two rows of a record differ, in words, and whether they count as the same."""
    missing = then.keys() - now.keys()  # columns that came later are not in older results
    if missing:
        return f"no longer recorded: {', '.join(sorted(missing))}", False
    rows = ({name: [float(row[name])] for name in then} for row in (then, now))
    differing = [number for number in numbers(*rows, ()) if number.differs]
    if not differing:
        return SAME, True
    worst = max(differing, key=_distance)
    words = f"{worst.column} {worst.after:.6g} instead of {worst.before:.6g}"
    near = all(
        _distance(number)
        <= (max(LEAST, LOSS * abs(number.before)) if "loss" in number.column else SHARE)
        for number in differing
    )
    if bits or not near:
        return words, False
    return f"within tolerance, on another kind of machine: {words}", True


def _distance(number: Number) -> float:
    return abs(number.before - number.after)


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
