"""Experiments are data: typed models of ``config/`` and what follows from them.

``load`` reads ``config/config.yaml`` and every ``config/experiments/*.yaml``. The result, a
:class:`Workbench`, knows each setting, each table with the runs it needs at a scale, and the
resolved description of every run. Nothing here imports torch.
"""

from fedrepro.config.figures import Charts, HeatMap, Landscape, Mixtures, Regret
from fedrepro.config.loading import load
from fedrepro.config.settings import Config, Overrides, Setting
from fedrepro.config.tables import (
    ClientStatistics,
    Column,
    Metric,
    Mix,
    OverClients,
    Place,
    Summary,
    Table,
)
from fedrepro.config.targets import Cell, ComputedTarget, FigureTarget, Run, TableTarget, Target
from fedrepro.config.values import SCALES, Hyperparameters
from fedrepro.config.workbench import CONFIG, EXPERIMENTS, Experiment, Workbench

__all__ = [
    "CONFIG",
    "EXPERIMENTS",
    "SCALES",
    "Cell",
    "Charts",
    "ClientStatistics",
    "Column",
    "ComputedTarget",
    "Config",
    "Experiment",
    "FigureTarget",
    "HeatMap",
    "Hyperparameters",
    "Landscape",
    "Metric",
    "Mix",
    "Mixtures",
    "OverClients",
    "Overrides",
    "Place",
    "Regret",
    "Run",
    "Setting",
    "Summary",
    "Table",
    "TableTarget",
    "Target",
    "Workbench",
    "load",
]
