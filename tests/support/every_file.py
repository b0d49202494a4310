"""A finished reproduction of a few seconds with every kind of file that a number goes through."""

import shutil
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.config.targets import RunKey
from fedrepro.run import digests, landed_runs
from fedrepro.run.results import reference_folder
from fedrepro.support import checksummed_json
from support.places import ROOT
from support.report_world import copy_inputs
from support.synthetic_world import METHODS

EXPERIMENT = """\
system: ima
title: Every kind of file
paper: none
methods:
  aaggff: {variant_of: aaggff_s, cdf: frechet}
settings:
  kept:
    dataset: mnist5k
    partition: {scheme: shards, clients: 5, classes_per_client: 2, seed: 1}
    model: logistic
    rounds: 4
    participation: 1.0
    epochs: 1
    batch_size: 200
    optimizer: {lr: 0.1}
    evaluate: {clients: true}
    methods: {ima: {window: 2, start: 0.8, decay: 0.0}}
    save_models_at: {fedavg: [3, 4]}
  held:
    extends: kept
    partition: {scheme: iid, clients: 4, test_fraction: 0.2}
    save_models_at: {}
  digits:
    dataset: mnist5k
    scaling: unit
    partition: {scheme: iid, clients: 4, test_fraction: 0.2}
    model: logistic
    rounds: 2
    participation: 1.0
    epochs: 1
    batch_size: 200
    optimizer: {lr: 0.1}
    evaluator: {model: logistic, epochs: 2, real_epochs: 1}
tables:
  table_1:
    title: First
    summary: {rounds: 1}
    rows: [{label: Kept, setting: kept}]
    columns:
      - {label: FedAvg, method: fedavg}
      - {label: FedProx, method: fedprox}
      - {label: IMA, method: ima+scaffold}
  table_2:
    title: Second
    rows: [{label: Digits, setting: digits, metric: {quality: accuracy}}]
    columns: [{label: Painter, method: painter}]
figures:
  figure_1: {kind: landscape, title: L, setting: kept, columns: [{label: F, method: fedavg}]}
  figure_2:
    kind: planes
    title: P
    grid: {points: 3, samples: 100}
    panels: [{label: K, setting: kept, method: fedavg, through: ["4.1", "4.2", "4.3"]}]
  figure_3:
    kind: decomposition
    title: D
    seeds: {demo: [1, 2], paper: [1, 2]}
    method: fedavg
    samples: 100
    show: [[variance]]
    panels: [{label: K, setting: kept}]
  figure_4: {kind: regret, title: R, method: aaggff+fedavg, panels: [{label: H, setting: held}]}
  figure_5:
    kind: sheets
    title: S
    panels: [{label: D, setting: digits}]
    columns: [{label: P, method: painter}]
  figure_6: {kind: shares, title: A}
  figure_7: {kind: partitions, title: H, panels: [{label: K, setting: kept}]}
"""
RUNS = (
    ("kept", "fedavg", 1), ("kept", "fedavg", 2), ("kept", "scaffold", 1),
    ("kept", "scaffold", 2), ("kept", "ima+scaffold", 1), ("kept", "fedprox", 1),
    ("kept", "fedprox", 2), ("held", "aaggff+fedavg", 1), ("held", "aaggff+fedavg", 2),
    ("digits", "painter", 1), ("digits", "painter", 2),
)  # fmt: skip
REFERENCES = (RunKey("ima/kept", "fedprox", 1), RunKey("ima/kept", "fedprox", 2))
# Of those in git, what `make` leaves: each copy is checked, and there are a hundred.
LANDED = ("aaggff/compact/compact-silos", "aaggff/compact/compact-silos-fmnist")
FEW = ("fedavg", "aaggff+fedavg")
THROUGH = ("--points", "3", "--samples", "100")
ANALYSES = (
    *(("landscape", "ima/kept", "fedavg", "--seed", seed) for seed in "12"),
    *(
        ("landscape", "ima/kept", "fedavg", "--seed", seed, "--through", "4.1", "4.2", "4.3",
         *THROUGH)
        for seed in "12"
    ),
    *(("regret", "ima/held", "aaggff+fedavg", "--seed", seed) for seed in "12"),
    *(("quality", "ima/digits", "painter", "--seed", seed) for seed in "12"),
    *(("decompose", "ima/kept", "fedavg", "--seeds", *seeds, "--samples", "100")
      for seeds in ("12", "21")),
)  # fmt: skip
STUDY = {
    "seeds": [1],
    "cases": {
        "equal": {
            "weights": [0.6, 0.4],
            "followed": [0.6, 0.4],
            "sampled": [[0.6, 0.4]],
            "p": [0.5],
        }
    },
}


def make(root: Path) -> None:
    """Everything, by the commands that people and rules call."""
    copy_inputs(root, compact=True)
    for folder in (root / "reports/papers").glob("*/compact/*"):
        if folder.relative_to(root / "reports/papers").as_posix() not in LANDED:
            shutil.rmtree(folder)
        else:
            setting = f"{folder.parts[-3]}/{folder.name}"
            few = landed_runs.runs_landed_in(root, setting).items()
            kept = {run: each for run, each in few if run.method in FEW and run.seed < 3}
            assert {run.method for run in kept} == {*FEW}
            landed_runs.write(root, setting, kept)
    (root / "reports/papers/systems.yaml").write_text("- ima\n")
    (root / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    (root / "config/config.yaml").write_text(
        "executor: sequential\nscale: paper\nseeds: {demo: [1], paper: [1]}\n"
    )
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT)
    with pytest.MonkeyPatch.context() as patch:
        stand_in(root, patch)
        for setting, method, seed in RUNS:
            call("run", f"ima/{setting}", method, "--seed", str(seed))
        for run in REFERENCES:
            reference_folder(run).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(run.folder, reference_folder(run))
            (reference_folder(run) / "model.safetensors").unlink()
        for words in ANALYSES:
            call(*words)
        for name in ("fedevg_assumption", "other"):
            checksummed_json.write(Path(f"results/studies/{name}.json"), STUDY, f"studies/{name}")
        for item in ("table_1", "table_2"):
            call("table", "ima", item)
        for paper in digests.papers_in(root):
            digests.record_all(root, paper)


def stand_in(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Stand in a copy of it."""
    patch.chdir(root)
    patch.setenv("FEDREPRO_METHODS", str(METHODS))


def call(*words: str) -> None:
    assert main([*words]) == 0, words
