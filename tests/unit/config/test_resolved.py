"""The experiments are those that were written out in full before there were products.

``resolved.json`` has a hash of every method, setting, table and figure as it is after reading, and
of the descriptions of all runs of each table and figure. What it does not name may be added freely;
after a change that is meant, write it again:
``PYTHONPATH=tests python tests/unit/config/test_resolved.py``.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrepro.config.loading import load
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from support.places import ROOT

RECORD = Path(__file__).with_name("resolved.json")


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def resolved(bench: Workbench) -> Iterator[tuple[str, str]]:
    """Every place, such as ``ima.tables.table_1``, and the hash of what stands there."""
    for system, experiment in bench.experiments.items():
        for key, value in experiment.model_dump(mode="json").items():
            if key in ("methods", "settings", "tables", "computed", "figures"):
                for name, item in value.items():
                    yield f"{system}.{key}.{name}", digest(item)
            else:
                yield f"{system}.{key}", digest(value)
        for name in sorted(experiment.readings.keys() - experiment.settings.keys()):
            reading = experiment.readings[name].model_dump(mode="json")
            yield f"{system}.settings.{name}", digest(reading)
    for scale in SCALES:
        for (system, item), target in bench.targets(scale).items():
            specs = [bench.run_spec(run.setting, run.method, run.seed) for run in target.runs]
            if specs:
                runs = digest([spec.description() for spec in specs])
                yield f"{system}.{item}, runs at scale {scale}", runs


def test_the_experiments_are_those_that_were_written_out() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    found = dict(resolved(load(ROOT)))
    assert len(recorded) > 190
    assert {place: found.get(place) for place in recorded} == recorded


if __name__ == "__main__":
    RECORD.write_text(json.dumps(dict(resolved(load(ROOT))), indent=0) + "\n", encoding="utf-8")
