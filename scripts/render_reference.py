"""Render the tables of reports/papers/<system>/reference/README.md from the results there."""

import re
from pathlib import Path

import numpy as np

from fedrepro.config.loading import load
from fedrepro.config.targets import Cell, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.measures.clients import by_client, mixed
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import value_of
from fedrepro.report.papers import published
from fedrepro.run.landed_runs import PAPERS
from fedrepro.run.results import REFERENCE, RunRecord, read_run

HEART = "aaggff", "table_7_heart"
PERSONAL = ("superfed", "table_2_3"), ("superfed", "table_2_3_released")
NOISE = {"table_2_6_earlier": "earlier", "table_2_6_released": "released"}
MARKS = "<!-- rendered: {} -->\n", "<!-- end -->"


def values(target: TableTarget, cell: Cell) -> list[float]:
    """Each seed's number, from the committed runs only."""
    quantity = cell.metric.quantity
    records = (read_run(Path(), run, reference=True) for run in cell.runs(cell.methods[0]))
    numbers = (value_of(record, quantity, target.table.summary) for record in records)
    return [number for number in numbers if number is not None]


def render(target: TableTarget, papers: published.Published) -> str:
    """A row for each column of the table, and a summary."""
    lines = [
        "| method | average, ours | printed | worst, ours | printed | within the printed spread |",
        "|---|---|---|---|---|---|",
    ]
    inside = dict.fromkeys(("as in the paper", "as released"), 0)
    distance: dict[str, list[float]] = {reading: [] for reading in inside}
    ratios: dict[int, list[float]] = {0: [], 1: []}
    for column in target.table.columns:
        reading = "as released" if "released" in column.label else "as in the paper"
        line, within = [column.label], []
        for cell in (cell for cell in target.cells if cell.column is column):
            ours, printed = values(target, cell), tables.printed_cell(target, cell, papers)
            assert printed and printed.mean is not None and printed.std is not None
            off = abs(np.mean(ours) - printed.mean)
            within.append(bool(off <= printed.std))
            distance[reading].append(float(off))
            # One printed spread is ten times smaller than all others, and doubtful.
            for ddof in ratios if not printed.doubt else ():
                ratios[ddof].append(float(np.std(ours, ddof=ddof)) / printed.std)
            line += [f"{np.mean(ours):.2f} ({np.std(ours):.2f})", printed.text]
        inside[reading] += sum(within)
        lines.append(f"| {' | '.join(line)} | {'both' if all(within) else sum(within)} |")
    cells = len(distance["as released"])
    sums = "; ".join(
        f"{reading} {count} of {cells}, {np.mean(distance[reading]):.2f} points away in the mean"
        for reading, count in inside.items()
    )
    spreads = " and ".join(
        f"{np.median(ratios[ddof]):.2f} with ddof {ddof}" for ddof in sorted(ratios)
    )
    return "\n".join(
        [
            *lines,
            "",
            f"Cells within the printed spread: {sums}. Our spread over the printed one, median",
            f"over the cells: {spreads}.",
            "",
        ]
    )


def render_personal(target: TableTarget, papers: published.Published) -> str:
    """A row for each cell with results: first over clients per seed, then over seeds."""
    lines = [
        "| setting | method | seeds | ours | printed | difference | between seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in target.cells:
        quantity = cell.metric.quantity
        found = []
        for run in cell.runs(cell.methods[0]):
            record = read_run(Path(), run, reference=True)
            if record.state == "diverged":
                found.append((float("nan"), float("nan")))
            elif record.state == "finished":
                number = value_of(record, quantity, target.table.summary)
                assert number is not None
                found.append((number, spread_over_clients(record, cell)))
        if not found:
            continue
        printed = tables.printed_cell(target, cell, papers)
        assert printed and printed.mean is not None
        mean, spread = np.mean(found, axis=0)
        ours = f"{mean:.2f} ({spread:.2f})" if np.isfinite(mean) else "diverged"
        off = f"{mean - printed.mean:+.2f}" if np.isfinite(mean) else ""
        between = f"{np.std([mean for mean, _ in found], ddof=1):.2f}" if len(found) > 1 else ""
        words = (cell.row.label, cell.column.label, len(found), ours, printed.text, off, between)
        lines.append(f"| {' | '.join(map(str, words))} |")
    return "\n".join([*lines, ""])


def render_noise(bench: Workbench, papers: published.Published) -> str:
    """For each noise a table of the methods, in both readings of the code, and a summary."""
    ours: dict[tuple[str, str], dict[str, float]] = {}
    off: dict[tuple[str, str], list[float]] = {}
    methods: dict[str, None] = {}  # in the order of the table that has all of them, the last
    for item, reading in NOISE.items():
        target = bench.table("superfed", item, "paper")
        for cell in target.cells:
            found, there = values(target, cell), tables.printed_cell(target, cell, papers)
            if there is not None and reading == "released":
                methods[there.method] = None
            if not found or there is None or there.mean is None:
                continue
            noise, _, measure = cell.row.label.rpartition(", ")
            place = noise, there.method
            ours.setdefault(place, {})[f"{measure}, {reading}"] = float(np.mean(found))
            ours[place][f"{measure}, printed"] = there.mean
            off.setdefault((measure, reading), []).append(abs(float(np.mean(found)) - there.mean))
    measures = dict.fromkeys(measure for measure, _ in off)
    numbers_of = (*NOISE.values(), "printed")
    columns = [f"{measure}, {what}" for measure in measures for what in numbers_of]
    lines = []
    for noise in dict.fromkeys(noise for noise, _ in ours):
        lines += [f"| {noise} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for method in methods:
            if numbers := ours.get((noise, method)):
                texts = [f"{numbers[each]:.2f}" if each in numbers else "" for each in columns]
                lines.append(f"| {method} | {' | '.join(texts)} |")
        lines.append("")
    lines += [f"| mean distance to print | {' | '.join(NOISE.values())} |", "|---|---|---|"]
    for measure in measures:
        each = [off.get((measure, reading), []) for reading in NOISE.values()]
        texts = [f"{np.mean(of):.3g} ({len(of)} cells)" if of else "" for of in each]
        lines.append(f"| {measure} | {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def spread_over_clients(record: RunRecord, cell: Cell) -> float:
    """The standard deviation of clients' accuracies in the last round, in percent."""
    mix = cell.column.mix or "fixed"
    if mix != "fixed" and record.mixtures:
        accuracies, _ = mixed(record.mixtures, "accuracy", "accuracy", mix)
    else:
        accuracies = by_client(record.clients, "accuracy")[-1][1]
    return float(100 * np.nanstd(accuracies))


def pages() -> dict[Path, str]:
    """The pages with tables of the current results."""
    bench, papers = load(), published.load()
    rendered = [
        (*each, (render if each == HEART else render_personal)(bench.table(*each, "paper"), papers))
        for each in (HEART, *PERSONAL)
    ]
    found: dict[Path, str] = {}
    for system, item, table in (*rendered, ("superfed", "table_2_6", render_noise(bench, papers))):
        page = PAPERS / system / REFERENCE / "README.md"
        start, end = MARKS[0].format(item), MARKS[1]
        pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
        text = found.get(page) or page.read_text(encoding="utf-8")
        found[page] = pattern.sub(lambda match, new=table: f"{match[1]}{new}{match[2]}", text)
    return found


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
