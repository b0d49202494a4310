"""Render the tables of reports/reference/README.md from the reference results beside it."""

import re
from pathlib import Path

import numpy as np

from fedrepro import config
from fedrepro.config import Cell, TableTarget
from fedrepro.report import published, tables
from fedrepro.report.measures import measure_of
from fedrepro.report.runs import read_run

PAGE = Path("reports/reference/README.md")
SYSTEM, ITEM = "aaggff", "table_7_heart"
MARKS = "<!-- rendered: {} -->\n", "<!-- end -->"


def values(target: TableTarget, cell: Cell) -> list[float]:
    """Each seed's number, from the committed runs alone."""
    measure = measure_of(target.table.metric_of(cell.row))
    records = (read_run(Path(), run, landed=True) for run in cell.runs(cell.methods[0]))
    found = (tables.value_of(record, measure, 1) for record in records)
    return [value for value in found if value is not None]


def render(target: TableTarget, papers: published.Published) -> str:
    """A row for each column of the table, and what they come to."""
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
            # One printed spread is ten times smaller than all others and doubted.
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


def main() -> None:
    bench = config.load()
    target = bench.table(SYSTEM, ITEM, "paper")
    start, end = MARKS[0].format(ITEM), MARKS[1]
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
    rendered = render(target, published.load())
    PAGE.write_text(
        pattern.sub(lambda found: f"{found[1]}{rendered}{found[2]}", text), encoding="utf-8"
    )
    print(rendered)


if __name__ == "__main__":
    main()
