"""Tell what replays have shown of reference results, and whether code gives today's numbers.

A run records the ids of its code itself (:mod:`fedrepro.provenance.numerics`). A reference result
may be older than them, or older than a change of code that altered other runs' numbers: `make
replay` replays its first rounds with today's code and records next to the results of its paper
whether the numbers agree.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.provenance import numerics
from fedrepro.provenance.identity import Difference, Identity, Meaning, differences, identity_of
from fedrepro.run.landed_runs import PAPERS
from fedrepro.run.results import REFERENCE, RunRecord
from fedrepro.support.errors import damaged
from fedrepro.support.files import read_bytes
from fedrepro.support.scoped_cache import ScopedCache

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
        return TypeAdapter(dict[str, Replay]).validate_json(read_bytes(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        first = str(error).partition("\n")[0]
        raise damaged(path, f"{first}; restore it from the repository") from None


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
    replay = _read(path, path.stat().st_mtime_ns).get(name)
    files: dict[str, Any] = record.manifest.get("files", {})
    return replay if replay and replay.record == files.get(RECORD) else None


_identities = ScopedCache[tuple[Path, RunKey, Path], Identity]()


def identity_of_record(record: RunRecord) -> Identity:
    """The identity of a result; a replay with the same bits counts as made by the code it names."""
    key = record.root, record.run, record.folder
    return _identities.of(key, lambda: _identity_of(record))


def _identity_of(record: RunRecord) -> Identity:
    identity, replay = Identity.of(record.manifest), replay_of(record)
    if replay and replay.agrees:
        return replace(identity, numerics=numerics.recorded(replay.numerics))
    return identity


def differences_of(
    record: RunRecord, spec: RunSpec, data: Mapping[str, Any] = MappingProxyType({})
) -> list[Difference]:
    """Lists how a result's identity differs from that of a specification.

    Args:
        data: what identifies the data that a run of it would have, as far as that is known.
    """
    identity, replay = identity_of_record(record), replay_of(record)
    wanted = identity_of(spec, data, fingerprinted=not identity.numerics)
    listed = differences(identity, wanted)
    played = numerics.recorded(replay.numerics) if replay and not replay.agrees else {}
    if replay and played and not numerics.differing(played, wanted.numerics):
        words = f"played again, its first rounds differ: {replay.outcome}"
        listed = [difference for difference in listed if difference.about != "code"]
        listed.append(Difference(Meaning.OTHER_NUMBERS, "code", "replay", words=words))
    return listed


def written(replays: dict[str, Replay]) -> str:
    """The text that :func:`read_replays` reads."""
    content = {name: replays[name]._asdict() for name in sorted(replays)}
    return json.dumps(content, indent=1) + "\n"
