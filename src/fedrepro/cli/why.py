"""``fedrepro explain``: what differs between two runs, or a run and today's code and data."""

import argparse
from pathlib import Path

from fedrepro.cli.arguments import requested, require_seed
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.provenance.arithmetic import of_manifest
from fedrepro.run.manifest import current_manifest
from fedrepro.run.results import MANIFEST, RunRecord, find_run, read_any
from fedrepro.run.run_comparison import Side, of_manifests, of_rounds, titled
from fedrepro.run.standing import data_now
from fedrepro.support.errors import bad_argument, refusal
from fedrepro.support.terminal import say
from fedrepro.workflow.rerun_checks import reasons_of

OTHER = "SETTING METHOD SEED, a manifest.json, or the folder that contains it"


def handle(arguments: argparse.Namespace) -> None:
    workbench, run = requested(arguments)
    if arguments.other is None:
        explain(workbench, run)
        return

    sides = _side(_found(workbench, run)), _side(_other(workbench, arguments.other))
    for word, side in zip(("from", "to"), sides, strict=True):
        print(f"{word} {side.name}")
    print(*titled({**of_manifests(*sides), "rounds": of_rounds(*sides)}), sep="\n")


def explain(workbench: Workbench, run: RunKey) -> None:
    """Print why Snakemake would make a run again, and what differs from today."""
    today, unknown = current_manifest(workbench, run)
    due = reasons_of(workbench, run)
    record = find_run(workbench.root, run)
    if due:
        print(*titled({"Snakemake would make it again because": due}), sep="\n")
    else:
        print("Snakemake would not make it again, unless one of its inputs is made again.")
    if not record.manifest:
        print(f"{record.folder}: {record.why}: no manifest to compare with today's")
        return
    kind = ", a reference result," if record.reference else ""
    print(f"From {record.folder}/{MANIFEST}{kind} to today:")
    if record.state == "damaged":
        print(f"  {record.why}; `fedrepro run` makes it again")
    differences = of_manifests(
        _side(record), Side("today's", today, today=True, folders=workbench.plugins)
    )
    if unknown:
        differences |= {"data": [f"cannot be compared: {unknown}"]}
    elif made_first := data_now(workbench, workbench.spec_of(run))[1]:  # before today's run
        differences["data"] = [*differences.get("data", ()), *map(str, made_first)]
    print(*(f"  {line}" for line in titled(differences) or ["nothing differs"]), sep="\n")


def _found(workbench: Workbench, run: RunKey) -> "RunRecord":
    """The record of a run, or of its reference result.

    Raises:
        UserError: if neither exists.
    """
    record = find_run(workbench.root, run)
    if not record.manifest:
        why = f"{record.why}: make the run first: {run.command}"
        raise refusal(record.folder, why, code="missing")
    return record


def _other(workbench: Workbench, words: list[str]) -> "RunRecord":
    """The run that ``--other`` names.

    Raises:
        UserError: if it names no run, or a run that has not been made.
    """
    if len(words) == 1:
        return _at(workbench, Path(words[0]))
    if len(words) != 3:
        raise bad_argument("--other", " ".join(words), OTHER)
    setting, method, seed = words
    if not (seed.isascii() and seed.isdigit()):
        raise bad_argument("--other: SEED", seed, "a whole number of at least 0")
    require_seed("--other: SEED", int(seed))
    return _found(workbench, RunKey(workbench.setting(setting).name, method, int(seed)))


def _at(workbench: Workbench, path: Path) -> "RunRecord":
    """The run whose manifest is at a path, possibly in another results tree."""
    folder = path.parent if path.name == MANIFEST else path
    if "\0" in str(path) or not (workbench.root / folder / MANIFEST).is_file():
        raise bad_argument("--other", str(path), OTHER)
    record = read_any(workbench.root, folder)
    if not record.manifest:
        raise refusal(record.folder, record.why, code="damaged")
    return record


def _side(record: "RunRecord") -> "Side":
    """One side of a comparison; warn if the run's files are damaged."""
    if record.state == "damaged":
        say(f"fedrepro: {record.folder}: {record.why}")
    manifest = {**record.manifest, "arithmetic": of_manifest(record.manifest)}  # also older ones
    return Side(str(record.folder), manifest, record.rounds)
