"""The page of measured costs: of runs, per table and per setting and method."""

from collections.abc import Iterable
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.pages.about import use_of
from fedrepro.report.pages.run import with_inputs
from fedrepro.report.papers.published import Published
from fedrepro.run.results import RunRecord, read_run
from fedrepro.support.grouping import grouped


def runs_with_cost(workbench: Workbench) -> list[RunRecord]:
    """All timed runs of this machine that tables need, directly or as inputs, at either scale."""
    runs = dict.fromkeys(
        run
        for scale in ("paper", "demo")
        for target in workbench.targets(scale).values()
        for run in target.runs
    )
    records = (read_run(workbench.root, run) for run in with_inputs(workbench, runs))
    return [record for record in records if record.timing]


def cost(
    workbench: Workbench, papers: Published, own: list[RunRecord], reference: Iterable[RunRecord]
) -> dict[str, Any]:
    """Measured costs of runs, per table and per setting and method."""
    records = {record.run: record for record in own}
    tables = []
    for scale in ("paper", "demo"):
        for target in workbench.targets(scale).values():
            here = [records[run] for run in target.runs if run in records]
            if here:
                wanted = {*target.required, *(record.run for record in here)}
                about = {**use_of(target, papers), "scale": scale, "wanted": len(wanted)}
                tables.append(about | _sum(here))
    small: dict[RunKey, RunRecord] = {}
    for table in workbench.tables("compact").values():
        records = {run: read_run(workbench.root, run, reference=True) for run in table.runs}
        here = [record for record in records.values() if record.landed and record.timing]
        if here:
            small |= {record.run: record for record in here}
            about = {**use_of(table, papers), "scale": "compact", "wanted": len(records)}
            tables.append(about | _sum(here))
    reference = [record for record in reference if record.timing]
    totals = {
        ("Reference results", "paper"): reference,
        ("Small runs of tables that are in the repository, each once", "compact"): [
            *small.values()
        ],
    }
    groups = grouped(
        [*reference, *own], lambda each: (each.run.setting, each.run.method, each.reference)
    )
    rows = [
        {
            "setting": setting,
            "method": method,
            "reference": is_reference,
            "records": group,
            **_sum(group),
        }
        for (setting, method, is_reference), group in groups.items()
    ]
    return {
        "tables": tables,
        "rows": rows,
        "totals": [
            {"label": label, "scale": scale, **_sum(those)}
            for (label, scale), those in totals.items()
            if those
        ],
    }


def _sum(records: list[RunRecord]) -> dict[str, Any]:
    gpu = [record for record in records if str(record.manifest.get("device", ""))[:4] == "cuda"]
    return {
        "runs": len(records),
        "wall": sum(float(record.timing.get("wall_seconds", 0)) for record in records),
        "cpu": sum(float(record.timing.get("cpu_seconds", 0)) for record in records),
        "gpu": sum(float(record.timing.get("wall_seconds", 0)) for record in gpu),
        "memory": max(float(record.timing.get("peak_memory_bytes", 0)) for record in records),
        "speed": sum(float(record.timing.get("rounds_per_second", 0)) for record in records)
        / len(records),
        "devices": sorted({str(record.manifest.get("device", "unknown")) for record in records}),
    }
