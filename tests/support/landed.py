"""Numbers of committed results, computed from Parquet files with pandas, and what pages show.

Only the question is read with the project's code: which runs, measure and rounds a cell asks for,
and which of them are of today's code.
"""

import html
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedrepro.config.loading import load
from fedrepro.config.metrics import Least, OfRounds, OverClients, Quality, Reached, RoundsTo
from fedrepro.config.targets import Cell, RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.measures.registry import SETS
from fedrepro.provenance.identity import other_numbers
from fedrepro.run.replayed import differences_of
from fedrepro.run.results import find_run
from support.places import ROOT

Numbers = NDArray[np.float64]

PAPERS = ROOT / "reports/papers"
COLUMNS = {"accuracy": "test_accuracy", "loss": "test_loss"}  # others are named as the measure
SHARES = {"accuracy", "top5", "auroc", "ensemble_accuracy", "accuracy_batch", "top5_batch"} | {
    name for name, measure in SETS.items() if measure.unit in ("%", "points")
}
# Cells that pandas cannot compute, by kind of metric: a synthetic set is judged by training, and
# only the result of that is kept. The page must show that result.
READ_ONLY = {"Quality"}


class Landed:
    """The committed Parquet files of a run."""

    def __init__(self, setting: str, method: str, seed: int) -> None:
        system, _, name = setting.partition("/")
        self.folder = PAPERS / system / "reference" / name / method / f"seed{seed}"
        self.packed = PAPERS / system / "compact" / name
        self.key = method, seed
        self.alone = (self.folder / "manifest.json").exists()
        self.exists = self.alone or self.key in _by_run(self.packed / "runs.parquet")

    @property
    def about(self) -> Any:
        """The row of runs.parquet, or None."""
        found = _by_run(self.packed / "runs.parquet").get(self.key)
        return None if found is None else found.iloc[0]

    def table(self, name: str) -> pd.DataFrame | None:
        if not self.alone:
            return _by_run(self.packed / f"{name}.parquet").get(self.key)
        path = self.folder / f"{name}.parquet"
        return pd.read_parquet(path) if path.exists() else None


@cache
def _by_run(path: Path) -> Mapping[tuple[str, int], pd.DataFrame]:
    """The rows of each method and seed of a file with many runs."""
    if not path.exists():
        return {}
    rows = pd.read_parquet(path)
    groups = rows.groupby(["method", "seed"], observed=True)
    return {(str(method), int(seed)): some for (method, seed), some in groups}  # type: ignore


def factor(measure: str) -> float:
    return 100.0 if measure in SHARES else 1.0


def series_of(run: Landed, metric: Any, last: int = 0, up_to: float = math.inf) -> Any:
    """A metric by round, in printed units; None if it has no rounds.

    Args:
        last: how many of the last rounds up to ``up_to`` are wanted; 0 for all.
    """
    if isinstance(metric, OfRounds):
        rounds, column = run.table("rounds"), COLUMNS.get(metric.name, metric.name)
        if rounds is None or column not in rounds:
            return None
        found = rounds.set_index("round")[column] * factor(metric.name)
        return found[found.index <= up_to].iloc[-last:]
    assert isinstance(metric, OverClients)
    mixtures = run.table("mixtures")
    if metric.mix != "fixed" and mixtures is not None and metric.of in mixtures:
        values, samples = mixed(mixtures, metric)
        at = np.full(len(values), run.table("rounds")["round"].max())  # type: ignore[index]
    else:
        found = run.table("clients")
        if found is None or metric.of not in found:
            return None
        own = metric.of.endswith("_coefficient") or "samples" not in found
        values = found[metric.of].to_numpy(dtype=float)
        samples = found["test_samples" if own else "samples"].to_numpy(dtype=float)
        at = found["round"].to_numpy()
    rounds, of_each = run.table("rounds"), f"client_{metric.of}"
    plain = metric == OverClients(of=metric.of, over_clients="average", weighted=False)
    if plain and rounds is not None and of_each in rounds:
        # The plain mean is recorded in each evaluated round, clients' own values in the last alone.
        means = rounds.set_index("round")[of_each].dropna() * factor(metric.of)
        return means[means.index <= up_to].iloc[-last:]
    there = np.isfinite(values) & np.isfinite(samples)
    return pd.Series(
        {
            number: over_clients(values[here], samples[here], metric)
            for number in sorted(n for n in np.unique(at) if n <= up_to)[-last:]
            if (here := there & (at == number)).any()
        }
    )


def mixed(mixtures: pd.DataFrame, metric: OverClients) -> tuple[Numbers, Numbers]:
    """Each client's value at the mixture that the metric chooses, and its samples."""
    guide = "accuracy_batch" if metric.of.endswith("_batch") else "accuracy"
    by_weight = mixtures.pivot(index="client", columns="weight", values=guide)
    values = mixtures.pivot(index="client", columns="weight", values=metric.of)
    samples = mixtures.groupby("client").test_samples.first()
    if metric.mix == "best":
        chosen = values[by_weight.mean().idxmax()]
    elif metric.mix == "cross_fitted":
        halves = [by_weight.iloc[start::2].mean().idxmax() for start in (1, 0)]
        chosen = pd.Series({k: values.loc[k, halves[at % 2]] for at, k in enumerate(values.index)})
    else:
        own = by_weight.fillna(-1).idxmax(axis=1)
        if metric.of == guide or metric.mix == "own":
            chosen = pd.Series({k: values.loc[k, weight] for k, weight in own.items()})
        else:
            chosen = values[sorted(set(own[samples > 0]))].max(axis=1)
    assert list(chosen.index) == list(samples.index)
    return chosen.to_numpy(dtype=float), samples.to_numpy(dtype=float)


def over_clients(values: Numbers, samples: Numbers, metric: OverClients) -> float:
    """One number of all clients, in printed units."""
    scale, higher_is_better = factor(metric.of), metric.measure.higher_is_better
    if metric.over_clients == "gini":
        if not values.sum():
            return 0.0
        # The mean absolute difference over twice the mean.
        return float(100 * np.abs(values[:, None] - values).mean() / (2 * values.mean()))

    def mean(some: Numbers, weights: Numbers) -> float:
        weights = weights if metric.weighted else np.ones(len(some))
        return float((some * weights).sum() / weights.sum())

    def tenth(greatest: bool) -> float:
        order = np.argsort(-values if greatest else values, kind="stable")
        first = order[: max(1, math.floor(len(values) / 10 + 1e-9))]
        return mean(values[first], samples[first])

    match metric.over_clients:
        case "average":
            return scale * mean(values, samples)
        case "worst":
            return scale * tenth(not higher_is_better)
        case "best":
            return scale * tenth(higher_is_better)
        case "gap":
            return scale * (tenth(True) - tenth(False))
    raise AssertionError(f"no formula for {metric.over_clients}")


def value_of(run: Landed, metric: Any, last: int, up_to: int | None) -> float | None:
    """A run's number in a table."""
    accuracy = None
    if isinstance(metric, Quality):
        numbers = json.loads(run.about.quality).get("numbers", {}) if run.about is not None else {}
        found = numbers.get(metric.quality)
        return None if found is None else found * factor(metric.quality)
    if isinstance(metric, RoundsTo | Reached):
        accuracy = series_of(run, OfRounds(name="accuracy"))
        if accuracy is None:
            return None
        accuracy = accuracy[accuracy.index <= (up_to or math.inf)]
    if isinstance(metric, RoundsTo):
        met = accuracy.rolling(metric.mean_of).mean() >= metric.rounds_to - 1e-9  # type: ignore
        return float(met.idxmax()) if met.any() else None
    if isinstance(metric, Reached):
        step = metric.reached_in_steps_of
        return step * math.floor((accuracy.max() + 1e-9) / step)  # type: ignore[union-attr]
    name = OfRounds(name=metric.least) if isinstance(metric, Least) else metric
    found = series_of(run, name, 0 if isinstance(metric, Least) else last, up_to or math.inf)
    if found is None:
        return None
    if isinstance(metric, Least):
        return float(found.min())
    return float(found.mean()) if len(found) and np.isfinite(found).all() else None


KNOWN: dict[tuple[object, ...], float | None] = {}  # many cells take the same number


def numbers_of(target: TableTarget, cell: Cell, method: str) -> dict[int, float]:
    """By seed, from Parquet files."""
    metric, summary = target.table.metric_of(cell.row, cell.column), target.table.summary
    asked = repr(metric), summary.rounds, summary.up_to
    found = {}
    for seed in cell.seeds:
        key = cell.setting, method, seed, *asked
        if key not in KNOWN:
            run = Landed(cell.setting, method, seed)
            value = value_of(run, metric, summary.rounds, summary.up_to) if run.exists else None
            KNOWN[key] = value
        found[seed] = KNOWN[key]
    return {seed: value for seed, value in found.items() if value is not None}


@cache
def landed_bench() -> Workbench:
    """This repository's workbench."""
    return load(ROOT)


@cache
def is_stale(setting: str, method: str, seed: int) -> bool:
    """Whether a run is of other code or another configuration than today's."""
    record, bench = find_run(ROOT, RunKey(setting, method, seed)), landed_bench()
    listed = other_numbers(differences_of(record, bench.run_spec(setting, method, seed)))
    return any(difference.about in ("configuration", "code") for difference in listed)


def averaged(target: TableTarget, cell: Cell, method: str) -> dict[int, float]:
    """By seed, without those that are stale if others are not."""
    numbers = numbers_of(target, cell, method)
    alone = [seed for seed in numbers if Landed(cell.setting, method, seed).alone]
    stale = {seed for seed in alone if is_stale(cell.setting, method, seed)}
    return {seed: number for seed, number in numbers.items() if seed not in stale} or numbers


def by_method(target: TableTarget, cell: Cell) -> dict[str, dict[int, float]]:
    """By method and seed; speed-ups over the method without the wrapper."""
    found = {method: averaged(target, cell, method) for method in cell.methods}
    if cell.rivals:
        rounds = {method: averaged(target, cell, method) for method in cell.rivals}
        (own, ours), (_, theirs) = (
            min(
                ((name, each) for name, each in some.items() if each),
                key=lambda item: sum(item[1].values()) / len(item[1]),
                default=("", {}),
            )
            for some in (found, rounds)
        )
        found = {own: {seed: theirs[seed] / n for seed, n in ours.items() if seed in theirs}}
    return {method: values for method, values in found.items() if values}


def words(markup: str) -> str:
    """The text of a piece of a page, with single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def parts(markup: str, tag: str, **attributes: str) -> dict[str, str]:
    """The insides of all elements of a kind that do not contain themselves, by id or number.

    Args:
        attributes: regular expressions that attributes must match.
    """
    wanted = "".join(rf'(?=[^>]*\s{key}="{value}")' for key, value in attributes.items())
    found = {}
    for each in re.finditer(rf"<{tag}(?=[\s>]){wanted}([^>]*)>(.*?)</{tag}>", markup, re.DOTALL):
        name = re.search(r'\sid="([^"]*)"', each[1])
        found[name[1] if name else str(len(found))] = each[2]
    return found


def cells_in(row: str) -> list[str]:
    """The texts of a row of a table."""
    return [words(each) for each in re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", row, re.DOTALL)]


def shows(text: str, value: float, decimals: int = 2) -> bool:
    """Whether a text is a value's; a tie may be rounded either way."""
    number = text.removeprefix("± ").replace("\N{MINUS SIGN}", "-")
    right = re.fullmatch(rf"[+-]?\d+\.\d{{{decimals}}}", number) is not None
    return right and abs(float(number) - value) <= 0.5 * 10**-decimals + 1e-9


def digits(values: list[float | None]) -> int:
    """The decimals of a row's numbers: two, or three digits of the largest where all are small."""
    largest = max(abs(value) for value in values if value is not None)
    return 2 if largest >= 0.1 else 2 - int(f"{largest:.16e}".partition("e")[2])


def half_width(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == pytest.approx(other, rel=1e-9, abs=1e-9)


def together(target: TableTarget, cell: Cell, method: str) -> float:
    """A number that several seeds have together."""
    metric, summary = target.table.metric_of(cell.row, cell.column), target.table.summary
    values = numbers_of(target, cell, method)
    if isinstance(metric, Reached):
        return min(values.values())
    assert isinstance(metric, Least)
    name = OfRounds(name=metric.least)
    curves = [series_of(Landed(cell.setting, method, seed), name) for seed in values]
    assert summary.up_to is None
    return float(pd.concat(curves, axis=1, join="inner").mean(axis=1).min())  # type: ignore


def max_of(target: TableTarget, cell: Cell) -> dict[int, float]:
    """The numbers of the cell's best method."""
    found = by_method(target, cell)
    best = max if target.table.metric_of(cell.row, cell.column).quantity.higher_is_better else min
    return best(found.values(), key=lambda values: math.fsum(values.values()) / len(values))
