"""What README and docs tell a newcomer to write works as it is written there."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from fedrepro.cli import main as cli
from fedrepro.config.loading import load
from fedrepro.workflow.checks import check_methods
from support.project import CONFIG, ROOT

SETTING = """\
system: mine
title: My experiment
paper: none
settings:
  first:
    dataset: {dataset}
    partition: {partition}
    model: logistic
    rounds: 20
    participation: 1.0
    epochs: 2
    batch_size: 10
    optimizer: {{lr: 0.1}}
"""

TABLE = """\
datasets:
  my_table:
    kind: tabular_csv
    title: My patients
    licence: mine
    citation: none
    path: data/my_table.csv
    label: outcome
    group: hospital
    task: binary
"""

# What docs name for natural clients, which hold out their own rows.
NATURAL = "{scheme: natural, test_fraction: 0.2}\n    evaluate: {clients: true}"


def blocks(file: str, language: str) -> list[str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def entry(file: str, name: str) -> str:
    """The YAML block of a text that describes a data set."""
    (found,) = (
        block for block in blocks(file, "yaml") if name in (yaml.safe_load(block)["datasets"] or {})
    )
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config/experiments").mkdir(parents=True)
    (tmp_path / "config/config.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def score(
    folder: Path, dataset: str, partition: str, method: str = "fedavg", of: str = "test_accuracy"
) -> list[float]:
    """Of the rounds of a run for which nothing has been prepared."""
    text = SETTING.format(dataset=dataset, partition=partition)
    (folder / "config/experiments/mine.yaml").write_text(text, encoding="utf-8")
    assert cli.main(["run", "mine/first", method, "--seed", "1"]) == 0
    rounds = pd.read_parquet(folder / f"results/runs/mine/first/{method}/seed1/rounds.parquet")
    return rounds[of].tolist()


def write_table(path: Path, **more: list[str]) -> None:
    """120 patients of three hospitals, ill when old."""
    rng = np.random.default_rng(3)
    age = rng.uniform(20, 90, 120)
    columns: dict[str, list[str]] = {
        "age": [f"{value:.1f}" for value in age],
        "sex": list(rng.choice(["f", "m", ""], 120)),
        "hospital": list(rng.choice(["east", "north", "west"], 120)),
        "outcome": [str(int(value > 55)) for value in age],
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])


def test_the_method_of_your_own_is_fedprox(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config/datasets.yaml").write_text(TABLE, encoding="utf-8")
    write_table(folder / "data/my_table.csv")
    code, _ = blocks("README.md", "python")
    path = folder / code.partition("\n")[0].removeprefix("# ")
    path.parent.mkdir()
    path.write_text(code, encoding="utf-8")
    monkeypatch.setenv("FEDREPRO_METHODS", path.parts[-2])
    losses = {
        method: score(folder, "my_table", NATURAL, method, "client_loss")
        for method in (path.stem, "fedprox", "fedavg")
    }
    assert losses[path.stem] == losses["fedprox"] != losses["fedavg"]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_notebook_of_the_readme() -> None:
    _, code = blocks("README.md", "python")
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 2, 60)
    space = {"clients": [(x[:20], y[:20]), (x[20:40], y[20:40])], "test": (x[40:], y[40:])}
    exec(code.replace("rounds=20", "rounds=1"), space)
    assert [len(runs) for runs in space["runs"].values()] == [3, 3]


@pytest.mark.parametrize("shared_test", [False, True])
def test_a_table_of_your_own(folder: Path, shared_test: bool) -> None:
    content = entry("docs/data.md", "my_table") if shared_test else TABLE
    (folder / "config/datasets.yaml").write_text(content, encoding="utf-8")
    parts = ["test" if number % 5 == 0 else "train" for number in range(120)]
    write_table(
        folder / "data/my_table.csv",
        **({"part": parts, "id": [str(i) for i in range(120)]} if shared_test else {}),
    )
    found = (
        score(folder, "my_table", "{scheme: natural}")
        if shared_test
        else score(folder, "my_table", NATURAL, of="client_accuracy")
    )
    assert found[-1] > 0.85


def test_from_a_csv_file_to_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/own_table.md, all of it, but for Snakemake, which calls these very commands."""
    file = "docs/own_table.md"
    monkeypatch.chdir(tmp_path)
    init, _, steps = blocks(file, "sh")
    assert cli.main(init.split()[1:]) == 0
    monkeypatch.chdir(tmp_path / "clinic")
    (table,), (datasets, experiment) = blocks(file, "csv"), blocks(file, "yaml")
    Path("data").mkdir()
    Path("data/patients.csv").write_text(table, encoding="utf-8")
    catalogue = Path("config/datasets.yaml")
    above, line, below = catalogue.read_text(encoding="utf-8").partition("\ndatasets:\n")
    catalogue.write_text(above + line + datasets + below, encoding="utf-8")
    Path("config/experiments/mine.yaml").write_text(experiment, encoding="utf-8")
    for step in steps.splitlines():
        assert cli.main(step.split()[1:]) == 0
    (shares,) = Path("results/partitions/patients").glob("*/seed1.json")
    counts = json.loads(shares.read_text())
    assert [sum(client) for client in counts["test"]] == [3, 3, 3]  # of 10, as the text says
    assert [sum(client) for client in counts["train"]] == [7, 7, 7]
    cells = json.loads(Path("results/tables/demo/mine/table_1.json").read_text())["cells"]
    average, _, worst, _ = (cell["paper"]["mean"] for cell in cells)
    assert average > 75 and worst <= average
    assert "Worst hospital" in Path("reports/site/mine/table_1.html").read_text(encoding="utf-8")
    # The last line of a run is about what the table shows.
    said = [line for line in capsys.readouterr().err.splitlines() if " fedavg seed 1: done" in line]
    for words, value in (("average over clients", average), ("worst tenth of clients", worst)):
        text = f"; mine, Table 1: accuracy, {words}, weighted by test samples {value:.2f} %"
        assert text in said[0]


def test_a_folder_of_your_own_images(folder: Path) -> None:
    (folder / "config/datasets.yaml").write_text(
        entry("docs/data.md", "my_images"), encoding="utf-8"
    )
    for name, shade in (("day", 200), ("night", 40)):
        place = folder / "data/my_images/train" / name
        place.mkdir(parents=True)
        for number in range(30):
            Image.new("RGB", (40, 30), (shade + number % 5, shade, shade)).save(
                place / f"{number}.png"
            )
    assert score(folder, "my_images", "{scheme: iid, clients: 3}")[-1] == 1.0


def test_one_entry_for_several(folder: Path) -> None:
    text, *_ = blocks("docs/experiments.md", "yaml")
    (folder / "config/experiments/mine.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "config/datasets.yaml", folder / "config")
    bench = load(folder)
    check_methods(bench)
    mine = bench.experiments["mine"]
    assert list(mine.settings) == ["iid", "shards-20", "shards-40", "labels-20", "labels-40"]
    assert len(bench.table("mine", "table_1").cells) == 4 * 3
    assert mine.methods["prox_0.1"] == {"variant_of": "fedprox", "mu": 0.1}
    assert len(bench.target("mine", "figure_1", "paper").runs) == 4 * 1


def test_what_a_run_is_given(folder: Path) -> None:
    _, text, *_, figures, _ = blocks("docs/experiments.md", "yaml")
    (folder / "config/experiments/mine.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "config/datasets.yaml", folder / "config")
    skewed = load(folder).setting("mine/skewed")
    assert skewed.inputs.keys() == {"unlabelled", "generator", "discriminators"}
    assert skewed.partition.server == load(folder).setting("mine/gan").partition.share
    mine = folder / "config/experiments/mine.yaml"
    mine.write_text(text + figures, encoding="utf-8")
    targets = load(folder).targets("demo").values()
    assert [len(target.runs) for target in targets] == [1, 2, 2]


def test_hyperparameters_chosen_on_validation_samples(folder: Path) -> None:
    *_, text = blocks("docs/experiments.md", "yaml")
    shutil.copy(ROOT / "config/datasets.yaml", folder / "config")
    ours = (ROOT / "config/experiments/aaggff.yaml").read_text(encoding="utf-8")
    mine = {"system": "mine", "title": "Mine", "paper": "none", **yaml.safe_load(text)}
    mine["settings"] = {"heart": yaml.safe_load(ours)["settings"]["heart"]}
    (folder / "config/experiments/mine.yaml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    bench = load(folder)
    check_methods(bench)
    one, both, _ = bench.search("mine", "search_heart", "demo").trials
    assert [each.method for each in one.candidates[:2]] == ["fedprox_mu0.001", "fedprox_mu0.1"]
    assert both.candidates[0].method == "fedprox_mu0.01+fedadam_lr0.01"
