"""Predict the rates of all shipped experiments on the GPU of ``run/h100.yaml``; ``make paper``.

``fedrepro estimate --device cuda`` reads them from ``run/h100_predicted.json`` on a machine
without a GPU, and predicts only what is not there.
"""

import json
from dataclasses import asdict

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import load
from fedrepro.run.calibration import calibrate
from fedrepro.run.rates import PREDICTED, stored_on_paper
from fedrepro.workflow.cost import CostModel
from fedrepro.workflow.estimate import chosen

LIMIT = 3600.0  # seconds


def main() -> None:
    bench = load(overrides=Overrides(device="cuda"))
    rates = stored_on_paper(bench.root)
    rates.models, rates.methods = {}, {}

    def save(line: str) -> None:
        print(line, flush=True)
        content = asdict(rates)
        del content["elsewhere"]
        PREDICTED.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    for scale in ("paper", "compact", "demo"):
        model = CostModel(bench, chosen(bench, (), scale))
        for key, why in calibrate(rates, model.workloads, model.methods(), LIMIT, save).items():
            print(f"not predicted: {key}: {why}")
        save(f"scale {scale}: done")


if __name__ == "__main__":
    main()
