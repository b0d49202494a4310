"""Partitions: samples per client and class, a panel per setting."""

from fedrepro.config.figures import Partitions
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.drawing.partition import draw_partition
from fedrepro.report.pages.figures.base import Drawn, Panel, distinct_settings

WIDTH = 400  # of a panel


def draw(workbench: Workbench, target: FigureTarget, figure: Partitions) -> Drawn:
    drawn = Drawn(
        "Clients from left to right, classes from top to bottom; darker is more training "
        "samples, relative to the panel's largest cell.",
        ("Setting", "Seed", "Samples of a class at a client, at most", "What clients hold"),
    )
    seed = target.seeds[0]
    for label, name in distinct_settings(figure.panels, target):
        setting = workbench.setting(f"{target.system}/{name}")
        path = setting.partition_path(seed).with_suffix(".json")
        if chart := draw_partition(workbench.root, path, WIDTH):
            drawn.panels.append(Panel(label, chart.svg))
            drawn.say(f"{label}: {chart.summary}")
            drawn.rows.append((name, str(chart.seed), str(chart.most), chart.summary))
    return drawn
