"""Which code a run's numbers come from, as ids of :mod:`fedrepro.run.numerics`.

A run records these ids itself. A reference result may be older than them, or older than a change of
code that altered other runs' numbers: `make replay` replays its first rounds with today's code and
records next to the results of its paper whether the numbers agree.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.run import numerics
from fedrepro.run.difference import of_configurations
from fedrepro.run.results import PAPERS, REFERENCE, RunRecord
from fedrepro.support.errors import UserError

NAME = "replayed.json"  # in a paper's folder of reference results
RECORD = "rounds.parquet"  # its first rows are compared


class Replay(NamedTuple):
    """The outcome of replaying the first rounds of a reference result.

    Attributes:
        record: SHA-256 of the rounds.parquet of the result.
        numerics: ids of the code that replayed it.
        rounds: number of rounds replayed.
        outcome: "same bits", or the first or worst difference.
        agrees: whether its numbers count as those of that code.
        commit: whose code made the result. It and today's code made the same run of ``rounds``
            rounds on one machine. Empty: today's rounds were compared with the result's.
        seed: the seed of that run, which may be another one that the same code made.
    """

    record: str
    numerics: dict[str, str]
    rounds: int
    outcome: str
    agrees: bool
    commit: str = ""
    seed: int | None = None


def place_of(run: RunKey) -> tuple[Path, str]:
    """The file that records a run's replay, and the replay's name in it."""
    system, _, setting = run.setting.partition("/")
    return PAPERS / system / REFERENCE / NAME, f"{setting}/{run.method}/seed{run.seed}"


def read_replays(path: Path) -> dict[str, Replay]:
    """All replays of a file, by name; none if it does not exist.

    Raises:
        UserError: if it is damaged.
    """
    try:
        return TypeAdapter(dict[str, Replay]).validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        first = str(error).partition("\n")[0]
        raise UserError(f"{path}: damaged: {first}; `make replay` makes it again") from None


@cache  # a table asks for each of its runs
def _read(path: Path, _changed_at: int) -> dict[str, Replay]:
    return read_replays(path)


def replay_of(record: RunRecord) -> Replay | None:
    """The replay of this very reference result, if there is one."""
    if not record.reference:
        return None
    file, name = place_of(record.run)
    path = record.root / file
    if not path.exists():
        return None
    found = _read(path, path.stat().st_mtime_ns).get(name)
    files: dict[str, Any] = record.manifest.get("files", {})
    return found if found and found.record == files.get(RECORD) else None


def numerics_of(record: RunRecord) -> dict[str, str]:
    """The ids of the code that a run's numbers come from; empty if unknown."""
    replay = replay_of(record)
    if replay and replay.agrees:
        return replay.numerics
    found = record.manifest.get("numerics")
    return dict(found) if isinstance(found, dict) else {}


def other_code(record: RunRecord, today: RunSpec) -> str:
    """Why a run's numbers are not known to be those of today's code, in words; or ""."""
    then, now = numerics_of(record), numerics.of_run(today)
    replay = replay_of(record)
    if replay and not replay.agrees and replay.numerics == now:
        return f"played again, its first rounds differ: {replay.outcome}"
    if not then:
        return "made before code had numerics ids, and not played again (make replay)"
    other = sorted(part for part in {*then, *now} if then.get(part) != now.get(part))
    return f"made by other code: {', '.join(other)}" if other else ""


def not_of_today(record: RunRecord, today: RunSpec) -> str:
    """Why a result is not one of today's configuration and code, in words; or ""."""
    changed = of_configurations(record.manifest["run"], today.description())
    return f"made with another configuration: {changed}" if changed else other_code(record, today)


def changed_keys(record: RunRecord, today: RunSpec) -> tuple[str, ...]:
    """The keys of a run's description that have another value today."""
    now = json.loads(json.dumps(today.description()))
    then = record.manifest["run"]
    keys = {*now, *then}
    return tuple(sorted(key for key in keys if now.get(key) != then.get(key)))


def written(replays: dict[str, Replay]) -> str:
    """The text that :func:`read_replays` reads."""
    content = {name: replays[name]._asdict() for name in sorted(replays)}
    return json.dumps(content, indent=1) + "\n"
