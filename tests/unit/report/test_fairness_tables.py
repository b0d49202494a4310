"""Tables whose numbers are taken over clients: experiment files, measures, runs."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional

from fedrepro.config.loading import load
from fedrepro.config.metrics import OverClients
from fedrepro.config.settings import Setting, StepDecay
from fedrepro.config.tables import Summary, Table
from fedrepro.config.targets import ComputedTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import PLACE
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.metrics import auroc
from fedrepro.engine.task import NEXT_WORD
from fedrepro.report.cells import computed, coverage, tables
from fedrepro.report.cells.cell import last
from fedrepro.report.cells.readings import Readings
from fedrepro.report.papers import published
from fedrepro.run import runner, schedules
from fedrepro.run.results import read_run
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.typed_yaml import validate
from support.manifests import follow, write_bare
from support.places import ROOT
from support.refusals import Fault, refused
from support.tiny_run import partition, run_spec


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


# (lr, weight decay, factor, every, rounds, clients of a round): settings_superfed_aaggff_fedevg.csv
PRINTED = {
    "heart": (0.01, 0, 0.999, 2, 200, 4),
    "berka": (1.0, 1e-3, 0.99, 10, 100, 7),
    "mqp": (10**-2.5, 1e-2, 0.99, 15, 100, 11),
    "isic": (1e-4, 1e-2, 0.95, 5, 50, 6),
    "celeba": (0.1, 1e-4, 0.96, 300, 3000, 5),
    "reddit": (10 ** (7 / 8), 1e-6, 0.95, 20, 300, 5),
    "speech_commands": (0.1, 0, 0.999, 10, 500, 5),
    "tiny_imagenet": (0.01, 0, 0.95, 100, 2000, 5),
}
CLIENTS = {"heart": 4, "berka": 7, "mqp": 11, "isic": 6}
CLIENTS |= {"celeba": 9343, "reddit": 817, "speech_commands": 2005, "tiny_imagenet": 1000}


@pytest.mark.parametrize("name", PRINTED)
def test_settings_are_those_of_the_paper(bench: Workbench, name: str) -> None:
    lr, decay, factor, every, rounds, cohort = PRINTED[name]
    run = bench.run_spec(f"aaggff/{name}", "aaggff+fedavg", 2).description()
    assert run["optimizer"]["lr"] == pytest.approx(lr, rel=1e-12)
    assert (run["optimizer"]["weight_decay"], run["optimizer"]["momentum"]) == (decay, 0)
    assert run["lr_decay"] == {"factor": factor, "every": every}
    assert (run["rounds"], run["epochs"], run["batch_size"]) == (rounds, 1, 20)
    assert max(1, int(run["participation"] * CLIENTS[name] + 1e-9)) == cohort
    wanted = "aaggff_s" if cohort == CLIENTS[name] else "aaggff_d"
    assert run["composition"] == f"{wanted}+fedavg"


def test_seeds_are_the_systems_own(bench: Workbench) -> None:
    assert bench.table("aaggff", "table_7", "paper").seeds == (2, 4, 6)
    assert bench.table("ima", "table_1", "paper").seeds == bench.config.seeds.paper


def test_responses_are_those_that_are_printed(bench: Workbench) -> None:
    """To two digits; one is printed from an input that was rounded first."""
    target = bench.target("aaggff", "table_a1")
    assert isinstance(target, ComputedTarget)
    cells = computed.compute(bench, target, published.load(ROOT))
    assert len(cells) == 18
    for cell in cells:
        assert cell.verdict is not None and cell.verdict.word == "agrees"
        rounded = f"{cell.value:.2f}" == cell.printed.text
        assert rounded != bool(cell.printed.doubt)


def test_clients_are_counted_where_their_data_are(tmp_path: Path) -> None:
    """Berka's seven regions; the others' data are not there."""
    world = replace(load(ROOT), root=tmp_path)
    target = world.target("aaggff", "table_a2")
    assert isinstance(target, ComputedTarget)
    papers = published.load(ROOT)
    (tmp_path / "results/data/berka").mkdir(parents=True)
    (tmp_path / "results/data/berka/meta.json").write_text("{}")
    holes = Counter(cell.hole for cell in computed.compute(world, target, papers))
    assert len(holes) == 2 and all(holes) and min(holes.values()) == 3  # Berka's are others
    histogram = tmp_path / world.histogram_of("aaggff/berka")
    regions = (84, 90, 84, 117, 60, 129, 57)  # loans, without the region that the code leaves out
    held = {"train": [[size - 20, 3] for size in regions], "test": [[10, 7]] * 7}
    checksummed_json.write(histogram, held, checksummed_json.place(histogram, PLACE))
    cells = [cell for cell in computed.compute(world, target, papers) if not cell.hole]
    assert [cell.verdict.word for cell in cells if cell.verdict] == ["agrees"] * 3
    assert [cell.value for cell in cells] == pytest.approx([7, 621, 88.714], abs=1e-3)
    assert cells[2].std == pytest.approx(24.78, abs=5e-3)
    held["train"][0][0] += 1
    checksummed_json.write(histogram, held, checksummed_json.place(histogram, PLACE))
    words = [cell.verdict for cell in computed.compute(world, target, papers) if not cell.hole]
    assert [word.word for word in words if word] == ["agrees", "differs", "differs"]
    histogram.write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        computed.compute(world, target, papers)


def test_on_heart_each_method_has_a_limit_of_its_own(bench: Workbench) -> None:
    """Seeds and splits are the authors' own, so means over the same seeds are compared."""
    target = bench.table("aaggff", "table_7_heart", "paper")
    made = tables.compute(bench, target, published.load(ROOT))
    found = {
        made.columns[cell.column].label: cell.verdict
        for cell in made.cells
        if cell.row == 0 and cell.verdict and cell.verdict.basis == "paired"
    }
    assert len(found) == 20
    # FedAdagrad with AAggFF scatters most in the paper's reading, and least without it as released.
    limits = {name: verdict.limit for name, verdict in found.items() if verdict.limit}
    assert max(limits, key=limits.__getitem__) == "FedAdagrad + AAggFF"
    assert min(limits, key=limits.__getitem__) == "FedAdagrad, released code"
    assert limits["FedAdagrad + AAggFF"] > 3 * limits["FedAvg + AAggFF"]
    words = {name: verdict.word for name, verdict in found.items()}
    assert [name for name, word in words.items() if word == "differs"] == [
        "FedProx + AAggFF, released code",
    ]  # fmt: skip
    assert [name for name, word in words.items() if word == "agrees"] == [
        "FedProx, released code", "FedYogi + AAggFF, released code", "FedAdagrad, released code",
    ]  # fmt: skip


def counts_of(bench: Workbench) -> dict[tuple[str, str], Counter[str]]:
    """Without any table made."""
    return coverage.count(Readings(bench, published.load(ROOT), {}))


def test_a_part_of_a_table_counts_once(bench: Workbench) -> None:
    papers = published.load(ROOT)
    target = bench.table("aaggff", "table_7_heart", "paper")
    made = tables.compute(bench, target, papers)
    counted = coverage.count(Readings(bench, papers, {("aaggff", "table_7_heart"): made}))
    half = counted["aaggff", "table_7_heart"]
    assert (half["printed"], half["computed"]) == (20, 20)
    # As the paper has the methods: three seeds decide none of them.
    assert [half[name] for name in ("agree", "undecided", "differ")] == [0, 20, 0]
    whole = [row for row in coverage.rows_of(counted, papers, {}) if row["system"] == "aaggff"]
    assert (whole[-2]["table"], whole[-2]["printed"]) == ("table_7_heart", 20)
    assert (whole[-1]["table"], whole[-1]["printed"]) == ("all", 279)
    assert published.label_of("table_7_heart", "7") == "Table 7, Heart"
    assert published.label_of("figure_a1") == "Figure A1"
    assert published.label_of("figure_2_3") == "Figure 2.3"
    assert published.label_of("figure_regret") == "Regret"


def test_a_table_that_is_not_there_has_targets_only(bench: Workbench) -> None:
    half = counts_of(bench)["aaggff", "table_7_heart"]
    assert [half[name] for name in ("printed", "targets", "computed")] == [20, 20, 0]


@pytest.mark.parametrize(
    ("item", "printed"),
    [
        ("table_2", 84), ("table_3", 72), ("table_5", 21), ("table_6", 18), ("table_7", 40),
        ("table_a1", 18), ("table_a2", 18),
    ],
)  # fmt: skip
def test_every_printed_cell_has_a_target(bench: Workbench, item: str, printed: int) -> None:
    counted = counts_of(bench)["aaggff", item]
    assert (counted["printed"], counted["targets"]) == (printed, printed)


def test_measures_over_clients(tmp_path: Path) -> None:
    run = RunKey("aaggff/heart", "fedavg", 2)
    folder = tmp_path / run.folder
    folder.mkdir(parents=True)
    table = {
        "round": [1, 1, 1, 2, 2, 2],
        "client": [0, 1, 2, 0, 1, 2],
        "test_samples": [10, 30, 60, 10, 30, 60],
        "auroc": [0.1, 0.2, 0.3, 0.5, float("nan"), 0.9],
    }
    pd.DataFrame(table).to_parquet(folder / "clients.parquet")
    follow(write_bare(tmp_path, run), "clients.parquet")
    record = read_run(tmp_path, run)

    def values(over: str, weighted: bool = True) -> list[float]:
        metric = {"of": "auroc", "over_clients": over, "weighted": weighted}
        series = validate(OverClients, metric, "test").quantity.series(record)
        assert [number for number, _ in series] == [1, 2]
        return [value for _, value in series]

    assert values("average") == pytest.approx([25, (50 * 10 + 90 * 60) / 70])
    assert values("average", False) == pytest.approx([20, 70])
    assert values("worst") == pytest.approx([10, 50])
    assert values("best") == pytest.approx([30, 90])
    assert values("gap") == pytest.approx([20, 40])
    assert values("gini")[1] == pytest.approx(100 * 0.4 / (2 * 1.4))
    assert last([(1, 3.0), (2, float("nan"))], 1) is None
    without = OverClients(of="top5", over_clients="gap").quantity
    assert not without.series(record) and not without.remark(record)


@pytest.mark.parametrize(
    ("last", "said"), [((0.5, math.nan, 0.9, math.nan), "1 of 3"), ((0.5, 0.6, 0.9, math.nan), "")]
)
def test_a_cell_says_how_many_clients_have_no_value(
    bench: Workbench, tmp_path: Path, last: tuple[float, ...], said: str
) -> None:
    """Of the last round's clients with test samples, such as those of one class with AUROC."""
    bench, run = replace(bench, root=tmp_path), RunKey("aaggff/heart", "fedavg", 2)
    folder = tmp_path / run.folder
    folder.mkdir(parents=True)
    table = {
        "round": [1, 1, 1, 1, 2, 2, 2, 2],
        "client": [0, 1, 2, 3] * 2,
        "test_samples": [10, 30, 60, 0] * 2,
        "auroc": [math.nan, math.nan, 0.3, math.nan, *last],
    }
    pd.DataFrame(table).to_parquet(folder / "clients.parquet")
    follow(write_bare(tmp_path, run), "clients.parquet")
    quantity = OverClients(of="auroc", over_clients="average").quantity
    found = tables.result_of(bench, run.setting, {"fedavg": [run]}, quantity, Summary(rounds=1))
    assert found.mean == pytest.approx((50 * 10 + 90 * 60) / 70 if said else 77)
    (run,) = found.runs
    assert bool(run.why) == bool(said) and said in run.why
    assert found.trouble.startswith(run.why)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (0, {"key": "lr_decay", "value": 0, "names": "1"}),
        ({"factor": 0.5, "every": 0}, {"key": "lr_decay.every", "value": 0, "names": "1"}),
        ({"factor": 0.5}, {"code": "missing", "key": "lr_decay.every", "names": "missing"}),
        (
            {"factor": 0.5, "evry": 1},
            {"code": "unknown_key", "key": "lr_decay.evry", "names": ("key", "'every'")},
        ),
    ],
)
def test_a_wrong_decay(value: object, fault: Fault, bench: Workbench) -> None:
    setting = bench.setting("aaggff/heart").model_dump(mode="json")
    with refused(**fault):
        validate(Setting, setting | {"lr_decay": value}, "x.yaml")


def test_a_wrong_metric() -> None:
    table = {"title": "t", "rows": [{"label": "r", "setting": "s"}]}
    table["columns"] = [{"label": "c", "method": "fedavg"}]
    for metric, line in (
        ("acuracy", "metric: 'acuracy':"),
        ({"of": "auroc", "over_clients": "avg"}, "metric.over_clients: 'avg':"),
    ):
        with pytest.raises(UserError, match=line):
            validate(Table, table | {"metric": metric}, "x.yaml")


def test_a_learning_rate_decays_in_steps() -> None:
    steps = schedules.schedule(0.01, StepDecay(factor=0.5, every=2))
    assert [steps(round) for round in range(5)] == [0.01, 0.01, 0.005, 0.005, 0.0025]
    assert schedules.schedule(0.01, 0.5)(2) == 0.0025


def test_a_run_measures_each_clients_auroc(tmp_path: Path) -> None:
    """And standardises by client; a client without one of the classes has none."""
    random = np.random.default_rng(0)
    y = np.arange(150) // 6 % 2
    y[::6] = 1  # client 0 has one class
    x = (random.normal(0, 1, (150, 3)) + y[:, None]).astype(np.float32)
    x += 100 * (np.arange(150) % 6)[:, None]
    data = Dataset(
        "t", "binary", 2, (3,), Split(x, y, None), None, None, None, {}, client_standardised=(0, 1)
    )
    given: dict[str, Any] = {"evaluate": {"every": 6, "clients": True}, "rounds": 6}
    runner.run(run_spec(**given), data, partition(True, y, equal=True), tmp_path / "seed1", "code")
    clients = pd.read_parquet(tmp_path / "seed1" / "clients.parquet")
    assert clients["auroc"].isna().tolist() == [True] + [False] * 5
    rounds = pd.read_parquet(tmp_path / "seed1" / "rounds.parquet")
    assert rounds["client_auroc"].iloc[-1] == pytest.approx(clients["auroc"].mean())
    assert rounds["test_auroc"].iloc[-1] == pytest.approx(clients["auroc"].mean())  # equal sizes
    assert clients["auroc"].between(0, 1)[1:].all()
    assert auroc(np.array([0.1, 0.4]), np.array([0, 1])) == 1


@pytest.mark.parametrize("clients", [True, False])
def test_the_shared_auroc_is_that_of_the_test_set_if_there_is_one(
    tmp_path: Path, clients: bool
) -> None:
    """And not a mean over clients' own test samples, which have the other sign here."""
    random = np.random.default_rng(0)
    y = np.arange(150) // 6 % 2
    x = (random.normal(0, 1, (150, 3)) + y[:, None]).astype(np.float32)
    data = Dataset("t", "binary", 2, (3,), Split(x, y, None), Split(-x, y, None), None, None, {})
    given: dict[str, Any] = {"evaluate": {"every": 6, "clients": clients}, "rounds": 6}
    runner.run(run_spec(**given), data, partition(True, y, equal=True), tmp_path / "seed1", "code")
    rounds = pd.read_parquet(tmp_path / "seed1" / "rounds.parquet")
    assert rounds["test_auroc"].iloc[-1] < 0.5
    assert rounds["test_accuracy"].iloc[-1] < 0.5
    assert not clients or rounds["client_auroc"].iloc[-1] > 0.5


def test_next_words_count_only_where_there_is_a_word() -> None:
    targets = torch.tensor([[5, 4, 0], [1, 3, 0]])  # a text of two words, and one of none
    logits = functional.one_hot(torch.tensor([[5, 6, 0], [1, 3, 0]]), 7).double() * 3
    assert NEXT_WORD.hits(logits, targets).tolist() == [1, 0]
    assert NEXT_WORD.predictions(targets).tolist() == [2, 0]
    each = functional.cross_entropy(logits[0, :2], targets[0, :2])
    losses = NEXT_WORD.losses(logits, targets, "none")
    assert float(losses[0]) == pytest.approx(float(each))
    assert float(NEXT_WORD.losses(logits, targets, "mean")) == pytest.approx(float(losses.mean()))
    net: Any = SimpleNamespace(bind=lambda params: params, predict=lambda bound, rows: logits[rows])

    def samples(first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(first, last), targets[first:last]

    assert evaluate(net, NEXT_WORD, {"w": logits}, samples, 1)["accuracy"] == 0.5
