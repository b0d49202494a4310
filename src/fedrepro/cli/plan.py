"""``fedrepro estimate``: estimate the cost of targets before making them."""

import argparse
from typing import Any

from fedrepro.cli.arguments import require_at_least
from fedrepro.cli.console import print_lines, print_rows, printed_as_json
from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import load
from fedrepro.cost.estimate import CellTarget, CostEstimate, chosen
from fedrepro.cost.model import CostModel
from fedrepro.run import cards
from fedrepro.support.errors import COMMAND_LINE, UserError, bad_argument
from fedrepro.support.terminal import say
from fedrepro.support.typed_yaml import validate
from fedrepro.workflow.resources import estimated, save_estimates

HOURS = 0.1  # what takes less needs no word on how well it is known
REASONS = 8  # at most so many are printed

# The keys of an estimate's lines in the order in which they are printed.
OF_LINES = "kind name runs done steps hours predicted wall unknown disk memory"
OF_RATES = "workload runs hours steps_per_second source"
OF_DATA = "name runs fetch download unsized disk"
HOURS_BY = ("hours", "predicted", "wall")
SCALED = dict.fromkeys(("disk", "memory", "download"), 1e6)  # in MB


def handle(arguments: argparse.Namespace) -> None:
    if arguments.gpus is not None:
        require_at_least("--gpus", arguments.gpus, 1)
    bench = load(overrides=validate(Overrides, {"device": arguments.device}, COMMAND_LINE))
    if arguments.gpus is not None and bench.config.device == "cpu":
        wanted = "none on the device cpu: it has no effect without --device cuda"
        raise bad_argument("--gpus", arguments.gpus, wanted)
    targets = chosen(bench, arguments.targets, arguments.scale)
    gpus = arguments.gpus or len(cards.known(bench.config.device)) or 1
    estimate = CostEstimate(CostModel(bench, targets), gpus)
    try:
        save_estimates(bench.root, bench.config, estimated(bench, estimate.costs.values()))
    except UserError as error:
        if error.code != "unwritable":
            raise
        say(f"fedrepro: {error}: the estimate is printed only")  # somebody else's workbench
    content = estimate.as_json()
    if printed_as_json(arguments, content):
        return
    print_lines(_unknown(content))
    on_gpu = bench.config.device != "cpu"
    hours = "GPU hours" if on_gpu else "CPU hours"
    header = (
        *("kind", "name", "runs", "done", "steps", hours, "of these predicted"),
        *(f"hours on {content['at_once']}", "unknown", "disk MB", "memory MB"),
    )
    print_rows(header, [_cells(line, OF_LINES) for line in content["lines"]], title=1)
    if on_gpu:
        of_rates = ("training", "runs", hours, "steps/s with FedAvg", "rate")
        print_rows(of_rates, [_cells(rate, OF_RATES) for rate in content["rates"]])
    if content["missing"]:
        about = ("missing data set", "runs", "files", "download MB", "unsized", "prepared MB")
        print_rows(about, [_cells(data, OF_DATA) for data in content["missing"]])
    print_lines(_remarks(content))
    for cell in (target for target in targets if isinstance(target, CellTarget)):
        files = " ".join(str(run.manifest) for run in cell.runs)
        print(f"To make the cell: snakemake --cores {content['at_once']} {files}")


def _cells(line: dict[str, Any], keys: str) -> tuple[str, ...]:
    """Write a line's values under the keys as cells."""
    return tuple(_cell(line, key) for key in keys.split())


def _cell(line: dict[str, Any], key: str) -> str:
    value = line[key]
    if value is None:
        return "?"
    if key in HOURS_BY:
        return _hours(line, key)
    return value if isinstance(value, str) else f"{value / SCALED.get(key, 1):,.0f}"


def _hours(line: dict[str, Any], key: str) -> str:
    """Hours; what is not known is no zero."""
    if not line.get("unknown"):
        return f"{line[key]:,.2f}"
    return f"> {line[key]:,.2f}" if line["runs"] - line["done"] > line["unknown"] else "?"


def _wall(total: dict[str, Any]) -> str:
    """The time of all of it, also where it is a few minutes."""
    if total["unknown"] or total["wall"] >= 1:
        return f"{_hours(total, 'wall')} hours"
    return f"{60 * total['wall']:.1f} minutes"


def _unknown(content: dict[str, Any]) -> list[str]:
    """Lines about the runs whose hours no sum includes."""
    reasons = sorted(content["without_hours"].items(), key=lambda item: -item[1])
    lines = [f"Hours unknown: {_runs(number)}: {why}" for why, number in reasons[:REASONS]]
    if reasons[REASONS:]:
        rest = sum(number for _, number in reasons[REASONS:])
        lines.append(f"Hours unknown: {_runs(rest, 'more ')}; --json lists all reasons.")
    return lines


def _runs(number: int, more: str = "") -> str:
    return f"{number:,} {more}run{'' if number == 1 else 's'}"


def _remarks(content: dict[str, Any]) -> list[str]:
    """Lines that say what the sums include and what they leave out."""
    total = content["lines"][-1]
    where = "On this machine"
    if total["predicted"] + total["landed"] > 0:
        where = f"On {content['machine'].get('accelerator') or content['machine']['processor']}"
    jobs = ", ".join(f"{number:,} {kind}" for kind, number in content["jobs"].items() if number)
    if not jobs:
        return ["Nothing is left but tables and pages, of seconds each."]
    lines = [
        f"Jobs left: {jobs}; tables and pages (seconds each) are not counted.",
        f"{where}, {content['at_once']} at a time: {_wall(total)}, if all of them fit in memory.",
    ]
    if total["done"]:
        lines.append(f"Left out because they are finished: {_runs(total['done'])}.")
    if content["estimated_partitions"]:
        lines.append(
            f"Estimated from the catalogue because data are not partitioned yet: "
            f"{_runs(content['estimated_partitions'])}."
        )
    if content["at_most"]:
        lines.append(
            f"At most: {_runs(content['at_most'])} may stop before the last round (`stop`)."
        )
    if total["hours"] >= HOURS:
        measured = abs(total["hours"] - total["landed"] - total["predicted"])  # no -0.0
        lines.append(
            f"Of these hours, {measured:,.1f} are by runs that this machine has finished, "
            f"{total['landed']:,.1f} by rates of the same training elsewhere, and "
            f"{total['predicted']:,.1f} are predicted, which may be twice as many "
            "(docs/cluster.md)."
        )
    lines += [
        f"Trained in {name}, and estimated at the speed of float32: {_runs(number)}."
        for name, number in sorted(content["precisions"].items())
        if name != "float32"
    ]
    return lines
