"""Shares: each client's share of the server's samples, as assumed and as measured."""

import statistics
from typing import Any

from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.fedevg.kinds import Shares
from fedrepro.report.drawing import charts
from fedrepro.report.drawing.charts import Bar
from fedrepro.report.pages.figures.base import Drawn, Panel, with_study


def draw(workbench: Workbench, target: FigureTarget, figure: Shares) -> Drawn:
    drawn = Drawn(
        "Shares in percent. Sampled shares are means over seeds, with a thin line from the "
        "lowest to the highest.",
        ("Constants", "Client", "Weight, %", "Follows from the constants, %", "Sampled, %"),
    )
    return with_study(drawn, workbench.root, target.study, _add_all)


def _add_all(drawn: Drawn, content: dict[str, Any]) -> None:
    for name, case in content["cases"].items():
        _add(drawn, name, case)


def _add(drawn: Drawn, name: str, case: dict[str, Any]) -> None:
    """Add a panel, and a row for each client."""
    bars, off = [], 0.0
    for client, weight in enumerate(case["weights"]):
        sampled = [100 * shares[client] for shares in case["sampled"]]
        mean, ends = statistics.fmean(sampled), (min(sampled), max(sampled))
        label = f"client {client + 1}"
        off = max(off, abs(mean - 100 * weight))
        bars.append(Bar(f"{label}, weight", 100 * weight, 100 * weight, 100 * weight))
        bars.append(Bar(f"{label}, sampled", mean, *ends))
        followed = f"{100 * case['followed'][client]:.1f}"
        drawn.rows.append((name, label, f"{100 * weight:.1f}", followed, f"{mean:.1f}"))
    drawn.say(f"With {name} constants, sampled shares are up to {off:.1f} points from the weights.")
    words = "; ".join(f"{bar.name} {bar.value:.1f} %" for bar in bars)
    svg = charts.bars(bars, description=f"{name} normalising constants: {words}.", decimals=1)
    likely = ", ".join(f"{float(p):.2f}" for p in case["p"])
    drawn.panels.append(Panel(f"Constants {name}, %", svg))
    drawn.caption += f" Constants {name}: two-sample tests against the mixture give p = {likely}."
