"""Every number of the site of committed results, computed again from Parquet files with pandas.

Only the question is read with the project's code: which runs, measure and rounds a cell asks for.
"""

import csv
import html
import json
import math
import re
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.config.loading import load
from fedrepro.config.metrics import Least, OfRounds, OverClients, Quality, Reached, RoundsTo
from fedrepro.config.targets import Cell, TableTarget
from fedrepro.config.workbench import Workbench
from support.places import ROOT

PAPERS = ROOT / "reports/papers"
COLUMNS = {"accuracy": "test_accuracy", "loss": "test_loss"}  # others are named as the measure
SHARES = {
    "accuracy", "top5", "auroc", "ensemble_accuracy", "accuracy_batch", "top5_batch", "one_epoch",
    "test_accuracy", "test_one_epoch", "precision", "recall", "diversity", "feature_diversity",
    "recognised", "nearest", "membership", "accuracy_std", "one_epoch_std",
}  # fmt: skip
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
        self.exists = (self.folder / "manifest.json").exists() or self.about is not None

    @property
    def about(self) -> Any:
        """The row of runs.parquet, or None."""
        rows = _parquet(self.packed / "runs.parquet")
        if rows is None:
            return None
        found = rows[(rows.method == self.key[0]) & (rows.seed == self.key[1])]
        return None if found.empty else found.iloc[0]

    def table(self, name: str) -> pd.DataFrame | None:
        if (self.folder / "manifest.json").exists():
            return _parquet(self.folder / f"{name}.parquet")
        rows = _parquet(self.packed / f"{name}.parquet")
        if rows is None:
            return None
        found = rows[(rows.method == self.key[0]) & (rows.seed == self.key[1])]
        return None if found.empty else found.drop(columns=["method", "seed"])


@cache
def _parquet(path: Path) -> pd.DataFrame | None:
    return pd.read_parquet(path) if path.exists() else None


def factor(measure: str) -> float:
    return 100.0 if measure in SHARES else 1.0


def series_of(run: Landed, metric: Any) -> pd.Series | None:
    """A metric by round, in printed units; None if it has no rounds."""
    if isinstance(metric, OfRounds):
        rounds, column = run.table("rounds"), COLUMNS.get(metric.name, metric.name)
        if rounds is None or column not in rounds:
            return None
        return rounds.set_index("round")[column] * factor(metric.name)
    assert isinstance(metric, OverClients)
    mixtures = run.table("mixtures")
    if metric.mix != "fixed" and mixtures is not None and metric.of in mixtures:
        clients = mixed(mixtures, metric)
        clients["round"] = run.table("rounds")["round"].max()  # type: ignore[index]
    else:
        found = run.table("clients")
        if found is None or metric.of not in found:
            return None
        clients = found.rename(columns={metric.of: "value"})
        if metric.of.endswith("_coefficient") or "samples" not in clients:
            clients = clients.rename(columns={"test_samples": "samples"})
    rising = metric.measure.rising
    grouped = clients.groupby("round")[["value", "samples"]]
    return grouped.apply(lambda rows: over_clients(rows.dropna(), metric, rising))


def mixed(mixtures: pd.DataFrame, metric: OverClients) -> pd.DataFrame:
    """Each client's value at the mixture that the metric chooses."""
    guide = "accuracy_batch" if metric.of.endswith("_batch") else "accuracy"
    by_weight = mixtures.pivot(index="client", columns="weight", values=guide)
    values = mixtures.pivot(index="client", columns="weight", values=metric.of)
    samples = mixtures.groupby("client").test_samples.first()
    if metric.mix == "best":
        chosen = values[by_weight.mean().idxmax()]
    else:
        own = by_weight.fillna(-1).idxmax(axis=1)
        if metric.of == guide:
            chosen = pd.Series({k: values.loc[k, weight] for k, weight in own.items()})
        else:
            chosen = values[sorted(set(own[samples > 0]))].max(axis=1)
    return pd.DataFrame({"value": chosen, "samples": samples})


def over_clients(rows: pd.DataFrame, metric: OverClients, rising: bool) -> float:
    scale = factor(metric.of)
    if metric.over_clients == "gini":
        x = rows.value.to_numpy()
        if not x.sum():
            return 0.0
        # The mean absolute difference over twice the mean.
        return 100 * np.abs(x[:, None] - x).mean() / (2 * x.mean())

    def mean(some: pd.DataFrame) -> float:
        weights = some.samples if metric.weighted else np.ones(len(some))
        return float((some.value * weights).sum() / np.sum(weights))

    def tenth(greatest: bool) -> float:
        ordered = rows.sort_values("value", ascending=not greatest, kind="stable")
        return mean(ordered.head(max(1, math.floor(len(rows) / 10 + 1e-9))))

    match metric.over_clients:
        case "average":
            return scale * mean(rows)
        case "worst":
            return scale * tenth(not rising)
        case "best":
            return scale * tenth(rising)
    return scale * (tenth(True) - tenth(False))


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
    series = series_of(run, name)
    if series is None:
        return None
    series = series[series.index <= (up_to or math.inf)]
    if isinstance(metric, Least):
        return float(series.min())
    found = series.iloc[-last:]
    return float(found.mean()) if len(found) and np.isfinite(found).all() else None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Workbench]:
    """The site's folder, and the workbench that it was made from."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import whole_site
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    root = tmp_path_factory.mktemp("landed")
    start = whole_site.write_site(root)
    assert start.name == "index.html"
    return start.parent, load(root)


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


def by_method(target: TableTarget, cell: Cell) -> dict[str, dict[int, float]]:
    """By method and seed; speed-ups over the method without the wrapper."""
    found = {method: numbers_of(target, cell, method) for method in cell.methods}
    if cell.rivals:
        rounds = {method: numbers_of(target, cell, method) for method in cell.rivals}
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


class Elements(HTMLParser):
    """The text of elements with an id, and the rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.links: list[list[str]] = []
        self._open: list[tuple[str, str | None]] = []
        self.feed(text)

    def text(self, name: str) -> str:
        """The text of the element with an id, with single spaces."""
        return " ".join(" ".join(self.texts[name]).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("meta", "link", "img"):  # which nothing closes
            return
        found = dict(attrs)
        self._open.append((tag, found.get("id")))
        if found.get("id"):
            self.texts.setdefault(str(found["id"]), [])
        if tag == "tr":
            self.rows.append([])
            self.links.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag == "a" and self.links:
            self.links[-1].append(str(found.get("href")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.texts[name].append(data)
        if self.rows and self.rows[-1] and any(tag in ("td", "th") for tag, _ in self._open):
            self.rows[-1][-1] += data


def shows(text: str, value: float, decimals: int = 2) -> bool:
    """Whether a text is a value's; a tie may be rounded either way."""
    number = text.removeprefix("± ").replace("\N{MINUS SIGN}", "-")
    right = re.fullmatch(rf"[+-]?\d+\.\d{{{decimals}}}", number) is not None
    return right and abs(float(number) - value) <= 0.5 * 10**-decimals + 1e-9


def half_width(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == pytest.approx(other, rel=1e-9, abs=1e-9)


def test_tables_and_their_downloads_show_what_the_parquet_files_say(
    made: tuple[Path, Workbench],
) -> None:
    site, bench = made
    seen: Counter[str] = Counter()
    for target in bench.tables("compact").values():
        page = site / target.system / f"{target.item}.html"
        shown = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
        elements = Elements(page.read_text(encoding="utf-8"))
        lines = list(csv.DictReader(page.with_suffix(".csv").read_text("utf-8").splitlines()))
        latex = page.with_suffix(".tex").read_text(encoding="utf-8")
        wide = len(target.table.columns)
        for place, (cell, told) in enumerate(zip(target.cells, shown["cells"], strict=True)):
            metric = target.table.metric_of(cell.row, cell.column)
            ours = told["paper"]
            rising = metric.reading.rising
            for run in ours["runs"]:
                own = by_method(target, cell).get(run["method"], {})
                if run["value"] is not None or not run["why"]:
                    at = (page, cell.row.label, cell.column.label, run["method"], run["seed"])
                    assert same(run["value"], own.get(run["seed"])), at
                    seen["runs"] += run["value"] is not None
            kept = {
                run["seed"]: run["value"]
                for run in ours["runs"]
                if run["method"] == ours["chosen"] and run["value"] is not None
            }
            line, identifier = lines[place], "-".join(str(n + 1) for n in divmod(place, wide))
            text = elements.text(f"cell-{identifier}")
            row = elements.text(f"row-{identifier}")
            if not kept:
                assert ours["mean"] is None and line["ours"] == ""
                continue
            values = by_method(target, cell)[ours["chosen"]]
            means = {
                method: math.fsum(found.values()) / len(found)
                for method, found in by_method(target, cell).items()
            }
            best = (max if rising else min)(means.values())
            if isinstance(metric, Least | Reached):
                mean, half = together(target, cell, ours["chosen"]), None
            else:
                mean, half = means[ours["chosen"]], half_width([*values.values()])
                assert same(mean, best), (page, cell.row.label, cell.column.label)
            assert set(values) == set(kept)
            assert same(ours["mean"], mean), (page, cell.row.label, cell.column.label)
            assert same(ours["half_width"], half) and ours["n"] == len(values)
            assert same(float(line["ours"]), mean)
            assert (
                line["half_width_95"] == ""
                if half is None
                else same(float(line["half_width_95"]), half)
            )
            decimals = told["printed"]["decimals"] if told["printed"] else 2
            for words in (text.split(), row.split()):
                assert any(shows(word, mean, decimals) for word in words), (page, identifier, text)
            assert f"{ours['mean']:.{decimals}f}" in latex
            if half is not None:
                found = row.partition("± ")[2].partition(" ")[0]
                assert shows(found, half, decimals), (page, identifier, row)
            printed = told["printed"] and told["printed"]["mean"]
            if told["difference"] is not None:
                assert same(told["difference"], mean - printed)
                words = [word for word in row.split() if word[0] in "+\N{MINUS SIGN}"]
                assert any(shows(word, mean - printed, decimals) for word in words)
            seen["read" if type(metric).__name__ in READ_ONLY else "computed"] += 1
            seen[type(metric).__name__] += 1
    # As many at least as when this was written: 618 cells of 2,517 runs; 24 cells are read.
    assert seen["computed"] >= 618 and seen["runs"] >= 2517, seen
    assert seen["read"] == sum(seen[name] for name in READ_ONLY) <= 60, seen


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


def test_pages_of_runs_show_the_number_of_each_cell_that_uses_them(
    made: tuple[Path, Workbench],
) -> None:
    site, bench = made
    cells = {
        (scale == "demo", f"{target.system}/{target.item}.html#row-{row + 1}-{column + 1}"): (
            target,
            cell,
        )
        for scale in ("compact", "demo")
        for target in bench.tables(scale).values()
        for place, cell in enumerate(target.cells)
        for row, column in [divmod(place, len(target.table.columns))]
    }
    pages, seen = sorted((site / "reference").glob("*/*/*/seed*.html")), 0
    for page in pages:
        system, setting, method, name = page.relative_to(site / "reference").parts
        seed = int(name.removeprefix("seed").removesuffix(".html"))
        text = page.read_text(encoding="utf-8")
        uses = text.partition('<table class="stack answers">')[2].partition("</table>")[0]
        for each in uses.partition("<tbody>")[2].split("<tr>")[1:]:
            shown = re.search(r'data-label="This run">([^<]*)', each)
            assert shown, page
            number = shown[1].split()[0]
            for address in re.findall(r'href="(?:\.\./)*([^"]*#row-\d+-\d+)"', each):
                target, cell = cells['"tag demo"' in each, html.unescape(address)]
                assert cell.setting == f"{system}/{setting}" and method in cell.methods, (
                    page,
                    address,
                    cell.setting,
                    cell.methods,
                )
                value = numbers_of(target, cell, method).get(seed)
                assert number == "no" if value is None else shows(number, value), (
                    page,
                    address,
                    number,
                    value,
                )
                seen += value is not None
    assert len(pages) >= 140 and seen >= 250, (len(pages), seen)


def test_pages_of_pairs_show_paired_differences(made: tuple[Path, Workbench]) -> None:
    site, bench = made
    targets = {f"{each.system}/{each.item}.html": each for each in bench.tables("compact").values()}
    seen = 0
    for page in sorted((site / "compare").glob("*/*.html")):
        elements = Elements(page.read_text(encoding="utf-8"))
        for row, links in zip(elements.rows, elements.links, strict=True):
            cells = [" ".join(each.split()) for each in row]
            if cells[:1] == ["Data and setting"]:
                name, other = cells[1:3]
                continue
            address, _, place = links[0].replace("../", "").partition("#row-")
            target = targets[address]
            wide = len(target.table.columns)
            here = target.cells[(int(place) - 1) * wide : int(place) * wide]
            ours, theirs = (
                max_of(target, next(cell for cell in here if cell.column.label == label))
                for label in (name, other)
            )
            assert {bench.datasets[bench.setting(here[0].setting).dataset].title} == {
                cells[0].removesuffix(f" {here[0].row.label}").removesuffix(here[0].row.label)
            }
            shared = [int(seed) for seed in sorted({*ours} & {*theirs})]
            assert cells[5] == str(len(shared)), (page, cells)
            differences = [ours[seed] - theirs[seed] for seed in shared]
            half = half_width(differences)
            means = [
                math.fsum(some) / len(shared)
                for some in (
                    [ours[seed] for seed in shared],
                    [theirs[seed] for seed in shared],
                    differences,
                )
            ]
            assert all(map(shows, cells[1:4], means)), (page, cells, means)
            assert cells[4] == "–" if half is None else shows(cells[4], half), (page, cells)
            seen += 1
    assert seen >= 2000, seen


def max_of(target: TableTarget, cell: Cell) -> dict[int, float]:
    """The numbers of the cell's best method."""
    found = by_method(target, cell)
    best = max if target.table.metric_of(cell.row, cell.column).reading.rising else min
    return best(found.values(), key=lambda values: math.fsum(values.values()) / len(values))


def test_no_page_names_the_machine(made: tuple[Path, Workbench]) -> None:
    site, _ = made
    secret = re.compile("|".join(map(re.escape, {str(ROOT), str(Path.home()), str(site)})))
    for page in site.rglob("*"):
        if page.suffix in (".html", ".json", ".csv", ".tex", ".yaml", ".js"):
            assert not secret.search(page.read_text(encoding="utf-8")), page


def test_pages_say_what_they_are_of_and_lead_on(made: tuple[Path, Workbench]) -> None:
    site, _ = made
    for page in site.rglob("*.html"):
        assert "Licence: MIT." in page.read_text(encoding="utf-8"), page
    methods = (site / "methods/index.html").read_text(encoding="utf-8")
    assert {path.name for path in (site / "methods").glob("*.html")} == {
        "index.html", *re.findall(r'href="(\w+\.html)"', methods)
    }  # fmt: skip
    said = (site / "discrepancies.html").read_text(encoding="utf-8")
    first = said.partition("By measured effect")[2].partition("</details>")[0]
    found = re.findall(r"([^>\s]+) points</span>", first)
    effects = [abs(float(text.replace("\N{MINUS SIGN}", "-"))) for text in found]
    assert len(effects) >= 8 and effects == sorted(effects, reverse=True)
    start = (site / "index.html").read_text(encoding="utf-8")
    assert 'class="tag demo"' not in start and start.count('<details class="coverage">') == 5
