"""fedrepro: a reproducibility workbench for federated learning under statistical heterogeneity."""

__version__ = "0.1.0"
