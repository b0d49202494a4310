"""A process that carries out a paper-scale run, shortened; prints what its CPU time goes into.

Arguments: the setting, the method, how many rounds to play, and a folder for the run. The data are
random, of the real ones' sizes: nothing is fetched. What is done once counts once, what is done in
every round or evaluation as often as in the whole run.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

START = time.process_time()

import numpy as np  # noqa: E402

from fedrepro.config.loading import load  # noqa: E402
from fedrepro.data.dataset import Dataset, Split  # noqa: E402
from fedrepro.data.partition.partition import make_partition  # noqa: E402
from fedrepro.run import checkpoint, runner, scoring  # noqa: E402
from fedrepro.run.assembly import Plan, make_plan  # noqa: E402
from fedrepro.run.store import ClientStore  # noqa: E402

PARTS = ("start", "training", "evaluation", "decisions", "store", "the rest")


class Clock:
    """CPU seconds by part; within a part that calls another, the other's count there only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._open: list[str] = []
        self._since = time.process_time()

    def _turn(self) -> None:
        now = time.process_time()
        if self._open:
            part = self._open[-1]
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now

    def counted(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*args: Any, **keys: Any) -> Any:
            self._turn()
            self._open.append(part)
            self.calls[part] = self.calls.get(part, 0) + 1
            try:
                return function(*args, **keys)
            finally:
                self._turn()
                self._open.pop()

        return inner


def random_data(held: dict[str, Any]) -> Dataset:
    """Of the sizes that config/datasets.yaml says; a data set with clients has them as groups."""
    random, shape, classes = np.random.default_rng(0), tuple(held["shape"]), held["classes"]

    def split(samples: int) -> Split:
        x = (
            random.standard_normal((samples, *shape)).astype(np.float32)
            if held.get("numbers") == "features"
            else random.integers(0, 256, (samples, *shape), dtype=np.uint8)
        )
        group = np.arange(samples) % held["clients"] if "clients" in held else None
        return Split(x, random.integers(0, classes, samples), group)

    task = "binary" if classes == 2 else "classification"
    test = split(held["test"]) if "test" in held else None
    return Dataset("random", task, classes, shape, split(held["train"]), test, None, None, {})


def main() -> None:
    setting, method, rounds, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    workbench = load()
    spec = workbench.run_spec(setting, method, 1)
    whole = spec.setting.rounds
    every = spec.setting.evaluate.every
    shorter = spec.setting.model_copy(update={"rounds": rounds})
    spec = replace(spec, setting=shorter)

    before = time.process_time()
    held = workbench.datasets[spec.setting.dataset].size
    assert held is not None
    data = random_data(held.model_dump(exclude_none=True))
    shares = make_partition(data.train.y, data.train.group, spec.setting.partition, 1)
    made = time.process_time() - before  # a run reads these from the disk

    clock = Clock()

    def planned(*args: Any, **keys: Any) -> Plan:
        plan = make_plan(*args, **keys)
        federation = plan.federation
        layer = type(federation.method)
        layer.aggregation_weights = clock.counted("decisions", layer.aggregation_weights)  # type: ignore[method-assign]
        execute = clock.counted("training", federation.execute)
        return replace(plan, federation=replace(federation, execute=execute))

    runner.make_plan = planned
    scoring._record_scores = clock.counted("evaluation", scoring._record_scores)
    scoring.mixtures = clock.counted("mixtures", scoring.mixtures)
    for name in ("get", "put", "settle"):
        setattr(ClientStore, name, clock.counted("clients", getattr(ClientStore, name)))
    checkpoint.save = clock.counted("checkpoint", checkpoint.save)
    runner._finish = clock.counted("finish", runner._finish)
    runner.play_round = clock.counted("round", runner.play_round)
    ran_from: list[float] = []
    playing = runner._play

    def play(*args: Any) -> None:
        ran_from.append(time.process_time())
        playing(*args)

    runner._play = play
    runner.run(spec, data, shares, folder, "code")

    longer = whole / rounds
    taken = {name: clock.seconds.get(name, 0.0) for name in (
        "training", "decisions", "clients", "round", "evaluation", "mixtures", "checkpoint",
        "finish",
    )}  # fmt: skip
    evaluations = math.ceil(whole / every) / max(1, clock.calls.get("evaluation", 1))
    saved = (whole // spec.execution.checkpoint_every) / max(1, clock.calls.get("checkpoint", 1))
    parts = {
        "start": ran_from[0] - START - made,
        "training": taken["training"] * longer,
        "evaluation": taken["evaluation"] * evaluations + taken["mixtures"],
        "decisions": taken["decisions"] * longer,
        "store": taken["clients"] * longer + taken["checkpoint"] * saved + taken["finish"],
        "the rest": taken["round"] * longer,
    }
    assert tuple(parts) == PARTS
    print(json.dumps({"rounds": whole, "played": rounds, "cpu_seconds": parts}))


if __name__ == "__main__":
    main()
