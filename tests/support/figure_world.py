"""Figures of every kind over made-up runs, added to :mod:`support.report_world`."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.support import checksummed_json
from support import quick_yaml
from support.manifests import follow
from support.report_world import ROOT, curve, make_world, write_run

SETTINGS = ("fmnist-shards2-demo", "fmnist-shards5-demo")


def figures(settings: tuple[str, str] = SETTINGS) -> dict[str, Any]:
    """Every kind, most with methods of IMA's."""
    places = [{"label": name.upper(), "setting": name} for name in settings]
    columns = [{"label": name, "method": name} for name in ("mild", "strong")]
    return {
        "figure_2_3": {
            "kind": "heat_map",
            "title": "Two hyperparameters",
            "setting": settings[0],
            "x": {"label": "μ", "values": [0, 0.01]},
            "y": {"label": "momentum", "values": ["none", 0.9]},
            "panels": [
                {
                    "label": "FedProx",
                    "methods": [["fedavg", "mild"], ["fedavg+fedavgm", "mild+fedavgm"]],
                },
                {"label": "Nothing run", "methods": [["scaffold"] * 2, ["fednova"] * 2]},
            ],
        },
        "figure_2_4": {
            "kind": "landscape",
            "title": "Landscapes",
            "setting": settings[0],
            "columns": columns,
        },
        "figure_2_5": {
            "kind": "mixtures",
            "title": "Mixtures",
            "panels": places,
            "columns": columns,
        },
        "figure_regret": {
            "kind": "regret",
            "title": "Regret",
            "method": "aaggff_s",
            "panels": places,
        },
        "figure_5": {"kind": "partitions", "title": "Partitions", "panels": places},
        "figure_9": {"kind": "lines", "title": "Curves", "rows": places, "columns": columns},
        "figure_10": {"kind": "bars", "title": "Bars", "rows": places, "columns": columns},
        "figure_11": {
            "kind": "planes",
            "title": "Planes",
            "panels": [
                {**places[0], "method": "mild", "through": ["2.1", "2.2", "2.3"]},
                {**places[0], "method": "mild", "through": ["1", "2", "3"]},
            ],
        },
        "figure_12": {
            "kind": "segments",
            "title": "Segments",
            "panels": [{**places[0], "method": "mild", "through": ["2.average", "2"]}],
        },
        "figure_13": {
            "kind": "decomposition",
            "title": "Terms",
            "seeds": {"demo": [1, 2], "paper": [1, 2, 3]},
            "method": "mild",
            "show": [["train_bias", "variance"], ["slope"]],
            "panels": places[:1],
        },
        "figure_14": {
            "kind": "trend",
            "title": "Trend",
            "lines": ["mild", "strong"],
            "panels": [
                {
                    "label": "Data",
                    "x": "alpha",
                    "points": [
                        {"at": at, "setting": name, "demo": name, "methods": ["mild", "strong"]}
                        for at, name in zip((0.1, 0.5), settings, strict=True)
                    ]
                    + [{"at": 0.9, "setting": settings[0], "methods": ["fedavg", "strong"]}],
                }
            ],
        },
        "figure_15": {
            "kind": "averaging",
            "title": "Averages",
            "seeds": {"demo": [1, 2], "paper": [1, 2, 3]},
            "method": "mild",
            "panels": places[:1],
        },
        "figure_16": {
            "kind": "objective",
            "title": "Objective",
            "panels": places,
            "columns": columns,
        },
    }


def with_figures(root: Path) -> Workbench:
    """A world of one table's cell, with the figures."""
    add_figures(make_world(root, rows=1, columns=1))
    return load(root)


def figure(bench: Workbench, item: str) -> FigureTarget:
    """One of the figures at scale demo."""
    target = bench.target("ima", item, "demo")
    assert isinstance(target, FigureTarget)
    return target


def add_figures(root: Path) -> None:
    """Put them into IMA's experiment file, and computed tables into AAggFF's."""
    file = root / "config/experiments/ima.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    first = next(iter(experiment["settings"]))
    for name in SETTINGS:
        experiment["settings"].setdefault(name, {"extends": first})
    experiment["methods"] |= {
        "mild": {"variant_of": "fedprox", "mu": 0.01},
        "strong": {"variant_of": "fedprox", "mu": 1.0},
    }
    experiment["figures"] = figures()
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    file.with_name("aaggff.yaml").write_text(_computed_of_aaggff(), encoding="utf-8")


@cache
def _computed_of_aaggff() -> str:
    file = ROOT / "config/experiments/aaggff.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    del experiment["tables"], experiment["figures"]
    return quick_yaml.written(experiment)


def give_runs(bench: Workbench, target: FigureTarget, methods: set[str]) -> None:
    """Runs of some of a figure's methods, each better than the one before, where there is none."""
    for number, run in enumerate(target.runs):
        if run.method in methods and not (bench.root / run.folder).exists():
            rounds = bench.setting(run.setting).rounds
            write_run(bench, run, curve(rounds, 0.5 + 0.1 * number, number))


def write(path: Path, made: dict[str, Any]) -> None:
    """An analysis as its command leaves it."""
    checksummed_json.write(
        path, made, checksummed_json.place(path, path.parts[::-1].index("results"))
    )


def write_landscape(path: Path, **changes: Any) -> None:
    """A bowl of loss 0.1 in the middle and 2.1 in the corners."""
    x = [-1.0, -0.5, 0.0, 0.5, 1.0]
    loss = [[0.1 + a * a + b * b for a in x] for b in x]
    made = {"directions": "two random ones", "x": x, "y": x, "loss": loss, "accuracy": loss}
    write(path, made | changes)


def write_objective(bench: Workbench, run: RunKey) -> None:
    """The regret of a run with its objective after each round: 2.5, 5, 7.5..."""
    numbers = list(range(1, bench.setting(run.setting).rounds + 1))
    objective = [2.5 * number for number in numbers]
    write_regret(bench.root / run.analysis("regrets"), round=numbers, objective=objective)


def write_through(path: Path, **changes: Any) -> None:
    """A bowl through three models, or two where the name has two: the first is the best."""
    x = [-1.0, 0.0, 1.0, 2.0]
    names = ["client 3", "client 5", "client 8"][: path.stem.count("-") + 1]
    flat = len(names) == 2
    line = [0.1 + a * a for a in x]
    loss: Any = line if flat else [[value + b * b for value in line] for b in x]
    score: Any = [0.5] * 4 if flat else [[0.5] * 4, [0.7, None, 0.8, 0.8], *[[0.9] * 4] * 2]
    places = [(0.0, 0.0), (1.0, 0.0), (0.5, 1.0)][: len(names)]
    places += [(0.5, 0.3), (0.4, 0.4)]
    marks = [
        {"name": name, "x": a, "y": None if flat else b, "away": 0.25 * (name == "IMA, round 2"),
         "loss": 0.1 + a * a, "accuracy": 0.9}
        for name, (a, b) in zip([*names, "average", "IMA, round 2"], places, strict=True)
    ]  # fmt: skip
    made = {"models": names, "samples": 40, "precision": "float32", "x": x, "y": x, "loss": loss,
            "accuracy": score, "marks": marks}  # fmt: skip
    write(path, made | changes)


def write_decomposition(path: Path, **changes: Any) -> None:
    """Two rounds of small terms; the slope of the first is none."""
    rounds = [
        {"round": number, "train_bias": 0.5 / number, "variance": 1e-5 * number,
         "slope": None if number == 1 else 2.0, "cka": None if number == 1 else 0.5,
         "error": 40.0 / number, "errors_by_number": [60.0, 50.0, 40.0 / number]}
        for number in (1, 4)
    ]  # fmt: skip
    made = {"seeds": [1, 2], "samples": 40, "clients": 5, "estimates": "all", "rounds": rounds}
    write(path, made | changes)


# What an analysis of a kind of figure leaves.
WRITERS: dict[str, Callable[[Path], None]] = {
    "regret": lambda path: write_regret(path),
    "objective": lambda path: write_regret(path),
    "landscape": lambda path: write_landscape(path),
    "planes": lambda path: write_through(path),
    "segments": lambda path: write_through(path),
    "decomposition": lambda path: write_decomposition(path),
    "averaging": lambda path: write_decomposition(path),
}


def write_regret(path: Path, **changes: Any) -> None:
    """Four rounds of five clients: the regret crosses its bound once, one number is missing."""
    made = {"clients": 5, "linearised": False, "round": [1, 2, 3, 4],
            "regret": [0.5, 2.5, None, 3.0], "bound": [1.0, 2.0, 3.0, 4.0],
            "objective": [2.5, 5.0, 7.5, 10.0]}  # fmt: skip
    write(path, made | changes)


def write_mixtures(folder: Path, *accuracies: tuple[float, float]) -> None:
    """``mixtures.parquet``: each client's accuracy goes straight from one number to the other."""
    table = [
        {"client": client, "weight": number / 10, "accuracy": start + number / 10 * (end - start)}
        for number in range(11)
        for client, (start, end) in enumerate(accuracies)
    ]
    pd.DataFrame(table).to_parquet(folder / "mixtures.parquet")
    follow(folder, "mixtures.parquet")
