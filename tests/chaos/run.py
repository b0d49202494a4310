"""``make chaos``: things go wrong in a small reproduction, with fixed seeds, for some minutes.

What was injected is kept in .chaos; a call that was broken off goes on there.
"""

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.injections import INJECTIONS, Skipped
from chaos.world import World
from support.places import ROOT

FOLDER = ROOT / ".chaos"
SEEDS = range(1, 4)  # of each kind
LIMIT = 840.0  # seconds, after which nothing further is begun


def main() -> int:
    """Returns 1 where something was lost or is left to do."""
    wanted = sys.argv[1:] or list(INJECTIONS)
    began = time.monotonic()
    log = FOLDER / "injected.jsonl"
    if not log.exists() or json.loads(log.read_text("utf-8").splitlines()[0]) != _code():
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        log.write_text(json.dumps(_code()) + "\n", encoding="utf-8")
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()[1:]]
    done = {(each["kind"], each["seed"]) for each in records}
    left = [(kind, seed) for seed in SEEDS for kind in wanted if (kind, seed) not in done]
    world = World(FOLDER / "world") if left else None
    for kind, seed in left:
        if time.monotonic() - began > LIMIT:
            print(f"chaos: {LIMIT:.0f} s are over: call again for what is left", flush=True)
            break
        assert world
        record = _inject(world, kind, seed)
        records.append(record)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if record["verdict"] == "LOST":
            shutil.move(FOLDER / "world", FOLDER / f"lost-{kind}-{seed}")  # to be looked at
            world = World(FOLDER / "world")
    return _summary(records, len(SEEDS) * len(wanted))


def _inject(world: World, kind: str, seed: int) -> dict[str, object]:
    start, lost = time.monotonic(), 0.0
    try:
        survived = INJECTIONS[kind](world, Random(f"{kind} {seed}"))
        verdict, what, lost = "survived", survived.what, survived.lost
    except Skipped as error:
        verdict, what = "skipped", str(error)
    except AssertionError as error:
        verdict, what = "LOST", str(error)
    seconds = time.monotonic() - start
    print(f"{kind} {seed}: {verdict} ({seconds:.0f} s): {what}", flush=True)
    return {"kind": kind, "seed": seed, "verdict": verdict, "what": what, "lost": lost}


def _summary(records: list[dict[str, object]], wanted: int) -> int:
    counts = {
        verdict: sum(each["verdict"] == verdict for each in records)
        for verdict in ("survived", "skipped", "LOST")
    }
    lost = max((float(str(each["lost"])) for each in records), default=0.0)
    injected = counts["survived"] + counts["LOST"]
    print(
        f"chaos: {injected} injected, {counts['survived']} survived, {counts['skipped']} skipped; "
        f"most work lost by a kill: {lost:.1f} s, what came after the last checkpoint"
    )
    return int(counts["LOST"] > 0 or len(records) < wanted)


def _code() -> str:
    """Of all that the world is made of: another one begins anew."""
    digest = hashlib.sha256()
    for folder in ("src", "workflow", "tests/chaos"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
