"""What the commands but `fedrepro run` and Snakemake answer about one result, as JSON.

python -m support.answers SCRIPTS SETTING METHOD SEED, in a project's folder and with its package:
for each of them, whether the result in results/runs is the one that would be made now.
"""

import importlib.util
import json
import sys
from itertools import pairwise
from pathlib import Path

from fedrepro.cli.verify import _other_results
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.cost.estimate import chosen
from fedrepro.cost.model import CostModel
from fedrepro.report.cells import tables
from fedrepro.report.papers import published
from fedrepro.workflow.rerun_checks import reasons_of


def main() -> None:
    scripts, setting, method, seed = sys.argv[1:]
    run = RunKey(setting, method, int(seed))
    bench = load()
    spec = importlib.util.spec_from_file_location("reference", Path(scripts, "reference.py"))
    assert spec and spec.loader
    reference = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = reference
    spec.loader.exec_module(reference)
    name = f"{setting} {method} --seed {seed}"
    lines = [*_other_results(Path("results"))]
    kinds = [at for at, line in enumerate(lines) if not line.startswith("  ")]
    of_kind = [lines[at:end] for at, end in pairwise([*kinds, len(lines)])]
    again = next((each for each in of_kind if "made again" in each[0]), [])
    made = (Path() / run.folder / "manifest.json").exists()
    targets = [bench.table("ima", item) for item in bench.experiments["ima"].tables]
    computed = [tables.compute(bench, target, published.load(Path())) for target in targets]
    cells = [cell.result for table in computed for cell in table.cells]
    shown = [
        each
        for result in cells
        for each in result.runs
        if (result.setting, each.method, each.seed) == (setting, method, int(seed))
    ]
    answers = {
        "table": all(
            each.state == "finished" and not each.stale and not each.arithmetic for each in shown
        ),
        "why": not reasons_of(bench, run),
        "plan": run not in CostModel(bench, chosen(bench, [setting, method], None)).left,
        "verify": made and not any(line.startswith(f"  {name}: ") for line in again),
        "reference": run not in reference.keep_finished(bench, [run], compact=False),
    }
    print(json.dumps(answers))


main()
