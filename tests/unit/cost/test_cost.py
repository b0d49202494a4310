"""What targets cost, derived by hand from stored rates; nothing is measured or trained here."""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from fedrepro.cli import check_paper
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.partition_sizes import DataShares, estimated_shares
from fedrepro.config.targets import RunKey
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.cost import data_sizes
from fedrepro.cost import model as cost_model
from fedrepro.cost.data_sizes import counted_shares, sample_bytes
from fedrepro.cost.estimate import CostEstimate, chosen, makespan
from fedrepro.cost.model import CostModel
from fedrepro.cost.network_size import size_of
from fedrepro.cost.rates import MethodKey, MethodRate, ModelRate, Rates, Workload
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedprox import FedProx
from fedrepro.provenance import arithmetic, numerics
from fedrepro.run.results import timing_of
from fedrepro.run.shared_prefix import shared_rounds, sharing_of
from fedrepro.support import checksummed_json
from fedrepro.support.cores import usable_cores
from fedrepro.support.plugins import NONE
from support import tiny_run
from support.manifests import write_manifest
from support.numbers_in_text import numbers_in
from support.places import ROOT
from support.project import CONFIG, EXPERIMENT
from support.refusals import refused

LOGISTIC = Workload("logistic", (1, 28, 28), "bytes", 10, 100)
RATE = ModelRate(0.5, 0.25, 0.001, 0.1, 7850, 500_000_000, flop=15_700)
PROX_KEY = MethodKey("fedprox", "", 1)
AVERAGE, PROX = RunKey("ima/tiny", "fedavg", 1), RunKey("ima/tiny", "fedprox", 1)
# 4,000 samples, 4 equal clients: 10 mini-batches of 100 each. 2 rounds of 2 clients: 40 steps.
# 40 * .5 for steps, 2 * 2 * .25 for clients, 2 * 1,000 * .001 + 2 * .1 for scores, 3 to start.
AVERAGE_SECONDS = 20 + 1 + 2.2 + 3
PROX_SECONDS = 2 * (20 + 1) + 2.2 + 3


def sized(
    train: int, test: int, shape: tuple[int, ...], numbers: Any, classes: int, clients: int | None
) -> DataSize:
    return DataSize(
        train=train, test=test, shape=shape, numbers=numbers, classes=classes, clients=clients
    )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    (tmp_path / "config/experiments").mkdir(parents=True)
    (tmp_path / "config/config.yaml").write_text(CONFIG)
    (tmp_path / "config/experiments/ima.yaml").write_text(EXPERIMENT)
    catalogue = (ROOT / "config/datasets.yaml").read_text(encoding="utf-8")
    (tmp_path / "config/datasets.yaml").write_text(catalogue, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return load(tmp_path)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Rates:
    """A table, which commands read, too."""
    methods = {MethodKey("fedavg", "", 1): MethodRate(1.0), PROX_KEY: MethodRate(2.0)}
    made = Rates({"processor": "A processor"}, 3.0, {LOGISTIC: RATE}, methods)
    monkeypatch.setattr(Rates, "read", lambda device: made)
    return made


GIVEN = """\
  maker:
    extends: tiny
    scaling: symmetric
    partition: {scheme: at_server, share: 0.1}
    participation: 1.0
    model: wgan_gp_small
    optimizer: {name: adam, lr: 0.01}
  images:
    extends: maker
    inputs: {generator: {setting: maker, method: wgan_gp, seed: 7}}
  taught:
    extends: maker
    model: logistic
    partition: {scheme: iid, clients: 4}
    inputs: {unlabelled: {setting: images, method: generated}}
"""


def estimate_of(bench: Workbench, *names: str) -> CostEstimate:
    return CostEstimate(CostModel(bench, chosen(bench, names, None)))


def lines(bench: Workbench, rates: Rates) -> dict[tuple[str, str], dict[str, Any]]:
    estimate = estimate_of(bench)
    return {(line["kind"], line["name"]): line for line in estimate.lines()}


def test_a_compact_table_is_planned_at_its_own_scale() -> None:
    bench = load(ROOT)
    (table,) = chosen(bench, ("superfed/compact_noise",), None)
    assert table.scale == "compact" and table.required
    (table,) = chosen(bench, ("superfed/compact_noise",), "demo")
    assert table.runs and not table.required


def test_sums_count_shared_runs_once(bench: Workbench, rates: Rates) -> None:
    found = lines(bench, rates)
    hours = {key: line["hours"] * 3600 for key, line in found.items()}
    both = AVERAGE_SECONDS + PROX_SECONDS
    assert hours == pytest.approx(
        {
            ("table", "ima/table_1"): both,
            ("table", "ima/table_2"): AVERAGE_SECONDS,
            ("method", "ima fedavg"): AVERAGE_SECONDS,
            ("method", "ima fedprox"): PROX_SECONDS,
            ("system", "ima"): both,
            ("all", "all"): both,
        }
    )
    everything = found["all", "all"]
    assert (everything["runs"], everything["done"], everything["unknown"]) == (2, 0, 0)
    assert everything["steps"] == 80
    # Parameters, and two rounds with a row for each of two clients.
    assert everything["disk"] == 2 * (4 * 7850 + 100 * 2 * 2)
    # A process, 5,000 images with their labels, two clients' reports.
    assert everything["memory"] == 500_000_000 + 5_000 * (784 + 8) + 2 * 4 * 7850


def test_what_is_finished_is_left_out_and_said(
    bench: Workbench, rates: Rates, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = bench.run_spec("ima/tiny", "fedavg", 1)
    folder = bench.root / AVERAGE.folder
    folder.mkdir(parents=True)
    manifest = {
        "config_hash": spec.digest, "numerics": numerics.of_run(spec),
        "run": spec.description(), "rounds_done": 2, "status": "finished", "files": {},
    }  # fmt: skip
    write_manifest(folder, manifest)
    found = lines(bench, rates)
    assert found["all", "all"]["hours"] * 3600 == pytest.approx(PROX_SECONDS)
    assert [found["table", f"ima/table_{n}"]["done"] for n in (1, 2)] == [1, 1]
    assert main(["plan"]) == 0
    (said,) = (line for line in capsys.readouterr().out.splitlines() if "finished" in line)
    assert numbers_in(said) == [1]
    write_manifest(folder, {**manifest, "numerics": {}})
    assert lines(bench, rates)["all", "all"]["done"] == 0


def test_rounds_that_another_run_plays_are_left_out(bench: Workbench, rates: Rates) -> None:
    """ima+fedavg, from round 3 of 4 on; it waits for fedavg, which no table here asks for."""
    text = EXPERIMENT.replace("rounds: 2", "rounds: 4").replace(
        "  fedprox: {", "  ima: {window: 1}\n  fedprox: {"
    )
    columns = "{label: FedAvg, method: fedavg}"
    text = text.replace(columns, columns.replace("fedavg", "ima+fedavg"))
    (bench.root / "config/experiments/ima.yaml").write_text(text)
    bench, child = load(bench.root), RunKey("ima/tiny", "ima+fedavg", 1)
    found = CostEstimate(CostModel(bench, chosen(bench, ("ima/table_2",), None)))
    costs = found.cost_model.costs()
    assert {run: cost.steps for run, cost in costs.items()} == {child: 20, AVERAGE: 80}
    # Whatever number of cores there is: one goes on where the other ends.
    one_by_one = math.fsum(cost.seconds or 0 for cost in costs.values())
    assert found.wall_seconds(costs.values(), 9) == pytest.approx(one_by_one)
    # Its model and one that it keeps for the child run, 100 bytes a client of a round at most.
    assert costs[AVERAGE].disk == 2 * 4 * 7850 + 100 * 4 * 2
    # It is finished and has kept nothing.
    spec = bench.run_spec("ima/tiny", "fedavg", 1)
    folder = bench.root / AVERAGE.folder
    folder.mkdir(parents=True)
    made = {"status": "finished", "files": {}, "run": spec.description()}
    write_manifest(folder, {**made, "numerics": numerics.of_run(spec)})
    assert found.cost_model.inherited_rounds(child, left=()) == 0
    for number in (1, 2, 4):
        (bench.root / f"results/trunks/ima/tiny/fedavg/seed1/round{number}").mkdir(parents=True)
    assert found.cost_model.inherited_rounds(child, left=()) == 2
    (bench.root / "results/trunks/ima/tiny/fedavg/seed1/round3").mkdir()
    assert found.cost_model.inherited_rounds(child, left=()) == 3
    write_manifest(folder, {**made, "numerics": {"core": "other"}})
    assert found.cost_model.inherited_rounds(child, left=()) == 0
    sharing = sharing_of(bench, AVERAGE)
    assert sharing.rounds == {3} and sharing.parent is None
    assert sharing.folder == bench.root / "results/trunks/ima/tiny/fedavg/seed1"
    parent = sharing_of(bench, child).parent
    assert parent and (parent.spec.method, parent.rounds) == ("fedavg", 3)


@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        ("ima+fedavg", 3), ("ima", 3), ("ima+fedadam", 3), ("ima+fedprox", 3), ("ima+strong", 3),
        ("wide+fedavg", 1), ("never+fedavg", 3), ("kept+fedavg", 1), ("other+fedavg", 0),
        ("superfed_mm", 2), ("superfed_mm@released", 2), ("superfed_mm+fedadam", 2), ("far", 0),
        ("steered", 0),
        ("superfed_lm", 0), ("ima+superfed_mm", 3), ("alone", 0), ("aaggff_d+fedavg", 0),
        ("ima+aaggff_d+fedavg", 3), ("fedavg", 0),
    ],
)  # fmt: skip
def test_how_many_rounds_are_shared(bench: Workbench, method: str, rounds: int) -> None:
    """t_s is round 3 of 4; a window of 3 fills from round 1 on; what is kept is a run's own.

    L is round 2. What has another mu or server optimizer than its parent run, or no parent run,
    shares nothing.
    """
    variants = """  ima: {window: 1}
  wide: {variant_of: ima, window: 3}
  never: {variant_of: ima, start: 1.0}
  kept: {variant_of: ima}
  other: {variant_of: ima, start: 0.0}
  strong: {variant_of: fedprox, mu: 1.0}
  superfed_mm: {start: 0.5, parent: fedprox}
  far: {variant_of: superfed_mm, mu: 1.0}
  alone: {variant_of: superfed_mm, parent: null}
  steered: {variant_of: superfed_mm, parent: fedprox+fedadam}
  fedprox: {"""
    text = EXPERIMENT.replace("rounds: 2", "rounds: 4\n    save_models_at: {kept+fedavg: [2, 3]}")
    text = text.replace("  fedprox: {", variants)
    (bench.root / "config/experiments/ima.yaml").write_text(text)
    assert shared_rounds(load(bench.root), RunKey("ima/tiny", method, 1)) == rounds


def test_runs_of_two_classes_of_arithmetic_share_no_round(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with executor `auto`, where stacking pays for one of them only."""
    text = EXPERIMENT.replace("rounds: 2", "rounds: 4")
    text = text.replace("  fedprox: {", "  ima: {window: 1}\n  fedprox: {")
    (bench.root / "config/experiments/ima.yaml").write_text(text)
    bench, child = load(bench.root), RunKey("ima/tiny", "ima+fedavg", 1)
    for classes, rounds in (({}, 3), ({"fedavg": "stacked"}, 0), ({"ima+fedavg": "stacked"}, 0)):
        monkeypatch.setattr(
            arithmetic, "of_spec", lambda spec, of=classes: of.get(spec.composition, "per client")
        )
        assert shared_rounds(bench, child) == rounds
        assert (sharing_of(bench, child).parent is None) == (not rounds)


def test_a_partition_that_is_there_is_counted(bench: Workbench, rates: Rates) -> None:
    setting = bench.setting("ima/tiny")
    labels = np.arange(250) % 10
    made = make_partition(labels, None, setting.partition, 1)  # 62 or 63 samples each
    made.save(bench.root / setting.partition_path(1))
    estimate = estimate_of(bench)
    cost = estimate.cost_model.cost(AVERAGE)
    assert cost.counted and cost.steps == 2 * 2 * 1
    assert estimate.as_json()["estimated_partitions"] == 0


def test_mixtures_and_clients_of_their_own_are_scored(
    bench: Workbench, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bench.root / "config/experiments/ima.yaml"
    text = file.read_text().replace("clients: 4}", "clients: 4, test_fraction: 0.2}")
    file.write_text(
        text.replace("    epochs: 1\n", "    epochs: 1\n    evaluate: {clients: true}\n")
    )
    rates.methods[PROX_KEY] = MethodRate(1.0)
    monkeypatch.setattr(FedAvg, "interpolates", True)
    monkeypatch.setattr(FedProx, "centralized", True)
    monkeypatch.setattr(FedProx, "interpolates", False)
    estimate = estimate_of(load(bench.root))
    # 8 mini-batches a client: 32 steps. Twice 1,000 + 800 samples in 1 + 4 scores; after the last
    # round 800 samples of 4 clients at 11 mixtures.
    samples, scores = 2 * 1_800 + 11 * 800, 2 * 5 + 11 * 4
    expected = 32 * 0.5 + 4 * 0.25 + samples * 0.001 + scores * 0.1 + 3
    assert estimate.cost_model.cost(AVERAGE).seconds == pytest.approx(expected)
    # One client with all 3,200 samples.
    pooled = 2 * 32 * 0.5 + 2 * 0.25 + 2 * 1_800 * 0.001 + 2 * 5 * 0.1 + 3
    assert estimate.cost_model.cost(PROX).seconds == pytest.approx(pooled)


def test_validation_samples_are_scored_by_the_shared_model_and_by_clients(
    bench: Workbench, rates: Rates
) -> None:
    file = bench.root / "config/experiments/ima.yaml"
    text = file.read_text().replace("clients: 4}", "clients: 4, validation: 0.25}")
    file.write_text(text)
    # Each client trains on 750 samples: 8 mini-batches of 100, for two clients in two rounds.
    shared = 2 * 2 * 8 * 0.5 + 4 * 0.25 + 2 * (1_000 + 1_000) * 0.001 + 2 * 2 * 0.1 + 3
    assert estimate_of(load(bench.root)).cost_model.cost(AVERAGE).seconds == pytest.approx(shared)
    file.write_text(
        text.replace("    epochs: 1\n", "    epochs: 1\n    evaluate: {clients: true}\n")
    )
    own = shared + 2 * 1_000 * 0.001 + 2 * 2 * 4 * 0.1
    assert estimate_of(load(bench.root)).cost_model.cost(AVERAGE).seconds == pytest.approx(own)


def test_what_a_partition_keeps_out_is_counted(tmp_path: Path) -> None:
    scheme = Iid(scheme="iid", clients=5, test_fraction=0.2, validation=0.25, stratified=False)
    made = make_partition(np.arange(250) % 10, None, scheme, 1)
    made.save(tmp_path / "part.npz")
    # 50 samples each: 10 held out, 10 kept out, 30 to train on.
    assert counted_shares(tmp_path / "part.json", 20) == DataShares(5, 150, 50, 10, True, 50)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        ("{scheme: iid, clients: 3}", DataShares(3, 1000, 0, 3 * 4, False)),
        # Two in ten natural clients, a tenth of whose samples is held out: 90 each.
        (
            "{scheme: natural, clients: 2, test_fraction: 0.1}",
            DataShares(2, 180, 20, 2 * 1.4, False),
        ),
        # What the server has, nobody trains on; or it alone does.
        ("{scheme: iid, clients: 2, server: 0.5}", DataShares(2, 500, 0, 2 * 3, False)),
        # Of 800 that are not held out a quarter is kept out.
        (
            "{scheme: iid, clients: 2, test_fraction: 0.2, validation: 0.25}",
            DataShares(2, 600, 200, 2 * 3, False, 200),
        ),
        ("{scheme: at_server, share: 0.3}", DataShares(1, 300, 0, 3, False)),
        # Each part is rounded before the next is taken: 250, 75 of 750, 202 of 675.
        (
            "{scheme: iid, clients: 3, server: 0.25, test_fraction: 0.1, validation: 0.3}",
            DataShares(3, 473, 75, 3 * 2, False, 202),
        ),
        (
            "{scheme: shards, clients: 3, classes_per_client: 2}",
            DataShares(3, 1000, 0, 3 * 4, False),
        ),
        ("{scheme: paired_shards, clients: 3}", DataShares(3, 1000, 0, 3 * 4, False)),
        # There are no more samples than all.
        ("{scheme: natural, clients: 20}", DataShares(20, 1000, 0, 20 * (0.5 + 0.5), False)),
        ("{scheme: natural}", DataShares(10, 1000, 0, 10 * 1.5, False)),
        ("{scheme: dirichlet, clients: 5, alpha: 1}", DataShares(5, 1000, 0, 5 * 2.5, False)),
        # Two clients in each of ten domains.
        (
            "{scheme: domains, within: {scheme: iid, clients: 2}}",
            DataShares(20, 1000, 0, 20 * (0.5 + 0.5), False),
        ),
    ],
)
def test_estimated_shares(bench: Workbench, partition: str, expected: DataShares) -> None:
    file = bench.root / "config/experiments/ima.yaml"
    file.write_text(file.read_text().replace("{scheme: iid, clients: 4}", partition))
    setting = load(bench.root).setting("ima/tiny")
    assert estimated_shares(setting, sized(1000, 0, (1,), "bytes", 2, 10)) == expected
    unknown = estimated_shares(setting, sized(1000, 0, (1,), "bytes", 2, None))
    if "domains" in partition or partition == "{scheme: natural}":
        assert unknown is None
    elif "natural" not in partition:
        assert unknown == expected


def test_missing_data_are_listed(bench: Workbench, rates: Rates) -> None:
    (missing,) = estimate_of(bench).missing()
    assert (missing["name"], missing["runs"], missing["fetch"]) == ("mnist5k", 2, "to download")
    assert (missing["download"], missing["unsized"]) == (1_106_785, 0)
    assert missing["disk"] == 5_000 * (784 + 8)
    assert estimate_of(bench).jobs() == {
        "download": 1, "prepare": 1, "partition": 1, "run": 2, "analysis": 0,
    }  # fmt: skip


def test_data_that_are_prepared_are_not_missing(bench: Workbench, rates: Rates) -> None:
    estimate = estimate_of(bench)
    estimate.cost_model.data("mnist5k")  # as the catalogue has them, which is enough here
    folder = bench.root / "results/data/mnist5k"
    folder.mkdir(parents=True)
    (folder / "meta.json").touch()
    assert estimate.missing() == []
    assert (estimate.jobs()["download"], estimate.jobs()["prepare"]) == (0, 0)


def test_models_that_are_kept_take_disk(bench: Workbench, rates: Rates) -> None:
    """After two rounds, of two clients each, and the server's."""
    file = bench.root / "config/experiments/ima.yaml"
    text = EXPERIMENT.replace(
        "    rounds: 2\n", "    rounds: 2\n    save_models_at: {fedavg: [1, 2]}\n"
    )
    file.write_text(text, encoding="utf-8")
    found = estimate_of(load(bench.root)).cost_model.costs()
    assert found[AVERAGE].disk - found[PROX].disk == 2 * 3 * 4 * 7850


def test_what_is_given_is_made_first_and_counted(bench: Workbench, rates: Rates) -> None:
    text = EXPERIMENT.replace("tables:", GIVEN + "tables:")
    first, second = text.split("  table_2:")
    second = second.replace("setting: tiny", "setting: taught").replace("fedavg", "feddf")
    file = bench.root / "config/experiments/ima.yaml"
    file.write_text(f"{first}  table_2:{second}", encoding="utf-8")
    found = estimate_of(load(bench.root), "ima/table_2")
    maker, images = RunKey("ima/maker", "wgan_gp", 7), RunKey("ima/images", "generated", 1)
    assert set(found.cost_model.runs) == {RunKey("ima/taught", "feddf", 1), images, maker}
    # The server distils on 25,000 images, in 10 epochs of mini-batches of 64, after each of the two
    # rounds of all 4 clients: these, and then the student, look at them. The ensemble is scored.
    taught = RunKey("ima/taught", "feddf", 1)
    expected = 80 * 0.5 + 8 * 0.25 + 2.2 + 3  # as FedAvg
    expected += 2 * (10 * 391 * 0.5 * 64 / 100 + 25_000 * 5 * 0.001)
    expected += 2 * 4 * 1_000 * 0.001
    assert found.cost_model.cost(taught).seconds == pytest.approx(expected)


def test_images_that_are_drawn_cost_by_their_number(bench: Workbench, rates: Rates) -> None:
    """25,000 of them, where 250 were measured; whatever it takes to draw so many is counted."""
    text = EXPERIMENT.replace("tables:", GIVEN + "tables:").replace(
        "setting: tiny}", "setting: images}"
    )
    text = text.replace("{label: FedAvg, method: fedavg}", "{label: FedAvg, method: generated}")
    (bench.root / "config/experiments/ima.yaml").write_text(text, encoding="utf-8")
    cost_model, images = CostModel(load(bench.root), ()), RunKey("ima/images", "generated", 1)
    key = Workload("wgan_gp_small", (1, 28, 28), "bytes", 10, 100, method="generated epochs 1")

    def seconds(step: float, client: float) -> float:
        rates.models[key] = replace(RATE, step_seconds=step, client_seconds=client)
        cost = cost_model.cost(images)
        assert cost.seconds is not None and cost.workload == key
        return cost.seconds

    assert seconds(1.5, 0.25) - seconds(0.5, 0.25) == pytest.approx(100)
    assert seconds(0.5, 1.25) - seconds(0.5, 0.25) == pytest.approx(100)


@pytest.mark.parametrize(
    ("names", "size"),
    [(("mnist", "mnist_32"), 11_594_722), (("cifar10", "cifar10_28"), 170_052_171)],
)
def test_a_file_of_two_data_sets_is_fetched_once(
    names: tuple[str, str], size: int, bench: Workbench
) -> None:
    """So is an archive around several files."""
    other = f"  other: {{extends: tiny, dataset: {names[1]}}}\n"
    text = EXPERIMENT.replace("tables:", f"{other}tables:")
    text = text.replace("dataset: mnist5k", f"dataset: {names[0]}")
    head, _, tail = text.rpartition("setting: tiny")
    (bench.root / "config/experiments/ima.yaml").write_text(f"{head}setting: other{tail}")
    first, second = estimate_of(load(bench.root)).missing()
    assert (first["name"], second["name"]) == names
    assert (first["download"], first["unsized"]) == (size, 0)
    assert (second["download"], second["unsized"]) == (0, 0)


def test_another_mini_batch_stands_in(bench: Workbench, rates: Rates) -> None:
    """A step of half as many samples takes half as long."""
    file = bench.root / "config/experiments/ima.yaml"
    rare = "  rare: {extends: tiny, batch_size: 50}\n  other: {extends: tiny, model: twonn}\n"
    file.write_text(EXPERIMENT.replace("tables:", f"{rare}tables:"), encoding="utf-8")
    model = estimate_of(load(bench.root)).cost_model
    # 20 mini-batches of 50 each.
    assert model.cost(RunKey("ima/rare", "fedavg", 1)).seconds == pytest.approx(80 * 0.25 + 6.2)
    # Another model by its floating-point operations: 199,210 parameters, 784 to 200, 200, 10.
    larger = (784 * 200 + 200 * 200 + 200 * 10) / (784 * 10)
    cost = model.cost(RunKey("ima/other", "fedavg", 1))
    expected = 40 * 0.5 * larger + 1 + 2 * 1_000 * 0.001 * larger + 0.2 + 3
    assert cost.seconds == pytest.approx(expected, rel=0.01) and cost.basis == "predicted"
    assert cost.memory - 5_000 * 792 == 500_000_000 + 2 * 4 * 199_210


def test_a_model_of_other_numbers_is_estimated_by_its_parameters(rates: Rates) -> None:
    """No operation of an LSTM is counted, but two for each parameter."""
    words = Workload("stacked_lstm", (10,), "words", 9, 20)
    rate = rates.of_model(words, NONE)
    assert rate.step_seconds == pytest.approx(
        0.5 * max(size_of(words, NONE)[0], 2 * rate.parameters) / 15_700 * 20 / 100
    )


def test_a_method_that_is_alike_stands_in() -> None:
    keys = [("ditto", 1), ("ditto@released", 5), ("ditto", 9), ("ima+ditto", 5), ("topk", 1)]
    known = {
        MethodKey(name, "", epochs): MethodRate(2.0 + i) for i, (name, epochs) in enumerate(keys)
    }
    rates = Rates({}, 0.0, {}, known)

    def factor(name: str, epochs: int, options: str = "") -> float:
        return rates.of_method(MethodKey(name, options, epochs)).factor

    assert factor("ditto", 9) == 4.0
    assert factor("ditto", 4, "ditto.personal_epochs=2") == 2.0
    assert factor("ditto", 6) == 4.0
    assert factor("ditto@released", 9) == 3.0
    assert factor("ima@released+ditto@released", 1) == 5.0
    assert factor("topk+ditto", 1) == 6.0 * 2.0  # the product of its parts
    assert factor("fedavg", 5) == 1.0


def test_methods_share_what_does_not_change_their_work() -> None:
    mild, strong = (
        tiny_run.run_spec(
            "fedprox",
            hyperparameters={
                "fedprox": {
                    "mu": mu,
                    "unused": True,
                    "server_epochs": len(other),
                    "decay_rounds": 3,
                },
                other: {"steps": 4},
            },
        )
        for mu, other in ((0.1, "scaffold"), (1.0, "fednova"))
    )
    key = MethodKey.of(mild)
    assert key == MethodKey.of(strong)
    assert key.name == "fedprox fedprox.unused=true epochs 2"


def test_landed_runs_correct_the_table(bench: Workbench, rates: Rates) -> None:
    """Those of the same model and method count as landed, others of the model correct it."""
    rates.landed = {LOGISTIC.name: 2.0, f"{LOGISTIC.name}, fedavg epochs 1": 3.0}
    model = estimate_of(bench).cost_model
    average, prox = model.cost(AVERAGE), model.cost(PROX)
    assert (average.basis, prox.basis) == ("landed", "predicted")
    assert average.seconds == pytest.approx(3 * (AVERAGE_SECONDS - 3) + 3)
    assert prox.seconds == pytest.approx(2 * (PROX_SECONDS - 3) + 3)


def finish(bench: Workbench, method: str, device: str = "cpu") -> None:
    """Two rounds of 46.4 s, also of a method that there is no more."""
    spec = bench.run_spec("ima/tiny", method, 1)
    folder = bench.root / spec.key.folder
    folder.mkdir(parents=True)
    write_manifest(folder, {
        "config_hash": spec.digest, "numerics": numerics.of_run(spec) if method != "gone" else {},
        "run": spec.description(), "rounds_done": 2, "status": "finished", "files": {},
        "device": device, "threads": 1,
    })  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_bytes())
    timing = {"wall_seconds": 90.0, "cpu_seconds": 46.4, "rounds_per_second": 2 / 90}
    sealed = checksummed_json.sealed(timing, timing_of(manifest))
    (folder / "timing.json").write_text(json.dumps(sealed), encoding="utf-8")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_this_machine_s_timings_replace_the_table(
    bench: Workbench, rates: Rates, device: str
) -> None:
    """A run took 46.4 s where the table has 23.2: so will its other seeds, and all others twice."""
    finish(bench, "fedavg", device)
    finish(bench, "gone")  # of a plug-in that was deleted: nothing is known of its work
    model = estimate_of(bench).cost_model
    same, prox = model.cost(replace(AVERAGE, seed=2)), model.cost(PROX)
    if device != "cpu":  # says nothing of the CPU
        assert same.seconds == pytest.approx(AVERAGE_SECONDS) and same.basis == "predicted"
        return
    assert same.seconds == pytest.approx(46.4 + 3) and same.basis == "measured"
    assert prox.seconds == pytest.approx(2 * (PROX_SECONDS - 3) + 3) and prox.basis == "predicted"


def test_the_shipped_tables_know_every_run() -> None:
    """On a CPU by rows of their own; nothing is without hours."""
    for device in ("cpu", "cuda"):
        table = Rates.read(device)
        assert table.models and table.methods and table.start_seconds > 0
    assert Rates.read("cuda:1").machine == Rates.read("cuda").machine != Rates.read("cpu").machine
    bench = load(ROOT)
    for scale in SCALES:
        model = CostModel(bench, chosen(bench, (), scale))
        specs = {spec.setting.name: spec for spec in map(bench.spec_of, model.runs)}
        for spec in specs.values():
            data = model.data(spec.setting.dataset)
            assert data and model.workload(spec, data) in model.rates.models


def by_list_scheduling(
    seconds: dict[RunKey, float], after: dict[RunKey, list[RunKey]], at_once: int
) -> float:
    """The time of a greedy schedule, by looking at each moment anew at what is ready."""

    def path(run: RunKey) -> float:
        return seconds[run] + max((path(each) for each in after if run in after[each]), default=0)

    ends: dict[RunKey, float] = {}
    now = 0.0
    while len(ends) < len(seconds) or any(end > now for end in ends.values()):
        busy = sum(end > now for end in ends.values())
        ready = [
            run
            for run in seconds
            if run not in ends and all(ends.get(first, math.inf) <= now for first in after[run])
        ]
        for run in sorted(ready, key=path, reverse=True)[: at_once - busy]:
            ends[run] = now + seconds[run]
        now = min(end for end in ends.values() if end > now)
    return now


@pytest.mark.parametrize("at_once", [1, 2, 3, 50])
def test_wall_time_is_that_of_starting_the_longest_way_first(at_once: int) -> None:
    """And all of it on one core; with cores for all, the longest way through the runs."""
    random = Random(at_once)
    for _ in range(25):
        runs = [RunKey("s/s", f"m{number}", 1) for number in range(random.randint(1, 9))]
        seconds = {run: random.uniform(1, 9) for run in runs}
        after = {
            run: [first for first in runs[:at] if random.random() < 0.3]
            for at, run in enumerate(runs)
        }
        wall = makespan(seconds, after, at_once)
        assert wall == pytest.approx(by_list_scheduling(seconds, after, at_once))
        if at_once == 1:
            assert wall == pytest.approx(math.fsum(seconds.values()))
    assert makespan({}, {}, at_once) == 0


def test_wall_time_is_of_cores_that_wait_for_each_other() -> None:
    """On two: first and third begin, the second when the third is over, the last after both."""
    jobs = [RunKey("ima/tiny", name, 1) for name in ("one", "two", "three", "four")]
    seconds = dict(zip(jobs, (5.0, 2.0, 4.0, 1.0), strict=True))
    after: dict[RunKey, list[RunKey]] = {run: [] for run in jobs}
    assert makespan(seconds, after, 2) == 6
    assert makespan(seconds, after, 1) == 12
    assert makespan(seconds, {**after, jobs[3]: jobs[:2]}, 2) == 7
    assert makespan({}, {}, 2) == 0


def test_data_that_nobody_describes_have_no_hours(bench: Workbench, rates: Rates) -> None:
    file = bench.root / "config/datasets.yaml"
    text = file.read_text(encoding="utf-8")
    assert "    size: {train: 4000, " in text
    file.write_text(text.replace("    size: {train: 4000, ", "    # size: {train: 4000, "))
    bench = load(bench.root)
    total = lines(bench, rates)["all", "all"]
    assert (total["unknown"], total["hours"]) == (2, 0)


def test_output_for_scripts(
    bench: Workbench, rates: Rates, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "ima/table_2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lines"][-1]["hours"] * 3600 == pytest.approx(AVERAGE_SECONDS)
    assert found["estimated_partitions"] == 1
    assert main(["plan", "ima"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header.split("\t")[:6] == ["kind", "name", "runs", "done", "steps", "CPU hours"]
    assert first.split("\t")[:6] == ["table", "ima/table_1", "2", "0", "80", "0.02"]


def test_a_gpu_computes_one_run_at_a_time(bench: Workbench, rates: Rates) -> None:
    """Several would slow each other, by how much nobody has measured."""
    many = estimate_of(bench)
    assert many.at_once == usable_cores()
    config = bench.config.model_copy(update={"device": "cuda"})
    assert estimate_of(replace(bench, config=config)).at_once == 1


def test_runs_in_lower_precision_are_named(
    bench: Workbench, rates: Rates, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that needs a GPU has no hours on a CPU, and is refused there before data are fetched."""
    low = EXPERIMENT.replace("logistic", "mcmahan_cnn\n    precision: bfloat16", 1)
    low = low.replace("tables:", "  lower: {extends: tiny, precision: tf32}\ntables:")
    low = low.replace("setting: tiny}", "setting: lower}", 1)
    (bench.root / "config/experiments/ima.yaml").write_text(low)
    assert main(["plan", "ima", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["precisions"] == {"bfloat16": 1, "tf32": 2}
    assert [number for why, number in found["without_hours"].items() if "TF32" in why] == [2]
    assert main(["plan", "ima"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Trained ")]
    (said,) = (line for line in told if "bfloat16" in line)
    assert numbers_in(said) == [1]
    assert main(["run", "ima/lower", "fedavg", "--seed", "1"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("fedrepro: setting ima/lower: precision: 'tf32': ")
    assert line.count("\n") == 1
    assert not (bench.root / "results/data").exists()


def test_a_cell_by_itself_with_the_runs_that_it_starts_from(
    bench: Workbench, rates: Rates, capsys: pytest.CaptureFixture[str]
) -> None:
    """No table has ima+fedprox, so the system's one seed of scale demo counts; its parent does."""
    assert main(["plan", "ima/tiny", "ima+fedprox", "--json"]) == 0
    found = {line["name"]: line for line in json.loads(capsys.readouterr().out)["lines"]}
    assert found["ima/tiny ima+fedprox"]["runs"] == 1
    assert found["ima/tiny ima+fedprox"]["kind"] == "cell"
    assert found["ima fedprox"]["hours"] * 3600 == pytest.approx(PROX_SECONDS)
    assert found["all"]["runs"] == 2
    assert main(["plan", "ima/tiny", "ima+fedprox"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"To make the cell: snakemake --cores \d+ (\S+)", last)
    assert last.split()[-1] == "results/runs/ima/tiny/ima+fedprox/seed1/manifest.json"


@pytest.mark.parametrize(("scale", "seeds"), [(None, [1]), ("demo", [1]), ("paper", [1, 2])])
def test_a_cell_has_the_seeds_of_the_tables_that_show_it(
    bench: Workbench, scale: str | None, seeds: list[int]
) -> None:
    """The tables' own ones, at the configured scale if none is asked for."""
    text = EXPERIMENT.replace("title: First", "title: First\n    seeds: {demo: [1], paper: [1, 2]}")
    (bench.root / "config/experiments/ima.yaml").write_text(text)
    (cell,) = chosen(load(bench.root), ("ima/tiny", "fedprox"), scale)
    assert [run.seed for run in cell.required] == seeds


@pytest.mark.parametrize(("scale", "seeds"), [(None, [3]), ("demo", [3]), ("paper", [5, 6])])
def test_a_cell_that_no_table_has_has_the_system_s_seeds_of_its_scale(
    bench: Workbench, scale: str | None, seeds: list[int]
) -> None:
    bench = replaced(bench, ("title: Tiny", "title: Tiny\nseeds: {demo: [3], paper: [5, 6]}"))
    (cell,) = chosen(bench, ("ima/tiny", "scaffold"), scale)
    assert [run.seed for run in cell.required] == seeds


def test_a_cell_that_no_table_has_at_the_configured_scale_has_the_seeds_of_others(
    bench: Workbench,
) -> None:
    text = EXPERIMENT.replace("setting: tiny}", "setting: tiny, demo: other}")
    text = text.replace("tables:\n", "  other: {extends: tiny}\ntables:\n")
    text = text.replace("title: First", "title: First\n    seeds: {demo: [1], paper: [7]}")
    (bench.root / "config/experiments/ima.yaml").write_text(text)
    (cell,) = chosen(load(bench.root), ("ima/tiny", "fedprox"), None)
    assert [run.seed for run in cell.required] == [7]


def test_a_target_that_is_none(bench: Workbench) -> None:
    with refused(key="TARGET", value="ima/table_3"):
        chosen(bench, ["ima/table_3"], None)
    with refused(key="TARGET", value="ima/tinny", names="'ima/tiny'"):
        chosen(bench, ["ima/tinny", "fedavg"], None)
    with refused(key="TARGET", value="ima/tiny"):
        chosen(bench, ["ima/tiny"], None)
    for names in (["fedgo"], ["fedgo/table_1"], ["fedgo/cifar10-alpha0.1", "fedavg"]):
        with refused(key="TARGET", names="`fedrepro init --with fedgo`"):
            chosen(bench, names, None)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", "--device", "cuda", "--json", *words]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_gpu_that_is_not_here_is_planned_with(
    bench: Workbench, rates: Rates, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Predicted, until the table has its rate."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    everything, (rate,) = (content := planned(capsys))["lines"][-1], content["rates"]
    assert content["without_hours"] == {} and everything["unknown"] == 0
    assert everything["hours"] == everything["predicted"] > 0
    assert rate["workload"] == LOGISTIC.name and "predicted" in rate["source"]
    rates.models = {LOGISTIC: replace(RATE, source="mycard")}
    rates.methods = {each: replace(rate, source="there") for each, rate in rates.methods.items()}
    everything, (rate,) = (content := planned(capsys, "--gpus", "2"))["lines"][-1], content["rates"]
    assert "mycard" in rate["source"] and rate["steps_per_second"] == 2
    assert everything["predicted"] == 0 and content["at_once"] == 2
    assert everything["landed"] == everything["hours"]
    assert everything["wall"] * 3600 == pytest.approx(PROX_SECONDS)  # both at a time


def test_what_is_not_known_is_said_first_and_is_no_zero(
    bench: Workbench, rates: Rates, capsys: pytest.CaptureFixture[str]
) -> None:
    file = bench.root / "config/datasets.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("    size: {train: 4000, ", "    # size: {train: 4000, "))
    assert main(["plan"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert numbers_in(first)[0] == 2 and " mnist5k" in first
    assert all("\t?\t?\t?\t" in row for row in rows if row.startswith(("table", "all")))
    assert main(["plan", "--gpus", "0"]) == 2


def test_runs_share_a_gpu_until_it_is_busy(bench: Workbench, rates: Rates) -> None:
    file = bench.root / "config/config.yaml"
    seconds = []
    for busy, places in ((0.25, 1), (0.25, 2), (1.0, 2)):
        file.write_text(f"{CONFIG}device: cuda\nruns_per_gpu: {places}\n", encoding="utf-8")
        rates.models[LOGISTIC] = replace(rates.models[LOGISTIC], busy=busy)
        estimate = estimate_of(load(bench.root))
        costs = estimate.cost_model.costs()
        seconds.append(estimate.wall_seconds(costs.values(), estimate.at_once))
    alone, shared, full = seconds
    assert shared < alone and full == pytest.approx(2 * PROX_SECONDS, rel=0.1)


# --- all parts of a cost at once ------------------------------------------------------------------
def replaced(bench: Workbench, *pairs: tuple[str, str]) -> Workbench:
    """The workbench with parts of its experiment file replaced, each once."""
    file = bench.root / "config/experiments/ima.yaml"
    text = file.read_text(encoding="utf-8")
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    file.write_text(text, encoding="utf-8")
    return load(bench.root)


def test_every_part_of_a_cost_by_hand(bench: Workbench, rates: Rates) -> None:
    """4 clients hold out 200 of 1,000 samples each and keep 200 for validation: 600 are left."""
    bench = replaced(
        bench,
        ("clients: 4}", "clients: 4, test_fraction: 0.2, validation: 0.25}"),
        ("    rounds: 2\n", "    rounds: 5\n    save_models_at: {fedavg: [1, 4]}\n"),
        ("    epochs: 1\n", "    epochs: 2\n    evaluate: {clients: true, every: 2}\n"),
    )
    rates.methods[MethodKey("fedavg", "", 2)] = MethodRate(3.0, 0.75)
    cost = estimate_of(bench).cost_model.cost(AVERAGE)
    steps = 5 * 2 * 2 * 6  # rounds, clients, epochs, mini-batches
    assert cost.steps == steps
    training = steps * 0.5 + 5 * 2 * 0.25
    # After rounds 2, 4 and 5: the shared model on 1,000 test and 800 validation samples, the
    # clients' models on the 800 that they hold out and those 800; each of 1 + 4 models twice.
    scoring = 3 * (1_000 + 800 + 800 + 800) * 0.001 + 3 * 2 * (1 + 4) * 0.1
    assert cost.seconds == pytest.approx(3 * training + 5 * 0.75 + scoring + 3)
    assert cost.memory == 500_000_000 + (4_000 + 1_000 + 800) * 792 + 2 * 4 * 7850
    # Its own model and, after two rounds, those of two clients and the server; 4 rows in 3 rounds.
    assert cost.disk == (1 + 2 * 3) * 4 * 7850 + 3 * 4 * 100
    inherited = estimate_of(bench).cost_model.cost(AVERAGE, 3)
    assert inherited.steps == steps * 2 / 5
    # Of the two rounds that are left one is evaluated.
    training, scoring = training * 2 / 5, scoring / 3
    assert inherited.seconds == pytest.approx(3 * training + 2 * 0.75 + scoring + 3)
    assert inherited.disk == cost.disk


def test_each_workload_has_its_rate_hours_and_source(bench: Workbench, rates: Rates) -> None:
    bench = replaced(
        bench, ("tables:", "  other: {extends: tiny, model: twonn, rounds: 6}\ntables:"),
        ("setting: tiny}", "setting: other}"),
    )  # fmt: skip
    rates.landed = {LOGISTIC.name: 2.0}
    estimate = estimate_of(bench)
    first, second = estimate.rates(
        cost for cost in estimate.costs.values() if not cost.done
    )  # the one with most hours first
    assert (first["runs"], second["runs"]) == (2, 1) and first["hours"] > second["hours"]
    assert first["workload"].startswith("twonn ") and second["workload"] == LOGISTIC.name
    assert first["source"].startswith("predicted ") and second["source"].startswith("landed ")
    assert second["steps_per_second"] == 2
    hours = {cost.run: (cost.seconds or 0) / 3600 for cost in estimate.costs.values()}
    own = [value for run, value in hours.items() if run.setting == "ima/other"]
    assert first["hours"] == pytest.approx(sum(own))
    assert second["hours"] == pytest.approx(sum(hours.values()) - sum(own))
    rates.models[LOGISTIC] = replace(RATE, source="mine")
    again = estimate_of(bench)
    assert again.rates(again.costs.values())[1]["source"] == "measured: mine"
    content = again.as_json()
    assert content["bases"] == {"predicted": 3} and content["at_most"] == 0


def test_jobs_that_are_left_are_counted_without_what_is_there(
    bench: Workbench, rates: Rates
) -> None:
    bench = replaced(
        bench, ("title: First", "title: First\n    seeds: {demo: [1, 2, 3]}"),
        ("    rounds: 2\n", "    rounds: 2\n    stop: {at: 90}\n"),
    )  # fmt: skip
    estimate = estimate_of(bench)
    jobs = {"download": 1, "prepare": 1, "partition": 3, "run": 6, "analysis": 0}
    assert estimate.jobs() == jobs and estimate.as_json()["at_most"] == 6
    setting = bench.setting("ima/tiny")
    made = make_partition(np.arange(250) % 10, None, setting.partition, 1)
    made.save(bench.root / setting.partition_path(2))
    finished(bench, AVERAGE, 1.0)
    estimate = estimate_of(bench)
    assert estimate.jobs() == jobs | {"partition": 2, "run": 5}
    assert estimate.as_json()["at_most"] == 5
    total = estimate.lines()[-1]
    assert (total["runs"], total["done"], total["unknown"]) == (6, 1, 0)
    (missing,) = estimate.missing()
    assert missing["runs"] == 5
    record = bench.root / "results/downloads/mnist5k/files.json"
    record.parent.mkdir(parents=True)
    record.touch()
    (missing,) = estimate.missing()
    assert (missing["fetch"], missing["download"]) == ("downloaded", 0)
    assert estimate.jobs() == jobs | {"partition": 2, "run": 5, "download": 0}


def finished(
    bench: Workbench,
    run: RunKey,
    times: float,
    device: str = "cpu",
    threads: int = 1,
    played: int = 2,
    **of: Any,
) -> None:
    """A finished run of this machine that took so many times as long as is predicted.

    Args:
        played: rounds of its own.
        of: what differs in its manifest.
    """
    spec = bench.run_spec(run.setting, run.method, run.seed)
    folder = bench.root / run.folder
    folder.mkdir(parents=True)
    write_manifest(folder, {
        "config_hash": spec.digest, "numerics": numerics.of_run(spec),
        "run": json.loads(json.dumps(spec.description())), "rounds_done": 2, "status": "finished",
        "files": {}, "device": device, "threads": threads, **of,
    })  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_bytes())
    seconds = (AVERAGE_SECONDS if run.method == "fedavg" else PROX_SECONDS) - 3
    timing = {"wall_seconds": 9.0, "cpu_seconds": times * seconds, "rounds_per_second": played / 9}
    sealed = checksummed_json.sealed(timing, timing_of(manifest))
    (folder / "timing.json").write_text(json.dumps(sealed), encoding="utf-8")


@pytest.mark.parametrize(
    ("made", "own", "other"),
    [
        ({("fedavg", 2): 1.0, ("fedavg", 3): 2.0, ("fedavg", 4): 9.0}, 2.0, 2.0),
        ({("fedavg", 2): 4.0, ("fedprox", 2): 8.0}, 4.0, 8.0),
        ({("fedavg", 2): 4.0, ("fedavg", 3): 8.0}, 6.0, 6.0),
    ],
)
def test_the_median_of_this_machine_s_timings_counts_the_narrowest_first(
    bench: Workbench, rates: Rates, made: dict[tuple[str, int], float], own: float, other: float
) -> None:
    """Runs on another kind of device or with other threads say nothing."""
    for (method, seed), times in made.items():
        finished(bench, RunKey("ima/tiny", method, seed), times)
    finished(bench, RunKey("ima/tiny", "fedavg", 5), 100.0, threads=2)
    finished(bench, RunKey("ima/tiny", "fedavg", 6), 100.0, device="cuda")
    model = estimate_of(bench).cost_model
    average, prox = model.cost(AVERAGE), model.cost(PROX)
    assert average.seconds == pytest.approx(own * (AVERAGE_SECONDS - 3) + 3)
    assert prox.seconds == pytest.approx(other * (PROX_SECONDS - 3) + 3)
    assert average.basis == "measured"
    assert prox.basis == ("measured" if ("fedprox", 2) in made else "predicted")


@pytest.mark.parametrize(
    ("average", "prox", "at_fault", "said"),
    [
        (60.0, 60.0, "", ("", "")),  # each is short
        (61.0, 1.0, "12", ("about 1 minutes", "about 1 minutes")),
        (90.0, 90.0, "12", ("about 3 minutes", "about 2 minutes")),
        (1.0, 61.0, "1", ("about 1 minutes", "")),
        (1.0, 9000.0, "1", ("about 2.5 hours", "")),
        (1.0, 9000.0 * 1000, "1", ("about 2,500.0 hours", "")),
        (1.0, None, "1", ("an unknown time", "")),
        (None, 1.0, "12", ("an unknown time", "an unknown time")),
    ],
)
def test_scale_demo_trains_no_run_of_more_than_a_minute(
    bench: Workbench,
    rates: Rates,
    monkeypatch: pytest.MonkeyPatch,
    average: float | None,
    prox: float | None,
    at_fault: str,
    said: tuple[str, str],
) -> None:
    """Table 1 has both methods, Table 2 one; neither setting has a small form."""
    takes = {"fedavg": average, "fedprox": prox}
    monkeypatch.setattr(check_paper, "_seconds", lambda model, run: takes[run.method])
    faults = {
        re.search(r"tables.table_(.)", fault)[1]: fault  # type: ignore[index]
        for fault in check_paper.faults_at_demo(bench, "ima")
    }
    assert "".join(faults) == at_fault
    for table, fault in faults.items():
        assert f", for {said[int(table) - 1]}: " in fault and " ima/tiny, " in fault


@pytest.mark.parametrize("stated", [None, 7])
@pytest.mark.parametrize("groups", [None, 5])
@pytest.mark.parametrize("tested", [False, True])
def test_sizes_are_counted_once_data_are_prepared_and_the_catalogue_s_before(
    bench: Workbench,
    monkeypatch: pytest.MonkeyPatch,
    stated: int | None,
    groups: int | None,
    tested: bool,
) -> None:
    known = bench.datasets["mnist5k"]
    assert known.size is not None
    size = known.size.model_copy(update={"clients": stated})
    monkeypatch.setitem(bench.datasets, "mnist5k", known.model_copy(update={"size": size}))  # type: ignore[arg-type]
    counted = sized(4000, 1000, (1, 28, 28), "bytes", 10, stated)
    assert data_sizes.data_of(bench, "mnist5k") == counted
    assert sample_bytes(counted) == 784 + 8
    made = tiny_run.dataset()
    group = None if groups is None else np.arange(150) % groups
    made = replace(made, train=replace(made.train, group=group), test=made.test if tested else None)
    monkeypatch.setattr(data_sizes, "open_dataset", lambda name, folder: made)
    (bench.root / "results/data/mnist5k").mkdir(parents=True)
    (bench.root / "results/data/mnist5k/meta.json").touch()
    test = 60 if tested else 0
    natural = stated or groups  # some may be too small to take part, as the catalogue knows
    expected = sized(150, test, (1, 2, 2), "bytes", 3, natural)
    assert data_sizes.data_of(bench, "mnist5k") == expected
    monkeypatch.setitem(bench.datasets, "mnist5k", known.model_copy(update={"size": None}))  # type: ignore[arg-type]
    assert data_sizes.data_of(bench, "mnist5k") == expected.model_copy(update={"clients": groups})
    (bench.root / "results/data/mnist5k/meta.json").unlink()
    assert data_sizes.data_of(bench, "mnist5k") is None


def test_timings_count_by_what_was_computed_and_how(bench: Workbench, rates: Rates) -> None:
    """Of another setting with the same work, only if nothing narrower is there."""
    bench = replaced(bench, ("tables:", "  twin: {extends: tiny, optimizer: {lr: 0.2}}\ntables:"))
    finished(bench, RunKey("ima/twin", "fedavg", 2), 2.0)
    finished(bench, RunKey("ima/twin", "fedprox", 2), 5.0)
    finished(bench, RunKey("ima/tiny", "fedavg", 5), 100.0, config_hash="of another configuration")
    finished(bench, RunKey("ima/tiny", "fedavg", 6), 0.0)  # says nothing
    model = estimate_of(bench).cost_model
    average, wrapped = model.cost(AVERAGE), model.cost(RunKey("ima/tiny", "norm_clip+fedavg", 1))
    assert average.seconds == pytest.approx(2 * (AVERAGE_SECONDS - 3) + 3)
    assert average.basis == "measured"
    # Of the same model with other methods; the table does not know the wrapper.
    assert wrapped.seconds == pytest.approx(3.5 * (AVERAGE_SECONDS - 3) + 3)
    assert wrapped.basis == "predicted"
    # Half of the rounds of this one were its parent run's: steps, clients' rounds and one scoring.
    finished(bench, RunKey("ima/tiny", "fedavg", 2), 1.0, played=1)
    average = estimate_of(bench).cost_model.cost(AVERAGE)
    ratio = (AVERAGE_SECONDS - 3) / (10 + 0.5 + 1.1)
    assert average.seconds == pytest.approx(ratio * (AVERAGE_SECONDS - 3) + 3)


def test_timings_of_the_newest_runs_count(
    bench: Workbench, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_model, "RECENT", 1)
    for seed, times, at in ((2, 3.0, 60), (3, 5.0, 300), (4, 2.0, 0)):
        finished(bench, run := RunKey("ima/tiny", "fedavg", seed), times)
        os.utime(bench.root / run.folder / "timing.json", (at, at))
    assert estimate_of(bench).cost_model.cost(AVERAGE).seconds == pytest.approx(
        5 * (AVERAGE_SECONDS - 3) + 3
    )


def test_runs_of_several_threads_are_timed_by_the_clock(bench: Workbench, rates: Rates) -> None:
    (bench.root / "config/config.yaml").write_text(f"{CONFIG}threads: 2\n", encoding="utf-8")
    bench = load(bench.root)
    finished(bench, RunKey("ima/tiny", "fedavg", 2), 100.0, threads=2)
    finished(bench, RunKey("ima/tiny", "fedavg", 3), 100.0)
    estimate = estimate_of(bench)
    assert estimate.cost_model.cost(AVERAGE).seconds == pytest.approx(9 + 3)
    assert estimate.at_once == max(1, usable_cores() // 2)


DISTILLING = """\
  shared:
    extends: tiny
    rounds: 3
    partition: {scheme: iid, clients: 4, server: 0.1}
    evaluate: {every: 2}
    inputs: {unlabelled: server, generator: {setting: maker, method: wgan_gp, seed: 7}}
  fashion: {extends: shared, inputs: {unlabelled: {dataset: fmnist, share: 0.01}}}
"""


@pytest.mark.parametrize(
    ("setting", "method", "samples", "looks", "batch", "epochs"),
    [
        ("shared", "long", 400, 3, 50, 3), ("shared", "wide", 400, 3, 30, 3),
        ("shared", "ima+long", 400, 3, 50, 3), ("shared", "never", 400, 0, 50, 0),
        ("fashion", "long", 600, 3, 50, 3), ("shared", "judged", 400, 5, 50, 2),
    ],
)  # fmt: skip
def test_a_server_s_distillation_by_hand(
    bench: Workbench, rates: Rates, setting: str, method: str, samples: int, looks: int,
    batch: int, epochs: int,
) -> None:  # fmt: skip
    """Of 4,000 samples the server has 400, of Fashion-MNIST's 60,000 it is given 600.

    In a round two teachers and the student see each, with a generator the teachers twice.
    """
    long = "{variant_of: feddf, server_epochs: 3, server_batch: 50}"
    bench = replaced(
        bench, ("  fedprox: {", f"  long: {long}\n  wide: {long.replace('50', '30')}\n"
        "  never: {variant_of: feddf, server_epochs: 0}\n  ima: {start: 1.0}\n"
        "  judged: {variant_of: dafkd, server_epochs: 2, server_batch: 50}\n  fedprox: {"),
        ("tables:", GIVEN + DISTILLING + "tables:"),
    )  # fmt: skip
    model = estimate_of(bench).cost_model
    for other in ("long", "wide", "never"):  # each has work of its own
        model.cost(RunKey("ima/shared", other, 1))
    run = RunKey(f"ima/{setting}", method, 1)
    spec = model.bench.spec_of(run)
    workload = model.workload(spec, sized(4000, 1000, (1, 28, 28), "bytes", 10, 4))
    assert workload.method == ("dafkd epochs 1" if method == "judged" else "")
    rates.models[workload] = RATE
    rates.methods[MethodKey.of(spec)] = MethodRate(7.0 if method == "judged" else 2.0)
    # 900 samples each: 9 mini-batches of two clients in three rounds, the last two of which are
    # scored. The rate of what FedAvg says nothing about has the method's own work.
    expected = (1 if method == "judged" else 2) * (3 * 2 * 9 * 0.5 + 3 * 2 * 0.25)
    expected += 2 * 1_000 * 0.001 + 2 * 0.1 + 3
    expected += 2 * 2 * 1_000 * 0.001  # the ensemble's scores
    steps = epochs * -(-samples // batch)
    expected += 3 * (steps * 0.5 * batch / 100 + samples * looks * 0.001)
    cost = model.cost(run)
    assert cost.seconds == pytest.approx(expected) and cost.why == ""
    # Only runs are made before it: of its inputs, the generator's.
    before = {"judged": {"wgan_gp"}, "ima+long": {"long"}}.get(method, set())
    assert {each.method for each in model.first(run)} == before


def test_clients_are_scored_without_test_samples_of_the_data_set(
    bench: Workbench, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what they hold out costs nothing if it is not scored."""
    held = ("clients: 4}", "clients: 4, test_fraction: 0.2, validation: 0.25}")
    cost = estimate_of(replaced(bench, held)).cost_model.cost(AVERAGE)
    training = 2 * 2 * 6 * 0.5 + 2 * 2 * 0.25 + 3
    assert cost.seconds == pytest.approx(training + 2 * (1_000 + 800) * 0.001 + 2 * 2 * 0.1)
    assert cost.memory == 500_000_000 + 5_000 * 792 + 2 * 4 * 7850
    own = replaced(bench, ("    epochs: 1\n", "    epochs: 1\n    evaluate: {clients: true}\n"))
    entry = own.datasets["mnist5k"]
    assert entry.size is not None
    size = entry.size.model_copy(update={"test": 0})
    monkeypatch.setitem(own.datasets, "mnist5k", entry.model_copy(update={"size": size}))  # type: ignore[arg-type]
    cost = estimate_of(own).cost_model.cost(AVERAGE)
    assert cost.seconds == pytest.approx(training + 2 * (800 + 800) * 0.001 + 2 * 2 * 4 * 0.1)


@pytest.mark.parametrize(
    ("keys", "stacked", "precision"),
    [
        ("executor: vectorised", 2, "bfloat16"), ("device: cuda", 0, "bfloat16"),
        ("device: cuda\nexecutor: vectorised", 2, "bfloat16"), ("device: cpu", 0, "float32"),
    ],
)  # fmt: skip
def test_a_gpu_s_workload_has_its_clients_side_by_side_and_its_precision(
    bench: Workbench, keys: str, stacked: int, precision: str
) -> None:
    (bench.root / "config/config.yaml").write_text(f"{CONFIG}{keys}\n", encoding="utf-8")
    bench = replaced(bench, ("    epochs: 1\n", "    epochs: 1\n    precision: bfloat16\n"))
    model = CostModel(bench, ())
    spec = model.bench.spec_of(AVERAGE)
    if "cuda" not in keys:  # whatever the run has
        stacked, precision = 0, "float32"
    found = model.workload(spec, sized(4000, 1000, (1, 28, 28), "bytes", 10, None))
    assert (found.stacked, found.precision, found.method) == (stacked, precision, "")


@pytest.mark.parametrize(
    ("of_model", "of_method", "landed", "basis"),
    [
        ("here", "", {}, "predicted"), ("", "here", {}, "predicted"),
        ("here", "there", {}, "landed"),
        ("", "", {LOGISTIC.name: 1.0}, "predicted"),
        ("", "", {f"{LOGISTIC.name}, fedavg epochs 1": 1.0}, "landed"),
    ],
)  # fmt: skip
def test_a_cost_has_landed_if_model_and_method_have(
    bench: Workbench, rates: Rates, of_model: str, of_method: str, landed: dict[str, float],
    basis: str,
) -> None:  # fmt: skip
    rates.models[LOGISTIC] = replace(RATE, source=of_model)
    rates.methods[MethodKey("fedavg", "", 1)] = MethodRate(1.0, source=of_method)
    rates.landed = landed
    assert estimate_of(bench).cost_model.cost(AVERAGE).basis == basis


def test_a_parent_run_keeps_a_state_for_each_round_at_which_a_child_goes_on(
    bench: Workbench, rates: Rates
) -> None:
    """Three of its children go on after one of two rounds."""
    names = ("ima", "early", "wide")
    bench = replaced(
        bench, ("rounds: 2", "rounds: 8"),
        ("  fedprox: {", "  ima: {window: 1}\n  early: {variant_of: ima, start: 0.25}\n"
         "  wide: {variant_of: ima, window: 2, decay: 0.5}\n  fedprox: {"),
        ("    columns:\n", "    columns:\n" + "".join(
            f"      - {{label: {name}, method: {name}+fedavg}}\n" for name in names
        )),
    )  # fmt: skip
    kept = {shared_rounds(bench, RunKey("ima/tiny", f"{name}+fedavg", 1)) for name in names}
    costs = estimate_of(bench).costs
    assert len(kept) in (2, 3)
    assert costs[AVERAGE].disk - costs[PROX].disk == len(kept) * 4 * 7850
    assert {cost.steps for run, cost in costs.items() if run not in (AVERAGE, PROX)} == {
        (8 - rounds) * 20 for rounds in kept
    }


def test_every_landed_correction_is_of_a_workload_and_a_method_of_its_table() -> None:
    """By their names: under others, nobody would ever look it up."""
    table = Rates.read("cpu")
    workloads = {workload.name: workload for workload in table.models}
    methods = {key.name for key in table.methods}
    assert len(table.landed) > 100 and len(workloads) == len(table.models)
    for key in table.landed:
        name, _, method = key.rpartition(", ")
        workload = workloads[name or key]
        # FedAvg, of which all others are multiples, needs no factor of its own.
        known = method in methods or method.startswith("fedavg epochs ")
        assert not name or known or workload.method.endswith(method)


def test_the_nearest_workload_has_like_pixels_then_batch_then_clients_side_by_side() -> None:
    base = replace(LOGISTIC, shape=(1, 32, 32), stacked=44)
    near = [
        replace(base, shape=(1, 16, 16), batch_size=90),
        replace(base, shape=(3, 30, 30), batch_size=8, stacked=20),
        replace(base, shape=(3, 30, 30), batch_size=80, stacked=400),
        replace(base, shape=(3, 30, 30), batch_size=80, stacked=2),
        replace(base, shape=(3, 30, 30), batch_size=80, stacked=40),
    ]
    other_ways = [
        replace(base, stacked=0), replace(base, precision="tf32"), replace(base, method="x"),
    ]  # fmt: skip
    table = Rates({}, 0.0, {
        key: replace(RATE, parameters=place) for place, key in enumerate([*other_ways, *near])
    })  # fmt: skip
    rate = table.of_model(replace(base, classes=3), NONE)
    assert rate.parameters == len(other_ways) + 4
    assert rate.step_seconds == pytest.approx(0.5 * (32 / 30) ** 2 * 100 / 80)
    assert (rate.client_seconds, rate.score_seconds) == (0.25, 0.1)
    assert table.of_model(replace(base, precision="tf32", classes=3), NONE).parameters == 1


def test_a_network_s_operations_and_parameters_are_counted() -> None:
    """Of McMahan et al.'s CNN, two per multiply-add; of a network with one output, too."""
    cnn = Workload("mcmahan_cnn", (1, 28, 28), "bytes", 10, 5)
    convolutions = 28**2 * 32 * 25 + 14**2 * 64 * 25 * 32
    assert size_of(cnn, NONE) == (2 * (convolutions + 3136 * 512 + 512 * 10), 1_663_370)
    judge = Workload("discriminator_small", (1, 28, 28), "bytes", 10, 5)
    assert size_of(judge, NONE) == size_of(replace(judge, classes=1), NONE)


def test_another_network_is_compared_by_the_operations_of_a_step_as_a_ratio() -> None:
    wanted = Workload("twonn", (1, 28, 28), "bytes", 10, 10)
    flop, parameters = size_of(wanted, NONE)
    known = replace(wanted, model="known")
    table = Rates({}, 0.0, {
        key: replace(RATE, parameters=1, flop=operations)
        for key, operations in (
            (replace(known, precision="tf32"), flop), (replace(known, method="x"), flop),
            (replace(known, batch_size=1), flop), (replace(known, classes=3), flop // 3),
            (known, 2 * flop), (replace(known, classes=4), 0),
        )
    })  # fmt: skip
    rate = table.of_model(wanted, NONE)
    assert rate == replace(
        RATE, step_seconds=0.25, sample_seconds=0.0005, parameters=parameters, flop=2 * flop
    )
    # In a way that nobody knows, by the nearest in any way.
    assert table.of_model(replace(wanted, stacked=9), NONE).step_seconds == 0.5


@pytest.mark.parametrize(
    ("numbers", "bytes_each"), [("bytes", 1), ("sound", 2), ("features", 4), ("words", 4)]
)
def test_a_sample_takes_the_bytes_of_its_numbers_and_a_label(numbers: str, bytes_each: int) -> None:
    data = sized(1, 1, (3, 5), numbers, 2, None)
    assert sample_bytes(data) == 15 * bytes_each + 8
    assert Workload("m", (3, 5), numbers, 2, 1).pixels == (5 if numbers == "bytes" else 1)


LONG = "  big: {extends: tiny, rounds: 50}\n  middle: {extends: tiny, rounds: 40}\n"
WITH_FIGURES = """\
figures:
  lines_too:
    {kind: landscape, title: Hills, setting: big, columns: [{label: A, method: [fedavg, scaffold]}]}
  lines:
    kind: lines
    title: Lines
    rows: [{label: a, setting: big}, {label: b, setting: big, demo: tiny}]
    columns: [{label: A, method: fedavg}]
  shares: {kind: partitions, title: Shares, panels: [{label: a, setting: big}]}
  trend:
    kind: trend
    title: Trend
    lines: [one]
    panels: [{label: p, x: x, points: [{at: 1, setting: big, methods: [fedavg]}]}]
search:
  all:
    {title: All, setting: big, validation: 0.2, methods: [{method: fedprox, grid: {mu: [0.01, 1]}}]}
  some:
    {title: Some, setting: big, demo: middle, validation: 0.2,
     methods: [{method: fedprox, grid: {mu: [0.01, 1, 2]}}]}
tables:
  other:
    title: Other
    column_settings: {FedAvg: big}
    rows: [{label: Big, setting: big}, {label: Small, setting: big, demo: tiny},
           {label: Tiny, setting: tiny}]
    columns: [{label: FedAvg, method: fedavg}, {label: FedProx, method: fedprox}]
  done:
    title: Done
    rows: [{label: Small, setting: big, demo: tiny}]
    columns: [{label: FedAvg, method: fedavg}]
"""


@pytest.fixture
def drawn(bench: Workbench) -> Workbench:
    """With figures and searches; runs of setting big take minutes."""
    return replaced(bench, ("tables:\n", f"{LONG}{WITH_FIGURES}"))


def test_scale_demo_has_a_small_form_of_every_place_of_a_long_run(
    drawn: Workbench, rates: Rates
) -> None:
    faults = [each.removeprefix("config/experiments/ima.yaml: ") for each in
              check_paper.faults_at_demo(drawn, "ima")]  # fmt: skip
    assert sorted(fault.partition(": ")[0] for fault in faults) == [
        "figures.lines.rows.a.demo", "figures.lines_too.demo", "figures.trend", "search.all.demo",
        "tables.other.rows.Big.demo", "tables.other.rows.Tiny.demo",
    ]  # fmt: skip


def test_lines_are_of_every_kind_of_target_and_analyses_that_are_missing_are_jobs(
    drawn: Workbench, rates: Rates
) -> None:
    estimate = estimate_of(drawn)
    found = {(line["kind"], line["name"]): line for line in estimate.lines()}
    shown = [each for each in found.values() if each["kind"] in ("figure", "search")]
    assert {(each["kind"], each["name"]): each["runs"] for each in shown} == {
        ("figure", "ima/lines_too"): 2, ("figure", "ima/lines"): 2, ("search", "ima/all"): 2,
        ("search", "ima/some"): 3,
    }  # fmt: skip
    assert found["table", "ima/done"]["hours"] * 3600 == pytest.approx(AVERAGE_SECONDS)
    # Everything together takes as long as the longest way where each run has a core.
    total = found["all", "all"]
    assert total["hours"] > total["wall"] > 0 and total["runs"] == len(estimate.costs)
    assert estimate.wall_seconds(estimate.costs.values(), 1) == pytest.approx(total["hours"] * 3600)
    assert estimate.jobs()["analysis"] == 2
    made = drawn.root / "results/landscapes/ima/big/scaffold/seed1.json"
    made.parent.mkdir(parents=True)
    made.touch()
    assert estimate_of(drawn).jobs()["analysis"] == 1
    assert estimate_of(drawn, "ima/lines").jobs()["analysis"] == 0
    assert estimate_of(drawn).jobs()["partition"] == len({
        drawn.setting(run.setting).partition_path(run.seed) for run in estimate.cost_model.left
    })  # fmt: skip


TABLES = ("table_1", "table_2")


@pytest.mark.parametrize(
    ("names", "items"),
    [
        (("ima",), {"lines_too", "lines", "all", "some", "other", "done", *TABLES}),
        (("ima/some",), {"some"}),
        (("ima/lines", "ima/done"), {"lines", "done"}), (("ima/done", "ima/done"), {"done"}),
    ],
)  # fmt: skip
def test_several_targets_are_chosen_by_name(
    drawn: Workbench, names: tuple[str, ...], items: set[str]
) -> None:
    found = [target.item for target in chosen(drawn, names, "demo") if target.required]
    assert sorted(found) == sorted(items) and len(set(found)) == len(found)


def test_a_data_set_of_one_s_own_is_not_downloaded(bench: Workbench, rates: Rates) -> None:
    bench = replaced(bench, ("dataset: mnist5k", "dataset: pacs"))
    (missing,) = (estimate := estimate_of(bench)).missing()
    size = bench.datasets["pacs"].size
    assert size is not None
    assert (missing["name"], missing["runs"], missing["fetch"]) == ("pacs", 2, "your own files")
    assert (missing["download"], missing["unsized"]) == (0, 0)
    assert missing["disk"] == (math.prod(size.shape) + 8) * (size.train + size.test)
    assert estimate.jobs()["download"] == 1  # which looks for them


def test_files_whose_size_nobody_states_are_counted(
    bench: Workbench, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the four files of MNIST one states its size; what it holds is unknown."""
    bench = replaced(bench, ("dataset: mnist5k", "dataset: mnist"))
    entry = bench.datasets["mnist"]
    files = entry.raw_files  # type: ignore[attr-defined]
    sizes = [file.packed.size if file.packed else file.size for file in files]
    bare = [file.model_copy(update={"packed": None, "size": None}) for file in files[:-1]]
    monkeypatch.setattr(type(entry), "raw_files", property(lambda self: [*bare, files[-1]]))
    monkeypatch.setitem(bench.datasets, "mnist", entry.model_copy(update={"size": None}))  # type: ignore[arg-type]
    (missing,) = estimate_of(bench).missing()
    assert (missing["unsized"], missing["download"], missing["disk"]) == (
        len(files) - 1,
        sizes[-1],
        None,
    )


def test_what_differs_in_any_way_has_another_name() -> None:
    """Landed corrections are looked up by it."""
    changes: list[dict[str, Any]] = [
        {}, {"model": "twonn"}, {"shape": (1, 32, 28)}, {"numbers": "features"}, {"classes": 9},
        {"batch_size": 50}, {"stacked": 4}, {"precision": "tf32"}, {"method": "dafkd epochs 1"},
    ]  # fmt: skip
    assert len({replace(LOGISTIC, **keys).name for keys in changes}) == len(changes)
    keys = [PROX_KEY, replace(PROX_KEY, epochs=2), replace(PROX_KEY, options="fedprox.n=2"),
            replace(PROX_KEY, composition="fedprox@released")]  # fmt: skip
    assert len({key.name for key in keys}) == len(keys)
    assert {*map(tuple, (key.parts for key in keys))} == {("fedprox",)}
